"""Lives of an engine drawn at random, and the judge of their outputs: what each prompt gives alone."""

import random

import torch

from engines import assert_accounts
from kvedu.caches.concat import ConcatCache
from kvedu.model.generate import generate
from kvedu.model.sampling import Sampler, Sampling, distribution, penalized
from tiny import random_ids


def settings(seed):
    """Kinds of settings: all that a token may be chosen by, and what may be reported of it.

    A filter that keeps several ranks them, and two whose probabilities differ by a rounding change places with the batch
    that they are computed in; so what is kept here is all, or one. ``test_draw_rows`` has the filters.
    """
    return [
        Sampling(),
        Sampling(temperature=1.0, seed=seed),
        Sampling(temperature=1.5, top_k=1 + 200 * (seed % 2), top_p=0.01 ** (1 - seed % 2), seed=seed),
        Sampling(temperature=0.7, repetition_penalty=1.3, seed=seed, logprobs=2, tempered_logprobs=True),
        Sampling(repetition_penalty=0.8, logprobs=0),
    ]


def live(seed, model, engine, max_requests=10, turns=60):
    """Random requests, aborts and steps; the requests with their settings, and which were aborted."""
    rng = random.Random(seed)
    stems, asked, aborted = [random_ids(5, seed=i) for i in range(2)], {}, set()
    for _ in range(turns):
        action = rng.random()
        if action < 0.25 and len(asked) < max_requests:
            prompt = rng.choice(stems)[: rng.randint(1, 5)] + random_ids(rng.randint(1, 4), seed=rng.randint(0, 3))
            wants = dict(
                max_new_tokens=rng.randint(1, 8),
                n=rng.choice([1, 1, 1, 2, 3]),
                sampling=rng.choice(settings(rng.randint(0, 9))),
            )
            asked[engine.add(prompt, priority=rng.randint(0, 2), **wants)] = (prompt, wants)
        elif action < 0.3 and asked:
            number = rng.choice(list(asked))
            if not engine.done(number):
                aborted.add(number)
            engine.abort(number)
        else:
            engine.step()
        assert_accounts(engine)
    return asked, aborted


def judge(model, engine, asked, aborted):
    """Every text is what its prompt gives alone, up to a token for which a rounding decides: the batch may round otherwise."""
    for number, (prompt, wants) in asked.items():
        wanted = generate(model, [prompt], **wants)[0]
        for copy, (got, alone) in enumerate(zip(engine.results(number), [wanted] if wants["n"] == 1 else wanted)):
            if tied(model, prompt, wants["sampling"], copy, got.token_ids, alone.token_ids):
                continue
            if number in aborted:
                assert got.token_ids == alone.token_ids[: len(got.token_ids)]
            else:
                assert (got.token_ids, got.finish_reason) == (alone.token_ids, alone.finish_reason)
                for a, b in zip(got.logprobs or (), alone.logprobs or (), strict=True):
                    assert a.token_id == b.token_id and abs(a.logprob - b.logprob) < 1e-3
        assert number in aborted or len(engine.results(number)) == wants["n"]


def tied(model, prompt, sampling, copy, got, alone, near=2e-6):
    """Whether two texts part at a token whose draw fell on the border of both, or, greedy, at logits that are as good as equal."""
    place = next((i for i, (a, b) in enumerate(zip(got, alone)) if a != b), None)
    if place is None:
        return False
    low, high = sorted((got[place], alone[place]))
    ids, cache = [*prompt, *alone[:place]], ConcatCache(model.config, dtype=model.dtype, device=model.device)
    with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
        logits_V = model(torch.tensor(ids, device=model.device), view, view.last_rows)[0].cpu()
    if sampling.greedy:
        scores_V = penalized(logits_V, sampling, ids)
        return bool((scores_V[low] - scores_V[high]).abs() < near)
    sampler = Sampler(sampling, copy)
    drawn = [sampler.uniform() for _ in range(place + 1)][-1]
    border_V = distribution(logits_V, sampling, ids).cumsum(-1)
    return bool(border_V[low] - near < drawn < border_V[high - 1] + near and border_V[high - 1] - border_V[low] < near)
