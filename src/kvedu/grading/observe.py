"""Put an answer to work on an exercise's cases, and note what is seen: this part runs beside the learner's code."""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import traceback
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kvedu.grading
from kvedu.grading.exercise import Case, Exercise, Unfit
from kvedu.grading.fresh import Fresh
from kvedu.grading.plain import plain
from kvedu.grading.time_limit import TimeUp, time_limit

NOT_THEIRS = (str(Path(kvedu.grading.__path__[0]).parent), "site-packages", "/lib/python")
LONGEST = 300


@dataclass(frozen=True)
class Raised:
    """The answer raised an exception; ``place`` is the learner's own line, as text, where there is one."""

    kind: str
    message: str
    place: str = ""


@dataclass(frozen=True)
class Stopped:
    """The answer did not end in time."""


@dataclass(frozen=True)
class Changed:
    """The answer changed an input; ``argument`` counts from 0."""

    argument: int


class _Nowhere(io.TextIOBase):
    """Swallows what an answer prints."""

    def write(self, text: str) -> int:
        return len(text)


def outcomes(exercise: Exercise, answer: Any, seed: int) -> list[Any]:
    """What is seen of an answer on every case of a seed: plain data, or ``Raised``, ``Stopped``, ``Changed``.

    Ends early where the answer does not end, or is not written yet. The learner's random numbers, printed
    text and gradient mode are left as they were.
    """
    seen: list[Any] = []
    python_state = random.getstate()
    with torch.random.fork_rng(devices=[]), torch.no_grad(), contextlib.redirect_stdout(_Nowhere()):
        try:
            cases = exercise.cases(Fresh(seed))
            torch.manual_seed(seed)
            random.seed(seed)
            with time_limit(exercise.seconds):
                for case in cases:
                    seen.append(_one(exercise, answer, case))
                    if isinstance(seen[-1], Raised) and seen[-1].kind == "NotImplementedError":
                        break
        except TimeUp:
            seen.append(Stopped())
        finally:
            random.setstate(python_state)
    return seen


def _one(exercise: Exercise, answer: Any, case: Case) -> Any:
    if not callable(answer):
        return Raised("Unfit", f"a function or class was wanted, {type(answer).__name__} came; give it itself, do not call it")
    given = deepcopy(case.args)
    try:
        result = plain(exercise.observe(answer, *given))
    except Unfit as unfit:
        return Raised("Unfit", str(unfit))
    except (Exception, SystemExit) as error:
        return Raised(type(error).__name__, _message(error), _place(error))
    if not exercise.may_change_inputs:
        for number, (now, before) in enumerate(zip(given, case.args)):
            if not _same(now, before):
                return Changed(number)
    return result


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        return "a message that cannot be read"
    return text if len(text) <= LONGEST else text[:LONGEST] + " …"


def _place(error: BaseException) -> str:
    """The line of the answer itself: the outermost that is neither the library's nor the grader's."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if not any(part in code.co_filename for part in NOT_THEIRS):
            text = linecache.getline(code.co_filename, line).strip()
            return f"line {line} of {code.co_name}" + (f": {text}" if text else "")
    return ""


def _same(now: Any, before: Any) -> bool:
    """Whether an input still holds what it held; looks into tensors, containers and modules."""
    if isinstance(before, Tensor):
        return now.shape == before.shape and now.dtype == before.dtype and torch.equal(now.nan_to_num(), before.nan_to_num())
    if isinstance(before, torch.nn.Module):
        after = now.state_dict()
        return all(_same(after[name], value) for name, value in before.state_dict().items())
    if isinstance(before, (list, tuple)):
        return len(now) == len(before) and all(_same(a, b) for a, b in zip(now, before))
    if isinstance(before, dict):
        return now.keys() == before.keys() and all(_same(now[key], value) for key, value in before.items())
    if isinstance(before, (bool, int, float, str, type(None))):
        return type(now) is type(before) and (now == before or now != now)
    return True
