"""A plan as ragged tensors want it: which ids, how many of each sequence, which rows matter. Pure; no tensors."""

from __future__ import annotations

from dataclasses import dataclass

from kvedu.engine.plan import Plan
from kvedu.engine.sequence import Sequence


@dataclass(frozen=True)
class Batch:
    """One step: N new tokens of any sequences, one after the other."""

    ids: list[int]
    """Token ids, N; 0 where nobody on the host knows it yet."""
    counts: dict[int, int]
    """Cache sequence → its new tokens, in the order of ``ids``."""
    parents: dict[int, list[int]]
    """Cache sequence → parents of its new tokens, of those whose guesses branch."""
    last: list[int]
    """Rows of those who are to be given a token, in the plan's order: a last token, then the guesses below it."""
    scored: dict[Sequence, range]
    """Rows whose logits score the prompt's next token, of those who asked for it."""
    late: dict[int, Sequence]
    """Rows whose token a step in flight samples, and for whom."""


def batch_of(plan: Plan) -> Batch:
    """Lay out a plan. Cost: O(N)."""
    ids, counts, parents, last, scored, late = [], {}, {}, [], {}, {}
    for work in plan.work:
        sequence, tree, first = work.sequence, work.tree, len(ids)
        ids += sequence.ids[work.context : work.context + work.tokens]
        if len(ids) < first + work.tokens:
            late[len(ids)] = sequence
            ids.append(0)
        counts[sequence.run.seq] = work.rows
        if work.yields:
            last += range(len(ids) - 1, len(ids) + len(tree))
        if tree and not tree.is_chain:
            end = work.tokens - 1  # the guesses hang from the last token
            parents[sequence.run.seq] = [*range(-1, end), *(end + 1 + parent for parent in tree.parents)]
        ids += tree.tokens
        if sequence.unscored:  # row t scores token t + 1, unless that was done before a preemption
            start, stop = max(work.context, len(sequence.scores) - 1), len(sequence.run.request.prompt_ids) - 1
            scored[sequence] = range(first + start - work.context, first + min(work.tokens, stop - work.context))
    return Batch(ids, counts, parents, last, scored, late)
