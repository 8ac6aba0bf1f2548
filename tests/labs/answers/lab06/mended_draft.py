# %% right: by what was run
class MendedDraft(Draft):
    def propose(self, ids, k):
        self.ran = len(ids) + k - 1
        return super().propose(ids, k)

    def verified(self, ids, kept):
        self.done = min(self.ran, len(ids) - 1)
        self.machine.forget(self.done)


# %% right: always one token more than need be
class MendedDraft(Draft):
    def verified(self, ids, kept):
        self.done = max(len(ids) - 2, 0)
        self.machine.forget(self.done)


# %% right: the last guess is run at once
class MendedDraft(Draft):
    def propose(self, ids, k):
        guesses = super().propose(ids, k)
        self.machine.feed(guesses[-1:])
        return guesses


# %% wrong: as it was
# says: the last of them was never run
class MendedDraft(Draft):
    def verified(self, ids, kept):
        self.done = len(ids) - 1
        self.machine.forget(self.done)


# %% wrong: keeps what was rejected
# says: rejected guesses too
class MendedDraft(Draft):
    def verified(self, ids, kept):
        self.done = self.machine.length


# %% wrong: one token too far
# says: everything that was run counts as held
class MendedDraft(Draft):
    def verified(self, ids, kept):
        self.done = min(self.machine.length, len(ids))
        self.machine.forget(self.done)


# %% wrong: everything anew
# says: the cache is thrown away and filled again
class MendedDraft(Draft):
    def verified(self, ids, kept):
        self.machine.forget(0)
        self.done = 0
