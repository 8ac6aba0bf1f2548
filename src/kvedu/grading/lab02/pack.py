"""Lab 2, second challenge: conversations on as few GPUs as possible."""

from __future__ import annotations

from typing import Any

from kvedu.grading.exercise import Case, Exercise, Unfit, call
from kvedu.grading.fresh import Fresh

SLACK = 1.15
"""Times as many GPUs as could do. First fit, in any order, stays below it on these cases; next fit does not."""


def cut(fresh: Fresh, title: str, gpus: int, pieces: int, token_bytes: int, room: int) -> Case:
    """Full GPUs cut in conversations and shuffled, so that ``gpus`` are enough and fewer are not."""
    lengths: list[int] = []
    for _ in range(gpus):
        edges = sorted({fresh.integer(1, room - 1) for _ in range(pieces - 1)})
        lengths += [b - a for a, b in zip([0, *edges], [*edges, room])]
    return Case(title, (fresh.shuffled(lengths), token_bytes, room * token_bytes + fresh.integer(0, token_bytes - 1)))


def cases(fresh: Fresh) -> list[Case]:
    """Nobody, one who fills a GPU, several of which each fills one, and mixes whose fewest is known."""
    return [
        Case("no conversation", ([], 1_000, 5_000)),
        Case("one that fills a GPU exactly", ([5], 1_000, 5_000)),
        Case("three that fill one each", ([8, 8, 8], 50, 400)),
        cut(fresh, "30 GPUs are enough", 30, 4, 131_072, 4_000),
        cut(fresh, "40 GPUs are enough", 40, 3, 147_456, 2_000),
        cut(fresh, "60 GPUs are enough", 60, 3, 23_040, 9_000),
    ]


def observe(answer: Any, tokens: list[int], token_bytes: int, gpu_bytes: int) -> Any:
    """Who is on which GPU."""
    gpus = call(answer, tokens, token_bytes, gpu_bytes)
    if type(gpus) is not list or any(type(gpu) is not list for gpu in gpus):
        raise Unfit("a list with a list for each GPU was wanted, of places in `tokens`")
    if any(type(place) is not int for gpu in gpus for place in gpu):
        raise Unfit("a GPU's list has whole numbers: places in `tokens`, from 0")
    return gpus


def everyone_once(case: Case, gpus: list[list[int]]) -> str | None:
    """Everybody on one GPU."""
    n, placed = len(case.args[0]), [place for gpu in gpus for place in gpu]
    if strange := [place for place in placed if not 0 <= place < n]:
        return f"place {strange[0]} is no conversation: the lists hold places in `tokens`, 0 to {n - 1}, not lengths"
    if twice := [place for place in placed if placed.count(place) > 1]:
        return f"conversation {twice[0]} is on more than one GPU"
    if missing := sorted(set(range(n)) - set(placed)):
        return f"{len(missing)} of {n} conversations are on no GPU, number {missing[0]} among them; is the last GPU kept?"
    return None


def none_too_full(case: Case, gpus: list[list[int]]) -> str | None:
    """No GPU with more bytes than it has."""
    tokens, token_bytes, gpu_bytes = case.args
    for gpu in gpus:
        held = token_bytes * sum(tokens[place] for place in gpu)
        if held > gpu_bytes:
            return f"a GPU of {gpu_bytes:,} bytes holds {held:,} bytes of caches; mind what one token takes, and what is there already"
    return None


def few_enough(case: Case, gpus: list[list[int]]) -> str | None:
    """Few GPUs."""
    tokens, token_bytes, gpu_bytes = case.args
    room = gpu_bytes // token_bytes
    least = -(-sum(tokens) // room)
    if len(gpus) <= max(SLACK * least, least):
        return None
    share = sum(tokens) / (room * len(gpus))
    return f"{len(gpus)} GPUs are used and {share:.0%} of their room; look for room on every GPU that is there before you take a new one"


EXERCISE = Exercise(
    title="As few GPUs as possible",
    read="book/02-memory-math",
    hint="Before you take a new GPU, look at all that you have. And in which order is it easiest to pack a suitcase?",
    checked="everybody on one GPU, none too full, at most 15 % more GPUs than could do, for up to 60 GPUs",
    cases=cases,
    observe=observe,
    rules=(everyone_once, none_too_full, few_enough),
    optional=True,
)
