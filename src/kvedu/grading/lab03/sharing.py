"""Lab 3, exercise 1: kind of attention and bytes per token from a published configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

Published = dict[str, Any]
PUBLISHED: dict[str, Published] = {
    "SmolLM2-135M": {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3},
    "Llama-2-7B": {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32},
    "Llama-2-7B with a null": {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": None},
    "Llama-3-8B": {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
    "Qwen3-4B": {"num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
    "Gemma-2B": {"num_hidden_layers": 18, "hidden_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256},
}


def cases(fresh: Fresh) -> list[Case]:
    """Published configurations, and made-up ones with every way to leave a key out."""
    made = [Case(name, (published,)) for name, published in PUBLISHED.items()]
    for kv in ("missing", None, 1, 4):
        H, D, L = 4 * fresh.integer(2, 9), fresh.choice((48, 64, 96)), fresh.integer(2, 60)
        published = {"num_hidden_layers": L, "hidden_size": H * D, "num_attention_heads": H}
        published |= {} if kv == "missing" else {"num_key_value_heads": kv}
        published |= fresh.choice(({}, {"head_dim": None}, {"head_dim": D + 32}))
        made.append(Case(f"a made-up configuration, {published}", (published,)))
    return made


def reads(
    *, kv: Callable[[Published], int] | None = None, head: Callable[[Published], int] | None = None, factor: int = 4,
    all_heads: bool = False, kind: Callable[[int, int], str] | None = None,
) -> Any:  # fmt: skip
    """An answer with one part changed; unchanged it is right."""

    def answer(p: Published) -> tuple[str, int]:
        H = p["num_attention_heads"]
        K = kv(p) if kv else p.get("num_key_value_heads") or H
        D = head(p) if head else p.get("head_dim") or p["hidden_size"] // H
        named = kind(H, K) if kind else "MHA" if K == H else "MQA" if K == 1 else "GQA"
        return named, factor * p["num_hidden_layers"] * (H if all_heads else K) * D

    return answer


EXERCISE = Exercise(
    title="Read a configuration",
    read="book/03-mha-mqa-gqa",
    hint="First find K. What did a model do before sharing was invented? A key that is missing and a key that says null are the same.",
    checked="six published configurations and four made up for this check, with keys missing or null",
    cases=cases,
    right=reads(),
    parts=("the kind", "the bytes"),
    mistakes=(
        Mistake(reads(kv=lambda p: p.get("num_key_value_heads") or 1), "a missing number of KV heads is taken for 1; before sharing was invented every query head had its own"),
        Mistake(reads(kv=lambda p: p.get("num_key_value_heads", p["num_attention_heads"])), "a key that says null is not handled: `get` gives its default only where the key is missing"),
        Mistake(reads(kv=lambda p: p["num_key_value_heads"] or p["num_attention_heads"]), "a missing num_key_value_heads is not handled: older models do not have the key"),
        Mistake(reads(head=lambda p: p["hidden_size"] // p["num_attention_heads"]), "the head size is taken for width / heads; head_dim says what it is where it is given"),
        Mistake(reads(head=lambda p: p["head_dim"]), "a missing head_dim is not handled: then it is hidden_size / num_attention_heads"),
        Mistake(reads(factor=2), "the bytes are half: there are keys *and* values, of 2 bytes each"),
        Mistake(reads(all_heads=True), "query heads are counted, but KV heads are kept"),
        Mistake(reads(kind=lambda H, K: "MHA" if K == H else "GQA"), "one KV head for all is called GQA; it has a name of its own, MQA"),
    ),
)
