"""Every formula of the book has a MathML form, so that an ePub shows formulas and not TeX."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
from kvedu_mathml import mathml  # noqa: E402

FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$\n`]+?)\$", re.DOTALL)


def formulas() -> list[str]:
    """What stands between dollars on the book's pages and in the labs, code left out."""
    found: set[str] = set()
    for path in [*(ROOT / "book").glob("*.md"), *(ROOT / "labs" / "masters").glob("*.py")]:
        prose = re.sub(r"```\{code-cell\}.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
        found |= {(block or inline).strip() for block, inline in FORMULA.findall(prose)}
    return sorted(found)


def test_every_formula_is_known() -> None:
    assert len(formulas()) > 5
    for formula in formulas():
        ElementTree.fromstring(mathml(formula, display=True))


@pytest.mark.parametrize(
    ("formula", "tag"),
    [
        (r"\frac{a}{b}", "mfrac"), ("x^2", "msup"), (r"\sqrt{D}", "msqrt"), (r"\sum_{i=1}^{n} i", "munderover"),
        (r"\begin{aligned} a &= b \\ c &= d \end{aligned}", "mtr"),
    ],
)  # fmt: skip
def test_it_is_drawn_not_spelled(formula: str, tag: str) -> None:
    assert f"<{tag}>" in mathml(formula, display=True)


@pytest.mark.parametrize("formula", [r"\unheard{x}", r"a + \nope", "a & b"])
def test_unknown_tex_stops_the_build(formula: str) -> None:
    with pytest.raises(ExtensionError, match="no MathML for"):
        mathml(formula, display=False)
