# %% right: one after the other
def tree_positions(parents, length):
    positions = []
    for parent in parents:
        positions.append(length if parent == -1 else positions[parent] + 1)
    return positions


# %% right: by counting ancestors
def tree_positions(parents, length):
    def depth(i):
        return 0 if parents[i] == -1 else 1 + depth(parents[i])

    return [length + depth(i) for i in range(len(parents))]


# %% wrong: by number
# says: positions count nodes
def tree_positions(parents, length):
    return list(range(length, length + len(parents)))


# %% wrong: one too many
# says: one too many
def tree_positions(parents, length):
    depths = []
    for parent in parents:
        depths.append(1 if parent == -1 else depths[parent] + 1)
    return [length + d for d in depths]


# %% wrong: one too few
# says: one too few
def tree_positions(parents, length):
    depths = []
    for parent in parents:
        depths.append(-1 if parent == -1 else depths[parent] + 1)
    return [length + d for d in depths]


# %% wrong: without the text
# says: the text before them is forgotten
def tree_positions(parents, length):
    depths = []
    for parent in parents:
        depths.append(0 if parent == -1 else depths[parent] + 1)
    return depths
