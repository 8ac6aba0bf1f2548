# %% right: recursion, the rest hung below anew
def insert(root, ids):
    if not ids:
        return 0
    if ids[0] not in root.children:
        root.children[ids[0]] = Node(ids)
        return 0
    child = root.children[ids[0]]
    n = common(child.tokens, ids)
    if n == len(ids):
        return n
    if n < len(child.tokens):
        upper, lower = Node(child.tokens[:n]), Node(child.tokens[n:], child.children)
        upper.children[lower.tokens[0]] = lower
        root.children[ids[0]] = child = upper
    return n + insert(child, ids[n:])


# %% right: token by token
def insert(root, ids):
    node, place = root, len(root.tokens)
    for at, token in enumerate(ids):
        if place == len(node.tokens):
            if token not in node.children:
                node.children[token] = Node(list(ids[at:]))
                return at
            node, place = node.children[token], 0
        elif node.tokens[place] != token:
            lower = Node(node.tokens[place:], dict(node.children))
            node.tokens, node.children = node.tokens[:place], {lower.tokens[0]: lower, token: Node(ids[at:])}
            return at
        place += 1
    return len(ids)


# %% wrong: children lost
# says: they belong to its lower part
def insert(root, ids):
    node, at = root, 0
    while at < len(ids):
        child = node.children.get(ids[at])
        if child is None:
            node.children[ids[at]] = Node(ids[at:])
            return at
        n = common(child.tokens, ids[at:])
        if n < len(child.tokens) and at + n < len(ids):
            lower = Node(child.tokens[n:])
            child.tokens, child.children = child.tokens[:n], {lower.tokens[0]: lower}
        node, at = child, at + n
    return at


# %% wrong: the upper part stays long
# says: keeps all of its tokens
def insert(root, ids):
    node, at = root, 0
    while at < len(ids):
        child = node.children.get(ids[at])
        if child is None:
            node.children[ids[at]] = Node(ids[at:])
            return at
        n = common(child.tokens, ids[at:])
        if n < len(child.tokens) and at + n < len(ids):
            lower = Node(child.tokens[n:], child.children)
            child.children = {lower.tokens[0]: lower}
        node, at = child, at + n
    return at


# %% wrong: replaces what fits in part
# says: is replaced by the new sequence
def insert(root, ids):
    node, at = root, 0
    while at < len(ids):
        child = node.children.get(ids[at])
        if child is None or child.tokens != ids[at : at + len(child.tokens)]:
            node.children[ids[at]] = Node(ids[at:])
            return at
        node, at = child, at + len(child.tokens)
    return at


# %% wrong: cuts where nothing parts
# says: where the new sequence merely ends
def insert(root, ids):
    node, at = root, 0
    while at < len(ids):
        child = node.children.get(ids[at])
        if child is None:
            node.children[ids[at]] = Node(ids[at:])
            return at
        n = common(child.tokens, ids[at:])
        if n < len(child.tokens):
            lower = Node(child.tokens[n:], child.children)
            child.tokens, child.children = child.tokens[:n], {lower.tokens[0]: lower}
        node, at = child, at + n
    return at


# %% wrong: counts what is new
# says: the tokens that are new are counted
def insert(root, ids):
    node, at = root, 0
    while at < len(ids):
        child = node.children.get(ids[at])
        if child is None:
            node.children[ids[at]] = Node(ids[at:])
            return len(ids) - at
        n = common(child.tokens, ids[at:])
        if n < len(child.tokens) and at + n < len(ids):
            lower = Node(child.tokens[n:], child.children)
            child.tokens, child.children = child.tokens[:n], {lower.tokens[0]: lower}
        node, at = child, at + n
    return 0


# %% wrong: looks at the first level only
# says: go down as far as runs fit
def insert(root, ids):
    child = root.children.get(ids[0])
    if child is None:
        root.children[ids[0]] = Node(ids)
        return 0
    n = common(child.tokens, ids)
    if n == len(ids):
        return n
    if n < len(child.tokens):
        lower = Node(child.tokens[n:], child.children)
        child.tokens, child.children = child.tokens[:n], {lower.tokens[0]: lower}
    child.children[ids[n]] = Node(ids[n:])
    return n


# %% wrong: children in a list
# says: something else stands in the tree
def insert(root, ids):
    if not isinstance(root.children, list):
        root.children = []
    for child in root.children:
        if child.tokens == ids:
            return len(ids)
    root.children.append(Node(ids))
    return 0
