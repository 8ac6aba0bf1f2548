"""Complete prompts speculatively: the front of ``speculation``."""

from __future__ import annotations

from typing import Sequence

from kvedu.caches.contract import Cache
from kvedu.errors import RequestError
from kvedu.model.request import Prompt, is_batch, make_request
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.rounds import Speculated
from kvedu.speculative.speculation import Speculation
from kvedu.speculative.verify import Rule, exact


def speculate(
    model: Transformer,
    prompts: Prompt | Sequence[Prompt],
    proposer: Proposer,
    *,
    max_new_tokens: int = 128,
    sampling: Sampling | Sequence[Sampling] = Sampling(),
    stop: str | Sequence[str] = (),
    ignore_eos: bool = False,
    cache: Cache | None = None,
    seqs: Sequence[int] | None = None,
    keep: bool = False,
    rule: Rule = exact,
) -> Speculated | list[Speculated]:
    """``generate`` with guesses: the same text (greedy) or the same distribution, in fewer passes of the model.

    Arguments as in ``generate``; ``rule`` decides what is kept. Under ``exact`` greedy tokens equal plain
    greedy's wherever a pass over T tokens rounds as T passes over one do (fp32 and no near tie).
    Returns a ``Speculated``, or a list of them for a list of prompts.

    Raises ``RequestError`` or ``CacheFull`` before any work is done.
    """
    listed = list(prompts) if is_batch(prompts) else [prompts]
    samplings = [sampling] * len(listed) if isinstance(sampling, Sampling) else list(sampling)
    if len(samplings) != len(listed):
        raise RequestError(f"{len(samplings)} sampling settings for {len(listed)} prompts: give one, or one each")
    settings = {
        "stop": (stop,) if isinstance(stop, str) else tuple(stop),
        "eos_ids": () if ignore_eos else model.config.eos_ids,
    }
    requests = [
        make_request(prompt, model.config, model.tokenizer, max_new_tokens, sampling=one, **settings)
        for prompt, one in zip(listed, samplings)
    ]
    run = Speculation(model, requests, proposer, cache, seqs, keep, rule)
    for _ in run.stream():
        pass
    results = [Speculated(run.completions[i, 0], tuple(run.rounds[i, 0])) for i in range(len(requests))]
    return results if is_batch(prompts) else results[0]
