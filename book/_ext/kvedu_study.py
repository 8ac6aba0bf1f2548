"""Sphinx side of the study notes: ``{study-notes}``, the eight statements with their verdicts and the numbers behind them.

Their verdicts follow from those that the chapters recorded, so they are added to the ledger after all pages are read.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from kvedu.book.claims import find_claim
from kvedu.book.records import Recorded
from kvedu.book.study import STATEMENTS, Statement, derived, lacking


class study_node(nodes.General, nodes.Element):
    """Stands for the study notes until every notebook has been read."""


class StudyNotes(SphinxDirective):
    """``{study-notes}``."""

    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname]["kvedu_study"] = "yes"
        return [study_node()]


def add_verdicts(app: Sphinx, env: Any) -> None:
    """After the chapters' verdicts are read: those that follow from them."""
    for page in sorted(env.found_docs):
        if env.metadata[page].get("kvedu_study"):
            app.kvedu_records |= derived(app.kvedu_records, page)  # type: ignore[attr-defined]


def fill_in(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Replace the stand-in."""
    records: dict[str, Recorded] = app.kvedu_records  # type: ignore[attr-defined]
    for node in list(doctree.findall(study_node)):
        listed = nodes.enumerated_list(classes=["kv-study"], enumtype="arabic", prefix="", suffix=".")
        listed += [_item(app, page, statement, records) for statement in STATEMENTS]
        node.replace_self(listed)


def _item(app: Sphinx, page: str, statement: Statement, records: dict[str, Recorded]) -> nodes.list_item:
    title = find_claim(statement.claim).claim.removeprefix("Must know: ")
    item = nodes.list_item(ids=[f"verdict-{statement.claim}"])
    item += nodes.paragraph("", "", nodes.strong("", title[0].upper() + title[1:]), nodes.Text(f" {statement.note}"))
    own = records.get(statement.claim)
    if own is None:
        chapters = sorted({find_claim(claim).chapter for claim in lacking(statement, records)})
        waits = f"It waits for chapter {' and '.join(map(str, chapters))}."
        item += nodes.paragraph("", "", nodes.strong("", "Not yet examined."), nodes.Text(f" {waits}"))
    else:
        words = own.words[0].upper() + own.words[1:]
        item += nodes.paragraph("", "", nodes.strong("", f"{words.rstrip('.')}."))
    below = nodes.bullet_list()
    said = own is not None and own.record["holds"] is not False  # then all conditions stand in the line above
    below += [_behind(app, page, claim, records, said) for claim in statement.rests_on if claim in records]
    if len(below):
        item += below
    return item


def _behind(app: Sphinx, page: str, claim: str, records: dict[str, Recorded], said: bool) -> nodes.list_item:
    recorded = records[claim]
    uri = app.builder.get_relative_uri(page, recorded.page) + f"#verdict-{claim}"
    link = nodes.reference("", claim, refuri=uri, internal=True, classes=["kv-said"])
    verdict = "" if said or recorded.record["holds"] is True else f" ({recorded.words})"
    found = nodes.Text(f" Found: {recorded.record['measured'].rstrip('.')}{verdict}.")
    return nodes.list_item("", nodes.paragraph("", "", link, nodes.Text(" "), nodes.emphasis("", find_claim(claim).claim), found))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, and the steps after those of ``kvedu_verdicts``."""
    app.add_node(study_node)
    app.add_directive("study-notes", StudyNotes)
    app.connect("env-updated", add_verdicts, priority=600)
    app.connect("doctree-resolved", fill_in)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
