# %% right: in the order of the text
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.sinks, self.window, self.seen = sinks, window, 0
        self.k_RKD, self.v_RKD = torch.zeros(2, sinks + window, K, D)

    def append(self, k_KD, v_KD):
        slot = self.seen
        if slot >= self.sinks:
            slot = self.sinks + (slot - self.sinks) % self.window
        self.k_RKD[slot] = k_KD
        self.v_RKD[slot] = v_KD
        self.seen += 1

    def attend(self, q_HD):
        held = min(self.seen, self.sinks + self.window)
        order = list(range(held))
        if self.seen > held:
            at = self.sinks + (self.seen - self.sinks) % self.window
            order = order[: self.sinks] + order[at:] + order[self.sinks : at]
        k = turned(self.k_RKD[order], list(range(held)))
        return attention(turned(q_HD[None], [held - 1])[0], k, self.v_RKD[order])


# %% right: lists that let go
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.sinks, self.window = sinks, window
        self.pairs = []

    def append(self, k_KD, v_KD):
        if len(self.pairs) == self.sinks + self.window:
            del self.pairs[self.sinks]
        self.pairs.append((k_KD.clone(), v_KD.clone()))

    def attend(self, q_HD):
        k, v = (torch.stack(list(x)) for x in zip(*self.pairs))
        n = len(self.pairs)
        return attention(turned(q_HD[None], [n - 1])[0], turned(k, list(range(n))), v)


# %% wrong: keys rotated when they come
# says: keys are rotated at their positions in the text and the query at its place
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.sinks, self.window, self.seen = sinks, window, 0
        self.k_RKD, self.v_RKD = torch.zeros(2, sinks + window, K, D)

    def append(self, k_KD, v_KD):
        n = self.seen
        slot = n if n < self.sinks else self.sinks + (n - self.sinks) % self.window
        self.k_RKD[slot] = turned(k_KD[None], [n])[0]
        self.v_RKD[slot] = v_KD
        self.seen += 1

    def attend(self, q_HD):
        held = min(self.seen, self.sinks + self.window)
        return attention(turned(q_HD[None], [held - 1])[0], self.k_RKD[:held], self.v_RKD[:held])


# %% wrong: the text's positions
# says: positions are those of the text
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.sinks, self.window, self.seen = sinks, window, 0
        self.k_RKD, self.v_RKD = torch.zeros(2, sinks + window, K, D)

    def append(self, k_KD, v_KD):
        n = self.seen
        slot = n if n < self.sinks else self.sinks + (n - self.sinks) % self.window
        self.k_RKD[slot] = turned(k_KD[None], [n])[0]
        self.v_RKD[slot] = v_KD
        self.seen += 1

    def attend(self, q_HD):
        held = min(self.seen, self.sinks + self.window)
        return attention(turned(q_HD[None], [self.seen - 1])[0], self.k_RKD[:held], self.v_RKD[:held])


# %% wrong: slots are places
# says: keys are rotated at their slots
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.sinks, self.window, self.seen = sinks, window, 0
        self.k_RKD, self.v_RKD = torch.zeros(2, sinks + window, K, D)

    def append(self, k_KD, v_KD):
        n = self.seen
        slot = n if n < self.sinks else self.sinks + (n - self.sinks) % self.window
        self.k_RKD[slot], self.v_RKD[slot] = k_KD, v_KD
        self.seen += 1

    def attend(self, q_HD):
        held = min(self.seen, self.sinks + self.window)
        k = turned(self.k_RKD[:held], list(range(held)))
        return attention(turned(q_HD[None], [held - 1])[0], k, self.v_RKD[:held])


# %% wrong: all of it a ring
# says: the first tokens are written over
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.room = sinks + window
        self.pairs = []

    def append(self, k_KD, v_KD):
        self.pairs = (self.pairs + [(k_KD, v_KD)])[-self.room :]

    def attend(self, q_HD):
        k, v = (torch.stack(list(x)) for x in zip(*self.pairs))
        n = len(self.pairs)
        return attention(turned(q_HD[None], [n - 1])[0], turned(k, list(range(n))), v)


# %% wrong: not rotated
# says: nothing is rotated
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.sinks, self.window, self.pairs = sinks, window, []

    def append(self, k_KD, v_KD):
        if len(self.pairs) == self.sinks + self.window:
            del self.pairs[self.sinks]
        self.pairs.append((k_KD, v_KD))

    def attend(self, q_HD):
        k, v = (torch.stack(list(x)) for x in zip(*self.pairs))
        return attention(q_HD, k, v)


# %% wrong: keeps everything
# says: but memory grows
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.sinks, self.window = sinks, window
        self.k, self.v = [], []

    def append(self, k_KD, v_KD):
        self.k.append(k_KD)
        self.v.append(v_KD)

    def attend(self, q_HD):
        n = len(self.k)
        kept = [i for i in range(n) if i < self.sinks or i >= n - self.window]
        k, v = (torch.stack([x[i] for i in kept]) for x in (self.k, self.v))
        return attention(turned(q_HD[None], [len(kept) - 1])[0], turned(k, list(range(len(kept)))), v)


# %% wrong: the window is one too small
# says: the result is not the right one
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.sinks, self.window, self.pairs = sinks, window, []

    def append(self, k_KD, v_KD):
        self.pairs.append((k_KD, v_KD))
        if len(self.pairs) == self.sinks + self.window:
            del self.pairs[self.sinks]

    def attend(self, q_HD):
        k, v = (torch.stack(list(x)) for x in zip(*self.pairs))
        n = len(self.pairs)
        return attention(turned(q_HD[None], [n - 1])[0], turned(k, list(range(n))), v)


# %% wrong: one row too many
# says: attend(q_HD) returns one row per query head
class SinkRing:
    def __init__(self, sinks, window, K, D):
        self.sinks, self.window, self.pairs = sinks, window, []

    def append(self, k_KD, v_KD):
        self.pairs.append((k_KD, v_KD))

    def attend(self, q_HD):
        k, v = (torch.stack(list(x)) for x in zip(*self.pairs))
        return attention(q_HD, k, v)[None]
