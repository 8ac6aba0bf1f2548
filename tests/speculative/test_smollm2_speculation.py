"""The real model: code, prose, and a text to be copied; speculation gives plain greedy's tokens in fewer passes."""

import pytest
import torch

import kvedu
from kvedu import DraftModel, NGram, PagedCache, generate, speculate
from kvedu.speculative.draft_tree import DraftTree
from kvedu.speculative.first_layers import first_layers
from kvedu.speculative.lookahead import Lookahead
from kvedu.texts import read

NEW = 16


@pytest.fixture(scope="module")
def model():
    return kvedu.load(dtype=torch.float32)


@pytest.fixture(scope="module")
def prompts(model):
    code, prose = (model.tokenizer.encode(read(name))[:48] for name in ("code", "prose"))
    copied = model.tokenizer.encode(read("json_logs"))[:40]
    return [code, prose, [*copied, *copied, *copied[:10]]]


@pytest.fixture(scope="module")
def plain(model, prompts):
    return [done.token_ids for done in generate(model, prompts, max_new_tokens=NEW, ignore_eos=True)]


MAKERS = {
    "n-gram": lambda model: NGram(6),
    "itself": lambda model: DraftModel(model, 3),
    "first layers": lambda model: DraftModel(first_layers(model, 24), 2),
    "tree of first layers": lambda model: DraftTree(first_layers(model, 24), (3, 1)),
    "lookahead": lambda model: Lookahead(4, 3, 3),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_text_is_plain_greedys(name, model, prompts, plain):
    """Must hold 1 of speculation on the real model in fp32, in a mixed batch over pages."""
    cache = PagedCache(model.config, n_pages=48, page_size=16)
    done = speculate(model, prompts, MAKERS[name](model), max_new_tokens=NEW, ignore_eos=True, cache=cache)
    assert [one.completion.token_ids for one in done] == plain
    if name == "itself":
        assert all(r.accepted == r.depth for one in done for r in one.rounds)
    if name == "n-gram":  # a text that is being copied is what lookup is for
        assert done[2].tokens_per_round >= 3
