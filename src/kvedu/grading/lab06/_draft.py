"""Lab 6's draft with a cache of its own, as it was planted and as it should be, and a toy of a model to run it on."""

from __future__ import annotations

from typing import Any


def next_token(tokens: list[int], slips: int = 0) -> int:
    """A toy model: what follows depends on the last tokens and on how many there are. With ``slips`` n it errs at every nth."""
    token = (31 * sum(tokens[-4:]) + 17 * len(tokens)) % 97
    return (token + 1) % 97 if slips and len(tokens) % slips == 0 else token


class Machine:
    """A model with a cache, as plain data: ``held`` are the tokens in the cache."""

    def __init__(self, slips: int = 0) -> None:
        self.slips, self.held, self.fed = slips, [], 0  # type: int, list[int], int

    @property
    def length(self) -> int:
        return len(self.held)

    def feed(self, tokens: list[int]) -> int:
        self.held += tokens
        self.fed += len(tokens)
        return next_token(self.held, self.slips)

    def forget(self, length: int) -> None:
        del self.held[length:]


class AsItWas:
    """The planted fault: all but the text's last token is counted as held, whether it was run or not."""

    def __init__(self, machine: Any) -> None:
        self.machine, self.done = machine, 0

    def propose(self, ids: list[int], k: int) -> list[int]:
        guesses = [self.machine.feed(ids[self.done :])]
        while len(guesses) < k:
            guesses.append(self.machine.feed(guesses[-1:]))
        return guesses

    def verified(self, ids: list[int], kept: int) -> None:
        self.done = len(ids) - 1
        self.machine.forget(self.done)


class Right(AsItWas):
    """Only what was run counts."""

    def verified(self, ids: list[int], kept: int) -> None:
        self.done = min(len(ids) - 1, self.machine.length)
        self.machine.forget(self.done)


class KeepsRejected(AsItWas):
    """Counts what is held, right or wrong."""

    def verified(self, ids: list[int], kept: int) -> None:
        self.done = self.machine.length


class StartsAnew(AsItWas):
    """Forgets everything: right, and as dear as having no cache."""

    def verified(self, ids: list[int], kept: int) -> None:
        self.done = 0
        self.machine.forget(0)


def drive(draft: Any, machine: Machine, prompt: list[int], k: int, rounds: int) -> dict[str, Any]:
    """Rounds of draft and target: kept guesses, the text and what is held at each round's start, tokens run."""
    ids, kept, starts = list(prompt), [], []
    for _ in range(rounds):
        guesses = list(draft.propose(list(ids), k))
        n = 0
        while n < len(guesses) and guesses[n] == next_token(ids + guesses[:n]):
            n += 1
        ids += guesses[:n]
        ids.append(next_token(ids))
        draft.verified(list(ids), n)
        kept.append(n)
        starts.append((len(ids), machine.held == ids[: machine.length] and machine.length < len(ids)))
    return {"kept": kept, "in step": [right for _, right in starts], "run": machine.fed, "text": ids}
