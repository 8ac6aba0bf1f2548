"""Data of the speculation player: rounds of a real run, with every guess, both its probabilities and its fate.

A run is ``{"name", "draft", "greedy", "rounds"}``; a round is ``{"before", "last", "tokens", "parents", "q", "p", "chance", "judged",
"kept", "token", "cache"}``. ``q`` is null for guesses that were chosen; ``p`` is the target's probability of the guess; ``chance`` that with
which it was to be kept (null where nobody looked); ``judged`` and ``kept`` are nodes; ``cache`` is its length before and after the round.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from kvedu.caches.concat import ConcatCache
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer
from kvedu.speculative.draws import Draws
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.speculate import speculate
from kvedu.speculative.tree import TokenTree
from kvedu.speculative.verify import Target, Verdict, exact

TAIL = 90
"""Characters of the text that are kept of what stands before a round."""


class _Heard(Draws):
    """Draws that remember the chances they were asked for."""

    def __init__(self, draws: Draws) -> None:
        self._generator = draws._generator
        self.chances: list[float] = []

    def happens(self, probability: float) -> bool:
        self.chances.append(min(1.0, probability))
        return super().happens(probability)


class _Recorder:
    """The exact rule, and a note of each round."""

    def __init__(self, text_of: Callable[[list[int]], str]) -> None:
        self.text_of = text_of
        self.rounds: list[dict[str, Any]] = []

    def __call__(self, tree: TokenTree, target: Target, draws: Draws) -> Verdict:
        heard = _Heard(draws)
        verdict = exact(tree, target, heard)
        judged = _judged(tree, verdict)
        greedy = target.sampling.greedy
        plain = torch.softmax(target.logits_TV.double(), dim=-1)
        p = [plain[parent + 1] if greedy else target.p(parent) for parent in tree.parents]
        chances = [float(node in verdict.path) for node in judged] if greedy else heard.chances
        chance = dict(zip(judged, chances, strict=True))
        text_of = self.text_of
        self.rounds.append({
            "before": text_of(list(target.ids))[-TAIL:], "last": text_of([target.ids[-1]]),
            "tokens": [text_of([token]) for token in tree.tokens], "parents": list(tree.parents),
            "q": [round(float(tree.q[parent][token]), 4) if parent in tree.q else None for token, parent in zip(tree.tokens, tree.parents)],
            "p": [round(float(p_V[token]), 4) for token, p_V in zip(tree.tokens, p)],
            "chance": [round(chance[i], 4) if i in chance else None for i in range(len(tree))],
            "judged": judged, "kept": list(verdict.path), "token": text_of([verdict.token]), "cache": [len(target.ids) - 1],
        })  # fmt: skip
        return verdict


def _judged(tree: TokenTree, verdict: Verdict) -> list[int]:
    """Nodes that were looked at, in order: along the kept path each child up to the one that was kept."""
    found: list[int] = []
    for node, kept in zip((-1, *verdict.path), (*verdict.path, None)):
        for child in tree.children.get(node, []):
            found.append(child)
            if child == kept:
                break
    return found


def record(
    model: Transformer, prompt: Sequence[int], proposer: Proposer, *, name: str, draft: str, tokens: int,
    sampling: Sampling = Sampling(), text_of: Callable[[list[int]], str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One run of the real loop, as a run of the figure. ``draft`` names the proposer in a sentence: "prompt lookup".

    ``text_of`` gives the text of token ids; None: the model's tokenizer.

    The last round is left out where the text ended within it: then not all that it kept is in the text.
    """
    cache = ConcatCache(model.config, dtype=model.dtype, device=model.device)
    recorder = _Recorder(text_of or model.tokenizer.decode)
    done = speculate(model, list(prompt), proposer, max_new_tokens=tokens, sampling=sampling, ignore_eos=True, cache=cache, keep=True, rule=recorder)
    rounds = recorder.rounds[1:]  # the first is the prompt's: no guesses
    for noted, counted in zip(rounds, done.rounds, strict=True):
        noted["cache"].append(noted["cache"][0] + 1 + len(noted["kept"]))
        assert counted.accepted == len(noted["kept"]) and counted.guessed == len(noted["tokens"])
    whole = [noted for noted, counted in zip(rounds, done.rounds) if counted.emitted == counted.accepted + 1]
    assert cache.length(done.completion.seq) == len(prompt) + tokens - 1
    return {"name": name, "draft": draft, "greedy": sampling.greedy, "rounds": whole}


def data(runs: Sequence[dict[str, Any]], *, title: str, predict: dict[str, Any] | None = None, **start: Any) -> dict[str, Any]:
    """The figure's data; ``start`` may set the controls ``run`` and ``step``."""
    given = {"figure": "speculation", "title": title, "runs": list(runs), "start": start}
    return given | ({"predict": predict} if predict else {})
