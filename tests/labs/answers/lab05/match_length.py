# %% right: recursion
def match_length(root, ids):
    child = root.children.get(ids[0]) if ids else None
    if child is None:
        return 0
    n = sum(1 for _ in iter_common(child.tokens, ids))
    return n + (match_length(child, ids[n:]) if n == len(child.tokens) else 0)


def iter_common(a, b):
    for x, y in zip(a, b):
        if x != y:
            return
        yield x


# %% right: token by token
def match_length(root, ids):
    node, place = root, len(root.tokens)
    for at, token in enumerate(ids):
        if place == len(node.tokens):
            if token not in node.children:
                return at
            node, place = node.children[token], 0
        if node.tokens[place] != token:
            return at
        place += 1
    return len(ids)


# %% wrong: a run counts whole or not at all
# says: counts for nothing
def match_length(root, ids):
    node, at = root, 0
    while at < len(ids) and ids[at] in node.children:
        child = node.children[ids[at]]
        if ids[at : at + len(child.tokens)] != child.tokens:
            break
        node, at = child, at + len(child.tokens)
    return at


# %% wrong: a run that fits in part is counted whole
# says: fits only in part is counted whole
def match_length(root, ids):
    node, at = root, 0
    while at < len(ids) and ids[at] in node.children:
        node = node.children[ids[at]]
        whole = common(node.tokens, ids[at:]) == len(node.tokens)
        at += len(node.tokens)
        if not whole:
            break
    return at


# %% wrong: one level
# says: ends after the first run
def match_length(root, ids):
    if not ids or ids[0] not in root.children:
        return 0
    return common(root.children[ids[0]].tokens, ids)


# %% wrong: first tokens only
# says: only the first token of a run is compared
def match_length(root, ids):
    node, at = root, 0
    while at < len(ids) and ids[at] in node.children:
        node = node.children[ids[at]]
        at = min(len(ids), at + len(node.tokens))
    return at
