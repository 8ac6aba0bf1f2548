"""Lookahead: the window is what the target says of its own guesses, and the pool is what the window wrote."""

import pytest
import torch

from kvedu import ConcatCache, PagedCache, generate
from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling
from kvedu.speculative.draws import Draws
from kvedu.speculative.lookahead import Lookahead, trie
from kvedu.speculative.proposer import Ask
from kvedu.speculative.speculate import speculate
from scripted import Scripted
from tiny import random_ids, tiny_config, tiny_model


def ask(ids, limit=99):
    return Ask(0, ids, limit, Sampling(), Draws(Sampling(seed=0)))


def logits_saying(tree, answers, V=10):
    """Rows after the text and after each node; a node's most likely token is looked up by its path of tokens."""
    rows = torch.zeros(1 + len(tree), V)
    for node in range(len(tree)):
        rows[node + 1, answers.get(tuple(tree.tokens[i] for i in tree.path(node)), 0)] = 1
    return rows


def test_a_window_by_hand():
    """Two columns, n = 3: two rounds fill the levels, the third writes n-grams, the fourth guesses one of them."""
    proposer = Lookahead(width=2, n=3, guesses=1)
    (tree,) = proposer.propose([ask([7, 5])])
    assert tree.tokens == (5, 7) and tree.parents == (-1, 0)  # the text's end again, backwards
    proposer.observe(0, tree, logits_saying(tree, {(5,): 1, (5, 7): 2}))
    (tree,) = proposer.propose([ask([7, 5, 9])])
    assert tree.tokens == (5, 1, 7, 2) and tree.parents == (-1, 0, 0, 2)  # 5-1 and 5-7-2
    proposer.observe(0, tree, logits_saying(tree, {(5, 1): 3, (5, 7, 2): 4}))
    assert proposer._texts[0].pool == {5: {(1, 3): None}, 7: {(2, 4): None}}
    (tree,) = proposer.propose([ask([7, 5, 9, 7])])  # the last token is 7: its n-gram comes first, then 1-3 and 1-2-4
    assert tree.tokens == (2, 4, 1, 3, 2, 4) and tree.parents == (-1, 0, -1, 2, 2, 4)
    (short,) = proposer.propose([ask([7, 5, 9, 7], limit=1)])
    assert short.tokens == (2, 1)
    proposer.observe(0, short, logits_saying(short, {}))  # cut: nothing can be read, the window stays
    assert proposer._texts[0].levels == [[1, 2], [3, 4]]
    proposer.release(0)
    assert proposer._texts == {}


def test_the_window_is_what_the_target_says():
    """Each new level is the argmax of the model run over text and column alone, whatever else is in the tree."""
    model, checked = tiny_model(tiny_config(), scale=0.12), []

    class Watched(Lookahead):
        def propose(self, asks):
            self.ids = list(asks[0].ids)
            return super().propose(asks)

        def observe(self, key, tree, logits_TV):
            columns = self._texts[key].columns()
            super().observe(key, tree, logits_TV)
            for column, token in zip(columns, self._texts[key].levels[-1]):
                cache, ids = ConcatCache(model.config), [*self.ids, *column]
                with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
                    logits_1V = model(torch.tensor(ids), view, view.last_rows)
                if len(tree) and max(map(len, columns)) <= tree.depth:
                    checked.append(token == int(logits_1V.argmax()))

    cache = PagedCache(model.config, n_pages=40, page_size=4)
    speculate(model, random_ids(6), Watched(3, 3, 2), max_new_tokens=20, cache=cache)
    assert len(checked) > 20 and all(checked)


def test_the_pool_is_bounded_and_keeps_the_latest():
    """Five n-grams that begin with one token: two are kept, one that came again counts as new."""
    proposer = Lookahead(width=1, n=2, guesses=2)
    proposer.propose([ask([7])])
    for last in (1, 2, 1, 3, 1):
        proposer._texts[0].levels = [[7]]
        (tree,) = proposer.propose([ask([7])])
        answers = torch.zeros(1 + len(tree), 10)
        answers[:, last] = 1
        proposer.observe(0, tree, answers)
    assert list(proposer._texts[0].pool[7]) == [(3,), (1,)]


def test_a_future_that_depends_on_position_is_found():
    """A model that heeds only positions: once the levels are full, every column is right, so whole blocks are kept."""
    script = {position: 10 + position for position in range(80)}
    done = speculate(Scripted(script), [1, 2, 3], Lookahead(width=4, n=3, guesses=2), max_new_tokens=60)
    assert done.completion.token_ids == tuple(12 + i for i in range(60))
    assert len(done.rounds) < 30 and max(r.accepted for r in done.rounds) >= 3


def test_it_saves_passes_on_a_real_loop():
    """Tiny model in a loop: fewer rounds than tokens, the text unchanged; without guesses the window alone does less."""
    model = tiny_model(tiny_config(V=17), scale=0.12)
    prompt = random_ids(6, V=17)
    plain = generate(model, prompt, max_new_tokens=80)
    runs = [speculate(model, prompt, Lookahead(4, 3, guesses), max_new_tokens=80) for guesses in (0, 4)]
    assert all(run.completion.token_ids == plain.token_ids for run in runs)
    assert runs[1].tokens_per_round > max(1.1, runs[0].tokens_per_round)


def test_trie_shares_beginnings():
    tree = trie([[1, 2, 3], [1, 4], [1, 2], [5]], limit=2)
    assert tree.tokens == (1, 2, 4, 5) and tree.parents == (-1, 0, 0, -1)


@pytest.mark.parametrize("settings", [dict(width=0), dict(n=1), dict(guesses=-1)])
def test_settings_out_of_range(settings):
    with pytest.raises(RequestError, match="a window has 1 column or more"):
        Lookahead(**settings)
