"""The eight statements that a learner must know, each judged by what the chapters have recorded: no measurement of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kvedu.book.claims import find_claim
from kvedu.book.ledger import Verdict
from kvedu.book.records import Recorded


@dataclass(frozen=True)
class Statement:
    """One statement: its claim, the note that a learner keeps, and the claims whose verdicts decide it."""

    claim: str
    note: str
    rests_on: tuple[str, ...]


STATEMENTS = (
    Statement(
        "A10a",
        "Keys and values of earlier tokens never change, so they are computed once and kept. Attention over them is not saved: every step still reads all of them.",
        ("A1.2a", "A1.1a", "A1.1b", "A1.2c"),
    ),
    Statement(
        "A10b",
        "Bytes = 2 (keys and values) × layers × KV heads × head size × bytes per element × tokens, summed over the sequences. Count KV heads, not query heads, and say GiB or GB.",
        ("A2.1a", "A2.1b"),
    ),
    Statement(
        "A10c",
        "Query heads in groups share a KV head: the cache shrinks by the size of a group, the weights and the arithmetic hardly at all.",
        ("A3.1c", "A3.1b", "A3.2b"),
    ),
    Statement(
        "A10d",
        "A buffer of the maximum length is mostly empty. Pages are taken when they are needed, so that only the end of each sequence's last page is empty.",
        ("A4.1e", "A4.1d", "A4.2b"),
    ),
    Statement(
        "A10e",
        "Prompts that begin with the same tokens share the pages of that beginning. One other token at the front, a date say, and nothing after it can be reused.",
        ("A5.1a",),
    ),
    Statement(
        "A10f",
        "A cheap guesser proposes several tokens, one pass of the target checks them all, and the accepted ones are kept. The output follows the target's own distribution.",
        ("A6.1a", "A6.1b", "A6.2a"),
    ),
    Statement(
        "A10g",
        "Who is done leaves after that very step, and who waits takes the slot in the next one. A static batch waits for its longest answer.",
        ("A7.2b", "A7.2a", "A7.3b", "A7.3a"),
    ),
    Statement(
        "A10h",
        "A prompt's tokens share each weight that is read, so arithmetic is the limit. A lone new token reads all weights for itself, so bandwidth is; and a large batch moves decode towards the other side.",
        ("A1.3a", "A1.3b"),
    ),
)


def lacking(statement: Statement, records: Mapping[str, Recorded]) -> list[str]:
    """The claims under a statement that no chapter has judged yet."""
    return [claim for claim in statement.rests_on if claim not in records]


def derived(records: Mapping[str, Recorded], page: str) -> dict[str, Recorded]:
    """A verdict on each statement whose claims all have one, as if ``page`` had recorded it.

    It holds if all of them hold, holds when all their conditions are met, and does not hold if one of them does not.
    The number and its source are those of the first claim.
    """
    found = {}
    for statement in STATEMENTS:
        if lacking(statement, records):
            continue
        below = [records[claim].record for claim in statement.rests_on]
        conditions = [record["condition"] for record in below if record["holds"] == "when"]
        holds: bool | Literal["when"] = all(record["holds"] for record in below)
        if holds and conditions:
            holds = "when"
        verdict = Verdict(
            find_claim(statement.claim),
            holds,
            f"from the verdicts on {', '.join(statement.rests_on)}: {below[0]['measured']}",
            "; and ".join(conditions) if holds == "when" else "",
            below[0]["value"],
            below[0]["unit"],
            below[0]["source"],
        )
        found[statement.claim] = Recorded(page, verdict.record())
    return found
