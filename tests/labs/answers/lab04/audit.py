# %% right: with counters
def audit(tables, users, free):
    from collections import Counter

    named, spare = Counter(), Counter(free)
    for table in tables.values():
        named.update(table)
    return [b for b, n in enumerate(users) if named[b] != n or spare[b] != (0 if n else 1)]


# %% right: two sets, joined
def audit(tables, users, free):
    entries = [block for table in tables.values() for block in table]
    wrong = set()
    for block in range(len(users)):
        if entries.count(block) != users[block]:
            wrong.add(block)
        if free.count(block) > 1 or (block in free) == (block in entries):
            wrong.add(block)
    return sorted(wrong)


# %% wrong: only what is named somewhere
# says: it is lost, and that is wrong too
def audit(tables, users, free):
    entries = [block for table in tables.values() for block in table]
    wrong = []
    for block in sorted({*entries, *free}):
        named = entries.count(block)
        if named != users[block] or free.count(block) != (named == 0):
            wrong.append(block)
    return wrong


# %% wrong: free as a set
# says: stands in the free list twice is not seen
def audit(tables, users, free):
    entries = [block for table in tables.values() for block in table]
    spare = set(free)
    return [b for b in range(len(users)) if entries.count(b) != users[b] or (b in spare) == (b in entries)]


# %% wrong: no counts
# says: the counts are not compared with the tables
def audit(tables, users, free):
    entries = [block for table in tables.values() for block in table]
    return [b for b in range(len(users)) if free.count(b) != (0 if b in entries else 1)]


# %% wrong: no free list
# says: the free list is not looked at
def audit(tables, users, free):
    entries = [block for table in tables.values() for block in table]
    return [b for b in range(len(users)) if entries.count(b) != users[b]]


# %% wrong: sharing forbidden
# says: a shared block is called wrong
def audit(tables, users, free):
    entries = [block for table in tables.values() for block in table]
    everything = entries + free
    return [b for b in range(len(users)) if everything.count(b) != 1 or users[b] != entries.count(b)]


# %% wrong: no tables
# says: the tables are not looked at
def audit(tables, users, free):
    return [b for b, n in enumerate(users) if free.count(b) != (n == 0)]
