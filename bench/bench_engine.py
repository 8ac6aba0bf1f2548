"""The engine against its peers: a serving mix, one sequence, sixteen, and a long prompt.

    python bench/bench_engine.py [--save] [--rounds N]     # some 8 minutes on two cores, with both peers

The mix is 48 requests at once, every second one with a shared 256-token prefix, greedy, EOS ignored. Peers:
transformers in padded batches of 16, each until its longest output ends, and vLLM's CPU build, compiled
and on all cores, from an environment of its own (``make bench-peers`` makes it). A peer that is not
installed is left out, and the bench says so. Everybody runs on the same weights in one run of this file; kvedu before
and after each peer, medians over the rounds. CPU seconds over seconds show how many cores each one used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench_generate import hugging_face, ids

import torch

import kvedu
from kvedu.analysis.flops import decode_cost, prefill_cost, total
from kvedu.analysis.memory import kv_bytes_per_token, weights_read
from kvedu.book.rows import save_row
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.engine import Engine
from kvedu.engine.trace import Stepped
from kvedu.engine.workload import serving_mix
from kvedu.machine import matmul_flops, read_bandwidth
from kvedu.model.dtype import fast_dtype
from kvedu.model.transformer import Transformer

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
CACHE_TOKENS = 24_000
"""Places in the cache: all 48 requests fit at once."""

Work = list[tuple[list[int], int]]
"""Requests: prompt ids and output tokens."""


def workloads(runs: int = 3) -> dict[str, list[Work]]:
    """What everybody serves: each list of requests is a run; no two runs share a prompt."""
    return {
        "mix": [[(list(r.prompt_ids), r.max_new_tokens) for r in serving_mix()]],
        "batch_1": [[(ids(32), 64)] for _ in range(runs)],
        "batch_16": [[(ids(32), 64) for _ in range(16)] for _ in range(runs)],
        "prefill_1024": [[(ids(1024), 1)] for _ in range(runs)],
    }


def counted(name: str, work: Work) -> int:
    """Tokens whose rate is quoted: output tokens, of the long prompt its own."""
    return sum(len(prompt) if name == "prefill_1024" else n for prompt, n in work)


def serve(model: Transformer, work: Work, reuse: type | None = HashReuse) -> tuple[float, float, Engine]:
    """Seconds and CPU seconds that the engine takes for all requests at once, and the engine with its trace."""
    cache_bytes = CACHE_TOKENS * kv_bytes_per_token(model.config, model.dtype.itemsize)
    engine = Engine(model, cache_bytes=cache_bytes, reuse=reuse, max_running=48, token_budget=512)
    start, cpu = time.perf_counter(), time.process_time()
    for prompt, n in work:
        engine.add(prompt, max_new_tokens=n, ignore_eos=True)
    while not engine.idle:
        engine.step()
    return time.perf_counter() - start, time.process_time() - cpu, engine


def serve_padded(theirs: torch.nn.Module, work: Work) -> tuple[float, float]:
    """Seconds and CPU seconds that transformers takes in padded static batches of 16, in order of arrival."""
    start, cpu = time.perf_counter(), time.process_time()
    for i in range(0, len(work), 16):
        batch = work[i : i + 16]
        width = max(len(prompt) for prompt, _ in batch)
        rows = torch.tensor([[2] * (width - len(prompt)) + prompt for prompt, _ in batch])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt, _ in batch])
        with torch.inference_mode():
            theirs.generate(
                rows, attention_mask=mask, max_new_tokens=max(n for _, n in batch), do_sample=False, pad_token_id=2,
                eos_token_id=-1,
            )  # fmt: skip
    return time.perf_counter() - start, time.process_time() - cpu


def serve_by_vllm(theirs: torch.nn.Module, work: dict[str, list[Work]]) -> dict[str, list[dict[str, float]]] | str:
    """What vLLM's CPU build takes for each run, or why it was not measured. Starting it takes some two minutes."""
    if not PEERS.exists():
        return "not installed; `make bench-peers` installs it (Linux on x86-64)"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        theirs.save_pretrained(folder / "model")
        (folder / "requests.json").write_text(json.dumps(work))
        clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        words = [str(PEERS), str(Path(__file__).parent / "peers" / "vllm_cpu.py")]
        words += [str(folder / part) for part in ("model", "requests.json", "result.json")]
        done = subprocess.run(words, env=clean, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"it failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
        return json.loads((folder / "result.json").read_text())["runs"]


def limits(model: Transformer, work: dict[str, list[Work]], computed: int) -> dict[str, float]:
    """Tokens a second that the rates of this machine, measured now, allow for each workload.

    The mix: all ``computed`` tokens' FLOPs at the rate of a large product, the head once for every output.
    Decoding: weights and cache are read once a step, or the FLOPs, whichever takes longer.
    """
    size, config = model.dtype.itemsize, model.config
    read = read_bandwidth(512 * 2**20)
    flops = max(matmul_flops("bf16" if size == 2 else "fp32", n) for n in (1024, 2048))
    outputs = counted("mix", work["mix"][0])
    head = 2 * config.M * config.V
    body = total(prefill_cost(config, 256)).flops / 256 - head / 256
    step = {b: (weights_read(config, size) + b * 64 * kv_bytes_per_token(config, size)) / read for b in (1, 16)}
    products = {b: total(decode_cost(config, 64, b)).flops / flops for b in (1, 16)}
    print(f"limits: memory reads {read / 1e9:.1f} GB/s, products {flops / 1e9:.0f} GFLOP/s", flush=True)
    return {
        "mix": outputs / ((computed * body + outputs * head) / flops),
        "batch_1": 1 / max(step[1], products[1]),
        "batch_16": 16 / max(step[16], products[16]),
        "prefill_1024": 1024 / (total(prefill_cost(config, 1024)).flops / flops),
        "read_gb_per_s": read / 1e9,
        "gflop_per_s": flops / 1e9,
    }


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row under bench/results")
    parser.add_argument("--rounds", type=int, default=3, help="times that kvedu serves each workload")
    parser.add_argument("--no-vllm", action="store_true", help="leave vLLM out")
    options = parser.parse_args(argv)
    dtype, why = fast_dtype("cpu")
    work = workloads()
    mix = work["mix"][0]
    print(f"{len(mix)} requests, {sum(len(p) for p, _ in mix):,} prompt and {counted('mix', mix):,} output tokens; {dtype} ({why})")
    model, theirs = kvedu.load(dtype=dtype).pack(), hugging_face(kvedu.load(dtype=dtype))
    rates: dict[str, dict[str, list[float]]] = {}
    cores: dict[str, list[float]] = {}
    computed: dict[str, int] = {}

    def note(engine: str, name: str, some: Work, seconds: float, cpu: float) -> None:
        rates.setdefault(engine, {}).setdefault(name, []).append(counted(name, some) / seconds)
        if name == "mix":
            cores.setdefault(engine, []).append(cpu / seconds)

    def ours() -> None:
        for name, runs in work.items():
            for some in runs:
                seconds, cpu, engine = serve(model, some)
                note("kvedu", name, some, seconds, cpu)
                if name == "mix":
                    computed["kvedu"] = sum(share.tokens for step in engine.trace.of(Stepped) for share in step.shares)
        seconds, cpu, engine = serve(model, mix, None)
        note("kvedu_without_reuse", "mix", mix, seconds, cpu)
        computed["kvedu_without_reuse"] = sum(share.tokens for step in engine.trace.of(Stepped) for share in step.shares)

    serve(model, [(ids(64), 8)])  # nobody's first call counts
    serve_padded(theirs, [(ids(64), 8)])
    for round_ in range(options.rounds):
        ours()
        if round_ == 0:
            note("transformers", "mix", mix, *serve_padded(theirs, mix))
        if round_ == 1 or options.rounds == 1:
            vllm = "left out" if options.no_vllm else serve_by_vllm(theirs, work)
            if isinstance(vllm, str):
                print(f"vLLM was not measured: {vllm}", flush=True)
            else:
                for name, runs in vllm.items():
                    for some, taken in zip(work[name], runs):
                        note("vllm", name, some, taken["seconds"], taken["cpu_seconds"])
    values = report(rates, cores, computed, limits(model, work, computed["kvedu"]))
    if options.save:
        save_row("engine", values, command=" ".join(["python", "bench/bench_engine.py", *argv]))


def report(rates, cores, computed, bounds) -> dict[str, float]:
    """Print the table and give it as a flat row."""
    values: dict[str, float] = {f"{key}_limit" if key in rates["kvedu"] else key: bound for key, bound in bounds.items()}
    for engine, by_name in rates.items():
        tokens = f", {computed[engine]:,} tokens computed" if engine in computed else ""
        print(f"{engine}: {median(cores[engine]):.2f} cores in use on the mix{tokens}")
        values[f"{engine}_cores"] = median(cores[engine])
        values |= {f"{engine}_tokens_computed": computed[engine]} if engine in computed else {}
        for name, some in by_name.items():
            rate = values[f"{engine}_{name}_tok_per_s"] = median(some)
            share = values[f"{engine}_{name}_share"] = rate / bounds[name]
            print(f"    {name:13s} {rate:7.1f} tok/s, {100 * share:3.0f} % of the limit  ({', '.join(f'{r:.0f}' for r in some)})")
    for peer in ("transformers", "vllm"):
        for name in rates.get(peer, {}):
            ratio = values[f"{name}_ratio_to_{peer}"] = values[f"kvedu_{name}_tok_per_s"] / values[f"{peer}_{name}_tok_per_s"]
            print(f"{name} against {peer}: {ratio:.2f}x")
    return values


if __name__ == "__main__":
    main(sys.argv[1:])
