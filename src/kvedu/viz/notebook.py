"""A figure in JupyterLab or Colab: alive with anywidget, else a still picture."""

from __future__ import annotations

import html
from importlib.util import find_spec
from typing import Any

from kvedu.errors import KveduError
from kvedu.viz.sources import RUNTIME, figure_script, joined
from kvedu.viz.still import still


def show(name: str, data: dict[str, Any], **state: Any) -> Any:
    """A figure to end a notebook's cell with.

    ``data`` is what the figure's own module makes (``kvedu.viz.memory.data()``); ``state`` sets controls that
    shall not start where they usually do. With anywidget the object's ``state`` follows the reader's hand and
    can be set. Without it, a still picture with the sentence that reads it out. Raises ``KveduError`` for an
    unknown name.
    """
    figure_script(name)
    if find_spec("anywidget") is not None:
        try:
            return _live(name, data, state)
        except KveduError as error:  # no D3 here
            return StillFigure(name, data, state, str(error))
    return StillFigure(name, data, state, "with `pip install anywidget` this figure is alive")


def _live(name: str, data: dict[str, Any], state: dict[str, Any]) -> Any:
    import anywidget
    import traitlets

    script = joined(name, "mount", "widget")

    class Figure(anywidget.AnyWidget):
        _esm = script
        _css = (RUNTIME / "kvfig.css").read_text(encoding="utf-8")
        name = traitlets.Unicode().tag(sync=True)
        data = traitlets.Dict().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)

    return Figure(name=name, data=data, state=state)


class StillFigure:
    """Shows as a picture; where not even that can be drawn, says what to install."""

    def __init__(self, name: str, data: dict[str, Any], state: dict[str, Any], why: str) -> None:
        self.name, self.data, self.state, self.why = name, data, state, why

    def _repr_html_(self) -> str:
        try:
            drawn = still(self.name, self.data, self.state)
        except KveduError as error:
            return f"<p>{html.escape(f'{self.name}: {error}')}</p>"
        return f"{drawn.svg}<p>{html.escape(drawn.say)}</p><p><small>{html.escape(self.why)}</small></p>"
