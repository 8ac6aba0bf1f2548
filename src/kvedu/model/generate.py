"""Complete prompts, one or many: the front of ``generation``."""

from __future__ import annotations

from typing import Iterator, Sequence

from kvedu.caches.contract import Cache
from kvedu.errors import RequestError
from kvedu.model.completion import Completion, Delta
from kvedu.model.generation import Generation
from kvedu.model.request import Prompt, Request, is_batch, make_request
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer


def stream(
    model: Transformer,
    prompts: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = 128,
    sampling: Sampling | Sequence[Sampling] = Sampling(),
    n: int = 1,
    stop: str | Sequence[str] = (),
    ignore_eos: bool = False,
    prompt_logprobs: int | None = None,
    cache: Cache | None = None,
    seqs: Sequence[int] | None = None,
    keep: bool = False,
) -> Iterator[Delta]:
    """Generate and yield ``Delta`` by ``Delta``; joined texts equal ``generate``'s. Arguments as there."""
    requests = _requests(model, prompts, max_new_tokens, sampling, n, stop, ignore_eos, prompt_logprobs)
    yield from Generation(model, requests, cache, seqs, keep).stream()


def generate(
    model: Transformer,
    prompts: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = 128,
    sampling: Sampling | Sequence[Sampling] = Sampling(),
    n: int = 1,
    stop: str | Sequence[str] = (),
    ignore_eos: bool = False,
    prompt_logprobs: int | None = None,
    cache: Cache | None = None,
    seqs: Sequence[int] | None = None,
    keep: bool = False,
) -> Completion | list[Completion] | list[list[Completion]]:
    """Complete one prompt, or a list of prompts together in ragged steps.

    A prompt is text, token ids or chat messages. ``sampling`` is one setting for all or one for
    each. Returns a ``Completion``, a list of them for a list of prompts, and a list of ``n`` in the
    place of each where n > 1.

    ``cache``: None makes a ``StaticCache`` of the right size; ``NoCache(config)`` runs the loop
    without a cache; any other cache is used and left as it was found. With ``keep`` finished
    sequences stay open in it (``Completion.seq``); ``seqs`` continues such sequences: each prompt is
    then the whole token history, of which only what the cache has not seen is computed.

    Ends at any of the model's EOS ids (unless ``ignore_eos``), before a ``stop`` string, or at
    ``max_new_tokens``. ``prompt_logprobs`` scores the prompt too (entry 0 is None: nothing precedes
    it); with ``max_new_tokens=0`` nothing else is done.

    Raises ``RequestError`` or ``CacheFull`` before any work is done.
    """
    requests = _requests(model, prompts, max_new_tokens, sampling, n, stop, ignore_eos, prompt_logprobs)
    generation = Generation(model, requests, cache, seqs, keep)
    for _ in generation.stream():
        pass
    done = generation.completions
    results = [done[i, 0] if n == 1 else [done[i, copy] for copy in range(n)] for i in range(len(requests))]
    return results if is_batch(prompts) else results[0]


def _requests(
    model: Transformer,
    prompts: Prompt | Sequence[Prompt],
    max_new_tokens: int,
    sampling: Sampling | Sequence[Sampling],
    n: int,
    stop: str | Sequence[str],
    ignore_eos: bool,
    prompt_logprobs: int | None,
) -> list[Request]:
    """Check every prompt before any is run. Raises ``RequestError`` for the first that cannot be served."""
    listed = list(prompts) if is_batch(prompts) else [prompts]
    samplings = [sampling] * len(listed) if isinstance(sampling, Sampling) else list(sampling)
    if len(samplings) != len(listed):
        raise RequestError(f"{len(samplings)} sampling settings for {len(listed)} prompts: give one, or one each")
    settings = {
        "n": n,
        "stop": (stop,) if isinstance(stop, str) else tuple(stop),
        "eos_ids": () if ignore_eos else model.config.eos_ids,
        "prompt_logprobs": prompt_logprobs,
    }
    return [
        make_request(prompt, model.config, model.tokenizer, max_new_tokens, sampling=one, **settings)
        for prompt, one in zip(listed, samplings)
    ]
