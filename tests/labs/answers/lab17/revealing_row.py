# %% right: steps, far below zero
def revealing_row(V, block):
    return torch.tensor([-500.0 + 3 * (i // block) for i in range(V)])

# %% right: one larger score at the end
def revealing_row(V, block):
    row = torch.full((V,), -200.0)
    row[-1] = -199.0
    return row

# %% wrong: random
# says: the kernel that subtracts no maximum is right on this row
def revealing_row(V, block):
    return torch.linspace(-2, -1, V)

# %% wrong: falling
# says: the kernel that forgets to shrink is right on this row
def revealing_row(V, block):
    return torch.linspace(-200.0, -300.0, V)

# %% wrong: far above zero
# says: the kernel that loads 0 behind the end is right on this row
def revealing_row(V, block):
    return torch.linspace(200.0, 300.0, V)

# %% wrong: with infinity
# says: the row must be finite
def revealing_row(V, block):
    row = torch.linspace(-300.0, -200.0, V)
    row[0] = -math.inf
    return row

# %% wrong: a list of tiles
# says: a row of 21 numbers was wanted
def revealing_row(V, block):
    return torch.linspace(-300.0, -200.0, V // block * block)
