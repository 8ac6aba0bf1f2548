# %% right: moment by moment, counted anew
def mean_inside(trace):
    came = [e.time for e in trace.of(Arrived)]
    went = [e.time for e in trace.of(Ended)]
    moments = sorted(set(came + went))
    area = 0.0
    for now, later in zip(moments, moments[1:]):
        area += (sum(t <= now for t in came) - sum(t <= now for t in went)) * (later - now)
    return area / (moments[-1] - moments[0])


# %% right: with NumPy
def mean_inside(trace):
    import numpy as np

    moments = sorted([(e.time, 1) for e in trace.of(Arrived)] + [(e.time, -1) for e in trace.of(Ended)])
    times, changes = np.array(moments).T
    return float((np.cumsum(changes)[:-1] * np.diff(times)).sum() / (times[-1] - times[0]))


# %% wrong: over events
# says: it is the mean over events
def mean_inside(trace):
    moments = sorted([(e.time, 1) for e in trace.of(Arrived)] + [(e.time, -1) for e in trace.of(Ended)])
    inside, heads = 0, []
    for _, change in moments[:-1]:
        inside += change
        heads.append(inside)
    return sum(heads) / len(heads)


# %% wrong: with a slot only
# says: only those with a slot are counted
def mean_inside(trace):
    moments = sorted([(e.time, 1) for e in trace.of(Admitted) if not e.again] + [(e.time, -1) for e in trace.of(Ended)])
    inside = area = 0
    for (now, change), (later, _) in zip(moments, moments[1:]):
        inside += change
        area += inside * (later - now)
    return area / (trace.of(Ended)[-1].time - trace.of(Arrived)[0].time)


# %% wrong: from 0
# says: the run begins with the first arrival
def mean_inside(trace):
    moments = sorted([(e.time, 1) for e in trace.of(Arrived)] + [(e.time, -1) for e in trace.of(Ended)])
    inside = area = 0
    for (now, change), (later, _) in zip(moments, moments[1:]):
        inside += change
        area += inside * (later - now)
    return area / moments[-1][0]


# %% wrong: the most
# says: it is the largest number
def mean_inside(trace):
    came, went = [e.time for e in trace.of(Arrived)], [e.time for e in trace.of(Ended)]
    return float(max(sum(t <= now for t in came) - sum(t <= now for t in went) for now in came))


# %% wrong: adds latencies
# says: latencies are added up
def mean_inside(trace):
    times = timings(trace)
    return sum(t.latency_seconds for t in times if t.latency_seconds is not None) / span_seconds(trace)
