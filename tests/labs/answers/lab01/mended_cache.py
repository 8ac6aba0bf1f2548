# %% right: chunks appended until it fits
class MendedCache(ChunkedCache):
    def longer(self, old, wanted):
        new = old
        while len(new) < wanted:
            new = torch.cat((new, old.new_zeros(self.chunk, *old.shape[1:])))
        return new


# %% right: padded
class MendedCache(ChunkedCache):
    def longer(self, old, wanted):
        missing = -(-wanted // self.chunk) * self.chunk - len(old)
        return torch.nn.functional.pad(old, (0, 0, 0, 0, 0, missing)) if missing > 0 else old


# %% wrong: the bug as it was
# says: wanted - chunk old rows are kept
class MendedCache(ChunkedCache):
    pass


# %% wrong: the last row is lost
# says: the last row of the old buffer is lost
class MendedCache(ChunkedCache):
    def longer(self, old, wanted):
        if wanted <= len(old):
            return old
        new = old.new_zeros(-(-wanted // self.chunk) * self.chunk, *old.shape[1:])
        if len(old):
            new[: len(old) - 1] = old[:-1]
        return new


# %% wrong: an empty buffer
# says: the new buffer is empty
class MendedCache(ChunkedCache):
    def longer(self, old, wanted):
        return old if wanted <= len(old) else old.new_zeros(-(-wanted // self.chunk) * self.chunk, *old.shape[1:])


# %% wrong: one chunk at a time
# says: a long prompt may need several at once
class MendedCache(ChunkedCache):
    def longer(self, old, wanted):
        return old if wanted <= len(old) else torch.cat((old, old.new_zeros(self.chunk, *old.shape[1:])))


# %% wrong: no chunks
# says: exactly the rows wanted
class MendedCache(ChunkedCache):
    def longer(self, old, wanted):
        return old if wanted <= len(old) else torch.cat((old, old.new_zeros(wanted - len(old), *old.shape[1:])))


# %% wrong: a chunk too many
# says: where the rows wanted fill whole chunks
class MendedCache(ChunkedCache):
    def longer(self, old, wanted):
        if wanted <= len(old):
            return old
        rows = (wanted // self.chunk + 1) * self.chunk
        return torch.cat((old, old.new_zeros(rows - len(old), *old.shape[1:])))


# %% wrong: a copy where it fits
# says: the buffer itself is wanted
class MendedCache(ChunkedCache):
    def longer(self, old, wanted):
        new = old.new_zeros(max(len(old), -(-wanted // self.chunk) * self.chunk), *old.shape[1:])
        new[: len(old)] = old
        return new


# %% wrong: a number
# says: returns the buffer, a tensor
class MendedCache(ChunkedCache):
    def longer(self, old, wanted):
        return -(-wanted // self.chunk) * self.chunk
