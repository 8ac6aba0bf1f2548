"""Sphinx side of the claims ledger: the roles ``verdict``, ``verdict-word`` and ``claim-count`` and the directive ``claims-ledger``.

A verdict in prose, {verdict}`A1.1a`, is filled in from the record that an executed cell left. Without a
record the build fails and names the page, the line and the claim.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from kvedu.book.claims import Claim, all_claims
from kvedu.book.provenance import common_parts, other_parts
from kvedu.book.records import Recorded, count_verdicts, read_records

logger = logging.getLogger(__name__)


class verdict_node(nodes.Inline, nodes.Element):
    """Stands for a verdict in prose until every notebook has been read."""


class count_node(nodes.Inline, nodes.Element):
    """Stands for a number of claims until every notebook has been read."""


class ledger_node(nodes.General, nodes.Element):
    """Stands for the whole ledger until every notebook has been read."""


class VerdictRole(SphinxRole):
    """``{verdict}`A1.1a```: the recorded verdict, linked to the cell that computed it."""

    short = False

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        node = verdict_node(claim=self.text, short=self.short)
        self.set_source_info(node)
        return [node], []


class VerdictWordRole(VerdictRole):
    """``{verdict-word}`A1.1a```: the verdict without its condition, for the middle of a sentence; the cell's box has the condition."""

    short = True


class CountRole(SphinxRole):
    """``{claim-count}`examined```: how many claims have a verdict; ``all``: how many there are."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        if self.text not in ("examined", "all"):
            return [], [self.inliner.reporter.error(f"claim-count counts 'examined' or 'all', not {self.text!r}", line=self.lineno)]
        return [count_node(which=self.text)], []


class LedgerDirective(SphinxDirective):
    """``{claims-ledger}``: every claim with its verdict, or that it is not examined yet."""

    def run(self) -> list[nodes.Node]:
        return [ledger_node()]


def load_records(app: Sphinx, env: Any) -> None:
    """After all pages are read: take the verdicts out of the executed notebooks."""
    pages = sorted(env.found_docs)
    executed = Path(app.srcdir) / app.config.kvedu_executed
    app.kvedu_records, problems = read_records(executed, pages)  # type: ignore[attr-defined]
    for problem in problems:
        logger.warning(problem, type="kvedu", subtype="verdict")


def fill_in(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Replace the stand-ins of one page."""
    records: dict[str, Recorded] = app.kvedu_records  # type: ignore[attr-defined]
    for node in list(doctree.findall(verdict_node)):
        node.replace_self(_said(app, node, page, records))
    for node in list(doctree.findall(count_node)):
        node.replace_self(nodes.Text(str(len(all_claims() if node["which"] == "all" else records))))
    for node in list(doctree.findall(ledger_node)):
        node.replace_self(_ledger(app, page, records))


def _said(app: Sphinx, node: nodes.Element, page: str, records: dict[str, Recorded]) -> nodes.Node:
    claim_id = node["claim"]
    recorded = records.get(claim_id)
    if recorded is None:
        logger.warning(
            "%s claims a verdict on %s, but no executed cell recorded one; call kvedu.book.ledger.verdict(%r, …)",
            page,
            claim_id,
            claim_id,
            location=node,
            type="kvedu",
            subtype="verdict",
        )
        return nodes.problematic("", f"no verdict on {claim_id}")
    return _link(app, page, recorded, short(recorded) if node["short"] else recorded.words)


def short(recorded: Recorded) -> str:
    """``holds``, ``holds under a condition`` or ``does not hold``."""
    return "holds under a condition" if recorded.record["holds"] == "when" else recorded.words


def _link(app: Sphinx, page: str, recorded: Recorded, text: str) -> nodes.inline:
    """The verdict's own word as the link, its condition as text behind it."""
    uri = app.builder.get_relative_uri(page, recorded.page) + f"#verdict-{recorded.record['claim']}"
    word, when, condition = text.partition(" when ")
    link = nodes.reference("", word, refuri=uri, internal=True, classes=["kv-said"])
    return nodes.inline("", "", link, nodes.Text(when + condition))


def _ledger(app: Sphinx, page: str, records: dict[str, Recorded]) -> list[nodes.Node]:
    counts = count_verdicts(records)
    common = common_parts((recorded.record["source"] for recorded in records.values()), "place", "date", "commit")
    summary = (
        f"Of {len(all_claims())} claims {counts['holds']} hold, {counts['holds when']} hold when …, "
        f"{counts['does not hold']} do not hold; {counts['not examined yet']} are not examined yet. {waiting(records, app.env.found_docs)}"
    )
    result: list[nodes.Node] = [nodes.paragraph("", summary.strip())]
    if common:
        result.append(nodes.paragraph("", origin(common)))
    for document, title in (("A", "Document A, the study chapter"), ("B", "Document B, the glossary article")):
        section = nodes.section(ids=[f"document-{document.lower()}"])
        section += nodes.title("", title)
        rows = [claim for claim in all_claims() if claim.id.startswith(document)]
        section += _table(app, page, rows, records, common)
        result.append(section)
    return result


def waiting(records: dict[str, Recorded], pages: set[str]) -> str:
    """What the claims without a verdict wait for: chapters that do not exist yet, or their own chapter's cell."""
    written = {int(found[1]) for page in pages if (found := re.match(r"book/(\d\d)-", page))}
    by_chapter = Counter(claim.chapter for claim in all_claims() if claim.id not in records)
    later = [chapter for chapter in sorted(by_chapter) if chapter not in written]
    said = []
    if later:
        which = f"chapter {later[0]}, which is" if len(later) == 1 else f"chapters {', '.join(map(str, later))}, which are"
        many = sum(by_chapter[chapter] for chapter in later)
        who = f"{many} of them" if many < by_chapter.total() else "They" if many > 1 else "It"
        said.append(f"{who} {'are' if many > 1 else 'is'} to be examined in {which} not written yet.")
    said += [f"In chapter {chapter}, which is written, {by_chapter[chapter]} still wait{'s' if by_chapter[chapter] == 1 else ''} for a cell." for chapter in sorted(by_chapter) if chapter in written]
    return " ".join(said)


def origin(common: dict[str, str]) -> str:
    """Where the numbers come from, once for all rows."""
    return (
        f"The numbers were computed in the build of this book: {common['place']}, {common['date']}, {common['commit']}. A row of which one of these is not so "
        "says what is: it rests on a stored measurement, or on a page that was executed earlier. A + behind a commit stands for changes that were not committed yet."
    )


def _table(app: Sphinx, page: str, claims: list[Claim], records: dict[str, Recorded], common: dict[str, str]) -> nodes.table:
    table = nodes.table(classes=["kv-ledger"])
    group = nodes.tgroup(cols=4)
    group += [nodes.colspec(colwidth=width) for width in (8, 42, 15, 35)]
    head, body = nodes.thead(), nodes.tbody()
    head += _cells("Id", "Claim", "Verdict", "Measured")
    for claim in claims:
        recorded = records.get(claim.id)
        if recorded is None:
            body += _cells(claim.id, claim.claim, "not examined yet", "")
        else:
            record = recorded.record
            said = _link(app, page, recorded, recorded.words)
            if record["condition"] and record["holds"] != "when":
                said += nodes.Text(f" ({record['condition']})")
            body += _cells(claim.id, claim.claim, said, measured(record, common))
    group += [head, body]
    table += group
    return table


def measured(record: dict[str, Any], common: dict[str, str]) -> str:
    """What was measured, and of its origin what is not the common one."""
    words = record["measured"].rstrip(".")
    apart = other_parts(record["source"], common)
    return f"{words}." + (f" {apart[:1].upper()}{apart[1:]}." if apart else "")


def _cells(*contents: str | nodes.Node) -> nodes.row:
    row = nodes.row()
    for content in contents:
        paragraph = nodes.paragraph()
        paragraph += nodes.Text(content) if isinstance(content, str) else content
        entry = nodes.entry()
        entry += paragraph
        row += entry
    return row


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the role, the directive and the two steps that fill them in."""
    app.add_config_value("kvedu_executed", "_build/executed", "env", [str])
    app.add_node(verdict_node)
    app.add_node(count_node)
    app.add_node(ledger_node)
    app.add_role("verdict", VerdictRole())
    app.add_role("verdict-word", VerdictWordRole())
    app.add_role("claim-count", CountRole())
    app.add_directive("claims-ledger", LedgerDirective)
    app.connect("env-updated", load_records)
    app.connect("doctree-resolved", fill_in)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
