"""Rounds of speculation on the real model: a log by prompt lookup, code by a trained head, a story by a draft under sampling, a tree of guesses."""

from typing import Any

import torch

import kvedu
from kvedu import texts
from kvedu.model.sampling import Sampling
from kvedu.speculative import shipped
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.draft_tree import DraftTree
from kvedu.speculative.first_layers import first_layers
from kvedu.speculative.ngram import NGram
from kvedu.viz import speculation

LAYERS, TOKENS = 24, 16


def run() -> dict[str, Any]:
    """The figure's data."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
    log, code, story = (model.tokenizer.encode(texts.read(name)) for name in ("json_logs", "code", "story"))
    draft = first_layers(model, LAYERS)
    own = f"the target's own first {LAYERS} layers"
    runs = [
        speculation.record(model, log[:150], NGram(4), name="a log, by lookup", draft="prompt lookup", tokens=TOKENS),
        speculation.record(model, code[400:520], shipped.eagle(model), name="code, by EAGLE", draft="an EAGLE head", tokens=TOKENS),
        speculation.record(
            model, story[:120], DraftModel(draft, 4), name="a story, drawn", draft=own, tokens=TOKENS,
            sampling=Sampling(temperature=0.8, top_p=0.95, seed=6),
        ),
        speculation.record(model, story[:120], DraftTree(draft, (3, 2, 1)), name="a story, as a tree", draft=own, tokens=TOKENS),
    ]  # fmt: skip
    rounds = runs[0]["rounds"]
    tokens, passes = sum(len(r["kept"]) + 1 for r in rounds), len(rounds)
    choices = sorted({passes, tokens, 2 * tokens})
    return speculation.data(
        runs,
        title="Rounds of speculative decoding",
        predict={
            "question": f"A log, prompt lookup, at most four guesses a round. How many passes of the target does it take for {tokens} tokens?",
            "choices": [f"{n} passes" for n in choices],
            "answer": choices.index(passes),
            "because": f"Plain decoding takes {tokens}. Play the rounds: where does a guess fail, and what does the target put there?",
        },
    )  # fmt: skip
