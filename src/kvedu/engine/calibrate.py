"""How far a real engine on this machine is from the machine's limits: a few steps of known shape, and a fit.

A step is predicted as

    overhead + per_sequence x sequences + slower["matrices"] x its roofline time + ... attention ... + ... head

where the roofline times come from the machine's measured rates, so a factor of 1 is the limit itself. Reading
and computing are not slowed down alike, so the bandwidth has a factor of its own, which moves the roofline's knee. The
coefficients are fitted to steps that the calibration makes up: prompts of random ids in a few sizes, decodes of a few
batch sizes. No workload is looked at.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from operator import itemgetter
from random import Random
from typing import Callable, Hashable, Iterator, Mapping, Sequence as Seq

import torch

from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.roofline import Hardware
from kvedu.config import ModelConfig
from kvedu.engine.engine import Engine
from kvedu.engine.plan import Plan
from kvedu.engine.step_time import roofline_parts
from kvedu.engine.trace import Stepped
from kvedu.errors import KveduError
from kvedu.model.transformer import Transformer

PARTS = ("matrices", "attention", "head")
SHAPES = ((1, 16), (1, 64), (1, 192), (1, 512), (4, 256), (8, 64), (16, 128), (40, 32))
"""Batches that are run: (prompts at once, tokens of each)."""

BANDWIDTH_FACTORS = tuple(2 ** (i / 2) for i in range(-5, 8))


@dataclass(frozen=True)
class Calibrated:
    """Step times of one engine: call it with a plan, as ``simulate`` does."""

    parts: Callable[[Plan], dict[str, float]]
    overhead_seconds: float
    sequence_seconds: float
    bandwidth_factor: float
    """What the measured bandwidth is multiplied with before the limits are worked out."""
    slower: Mapping[str, float]
    """How many times longer a part takes than these limits allow."""
    errors: tuple[float, ...]
    """Predicted over measured, less 1, of each step that the fit saw."""

    def __call__(self, plan: Plan) -> float:
        parts = self.parts(plan)
        slow = sum(self.slower[name] * parts[name] for name in PARTS)
        return self.overhead_seconds + self.sequence_seconds * len(plan.work) + slow


class Calibration:
    """Runs the shapes, a round at a time, on engines of their own, and fits what was seen so far.

    ``hw`` are rates of this machine (``machine.measure``), ``dtype`` names the model's there; ``clock`` is what
    seconds are. Where a machine's speed drifts, put rounds before and after what is to be predicted: of equal steps
    the median counts. Cost of a round: the shapes' tokens, some 6,000, and ``decodes`` steps after each.
    """

    def __init__(
        self,
        model: Transformer,
        hw: Hardware,
        dtype: str,
        *,
        shapes: Seq[tuple[int, int]] = SHAPES,
        decodes: int = 6,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.model, self.shapes, self.decodes, self.clock = model, shapes, decodes, clock
        self.hw, self.dtype = hw, dtype
        self._seen: dict[Hashable, list[tuple[float, Plan]]] = {}
        list(_steps(model, clock, *shapes[0], decodes))  # the first steps of a process are slower

    def round(self) -> None:
        """Run every shape once."""
        for shape in self.shapes:
            for plan, seconds in _steps(self.model, self.clock, *shape, self.decodes):
                # Decodes of one batch differ by a few tokens of context: they are one kind of step.
                kind = shape, tuple((w.tokens, w.yields, w.tokens > 1 and w.context) for w in plan.work)
                self._seen.setdefault(kind, []).append((seconds, plan))

    def fit(self) -> Calibrated:
        """Coefficients of 0 or more with the least sum of squared relative errors. Raises ``KveduError`` before a round."""
        steps = [sorted(seen, key=itemgetter(0))[len(seen) // 2] for seen in self._seen.values()]
        fits = (self._fit(steps, factor) for factor in BANDWIDTH_FACTORS)
        return min(fits, key=lambda fit: sum(error**2 for error in fit.errors))

    def _fit(self, steps: list[tuple[float, Plan]], factor: float) -> Calibrated:
        hw = replace(self.hw, bandwidth=self.hw.bandwidth * factor)
        parts, measured = roofline_parts(self.model.config, hw, self.dtype), [seconds for seconds, _ in steps]
        rows = [_features(parts, plan) for _, plan in steps]
        weights = _fit(rows, measured)
        predicted = [sum(w * x for w, x in zip(weights, row)) for row in rows]
        errors = tuple(p / m - 1 for p, m in zip(predicted, measured))
        return Calibrated(parts, weights[0], weights[1], factor, dict(zip(PARTS, weights[2:])), errors)


def _steps(
    model: Transformer, clock: Callable[[], float], batch: int, tokens: int, decodes: int
) -> Iterator[tuple[Plan, float]]:
    """Steps of a batch of prompts that come at once, with the seconds that each took."""
    places = batch * (tokens + decodes + 32)
    cache_bytes = places * kv_bytes_per_token(model.config, model.dtype.itemsize)
    engine = Engine(model, cache_bytes=cache_bytes, clock=clock, max_running=batch, token_budget=512)
    rng = Random(batch * tokens)
    for _ in range(batch):
        ids = [rng.randrange(_ordinary(model.config)) for _ in range(tokens)]
        engine.add(ids, max_new_tokens=decodes + 1, ignore_eos=True)
    while not engine.idle:
        engine.step()
        step: Stepped = engine.trace.of(Stepped)[-1]
        yield engine.last_plan, step.time - step.start


def _ordinary(config: ModelConfig) -> int:
    return min(config.V, 40_000)


def _features(parts: Callable[[Plan], dict[str, float]], plan: Plan) -> list[float]:
    limits = parts(plan)
    return [1.0, len(plan.work), *(limits[name] for name in PARTS)]


def _fit(rows: list[list[float]], seconds: list[float]) -> list[float]:
    """Least squares of relative errors; what would be negative is left out."""
    if len(rows) < 2 + len(PARTS):
        raise KveduError(f"{len(rows)} kinds of steps do not settle {2 + len(PARTS)} coefficients; run a round, or more shapes")
    x_NF = torch.tensor(rows, dtype=torch.float64) / torch.tensor(seconds, dtype=torch.float64)[:, None]
    scale_F = x_NF.abs().amax(0)
    kept = list(range(x_NF.shape[1]))
    while True:
        x = (x_NF / scale_F)[:, kept]
        found = torch.linalg.lstsq(x, torch.ones(len(x), 1, dtype=torch.float64)).solution[:, 0]
        if found.min() >= 0:
            break
        del kept[int(found.argmin())]
    weights = [0.0] * x_NF.shape[1]
    for i, value in zip(kept, found.tolist()):
        weights[i] = value / float(scale_F[i])
    return weights
