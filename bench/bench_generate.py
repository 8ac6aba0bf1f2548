"""Speed of generation on this machine: against transformers, against the machine's limits, with and without a cache.

    python bench/bench_generate.py                 # all of it, some 20 minutes on two cores
    python bench/bench_generate.py --only peers    # kvedu against transformers, 3 minutes
    python bench/bench_generate.py --only cache    # cached against uncached generation

1. ``generate``: kvedu against transformers, and both against what the machine can do.
2. ``cached_against_uncached``: the same text generated with a cache and without one.

Every comparison is a pair measured in turns in one run; the ratios are medians over the pairs. Compare only
within a run: the machine may be shared. Stores ``bench/results/generate.json`` with ``--save``.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from statistics import median
from typing import Callable

# An old OpenBLAS setting slows a current NumPy and PyTorch; benchmarks run without it.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)

import torch  # noqa: E402

import kvedu  # noqa: E402
from kvedu import NoCache, StaticCache, generate  # noqa: E402
from kvedu.analysis.cost import generation_time, measured_rates  # noqa: E402
from kvedu.analysis.flops import decode_cost, prefill_cost, total  # noqa: E402
from kvedu.analysis.memory import kv_cache_bytes, weights_read  # noqa: E402
from kvedu.book.rows import save_row  # noqa: E402
from kvedu.machine import matmul_flops, read_bandwidth  # noqa: E402
from kvedu.model.dtype import fast_dtype  # noqa: E402
from kvedu.model.transformer import Transformer  # noqa: E402

RANDOM = random.Random(1)
PREFILL = 1024


def ids(n: int) -> list[int]:
    return [RANDOM.randint(100, 40_000) for _ in range(n)]


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# -- kvedu and transformers on the same work ------------------------------------------------------


def hugging_face(model: Transformer) -> torch.nn.Module:
    """The same weights in transformers' own class, plain and unpacked."""
    import transformers

    from kvedu.model.weights import plan

    c = model.config
    config = transformers.LlamaConfig(
        vocab_size=c.V, hidden_size=c.M, intermediate_size=c.F, num_hidden_layers=c.L, num_attention_heads=c.H,
        num_key_value_heads=c.K, max_position_embeddings=c.max_positions, rms_norm_eps=c.norm_eps,
        tie_word_embeddings=c.tied, rope_parameters={"rope_type": "default", "rope_theta": c.rope.theta},
    )
    theirs = transformers.AutoModelForCausalLM.from_config(config, dtype=model.dtype).eval()
    state, ours = {}, dict(model.named_parameters())
    for target, parts in plan(c).items():
        for part, rows in zip(parts, ours[target].split([part.shape[0] for part in parts])):
            state[part.name] = rows
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    return theirs


def hf_generate(theirs: torch.nn.Module, prompts: list[list[int]], n: int, cache: str) -> None:
    """Greedy, EOS ignored, equal prompt lengths (no padding to slow it down)."""
    options = {} if cache == "dynamic" else {"cache_implementation": "static"}
    with torch.inference_mode():
        theirs.generate(
            torch.tensor(prompts), attention_mask=torch.ones(len(prompts), len(prompts[0]), dtype=torch.long),
            max_new_tokens=n, do_sample=False, pad_token_id=2, eos_token_id=-1, **options,
        )


def our_prefill(model: Transformer, prompt: list[int]) -> None:
    cache = StaticCache(model.config, max_length=len(prompt), dtype=model.dtype)
    with torch.inference_mode(), cache.step({cache.add(): len(prompt)}) as view:
        model(torch.tensor(prompt), view, view.last_rows)


def hf_prefill(theirs: torch.nn.Module, prompt: list[int]) -> None:
    with torch.inference_mode():
        theirs(torch.tensor([prompt]), logits_to_keep=1)


def bench_peers(pairs: int) -> dict[str, float]:
    """kvedu's best against transformers' best, in turns. The dtype and cache of the peer are chosen by measuring."""
    dtype, why = fast_dtype("cpu")
    ours = kvedu.load(dtype=dtype).pack()
    theirs_by_dtype = {d: hugging_face(kvedu.load(dtype=d)) for d in {dtype, torch.float32}}
    out: dict[str, float] = {}
    print(f"kvedu: {dtype}, packed ({why}); {torch.get_num_threads()} threads")

    def compare(name: str, tokens: int, mine: Callable[[], object], choices: dict[str, Callable[[], object]]) -> None:
        mine()
        trial = {key: min(seconds(work) for _ in range(2)) for key, work in choices.items()}
        best = min(trial, key=trial.get)
        times = [(seconds(mine), seconds(choices[best])) for _ in range(pairs)]
        out[f"{name}_tok_per_s"] = tokens / median(a for a, _ in times)
        out[f"{name}_transformers_tok_per_s"] = tokens / median(b for _, b in times)
        out[f"{name}_ratio"] = median(b / a for a, b in times)
        print(
            f"{name:14s} kvedu {out[f'{name}_tok_per_s']:7.1f} tok/s   transformers ({best}) "
            f"{out[f'{name}_transformers_tok_per_s']:7.1f} tok/s   ratio {out[f'{name}_ratio']:.2f}",
            flush=True,
        )

    peers = [(f"{str(d).removeprefix('torch.')}, {c}", m, c) for d, m in theirs_by_dtype.items() for c in ("dynamic", "static")]
    one, sixteen, long = [ids(32)], [ids(32) for _ in range(16)], ids(PREFILL)
    for name, prompts in (("batch_1", one), ("batch_16", sixteen)):
        compare(
            name,
            64 * len(prompts),
            lambda prompts=prompts: generate(ours, prompts, max_new_tokens=64, ignore_eos=True),
            {key: lambda m=m, c=c, prompts=prompts: hf_generate(m, prompts, 64, c) for key, m, c in peers},
        )
    compare(
        "prefill_1024",
        PREFILL,
        lambda: our_prefill(ours, long),
        {str(d).removeprefix("torch."): lambda m=m: hf_prefill(m, long) for d, m in theirs_by_dtype.items()},
    )
    out |= limits(ours, out)
    return out


def limits(model: Transformer, rates: dict[str, float]) -> dict[str, float]:
    """This machine's own limits, measured now, and the share of them that the rates reach."""
    size = model.dtype.itemsize
    name = "bf16" if model.dtype == torch.bfloat16 else "fp32"
    read = read_bandwidth(512 * 2**20)
    flops = max(matmul_flops(name, 1024), matmul_flops(name, 2048))
    weights = weights_read(model.config, size)
    mean_context = 32 + 32
    out = {"read_gb_per_s": read / 1e9, f"matmul_{name}_gflop_per_s": flops / 1e9}
    bounds = {
        "batch_1": read / (weights + kv_cache_bytes(model.config, mean_context, 1, size)),
        "batch_16": 16
        / max(
            (weights + kv_cache_bytes(model.config, mean_context, 16, size)) / read,
            total(decode_cost(model.config, mean_context, 16)).flops / flops,
        ),
        "prefill_1024": PREFILL / (total(prefill_cost(model.config, PREFILL)).flops / flops),
    }
    print(f"limits: memory reads {read / 1e9:.1f} GB/s, {name} matmul {flops / 1e9:.0f} GFLOP/s")
    for key, bound in bounds.items():
        out[f"{key}_share_of_limit"] = rates[f"{key}_tok_per_s"] / bound
        print(f"{key:14s} bound {bound:7.1f} tok/s, reached {100 * out[f'{key}_share_of_limit']:.0f} %")
    return out


# -- with and without a cache -----------------------------------------------------------------------


def bench_cache(lengths: tuple[int, ...], prompt_tokens: int = 32) -> dict[str, float]:
    """Whole generations with and without a cache, beside what rates measured in this run predict."""
    dtype, _ = fast_dtype("cpu")
    model = kvedu.load(dtype=dtype).pack()
    prompt = ids(prompt_tokens)
    longest = prompt_tokens + max(lengths)
    points = sorted({prompt_tokens, longest, *(round(prompt_tokens + (longest - prompt_tokens) * i / 16) for i in range(17))})
    forward: dict[int, list[float]] = {n: [] for n in points}
    decode: dict[int, list[float]] = {n: [] for n in points}

    def calibrate(repeats: int) -> None:
        """Seconds of a full pass and of a decode step at each point, taken again around every run.

        Each pass has a length of its own, next to the point's: the loop without a cache never meets a
        length twice, and the matrix library prepares a kernel for each new one.
        """
        for n in points:
            fixed = StaticCache(model.config, max_length=n + 8, dtype=dtype)
            cached_seq = fixed.add()
            with torch.inference_mode():
                with fixed.step({cached_seq: n}) as view:
                    model(torch.tensor(ids(n)), view, view.last_rows)
                for _ in range(repeats):
                    length = n + len(forward[n]) % 8
                    sequence = torch.tensor(ids(length))
                    cache = NoCache(model.config, dtype=dtype)
                    seq = cache.add()

                    def full() -> None:
                        with cache.step({seq: length}) as view:
                            model(sequence, view, view.last_rows).argmax()

                    def eight() -> None:
                        for _ in range(8):  # in a row, as generation runs them
                            with fixed.step({cached_seq: 1}) as view:
                                model(torch.tensor([5]), view, view.last_rows).argmax()

                    forward[n].append(seconds(full))
                    decode[n].append(seconds(eight) / 8)
                    fixed.truncate(cached_seq, n)

    calibrate(2)
    calibrate(1)
    out: dict[str, float] = {}
    for new in lengths:
        runs = 2 if new <= 200 else 1
        slow, fast = [], []
        for _ in range(runs):
            fast.append(seconds(lambda: generate(model, prompt, max_new_tokens=new, ignore_eos=True)))
            cache = NoCache(model.config, dtype=dtype)
            slow.append(seconds(lambda: generate(model, prompt, max_new_tokens=new, ignore_eos=True, cache=cache)))
            fast.append(seconds(lambda: generate(model, prompt, max_new_tokens=new, ignore_eos=True)))
            calibrate(1)
        rates = measured_rates(*({n: median(t) for n, t in times.items()} for times in (forward, decode)))
        predicted = generation_time(rates, prompt_tokens, new, cached=False) / generation_time(rates, prompt_tokens, new)
        measured = median(slow) / median(fast)
        out |= {
            f"new_{new}_uncached_s": median(slow), f"new_{new}_cached_s": median(fast),
            f"new_{new}_speedup_measured": measured, f"new_{new}_speedup_predicted": predicted,
            f"new_{new}_measured_over_predicted": measured / predicted,
        }
        print(
            f"{new:5d} new tokens: without cache {median(slow):7.1f} s, with {median(fast):6.2f} s: {measured:5.1f}x, "
            f"predicted {predicted:5.1f}x, ratio {measured / predicted:.2f}",
            flush=True,
        )
    return out


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["peers", "cache"])
    parser.add_argument("--pairs", type=int, default=5, help="pairs per comparison")
    parser.add_argument("--new", type=int, nargs="+", default=[200, 1000], help="new tokens, with and without a cache")
    parser.add_argument("--save", action="store_true", help="store the row under bench/results")
    options = parser.parse_args(argv)
    command = " ".join(["python", "bench/bench_generate.py", *argv])
    if options.only != "cache":
        values = bench_peers(options.pairs)
        if options.save:
            save_row("generate", values, command=command)
    if options.only != "peers":
        values = bench_cache(tuple(options.new))
        if options.save:
            save_row("cached_against_uncached", values, command=command)


if __name__ == "__main__":
    main(sys.argv[1:])
