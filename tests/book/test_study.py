"""The study notes: each statement's verdict follows from those of its claims, and from nothing else."""

import sys
from pathlib import Path

import pytest
from docutils import nodes

from kvedu.book.claims import all_claims, find_claim
from kvedu.book.ledger import judge
from kvedu.book.records import Recorded
from kvedu.book.study import STATEMENTS, Statement, derived, lacking

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))
import kvedu_study  # noqa: E402

PAGE = "book/10-check-yourself"


def recorded(claim: str, holds: bool | str = True, condition: str = "") -> Recorded:
    return Recorded("book/01", judge(claim, holds, measured=f"{claim} gave 7", condition=condition, value=7, unit="x").record())


def all_holding() -> dict[str, Recorded]:
    return {claim: recorded(claim) for statement in STATEMENTS for claim in statement.rests_on}


def test_the_statements_are_the_eight_of_the_source_and_rest_on_earlier_claims() -> None:
    assert [statement.claim for statement in STATEMENTS] == [claim.id for claim in all_claims() if claim.id.startswith("A10")]
    for statement in STATEMENTS:
        assert all(find_claim(claim).chapter < 10 for claim in statement.rests_on)
        assert len(set(statement.rests_on)) == len(statement.rests_on)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.claim)
def test_without_one_of_its_claims_a_statement_is_not_examined(statement: Statement) -> None:
    for claim in statement.rests_on:
        records = all_holding()
        del records[claim]
        assert statement.claim not in derived(records, PAGE) and lacking(statement, records) == [claim]
    own = derived(all_holding(), PAGE)[statement.claim]
    assert own.page == PAGE and own.words == "holds" and f"{statement.rests_on[0]} gave 7" in own.record["measured"]
    assert own.record["claim"] == statement.claim and own.record["source"]["commit"]


def test_conditions_add_up_and_one_failure_decides() -> None:
    records = all_holding() | {"A1.3a": recorded("A1.3a", "when", "S > 12"), "A1.3b": recorded("A1.3b", "when", "B < 11")}
    assert derived(records, PAGE)["A10h"].words == "holds when S > 12; and B < 11"
    records["A1.3b"] = recorded("A1.3b", False)
    assert derived(records, PAGE)["A10h"].words == "does not hold"
    assert derived(records, PAGE)["A10a"].words == "holds"


class Builder:
    def get_relative_uri(self, page: str, other: str) -> str:
        return f"{other}.html"


class App:
    builder = Builder()
    kvedu_records: dict[str, Recorded]


def test_the_page_shows_verdict_number_and_link_or_says_what_it_waits_for() -> None:
    app = App()
    app.kvedu_records = {claim: record for claim, record in all_holding().items() if claim != "A6.1b"}
    app.kvedu_records["A4.1e"] = recorded("A4.1e", "when", "pages are short")
    app.kvedu_records |= derived(app.kvedu_records, PAGE)
    tree = nodes.container("", kvedu_study.study_node())
    kvedu_study.fill_in(app, tree, PAGE)
    items = {item["ids"][0]: item for item in tree.findall(nodes.list_item) if item["ids"]}
    assert list(items) == [f"verdict-{statement.claim}" for statement in STATEMENTS]
    assert "Holds." in items["verdict-A10a"].astext()
    waits = items["verdict-A10f"].astext()
    assert "Not yet examined. It waits for chapter 6." in waits and "A6.1a gave 7" in waits
    pages = items["verdict-A10d"]
    assert "Holds when pages are short." in pages.astext() and "Found: A4.1e gave 7." in pages.astext()
    app.kvedu_records |= {"A4.1d": recorded("A4.1d", False)}
    app.kvedu_records |= derived(app.kvedu_records, PAGE)
    failed = nodes.container("", kvedu_study.study_node())
    kvedu_study.fill_in(app, failed, PAGE)
    assert "A4.1e gave 7 (holds when pages are short)." in failed.astext() and "A4.1d gave 7 (does not hold)." in failed.astext()
    assert [link["refuri"] for link in pages.findall(nodes.reference)] == [f"book/01.html#verdict-{claim}" for claim in ("A4.1e", "A4.1d", "A4.2b")]
