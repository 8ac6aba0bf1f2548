"""Lab 1's checks: other right answers pass, and mistakes that people make get the sentence written for them."""

import contextlib
import io
import runpy
from pathlib import Path

import pytest
import torch

MASTER = Path(__file__).resolve().parents[2] / "labs" / "masters" / "01_what_is_the_kv_cache.py"


@pytest.fixture(scope="module")
def lab() -> dict:
    """The solved lab's names, after it ran as a script; autograd as it was."""
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        return runpy.run_path(str(MASTER))


def step(lab, *, key_place="right", query_place="right", mask="right", turn_keys=True, turn_values=False, keep="all"):
    """An answer to exercise 1 with one part changed."""

    def answer(block, x_TM, kept):
        q, k, v = lab["project"](block, x_TM)
        before, T = len(kept[0]), len(q)
        place = {"right": torch.arange(before, before + T), "zero": torch.arange(T)}
        k = lab["turn"](k, place[key_place]) if turn_keys else k
        v = lab["turn"](v, place["right"]) if turn_values else v
        k_all, v_all = torch.cat((kept[0], k)), torch.cat((kept[1], v))
        row = torch.arange(len(k_all))
        hidden = {
            "right": row > place["right"][:, None],
            "upper triangle": torch.ones(T, len(row), dtype=torch.bool).triu(before + 1),
            "none": torch.zeros(T, len(row), dtype=torch.bool),
            "top left": row > place["zero"][:, None],
            "itself too": (row >= place["right"][:, None]) & (row > 0),
        }[mask]
        out = lab["attend"](lab["turn"](q, place[query_place]), k_all, v_all, hidden)
        return out, (k_all, v_all) if keep == "all" else (k, v)

    return answer


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, None),
        ({"mask": "upper triangle"}, None),
        ({"key_place": "zero"}, "stands at positions 0, 1, 2 again"),
        ({"query_place": "zero"}, "queries are turned to positions 0, 1, 2"),
        ({"turn_keys": False}, "the kept keys are not turned"),
        ({"turn_values": True}, "the kept values are turned"),
        ({"mask": "none"}, "see tokens that come after them"),
        ({"mask": "top left"}, "the mask starts at the top left"),
        ({"mask": "itself too"}, "do not see themselves"),
        ({"keep": "new"}, "the old ones are lost"),
    ],
)
def test_cached_step(lab: dict, changed: dict, sentence: str | None) -> None:
    """Forgotten appends, positions that restart, a mask from the wrong corner: each leaves the shapes right."""
    judge(lambda: lab["_check_rows"](step(lab, **changed)), sentence)


def test_cached_step_writes_the_same_text(lab: dict) -> None:
    judge(lambda: lab["_check_text"](step(lab, mask="upper triangle")), None)
    judge(lambda: lab["_check_text"](step(lab, key_place="zero", query_place="zero")), "logits differ")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, None),
        ({"without": lambda P, n: sum(P + i for i in range(n)), "pairs": lambda P, n: sum(range(P + n))}, None),
        ({"without": lambda P, n: sum(P + i for i in range(n + 1))}, "counts a step too many"),
        ({"without": lambda P, n: n * (P + n)}, "n steps of full length"),
        ({"with": lambda P, n: P + n}, "is one too many"),
        ({"with": lambda P, n: n}, "forgets the prompt"),
        ({"pairs": lambda P, n: (P + n - 1) ** 2}, "the full square"),
        ({"pairs": lambda P, n: (P + n - 1) * (P + n - 2) // 2}, "sees p + 1 keys"),
    ],
)
def test_counts(lab: dict, changed: dict, sentence: str | None) -> None:
    right = {"without": lab["rows_without"], "with": lab["rows_with"], "pairs": lab["pairs_with"]}
    judge(lambda: lab["_check_counts"](*(right | changed).values()), sentence)


@pytest.mark.parametrize("name", ["rows without", "rows with", "pairs without", "pairs with"])
def test_exponents(lab: dict, name: str) -> None:
    formulas = lab["rows_without"], lab["rows_with"], lab["pairs_with"]
    said = lab["exponents"]()
    judge(lambda: lab["_check_exponents"](said, *formulas), None)
    judge(lambda: lab["_check_exponents"](said | {name: said[name] % 3 + 1}, *formulas), f"{name}: when n doubles")


def detector(lab, *, same_token=True, sides=slice(None), layers=slice(None), shift=0, extra=0):
    """An answer to exercise 3, part one, with one part changed."""

    def answer(make_cache, limit):
        caches = [make_cache(), lab["ConcatCache"](lab["tiny"])]
        seqs = [cache.add() for cache in caches]
        for length in range(1, limit + extra + 1):
            token = lab["random_token"]()
            tokens = [token, token if same_token else lab["random_token"]()]
            ours, theirs = (lab["append_token"](c, seq, *t) for c, seq, t in zip(caches, seqs, tokens))
            seen = [torch.stack(x).unflatten(0, (lab["tiny"].L, 2))[layers, sides] for x in (ours, theirs)]
            if not torch.equal(*seen):
                return length + shift
        return None

    return answer


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, None),
        ({"same_token": False}, "do both caches get the same tokens"),
        ({"sides": slice(1)}, "compare all layers, keys and values"),
        ({"layers": slice(1)}, "compare all layers, keys and values"),
        ({"shift": -1}, "count lengths, not indices"),
        ({"extra": 5}, "agrees up to the limit"),
    ],
)
def test_detector(lab: dict, changed: dict, sentence: str | None) -> None:
    judge(lambda: lab["_check_detector"](detector(lab, **changed)), sentence)


def mended(lab, rows, front=len):
    """A cache for exercise 3, part two: a buffer of ``rows(wanted, rows before)``, the first ``front(old)`` kept."""

    class Answer(lab["ChunkedCache"]):
        def longer(self, old, wanted):
            if wanted <= len(old):
                return old
            head = old[: front(old)]
            return torch.cat((head, old.new_zeros(rows(wanted, len(old)) - len(head), *old.shape[1:])))

    return Answer


@pytest.mark.parametrize(
    ("rows", "front", "sentence"),
    [
        (lambda wanted, before: -(-wanted // 256) * 256, len, None),
        (lambda wanted, before: ((wanted - 1) // 256 + 1) * 256, lambda old: None, None),
        (lambda wanted, before: -(-wanted // 256) * 256, lambda old: max(len(old) - 1, 0), "is wrong at length 257"),
        (lambda wanted, before: before + 256, len, "one chunk more may not be enough"),
        (lambda wanted, before: wanted, len, "the buffer has 1"),
        (lambda wanted, before: (wanted // 256 + 1) * 256, len, "256 rows fit in chunks"),
    ],
)
def test_mended(lab: dict, rows, front, sentence: str | None) -> None:
    """A buffer that grows: the last length that fits, the first that does not, and more than one chunk at once."""
    judge(lambda: lab["_check_mended"](mended(lab, rows, front)), sentence)


def test_the_planted_bug_is_there(lab: dict) -> None:
    judge(lambda: lab["_check_mended"](lab["ChunkedCache"]), "is wrong at length 257")


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (lambda rows, wanted: wanted + wanted // 2, None),
        (lambda rows, wanted: wanted + wanted // 2 + 16, None),
        (lambda rows, wanted: wanted, "O(n^2)"),
        (lambda rows, wanted: wanted + 16, "O(n^2)"),
        (lambda rows, wanted: 2 * wanted, "may have 7,516"),
        (lambda rows, wanted: rows + rows // 2 + 16, "a prompt of 5,000"),
        (lambda rows, wanted: wanted * 1.5, "an int was wanted"),
    ],
)
def test_growth(lab: dict, rule, sentence: str | None) -> None:
    judge(lambda: lab["_check_growth"](rule), sentence)


def judge(check, sentence: str | None) -> None:
    """Run a check: it passes, or fails with the sentence."""
    with torch.no_grad():
        if sentence is None:
            check()
        else:
            with pytest.raises(AssertionError) as failed:
                check()
            assert sentence in str(failed.value)
