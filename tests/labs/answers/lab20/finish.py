# %% right: with a list of moments asked
def finish(times, launch):
    asked = [(i + 1) * launch for i in range(len(times))]
    end = idle = 0.0
    for moment, took in zip(asked, times):
        if moment > end:
            idle += moment - end
            end = moment
        end += took
    return end, idle


# %% right: from the back
def finish(times, launch):
    end = max([(i + 1) * launch + sum(times[i:]) for i in range(len(times))], default=0.0)
    return float(end), float(end - sum(times))


# %% wrong: added up
# says: the host's time and the device's are added
def finish(times, launch):
    host, device = len(times) * launch, float(sum(times))
    return host + device, host + device - device


# %% wrong: the larger
# says: it is the larger of the two sums
def finish(times, launch):
    end = max(len(times) * launch, float(sum(times)))
    return end, end - sum(times)


# %% wrong: a launch too early
# says: a kernel starts while the host is still asking for it
def finish(times, launch):
    free = 0.0
    for i, took in enumerate(times):
        free = max(free, i * launch) + took
    return free, free - sum(times)
