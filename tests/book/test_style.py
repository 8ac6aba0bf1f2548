"""Figures read on both themes: transparent SVG, contrast on white and on the dark page, labelled axes."""

import io

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt  # noqa: E402
import pytest  # noqa: E402

from kvedu.book.style import CYCLE, INK, labelled_axes, use_book_style  # noqa: E402

LIGHT, DARK = "#ffffff", "#14181e"


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", [LIGHT, DARK])
def test_contrast(page: str) -> None:
    assert contrast(INK, page) >= 3.7
    assert all(contrast(color, page) >= 3.0 for color in CYCLE), [round(contrast(color, page), 1) for color in CYCLE]


def test_figure_is_transparent_text_stays_text_and_axes_are_labelled() -> None:
    with matplotlib.rc_context():
        use_book_style()
        ax = labelled_axes("cached tokens S", "time (ms)", title="t")
        ax.plot([0, 1], [0, 1])
        out = io.StringIO()
        ax.figure.savefig(out, format="svg")
        plt.close(ax.figure)
    svg = out.getvalue()
    assert ">cached tokens S</text>" in svg and INK in svg
    assert "fill: #ffffff" not in svg


def test_an_empty_label_is_refused() -> None:
    with pytest.raises(ValueError, match="label"):
        labelled_axes("cached tokens S", " ")
