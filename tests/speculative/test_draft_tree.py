"""Trees: what is drafted, that siblings see nothing of each other, and that the kept path is all that stays."""

import pytest
import torch

from every_draw import distance, every_outcome
from kvedu import ConcatCache, PagedCache, StaticCache, generate
from kvedu.errors import RequestError
from kvedu.model.request import make_request
from kvedu.model.sampling import Sampling, distribution
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.draft_tree import DraftTree, siblings
from kvedu.speculative.draws import Draws
from kvedu.speculative.proposer import Ask
from kvedu.speculative.speculate import speculate
from kvedu.speculative.speculation import Speculation
from tiny import random_ids, tiny_config, tiny_model


def ask(ids, sampling, key=0, limit=9):
    return Ask(key, ids, limit, sampling, Draws(sampling))


def logits_after(model, ids):
    cache = ConcatCache(model.config)
    with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
        return model(torch.tensor(ids), view, view.last_rows)[0]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_k=20, seed=1), Sampling(repetition_penalty=1.5)])
def test_each_node_is_drafted_from_its_own_path(sampling):
    """Two texts at once, a second round after both have grown: every family is what the draft says after that path alone."""
    draft = tiny_model(seed=3)
    proposer = DraftTree(draft, (3, 2, 2))
    texts = {"a": random_ids(4, seed=1), "b": random_ids(7, seed=2)}
    for _ in range(2):
        with torch.inference_mode():
            trees = proposer.propose([ask(ids, sampling, key) for key, ids in texts.items()])
        for (key, ids), tree in zip(texts.items(), trees):
            full = sampling.temperature > 0 or sampling.repetition_penalty == 1
            assert len(tree) == (proposer.nodes if full else 3) or not full
            for node, children in tree.children.items():
                path = [*ids, *(tree.tokens[i] for i in tree.path(node))]
                logits_V = logits_after(draft, path)
                tokens = [tree.tokens[i] for i in children]
                if node in tree.q:
                    torch.testing.assert_close(tree.q[node], distribution(logits_V, sampling, path), rtol=1e-4, atol=1e-6)
                else:
                    assert tokens == torch.topk(logits_V, len(tokens)).indices.tolist()
            texts[key] = [*ids, tree.tokens[0], 5]
            assert proposer.draft.length(key) == len(ids)
    for key in texts:
        proposer.release(key)
    assert proposer.draft.cache.sequences == ()


def test_a_tree_of_width_one_is_a_chain():
    """Same draws, same rounds as ``DraftModel``."""
    model, draft = tiny_model(), tiny_model(seed=1)
    for sampling in (Sampling(), Sampling(temperature=0.7, seed=5)):
        runs = [speculate(model, random_ids(5), p, max_new_tokens=20, sampling=sampling) for p in (DraftModel(draft, 3), DraftTree(draft, (1, 1, 1)))]
        assert runs[0].completion.token_ids == runs[1].completion.token_ids and runs[0].rounds == runs[1].rounds


def test_siblings_are_drawn_without_replacement():
    """Ordered pairs have probability q(a) q(b) / (1 - q(a)); no more are drawn than have any probability."""
    logits_V = torch.tensor([1.0, 0.0, -1.0, 2.0])
    sampling = Sampling(temperature=1.0, top_k=3)
    q = distribution(logits_V, sampling).tolist()

    def run(draws):
        return tuple(siblings(Ask(0, [0], 9, sampling, draws), logits_V, [], 2)[0])

    wanted = {(a, b): q[a] * q[b] / (1 - q[a]) for a in range(4) for b in range(4) if a != b and q[a] and q[b]}
    assert distance(every_outcome(run), wanted) < 1e-12
    assert len(siblings(ask([0], sampling), logits_V, [], 4)[0]) == 3


@pytest.mark.parametrize("kind", ["static", "paged"])
def test_the_kept_path_is_compacted(kind):
    """C082: a branch that is not the first is kept often enough; positions stay 0, 1, 2 … and the text is plain greedy."""
    model = tiny_model()
    config = model.config
    cache = StaticCache(config, max_length=80) if kind == "static" else PagedCache(config, n_pages=24, page_size=4)
    kept = []
    keep = cache.keep
    cache.keep = lambda seq, indices: (kept.append(list(indices)), keep(seq, indices))
    noisy = tiny_model()
    with torch.no_grad():
        for p in noisy.parameters():
            p += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    done = speculate(model, random_ids(5), DraftTree(noisy, (4, 3, 1)), max_new_tokens=30, cache=cache, keep=True)
    assert done.completion.token_ids == generate(model, random_ids(5), max_new_tokens=30).token_ids
    assert len(kept) > 2 and any(r.accepted > 1 for r in done.rounds)
    assert cache._positions[done.completion.seq] == list(range(5 + 29))


def test_more_branches_accept_more():
    """The same draft, one guess a round: the first is right, or one of the first four."""
    model, noisy = tiny_model(), tiny_model()
    with torch.no_grad():
        for p in noisy.parameters():
            p += 0.08 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    narrow, wide = (speculate(model, random_ids(5), DraftTree(noisy, (w,)), max_new_tokens=80) for w in (1, 4))
    assert 0 < narrow.acceptance(1) < wide.acceptance(1)
    assert wide.tokens_per_round > narrow.tokens_per_round


@pytest.mark.parametrize("pages", [3, 4, 6, 9])
def test_a_draft_without_room_for_its_trees(pages):
    """Draft caches of a few pages for two texts: fewer levels or none, never an error, and the text is right."""
    model = tiny_model()
    prompts = [random_ids(4, seed=1), random_ids(6, seed=2)]
    draft = DraftTree(tiny_model(seed=1), (3, 2, 1), PagedCache(model.config, n_pages=pages, page_size=4))
    done = speculate(model, prompts, draft, max_new_tokens=12)
    assert [d.completion.token_ids for d in done] == [p.token_ids for p in generate(model, prompts, max_new_tokens=12)]
    assert draft.draft.cache.available == pages


def test_trees_in_a_pool_that_is_too_small_stay_exact():
    """Two siblings find no room beside the other text, one does: the text of three tokens keeps its distribution."""
    V, sampling = 3, Sampling(temperature=0.8)
    model = tiny_model(tiny_config(H=2, K=1, L=2, V=V), seed=4, scale=0.15)
    draft = tiny_model(tiny_config(H=2, K=1, L=1, V=V), seed=9)
    prompts = [[1, 2, 1], [2, 0, 2]]

    def run(draws):
        requests = [
            make_request(prompts[0], model.config, None, 3, sampling=sampling),
            make_request(prompts[1], model.config, None, 2, sampling=Sampling()),
        ]
        speculation = Speculation(model, requests, DraftTree(draft, (2, 2)), PagedCache(model.config, n_pages=9, page_size=1))
        speculation.draws = lambda sampling, copy: draws
        for _ in speculation.stream():
            pass
        assert speculation.rounds[0, 0][0].guessed == 1 and speculation.rounds[1, 0][0].guessed == 0
        return speculation.completions[0, 0].token_ids

    wanted = {}
    for a, p in enumerate(distribution(logits_after(model, prompts[0]), sampling).tolist()):
        for b, p_b in enumerate(distribution(logits_after(model, [*prompts[0], a]), sampling).tolist()):
            for c, p_c in enumerate(distribution(logits_after(model, [*prompts[0], a, b]), sampling).tolist()):
                wanted[a, b, c] = p * p_b * p_c
    assert distance(every_outcome(run), wanted) < 1e-5


def test_bad_widths_are_refused():
    for widths in ((), (2, 0)):
        with pytest.raises(RequestError, match="widths are children per node"):
            DraftTree(tiny_model(), widths)
