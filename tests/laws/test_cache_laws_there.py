"""The laws of attention for every cache where kernels run: on a GPU, in half precision too. Elsewhere the same on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))

import scenes  # noqa: E402
from cache_cases import CACHES, KEEPING, PLAIN, contents, random_kv  # noqa: E402
from kvedu.model.loops import greedy_cached, greedy_uncached  # noqa: E402
from tiny import random_ids, tiny_config, tiny_model  # noqa: E402

DEVICE = scenes.DEVICE
HALF = [dtype for dtype in scenes.DTYPES if dtype != torch.float32][-1]
DTYPES = [torch.float32] if DEVICE == "cpu" else [torch.float32, HALF]
"""On a GPU also bf16, or fp16 where there is none."""
STEPS = [({0: 5, 1: 3}, None), ({1: 4, 2: 7}, None), ({0: 1, 1: 1, 2: 1}, None), ({0: 4, 1: 2}, {0: [-1, 0, 0, 1]}), ({1: 1, 2: 1}, None)]
"""Tokens of each sequence: prompts, chunks, lone tokens of unequal sequences, a tree."""


def close(got, wanted, dtype):
    """fp32 as in the laws on a CPU; in half precision two units in the last place of 1, since a weight and a sum are rounded."""
    room = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else dict.fromkeys(("rtol", "atol"), 2 * torch.finfo(dtype).eps)
    torch.testing.assert_close(got, wanted, **room)


def there(x, dtype):
    return x.to(DEVICE, dtype)


def opened(cache, seqs, counts, parents):
    """A step of these tokens; sequences by number."""
    return cache.step({seqs[i]: new for i, new in counts.items()}, parents and {seqs[i]: tree for i, tree in parents.items()})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("name", CACHES)
def test_attend_equals_reference_over_gather(name, window, dtype):
    """C001, C002, C075."""
    cache = CACHES[name](tiny_config(6, 2, sliding_window=window), device=DEVICE, dtype=dtype)
    seqs, generator = [cache.add() for _ in range(3)], torch.Generator().manual_seed(1)
    for counts, parents in STEPS:
        n = sum(counts.values())
        with opened(cache, seqs, counts, parents) as view:
            for layer in range(cache.n_layers):
                view.append(layer, *(there(x, dtype) for x in random_kv(cache.config, n, generator)))
                q_NHD = there(torch.randn(n, cache.config.H, cache.config.D, generator=generator), dtype)
                close(view.attend(layer, q_NHD), view.attend_reference(layer, q_NHD), dtype)


@pytest.mark.parametrize("dtype, name", [(dtype, name) for dtype in DTYPES for name in (KEEPING if dtype == HALF else CACHES)])
def test_all_at_once_equals_one_after_the_other(name, dtype):
    """``meet`` is ``rotate``, ``append`` and ``attend``, by kernels that do two of them at once too.

    In half precision for caches that keep exact values: a key that is rounded elsewhere may fall to the next code.
    """
    outs = []
    for at_once in (False, True):
        cache, generator, seen = CACHES[name](tiny_config(6, 2), device=DEVICE, dtype=dtype), torch.Generator().manual_seed(3), []
        seqs = [cache.add() for _ in range(3)]
        for counts, parents in STEPS:
            n = sum(counts.values())
            with opened(cache, seqs, counts, parents) as view:
                for layer in range(cache.n_layers):
                    k_NKD, v_NKD = (there(x, dtype) for x in random_kv(cache.config, n, generator))
                    q_NHD = there(torch.randn(n, cache.config.H, cache.config.D, generator=generator), dtype)
                    if at_once:
                        seen.append(view.meet(layer, q_NHD, k_NKD, v_NKD))
                    else:
                        q_NHD, k_NKD = view.rotate(q_NHD, k_NKD)
                        view.append(layer, k_NKD, v_NKD)
                        seen.append(view.attend(layer, q_NHD))
            seen += [x for seq in seqs for layer in range(cache.n_layers) for x in contents(cache, seq, layer)]
        outs.append(seen)
    for apart, together in zip(*outs, strict=True):
        close(together, apart, dtype)


@pytest.mark.parametrize("name", PLAIN)
def test_greedy_tokens_equal_the_loop_without_a_cache(name):
    model = tiny_model(tiny_config(6, 2)).to(DEVICE)
    wanted = greedy_uncached(model, random_ids(9), 8)
    assert greedy_cached(model, random_ids(9), 8, CACHES[name](model.config, device=DEVICE)) == wanted
