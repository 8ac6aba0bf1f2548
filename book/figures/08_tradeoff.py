"""Points for the latency-throughput explorer: the real scheduler under closed load, simulated on an A100.

Prompts and outputs vary around the figure's starting lengths, 512 and 256 tokens, by a half either way.
"""

from statistics import median

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.engine.metrics import timings
from kvedu.engine.simulate import simulate
from kvedu.engine.step_time import blocks_beside_weights, roofline_seconds
from kvedu.engine.trace import Admitted, Ended, Stepped
from kvedu.engine.workload import all_at_once, closed, independent, uniform
from kvedu.viz import tradeoff

MODEL, MACHINE = "Llama-3-8B", "A100-80GB-SXM"


def run() -> dict:
    """The explorer's data with simulated points."""
    points = [point(clients) for clients in (8, 32, 64, 128)]
    return tradeoff.data(points=points, running=32, slo=20) | {"source": f"{MODEL} on {MACHINE}, simulated; bf16"}


def point(clients: int) -> dict:
    """Throughput and median time per token while all clients are there, after each has had an answer or so."""
    config, machine = known_model(MODEL).config, hardware(MACHINE)
    work = independent(all_at_once(6 * clients), uniform(256, 768), uniform(128, 384), seed=8)
    trace = simulate(
        closed(work, clients), roofline_seconds(config, machine),
        n_blocks=blocks_beside_weights(config, machine), max_running=clients, token_budget=256,
    )  # fmt: skip
    since, until = trace.of(Ended)[clients].time, trace.of(Admitted)[-1].time
    steps = [step for step in trace.of(Stepped) if since <= step.start < until]
    tokens = sum(share.sampled for step in steps for share in step.shares)
    return {
        "name": f"{clients} simulated",
        "model": MODEL,
        "machine": MACHINE,
        "tokens_per_s": tokens / sum(step.time - step.start for step in steps),
        "tpot_s": median(t.tpot_seconds for t in timings(trace)),
    }
