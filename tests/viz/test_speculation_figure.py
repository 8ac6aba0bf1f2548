"""The speculation player: its geometry and its arithmetic equal the library's, and what it plays is what happened."""

import json
import random
from pathlib import Path

import pytest
import torch

from kvedu.caches.layout import plan
from kvedu.model.sampling import Sampling
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.draft_tree import DraftTree
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.tree import TokenTree
from kvedu.speculative.verify import among
from kvedu.viz import still
from kvedu.viz.node import evaluate
from kvedu.viz.speculation import data, record
from tiny import tiny_model

STORED = [p for p in sorted((Path(__file__).resolve().parents[2] / "book" / "figures").glob("*.json")) if json.loads(p.read_text("utf-8"))["figure"] == "speculation"]


def letters(ids):
    """A letter for each token."""
    return "".join(chr(97 + i % 26) for i in ids)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def trees(n=12):
    rng = random.Random(0)
    return [[rng.randint(-1, i - 1) for i in range(size)] for size in range(n)]


def test_depths_and_mask_are_the_caches() -> None:
    """The mask that is drawn is the one that a cache makes from ``parents``."""
    found = evaluate("speculation", [call for parents in trees() for call in (("depths", [parents]), ("mask", [parents]))])
    for parents, depths, mask in zip(trees(), found[::2], found[1::2]):
        tree = TokenTree(tuple(range(len(parents))), tuple(parents))
        assert depths == tree.depths
        (row,) = plan({0: 1 + len(parents)}, {0: [0, 1, 2]}, {0: [-1, *(p + 1 for p in parents)]})
        assert mask == row.visible()[:, 3:].tolist()


def test_nodes_do_not_cover_each_other() -> None:
    for parents, places in zip(trees(), evaluate("speculation", [("places", [parents]) for parents in trees()])):
        assert len({(one["column"], one["row"]) for one in places}) == len(parents)
        leaves = set(range(len(parents))) - set(parents)
        assert {one["row"] for one in places} == set(range(len(leaves)))


def test_the_chance_to_be_kept_is_the_verifiers() -> None:
    """The chance that ``among`` asks for is min(1, p/q)."""

    class Asked:
        def happens(self, probability):
            self.chance = min(1.0, probability)
            return True

    pairs = [(p / 20, q / 20) for p in range(0, 20, 3) for q in range(1, 20, 3)]
    for (p, q), chance in zip(pairs, evaluate("speculation", [("keep", [p, q]) for p, q in pairs])):
        asked = Asked()
        among([0], torch.tensor([q, 1 - q]), torch.tensor([p, 1 - p]), asked)
        assert chance == pytest.approx(asked.chance, abs=1e-6)


@pytest.mark.parametrize("make", [lambda m: DraftModel(m, 3), lambda m: DraftTree(m, (2, 2))], ids=["chain", "tree"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.5, seed=3)], ids=["greedy", "sampled"])
def test_a_recorded_run_is_what_happened(model, make, sampling) -> None:
    """Rounds lie end to end: each begins with the text that the one before it left, and the cache follows."""
    run = record(model, [1, 2, 3, 4, 5], make(tiny_model(seed=8)), name="r", draft="the draft", tokens=17, sampling=sampling, text_of=letters)
    assert run["rounds"] and run["greedy"] == sampling.greedy
    text = run["rounds"][0]["before"]
    for noted in run["rounds"]:
        assert noted["before"] == text and noted["cache"][0] == len(text) - 1
        assert set(noted["kept"]) <= set(noted["judged"]) and len(noted["p"]) == len(noted["tokens"])
        assert all((noted["chance"][i] is None) == (i not in noted["judged"]) for i in range(len(noted["tokens"])))
        text += "".join(noted["tokens"][i] for i in noted["kept"]) + noted["token"]
        assert noted["cache"][1] == len(text) - 1
    (tokens,) = evaluate("speculation", [("added", [run["rounds"], len(run["rounds"]) - 1])])
    assert tokens == len(text) - len(run["rounds"][0]["before"])


def test_a_round_without_a_guess_draws(model) -> None:
    class Silent(Proposer):
        def propose(self, asks):
            return [TokenTree() for _ in asks]

    run = record(model, [1, 2, 3], Silent(), name="r", draft="nobody", tokens=4, text_of=letters)
    assert "no guess" in still("speculation", data([run], title="t")).say


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_rounds_show_every_fate(path: Path) -> None:
    """Kept, rejected and never looked at, a correction and a bonus, a chain and a tree; and no number that is none."""
    stored = json.loads(path.read_text("utf-8"))
    rounds = [noted for run in stored["runs"] for noted in run["rounds"]]
    assert any(len(r["kept"]) == len(r["tokens"]) > 0 for r in rounds), "no bonus"
    assert any(set(r["judged"]) - set(r["kept"]) for r in rounds), "no rejection"
    assert any(r["parents"] != list(range(-1, len(r["parents"]) - 1)) for r in rounds), "no tree"
    assert any(q is not None for r in rounds for q in r["q"]), "nothing is drawn"
    for run in stored["runs"]:
        for r in run["rounds"]:
            assert r["cache"][1] - r["cache"][0] == 1 + len(r["kept"])
            if run["greedy"]:
                continue
            for i in r["judged"]:
                if r["q"][i] is None or r["parents"].count(r["parents"][i]) > 1:
                    continue
                assert r["chance"][i] == pytest.approx(min(1.0, r["p"][i] / r["q"][i]), rel=0.02, abs=2e-3)
        assert "NaN" not in still("speculation", stored, {"run": run["name"], "step": 6}, 320).svg
