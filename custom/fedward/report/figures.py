"""Figures as inline SVG: text stays text, colours follow the page's light or dark scheme, nothing is loaded."""

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

Lines = Mapping[str, Mapping[int, float]]
"""Name -> round -> value."""
Values = NDArray[np.float64]

INK, FAINT, SHADE = "#010203", "#040506", "#070809"
SERIES = ("#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05", "#0a0b06")
"""Stand-ins that become CSS variables, since an SVG attribute can hold a variable and matplotlib cannot."""

_VARIABLES = {INK: "var(--ink)", FAINT: "var(--faint)", SHADE: "var(--shade)"} | {
    colour: f"var(--series-{index})" for index, colour in enumerate(SERIES, 1)
}
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (8, 3)))
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
_WIDE = 10.6
"""Inches of a figure as wide as the page."""
_LINES, _DOTS, _POINTS = 30, 2000, 600
"""So many lines and dots are drawn at most, and points of a line: a picture has no more pixels, and a page is sent."""
_MANY = 12
"""From so many sites on, heat maps carry no numbers."""


def convergence(lines: Lines, metric: str, warm_up: int, marked: int | None) -> Markup:
    """One thin line per site, or of many sites the quartiles; their mean and range; the best single round is marked."""
    mean = mean_line(lines)
    figure, axes = _wide(3.6, "rounds of training", f"validation {metric}")
    _bands(axes, lines)
    if len(lines) <= _LINES:
        for line in lines.values():
            axes.plot(*_xy(line), color=FAINT, linewidth=0.8)
    axes.plot(*_xy(mean), color=SERIES[0], linewidth=2.4)
    _warm_up(axes, warm_up, mean)
    last = max(mean)
    if marked in mean:
        axes.plot([marked], [mean[marked]], "o", color=SERIES[1], markersize=7)
        offset, side = ((-8, 9), "right") if marked > last / 2 else ((8, 9), "left")
        text, place = f"best single round: {marked}", (marked, mean[marked])
        axes.annotate(text, place, offset, textcoords="offset points", ha=side, color=INK)
    words = f"Validation {metric} by round: mean over {len(lines)} sites, {mean[last]:.3f} after round {last}"
    return _svg(figure, words)


def small_multiple(site: str, line: Mapping[int, float], mean: Mapping[int, float], best: int | None) -> Markup:
    """One site's validation curve over the faint mean of all sites, on axes equal for all sites."""
    figure, axes = _small(max(*mean, 1))
    axes.plot(*_xy(mean), color=FAINT, linewidth=1.4)
    axes.plot(*_xy(line), color=SERIES[0], linewidth=1.6)
    if best is not None:
        axes.plot([best], [line[best]], "o", color=SERIES[1], markersize=5, clip_on=False)
    return _svg(figure, f"{site}: {max(line.values()):.3f} at its best round {best}")


def site_label_curve(site: str, line: Mapping[int, float], last: int) -> Markup:
    """One site's value against the labels bought there, on axes equal for all sites; ``last``: most labels of any."""
    figure, axes = _small(max(last, 1))
    axes.plot(*_xy(line), color=SERIES[0], linewidth=1.6, marker="o", markersize=3, clip_on=False)
    most = max(line)
    return _svg(figure, f"{site}: {line[most]:.3f} with {most} labels bought")


def site_weights(site: str, line: Mapping[int, float], last: int, top: float, colour: str) -> Markup:
    """One site's share of its average, a bar for each round it contributed to, on axes equal for all sites."""
    figure, axes = _axes(2.6, 1.3)
    values = np.asarray(list(line.values()))
    _bars(axes, list(line), values * 0, values, colour)
    axes.set_ylim(0, top)
    axes.set_xlim(0.5, last + 0.5)
    axes.locator_params(axis="x", nbins=3, integer=True)
    axes.locator_params(axis="y", nbins=3)
    return _svg(figure, f"Weight of {site} by round, {values.mean():.3f} on average")


def comparison(lines: Lines, metric: str) -> Markup:
    """Mean over sites of several runs; lines differ in colour and dash and are named at their end."""
    figure, axes = _wide(3.6, "rounds of training", f"validation {metric}")
    _one_line_a_run(axes, lines)
    return _svg(figure, f"Validation {metric} by round for {', '.join(lines)}")


def label_curves(lines: Lines, metric: str) -> Markup:
    """Mean over sites against labels bought, a line a run; ``lines`` are name -> labels -> value."""
    figure, axes = _wide(3.2, "labels bought, all sites", f"validation {metric}")
    _one_line_a_run(axes, lines, named=len(lines) > 1, marker="o", markersize=5)
    return _svg(figure, f"Validation {metric} by labels bought for {', '.join(lines)}")


def share_kept(lines: Lines, warm_up: int) -> Markup:
    """Share of pseudo-labels above the threshold: the sites that trained, and their mean."""
    mean = mean_line(lines)
    figure, axes = _wide(2.4, "round", "share kept")
    if sum(map(len, lines.values())) <= _DOTS:
        for line in lines.values():
            axes.plot(*_xy(line), "o", color=FAINT, markersize=2.5)
    else:
        _bands(axes, lines)
    axes.plot(*_xy(mean), color=SERIES[2], linewidth=2)
    axes.set_ylim(0, 1.02)
    _warm_up(axes, warm_up, mean, start=0.5)
    return _svg(figure, f"Share of pseudo-labels kept by round, {mean[max(mean)]:.2f} in the last one")


def distribution(values: Mapping[str, float], metric: str) -> Markup:
    """How many sites have which test value."""
    figure, axes = _axes(_WIDE, 2.4, f"test {metric}", "sites")
    axes.hist(list(values.values()), bins=30, color=SERIES[0])
    axes.axvline(middle := float(np.median(list(values.values()))), color=SERIES[1], linewidth=2)
    return _svg(figure, f"Test {metric} of {len(values)} sites, median {middle:.3f}")


def traffic(rounds: Sequence[int], parts: Mapping[str, Sequence[float]]) -> Markup:
    """Stacked megabytes per round; ``parts`` from the bottom up."""
    figure, axes = _wide(2.6, "round", "MB")
    floor = np.zeros(len(rounds))
    for colour, (name, values) in zip(SERIES, parts.items(), strict=False):
        top = floor + np.asarray(values)
        _bars(axes, rounds, floor, top, colour, label=name)
        floor = top
    axes.set_ylim(0, max(float(floor.max()) * 1.25, 1e-6))
    axes.legend(frameon=False, labelcolor=INK, ncols=len(parts), loc="upper left")
    return _svg(figure, f"Megabytes per round, {floor.mean():.1f} on average")


def durations(seconds: Mapping[int, float]) -> Markup:
    """Seconds per round."""
    figure, axes = _wide(1.9, "round", "seconds")
    values = np.asarray(list(seconds.values()))
    _bars(axes, list(seconds), values * 0, values, SERIES[4])
    axes.set_ylim(bottom=0)
    return _svg(figure, f"Seconds per round, median {np.median(values):.1f}")


def heat_map(sites: Sequence[str], matrix: Sequence[Sequence[float]], words: str, down: str, across: str) -> Markup:
    """A square table as colours, with numbers while they fit; rows ``down``, columns ``across``, NaN an empty field."""
    values = np.asarray(matrix, dtype=float)
    figure, axes = _axes(5.2, 4.6, across, down)
    lowest, highest = float(np.nanmin(values)), float(np.nanmax(values))
    scaled = (values - lowest) / (highest - lowest or 1.0)
    axes.pcolormesh(
        np.ma.masked_invalid(scaled), cmap=mpl.colormaps["cividis"], vmin=0, vmax=1, edgecolor=SHADE, linewidth=0.4
    )
    if len(sites) <= _MANY:
        for (row, column), value in np.ndenumerate(values):
            colour = "#111111" if scaled[row, column] > 0.55 else "#ffffff"  # cividis is darkest at 0
            text = f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.1f}"
            text = "" if np.isnan(value) else text
            axes.text(column + 0.5, row + 0.5, text, color=colour, ha="center", va="center")
    ticks, names = np.arange(len(sites)) + 0.5, [site if len(site) <= 14 else f"{site[:13]}…" for site in sites]
    axes.set_xticks(ticks, names, rotation=90)
    axes.set_yticks(ticks, names)
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    axes.grid(False)
    return _svg(figure, words)


def community_order(matrix: Sequence[Sequence[float]]) -> list[int]:
    """Return an order of sites in which alike ones are neighbours: the leaves of average-linkage clustering.

    The matrix is a similarity (S, S), the larger the more alike; it is made symmetric first. NaN, if unknown, counts as
    not alike at all.
    """
    values: Values = np.asarray(matrix, dtype=float)
    if len(values) < 3:
        return list(range(len(values)))
    from scipy.cluster.hierarchy import leaves_list, linkage  # type: ignore[import-untyped,unused-ignore]

    values = np.nan_to_num((values + values.T) / 2, nan=float(np.nanmin(values)))
    upper = np.triu_indices(len(values), 1)
    distance = np.max(values[upper]) - values[upper]
    return [int(leaf) for leaf in leaves_list(linkage(distance, "average", optimal_ordering=True))]


def mean_line(lines: Lines) -> dict[int, float]:
    """Return round -> mean over the lines that have the round."""
    rounds = sorted({r for line in lines.values() for r in line})
    return {r: float(np.mean([line[r] for line in lines.values() if r in line])) for r in rounds}


def _axes(width: float, height: float, across: str = "", up: str = "") -> tuple[Figure, Any]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        axes.grid(axis="y", color=FAINT, alpha=0.35, linewidth=0.6)
        axes.tick_params(length=3, width=0.6)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
    return figure, axes


def _wide(height: float, across: str, up: str) -> tuple[Figure, Any]:
    """Return axes as wide as the page, over whole numbers."""
    figure, axes = _axes(_WIDE, height, across, up)
    axes.locator_params(axis="x", integer=True)
    return figure, axes


def _small(last: float) -> tuple[Figure, Any]:
    """Return axes from 0 to ``last`` for values from 0 to 1."""
    figure, axes = _axes(2.6, 1.5)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1])
    axes.set_xlim(0, last)
    axes.locator_params(axis="x", nbins=3, integer=True)
    return figure, axes


def _bands(axes: Any, lines: Lines) -> None:
    """Shade from the lowest to the highest line; of many lines also from quartile to quartile, darker."""
    at = sorted({r for line in lines.values() for r in line})
    values = [np.quantile([line[r] for line in lines.values() if r in line], (0, 0.25, 0.75, 1)) for r in at]
    lowest, lower, upper, highest = np.stack(values).T
    axes.fill_between(at, lowest, highest, color=SHADE, linewidth=0)
    if len(lines) > _LINES:
        axes.fill_between(at, lower, upper, color=FAINT, linewidth=0, alpha=0.6)


def _xy(line: Mapping[int, float]) -> tuple[list[int], list[float]]:
    """Return a line's rounds and values, of a very long one the lowest and highest in each of many equal parts."""
    rounds, values = list(line), list(line.values())
    if len(rounds) <= _POINTS:
        return rounds, values
    parts = np.array_split(np.arange(len(rounds)), _POINTS // 2)
    extremes = ({min(part, key=values.__getitem__), max(part, key=values.__getitem__)} for part in parts)
    kept = [0, *sorted(index for both in extremes for index in both), len(rounds) - 1]
    return [rounds[index] for index in kept], [values[index] for index in kept]


def _one_line_a_run(axes: Any, lines: Lines, named: bool = True, **style: Any) -> None:
    for index, line in enumerate(lines.values()):
        colour, dash = SERIES[index % len(SERIES)], _DASHES[index % len(_DASHES)]
        axes.plot(*_xy(line), linewidth=2, color=colour, linestyle=dash, **style)
    if named:  # here, since a label that begins with an underscore would be dropped if it came from its line
        axes.legend(axes.lines, list(lines), frameon=False, labelcolor=INK, loc="lower right")


def _warm_up(axes: Any, rounds: int, line: Mapping[int, float], start: float = 0.0) -> None:
    if rounds > 0:
        end = start + min(rounds, max(line))
        axes.axvspan(start, end, color=SHADE, linewidth=0, zorder=0)
        middle, low = (start + end) / 2, axes.get_xaxis_transform()
        axes.text(middle, 0.02, "warm-up", color=INK, ha="center", va="bottom", transform=low)


def _bars(axes: Any, rounds: Sequence[int], low: Values, high: Values, colour: str, label: str | None = None) -> None:
    """Fill from ``low`` to ``high`` between r - 0.4 and r + 0.4 of each round r: one shape, however many rounds."""
    at, zero = np.asarray(rounds, dtype=float), low * 0
    edges = np.stack([at - 0.4, at - 0.4, at + 0.4, at + 0.4], axis=1).ravel()
    lows, highs = (np.stack([zero, values, values, zero], axis=1).ravel() for values in (low, high))
    axes.fill_between(edges, lows, highs, color=colour, linewidth=0, label=label)


def _svg(figure: Figure, words: str) -> Markup:
    """Return the figure as an ``<svg>`` that scales with its column; ``words`` describe it to who cannot see it."""
    for artist in figure.findobj(Text):
        artist.set_parse_math(False)  # a site or a run may be called $x$
    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    head, body = buffer.getvalue().partition("<svg")[2].split(">", 1)
    view = re.search(r'viewBox="([^"]+)"', head)
    assert view is not None, "matplotlib wrote an svg without a viewBox"
    width = round(float(view[1].split()[2]) * 4 / 3)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    for stand_in, variable in _VARIABLES.items():
        body = body.replace(stand_in, variable)
    return Markup(
        f'<svg viewBox="{view[1]}" role="img" aria-label="{escape(words)}" style="max-width: {width}px">'
        f"<title>{escape(words)}</title>{body}"
    )
