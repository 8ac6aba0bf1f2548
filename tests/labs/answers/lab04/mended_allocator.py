# %% right: from the last block to the first
class MendedAllocator(SharingAllocator):
    def close(self, seq):
        table = self.tables.pop(seq)
        while table:
            self.release(table.pop())
        self.lengths.pop(seq), self.inherited.pop(seq)


# %% right: what was inherited and is still there
class MendedAllocator(SharingAllocator):
    def close(self, seq):
        still = [block for block in self.inherited[seq] if block in self.tables[seq]]
        taken = [block for block in self.tables[seq] if block not in self.inherited[seq]]
        for block in still + taken:
            self.release(block)
        del self.tables[seq], self.lengths[seq], self.inherited[seq]


# %% wrong: as it was
# says: it was released then already
class MendedAllocator(SharingAllocator):
    pass


# %% wrong: only what it took
# says: what the fork still shares is not released
class MendedAllocator(SharingAllocator):
    def close(self, seq):
        for block in self.tables[seq]:
            if block not in self.inherited[seq]:
                self.release(block)
        del self.tables[seq], self.lengths[seq], self.inherited[seq]


# %% wrong: only what it shared
# says: what the sequence took itself is not released
class MendedAllocator(SharingAllocator):
    def close(self, seq):
        for block in set(self.tables[seq]) & set(self.inherited[seq]):
            self.release(block)
        del self.tables[seq], self.lengths[seq], self.inherited[seq]


# %% wrong: frees what others use
# says: though others still use some of them
class MendedAllocator(SharingAllocator):
    def close(self, seq):
        for block in self.tables[seq]:
            self.users[block] = 0
            self.free += [block] if block not in self.free else []
        del self.tables[seq], self.lengths[seq], self.inherited[seq]
