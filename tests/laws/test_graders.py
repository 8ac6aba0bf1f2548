"""The law of graders: right answers pass whatever their style; wrong ones fail, each with its own sentence."""

from dataclasses import replace

import pytest
import torch
from lab_answers import ANSWERS, Answer, answers, lab_names, learner_name, made, master_of, starter

from kvedu.grading.exercise import Exercise
from kvedu.grading.find import exercises, find_exercise, labs
from kvedu.grading.fresh import Fresh
from kvedu.grading.judge import Known, judge
from kvedu.grading.observe import outcomes
from kvedu.grading.verdict import Verdict
from kvedu.kernels.launch import missing

NEED_TRITON = [lab for lab in labs() if missing() and "kernel_device()" in master_of(lab).read_text("utf-8")]
NAMES = [name for lab in labs() if lab not in NEED_TRITON for name in exercises(lab)]
RIGHT = [(name, answer) for name in NAMES for answer in answers(name) if answer.says is None]
WRONG = [(name, answer) for name in NAMES for answer in answers(name) if answer.says is not None]
SEEDS = (0, 1)
KNOWN = {seed: Known(seed) for seed in SEEDS}


@pytest.fixture(autouse=True)
def gradient_mode():
    """A lab may switch gradients off for itself only."""
    with torch.no_grad():
        yield


def verdict(name: str, answer: object, seed: int = 0) -> Verdict:
    exercise = find_exercise(name)
    return judge(name, exercise, outcomes(exercise, answer, seed), KNOWN[seed])


def titled(pairs: list[tuple[str, Answer]]) -> dict:
    return {"argvalues": pairs, "ids": [f"{name}: {answer.title}" for name, answer in pairs]}


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_is_complete(name: str) -> None:
    exercise, given = find_exercise(name), answers(name)
    assert sum(answer.says is None for answer in given) >= 2, "two right answers besides the solution"
    assert sum(answer.says is not None for answer in given) >= 3, "three wrong answers"
    says = [answer.says for answer in given if answer.says]
    assert len(set(says)) == len(says), "each wrong answer has a sentence of its own"
    for text in (exercise.title, exercise.hint, exercise.checked):
        assert text
    first, second = ([repr(case.args) for case in exercise.cases(Fresh(seed))] for seed in (0, 1))
    assert len(first) == len(second) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_starter_is_not_written_yet(name: str) -> None:
    found = verdict(name, starter(name))
    assert not found.passed and not found.written


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes(name: str, seed: int) -> None:
    found = verdict(name, lab_names(name.split(".")[0])[learner_name(name)], seed)
    assert found.passed, found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "answer"), **titled(RIGHT))
def test_other_right_answers_pass(name: str, answer: Answer, seed: int) -> None:
    found = verdict(name, made(name, answer.source), seed)
    assert found.passed, found


@pytest.mark.parametrize(("name", "answer"), **titled(WRONG))
def test_a_wrong_answer_gets_its_sentence(name: str, answer: Answer) -> None:
    """C001, C033, C035, C036, C038 as mistakes of learners, among others."""
    for seed in SEEDS:
        found = verdict(name, made(name, answer.source), seed)
        assert not found.passed
        assert answer.says in str(found), found


@pytest.mark.parametrize("name", NAMES)
def test_every_known_mistake_is_recognized_as_itself(name: str) -> None:
    for mistake in find_exercise(name).mistakes:
        found = verdict(name, mistake.answer)
        assert found.mistake and found.sentence == mistake.sentence, found


def without(exercise: Exercise) -> list[Exercise]:
    """The exercise with one mistake or one rule less, each in turn; and with nothing that is right."""
    lists = {"mistakes": exercise.mistakes, "rules": exercise.rules}
    less = [
        replace(exercise, **{field: (*items[:i], *items[i + 1 :])})
        for field, items in lists.items()
        for i in range(len(items))
    ]
    return less if exercise.right is None else [*less, replace(exercise, right=None, mistakes=())]


@pytest.mark.parametrize("name", NAMES)
def test_no_check_can_be_removed_unseen(name: str) -> None:
    """Without any one of its mistakes, rules or its right answer, a wrong answer would go free of its sentence."""
    exercise = find_exercise(name)
    wrong = [(answer, outcomes(exercise, made(name, answer.source), 0)) for answer in answers(name) if answer.says]
    for number, less in enumerate(without(exercise)):
        noticed = [answer.title for answer, seen in wrong if answer.says not in str(judge(name, less, seen, KNOWN[0]))]
        assert noticed, f"check {number} of {len(without(exercise))} could be removed: no wrong answer needs it"


if NEED_TRITON:

    def test_kernel_labs_need_triton() -> None:
        pytest.skip(f"{', '.join(NEED_TRITON)}: {missing()}")


def test_answers_belong_to_exercises() -> None:
    known = {f"{name.replace('.', '/')}.py" for lab in labs() for name in exercises(lab)}
    assert {path.relative_to(ANSWERS).as_posix() for path in ANSWERS.rglob("*.py")} == known


def test_every_lab_has_its_master() -> None:
    for lab in labs():
        text = master_of(lab).read_text("utf-8")
        for name in exercises(lab):
            assert f'kvedu.check("{name}", {learner_name(name)})' in text, f"{master_of(lab).name} never checks {name}"
