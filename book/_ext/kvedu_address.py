"""Links that need the repository's public address: all of them with one, none without.

The address is ``repository.url`` in ``_config.yml``. With it, pages have edit, issue and repository links,
and notebooks of the labs a Colab button; chapters have no Colab button, since Colab cannot open their format.
"""

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

COLAB = "https://colab.research.google.com"
BUTTONS = ("use_edit_page_button", "use_issues_button", "use_repository_button")


def use_address(app: Sphinx, config: Config) -> None:
    """Switch the buttons on or off before the theme reads its options."""
    options = config.html_theme_options
    address = bool(options.get("repository_url"))
    options.update({button: address for button in BUTTONS})
    options["launch_buttons"] = {"colab_url": COLAB, "notebook_interface": "jupyterlab"} if address else {}


def drop_dead_buttons(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Take launch buttons off pages that are no .ipynb file."""
    if doctree is not None and not app.env.doc2path(page).endswith(".ipynb"):
        buttons = context.get("header_buttons", [])
        context["header_buttons"] = [button for button in buttons if button.get("label") != "launch-buttons"]


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the two steps; the theme adds its launch buttons at priority 501."""
    app.connect("config-inited", use_address, priority=1)
    app.connect("html-page-context", drop_dead_buttons, priority=502)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
