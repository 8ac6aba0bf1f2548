"""Icons as a stylesheet: what pages name is taken from the theme's own script, by its name or an older one."""

import sys
from pathlib import Path

import pydata_sphinx_theme
import pytest
from sphinx.errors import ExtensionError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))
from kvedu_icons import TAG, icon_rule, stylesheet  # noqa: E402

THEME = Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static" / "scripts"
SCRIPT = (THEME / "fontawesome.js").read_text("utf-8")


@pytest.mark.parametrize("name", ["sun", "magnifying-glass", "chevron-down", "github", "pencil-alt", "rocket", "lightbulb", "xmark"])
def test_an_icon_is_found(name: str) -> None:
    rule = icon_rule(name, SCRIPT)
    assert rule.startswith(f".fa-{name} {{") and "path" in rule and len(rule) < 6000


def test_an_icon_that_is_not_there_stops_the_build() -> None:
    with pytest.raises(ExtensionError, match="fa-unicorn-horn-9"):
        icon_rule("unicorn-horn-9", SCRIPT)


def test_only_what_is_named() -> None:
    css = stylesheet(['<i class="fa-solid fa-sun fa-lg"></i><i class="fab fa-github"></i>', 'x.className = "fa-solid fa-xmark"'], SCRIPT)
    assert [line.split()[0] for line in css.splitlines() if line.startswith(".fa-")] == [".fa-github", ".fa-sun", ".fa-xmark"]
    assert len(css) < 10_000


def test_the_script_is_replaced_wherever_the_page_lies() -> None:
    tag = '<script defer src="../_static/scripts/fontawesome.js?digest=55c2"></script>'
    assert TAG.sub(r'<link href="\1icons.css">', tag) == '<link href="../_static/icons.css">'
