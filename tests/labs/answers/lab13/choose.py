# %% right: a loop
def choose(rows, room, limit):
    best = None
    for row in rows:
        if row["retrains"] or row["bytes"] > room or row["seconds"] > limit:
            continue
        if best is None or row["loss"] < best["loss"]:
            best = row
    return best and best["name"]


# %% right: sorted
def choose(rows, room, limit):
    for row in sorted(rows, key=lambda row: row["loss"]):
        if not row["retrains"] and row["bytes"] <= room and row["seconds"] <= limit:
            return row["name"]
    return None


# %% wrong: smallest
# says: the smallest is taken
def choose(rows, room, limit):
    able = [r for r in rows if r["bytes"] <= room and r["seconds"] <= limit and not r["retrains"]]
    return min(able, key=lambda r: r["bytes"])["name"] if able else None


# %% wrong: takes a new model
# says: needs another model
def choose(rows, room, limit):
    able = [r for r in rows if r["bytes"] <= room and r["seconds"] <= limit]
    return min(able, key=lambda r: r["loss"])["name"] if able else None


# %% wrong: no limit
# says: the limit on the time
def choose(rows, room, limit):
    able = [r for r in rows if r["bytes"] <= room and not r["retrains"]]
    return min(able, key=lambda r: r["loss"])["name"] if able else None


# %% wrong: no memory
# says: the memory is not looked at
def choose(rows, room, limit):
    able = [r for r in rows if r["seconds"] <= limit and not r["retrains"]]
    return min(able, key=lambda r: r["loss"])["name"] if able else None


# %% wrong: strictly
# says: exactly the memory
def choose(rows, room, limit):
    able = [r for r in rows if r["bytes"] < room and r["seconds"] < limit and not r["retrains"]]
    return min(able, key=lambda r: r["loss"])["name"] if able else None


# %% wrong: something all the same
# says: the answer is None
def choose(rows, room, limit):
    able = [r for r in rows if r["bytes"] <= room and r["seconds"] <= limit and not r["retrains"]]
    return min(able, key=lambda r: r["loss"])["name"] if able else "as trained"
