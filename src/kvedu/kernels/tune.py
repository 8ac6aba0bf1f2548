"""Choose a kernel's blocks by trying them: never unasked, and never twice for the same shapes on the same chip.

The rules in the ``plan_…`` functions need no trial. Where the last percent matters, ``tune`` times candidates and keeps
its choice in the cache folder; pass it on as block arguments. Every kernel here leaves its inputs as they are, so a trial
changes nothing but its own output, which the real call writes again.

    blocks = tune("decode", plan, ATTENTION_CANDIDATES, key=(32, 4096, 128))
    paged_attention(q, k, v, layout, **blocks)
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Hashable, Sequence

import torch

from kvedu.errors import KveduError
from kvedu.folders import cache_folder
from kvedu.kernels.launch import Launch

Blocks = dict[str, int]
ATTENTION_CANDIDATES: tuple[Blocks, ...] = tuple(
    {"block_m": m, "block_s": s, "warps": w, "stages": n}
    for m, w in ((16, 2), (16, 4), (64, 4), (128, 8))
    for s in (32, 64, 128)
    for n in (3, 5, 7)
)
"""Blocks worth trying for ``paged_attention``, with one to three buffers (``splits.buffers_of``); what does not fit the chip or the heads is passed over."""


def tune(
    name: str,
    plan: Callable[..., Sequence[Launch]],
    candidates: Sequence[Blocks],
    key: Hashable,
    *,
    time: Callable[[Callable[[], None]], float] | None = None,
    folder: Path | None = None,
) -> Blocks:
    """The quickest of ``candidates`` for ``plan(**candidate)``, from memory where this was asked before.

    ``key`` says what the choice depends on besides the chip: shapes, dtype. ``time`` gives a call's time (Triton's
    ``do_bench`` by default). Raises ``KveduError`` where no candidate can be launched.
    """
    file = (folder or cache_folder() / "tuned") / f"{name}.json"
    kept: dict[str, Blocks] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    label = f"{_chip()} {key!r}"
    if label not in kept:
        kept[label] = _quickest(plan, candidates, time or _bench)
        _write(file, kept)
    return kept[label]


def _quickest(
    plan: Callable[..., Sequence[Launch]], candidates: Sequence[Blocks], time: Callable[[Callable[[], None]], float]
) -> Blocks:
    found: list[tuple[float, int]] = []
    reasons: list[str] = []
    for i, blocks in enumerate(candidates):
        try:
            launches = plan(**blocks)
            found.append((time(lambda launches=launches: [launch.run() for launch in launches] and None), i))
        except Exception as error:  # too much shared memory, a tile that a head does not fit: not for this chip
            reasons.append(f"{blocks}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    if not found:
        raise KveduError("none of the candidates can be launched here; the first says: " + (reasons or ["(there are none)"])[0])
    return dict(candidates[min(found)[1]])


def _bench(function: Callable[[], Any]) -> float:
    from triton.testing import do_bench

    return do_bench(function, warmup=10, rep=50, return_mode="median")


def _chip() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"


def _write(file: Path, kept: dict[str, Blocks]) -> None:
    """In one rename, so that two processes never see half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".json", delete=False, encoding="utf-8") as fresh:
        json.dump(kept, fresh, indent=1)
    os.replace(fresh.name, file)
