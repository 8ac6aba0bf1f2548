"""A chapter's verdict on a claim: shown in the cell's output and recorded in that same output.

The record travels in the output's metadata, so it is as fresh as the executed cell: the ledger page
reads the executed notebooks, and no second store can disagree with them.
"""

import html
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kvedu.book.claims import Claim, find_claim
from kvedu.book.provenance import describe, provenance
from kvedu.book.rows import Row
from kvedu.book.wording import typeset
from kvedu.errors import KveduError

METADATA_KEY = "kvedu_verdict"
WORDS = {True: "holds", "when": "holds when", False: "does not hold"}
COLORS = {True: "#2e8b57", "when": "#b8860b", False: "#c0392b"}


@dataclass(frozen=True)
class Verdict:
    """What a computation says of one claim, and where it was computed."""

    claim: Claim
    holds: bool | Literal["when"]
    measured: str
    condition: str = ""
    value: float | None = None
    unit: str = ""
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """``holds``, ``holds when <condition>`` or ``does not hold``."""
        return f"holds when {self.condition}" if self.holds == "when" else WORDS[self.holds]

    def record(self) -> dict[str, Any]:
        """The verdict as plain JSON values, under the claim's id."""
        return asdict(self) | {"claim": self.claim.id}

    def __str__(self) -> str:
        condition = f" ({self.condition})" if self.condition and self.holds != "when" else ""
        return f"{self.claim.id} {self.words}{condition}: {self.measured}. [{describe(self.source)}]"

    def to_html(self) -> str:
        """The verdict as a small box that needs no style sheet."""

        def shown(text: str) -> str:
            return html.escape(typeset(text), quote=False)

        condition = f" ({shown(self.condition)})" if self.condition and self.holds != "when" else ""
        word, when, rest = self.words.partition(" when ")
        return (
            f'<div class="kv-verdict" id="verdict-{self.claim.id}" '
            f'style="border-left:4px solid {COLORS[self.holds]};padding:.4em .8em;margin:.6em 0">'
            f"<div>Claim {self.claim.id}: {shown(self.claim.claim)}</div>"
            f"<div><strong>{html.escape(word[0].upper() + word[1:])}</strong>{shown(when + rest)}{condition}: "
            f"{shown(self.measured)}</div>"
            f"<div><small>{shown(describe(self.source))}</small></div></div>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/html": self.to_html(), "text/plain": str(self)}, {METADATA_KEY: self.record()}


def judge(
    claim_id: str,
    holds: bool | Literal["when"] | None,
    *,
    measured: str,
    condition: str = "",
    value: float | None = None,
    unit: str = "",
    row: Row | None = None,
) -> Verdict:
    """The verdict on a claim, checked but not shown.

    ``holds`` is a computed truth value, or ``"when"`` (or ``None``) for a claim that holds under
    ``condition``. ``measured`` says the number with its unit; ``value`` and ``unit`` give it as data.
    ``row`` is the stored row that the verdict rests on; without it the source is this run.

    Raises ``KveduError``: an id that is not in the list, no measurement, ``"when"`` without a
    condition, a value without a unit.
    """
    claim = find_claim(claim_id)
    answer: bool | Literal["when"]
    if holds is None or (isinstance(holds, str) and holds == "when"):
        answer = "when"
    elif isinstance(holds, str):
        raise KveduError(f"claim {claim_id}: holds is {holds!r}; give a computed True or False, or 'when'")
    else:
        answer = bool(holds)
    if not measured.strip():
        raise KveduError(f"claim {claim_id}: a verdict without a measurement; say in measured= what was computed")
    if answer == "when" and not condition.strip():
        raise KveduError(f"claim {claim_id}: 'when' needs the condition; give condition='…'")
    if value is not None and not unit:
        raise KveduError(f"claim {claim_id}: value {value} has no unit; give unit='…' ('x' for a ratio)")
    number = None if value is None else float(value)
    return Verdict(claim, answer, measured, condition, number, unit, row.source if row else provenance())


def verdict(
    claim_id: str,
    holds: bool | Literal["when"] | None,
    *,
    measured: str,
    condition: str = "",
    value: float | None = None,
    unit: str = "",
    row: Row | None = None,
) -> None:
    """Judge a claim and show the verdict in the cell's output; see ``judge`` for the arguments."""
    result = judge(claim_id, holds, measured=measured, condition=condition, value=value, unit=unit, row=row)
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import display
    except ImportError:
        print(result)
        return
    if get_ipython() is None:
        print(result)
    else:
        display(result)
