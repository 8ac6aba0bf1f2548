# %% right: measured on formulas
def exponents():
    def grown(count):
        return round(math.log2(count(8000) / count(4000)))

    return {
        "rows without": grown(lambda n: n + n * (n - 1) // 2),
        "rows with": grown(lambda n: n),
        "pairs without": grown(lambda n: sum(k * k for k in range(n))),
        "pairs with": grown(lambda n: n * (n + 1) // 2),
    }


# %% right: another order
def exponents():
    return dict([("pairs with", 2), ("pairs without", 3), ("rows with", 1), ("rows without", 2)])


# %% wrong: attention becomes linear
# says: each token still meets every earlier key
def exponents():
    return {"rows without": 2, "rows with": 1, "pairs without": 3, "pairs with": 1}


# %% wrong: pairs of one step
# says: without a cache there are n steps
def exponents():
    return {"rows without": 2, "rows with": 1, "pairs without": 2, "pairs with": 2}


# %% wrong: rows of one step, without
# says: rows without a cache are called linear
def exponents():
    return {"rows without": 1, "rows with": 1, "pairs without": 3, "pairs with": 2}


# %% wrong: no gain in rows
# says: rows with a cache are called quadratic
def exponents():
    return {"rows without": 2, "rows with": 2, "pairs without": 3, "pairs with": 2}


# %% wrong: rows of one step, with
# says: but the sum over n steps does
def exponents():
    return {"rows without": 2, "rows with": 0, "pairs without": 3, "pairs with": 2}


# %% wrong: a key is missing
# says: of another kind or shape
def exponents():
    return {"rows without": 2, "rows with": 1, "pairs with": 2}
