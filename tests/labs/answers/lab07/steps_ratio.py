# %% right: over values, by the distribution function
def steps_ratio(lengths, slots):
    n = len(lengths)

    def at_most(x):
        return sum(length <= x for length in lengths) / n

    longest = sum(1 - at_most(x) ** slots for x in range(max(lengths)))
    return longest / (sum(lengths) / n)


# %% right: exact fractions
def steps_ratio(lengths, slots):
    from fractions import Fraction

    ordered, n = sorted(lengths), len(lengths)
    longest = sum(x * (Fraction(i + 1, n) ** slots - Fraction(i, n) ** slots) for i, x in enumerate(ordered))
    return float(longest / Fraction(sum(ordered), n))


# %% wrong: longest of all
# says: the longest of *all* lengths
def steps_ratio(lengths, slots):
    return max(lengths) / (sum(lengths) / len(lengths))


# %% wrong: inverse
# says: the inverse of what is asked
def steps_ratio(lengths, slots):
    ordered, n = sorted(lengths), len(lengths)
    longest = sum(x * ((i / n) ** slots - ((i - 1) / n) ** slots) for i, x in enumerate(ordered, 1))
    return sum(lengths) / n / longest


# %% wrong: by the median
# says: divided by the median
def steps_ratio(lengths, slots):
    import statistics

    ordered, n = sorted(lengths), len(lengths)
    longest = sum(x * ((i / n) ** slots - ((i - 1) / n) ** slots) for i, x in enumerate(ordered, 1))
    return longest / statistics.median(lengths)


# %% wrong: not divided
# says: how long a batch lasts
def steps_ratio(lengths, slots):
    ordered, n = sorted(lengths), len(lengths)
    return sum(x * ((i / n) ** slots - ((i - 1) / n) ** slots) for i, x in enumerate(ordered, 1))


# %% wrong: combinations
# says: a length is drawn only once
def steps_ratio(lengths, slots):
    from math import comb

    ordered, n = sorted(lengths), len(lengths)
    slots = min(slots, n)
    longest = sum(x * comb(i, slots - 1) for i, x in enumerate(ordered)) / comb(n, slots)
    return longest / (sum(lengths) / n)


# %% wrong: one slot more
# says: one slot more
def steps_ratio(lengths, slots):
    ordered, n = sorted(lengths), len(lengths)
    longest = sum(x * ((i / n) ** (slots + 1) - ((i - 1) / n) ** (slots + 1)) for i, x in enumerate(ordered, 1))
    return longest * n / sum(lengths)


# %% wrong: something else
# says: the result is not the right one
def steps_ratio(lengths, slots):
    return 2.0
