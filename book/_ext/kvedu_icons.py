"""A stylesheet of the few icons that the pages show, in place of the theme's script of two thousand.

The theme draws its icons with Font Awesome's script, 1.5 MB on every page. After the build the icons that pages
really name are taken out of it, as CSS masks; the script goes. An icon that is not in the script stops the build.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

SCRIPT = "_static/scripts/fontawesome.js"
TAG = re.compile(r'<script defer src="([^"]*)scripts/fontawesome\.js[^"]*"></script>')
NAMED = re.compile(r"\bfa(?:-solid|-brands|-regular|s|b|r) fa-([a-z0-9-]+)")
RULES = """/* Icons: Font Awesome Free (CC BY 4.0, https://fontawesome.com/license/free), those that these pages use. */
:is(.fa-solid, .fa-brands, .fa-regular, .fas, .fab, .far)::before {
  content: "" !important; display: inline-block; width: 1.1em; height: 1em; vertical-align: -0.125em;
  background: currentColor; mask: var(--kv-icon) center / contain no-repeat;
}
@media (forced-colors: active) { :is(.fa-solid, .fa-brands, .fa-regular, .fas, .fab, .far)::before { background: ButtonText; } }
"""


def icon_rule(name: str, script: str) -> str:
    """The rule of one icon, from the script's own drawing. Raises ``ExtensionError`` where it has none."""
    drawing, alias = r'"[0-9a-f]+","([^"]+)"\]', rf'\[(\d+),(\d+),\[[^\]]*"{re.escape(name)}"[^\]]*\],'
    found = re.findall(rf'[{{,]"?{re.escape(name)}"?:\[(\d+),(\d+),\[[^\]]*\],{drawing}', script)
    found = found or re.findall(alias + drawing, script)
    if not found:
        raise ExtensionError(f"the icon fa-{name} is not in the theme's script; use another in the page's template")
    width, height, path = found[-1]  # the solid drawing stands last
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><path d="{path}"/></svg>'
    return f'.fa-{name} {{ --kv-icon: url("data:image/svg+xml,{quote(svg)}"); }}'


def stylesheet(texts: list[str], script: str) -> str:
    """The rules of all icons that the texts (pages and scripts) name."""
    names = sorted({name for text in texts for name in NAMED.findall(text)})
    return RULES + "\n".join(icon_rule(name, script) for name in names) + "\n"


def replace_icons(app: Sphinx, error: Exception | None) -> None:
    """After the pages are written."""
    out = Path(app.outdir)
    script = out / SCRIPT
    if error is not None or app.builder.format != "html" or not script.is_file():
        return
    pages = {path: path.read_text("utf-8") for path in out.rglob("*.html") if "_static" not in path.parts}
    others = [path.read_text("utf-8") for path in (out / "_static").rglob("*.js") if path != script and "vendor" not in path.parts]
    (out / "_static" / "icons.css").write_text(stylesheet([*pages.values(), *others], script.read_text("utf-8")), "utf-8")
    for path, text in pages.items():
        path.write_text(TAG.sub(r'<link rel="stylesheet" href="\1icons.css">', text), "utf-8")
    for path in script.parent.glob("fontawesome.js*"):
        path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the step."""
    app.connect("build-finished", replace_icons)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
