# %% right: the most likely node next, from a plain list
def best_tree(shares, nodes):
    tree = []
    open_paths = {(rank,): share for rank, share in enumerate(shares[0])}
    while open_paths and len(tree) < nodes:
        path = max(open_paths, key=open_paths.get)
        value = open_paths.pop(path)
        tree.append(path)
        if len(path) < len(shares):
            open_paths.update({(*path, rank): value * share for rank, share in enumerate(shares[len(path)])})
    return tree


# %% right: all paths, sorted
def best_tree(shares, nodes):
    paths, level = {}, {(): 1.0}
    for row in shares:
        level = {(*path, rank): value * share for path, value in level.items() for rank, share in enumerate(row)}
        paths |= level
    return sorted(paths, key=lambda path: (-paths[path], len(path), path))[:nodes]


# %% wrong: a chain
# says: a second one beside it is worth more
def best_tree(shares, nodes):
    return [(0,) * depth for depth in range(1, min(nodes, len(shares)) + 1)]


# %% wrong: siblings only
# says: guesses for the first place only
def best_tree(shares, nodes):
    return [(rank,) for rank in range(min(nodes, len(shares[0])))]


# %% wrong: level by level
# says: Compare the probabilities of whole paths
def best_tree(shares, nodes):
    tree, level = [], [()]
    for row in shares:
        level = [(*path, rank) for path in level for rank in range(len(row))]
        tree += level
    return tree[:nodes]


# %% wrong: twice
# says: a path occurs twice
def best_tree(shares, nodes):
    return [(0,)] * nodes if nodes > 1 else [(0,), (0,)]


# %% wrong: over the budget
# says: nodes came, and
def best_tree(shares, nodes):
    return [(0,) * depth for depth in range(1, len(shares) + 1)] + [(1,), (2,)] + [(0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]


# %% wrong: deeper than the table
# says: is deeper than
def best_tree(shares, nodes):
    return [(0,) * depth for depth in range(1, nodes + 1)]


# %% wrong: an orphan
# says: has no parent
def best_tree(shares, nodes):
    return [(0, 0)][:nodes]


# %% wrong: stops early
# says: nodes are left over
def best_tree(shares, nodes):
    return [(0,), (0, 0), (1,)][:nodes]


# %% wrong: numbers instead of paths
# says: each a tuple of ranks
def best_tree(shares, nodes):
    return list(range(nodes))
