"""The verdicts of a built book, read from its executed notebooks."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvedu.book.claims import all_claims
from kvedu.book.ledger import METADATA_KEY


@dataclass(frozen=True)
class Recorded:
    """A verdict's record and the page (Sphinx docname) whose cell computed it."""

    page: str
    record: dict[str, Any]

    @property
    def words(self) -> str:
        """The verdict in words, as the chapter's box says it."""
        holds = self.record["holds"]
        return f"holds when {self.record['condition']}" if holds == "when" else "holds" if holds else "does not hold"


def read_records(executed: Path, pages: list[str]) -> tuple[dict[str, Recorded], list[str]]:
    """Verdicts by claim id from ``executed/PAGE.ipynb``, and what is wrong with them, a sentence each.

    Wrong is: a claim judged twice, or one that is not in the list (its id was taken out since).
    """
    known = {claim.id for claim in all_claims()}
    found: dict[str, Recorded] = {}
    problems: list[str] = []
    for page in pages:
        for record in _records_of(executed / f"{page}.ipynb"):
            claim_id = record["claim"]
            if claim_id not in known:
                problems.append(f"{page}: records a verdict on {claim_id!r}, which is not a claim of the ledger")
            elif claim_id in found:
                problems.append(f"{page}: claim {claim_id} already has a verdict in {found[claim_id].page}; keep one")
            else:
                found[claim_id] = Recorded(page, record)
    return found, problems


def count_verdicts(found: dict[str, Recorded]) -> dict[str, int]:
    """How many claims hold, hold when, do not hold, and are not examined yet."""
    counts = Counter(recorded.record["holds"] for recorded in found.values())
    return {
        "holds": counts[True],
        "holds when": counts["when"],
        "does not hold": counts[False],
        "not examined yet": len(all_claims()) - len(found),
    }


def _records_of(notebook: Path) -> Iterator[dict[str, Any]]:
    if not notebook.is_file():
        return
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if METADATA_KEY in output.get("metadata", {}):
                yield output["metadata"][METADATA_KEY]
