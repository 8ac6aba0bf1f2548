"""What a trained head is worth: guesses kept by position, on text that was held out of its training."""

from __future__ import annotations

from typing import Any

from head_text import Sequence

from kvedu.model.transformer import Transformer
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.speculate import speculate

PROMPTS, NEW = 12, 64
"""Held-out prompts of each kind, and tokens of each continuation."""


def prompts(held_out: list[Sequence], kind: str) -> list[list[int]]:
    """The first held-out prompts of a kind."""
    return [s.ids[: s.read] for s in held_out if (s.kind == "code") == (kind == "code")][:PROMPTS]


def acceptance(model: Transformer, proposer: Proposer, held_out: list[Sequence]) -> dict[str, Any]:
    """Greedy continuations, in the model's dtype: the share of guesses kept at each place whose predecessors were, and tokens a round."""
    found = {}
    for kind in ("code", "prose"):
        runs = speculate(model, prompts(held_out, kind), proposer, max_new_tokens=NEW, ignore_eos=True)
        rounds = [r for run in runs for r in run.rounds]
        depth = max(r.depth for r in rounds)
        reached = [[r for r in rounds if r.depth >= d and r.accepted >= d - 1] for d in range(1, depth + 1)]
        found[kind] = {
            "by_position": [round(sum(r.accepted >= d for r in some) / len(some), 4) for d, some in enumerate(reached, 1) if some],
            "tokens_per_round": round(sum(r.emitted for r in rounds) / len(rounds), 4),
            "rounds": len(rounds),
            "prompts": len(runs),
        }
    return found
