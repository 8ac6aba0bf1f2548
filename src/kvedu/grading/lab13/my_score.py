"""Lab 13, challenge: an eviction policy of one's own. That it is a policy is checked here; how good it is the notebook measures."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.caches.scores import Held
from kvedu.grading.exercise import Case, Exercise, Unfit
from kvedu.grading.fresh import Fresh

QUERIES = 32


def cases(fresh: Fresh) -> list[Case]:
    """Layers as a cache would show them: other numbers of tokens and heads, positions with gaps."""
    made = []
    for S, K, D in ((40, 3, 16), (64, 1, 8), (33, 2, 4)):
        positions = torch.stack([torch.sort(torch.randperm(3 * S, generator=fresh._generator)[:S]).values for _ in range(K)], dim=1)
        weights = fresh.normal(QUERIES, S, K).softmax(1)
        made.append(Case(f"S={S}, K={K}", (fresh.normal(S, K, D), fresh.normal(S, K, D), positions.to(torch.int32), weights)))
    return made


def observe(answer: Any, *held: Tensor) -> Tensor:
    """The scores."""
    scores = answer(Held(*held))
    if not isinstance(scores, Tensor):
        raise Unfit("a tensor [S, K] was wanted: one score for each token and KV head")
    return scores.detach().to(torch.float32).clone()


def one_for_each(case: Case, seen: Tensor) -> str | None:
    """Shape."""
    wanted = tuple(case.args[2].shape)
    return None if tuple(seen.shape) == wanted else f"one score for each token and KV head was wanted, {wanted}; {tuple(seen.shape)} came"


def tell_apart(case: Case, seen: Tensor) -> str | None:
    """Finite, and not all the same."""
    if seen.isnan().any():
        return "there are NaNs among the scores; they can be sorted in no order"
    return None if bool((seen != seen[:1]).any()) else "all tokens have the same score, so that the cache would keep whichever come first"


def order_of_the_text(case: Case, seen: Tensor) -> str | None:
    """Not the positions again."""
    positions = case.args[2].to(torch.float32)
    same = all(torch.equal(seen[:, k].argsort(), positions[:, k].argsort()) for k in range(seen.shape[1]))
    return "that is `recent`: the later, the better. It is the one to beat" if same else None


EXERCISE = Exercise(
    title="A policy of your own",
    read="book/13-choosing-a-strategy",
    hint="`held.weights_QSK` are the last queries' attention weights. Which tokens did *they* look at? And is a token of any use without its neighbors?",
    checked="that it is a policy: one finite score for each token and KV head, other than the order of the text",
    cases=cases,
    observe=observe,
    rules=(one_for_each, tell_apart, order_of_the_text),
    optional=True,
)
