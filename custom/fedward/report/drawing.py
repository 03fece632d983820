"""Axes with fixed margins, and inline SVG: text stays text, colours follow the page's light or dark
scheme.
"""

import io
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
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

INK = "#010203"
FAINT = "#040506"
SHADE = "#070809"
WARM = "#070810"
SERIES = ("#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05", "#0a0b06")
"""Stand-ins that become CSS variables, since an SVG attribute can hold a variable and matplotlib
cannot.
"""

_VARIABLES = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    SHADE: "var(--shade)",
    WARM: "var(--warm)",
} | {colour: f"var(--series-{index})" for index, colour in enumerate(SERIES, 1)}
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


def axes_of(
    width: float, height: float, left: float, bottom: float, top: float = 0.12
) -> tuple[Figure, Any]:
    """Return a figure and its axes, all in inches; ``left``, ``bottom`` and ``top`` are margins for
    what is beside.

    Margins are fixed: measuring text takes half of the time of a figure, and a browser has other
    fonts.
    """
    right = 0.15
    inside = (
        left / width,
        bottom / height,
        1 - (left + right) / width,
        1 - (bottom + top) / height,
    )
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes(inside)
        axes.grid(axis="y", color=FAINT, alpha=0.35, linewidth=0.6)
        axes.tick_params(length=3, width=0.6)
    return figure, axes


def xy(line: Line) -> tuple[list[int], list[float]]:
    """Return a line's rounds and values, of a very long one the lowest and highest in each of many
    equal parts.
    """
    rounds = list(line)
    values = list(line.values())
    if len(rounds) <= _POINTS:
        return rounds, values
    parts = np.array_split(np.arange(len(rounds)), _POINTS // 2)
    extremes = (
        {min(part, key=values.__getitem__), max(part, key=values.__getitem__)} for part in parts
    )
    kept = [0, *sorted(index for both in extremes for index in both), len(rounds) - 1]
    return [rounds[index] for index in kept], [values[index] for index in kept]


def bars(
    axes: Any,
    rounds: Sequence[int],
    low: Values,
    high: Values,
    colour: str,
    label: str | None = None,
) -> None:
    """Fill from ``low`` to ``high`` between r - 0.4 and r + 0.4 of each round r: one shape, however
    many rounds.
    """
    at = np.asarray(rounds, dtype=float)
    zero = low * 0
    edges = np.stack([at - 0.4, at - 0.4, at + 0.4, at + 0.4], axis=1).ravel()
    lows, highs = (np.stack([zero, values, values, zero], axis=1).ravel() for values in (low, high))
    axes.fill_between(edges, lows, highs, color=colour, linewidth=0, label=label)


def svg(
    figure: Figure, words: str, below: str = "", told: Mapping[str, Line] | None = None
) -> Markup:
    """Return the figure as an ``<svg>`` that scales with its column; ``words`` describe it to who
    cannot see it.

    ``below`` is what :func:`drawn` returned of a figure of the same size, to lie under this one.
    ``told``: name -> line whose values a script shows under the pointer; the figure then needs no
    ``<title>``, which would cover them.
    """
    width, height = figure.get_size_inches() * 72
    label = escape(words)
    more = f' data-values="{escape(_values(figure, told))}"' if told else ""
    title = "" if told else f"<title>{label}</title>"
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}"{more}'
        f' style="max-width: {round(width * 4 / 3)}px">{title}{below}{drawn(figure)}</svg>'
    )


def palette() -> str:
    """Return the report's colours of lines and text as CSS, for a picture that stands alone on a
    light or dark page.
    """
    css = files("fedward.report").joinpath("report.css").read_text(encoding="utf-8")
    light, dark, *_ = (
        "; ".join(re.findall(r"--(?:ink|faint|series-\d): #\w+", block))
        for block in re.findall(r":root {(.*?)}", css, re.DOTALL)
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def _values(figure: Figure, lines: Mapping[str, Line]) -> str:
    """Return lines as JSON, with the ends of the axis across, in units of the SVG and of the axis."""
    axes = figure.axes[0]
    box = axes.get_position()
    width = figure.get_size_inches()[0] * 72
    rounds = sorted({round_ for line in lines.values() for round_ in xy(line)[0]})
    shown = [
        [name, [round(line[r], 3) if r in line else None for r in rounds]]
        for name, line in lines.items()
    ]
    ends = [round(float(value), 2) for value in (box.x0 * width, box.x1 * width, *axes.get_xlim())]
    return json.dumps(
        {"name": "round", "axis": ends, "x": rounds, "lines": shown}, separators=(",", ":")
    )


def drawn(figure: Figure) -> str:
    """Return what stands in the figure's ``<svg>``."""
    for artist in figure.findobj(Text):
        artist.set_parse_math(False)  # a site or a run may be called $x$
    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(
            buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    body = buffer.getvalue().partition("<svg")[2].partition(">")[2].rpartition("</svg>")[0]
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    for stand_in, variable in _VARIABLES.items():
        body = body.replace(stand_in, variable)
    return body
