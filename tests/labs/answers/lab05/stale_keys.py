# %% right: a loop
def stale_keys(block_of, tokens_of, key):
    wrong = set()
    for k in block_of:
        held = tokens_of.get(block_of[k])
        if held is None or key(held) != k:
            wrong.add(k)
    return wrong


# %% right: what is true, taken away from all
def stale_keys(block_of, tokens_of, key):
    true = {(key(tokens), block) for block, tokens in tokens_of.items()}
    return {k for k, block in set(block_of.items()) - true}


# %% wrong: blocks that hold nothing are left out
# says: a key whose block holds nothing is not seen
def stale_keys(block_of, tokens_of, key):
    return {k for k, b in block_of.items() if b in tokens_of and key(tokens_of[b]) != k}


# %% wrong: blocks
# says: the blocks are returned
def stale_keys(block_of, tokens_of, key):
    return {b for k, b in block_of.items() if b not in tokens_of or key(tokens_of[b]) != k}


# %% wrong: from the blocks
# says: a block that no key names is no lie
def stale_keys(block_of, tokens_of, key):
    return {key(tokens) for b, tokens in tokens_of.items() if block_of.get(key(tokens)) != b}


# %% wrong: any block will do
# says: the block that it names has to
def stale_keys(block_of, tokens_of, key):
    held = [key(tokens) for tokens in tokens_of.values()]
    return {k for k in block_of if k not in held}
