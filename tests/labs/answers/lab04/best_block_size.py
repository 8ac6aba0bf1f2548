# %% right: a loop
def best_block_size(lengths, sizes, place_bytes, entry_bytes):
    best, least = None, None
    for C in sorted(sizes):
        total = 0
        for n in lengths:
            blocks = math.ceil(n / C)
            total += blocks * C * place_bytes + blocks * entry_bytes
        if least is None or total < least:
            best, least = C, total
    return best


# %% right: pairs of cost and size
def best_block_size(lengths, sizes, place_bytes, entry_bytes):
    return min((sum((n + C - 1) // C * (C * place_bytes + entry_bytes) for n in lengths), C) for C in sizes)[1]


# %% wrong: tables for nothing
# says: the tables cost nothing here
def best_block_size(lengths, sizes, place_bytes, entry_bytes):
    return min(sorted(sizes), key=lambda C: sum(math.ceil(n / C) * C * place_bytes for n in lengths))


# %% wrong: not rounded up
# says: blocks are not rounded up
def best_block_size(lengths, sizes, place_bytes, entry_bytes):
    return min(sorted(sizes), key=lambda C: sum(lengths) * place_bytes + sum(lengths) / C * entry_bytes)


# %% wrong: the average length
# says: the average length stands for all
def best_block_size(lengths, sizes, place_bytes, entry_bytes):
    mean = round(sum(lengths) / len(lengths))
    return min(sorted(sizes), key=lambda C: math.ceil(mean / C) * (C * place_bytes + entry_bytes))


# %% wrong: the larger of two
# says: the smaller one is wanted
def best_block_size(lengths, sizes, place_bytes, entry_bytes):
    costs = {C: sum(-(-n // C) * (C * place_bytes + entry_bytes) for n in lengths) for C in sizes}
    return max(C for C in sizes if costs[C] == min(costs.values()))
