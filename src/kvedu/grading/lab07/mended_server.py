"""Lab 7, exercise 4b: preemption that starves nobody and loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab07._server import Job, Server, Sound, run


def cases(fresh: Fresh) -> list[Case]:
    """No shortage, two that grow, many alike, newcomers without end, several sent back in one step, random lines."""
    lines = [
        ("room for all", 64, [(0, 4, 5), (0, 6, 3), (2, 5, 5)]),
        ("two that grow", 16, [(0, 4, 10), (0, 4, 10)]),
        ("six alike", 24, [(0, 3, 12)] * 6),
        ("newcomers without end", 20, [(0, 4, 14)] + [(step, 5, 4) for step in range(1, 24)]),
        ("a long prompt among short ones", 24, [(0, 3, 9), (0, 3, 9), (1, 14, 3), (2, 3, 9)]),
    ]
    for _ in range(3):
        count = fresh.integer(5, 9)
        lines.append(("at random", 30, sorted((fresh.integer(0, 6), fresh.integer(1, 9), fresh.integer(3, 16)) for _ in range(count))))
    return [Case(f"{name}, {places} places", (places, arrivals)) for name, places, arrivals in lines]


def observe(answer: Any, places: int, arrivals: list[tuple[int, int, int]]) -> Any:
    """The order in which jobs end, and each step's work, driven through the answer's ``victim`` and ``send_back``."""

    class Driven(Server):
        victim, send_back = answer.victim, answer.send_back

    works, ended = run(Driven(places, 16), arrivals)
    return ended, works


def server(victim: Callable[[Server], Job], send_back: Callable[[Server, Job], None]) -> Any:
    """A class with these two."""
    return type("Answer", (Server,), {"victim": victim, "send_back": send_back})


def reset(self: Server, job: Job, at: int | None = 0, *, made: bool = False, computed: bool = True) -> None:
    """Send back to a place in the line (None: its end), forgetting what is to be forgotten."""
    job.computed = 0 if computed else job.computed
    job.made = 0 if made else job.made
    self.waiting.insert(len(self.waiting) if at is None else at, job)


EXERCISE = Exercise(
    title="Preemption that starves nobody",
    defines="MendedServer",
    read="book/07-continuous-batching",
    hint="Who came first must be able to count on ending. Whom may it push out? And where in the line does that one wait, in front of those who came later or behind?",
    checked="who runs in each step and who ends when, on lines where places run out, among them an endless stream of newcomers",
    cases=cases,
    observe=observe,
    right=Sound,
    parts=("the order in which jobs end", "the work of each step"),
    seconds=20,
    mistakes=(
        Mistake(Server, "nothing is mended: the one who came first is sent back, behind everybody"),
        Mistake(server(Sound.victim, Server.send_back), "who is sent back waits behind newcomers; as long as they come, it starves"),
        Mistake(server(lambda self: self.running[-1], Server.send_back), "who is sent back waits behind newcomers; as long as they come, it starves"),
        Mistake(server(Server.victim, Sound.send_back), "the first to come is still the one who is sent back; it never can count on ending"),
        Mistake(server(lambda self: max(self.running, key=lambda job: job.computed), Sound.send_back),
                "the one that holds most is sent back; that is often the first, and all its work is done again"),
        Mistake(server(Sound.victim, lambda self, job: reset(self, job, computed=False)),
                "its places are gone and it is still counted as computed: it would decode over keys that are not there"),
        Mistake(server(Sound.victim, lambda self, job: reset(self, job, made=True)),
                "the tokens it has made are forgotten; its reader gets them twice"),
    ),
)  # fmt: skip
