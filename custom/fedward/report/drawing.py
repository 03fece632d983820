"""Axes with fixed margins, and inline SVG whose colours follow the page's light or dark scheme."""

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
"""Colours that stand for CSS variables.

matplotlib knows no variables. It draws these colours, which the SVG replaces.
"""

_VARIABLES = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    SHADE: "var(--shade)",
    WARM: "var(--warm)",
}
for _number, _colour in enumerate(SERIES, start=1):
    _VARIABLES[_colour] = f"var(--series-{_number})"
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
"""Most points that are drawn of a line: a picture has no more pixels, and a page is sent."""


def axes_of(
    width: float,
    height: float,
    left: float,
    bottom: float,
    top: float = 0.12,
    right: float = 0.15,
) -> tuple[Figure, Any]:
    """Return a figure and its axes.

    Margins are fixed, because measuring text takes half of the time of a figure, and a browser has
    other fonts.

    Args:
        width: of the figure in inches, as all others.
        height: of the figure.
        left: margin for labels.
        bottom: margin for labels.
        top: margin.
        right: margin.
    """
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


def fitting(name: str, width: int) -> str:
    """Return a name of at most ``width`` characters; of a longer one the beginning and the end.

    Names of sites often differ in their last characters alone.
    """
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[-end:]}"


def xy(line: Line) -> tuple[list[int], list[float]]:
    """Return a line's rounds and values; of a very long line, those that its picture shows.

    Those are the first, the last, and the lowest and highest in each of many equal parts.
    """
    rounds = list(line)
    values = list(line.values())
    if len(rounds) <= _POINTS:
        return rounds, values
    shown = {0, len(rounds) - 1}
    for part in np.array_split(np.arange(len(rounds)), _POINTS // 2):
        shown.add(min(part, key=values.__getitem__))
        shown.add(max(part, key=values.__getitem__))
    places = sorted(shown)
    return [rounds[place] for place in places], [values[place] for place in places]


def bars(
    axes: Any,
    rounds: Sequence[int],
    low: Values,
    high: Values,
    colour: str,
    label: str | None = None,
) -> None:
    """Fill from ``low`` to ``high`` between r - 0.4 and r + 0.4 of each round r.

    All bars are one shape, so that many rounds make no large file.
    """
    centres = np.asarray(rounds, dtype=float)
    edges = np.stack([centres - 0.4, centres - 0.4, centres + 0.4, centres + 0.4], axis=1)
    lower = _outline(low)
    upper = _outline(high)
    axes.fill_between(edges.ravel(), lower, upper, color=colour, linewidth=0, label=label)


def _outline(values: Values) -> Values:
    """Return the heights at both edges of each bar (N,), from 0 and back to 0: (4 N,)."""
    zero = np.zeros_like(values)
    return np.stack([zero, values, values, zero], axis=1).ravel()


def svg(
    figure: Figure,
    description: str,
    background: str = "",
    told: Mapping[str, Line] | None = None,
) -> Markup:
    """Return the figure as an ``<svg>`` that scales with its column.

    Args:
        figure: what to draw.
        description: in words, for people who cannot see it.
        background: what :func:`svg_content` returned of a figure of the same size, to lie under
            this one.
        told: name -> line whose values a script shows under the pointer. The figure then has no
            ``<title>``, which would cover them.
    """
    width, height = figure.get_size_inches() * 72
    label = escape(description)
    title = f"<title>{label}</title>"
    values = ""
    if told:
        title = ""
        values = f' data-values="{escape(_values(figure, told))}"'
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}"{values}'
        f' style="max-width: {round(width * 4 / 3)}px">{title}{background}{svg_content(figure)}'
        "</svg>"
    )


def palette() -> str:
    """Return the report's colours as CSS, for a picture on a light or dark page of its own."""
    css = files("fedward.report").joinpath("report.css").read_text(encoding="utf-8")
    schemes = []
    for block in re.findall(r":root {(.*?)}", css, re.DOTALL):
        schemes.append("; ".join(re.findall(r"--(?:ink|faint|series-\d): #\w+", block)))
    light, dark = schemes[:2]
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def _values(figure: Figure, lines: Mapping[str, Line]) -> str:
    """Return lines as JSON for the page's script.

    ``axis`` is where the axis across begins and ends in the SVG, and at which values.
    """
    axes = figure.axes[0]
    box = axes.get_position()
    width = figure.get_size_inches()[0] * 72
    ends = [box.x0 * width, box.x1 * width, *axes.get_xlim()]
    rounds = sorted({round_ for line in lines.values() for round_ in xy(line)[0]})
    shown = []
    for name, line in lines.items():
        values = [round(line[round_], 3) if round_ in line else None for round_ in rounds]
        shown.append([name, values])
    content = {
        "name": "round",
        "axis": [round(float(end), 2) for end in ends],
        "x": rounds,
        "lines": shown,
    }
    return json.dumps(content, separators=(",", ":"))


def svg_content(figure: Figure) -> str:
    """Return what is inside the figure's ``<svg>``."""
    for artist in figure.findobj(Text):
        artist.set_parse_math(False)  # a site or a run may be called $x$
    buffer = io.StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata=no_metadata)
    _, _, element = buffer.getvalue().partition("<svg")
    _, _, content = element.partition(">")
    content, _, _ = content.rpartition("</svg>")
    # Ids would be the same in all figures of a page.
    content = re.sub(r'<g id="[^"]*">', "<g>", content)
    for stand_in, variable in _VARIABLES.items():
        content = content.replace(stand_in, variable)
    return content
