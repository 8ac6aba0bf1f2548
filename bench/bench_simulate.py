"""Is the simulator right? The same workloads on the real engine and on its virtual clock, with the error of each number.

    python bench/bench_simulate.py [--save] [--cpu-clock]          # some 2 minutes on two cores

1. The machine's rates are measured, and steps of known shape on engines of their own give the coefficients of a step
   (``engine.calibrate``): one round before the runs, one between them and one after. The workloads are not looked at.
2. ``at once``: the serving mix of bench_engine, all at time 0. The plans then depend on nothing that is timed, so steps
   and tokens computed must be equal; the bench fails if they are not.
3. ``over time``: requests as the Azure conversation trace has them, a tenth as long, Poisson arrivals at about two
   thirds of what the machine can do. When a step ends decides who is in the next one, so steps may differ.

4. ``speed``: 10,000 requests of 200 tokens in and 200 out on average, Llama-3-8B on an H200: CPU seconds of one core, of
   which the promise is less than 60.

``--cpu-clock`` counts this process's CPU seconds on one thread, idle time skipped: for a machine that others use too.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Callable, Sequence

import torch

import kvedu
from kvedu import machine
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.book.rows import save_row
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.calibrate import PARTS, Calibrated, Calibration
from kvedu.engine.engine import Engine
from kvedu.engine.metrics import output_tokens_per_second, percentile, span_seconds, timings
from kvedu.engine.mixes import AZURE_CONVERSATION
from kvedu.engine.simulate import simulate
from kvedu.engine.step_time import blocks_beside_weights, roofline_seconds
from kvedu.engine.trace import Stepped, Trace
from kvedu.engine.workload import Arrival, independent, lognormal, poisson, serving_mix
from kvedu.model.dtype import fast_dtype
from kvedu.model.transformer import Transformer

SETTINGS = dict(max_running=48, token_budget=512)
CACHE_TOKENS, PAGE = 24_000, 16


class Clock:
    """Seconds since it was made, of which idle ones are waited for or, on the CPU clock, skipped."""

    def __init__(self, source: Callable[[], float]) -> None:
        self.source, self.skipped = source, 0.0
        self.start = source()

    def __call__(self) -> float:
        return self.source() - self.start + self.skipped

    def wait_until(self, when: float) -> None:
        """Let the clock come to ``when``."""
        if self.source is time.perf_counter:
            time.sleep(max(0.0, when - self()))
        else:
            self.skipped += max(0.0, when - self())


def real(model: Transformer, arrivals: Sequence[Arrival], source: Callable[[], float]) -> Trace:
    """Serve a workload on the engine; requests are taken in between steps, as they have come by then."""
    cache_bytes = CACHE_TOKENS * kv_bytes_per_token(model.config, model.dtype.itemsize)
    clock = Clock(source)
    engine = Engine(model, cache_bytes=cache_bytes, page_size=PAGE, reuse=HashReuse, clock=clock, **SETTINGS)
    coming = sorted(arrivals, key=lambda arrival: arrival.time)
    while coming or not engine.idle:
        if engine.idle:
            clock.wait_until(coming[0].time)
        while coming and coming[0].time <= clock():
            a = coming.pop(0)
            engine.add(a.prompt_ids, max_new_tokens=a.max_new_tokens, ignore_eos=True, arrived=a.time)
        engine.step()
    return engine.trace


def numbers(trace: Trace) -> dict[str, float]:
    """What a reader would want to have predicted."""
    steps, rows = trace.of(Stepped), timings(trace)
    ttft, tpot = [t.ttft_seconds for t in rows], [t.tpot_seconds for t in rows if t.tpot_seconds is not None]
    return {
        "steps": len(steps),
        "tokens_computed": sum(share.tokens for step in steps for share in step.shares),
        "seconds": span_seconds(trace),
        "output_tok_per_s": output_tokens_per_second(trace),
        "ttft_p50_s": percentile(ttft, 50),
        "ttft_p90_s": percentile(ttft, 90),
        "tpot_p50_s": percentile(tpot, 50),
        "tpot_p90_s": percentile(tpot, 90),
    }


def compare(name: str, was: dict[str, float], said: dict[str, float]) -> dict[str, dict[str, float]]:
    """Print real against simulated; both and the error, simulated over real less 1."""
    print(f"\n{name:20s} {'real':>12s} {'simulated':>12s} {'error':>8s}")
    table = {}
    for key, value in was.items():
        table[key] = {"real": value, "simulated": said[key], "error": said[key] / value - 1}
        whole = key in ("steps", "tokens_computed")
        shown = [f"{number:12,.0f}" if whole else f"{number:12.4g}" for number in (value, said[key])]
        print(f"{key:20s} {shown[0]} {shown[1]} {table[key]['error']:+8.1%}", flush=True)
    return table


def load_over_time(model: Transformer, step: Calibrated, n: int) -> tuple[list[Arrival], float]:
    """A tenth of the Azure conversation lengths, at two thirds of the rate that the simulator says is the most."""
    mix = AZURE_CONVERSATION.scaled(0.1, longest_prompt=400, longest_output=100)

    def arrivals(times: Sequence[float]) -> list[Arrival]:
        return independent(times, mix.prompt, mix.output, seed=5)

    blocks = CACHE_TOKENS // PAGE
    all_at_once = simulate(arrivals([0.0] * n), step, n_blocks=blocks, page_size=PAGE, reuse=HashReuse, **SETTINGS)
    rate = 2 / 3 * n / span_seconds(all_at_once)
    return arrivals(poisson(n, rate, seed=5)), rate


def speed(n: int = 10_000) -> dict[str, float]:
    """CPU seconds to simulate ``n`` requests."""
    config, hw = known_model("Llama-3-8B").config, hardware("H200-SXM")
    arrivals = independent(poisson(n, 30.0), lognormal(200, 0.8), lognormal(200, 0.8))
    found = {}
    for name, reuse in (("without_reuse", None), ("with_hash_reuse", HashReuse)):
        start = time.process_time()
        trace = simulate(
            arrivals, roofline_seconds(config, hw), n_blocks=blocks_beside_weights(config, hw, PAGE), page_size=PAGE, reuse=reuse
        )
        found[f"{name}_cpu_s"] = time.process_time() - start
        print(f"\n{n:,} requests, {len(trace.of(Stepped)):,} steps, {name.replace('_', ' ')}: {found[f'{name}_cpu_s']:.1f} CPU s")
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row under bench/results")
    parser.add_argument("--cpu-clock", action="store_true", help="count this process's CPU seconds")
    parser.add_argument("--requests", type=int, default=100, help="of the workload over time")
    options = parser.parse_args(argv)
    source = time.process_time if options.cpu_clock else time.perf_counter
    if options.cpu_clock:
        torch.set_num_threads(1)
    dtype, why = fast_dtype("cpu")
    name = {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
    hw = machine.measure(dtypes=(name,))
    print(f"{torch.get_num_threads()} threads, {why}; reads {hw.bandwidth / 1e9:.1f} GB/s, {hw.peak(name) / 1e9:.0f} GFLOP/s")
    model = kvedu.load(dtype=dtype).pack()
    calibration = Calibration(model, hw, name, clock=source)
    calibration.round()
    later, rate = load_over_time(model, calibration.fit(), options.requests)
    workloads, traces = {"at once": serving_mix(), "over time": later}, {}
    for title, arrivals in workloads.items():
        traces[title] = real(model, arrivals, source)
        calibration.round()
    step = calibration.fit()
    fit = sorted(abs(error) for error in step.errors)
    print(
        f"a step: {1e3 * step.overhead_seconds:.2f} ms + {1e3 * step.sequence_seconds:.2f} ms a sequence + "
        + " + ".join(f"{step.slower[part]:.2f} x {part}" for part in PARTS)
        + f", bandwidth x {step.bandwidth_factor:.2g}; off by {fit[len(fit) // 2]:.0%} (median of {len(fit)} kinds of steps), {fit[-1]:.0%} at most"
    )
    values: dict[str, object] = {
        "clock": "CPU seconds" if options.cpu_clock else "seconds", "threads": torch.get_num_threads(),
        "overhead_s": step.overhead_seconds, "sequence_s": step.sequence_seconds, "slower": dict(step.slower), "bandwidth_factor": step.bandwidth_factor,
        "fit_error_median": fit[len(fit) // 2], "requests_per_s": rate,
    }  # fmt: skip
    blocks = CACHE_TOKENS // PAGE
    for title, arrivals in workloads.items():
        said = numbers(simulate(arrivals, step, n_blocks=blocks, page_size=PAGE, reuse=HashReuse, **SETTINGS))
        was = numbers(traces[title])
        values[title.replace(" ", "_")] = compare(f"{title}, {len(arrivals)}", was, said)
        if title == "at once" and any(was[key] != said[key] for key in ("steps", "tokens_computed")):
            print("kvedu: the plans differ, though no time was involved: the simulator is not the engine's scheduler")
            return 1
    values["speed"] = speed()
    if options.save:
        save_row("simulate", values, command=" ".join(["python", "bench/bench_simulate.py", *argv]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
