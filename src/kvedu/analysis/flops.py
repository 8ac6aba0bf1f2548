"""FLOPs and bytes of one step, and of a whole generation, with and without a cache.

Conventions, everywhere in this room:

- A multiply and an add are 2 FLOPs, so a matrix of p parameters costs 2 p per token.
- Causal attention is counted exactly: a query that sees n keys costs 4 H D n (scores and the
  weighted sum of values), or 2 H (D + Dv) n where values are not as wide as keys.
  ``causal=False`` counts the full T x (S + T) rectangle, which is what
  a kernel does that computes masked scores and throws them away.
- Weights are read once per step, whatever the batch: that is why batching pays.
- Keys and values are read once per step and sequence (one new token or many), new ones written once.
- Not counted: norms, RoPE, softmax, activation functions (below 1 % of the FLOPs of any model here)
  and activations moving through memory (small beside weights when T is small; when T is large
  the step is bound by compute anyway).

A step is split in four parts, each a ``Cost``: ``projections`` (q, k, v, o), ``attention`` (scores and
values, the KV cache's traffic), ``mlp`` and ``head`` (embedding rows and logits). ``total`` adds them.
"""

from __future__ import annotations

from kvedu.analysis.shape import shape_of
from kvedu.analysis.weights import matrix_parameters
from kvedu.config import ModelConfig
from kvedu.errors import KveduError
from kvedu.units import Cost

PARTS = ("projections", "attention", "mlp", "head")


def total(parts: dict[str, Cost]) -> Cost:
    """All parts as one ``Cost``."""
    return sum(parts.values())  # type: ignore[return-value]


def prefill_cost(
    config: ModelConfig,
    tokens: int,
    cached: int = 0,
    batch: int = 1,
    bytes_per_element: int = 2,
    kv_bytes_per_element: int | None = None,
    *,
    causal: bool = True,
    all_logits: bool = False,
) -> dict[str, Cost]:
    """One step of ``tokens`` (T) new tokens per sequence after ``cached`` (S) earlier ones.

    Logits are counted for the last token of each sequence, or for all. ``kv_bytes_per_element``
    defaults to the weights' own. Raises ``KveduError`` for counts that no step has.

    >>> from kvedu.analysis.known_models import known_model
    >>> parts = prefill_cost(known_model("Llama-3-8B").config, tokens=1024)
    >>> f"{total(parts).flops / 1024 / 1e9:.1f} GFLOP per token"
    '14.2 GFLOP per token'
    """
    if tokens < 1 or batch < 1 or cached < 0:
        raise KveduError(
            f"a step has at least 1 new token and 1 sequence, and no negative past; got tokens={tokens}, "
            f"batch={batch}, cached={cached}"
        )
    size = bytes_per_element
    kv_size = size if kv_bytes_per_element is None else kv_bytes_per_element
    N = batch * tokens
    weights = matrix_parameters(config)
    pairs = keys_read = 0
    for layers, window in _window_groups(config):
        pairs += layers * (_causal_pairs(tokens, cached, window) if causal else tokens * (cached + tokens))
        keys_read += layers * (cached + tokens if window is None else min(cached + tokens, tokens + window - 1))
    logits = N if all_logits else batch
    kv_token = shape_of(config).elements * kv_size
    return {
        "projections": Cost(2 * N * weights["projections"], size * weights["projections"]),
        "attention": Cost(
            2 * batch * config.H * (config.D + config.Dv) * pairs,
            batch * keys_read * kv_token,
            N * len(config.kv_layers) * kv_token,
        ),
        "mlp": Cost(2 * N * weights["mlp"], size * weights["mlp"]),
        "head": Cost(2 * logits * weights["head"], size * (weights["head"] + N * config.M)),
    }


def decode_cost(
    config: ModelConfig,
    context: int,
    batch: int = 1,
    bytes_per_element: int = 2,
    kv_bytes_per_element: int | None = None,
) -> dict[str, Cost]:
    """One decode step: one new token for each of ``batch`` sequences with ``context`` tokens cached.

    It is a prefill of one token; the new token sees context + 1 keys, itself included.

    >>> from kvedu.analysis.known_models import known_model
    >>> step = total(decode_cost(known_model("Llama-3-8B").config, context=4096))
    >>> f"{step.read / 1e9:.1f} GB read, {step.intensity:.1f} FLOPs per byte"
    '15.5 GB read, 1.1 FLOPs per byte'
    """
    return prefill_cost(config, 1, context, batch, bytes_per_element, kv_bytes_per_element)


def uncached_step_cost(
    config: ModelConfig, length: int, batch: int = 1, bytes_per_element: int = 2, *, causal: bool = True
) -> dict[str, Cost]:
    """One step without a cache: all ``length`` tokens run again to get one more.

    The same work as a prefill, except that keys and values are activations: none is kept, so
    their traffic is not counted.
    """
    parts = prefill_cost(config, length, 0, batch, bytes_per_element, causal=causal)
    return parts | {"attention": Cost(parts["attention"].flops)}


def generation_cost(
    config: ModelConfig,
    prompt: int,
    new: int,
    cached: bool = True,
    batch: int = 1,
    bytes_per_element: int = 2,
    *,
    causal: bool = True,
) -> dict[str, Cost]:
    """All steps that turn a prompt into ``new`` more tokens, added up exactly.

    The last token is sampled but never run. With a cache: one prefill, then new - 1 decode steps.
    Without: new full passes over prompt, prompt + 1, ... tokens. Cost: O(new).

    >>> from kvedu.analysis.known_models import known_model
    >>> config = known_model("SmolLM2-135M").config
    >>> without, with_cache = (total(generation_cost(config, 100, 1000, c)).flops for c in (False, True))
    >>> f"{without / with_cache:.0f} times the FLOPs"
    '430 times the FLOPs'
    """
    if new < 1:
        raise KveduError(f"a generation makes at least 1 new token, not {new}")
    if cached:
        steps = [prefill_cost(config, prompt, 0, batch, bytes_per_element, causal=causal)]
        steps += [decode_cost(config, prompt + i, batch, bytes_per_element) for i in range(new - 1)]
    else:
        steps = [uncached_step_cost(config, prompt + i, batch, bytes_per_element, causal=causal) for i in range(new)]
    return {part: sum(step[part] for step in steps) for part in PARTS}  # type: ignore[misc]


def kv_projection_flops(config: ModelConfig, prompt: int, new: int, cached: bool) -> int:
    """FLOPs of computing keys and values during a whole generation (claim A1.1).

    With a cache each of the prompt + new - 1 tokens that are run is projected once: O(n). Without,
    step i projects prompt + i tokens again: O(n^2). Attention's scores are quadratic either way.

    >>> from kvedu.analysis.known_models import known_model
    >>> config = known_model("SmolLM2-135M").config
    >>> kv_projection_flops(config, 1, 1000, False) // kv_projection_flops(config, 1, 1000, True)
    500
    """
    if prompt < 1 or new < 1:
        raise KveduError(f"a generation has at least 1 prompt token and 1 new one; got {prompt} and {new}")
    if config.latent is not None:
        raise KveduError("keys and values of a latent are not projected from the token alone; count parts with prefill_cost")
    projected = prompt + new - 1 if cached else new * prompt + new * (new - 1) // 2
    return 2 * len(config.kv_layers) * config.M * 2 * config.K * config.D * projected


def _window_groups(config: ModelConfig) -> tuple[tuple[int, int | None], ...]:
    windows = [config.window(layer) for layer in range(config.L)]
    return tuple((windows.count(window), window) for window in dict.fromkeys(windows))


def _causal_pairs(tokens: int, cached: int, window: int | None) -> int:
    """Query-key pairs: new token t (from 0) sees min(cached + t + 1, window) keys."""
    if window is None or window >= cached + tokens:
        return tokens * cached + tokens * (tokens + 1) // 2
    growing = max(0, min(tokens, window - cached))  # queries that still see everything
    return growing * cached + growing * (growing + 1) // 2 + (tokens - growing) * window
