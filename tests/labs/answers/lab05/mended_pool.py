# %% right: keys that name the block, all of them
class MendedPool(PrefixPool):
    def take(self):
        block = self.free.popleft()
        self.tokens_of.pop(block, None)
        self.block_of = {key: b for key, b in self.block_of.items() if b != block}
        self.users[block] = 1
        return block


# %% right: on top of what is there
class MendedPool(PrefixPool):
    def take(self):
        block = self.free[0]
        if block in self.tokens_of:
            key = self.key(self.tokens_of[block])
            if key in self.block_of and self.block_of[key] == block:
                self.block_of.pop(key)
        return super().take()


# %% wrong: as it was
# says: its old key still names it
class MendedPool(PrefixPool):
    def take(self):
        return super().take()


# %% wrong: whatever the key names
# says: forget it only if it names the block that is taken
class MendedPool(PrefixPool):
    def take(self):
        old = self.tokens_of.get(self.free[0])
        if old is not None:
            self.block_of.pop(self.key(old), None)
        return super().take()


# %% wrong: everything
# says: all keys are forgotten
class MendedPool(PrefixPool):
    def take(self):
        self.block_of.clear()
        return super().take()


# %% wrong: the newest
# says: the block that was given back last is taken
class MendedPool(PrefixPool):
    def take(self):
        block = self.free.pop()
        old = self.tokens_of.pop(block, None)
        if old is not None and self.block_of.get(self.key(old)) == block:
            del self.block_of[self.key(old)]
        self.users[block] = 1
        return block


# %% wrong: nothing comes back
# says: take() returns the number of the block
class MendedPool(PrefixPool):
    def take(self):
        super().take()
