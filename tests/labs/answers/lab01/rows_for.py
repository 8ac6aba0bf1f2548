# %% right: a half more, and 16
def rows_for(rows, wanted):
    return wanted + wanted // 2 + 16


# %% right: a factor of the old length, or what is wanted
def rows_for(rows, wanted):
    return max(wanted, int(1.49 * rows))


# %% wrong: as ConcatCache does
# says: grow by a factor
def rows_for(rows, wanted):
    return wanted


# %% wrong: doubling
# says: more than one and a half times
def rows_for(rows, wanted):
    return 2 * wanted


# %% wrong: the old length alone
# says: a step may bring many tokens at once
def rows_for(rows, wanted):
    return rows + rows // 2 + 16


# %% wrong: not whole
# says: rows are whole
def rows_for(rows, wanted):
    return wanted * 1.5
