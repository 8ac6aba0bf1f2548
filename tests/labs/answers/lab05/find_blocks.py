# %% right: recursion
def find_blocks(ids, C, entries, key):
    def more(rest, before, parent):
        if len(rest) <= C:
            return []
        page = tuple(rest[:C])
        k = key(before, page)
        for block, its_parent, tokens in entries.get(k, ()):
            if tokens == page and its_parent == parent:
                return [block, *more(rest[C:], k, block)]
        return []

    return more(list(ids), None, None)


# %% right: the chain of pages first, then a lookup of all fields at once
def find_blocks(ids, C, entries, key):
    found, k, parent = [], None, None
    for number in range((len(ids) - 1) // C):
        page = tuple(ids[number * C : number * C + C])
        k = key(k, page)
        by_content = {(before, tokens): block for block, before, tokens in entries.get(k, [])}
        if (parent, page) not in by_content:
            return found
        parent = by_content[parent, page]
        found.append(parent)
    return found


# %% wrong: trusts the key
# says: a key says where to look, not what is there
def find_blocks(ids, C, entries, key):
    blocks, k = [], None
    for i in range(0, len(ids) - C, C):
        k = key(k, tuple(ids[i : i + C]))
        if k not in entries:
            break
        blocks.append(entries[k][0][0])
    return blocks


# %% wrong: compares the page and not its history
# says: but not what stands before it
def find_blocks(ids, C, entries, key):
    blocks, k = [], None
    for i in range(0, len(ids) - C, C):
        page = tuple(ids[i : i + C])
        k = key(k, page)
        same = [block for block, _, tokens in entries.get(k, []) if tokens == page]
        if not same:
            break
        blocks.append(same[0])
    return blocks


# %% wrong: the last token too
# says: the last token is reused too
def find_blocks(ids, C, entries, key):
    blocks, k, parent = [], None, None
    for i in range(0, len(ids) - C + 1, C):
        page = tuple(ids[i : i + C])
        k = key(k, page)
        same = [block for block, before, tokens in entries.get(k, []) if tokens == page and before == parent]
        if not same:
            break
        blocks.append(same[0])
        parent = same[0]
    return blocks


# %% wrong: leaves a block out to be safe
# says: one block less is always returned
def find_blocks(ids, C, entries, key):
    blocks, k, parent = [], None, None
    for i in range(0, len(ids) - C + 1, C):
        page = tuple(ids[i : i + C])
        k = key(k, page)
        same = [block for block, before, tokens in entries.get(k, []) if tokens == page and before == parent]
        if not same:
            break
        blocks.append(same[0])
        parent = same[0]
    return blocks[:-1]


# %% wrong: goes on after a gap
# says: a prefix ends at the first gap
def find_blocks(ids, C, entries, key):
    blocks, k, parent = [], None, None
    for i in range(0, len(ids) - C, C):
        page = tuple(ids[i : i + C])
        k = key(k, page)
        for block, before, tokens in entries.get(k, []):
            if tokens == page and before == parent:
                blocks.append(block)
                parent = block
                break
    return blocks


# %% wrong: a list against a tuple
# says: a list never equals a tuple
def find_blocks(ids, C, entries, key):
    blocks, page_key, parent = [], None, None
    for start in range(0, len(ids) - C, C):
        page = ids[start : start + C]
        page_key = key(page_key, tuple(page))
        fitting = [block for block, before, tokens in entries.get(page_key, []) if tokens == page and before == parent]
        if not fitting:
            break
        parent = fitting[0]
        blocks.append(parent)
    return blocks
