"""Signs in prose: a computed number is printed with a minus and a date stays on its line, on every page.

Sphinx turns straight quotes in sources into curly ones; what a cell computed, or an extension wrote, passes through here.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from kvedu.book.wording import typeset

VERBATIM = (nodes.literal, nodes.literal_block, nodes.doctest_block, nodes.math, nodes.math_block, nodes.raw, nodes.comment)
"""Where a sign is a program's."""


def set_signs(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Set all texts of a page that are prose."""
    for text in list(doctree.findall(nodes.Text)):
        words = text.astext()
        if any(sign in words for sign in "-'") and not _is_verbatim(text) and typeset(words) != words:
            text.parent.replace(text, nodes.Text(typeset(words)))


def _is_verbatim(text: nodes.Text) -> bool:
    node: nodes.Node | None = text.parent
    while node is not None:
        if isinstance(node, VERBATIM):
            return True
        node = node.parent
    return False


def setup(app: Sphinx) -> dict[str, Any]:
    """After every other extension has put in its words."""
    app.connect("doctree-resolved", set_signs, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
