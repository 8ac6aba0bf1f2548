"""The first mention of a glossary term on a chapter's page leads to the glossary.

An author links a term with ``{term}``; what is not linked where it first stands is linked here. Words that also have
an everyday meaning are left to the author: not every page is a page of the cache.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

EVERYDAY = frozenset({"draft", "head", "key", "page", "slot", "value", "batch", "fork", "knee", "salt", "query", "decode", "token", "latency", "group", "scale", "calibration", "kernel", "program", "split", "ladder", "per token", "per channel"})
"""Terms that only an author can tell from the everyday word, or that every page would link in its first line."""

NOT_PROSE = (
    nodes.literal, nodes.literal_block, nodes.title, nodes.reference, nodes.math, nodes.raw, nodes.caption, nodes.legend,
    nodes.table, addnodes.pending_xref, nodes.comment, nodes.citation_reference,
)  # fmt: skip
"""Where a mention is no first mention in prose."""


def terms_of(glossary: str) -> list[str]:
    """The terms of a glossary's source, in its order."""
    block = re.search(r"```\{glossary\}\n(.*?)```", glossary, re.DOTALL)
    return re.findall(r"^(\S.*)$", block[1], re.MULTILINE) if block else []


def mention(term: str) -> re.Pattern[str]:
    """What counts as a mention: the words, with blanks or hyphens, in the plural too, whatever the case of its letters.

    An abbreviation counts as it is written only: ``SLO`` is not ``slo``.
    """
    words = r"[\s-]".join(re.escape(word) for word in re.split(r"[\s-]", term))
    flags = re.IGNORECASE if term == term.lower() else 0
    return re.compile(rf"(?<![\w-]){words}(?:e?s)?(?![\w-])", flags)


def prose(node: nodes.Node) -> Iterator[nodes.Text]:
    """The texts of a page that are prose, in order."""
    for child in node.children:
        if isinstance(child, nodes.Text):
            yield child
        elif not isinstance(child, NOT_PROSE):
            yield from prose(child)


def first_links(document: nodes.document) -> dict[str, int]:
    """Terms that an author linked → the place of the first such link among the page's nodes."""
    found: dict[str, int] = {}
    for place, node in enumerate(document.findall()):
        if isinstance(node, addnodes.pending_xref) and node.get("reftype") == "term":
            found.setdefault(node["reftarget"].lower(), place)
    return found


class LinkTerms(SphinxTransform):
    """Link first mentions, the longest term first, so that “paged attention” is not “attention”."""

    default_priority = 900

    def apply(self, **kwargs: Any) -> None:
        page = self.env.docname
        source = Path(self.env.srcdir) / "book" / "glossary.md"
        if not re.match(r"book/\d\d-", page) or not source.is_file():
            return
        self.env.note_dependency(str(source))
        terms = [term for term in terms_of(source.read_text("utf-8")) if term not in EVERYDAY]
        for term in sorted(terms, key=len, reverse=True):
            self._link(term)

    def _link(self, term: str) -> None:
        linked = first_links(self.document).get(term.lower())
        places = {id(node): place for place, node in enumerate(self.document.findall())}
        for text in prose(self.document):
            if linked is not None and places[id(text)] > linked:
                return
            if found := mention(term).search(text.astext()):
                before, after = text.astext()[: found.start()], text.astext()[found.end() :]
                parts: list[nodes.Node] = [nodes.Text(before)] if before else []
                parts.append(reference(term, found[0], self.env.docname))
                parts += [nodes.Text(after)] if after else []
                text.parent.replace(text, parts)
                return


def reference(term: str, words: str, page: str) -> addnodes.pending_xref:
    """A link to a term's place in the glossary, as ``{term}`` makes it."""
    link = addnodes.pending_xref(
        "", reftype="term", reftarget=term.lower() if term == term.lower() else term, refdomain="std", refexplicit=True, refdoc=page, refwarn=True
    )
    link += nodes.inline("", words, classes=["xref", "std", "std-term"])
    return link


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_transform(LinkTerms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
