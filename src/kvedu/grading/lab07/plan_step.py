"""Lab 7, exercise 3: who runs in the next step, and how many tokens of each."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit, call
from kvedu.grading.fresh import Fresh

Line = list[tuple[str, int]]


def cases(fresh: Fresh) -> list[Case]:
    """Nobody, only decodes, a long prompt beside decodes, a budget that just covers the decodes, more people than slots."""
    made = [
        ("nobody at all", [], [], 4, 16),
        ("three decode, nobody waits", [("A", 1), ("B", 1), ("C", 1)], [], 4, 16),
        ("a long prompt under way between decodes", [("A", 1), ("B", 300), ("C", 1)], [("D", 5)], 4, 16),
        ("two prompts under way", [("A", 9), ("B", 40), ("C", 1)], [("D", 5), ("E", 5)], 8, 32),
        ("the budget covers the decodes only", [("A", 7), ("B", 1), ("C", 1)], [("D", 5)], 4, 2),
        ("an empty server, a long line", [], [("A", 5), ("B", 3), ("C", 30), ("D", 2), ("E", 2)], 3, 20),
        ("room for one of two newcomers", [("A", 1), ("B", 1)], [("C", 4), ("D", 4)], 3, 64),
        ("a newcomer of a single token", [("A", 1)], [("B", 1), ("C", 50)], 4, 8),
    ]
    for _ in range(3):
        slots = fresh.integer(3, 8)
        inside = fresh.integer(2, slots - 1)
        people = [(name, fresh.choice([1, 1, fresh.integer(2, 60)])) for name in "ABCDEFGHIJKLMN"]
        made.append(("at random", people[:inside], people[inside:], slots, fresh.integer(slots, 48)))
    return [Case(f"{name}, {slots} slots, {budget} tokens", (running, waiting, slots, budget)) for name, running, waiting, slots, budget in made]


def observe(answer: Any, running: Line, waiting: Line, slots: int, budget: int) -> Any:
    """The plan as a dict; its order is nobody's business."""
    plan = call(answer, running, waiting, slots, budget)
    if type(plan) is not dict:
        raise Unfit(f"a dict was wanted, name -> tokens; {type(plan).__name__} came")
    return plan


def planner(*, prompts_first: bool = False, slotless: bool = False, whole: bool = False, unbounded: bool = False, zeros: bool = False,
            newcomers: str = "after", static: bool = False, by_place: bool = False) -> Any:  # fmt: skip
    """An answer with one part changed; unchanged it is right."""

    def answer(running: Line, waiting: Line, slots: int, budget: int) -> dict[str, int]:
        decodes, prompts = [p for p in running if p[1] == 1], [p for p in running if p[1] > 1]
        inside = running if by_place else prompts + decodes if prompts_first else decodes + prompts
        free = len(waiting) if slotless else 0 if static and running else max(0, slots - len(running))
        come = waiting[:free]
        line = come + inside if newcomers == "before" else decodes + come + prompts if newcomers == "between" else inside + come
        plan = {}
        for name, pending in line:
            tokens = pending if unbounded else min(pending, budget)
            if whole and tokens < pending:
                continue
            if tokens > 0 or zeros:
                plan[name] = tokens
                budget -= tokens
        return plan

    return answer


EXERCISE = Exercise(
    title="The scheduler's step",
    read="book/07-continuous-batching",
    hint="Three passes over one budget: those with 1 pending token, those with more, the first of the line while slots are left. Each gets "
    "min(pending, budget left), and nobody gets 0.",
    checked="plans for decodes, prompts under way and newcomers, with budgets and slots that run out at each of these places",
    cases=cases,
    observe=observe,
    right=planner(),
    mistakes=(
        Mistake(planner(prompts_first=True), "prompts take the budget before decodes: a long prompt stops everybody's text"),
        Mistake(planner(by_place=True), "people are served in their order, so a long prompt comes before the decodes behind it; decodes go first"),
        Mistake(planner(newcomers="before"), "newcomers take the budget before those who run"),
        Mistake(planner(newcomers="between"), "newcomers take the budget before prompts that are under way: those may never end"),
        Mistake(planner(slotless=True), "more people run than there are slots"),
        Mistake(planner(static=True), "newcomers wait until everybody has ended: that is static batching"),
        Mistake(planner(whole=True), "a prompt runs only if all of it fits into the budget; one longer than the budget never starts. Cut it"),
        Mistake(planner(unbounded=True), "the budget is not kept: more tokens are planned than it has"),
        Mistake(planner(zeros=True), "somebody is planned with 0 tokens; who gets none is not in the plan"),
    ),
)
