# %% right: unit by unit
def where_is(t, before, residual, unit, C):
    if t == before:
        return ("fresh", 0, 0)
    end_of_unit = (t // unit + 1) * unit
    if end_of_unit <= before - residual:
        return ("page", t // C, t % C)
    return ("tail", 0, t % (residual + unit - 1))


# %% right: counting up
def where_is(t, before, residual, unit, C):
    border = 0
    while border + unit <= before - residual:
        border += unit
    if t < border:
        return ("page", *divmod(t, C))
    return ("fresh", 0, 0) if t == before else ("tail", 0, t % (residual + unit - 1))


# %% wrong: no exact tokens
# says: never seen as codes
def where_is(t, before, residual, unit, C):
    if t == before:
        return ("fresh", 0, 0)
    return ("page", t // C, t % C) if t < before // unit * unit else ("tail", 0, t % (residual + unit - 1))


# %% wrong: units that are not complete
# says: round down to whole units
def where_is(t, before, residual, unit, C):
    if t == before:
        return ("fresh", 0, 0)
    return ("page", t // C, t % C) if t < before - residual else ("tail", 0, t % (residual + unit - 1))


# %% wrong: the new token counts
# says: the new token counts among those before it
def where_is(t, before, residual, unit, C):
    if t == before:
        return ("fresh", 0, 0)
    border = max(0, before + 1 - residual) // unit * unit
    return ("page", t // C, t % C) if t < border else ("tail", 0, t % (residual + unit - 1))


# %% wrong: a ring of the residual
# says: what fills no unit yet
def where_is(t, before, residual, unit, C):
    if t == before:
        return ("fresh", 0, 0)
    border = max(0, before - residual) // unit * unit
    return ("page", t // C, t % C) if t < border else ("tail", 0, t % max(residual, 1))


# %% wrong: its own token in the tail
# says: it comes with the step
def where_is(t, before, residual, unit, C):
    border = max(0, before - residual) // unit * unit
    return ("page", t // C, t % C) if t < border else ("tail", 0, t % (residual + unit - 1))
