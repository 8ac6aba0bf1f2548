"""Hold plain data against plain data: type, length, keys, shape, dtype, device, NaN, then values.

Nothing here broadcasts: a result of shape ``(1, 3)`` is not one of shape ``(4, 3)``, whatever it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

import torch
from torch import Tensor

from kvedu.grading.plain import Strange

NAMES = {int: "a whole number (int)", float: "a number (float)", bool: "True or False", str: "text", list: "a list",
         tuple: "a tuple", dict: "a dict", set: "a set", Tensor: "a tensor", type(None): "None"}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """Where two things differ first (``""``: as a whole), what came and what was wanted.

    ``reason`` is set where they are not even of one kind: what is the matter, and what to do.
    """

    where: str
    came: str
    wanted: str
    reason: str = ""


def difference(got: Any, want: Any, tolerance: float, parts: tuple[str, ...] = (), where: str = "") -> Difference | None:
    """The first difference of ``got`` from ``want``, or None."""
    if type(want) is float and type(got) is int:
        got = float(got)
    if isinstance(got, Strange) or type(got) is not type(want):
        return Difference(where, kind_of(got, with_value=True), kind_of(want), _mismatch(got, want, parts))
    if isinstance(want, Tensor):
        return _tensors(got, want, tolerance, where)
    if isinstance(want, (list, tuple)):
        if len(got) != len(want):
            return Difference(where, _counted(got), _counted(want), "something is missing" if len(got) < len(want) else "more came than was wanted")
        numbers = [f"number {i}" for i in range(1, 1 + len(want))]
        names = parts if isinstance(want, tuple) and len(parts) == len(want) else numbers
        for name, a, b in zip(names, got, want):
            if found := difference(a, b, tolerance, parts, f"{where}, {name}" if where else name):
                return found
        return None
    if isinstance(want, dict):
        if got.keys() != want.keys():
            return Difference(where, f"keys {_listed(got)}", f"keys {_listed(want)}", "the keys are written exactly as in the task")
        for key, b in want.items():
            if found := difference(got[key], b, tolerance, parts, f"{where}, {key!r}" if where else repr(key)):
                return found
        return None
    if type(want) is float:
        equal = got == want or (got != got and want != want) or abs(got - want) <= tolerance * max(1.0, abs(want))
    else:
        equal = got == want
    return None if equal else Difference(where, shown(got), shown(want))


def _mismatch(got: Any, want: Any, parts: tuple[str, ...]) -> str:
    """What is the matter with a result of another kind, and what to do."""
    number = type(want) in (int, float)
    if got is None:
        return "nothing came back; is there a return?"
    if type(got) is float and type(want) is int:
        return "a whole number has no point: divide with //, or round on purpose"
    if isinstance(got, Tensor) and number and not got.ndim:
        return "a tensor holds the number: .item() takes it out"
    if type(got) is str and number:
        return "return the number itself, not a text that shows it"
    if type(want) is tuple and type(got) is not list:
        return f"{len(want)} things are returned, separated by commas" + (f": {', '.join(parts)}" if len(parts) == len(want) else "")
    if type(want) is tuple:
        return f"a list came: return {', '.join(ascii_lowercase[: len(want)])}, without brackets"
    if type(got) is tuple and type(want) is not list:
        return f"{len(got)} things came back where one was wanted; is there a comma too many?"
    return "return the kind of thing that the exercise asks for"


def _counted(value: list | tuple) -> str:
    """How many parts, and a few plain ones themselves."""
    number = "1 part" if len(value) == 1 else f"{len(value)} parts"
    plain = 0 < len(value) <= 8 and all(type(x) in (int, float, bool, str) for x in value)
    return f"{number}: {shown(value)}" if plain else number


def shown(value: Any) -> str:
    """A value as a sentence shows it, short."""
    if type(value) is int:
        return f"{value:,}"
    if isinstance(value, (Tensor, Strange)):
        return kind_of(value)
    text = repr(value)
    return text if len(text) <= 160 else text[:160] + " …"


def kind_of(value: Any, *, with_value: bool = False) -> str:
    """What kind of thing a value is: ``a float32 tensor of shape (4, 3)``."""
    if isinstance(value, Strange):
        return f"something of type {value.kind}"
    if isinstance(value, Tensor):
        name = _name(value.dtype)
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name} tensor of shape {tuple(value.shape)}"
    named = NAMES.get(type(value), type(value).__name__)
    return f"{named}: {shown(value)}" if with_value and type(value) in (int, float, bool, str) else named


def _tensors(got: Tensor, want: Tensor, tolerance: float, where: str) -> Difference | None:
    if got.shape != want.shape:
        reason = "as many numbers, in another arrangement" if got.numel() == want.numel() else "look at the shape where it changes"
        return Difference(where, f"shape {tuple(got.shape)}", f"shape {tuple(want.shape)}", reason)
    if got.dtype != want.dtype:
        return Difference(where, f"dtype {_name(got.dtype)}", f"dtype {_name(want.dtype)}", "the dtype of the inputs was wanted")
    if got.device.type != want.device.type:
        return Difference(where, f"a tensor on {got.device.type}", f"a tensor on {want.device.type}", "stay on the inputs' device")
    if not want.is_floating_point():
        if torch.equal(got, want):
            return None
        place = tuple((got != want).nonzero()[0].tolist())
        return Difference(where, f"{got[place].item()} at {place}", f"{want[place].item()}")
    strange = got.isnan() & ~want.isnan()
    if strange.any():
        first, others = tuple(strange.nonzero()[0].tolist()), int(strange.sum()) - 1
        more = f" and {others} other place{'s' * (others > 1)}" if others else ""
        return Difference(where, f"NaN at {first}{more} (not a number, or nothing was stored there)", "numbers")
    gap = (got.double() - want.double()).abs()
    gap = torch.where((got == want) | (got.isnan() & want.isnan()), 0.0, gap)
    bad = ~(gap <= tolerance * want.double().abs().clamp(min=1.0).nan_to_num(posinf=1.0))
    if not bad.any():
        return None
    place = tuple(bad.nonzero()[0].tolist())
    return Difference(where, f"{got[place].item():.4g} at {place} (largest gap {gap.max().item():.2g})", f"{want[place].item():.4g}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(keys: Any) -> str:
    return ", ".join(sorted(map(repr, keys))) or "none"
