"""The workload of nano-vllm: 256 requests, prompts and outputs of 100 to 1,024 tokens, over Qwen3-0.6B's shape.

    python bench/bench_nano.py [--save] [--device cuda] [--requests 256] [--longest 1024] [--layers N] [--only engine,ways,real,static] [--seconds 200]

Weights are random, since speed does not depend on them; EOS is ignored; seed 0 gives 133,966 output tokens. Prints
tokens a second of the engine, its share of the bound (each step's weights and keys and values over the copy bandwidth
measured in the same run), then, on every second request, the engine with one thing changed at a time (prefix reuse, int8 and
fp8 pages, guesses); SmolLM2 itself on the frozen texts, without and with guesses; tokens drawn and drawn by top-p, recordings off,
overlap off; last, beside them, padded static batching of the same model and transformers' continuous batching. On a CPU give fewer and
shorter requests: ``--requests 8 --longest 128 --layers 2``; recordings are then made by their double.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Sequence

import torch

import kvedu
from kvedu import Engine, machine, texts
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.weights import weights_read
from kvedu.book.rows import save_row
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged import PagedCache
from kvedu.caches.prefix_hash import HashReuse
from kvedu.config import ModelConfig
from kvedu.engine.graphs import Again, DecodeGraphs
from kvedu.engine.trace import Admitted, Stepped, Trace
from kvedu.errors import KveduError
from kvedu.model.generate import generate
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer
from kvedu.speculative.ngram import NGram
from kvedu.units import MiB

SHORTEST = 100
WORDS = 10_000
"""Ids are drawn below this one."""


def workload(requests: int, longest: int, seed: int = 0) -> tuple[list[list[int]], list[int]]:
    """Prompts and numbers of output tokens, drawn in nano-vllm's order.

    >>> sum(workload(256, 1024)[1])
    133966
    """
    draw, shortest = random.Random(seed), min(SHORTEST, longest)
    prompts = [[draw.randint(0, WORDS) for _ in range(draw.randint(shortest, longest))] for _ in range(requests)]
    return prompts, [draw.randint(shortest, longest) for _ in range(requests)]


def random_model(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Transformer:
    """The shape with small random weights."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Transformer(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02) if parameter.dim() > 1 else torch.nn.init.ones_(parameter)
    return model.to(dtype).eval()


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


def bound_seconds(config: ModelConfig, trace: Trace, element: int, per_token: float, bandwidth: float) -> float:
    """Least time of all steps: each reads the weights and the keys and values of its sequences once, ``per_token`` bytes a token."""
    weights = weights_read(config, element)
    steps = [event for event in trace.events if isinstance(event, Stepped)]
    return sum(weights + per_token * sum(share.context + share.tokens for share in step.shares) for step in steps) / bandwidth


@contextmanager
def settled() -> Iterator[None]:
    """What there is now is nobody's garbage: the collector leaves it out of its rounds, which else walk over model and requests in every step."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def serve(engine: Engine, prompts: Sequence[list[int]], outputs: Sequence[int], sampling: Sampling = Sampling()) -> float:
    """Seconds that the engine takes for all of them at once."""
    wait(engine.model.device)
    start = time.perf_counter()
    for prompt, tokens in zip(prompts, outputs):
        engine.add(prompt, max_new_tokens=tokens, ignore_eos=True, sampling=sampling)
    while not engine.idle:
        engine.step()
    wait(engine.model.device)
    return time.perf_counter() - start


def run_engine(
    model: Transformer, prompts: Sequence[list[int]], outputs: Sequence[int], bandwidth: float, memory: float, shared: bool = False,
    sampling: Sampling = Sampling(), **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """All requests at once through the engine, after a run with an eighth of the answers that compiles and records what there is.

    ``shared``: all prompts begin with the same page. The run before has the prompts from their ends, so that what it leaves in a
    cache of prefixes is that page alone.
    """
    on_cpu, trace, config = model.device.type == "cpu", Trace(), model.config
    page = 16 if on_cpu else 256
    before = [prompt[::-1] for prompt in prompts]
    if shared:
        before, prompts = ([[*range(1, page + 1), *prompt] for prompt in some] for some in (before, prompts))
    if on_cpu:  # nothing is measured there: as many places as all of them take, and what a GPU does by doubles
        places = sum(len(p) + n + 2 * page for p, n in zip(prompts, outputs))
        settings = {"cache_bytes": places * kv_bytes_per_token(config, 4), "graphs": by_double, "overlap": True} | settings
    engine = Engine(model, trace=trace, page_size=page, max_running=256, token_budget=16_384, memory_share=memory, **settings)
    few = [max(1, tokens // 8) for tokens in outputs]
    few[max(range(len(before)), key=lambda i: len(before[i]))] = max(few) + 1  # the longest stays to the end: block tables as wide as they will be
    serve(engine, before, few, sampling)
    trace.events.clear()
    graphs = engine.executor.graphs
    ready = len(graphs.recorded) if graphs else 0
    with settled():
        seconds = serve(engine, prompts, outputs, sampling)
    cache = engine.cache
    per_token = sum(x.nbytes for x in cache.page_tensors) / len(cache.page_tensors[0]) / page
    least = bound_seconds(config, trace, model.dtype.itemsize, per_token, bandwidth)
    recordings = len(graphs.recorded) if graphs else 0
    return {"seconds": seconds, "tokens_per_s": sum(outputs) / seconds, "bound_tokens_per_s": sum(outputs) / least, "share_of_bound": least / seconds,
            "steps": sum(isinstance(event, Stepped) for event in trace.events), "recordings": recordings, "recorded_meanwhile": recordings - ready,
            "reused_tokens": sum(event.reused for event in trace.events if isinstance(event, Admitted)),
            "cache_bytes": cache.nbytes}  # fmt: skip


def by_double(model: Transformer, cache: PagedCache) -> DecodeGraphs:
    """Recordings that run again what they recorded: for a machine without a GPU."""
    return DecodeGraphs(model, cache, record=Again)


WAYS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "prefix reuse": {"reuse": HashReuse, "shared": True},
    "int8 pages": {"kv_format": KVFormat.int8(group=128)},
    "fp8 pages": {"kv_format": KVFormat.fp8()},
    "guesses": {"speculate": NGram()},
    "drawn": {"sampling": Sampling(temperature=0.8, seed=0)},
    "drawn by top-p": {"sampling": Sampling(temperature=0.8, top_p=0.95, seed=0)},
    "no recordings": {"graphs": False},
    "no overlap": {"overlap": False},
    "neither": {"graphs": False, "overlap": False},
}
"""What is changed, one thing at a time; what is wanted most comes first."""
_WAYS = [f"ways/{way}" for way in WAYS]
KINDS = ["engine", *_WAYS[:5], "real", "real with guesses", *_WAYS[5:], "static", "transformers"]
"""In the order in which they are measured, since time may run out: others' engines last."""


def run_real(device: torch.device, bandwidth: float, memory: float, pieces: int, length: int = 200, **settings: Any) -> dict[str, Any]:
    """SmolLM2 goes on with pieces of the frozen texts, 128 tokens each: real text, so that guesses can be right."""
    model = kvedu.load(device=device)
    ids = [token for name in texts.names() for token in model.tokenizer.encode(texts.read(name))]
    prompts = [ids[i : i + length] for i in range(0, len(ids) - length, length)][:pieces]
    return run_engine(model, prompts, [128] * len(prompts), bandwidth, memory, **settings)


def run_static(model: Transformer, prompts: Sequence[list[int]], outputs: Sequence[int], batch: int) -> dict[str, Any]:
    """Padded static batches: every row as long as the longest prompt, every answer as long as the longest; only what was asked counts."""
    wait(model.device)
    with settled():
        start = time.perf_counter()
        for first in range(0, len(prompts), batch):
            part, asked = prompts[first : first + batch], outputs[first : first + batch]
            width = max(map(len, part))
            padded = [[0] * (width - len(prompt)) + list(prompt) for prompt in part]
            generate(model, padded, max_new_tokens=max(asked), ignore_eos=True)
        wait(model.device)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens_per_s": sum(outputs) / seconds, "batch": batch}


@torch.inference_mode(False)  # it works in a thread of its own, which may not write to tensors that were made for inference alone
def run_transformers(
    config: ModelConfig, prompts: Sequence[list[int]], outputs: Sequence[int], device: torch.device, dtype: torch.dtype, **settings: Any
) -> dict[str, Any]:
    """transformers' continuous batching over the same shape. Its requests share one length of output here: their mean."""
    if device.type != "cuda" and not settings:
        raise KveduError("transformers' continuous batching takes nearly all memory there is for its cache; it is run on CUDA only")
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    shape = Qwen3Config(
        vocab_size=config.V, hidden_size=config.M, intermediate_size=config.F, num_hidden_layers=config.L, num_attention_heads=config.H,
        num_key_value_heads=config.K, head_dim=config.D, max_position_embeddings=config.max_positions, tie_word_embeddings=config.tied,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(shape).to(device=device, dtype=dtype).eval()
    each = round(sum(outputs) / len(outputs))
    greedy = GenerationConfig(max_new_tokens=each, do_sample=False, eos_token_id=-1, pad_token_id=0)
    wait(device)
    with settled():
        start = time.perf_counter()
        done = model.generate_batch(inputs=[list(p) for p in prompts], generation_config=greedy, **settings)
        wait(device)
        seconds = time.perf_counter() - start
    made = sum(len(one.generated_tokens) for one in done.values())
    if made != each * len(prompts):  # it reports what went wrong with a request, and goes on
        raise KveduError(f"{made} tokens of {each * len(prompts)} came: {next((one.error for one in done.values() if one.error), 'no error was reported')}")
    return {"seconds": seconds, "tokens_per_s": made / seconds, "tokens": made, "each": each}


def chosen(asked: Sequence[str]) -> list[str]:
    """What was asked for, in the order of ``KINDS``.

    >>> chosen(["static", "engine"])
    ['engine', 'static']
    """
    if unknown := [name for name in asked if name not in (*KINDS, "ways")]:
        raise KveduError(f"nothing here is called {', '.join(unknown)}; there are {', '.join(KINDS)}, and ways for all ways")
    return [kind for kind in KINDS if kind in asked or (kind.startswith("ways/") and "ways" in asked)]


def summary(values: dict[str, Any]) -> str:
    """One line: tokens a second, and the share of the bound where there is one."""
    said = []
    for name, found in values.items():
        if "tokens_per_s" in found:
            share = f" ({found['share_of_bound']:.0%} of the bound)" if "share_of_bound" in found else ""
            said.append(f"{name.removeprefix('ways/')} {found['tokens_per_s']:,.0f}/s{share}")
        elif "failed" in found:
            said.append(f"{name.removeprefix('ways/')} failed")
    return "tokens a second: " + ", ".join(said)


def main(argv: list[str]) -> int:
    """Measure, print, and store with ``--save``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--layers", type=int, help="fewer layers than the model has, for a dry run")
    parser.add_argument("--memory", type=float, default=0.8, help="share of the free memory for the cache, on a GPU")
    parser.add_argument("--only", default=",".join(KINDS), help="some of these, with commas between; `ways` are all ways")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="nothing is begun after so many")
    options, begun = parser.parse_args(argv), time.perf_counter()
    device = torch.device(options.device)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    config = known_model("Qwen3-0.6B").config
    if options.layers:
        from dataclasses import replace

        config = replace(config, n_layers=options.layers, vocab_size=WORDS + 1)
    model = random_model(config, device, dtype)
    prompts, outputs = workload(options.requests, options.longest)
    bandwidth = machine.copy_bandwidth((64 if device.type == "cpu" else 4096) * MiB, device)
    values: dict[str, Any] = {
        "settings": {"requests": options.requests, "longest": options.longest, "layers": config.L, "dtype": str(dtype).removeprefix("torch."),
                     "output_tokens": sum(outputs), "copy_gb_per_s": bandwidth / 1e9, "device": str(machine.describe(device)["device"])},
    }  # fmt: skip
    kinds: dict[str, Callable[[], dict[str, Any]]] = {
        "engine": lambda: run_engine(model, prompts, outputs, bandwidth, options.memory),
        "static": lambda: run_static(model, prompts, outputs, batch=min(64, len(prompts))),
        "real": lambda: run_real(device, bandwidth, options.memory, min(128, options.requests)),
        "real with guesses": lambda: run_real(device, bandwidth, options.memory, min(128, options.requests), speculate=NGram()),
        "transformers": lambda: run_transformers(config, prompts, outputs, device, dtype),
    }
    for way, settings in WAYS.items():
        kinds[f"ways/{way}"] = lambda s=settings: run_engine(model, prompts[::2], outputs[::2], bandwidth, options.memory, **s)
    for name in chosen(options.only.split(",")):
        if time.perf_counter() - begun > options.seconds:
            print(f"{name}: not begun, {options.seconds:.0f} s are over", flush=True)
            continue
        gc.collect()  # the cache and the recordings of the engine before, or another library's
        if device.type != "cpu":
            torch.accelerator.empty_cache()
        try:
            with torch.inference_mode():
                values[name] = {key: round(value, 4) if isinstance(value, float) else value for key, value in kinds[name]().items()}
        except Exception as error:  # what a peer cannot do here is a line of the table, not the end of it
            values[name] = {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
        print(f"{name}: {values[name]}", flush=True)
        if options.save:  # one by one: who stops this in the middle keeps what was measured
            save_row("nano", values, command=" ".join(["python", "bench/bench_nano.py", *argv]))
    print(summary(values), flush=True)
    return 1 if any("failed" in values[name] for name in values if name == "engine" or name.startswith("ways/")) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
