"""Lab 12, exercise 6: what is coded depends on how many tokens there are, not on how they came."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit, call
from kvedu.grading.fresh import Fresh


class Right:
    """The lab's class with a sound ``append``."""

    def __init__(self, residual: int, group: int, D: int) -> None:
        self.residual, self.group = residual, group
        self.coded: list[Tensor] = []
        self.tail = torch.empty(0, D)

    def append(self, x_TD: Tensor) -> None:
        self.tail = torch.cat((self.tail, x_TD))
        while len(self.tail) >= self.residual + self.group:
            self.coded.append(self.tail[: self.group])
            self.tail = self.tail[self.group :]


class AsItWas(Right):
    """The planted fault: codes what this call brings, if it is enough."""

    def append(self, x_TD: Tensor) -> None:
        self.tail = torch.cat((self.tail, x_TD))
        n = max(0, len(x_TD) - self.residual) // self.group * self.group
        for start in range(0, n, self.group):
            self.coded.append(self.tail[start : start + self.group])
        self.tail = self.tail[n:]


class CodesAll(Right):
    """Keeps nothing exact but what fills no group."""

    def append(self, x_TD: Tensor) -> None:
        self.tail = torch.cat((self.tail, x_TD))
        while len(self.tail) >= self.group:
            self.coded.append(self.tail[: self.group])
            self.tail = self.tail[self.group :]


class OneGroup(Right):
    """Codes one group a call at most."""

    def append(self, x_TD: Tensor) -> None:
        self.tail = torch.cat((self.tail, x_TD))
        if len(self.tail) >= self.residual + self.group:
            self.coded.append(self.tail[: self.group])
            self.tail = self.tail[self.group :]


class OneLate(Right):
    """Waits for one token too many."""

    def append(self, x_TD: Tensor) -> None:
        self.tail = torch.cat((self.tail, x_TD))
        while len(self.tail) > self.residual + self.group:
            self.coded.append(self.tail[: self.group])
            self.tail = self.tail[self.group :]


class CodesTheNewest(Right):
    """Codes the end and keeps the beginning exact."""

    def append(self, x_TD: Tensor) -> None:
        self.tail = torch.cat((self.tail, x_TD))
        while len(self.tail) >= self.residual + self.group:
            self.coded.append(self.tail[-self.group :])
            self.tail = self.tail[: -self.group]


def cases(fresh: Fresh) -> list[Case]:
    """C017: prompts around a group and a residual, then single tokens; chunks; one by one; no residual."""

    def steps(counts: list[int]) -> list[Tensor]:
        return [fresh.normal(n, 3) for n in counts]

    return [
        Case("a prompt of 40, then 20 single tokens", (8, 4, steps([40, *[1] * 20]))),
        Case("one by one from the start", (4, 4, steps([1] * 25))),
        Case("prompts of 3, 4, 5 and 6", (4, 4, steps([3, 4, 5, 6]))),
        Case("chunks that fit nothing", (5, 3, steps([7, 2, 9, 1, 1, 13]))),
        Case("nothing must stay exact", (0, 4, steps([6, 1, 1, 9]))),
        Case("groups of one", (4, 1, steps([2, 1, 1, 5, 1]))),
        Case("drawn", (fresh.integer(1, 9), fresh.integer(2, 6), steps([fresh.integer(1, 12) for _ in range(8)]))),
    ]


def observe(answer: Any, residual: int, group: int, steps: list[Tensor]) -> Any:
    """After each call: the groups that are coded, and what is exact."""
    tail, seen = call(answer, residual, group, 3), []
    for x_TD in steps:
        tail.append(x_TD.clone())
        if any(not isinstance(one, Tensor) or len(one) != group for one in tail.coded):
            raise Unfit(f"`coded` holds whole groups: tensors of {group} tokens each")
        if not isinstance(tail.tail, Tensor):
            raise Unfit("`tail` is a tensor of the tokens that are exact")
        seen.append((len(tail.coded), torch.cat((*tail.coded, tail.tail)) if tail.coded else tail.tail.clone(), len(tail.tail)))
    return seen


EXERCISE = Exercise(
    title="A tail that does not grow",
    read="book/12-quantizing-the-cache",
    hint="Look at the length of the tail, not of x_TD. How long must it be at least before its first group can go?",
    checked="groups and tail after every call of seven histories: prompts, chunks and single tokens, residual 0 to 9, groups of 1 to 6",
    cases=cases,
    observe=observe,
    right=Right,
    defines="MendedTail",
    mistakes=(
        Mistake(AsItWas, "what is coded is decided by the size of the call: a token that comes alone is never coded, and the exact tail grows with the text"),
        Mistake(CodesAll, "tokens are coded as soon as they fill a group; the last `residual` ones must stay exact"),
        Mistake(OneGroup, "a call codes one group at most, so a long prompt stays in full precision; go on while there are groups"),
        Mistake(OneLate, "a group is coded one token too late: it may go as soon as `residual` tokens are left behind it"),
        Mistake(CodesTheNewest, "the newest tokens are coded and the oldest stay exact; it is the other way round"),
    ),
)
