"""On each chapter: a line that says where its lab is and how to run it; on every page: the versions behind the outputs.

The Colab link needs the public address; without it the line has the two ways that work anyway.
"""

import html
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

COLAB = "https://colab.research.google.com/github/{repository}/blob/{branch}/{path}"
PACKAGES = ("kvedu", "torch", "numpy")


def run_line(page: str, labs: list[str], address: str, branch: str, uri: str) -> str:
    """The line of a chapter, or nothing where it has no lab yet. ``uri`` leads to the lab's page."""
    number = re.match(r"book/(\d\d)-", page)
    lab = next((name for name in labs if number and name.startswith(f"labs/{number[1]}-")), None)
    if lab is None:
        return ""
    ways = []
    if match := re.match(r"https://github\.com/([^/]+/[^/]+)", address):
        link = COLAB.format(repository=match[1], branch=branch, path=f"{lab}.ipynb")
        ways.append(f'<a href="{html.escape(link)}">open it in Colab</a>')
    ways.append(f"run <code>make lab</code> and open <code>{html.escape(Path(lab).name)}.ipynb</code>")
    return (
        f'<div class="kv-run" role="note"><strong>Run this.</strong> The chapter\'s lab is <a href="{html.escape(uri)}">here to read</a>; '
        f"to work in it, {' or '.join(ways)}.</div>"
    )


def versions_line() -> str:
    """Python and the packages that decide an output."""
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"Outputs of chapters: {', '.join(found)}, on {platform.system()} {platform.machine()}."


def set_footer(app: Sphinx, config: Config) -> None:
    """Before the theme reads its options."""
    config.html_theme_options["extra_footer"] = f"<p>{html.escape(versions_line())}</p>"


def add_line(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Below the chapter's title."""
    if doctree is None or "body" not in context or app.builder.name == "epub":
        return
    labs = [name for name in app.env.found_docs if name.startswith("labs/") and "/solutions/" not in name]
    lab = next((name for name in labs if re.match(r"book/\d\d-", page) and name[5:8] == page[5:8]), page)
    options = app.config.html_theme_options
    line = run_line(
        page, labs, options.get("repository_url") or "", options.get("repository_branch") or "main", app.builder.get_relative_uri(page, lab)
    )
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{line}", 1)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the two steps."""
    app.connect("config-inited", set_footer, priority=1)
    app.connect("html-page-context", add_line)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
