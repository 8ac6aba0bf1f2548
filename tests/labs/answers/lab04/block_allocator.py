# %% right: keeps a set of free blocks, sorted
class BlockAllocator:
    def __init__(self, n_blocks, C):
        self.C = C
        self.free = list(range(n_blocks))
        self.tables = {}
        self.lengths = {}

    def open(self, seq):
        self.tables[seq], self.lengths[seq] = [], 0

    def grow(self, seq, tokens):
        want = math.ceil((self.lengths[seq] + tokens) / self.C)
        have = len(self.tables[seq])
        if want - have > len(self.free):
            raise MemoryError("no")
        taken, self.free = self.free[: want - have], self.free[want - have :]
        self.tables[seq] = self.tables[seq] + taken
        self.lengths[seq] = self.lengths[seq] + tokens

    def close(self, seq):
        self.free = sorted(self.free + self.tables[seq])
        self.tables.pop(seq)
        self.lengths.pop(seq)


# %% right: token by token, undone where it does not fit
class BlockAllocator:
    def __init__(self, n_blocks, C):
        self.C = C
        self.free = list(range(n_blocks))
        self.tables = {}
        self.lengths = {}

    def open(self, seq):
        self.tables[seq], self.lengths[seq] = [], 0

    def grow(self, seq, tokens):
        taken = []
        for t in range(self.lengths[seq], self.lengths[seq] + tokens):
            if t % self.C == 0:
                if not self.free:
                    self.free += taken
                    raise MemoryError
                taken.append(self.free.pop(0))
        self.tables[seq] += taken
        self.lengths[seq] += tokens

    def close(self, seq):
        while self.tables[seq]:
            self.free.append(self.tables[seq].pop())
        del self.tables[seq], self.lengths[seq]


# %% wrong: takes, then looks
# says: decide first, then take
class BlockAllocator(BlockAllocator):
    def grow(self, seq, tokens):
        need = -(-(self.lengths[seq] + tokens) // self.C)
        while len(self.tables[seq]) < need:
            if len(self.free) == 0:
                raise MemoryError
            self.tables[seq].append(self.free.pop())
        self.lengths[seq] += tokens


# %% wrong: counts tokens that were refused
# says: a refused request still counts its tokens
class BlockAllocator(BlockAllocator):
    def grow(self, seq, tokens):
        self.lengths[seq] += tokens
        missing = math.ceil(self.lengths[seq] / self.C) - len(self.tables[seq])
        if missing > len(self.free):
            raise MemoryError
        for _ in range(missing):
            self.tables[seq].append(self.free.pop())


# %% wrong: every call begins a block
# says: each call begins a new block
class BlockAllocator(BlockAllocator):
    def grow(self, seq, tokens):
        blocks = math.ceil(tokens / self.C)
        if blocks > len(self.free):
            raise MemoryError
        for _ in range(blocks):
            self.tables[seq].append(self.free.pop())
        self.lengths[seq] += tokens


# %% wrong: rounds down
# says: the last, partly filled block is missing
class BlockAllocator(BlockAllocator):
    def grow(self, seq, tokens):
        missing = (self.lengths[seq] + tokens) // self.C - len(self.tables[seq])
        if missing > len(self.free):
            raise MemoryError
        self.tables[seq] += [self.free.pop() for _ in range(missing)]
        self.lengths[seq] += tokens


# %% wrong: one ahead
# says: gets one more, before its first token comes
class BlockAllocator(BlockAllocator):
    def grow(self, seq, tokens):
        missing = (self.lengths[seq] + tokens) // self.C + 1 - len(self.tables[seq])
        if missing > len(self.free):
            raise MemoryError
        self.tables[seq] += [self.free.pop() for _ in range(missing)]
        self.lengths[seq] += tokens


# %% wrong: a leak
# says: do not come back to the free list
class BlockAllocator(BlockAllocator):
    def close(self, seq):
        self.tables.pop(seq)
        self.lengths.pop(seq)


# %% wrong: the table stays
# says: so that its blocks are in two places
class BlockAllocator(BlockAllocator):
    def close(self, seq):
        for block in self.tables[seq]:
            self.free.append(block)


# %% wrong: another name for the free list
# says: the allocator has no `free` any more
class BlockAllocator:
    def __init__(self, n_blocks, C):
        self.C, self.free_blocks, self.tables, self.lengths = C, list(range(n_blocks)), {}, {}

    def open(self, seq):
        self.tables[seq], self.lengths[seq] = [], 0

    def grow(self, seq, tokens):
        self.lengths[seq] += tokens

    def close(self, seq):
        self.tables.pop(seq)


# %% wrong: lengths forgotten
# says: `lengths` does not grow with the tokens
class BlockAllocator:
    def __init__(self, n_blocks, C):
        self.C, self.free, self.tables, self.lengths = C, list(range(n_blocks)), {}, {}

    def open(self, seq):
        self.tables[seq], self.lengths[seq] = [], 0

    def grow(self, seq, tokens):
        missing = -(-(self.lengths[seq] + tokens) // self.C) - len(self.tables[seq])
        if missing > len(self.free):
            raise MemoryError
        for _ in range(missing):
            self.tables[seq].append(self.free.pop())

    def close(self, seq):
        self.free.extend(self.tables.pop(seq))
        del self.lengths[seq]


# %% wrong: False for a refusal
# says: raise MemoryError
class BlockAllocator:
    def __init__(self, n_blocks, C):
        self.C, self.free, self.tables, self.lengths = C, list(range(n_blocks)), {}, {}

    def open(self, seq):
        self.tables[seq], self.lengths[seq] = [], 0

    def grow(self, seq, tokens):
        missing = -(-(self.lengths[seq] + tokens) // self.C) - len(self.tables[seq])
        if missing > len(self.free):
            return False
        for _ in range(missing):
            self.tables[seq].append(self.free.pop())
        self.lengths[seq] += tokens
        return True

    def close(self, seq):
        self.free.extend(self.tables.pop(seq))
        del self.lengths[seq]
