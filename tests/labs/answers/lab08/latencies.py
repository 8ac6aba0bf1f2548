# %% right: one loop over all events
def latencies(trace, request):
    start, seen = None, []
    for event in trace.events:
        if isinstance(event, Arrived) and event.request == request:
            start = event.time
        elif isinstance(event, Stepped):
            for share in event.shares:
                if share.sampled and share.request == request:
                    seen.append(event.time)
    ttft = seen[0] - start
    if len(seen) == 1:
        return ttft, None, None
    return ttft, (seen[-1] - seen[0]) / (len(seen) - 1), max(b - a for a, b in zip(seen[:-1], seen[1:]))


# %% right: with NumPy
def latencies(trace, request):
    import numpy as np

    start = [e.time for e in trace.of(Arrived) if e.request == request][0]
    times = np.array([s.time for s in trace.of(Stepped) if (request, True) in {(x.request, x.sampled) for x in s.shares}])
    gaps = np.diff(times)
    if gaps.size == 0:
        return float(times[0] - start), None, None
    return float(times[0] - start), float(gaps.mean()), float(gaps.max())


# %% wrong: from the slot on
# says: the watch starts when the request gets a slot
def latencies(trace, request):
    start = [e.time for e in trace.of(Admitted) if e.request == request][0]
    times = [s.time for s in trace.of(Stepped) for x in s.shares if x.request == request and x.sampled]
    gaps = [b - a for a, b in zip(times, times[1:])]
    return (times[0] - start, sum(gaps) / len(gaps), max(gaps)) if gaps else (times[0] - start, None, None)


# %% wrong: every share is a token
# says: every share counts as a token
def latencies(trace, request):
    start = [e.time for e in trace.of(Arrived) if e.request == request][0]
    times = [s.time for s in trace.of(Stepped) for x in s.shares if x.request == request]
    gaps = [b - a for a, b in zip(times, times[1:])]
    return (times[0] - start, sum(gaps) / len(gaps), max(gaps)) if gaps else (times[0] - start, None, None)


# %% wrong: the start of the step
# says: dated to the start of their step
def latencies(trace, request):
    start = [e.time for e in trace.of(Arrived) if e.request == request][0]
    times = [s.start for s in trace.of(Stepped) for x in s.shares if x.request == request and x.sampled]
    gaps = [b - a for a, b in zip(times, times[1:])]
    return (times[0] - start, sum(gaps) / len(gaps), max(gaps)) if gaps else (times[0] - start, None, None)


# %% wrong: n tokens, n gaps
# says: n tokens have n - 1 gaps
def latencies(trace, request):
    start = [e.time for e in trace.of(Arrived) if e.request == request][0]
    times = [s.time for s in trace.of(Stepped) for x in s.shares if x.request == request and x.sampled]
    gaps = [b - a for a, b in zip(times, times[1:])]
    return (times[0] - start, sum(gaps) / len(times), max(gaps)) if gaps else (times[0] - start, None, None)


# %% wrong: latency over tokens
# says: the wait for the first one is in it
def latencies(trace, request):
    start = [e.time for e in trace.of(Arrived) if e.request == request][0]
    times = [s.time for s in trace.of(Stepped) for x in s.shares if x.request == request and x.sampled]
    gaps = [b - a for a, b in zip(times, times[1:])]
    return (times[0] - start, (times[-1] - start) / len(times), max(gaps)) if gaps else (times[0] - start, None, None)
