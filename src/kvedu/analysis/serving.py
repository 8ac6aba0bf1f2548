"""A server in closed form: what a mean step costs, how many run, and how much load is too much.

Everybody who runs is in every step and gets one token from it. So a step's time is the time per
token of each, and with Little's law (Little 1961) it gives the rest. The step is the roofline's, of
the mean step of a long run: prompts are spread evenly over all steps, as chunked prefill tries to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvedu.analysis.flops import decode_cost, prefill_cost
from kvedu.analysis.roofline import Hardware, dtype_bytes, time_bound
from kvedu.config import ModelConfig
from kvedu.errors import KveduError


@dataclass(frozen=True)
class Server:
    """A machine and a kind of request, as three times in seconds and a count.

    A step with B running sequences takes max(``weights``, B ``compute``) + B ``cache``. Each request
    takes ``steps`` of them, one per output token (its prompt's last step gives the first).
    Raises ``KveduError`` for times that are not positive (``cache`` may be 0) or no step.

    >>> server = Server(weights=8e-3, compute=80e-6, cache=20e-6, steps=100)
    >>> [round(1e3 * server.step(B), 3) for B in (1, 100, 200)]    # milliseconds
    [8.02, 10.0, 20.0]
    >>> round(server.knee), round(server.saturation, 1)    # sequences; requests a second
    (80, 100.0)
    """

    weights: float
    """Seconds to read the weights, once a step."""
    compute: float
    """Seconds of matrix products per running sequence and step, its share of prompts included."""
    cache: float
    """Seconds to read one sequence's keys and values, and its share of prompts' attention."""
    steps: int

    def __post_init__(self) -> None:
        if not (self.weights > 0 and self.compute > 0 and self.cache >= 0 and self.steps >= 1):
            raise KveduError(f"a server needs positive times and at least 1 step per request; got {self}")

    def step(self, running: float) -> float:
        """Seconds of a step, which is the time per token (TPOT) of everybody in it."""
        return max(self.weights, running * self.compute) + running * self.cache

    def throughput(self, running: float) -> float:
        """Requests a second when always ``running`` are there: a closed load of so many clients."""
        return running / (self.steps * self.step(running))

    @property
    def saturation(self) -> float:
        """Requests a second that no batch exceeds: the limit of ``throughput``."""
        return 1 / (self.steps * (self.compute + self.cache))

    @property
    def knee(self) -> float:
        """Running sequences where the two asymptotes of throughput meet: ``saturation`` over that of one alone.

        Below, a larger batch is nearly free throughput; above, nearly all of it is paid for in time per token.
        """
        return self.saturation / self.throughput(1)

    @property
    def compute_bound_from(self) -> float:
        """Running sequences from which the matrix products take longer than reading the weights."""
        return self.weights / self.compute

    def running_at(self, rate: float) -> float:
        """Mean number of running sequences when ``rate`` requests a second come, by Little's law.

        It solves B = rate x steps x step(B). Infinite from ``saturation`` on: the line then grows for ever.
        """
        if rate < 0:
            raise KveduError(f"a rate of arrivals is not negative: {rate}")
        if rate >= self.saturation:
            return math.inf
        return rate * self.steps * self.weights / (1 - rate * self.steps * self.cache)


def server(config: ModelConfig, hw: Hardware, prompt: int, output: int, dtype: str = "bf16") -> Server:
    """The ``Server`` of a model on a machine by its limits, for requests of mean ``prompt`` and ``output`` tokens.

    The cache is read at the mean context, prompt + output / 2. Lengths that vary make the mean context of a
    running token longer than that, since long outputs run longest. Datasheets are upper limits, so real steps are slower.

    >>> from kvedu.analysis.hardware import hardware
    >>> from kvedu.analysis.known_models import known_model
    >>> chat = server(known_model("Llama-3-8B").config, hardware("A100-80GB-SXM"), prompt=500, output=150)
    >>> round(chat.saturation), round(chat.knee)
    (28, 31)
    """
    if prompt < 1 or output < 1:
        raise KveduError(f"a request has at least 1 prompt token and 1 output token; got {prompt} and {output}")
    size = dtype_bytes(dtype)
    one = decode_cost(config, prompt + output // 2, 1, size)
    whole = prefill_cost(config, prompt, 0, 1, size)
    products = ("projections", "mlp", "head")
    flops = sum(one[part].flops + whole[part].flops / output for part in products)
    return Server(
        weights=sum(one[part].bytes for part in products) / hw.bandwidth,
        compute=flops / hw.peak(dtype),
        cache=time_bound(one["attention"], hw, dtype) + time_bound(whole["attention"], hw, dtype) / output,
        steps=output,
    )
