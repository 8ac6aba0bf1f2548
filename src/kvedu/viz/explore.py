"""Sliders over a plain function, in a notebook: see what it says for other arguments."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from kvedu.errors import KveduError

WIDGET = "application/vnd.jupyter.widget-view+json"


def explore(function: Callable[..., str], start: Mapping[str, Any] | None = None, **choices: Sequence[Any]) -> Explorer:
    """An object to end a notebook's cell with: one slider for each argument of ``function``.

    ``choices`` gives for each argument the values that its slider stops at; it begins at that of ``start``, else at
    the first. ``function`` is pure and returns text, so that it can be called, read and tested without any slider. With ipywidgets (7.7
    and 8) the text follows the reader's hand; without it, or where nothing runs, the first text is shown. Raises
    ``KveduError`` for an argument without values, and for a start that is none of them.

    >>> explore(lambda tokens: f"{2 * tokens} rows", tokens=(4, 8))
    8 rows
    """
    for name, values in choices.items():
        if not len(values):
            raise KveduError(f"no values for {name!r}; give those that its slider shall stop at, such as {name}=(1, 2, 4)")
    first = {name: values[0] for name, values in choices.items()} | dict(start or {})
    for name, value in first.items():
        if value not in choices.get(name, ()):
            raise KveduError(f"{name} cannot start at {value!r}; it has {list(choices.get(name, ()))}")
    return Explorer(function, choices, first)


class Explorer:
    """Text that a function gives, and the sliders of its arguments where there are widgets.

    ``sliders`` maps an argument to its widget (empty without ipywidgets); ``text`` is what is shown.
    """

    def __init__(self, function: Callable[..., str], choices: dict[str, Sequence[Any]], first: dict[str, Any]) -> None:
        self.function = function
        self.sliders: dict[str, Any] = {}
        self._first = first
        self._box: Any = None
        if find_spec("ipywidgets") is not None:
            self._build(choices)

    @property
    def text(self) -> str:
        """What the function says for the values that the sliders stand at."""
        return self.function(**{name: slider.value for name, slider in self.sliders.items()} or self._first)

    def __repr__(self) -> str:
        return self.text

    def _build(self, choices: dict[str, Sequence[Any]]) -> None:
        import ipywidgets

        style, layout = {"description_width": "12em"}, {"width": "36em", "max_width": "100%"}
        for name, values in choices.items():
            self.sliders[name] = ipywidgets.SelectionSlider(
                options=[(_named(value), value) for value in values], value=self._first[name],
                description=name.replace("_", " "), style=style, layout=layout,
            )  # fmt: skip
        shown = ipywidgets.HTML()

        def show(_change: Any = None) -> None:
            shown.value = f"<pre>{html.escape(self.text)}</pre>"

        show()
        for slider in self.sliders.values():
            slider.observe(show, names="value")
        self._box = ipywidgets.VBox([*self.sliders.values(), shown])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        if self._box is not None:
            bundle[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}
        return bundle


def _named(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
