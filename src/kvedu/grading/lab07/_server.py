"""Lab 7's server without a model: jobs on a pool of places, one token each. As planted, and sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Job:
    """A request: ``number`` is its place in the order of arrival."""

    number: int
    prompt: int
    new: int
    computed: int = 0
    made: int = 0

    @property
    def pending(self) -> int:
        return self.prompt + self.made - self.computed


class Server:
    """The lab's class, word for word in what it does; ``victim`` and ``send_back`` are planted."""

    def __init__(self, places: int, budget: int) -> None:
        self.places, self.budget = places, budget
        self.running: list[Job] = []
        self.waiting: list[Job] = []
        self.came = 0

    def add(self, prompt: int, new: int) -> None:
        self.waiting.append(Job(self.came, prompt, new))
        self.came += 1

    def victim(self) -> Job:
        return self.running[0]

    def send_back(self, job: Job) -> None:
        job.computed = 0
        self.waiting.append(job)

    def step(self) -> dict[int, int]:
        work: dict[int, int] = {}
        budget, sent_back = self.budget, False

        def held() -> int:
            return sum(job.computed for job in self.running) + sum(work.values())

        for job in sorted(self.running, key=lambda job: job.pending > 1):
            tokens = min(job.pending, budget)
            while job in self.running and held() + tokens > self.places:
                victim = self.victim()
                self.running.remove(victim)
                budget += work.pop(victim.number, 0)
                self.send_back(victim)
                sent_back = True
            if job in self.running and tokens:
                work[job.number] = tokens
                budget -= tokens
        while self.waiting and not sent_back and budget and held() + self.waiting[0].pending <= self.places:
            job = self.waiting.pop(0)
            self.running.append(job)
            work[job.number] = min(job.pending, budget)
            budget -= work[job.number]
        for job in list(self.running):
            job.computed += work.get(job.number, 0)
            if job.pending == 0:
                job.made += 1
                if job.made == job.new:
                    self.running.remove(job)
        return work


class Sound(Server):
    """The last to come gives way, and keeps its place in the line."""

    def victim(self) -> Job:
        return max(self.running, key=lambda job: job.number)

    def send_back(self, job: Job) -> None:
        job.computed = 0
        self.waiting.insert(0, job)


LIMIT = 400
"""Steps after which a run counts as endless."""


def run(server: Any, arrivals: list[tuple[int, int, int]]) -> tuple[list[dict[int, int]], list[int]]:
    """Serve (step, prompt, new) to the end: the work of each step, and jobs in the order in which they ended."""
    works, ended, left = [], [], list(arrivals)
    while (left or server.running or server.waiting) and len(works) < LIMIT:
        while left and left[0][0] <= len(works):
            _, prompt, new = left.pop(0)
            server.add(prompt, new)
        before = {job.number for job in server.running + server.waiting}
        works.append(server.step())
        ended += sorted(before - {job.number for job in server.running + server.waiting})
    return works, ended
