"""Answers that would fool a careless grader: none passes, and each is told why."""

import math
import random
import signal
import sys
import time
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_exercise import ROWS, constant, graded, right_rows

from kvedu.grading.compare import difference
from kvedu.grading.exercise import Unfit
from kvedu.grading.fresh import Fresh
from kvedu.grading.plain import Strange, plain
from kvedu.grading.time_limit import TimeUp, time_limit


def test_a_right_answer_passes() -> None:
    assert graded(right_rows).passed


class Liar:
    """Says yes to every question."""

    shape, dtype, device = (3,), torch.float32, torch.device("cpu")

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None

    def __getattr__(self, name: str) -> object:
        return lambda *args, **kwargs: True


class LyingInt(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class LyingTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True


@pytest.mark.parametrize("value", [Liar(), [Liar()], {"a": Liar()}, LyingInt(5), LyingTensor([1.0, 2.0, 3.0])], ids=lambda v: type(v).__name__)
def test_an_object_with_a_lying_equality_does_not_pass(value: object) -> None:
    assert not graded(lambda x, more: value).passed
    assert not graded(lambda: value, constant(7)).passed
    assert not graded(lambda: value, constant([7])).passed


def test_a_tensor_with_methods_of_its_own_is_looked_at_without_them() -> None:
    def answer(x, more):
        wrong = torch.zeros(3)
        wrong.detach = wrong.clone = wrong.double = lambda *args, **kwargs: right_rows(x, more)
        return wrong

    assert graded(answer).came.startswith("0 at")


def test_plain_data_of_exact_types_gets_through() -> None:
    Pair = namedtuple("Pair", "a b")
    value = {"a": [1, (2.5, None)], 3: {1, 2}, "t": torch.ones(2)}
    assert repr(plain(value)) == repr(value)
    assert plain(Pair(1, 2)) == (1, 2)
    assert plain(np.int64(4)) == 4 and type(plain(np.float64(4))) is float
    assert isinstance(plain(np.zeros(3)), Strange)
    assert isinstance(plain(torch.zeros(2, 2).to_sparse()), Strange)
    nested: list = []
    nested.append(nested)
    assert "nested too deeply" in repr(plain(nested))


@pytest.mark.parametrize("shape", [(1, 3), (3,), (4, 1), ()])
def test_nothing_broadcasts(shape: tuple[int, ...]) -> None:
    """C006: a result of another shape fails with the shape named, though every value matches."""
    found = graded(lambda: torch.ones(shape), constant(torch.ones(4, 3)))
    assert not found.passed and found.came == f"shape {shape}" and found.wanted == "shape (4, 3)"


def test_dtype_and_nan_are_looked_at() -> None:
    """C006: right values in another dtype, and NaN on one side or on both."""
    assert graded(lambda: torch.ones(3, dtype=torch.float16), constant(torch.ones(3))).came == "dtype float16"
    assert graded(lambda: torch.ones(3, dtype=torch.int64), constant(torch.ones(3))).came == "dtype int64"
    hole = torch.tensor([1.0, math.nan, 1.0])
    assert graded(lambda: hole, constant(torch.ones(3))).came.startswith("NaN at (1,)")
    assert not graded(lambda: torch.ones(3), constant(hole)).passed
    assert graded(lambda: hole.clone(), constant(hole)).passed
    assert not graded(lambda: torch.tensor([math.inf]), constant(torch.ones(1))).passed
    assert graded(lambda: torch.tensor([math.inf]), constant(torch.tensor([math.inf]))).passed
    assert not graded(lambda: math.nan, constant(1.0)).passed and graded(lambda: math.nan, constant(math.nan)).passed


@pytest.mark.parametrize(("value", "want"), [(True, 1), (1, True), (2.0, 2), ("2", 2), ([1, 2], (1, 2)), (None, 0), ({1: 2}, {1: 3})])
def test_kinds_are_not_mixed_up(value: object, want: object) -> None:
    assert not graded(lambda: value, constant(want)).passed


def test_an_exception_without_words_is_told_with_its_line() -> None:
    def answer(x, more):
        raise ValueError

    found = graded(answer)
    assert not found.passed and "ValueError, without a message" in found.sentence and "raise ValueError" in found.sentence


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    _render_traceback_ = staticmethod(lambda: [])


@pytest.mark.parametrize("error", [Mute(), SystemExit(0), Unfit("made up"), AssertionError(), StopIteration()], ids=lambda e: type(e).__name__)
def test_no_exception_gets_through(error: BaseException) -> None:
    def answer(x, more):
        raise error

    assert not graded(answer).passed


def test_a_patched_traceback_hook_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *args: None)
    assert "ZeroDivisionError" in graded(lambda x, more: 1 / 0).sentence


def test_an_answer_that_changes_its_input_fails_and_fools_nobody() -> None:
    def zeroes(x, more):
        x.zero_()
        return x.sum(dim=0)

    def deep(x, more):
        result = right_rows(x, more)
        more["scale"][0].zero_()
        return result

    assert "changes its argument number 1" in graded(zeroes).sentence
    assert "changes its argument number 2" in graded(deep).sentence


def test_arguments_are_numbered_only_where_the_learner_gets_those_of_the_case() -> None:
    turned_round = replace(ROWS, observe=lambda answer, x, more: answer(more, x), right=lambda more, x: right_rows(x, more))
    assert "changes something that it was given" in graded(lambda more, x: x.zero_(), turned_round).sentence


def test_what_nobody_stored_and_lists_are_told() -> None:
    """NaN may be memory that was left as it was; a list where parts are wanted is told how to return them."""
    one, three = torch.tensor([0.0, math.nan]), torch.full((3,), math.nan)
    assert graded(lambda: one, constant(torch.zeros(2))).came == "NaN at (1,) (not a number, or nothing was stored there)"
    assert graded(lambda: three, constant(torch.zeros(3))).came == "NaN at (0,) and 2 other places (not a number, or nothing was stored there)"
    assert "a list came: return a, b, without brackets" in graded(lambda: [1, 2], constant((1, 2))).sentence


def test_an_endless_loop_is_cut_off() -> None:
    def busy(x, more):
        while True:
            pass

    def swallows(x, more):
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass

    for answer in (busy, swallows):
        assert "did not end within 0.3 seconds" in graded(answer).sentence


def test_a_long_sleep_is_cut_off_by_the_clock() -> None:
    with pytest.raises(TimeUp), time_limit(0.05):
        time.sleep(20)


def test_limits_can_be_nested() -> None:
    """A check inside a cell must not switch the cell's own limit off."""
    with pytest.raises(TimeUp), time_limit(0.2):
        with time_limit(5):
            pass
        while True:
            pass
    with time_limit(5):
        with pytest.raises(TimeUp), time_limit(0.05):
            while True:
                pass
        assert signal.getitimer(signal.ITIMER_PROF)[0] > 1


def test_the_time_limit_leaves_nothing_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(5):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == signal.getitimer(signal.ITIMER_PROF)[0] == 0


def test_the_learners_randomness_and_prints_are_left_alone(capsys: pytest.CaptureFixture) -> None:
    """C005: grading leaves nothing behind; random numbers go on as if it had not been."""

    def answer(x, more):
        print("noise" * 1000)
        torch.manual_seed(5), random.seed(5)
        return right_rows(x, more)

    torch.manual_seed(1), random.seed(1)
    wanted = torch.rand(3), random.random()
    torch.manual_seed(1), random.seed(1)
    assert graded(answer).passed
    assert torch.equal(torch.rand(3), wanted[0]) and random.random() == wanted[1]
    assert capsys.readouterr().out == ""


def test_gradients_stay_as_they_were() -> None:
    with torch.enable_grad():
        assert graded(right_rows).passed and torch.is_grad_enabled()


def test_the_answer_itself_is_wanted_not_its_result() -> None:
    assert "do not call it" in graded(torch.zeros(3)).sentence


def test_a_mistake_must_explain_every_case() -> None:
    """With one row, mean and sum agree; one wrong case alone does not make it this mistake."""
    assert graded(lambda x, more: x.mean(dim=0) * more["scale"][0]).mistake
    partly = graded(lambda x, more: (x.mean(dim=0) if len(x) == 4 else 2 * x.mean(dim=0)) * more["scale"][0])
    assert not partly.passed and not partly.mistake


def test_an_answer_that_remembers_fails_on_other_inputs() -> None:
    memory = [right_rows(*case.args) for case in ROWS.cases(Fresh(3))]
    assert graded(lambda x, more: memory[{4: 0, 1: 1, 2: 2}[len(x)]], seed=3).passed
    assert not graded(lambda x, more: memory[{4: 0, 1: 1, 2: 2}[len(x)]], seed=4).passed


@pytest.mark.parametrize("value", [LyingInt(5), LyingTensor([1.0]), Liar(), type("Words", (str,), {})("a"), type("Row", (list,), {})([1]), type("Names", (dict,), {})(a=1), type("Group", (set,), {})([1])], ids=lambda v: type(v).__name__)
def test_a_class_of_the_learners_own_never_gets_past_the_border(value: object) -> None:
    assert isinstance(plain(value), Strange)


def test_a_list_of_another_length_is_shown_and_counted() -> None:
    found = difference([4], [4, 8], 0.0)
    assert found is not None and (found.came, found.wanted, found.reason) == ("1 part: [4]", "2 parts: [4, 8]", "something is missing")
    found = difference(list(range(20)), [[1]], 0.0)
    assert found is not None and (found.came, found.wanted, found.reason) == ("20 parts", "1 part", "more came than was wanted")
