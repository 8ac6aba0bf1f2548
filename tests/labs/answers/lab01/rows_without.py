# %% right: a sum over the steps
def rows_without(P, n):
    return sum(P + step for step in range(n))


# %% right: a loop that grows the text
def rows_without(P, n):
    length, rows = P, 0
    for _ in range(n):
        rows += length
        length += 1
    return rows


# %% wrong: the last token is run too
# says: a step too many
def rows_without(P, n):
    return sum(P + step for step in range(n + 1))


# %% wrong: all steps of full length
# says: n steps of full length
def rows_without(P, n):
    return n * (P + n)


# %% wrong: the text never grows
# says: never the tokens that have been added
def rows_without(P, n):
    return n * P


# %% wrong: with a cache
# says: the count with a cache
def rows_without(P, n):
    return P + n - 1


# %% wrong: a division that gives a float
# says: divide with //
def rows_without(P, n):
    return n * P + n * (n - 1) / 2
