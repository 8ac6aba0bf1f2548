"""Lab 1, exercise 1: attention of the new tokens over all tokens, and what a layer keeps."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kvedu.analysis.known_models import known_model
from kvedu.grading.exercise import Case, Exercise, Mistake, Unfit
from kvedu.grading.fresh import Fresh
from kvedu.kernels.rope import cos_sin, rotate
from kvedu.model.transformer import Block

CONFIG = known_model("SmolLM2-135M").config
H, K, G, D = CONFIG.H, CONFIG.K, CONFIG.G, CONFIG.D
CHUNKS = ((5, 3), (1, 1, 1), (4, 1, 6))


def cases(fresh: Fresh) -> list[Case]:
    """A layer with random weights, and a text cut into chunks in three ways."""
    block = Block(CONFIG, 0).eval()
    for weight in block.parameters():
        weight.data = 1 + 0.1 * fresh.normal(*weight.shape) if weight.ndim == 1 else fresh.normal(*weight.shape) / weight.shape[1] ** 0.5
    return [
        Case(f"chunks of {', '.join(map(str, sizes))} tokens", (block, [fresh.normal(size, CONFIG.M) for size in sizes]))
        for sizes in CHUNKS
    ]


def observe(answer: Any, block: Block, chunks: list[Tensor]) -> list[Any]:
    """The attention and the kept rows after each chunk; the rows kept before go in again."""
    kept, seen = (torch.empty(0, K, D), torch.empty(0, K, D)), []
    for x_TM in chunks:
        result = answer(block, x_TM, kept)
        if not isinstance(result, tuple) or len(result) != 2:
            raise Unfit("two things were wanted, the attention and the pair to keep: `return attention, (keys, values)`")
        out_THD, kept = result
        if not isinstance(kept, tuple | list) or len(kept) != 2:
            raise Unfit("the second thing returned is a pair: keys and values")
        seen.append((out_THD, *kept))
    return seen


def step(*, keys_at: str = "place", queries_at: str = "place", mask: str = "place", turn_keys: bool = True,
         turn_values: bool = False, forget: bool = False) -> Any:  # fmt: skip
    """An answer with one part changed; unchanged it is right."""

    def answer(block: Block, x_TM: Tensor, kept: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q_THD, k_TKD, v_TKD = block.attn.qkv(block.attn_norm(x_TM)).view(len(x_TM), H + 2 * K, D).split((H, K, K), dim=1)
        T, before = len(x_TM), len(kept[0])
        at = {"place": torch.arange(before, before + T), "zero": torch.arange(T)}
        k_TKD = turned(k_TKD, at[keys_at]) if turn_keys else k_TKD
        v_TKD = turned(v_TKD, at["place"]) if turn_values else v_TKD
        k_SKD, v_SKD = torch.cat((kept[0], k_TKD)), torch.cat((kept[1], v_TKD))
        row_S = torch.arange(len(k_SKD))
        hidden_TS = {
            "place": row_S > at["place"][:, None],
            "zero": row_S > at["zero"][:, None],
            "nothing": (row_S < 0).expand(T, -1),
            "itself": (row_S >= at["place"][:, None]) & (row_S > 0),
        }[mask]
        out_THD = attention(turned(q_THD, at[queries_at]), k_SKD, v_SKD, hidden_TS)
        return out_THD, (k_TKD, v_TKD) if forget else (k_SKD, v_SKD)

    return answer


def turned(x: Tensor, positions_T: Tensor) -> Tensor:
    """Queries or keys turned to their positions."""
    return rotate(x, *cos_sin(CONFIG.rope, positions_T, x.dtype))


def attention(q_THD: Tensor, k_SKD: Tensor, v_SKD: Tensor, hidden_TS: Tensor) -> Tensor:
    """Attention over the keys that are not hidden."""
    k_SHD, v_SHD = (x.repeat_interleave(G, dim=1) for x in (k_SKD, v_SKD))
    scores_HTS = torch.einsum("thd,shd->hts", q_THD, k_SHD) / math.sqrt(D)
    return torch.einsum("hts,shd->thd", scores_HTS.masked_fill(hidden_TS, -math.inf).softmax(dim=-1), v_SHD)


EXERCISE = Exercise(
    title="The cached step",
    read="book/01-what-is-the-kv-cache",
    hint="Four questions: at which positions do the new tokens stand? What is kept, keys before or after turning? "
    "What does attend() get as keys? Which keys are hidden from new token i?",
    checked="attention and kept rows equal those of a plain pass, for a prompt, single tokens and later chunks, on random layers",
    cases=cases,
    observe=observe,
    right=step(),
    parts=("attention", "keys", "values"),
    mistakes=(
        Mistake(step(keys_at="zero", queries_at="zero"), "the second chunk stands at positions 0, 1, 2 again; count on from what is kept"),
        Mistake(step(keys_at="zero"), "the second chunk's keys are turned to positions 0, 1, 2; they stand where their queries stand"),
        Mistake(step(queries_at="zero"), "the second chunk's queries are turned to positions 0, 1, 2; they stand where their keys stand"),
        Mistake(step(turn_keys=False), "the kept keys are not turned: a query at another position cannot use them; turn() comes before keeping"),
        Mistake(step(turn_values=True), "the kept values are turned; only queries and keys are"),
        Mistake(step(mask="nothing"), "new tokens see tokens that come after them: something must be hidden"),
        Mistake(step(mask="zero"), "the mask starts at the top left, new token i sees keys 0 .. i only: compare positions, not rows"),
        Mistake(step(mask="itself"), "new tokens do not see themselves: hidden is what stands *after* them"),
        Mistake(step(forget=True), "only the new rows are kept, the old ones are lost; put the new ones behind them"),
    ),
)
