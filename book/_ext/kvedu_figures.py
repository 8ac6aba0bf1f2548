"""Sphinx side of living figures: the ``live-figure`` directive.

    ```{live-figure} memory
    :name: fig-memory
    :data: figures/02_memory.json
    Caption, in MyST.
    ```

Without ``:data:`` the figure's own module makes its data: ``kvedu.viz.memory.data()``. ``:with:`` gives that
function arguments and ``:start:`` gives controls other values to start with, both as JSON. The page holds the still
picture and the data; the scripts make it alive, and only pages with a figure load them. An ePub gets the picture.
"""

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from kvedu.errors import KveduError
from kvedu.viz.sources import HERE, RUNTIME, SHARED, drawing_library, figure_script
from kvedu.viz.still import page_html

FOLDER = "figures"
"""Where the scripts lie under ``_static``."""


class LiveFigure(SphinxDirective):
    """``{live-figure} NAME``: a figure that answers, with its caption."""

    required_arguments = 1
    has_content = True
    option_spec = {  # noqa: RUF012
        "name": directives.unchanged,
        "data": directives.unchanged,
        "with": directives.unchanged,
        "start": directives.unchanged,
        "title": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        try:
            data = self._data(name)
            html = page_html(name, data, alive=self.env.app.builder.name != "epub")
        except (KveduError, OSError, ValueError) as error:
            raise self.error(f"live-figure {name}: {error}") from None
        for path in (figure_script(name), *(RUNTIME / f"{part}.js" for part in SHARED), HERE / f"{name}.py"):
            self.env.note_dependency(str(path))
        figure = nodes.figure(classes=["kvfig-frame"], kvfig=name)
        figure += nodes.raw("", html, format="html")
        caption = nodes.caption()
        parsed = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, parsed)
        if not (parsed.children and isinstance(parsed[0], nodes.paragraph)):
            raise self.error(f"live-figure {name}: it has no caption; write what it shows, and what to try")
        caption += parsed[0].children
        figure += caption
        if source := data.get("source"):
            figure += nodes.legend("", source_line(source))
        self.set_source_info(figure)
        self.add_name(figure)
        return [figure]

    def _data(self, name: str) -> dict[str, Any]:
        figure_script(name)
        if path := self.options.get("data"):
            file = Path(self.env.doc2path(self.env.docname)).parent / path
            self.env.note_dependency(str(file))
            data = json.loads(file.read_text("utf-8"))
        else:
            make = importlib.import_module(f"kvedu.viz.{name}").data
            data = make(**json.loads(self.options.get("with", "{}")))
        if data.get("figure", name) != name:
            raise KveduError(f"this data is of figure {data['figure']!r}")
        start = data.get("start", {}) | json.loads(self.options.get("start", "{}"))
        return data | {"start": start, "title": self.options.get("title", data.get("title", name))}


def source_line(source: str) -> nodes.paragraph:
    """Where the data is from; what stands in backquotes is code."""
    line = nodes.paragraph("", "Data: ", classes=["kvfig-source"])
    for at, part in enumerate(source.split("`")):
        line += nodes.literal("", part) if at % 2 else nodes.Text(part)
    return line


def copy_scripts(app: Sphinx) -> None:
    """Put the scripts where pages look for them."""
    if app.builder.format != "html":
        return
    target = Path(app.outdir) / "_static" / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    try:
        library = [drawing_library()]
    except KveduError:
        library = []  # a page with a figure will say so
    runtime = [path for path in RUNTIME.iterdir() if path.stem not in ("node", "widget")]
    for path in [*library, *runtime, *HERE.glob("*.js")]:
        shutil.copyfile(path, target / path.name)


def add_scripts(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the scripts on pages that hold a figure."""
    if doctree is None:
        return
    names = sorted({node["kvfig"] for node in doctree.findall(nodes.figure) if node.get("kvfig")})
    if names and app.builder.name != "epub":
        app.add_css_file(f"{FOLDER}/kvfig.css")
        for script in ("d3", *SHARED, *names, "mount", "page"):
            app.add_js_file(f"{FOLDER}/{script}.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the two steps."""
    app.add_directive("live-figure", LiveFigure)
    app.connect("builder-inited", copy_scripts)
    app.connect("html-page-context", add_scripts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
