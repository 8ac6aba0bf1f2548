# %% right: a triangle for the mask, and fresh buffers that are filled
def cached_attention(block, x_TM, kept):
    q_THD, k_TKD, v_TKD = project(block, x_TM)
    T, S = len(x_TM), len(kept[0]) + len(x_TM)
    places = torch.arange(S)[-T:]
    keys, values = torch.empty(S, K, D), torch.empty(S, K, D)
    keys[: S - T], values[: S - T] = kept
    keys[S - T :], values[S - T :] = turn(k_TKD, places), v_TKD
    hidden = torch.ones(T, S, dtype=torch.bool).triu(S - T + 1)
    return attend(turn(q_THD, places), keys, values, hidden), [keys, values]


# %% right: one token after the other, in double precision
def cached_attention(block, x_TM, kept):
    q, k, v = (x.double() for x in project(block, x_TM))
    keys, values, out = kept[0].double(), kept[1].double(), []
    for i in range(len(q)):
        place = torch.tensor([len(keys)])
        keys = torch.cat((keys, turn(k[i : i + 1], place)))
        values = torch.cat((values, v[i : i + 1]))
        out.append(attend(turn(q[i : i + 1], place), keys, values, torch.zeros(1, len(keys), dtype=torch.bool)))
    return torch.cat(out).float(), (keys.float(), values.float())


# %% wrong: positions start again
# says: stands at positions 0, 1, 2 again
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = torch.arange(len(x_TM))
    keys, values = torch.cat((kept[0], turn(k, places))), torch.cat((kept[1], v))
    hidden = torch.ones(len(q), len(keys), dtype=torch.bool).triu(len(keys) - len(q) + 1)
    return attend(turn(q, places), keys, values, hidden), (keys, values)


# %% wrong: keys at positions from 0
# says: the second chunk's keys are turned to positions 0, 1, 2
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = len(kept[0]) + torch.arange(len(x_TM))
    keys, values = torch.cat((kept[0], turn(k, places - len(kept[0])))), torch.cat((kept[1], v))
    return attend(turn(q, places), keys, values, torch.arange(len(keys)) > places[:, None]), (keys, values)


# %% wrong: queries at positions from 0
# says: the second chunk's queries are turned to positions 0, 1, 2
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = len(kept[0]) + torch.arange(len(x_TM))
    keys, values = torch.cat((kept[0], turn(k, places))), torch.cat((kept[1], v))
    out = attend(turn(q, torch.arange(len(q))), keys, values, torch.arange(len(keys)) > places[:, None])
    return out, (keys, values)


# %% wrong: keys kept as they were projected
# says: the kept keys are not turned
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = len(kept[0]) + torch.arange(len(x_TM))
    keys, values = torch.cat((kept[0], k)), torch.cat((kept[1], v))
    return attend(turn(q, places), keys, values, torch.arange(len(keys)) > places[:, None]), (keys, values)


# %% wrong: values turned too
# says: the kept values are turned
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = len(kept[0]) + torch.arange(len(x_TM))
    keys, values = torch.cat((kept[0], turn(k, places))), torch.cat((kept[1], turn(v, places)))
    return attend(turn(q, places), keys, values, torch.arange(len(keys)) > places[:, None]), (keys, values)


# %% wrong: no mask
# says: something must be hidden
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = len(kept[0]) + torch.arange(len(x_TM))
    keys, values = torch.cat((kept[0], turn(k, places))), torch.cat((kept[1], v))
    return attend(turn(q, places), keys, values, torch.zeros(len(q), len(keys), dtype=torch.bool)), (keys, values)


# %% wrong: the mask of a prompt
# says: the mask starts at the top left
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = len(kept[0]) + torch.arange(len(x_TM))
    keys, values = torch.cat((kept[0], turn(k, places))), torch.cat((kept[1], v))
    hidden = torch.ones(len(q), len(keys), dtype=torch.bool).triu(1)
    return attend(turn(q, places), keys, values, hidden), (keys, values)


# %% wrong: tokens hidden from themselves
# says: do not see themselves
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = len(kept[0]) + torch.arange(len(x_TM))
    keys, values = torch.cat((kept[0], turn(k, places))), torch.cat((kept[1], v))
    hidden = torch.arange(len(keys)) >= places[:, None]
    hidden[:, 0] = False
    return attend(turn(q, places), keys, values, hidden), (keys, values)


# %% wrong: only the new rows kept
# says: the old ones are lost
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = len(kept[0]) + torch.arange(len(x_TM))
    k = turn(k, places)
    keys, values = torch.cat((kept[0], k)), torch.cat((kept[1], v))
    return attend(turn(q, places), keys, values, torch.arange(len(keys)) > places[:, None]), (k, v)


# %% wrong: only the attention returned
# says: two things were wanted
def cached_attention(block, x_TM, kept):
    q, k, v = project(block, x_TM)
    places = torch.arange(len(x_TM))
    return attend(turn(q, places), turn(k, places), v, places > places[:, None])

