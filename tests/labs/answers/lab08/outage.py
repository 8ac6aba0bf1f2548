# %% right: never served
def outage():
    return [(0.0, 0.1)] * 6 + [(1.0, math.inf)] * 6, 12.0


# %% right: with users still to come
def outage():
    return [[i, i + 0.4] for i in range(7)] + [[i, 90] for i in range(7, 20)] + [[80, 81]], 35


# %% wrong: the line has moved by then
# says: at least half were wanted
def outage():
    return [(float(i), i + 0.2) for i in range(10)] + [(float(i), 30.0) for i in range(10, 20)], 40.0


# %% wrong: not long enough
# says: users have been waiting for more than 10 s
def outage():
    return [(0.0, 0.1)] * 6 + [(1.0, 99.0)] * 6, 9.0


# %% wrong: too few users
# says: at least ten were wanted
def outage():
    return [(0.0, 0.2)] * 4 + [(0.0, 99.0)] * 5, 50.0


# %% wrong: nobody served
# says: fails instead of showing green
def outage():
    return [(0.0, 99.0)] * 12, 50.0


# %% wrong: the dashboard shows it
# says: the dashboard says 9.12 s
def outage():
    return [(0.0, 0.2)] * 9 + [(0.0, 10.0)] + [(0.0, 99.0)] * 10, 50.0


# %% wrong: tokens before arrivals
# says: it comes after the arrival
def outage():
    return [(10.0, 0.2)] * 6 + [(1.0, 99.0)] * 6, 50.0


# %% wrong: no pair
# says: a pair was wanted
def outage():
    return [(0.0, 0.2)] * 12


# %% wrong: None for those without a token
# says: or math.inf, in its place
def outage():
    return [(float(second), second + 0.2) for second in range(10)] + [(float(second), None) for second in range(10, 20)], 40.0
