# %% right: a list of all that may
def room(server, rate, tpot_limit):
    may = [B for B in range(1, 5000) if server.step(B) <= tpot_limit]
    fits = [B for B in may if B >= server.running_at(rate)]
    return (fits[0], may[-1]) if fits else None


# %% right: bisected
def room(server, rate, tpot_limit):
    low, high = 0, 2**20
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if server.step(middle) <= tpot_limit else (low, middle)
    mean = server.running_at(rate)
    if low == 0 or mean > low:
        return None
    return max(1, -int(-mean // 1)), low


# %% wrong: rounded down
# says: the fewest is rounded down
def room(server, rate, tpot_limit):
    most = 0
    while server.step(most + 1) <= tpot_limit:
        most += 1
    mean = server.running_at(rate)
    return None if mean > most else (max(1, int(mean)), most)


# %% wrong: nobody
# says: at least 1
def room(server, rate, tpot_limit):
    most = 0
    while server.step(most + 1) <= tpot_limit:
        most += 1
    mean = server.running_at(rate)
    return None if most < 1 or mean > most else (math.ceil(mean), most)


# %% wrong: one more than the mean
# says: rounded up by one more
def room(server, rate, tpot_limit):
    most = 0
    while server.step(most + 1) <= tpot_limit:
        most += 1
    mean = server.running_at(rate)
    return None if most < 1 or mean > most else (int(mean) + 1, most)


# %% wrong: the first that misses
# says: the most is one too many
def room(server, rate, tpot_limit):
    most = 1
    while server.step(most) <= tpot_limit:
        most += 1
    mean = server.running_at(rate)
    return None if most == 1 or mean > most - 1 else (max(1, math.ceil(mean)), most)


# %% wrong: below the limit
# says: exactly the limit is counted as a miss
def room(server, rate, tpot_limit):
    most = 0
    while server.step(most + 1) < tpot_limit:
        most += 1
    mean = server.running_at(rate)
    return None if most < 1 or mean > most else (max(1, math.ceil(mean)), most)


# %% wrong: never None
# says: there is no such number: None
def room(server, rate, tpot_limit):
    most = 0
    while server.step(most + 1) <= tpot_limit:
        most += 1
    mean = server.running_at(rate)
    return None if most < 1 or mean == math.inf else (max(1, math.ceil(mean)), most)


# %% wrong: infinity
# says: infinity
def room(server, rate, tpot_limit):
    most = 0
    while server.step(most + 1) <= tpot_limit:
        most += 1
    fewest = max(1, math.ceil(server.running_at(rate)))
    return (fewest, most) if fewest <= most else None
