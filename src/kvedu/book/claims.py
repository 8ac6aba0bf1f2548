"""Every claim that the book examines, as data: ``claims.json``, in the order of the two source documents."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kvedu.errors import KveduError


@dataclass(frozen=True)
class Claim:
    """One statement that can be true or false by itself.

    ``id`` is the row's id plus, where a row holds several statements, a letter (``A3.3c``);
    ``chapter`` is the number of the chapter that examines it.
    """

    id: str
    section: str
    chapter: int
    claim: str


@cache
def all_claims() -> tuple[Claim, ...]:
    """All claims, document A first, in the order given there."""
    text = (files("kvedu.book") / "claims.json").read_text(encoding="utf-8")
    return tuple(Claim(**row) for row in json.loads(text))


def find_claim(claim_id: str) -> Claim:
    """The claim of that id.

    Raises ``KveduError`` for an id that is not in the list, with the sub-ids of its row where it has any.
    """
    for claim in all_claims():
        if claim.id == claim_id:
            return claim
    parts = [
        claim.id for claim in all_claims() if claim.id.rstrip("abcdefghijklmnop") == claim_id.rstrip("abcdefghijklmnop")
    ]
    hint = f"its row has {', '.join(parts)}" if parts else "the ids stand in src/kvedu/book/claims.json"
    raise KveduError(f"{claim_id!r} is not a claim of the ledger; {hint}")
