"""The held-out set: fifty prompts on which ways of drafting are compared, and no trained part may see.

Written for this project (CC-BY-4.0), frozen like the texts beside it, and apart from all of them: no
prompt stands in a frozen text, and nothing is trained on these. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kvedu.errors import KveduError

SHA256 = "57dfaf68909ae7949d5122f48840b3d4fd81f2810c1ab2c4d15999bdda963e15"
"""Of the file shipped; a stored row that was measured on it names it."""


@dataclass(frozen=True)
class Prompts:
    """One kind of prompt: ``temperature`` and ``new_tokens`` say how each is completed."""

    name: str
    kind: str
    temperature: float
    new_tokens: int
    prompts: tuple[str, ...]


@cache
def groups() -> tuple[Prompts, ...]:
    """The four groups: 20 of code, 10 of edit-or-extract, 10 of prose, 10 creative ones at temperature 1.

    >>> [(group.name, len(group.prompts)) for group in groups()]
    [('code', 20), ('edit', 10), ('prose', 10), ('creative', 10)]
    """
    found = json.loads(_bytes())["groups"]
    return tuple(Prompts(**(group | {"prompts": tuple(group["prompts"])})) for group in found)


def group(name: str) -> Prompts:
    """One group. Raises ``KveduError``, with the names, where there is none of this name.

    >>> group("edit").new_tokens
    80
    """
    for one in groups():
        if one.name == name:
            return one
    raise KveduError(f"there is no group {name!r}; the held-out groups are {', '.join(g.name for g in groups())}")


def sha256() -> str:
    """SHA-256 (hex) of the bytes shipped, computed from the file."""
    return hashlib.sha256(_bytes()).hexdigest()


def _bytes() -> bytes:
    return (files(__name__) / "prompts.json").read_bytes()
