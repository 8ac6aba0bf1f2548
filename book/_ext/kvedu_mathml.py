"""Formulas of an ePub as MathML, which its readers draw themselves; on the pages MathJax draws them."""

import re
from typing import Any, NoReturn

from docutils import nodes
from latex2mathml.converter import convert
from latex2mathml.exceptions import NoAvailableTokensError
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


def mathml(formula: str, *, display: bool) -> str:
    """A formula in TeX as a ``<math>`` element. Raises ``ExtensionError`` with the formula for TeX it does not know."""
    try:
        made = convert(formula.replace("{aligned}", "{align*}"), display="block" if display else "inline")
    except (NoAvailableTokensError, ValueError, IndexError, StopIteration) as error:
        raise ExtensionError(f"no MathML for the formula {formula!r}: {error!r}") from error
    if "\\" in made or re.search("&(?!#)", made):
        raise ExtensionError(f"no MathML for a part of the formula {formula!r}; it came out as {made}")
    return made


def visit_math(translator: Any, node: nodes.math) -> NoReturn:
    """Inline."""
    translator.body.append(mathml(node.astext(), display=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> NoReturn:
    """On a line of its own."""
    label = f' id="{node["ids"][0]}"' if node["ids"] else ""
    translator.body.append(f"<div{label}>{mathml(node.astext(), display=True)}</div>\n")
    raise nodes.SkipNode


def choose(app: Sphinx) -> None:
    """MathML where the book becomes an ePub, MathJax elsewhere: left alone, Sphinx takes whichever is not its own."""
    app.config.html_math_renderer = "mathml" if app.builder.name == "epub" else "mathjax"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; ahead of Sphinx's own look at the choice."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_block, None))
    app.connect("builder-inited", choose, priority=1)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
