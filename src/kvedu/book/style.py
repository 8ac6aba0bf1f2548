"""Figure style: vector output that reads on a light and on a dark page."""

from typing import Any

INK = "#7a8290"
"""Text and axes: a mid-tone with a contrast of at least 3.7 on white and on the dark page."""

CYCLE = ("#2f80d0", "#d9731a", "#2e9c6a", "#c4504f", "#8f6fd0", "#a07d2c")
"""Line colors, told apart in both themes; markers and line styles should differ too."""


def use_book_style() -> None:
    """Set matplotlib up for the book: SVG, transparent background, mid-tone text, no top and right spines."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.rcParams.update(
        {
            "figure.figsize": (6.4, 3.6),
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "savefig.transparent": True,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": INK,
            "axes.titlecolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": INK,
            "grid.alpha": 0.25,
            "axes.prop_cycle": cycler(color=CYCLE),
            "svg.fonttype": "none",
            "svg.hashsalt": "kvedu",
            "font.size": 11,
        }
    )
    _use_svg_in_notebooks()


def labelled_axes(x: str, y: str, *, title: str = "", **subplots: Any) -> Any:
    """A figure's one axes with both labels set: ``ax = labelled_axes("cached tokens S", "time per token (ms)")``.

    A label names its quantity and its unit. Raises ``ValueError`` for an empty one.
    """
    import matplotlib.pyplot as plt

    if not x.strip() or not y.strip():
        raise ValueError("an axis without a label; name the quantity and its unit, as in 'time per token (ms)'")
    _, ax = plt.subplots(layout="constrained", **subplots)
    ax.set(xlabel=x, ylabel=y, title=title)
    return ax


def _use_svg_in_notebooks() -> None:
    try:
        from IPython.core.getipython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("svg", bbox_inches="tight")
