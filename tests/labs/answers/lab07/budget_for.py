# %% right: step by step
def budget_for(prompt, decodes, fixed, each, limit):
    budget = 0
    while fixed + (budget + 1) * each <= limit:
        budget += 1
    steps = time = 0
    while prompt > 0:
        chunk = min(prompt, budget - decodes)
        prompt -= chunk
        steps += 1
        time += fixed + each * (chunk + decodes)
    return budget, steps, time


# %% right: math.ceil
def budget_for(prompt, decodes, fixed, each, limit):
    import math

    budget = (limit - fixed) // each
    steps = math.ceil(prompt / (budget - decodes))
    return budget, steps, fixed * steps + each * prompt + each * decodes * steps


# %% wrong: no fixed part
# says: take it off the limit first
def budget_for(prompt, decodes, fixed, each, limit):
    budget = limit // each
    steps = -(-prompt // (budget - decodes))
    return budget, steps, fixed * steps + each * (prompt + decodes * steps)


# %% wrong: all for the prompt
# says: one token each of it
def budget_for(prompt, decodes, fixed, each, limit):
    budget = (limit - fixed) // each
    steps = -(-prompt // budget)
    return budget, steps, fixed * steps + each * (prompt + decodes * steps)


# %% wrong: rounded down
# says: round up
def budget_for(prompt, decodes, fixed, each, limit):
    budget = (limit - fixed) // each
    steps = max(1, prompt // (budget - decodes))
    return budget, steps, fixed * steps + each * (prompt + decodes * steps)


# %% wrong: every step full
# says: taken for full
def budget_for(prompt, decodes, fixed, each, limit):
    budget = (limit - fixed) // each
    steps = -(-prompt // (budget - decodes))
    return budget, steps, steps * (fixed + each * budget)


# %% wrong: something else
# says: the result is not the right one
def budget_for(prompt, decodes, fixed, each, limit):
    return 512, 1, limit


# %% wrong: without those who decode
# says: those who decode are not there
def budget_for(prompt, decodes, fixed, each, limit):
    budget = (limit - fixed) // each
    steps = -(-prompt // budget)
    return budget, steps, steps * fixed + each * prompt


# %% wrong: decodes take no time
# says: the time of those who decode is forgotten
def budget_for(prompt, decodes, fixed, each, limit):
    budget = (limit - fixed) // each
    steps = -(-prompt // (budget - decodes))
    return budget, steps, steps * fixed + each * prompt


# %% wrong: steps as long as allowed
# says: as long as the limit allows
def budget_for(prompt, decodes, fixed, each, limit):
    budget = (limit - fixed) // each
    steps = -(-prompt // (budget - decodes))
    return budget, steps, steps * limit
