"""Axes with fixed margins, and inline SVG: text stays text, colours follow the page's light or dark scheme."""

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

Line = Mapping[int, float]
"""Round -> value."""
Values = NDArray[np.float64]

INK, FAINT, SHADE = "#010203", "#040506", "#070809"
SERIES = ("#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05", "#0a0b06")
"""Stand-ins that become CSS variables, since an SVG attribute can hold a variable and matplotlib cannot."""

_VARIABLES = {INK: "var(--ink)", FAINT: "var(--faint)", SHADE: "var(--shade)"} | {
    colour: f"var(--series-{index})" for index, colour in enumerate(SERIES, 1)
}
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedward",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
_POINTS = 600
"""So many points of a line are drawn at most: a picture has no more pixels, and a page is sent."""


def axes_of(width: float, height: float, left: float, bottom: float) -> tuple[Figure, Any]:
    """Return a figure and its axes, all in inches; ``left`` and ``bottom`` are margins for ticks and labels.

    Margins are fixed: measuring text takes half of the time of a figure, and a browser has other fonts.
    """
    right, top = 0.15, 0.12
    inside = (left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes(inside)
        axes.grid(axis="y", color=FAINT, alpha=0.35, linewidth=0.6)
        axes.tick_params(length=3, width=0.6)
    return figure, axes


def xy(line: Line) -> tuple[list[int], list[float]]:
    """Return a line's rounds and values, of a very long one the lowest and highest in each of many equal parts."""
    rounds, values = list(line), list(line.values())
    if len(rounds) <= _POINTS:
        return rounds, values
    parts = np.array_split(np.arange(len(rounds)), _POINTS // 2)
    extremes = ({min(part, key=values.__getitem__), max(part, key=values.__getitem__)} for part in parts)
    kept = [0, *sorted(index for both in extremes for index in both), len(rounds) - 1]
    return [rounds[index] for index in kept], [values[index] for index in kept]


def bars(axes: Any, rounds: Sequence[int], low: Values, high: Values, colour: str, label: str | None = None) -> None:
    """Fill from ``low`` to ``high`` between r - 0.4 and r + 0.4 of each round r: one shape, however many rounds."""
    at, zero = np.asarray(rounds, dtype=float), low * 0
    edges = np.stack([at - 0.4, at - 0.4, at + 0.4, at + 0.4], axis=1).ravel()
    lows, highs = (np.stack([zero, values, values, zero], axis=1).ravel() for values in (low, high))
    axes.fill_between(edges, lows, highs, color=colour, linewidth=0, label=label)


def svg(figure: Figure, words: str, below: str = "") -> Markup:
    """Return the figure as an ``<svg>`` that scales with its column; ``words`` describe it to who cannot see it.

    ``below`` is what :func:`drawn` returned of a figure of the same size, to lie under this one.
    """
    width, height = figure.get_size_inches() * 72
    title = escape(words)
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{title}"'
        f' style="max-width: {round(width * 4 / 3)}px"><title>{title}</title>{below}{drawn(figure)}</svg>'
    )


def drawn(figure: Figure) -> str:
    """Return what stands in the figure's ``<svg>``."""
    for artist in figure.findobj(Text):
        artist.set_parse_math(False)  # a site or a run may be called $x$
    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    body = buffer.getvalue().partition("<svg")[2].partition(">")[2].rpartition("</svg>")[0]
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    for stand_in, variable in _VARIABLES.items():
        body = body.replace(stand_in, variable)
    return body
