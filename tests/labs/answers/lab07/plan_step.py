# %% right: three loops
def plan_step(running, waiting, slots, budget):
    plan = {}
    for name, pending in running:
        if pending == 1 and budget > 0:
            plan[name] = 1
            budget -= 1
    for name, pending in running:
        if pending > 1 and budget > 0:
            plan[name] = min(pending, budget)
            budget -= plan[name]
    free = slots - len(running)
    for name, pending in waiting:
        if free > 0 and budget > 0:
            plan[name] = min(pending, budget)
            budget -= plan[name]
            free -= 1
    return plan


# %% right: a sorted line, and a queue that is used up
def plan_step(running, waiting, slots, budget):
    line = sorted(running, key=lambda p: p[1] != 1) + waiting[: max(slots - len(running), 0)]
    plan = {}
    while line and budget:
        name, pending = line.pop(0)
        plan[name] = min(pending, budget)
        budget -= plan[name]
    return plan


# %% wrong: prompts first
# says: prompts take the budget before decodes
def plan_step(running, waiting, slots, budget):
    plan = {}
    line = [p for p in running if p[1] > 1] + [p for p in running if p[1] == 1] + waiting[: slots - len(running)]
    for name, pending in line:
        if budget:
            plan[name] = min(pending, budget)
            budget -= plan[name]
    return plan


# %% wrong: in their order
# says: served in their order
def plan_step(running, waiting, slots, budget):
    plan = {}
    for name, pending in running + waiting[: slots - len(running)]:
        if budget:
            plan[name] = min(pending, budget)
            budget -= plan[name]
    return plan


# %% wrong: newcomers first
# says: newcomers take the budget before those who run
def plan_step(running, waiting, slots, budget):
    plan = {}
    line = waiting[: slots - len(running)] + sorted(running, key=lambda p: p[1] > 1)
    for name, pending in line:
        if budget:
            plan[name] = min(pending, budget)
            budget -= plan[name]
    return plan


# %% wrong: newcomers before prompts under way
# says: before prompts that are under way
def plan_step(running, waiting, slots, budget):
    plan = {}
    line = [p for p in running if p[1] == 1] + waiting[: slots - len(running)] + [p for p in running if p[1] > 1]
    for name, pending in line:
        if budget:
            plan[name] = min(pending, budget)
            budget -= plan[name]
    return plan


# %% wrong: no slots
# says: than there are slots
def plan_step(running, waiting, slots, budget):
    plan = {}
    for name, pending in sorted(running, key=lambda p: p[1] > 1) + waiting:
        if budget:
            plan[name] = min(pending, budget)
            budget -= plan[name]
    return plan


# %% wrong: static
# says: that is static batching
def plan_step(running, waiting, slots, budget):
    plan = {}
    for name, pending in sorted(running, key=lambda p: p[1] > 1) or waiting[:slots]:
        if budget:
            plan[name] = min(pending, budget)
            budget -= plan[name]
    return plan


# %% wrong: whole prompts only
# says: never starts
def plan_step(running, waiting, slots, budget):
    plan = {}
    for name, pending in sorted(running, key=lambda p: p[1] > 1) + waiting[: slots - len(running)]:
        if pending <= budget:
            plan[name] = pending
            budget -= pending
    return plan


# %% wrong: no budget
# says: the budget is not kept
def plan_step(running, waiting, slots, budget):
    return dict(running + waiting[: slots - len(running)])


# %% wrong: zeros
# says: with 0 tokens
def plan_step(running, waiting, slots, budget):
    plan = {}
    for name, pending in sorted(running, key=lambda p: p[1] > 1) + waiting[: slots - len(running)]:
        plan[name] = min(pending, budget)
        budget -= plan[name]
    return plan


# %% wrong: a list of pairs
# says: a dict was wanted
def plan_step(running, waiting, slots, budget):
    return [(name, 1) for name, _ in running]


# %% wrong: something else
# says: the result is not the right one
def plan_step(running, waiting, slots, budget):
    return {name: 1 for name, _ in running[:budget]}
