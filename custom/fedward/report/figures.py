"""Figures of a report, as wide as its page or half of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedward.report.drawing import (
    FAINT,
    INK,
    SERIES,
    SHADE,
    WARM,
    Line,
    Values,
    axes_of,
    bars,
    fitting,
    svg,
    xy,
)
from fedward.text import count

Lines = Mapping[str, Line]
"""Name -> round -> value."""
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (6, 2, 1, 2)),
    (0, (3, 1)),
    (0, (8, 3)),
)
_WIDE = 10.6
"""Inches of a figure as wide as the page."""
MOST_LINES = 30
"""Most lines that are drawn one by one: a picture has no more pixels, and a page is sent."""
_MOST_DOTS = 2000
"""Most dots that are drawn one by one."""
_MOST_TOLD = 12
"""Most lines whose values are shown under the pointer."""
_LONGEST_NAME = 14
"""Characters of a name beside a heat map."""
_MOST_NUMBERS = 12
"""Most rows of a heat map that shows numbers."""
_TICK_SIZE = 10.0
"""Points of a name beside a heat map, if all fit."""
_TICK_SPACE = 240.0
"""Points in which all names beside a heat map have to fit."""
_DARK = 0.55
"""Values above this, of 0 to 1, have a light field in a heat map."""


def convergence(lines: Lines, metric: str, warm_up: int, marked: int | None) -> Markup:
    """Draw one thin line per site, or the quartiles of many sites, with their mean and range.

    Args:
        lines: site -> round -> value.
        metric: its title.
        warm_up: rounds to shade at the beginning.
        marked: the best single round; None for none.
    """
    mean = mean_line(lines)
    figure, axes = _wide(3.6, "rounds of training", f"validation {metric}")
    _draw_range(axes, lines)
    if len(lines) <= MOST_LINES:
        for line in lines.values():
            axes.plot(*xy(line), color=FAINT, linewidth=0.8)
    axes.plot(*xy(mean), color=SERIES[0], linewidth=2.4)
    _shade_warm_up(axes, warm_up, mean)
    last = max(mean)
    if marked in mean:
        axes.plot([marked], [mean[marked]], "o", color=SERIES[1], markersize=7)
        offset, alignment = ((-8, 9), "right") if marked > last / 2 else ((8, 9), "left")
        axes.annotate(
            f"best single round: {marked}",
            (marked, mean[marked]),
            offset,
            textcoords="offset points",
            ha=alignment,
            color=INK,
        )
    description = (
        f"Validation {metric} by round: mean over {count(len(lines), 'site')}, "
        f"{mean[last]:.3f} after round {last}"
    )
    told: dict[str, Line] = {"mean": mean}
    if len(lines) <= _MOST_TOLD:
        told.update(lines)
    return svg(figure, description, told=told)


def comparison(lines: Lines, metric: str) -> Markup:
    """Draw the mean over sites of several runs; lines differ in colour and dash."""
    figure, axes = _wide(3.6, "rounds of training", f"validation {metric}")
    _draw_runs(axes, lines)
    return svg(figure, f"Validation {metric} by round for {', '.join(lines)}", told=lines)


def label_curves(lines: Lines, metric: str) -> Markup:
    """Draw the mean over sites against labels bought; ``lines`` are run -> labels -> value."""
    figure, axes = _wide(3.2, "labels bought, all sites", f"validation {metric}")
    _draw_runs(axes, lines, legend=len(lines) > 1, marker="o", markersize=5)
    return svg(figure, f"Validation {metric} by labels bought for {', '.join(lines)}")


def share_kept(lines: Lines, warm_up: int) -> Markup:
    """Draw the share of pseudo-labels above the threshold: of each site, and the mean."""
    mean = mean_line(lines)
    figure, axes = _wide(2.4, "round", "share kept")
    if sum(map(len, lines.values())) <= _MOST_DOTS:
        for line in lines.values():
            axes.plot(*xy(line), "o", color=FAINT, markersize=2.5)
    else:
        _draw_range(axes, lines)
    axes.plot(*xy(mean), color=SERIES[2], linewidth=2)
    axes.set_ylim(0, 1.02)
    _shade_warm_up(axes, warm_up, mean, start=0.5)
    last = mean[max(mean)]
    return svg(figure, f"Share of pseudo-labels kept by round, {last:.2f} in the last one")


def distribution(values: Mapping[str, float], metric: str) -> Markup:
    """Draw how many sites have which test value."""
    figure, axes = _labelled(_WIDE, 2.4, f"test {metric}", "sites")
    by_site = list(values.values())
    median = float(np.median(by_site))
    axes.hist(by_site, bins=30, color=SERIES[0])
    axes.axvline(median, color=SERIES[1], linewidth=2)
    return svg(figure, f"Test {metric} of {len(values)} sites, median {median:.3f}")


def traffic(rounds: Sequence[int], parts: Mapping[str, Sequence[float]]) -> Markup:
    """Draw stacked megabytes per round; ``parts`` from the bottom up."""
    figure, axes = _wide(2.6, "round", "MB")
    total = _draw_stacked(axes, rounds, parts)
    return svg(figure, f"Megabytes per round, {total.mean():.1f} on average")


def kept_classes(rounds: Sequence[int], shares: Mapping[str, Sequence[float]]) -> Markup:
    """Draw stacked shares of classes among the pseudo-labels that were kept in each round."""
    figure, axes = _wide(2.8, "round", "share of the kept")
    _draw_stacked(axes, rounds, shares)
    last = ", ".join(f"{name} {values[-1]:.2f}" for name, values in shares.items())
    return svg(figure, f"Classes of the kept pseudo-labels by round; in the last: {last}")


def durations(seconds: Mapping[int, float]) -> Markup:
    """Draw the seconds per round."""
    figure, axes = _wide(1.9, "round", "seconds")
    values = np.asarray(list(seconds.values()))
    bars(axes, list(seconds), np.zeros_like(values), values, SERIES[4])
    axes.set_ylim(bottom=0)
    return svg(figure, f"Seconds per round, median {np.median(values):.1f}")


def heat_map(
    sites: Sequence[str],
    matrix: Sequence[Sequence[float]],
    description: str,
    down: str,
    across: str,
    frames: Sequence[tuple[int, int]] = (),
) -> Markup:
    """Draw a square table as colours beside their scale, with numbers while they fit.

    The colours differ in brightness, so that they are told apart with any colour vision.

    Args:
        sites: names of the rows, and of the columns.
        matrix: the table; NaN is an empty field.
        description: in words, for people who cannot see it.
        down: what the rows are.
        across: what the columns are.
        frames: first row and number of rows of the squares on the diagonal that get a frame.
    """
    values = np.asarray(matrix, dtype=float)
    names = [fitting(site, _LONGEST_NAME) for site in sites]
    figure, axes = _labelled(5.6, 4.6, across, down, max(map(len, names), default=0))
    lowest = float(np.nanmin(values))
    highest = float(np.nanmax(values))
    scaled = (values - lowest) / (highest - lowest or 1.0)
    axes.pcolormesh(
        np.ma.masked_invalid(scaled),
        cmap=mpl.colormaps["cividis"],
        vmin=0,
        vmax=1,
        edgecolor=SHADE,
        linewidth=0.4,
    )
    if len(sites) <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(values):
            # The map is darkest at 0.
            colour = "#111111" if scaled[row, column] > _DARK else "#ffffff"
            centre = (column + 0.5, row + 0.5)
            axes.text(*centre, _field(value), color=colour, ha="center", va="center")
    for first, framed in frames:
        # A little smaller than its fields, so that neighbouring frames do not cover each other.
        corner = (first + 0.05, first + 0.05)
        side = framed - 0.1
        frame = Rectangle(corner, side, side, fill=False, edgecolor=SERIES[1], linewidth=2.5)
        axes.add_patch(frame)
    ticks = np.arange(len(sites)) + 0.5
    axes.set_xticks(ticks, names, rotation=90)
    axes.set_yticks(ticks, names)
    axes.tick_params(length=0, labelsize=min(_TICK_SIZE, _TICK_SPACE / max(len(names), 1)))
    axes.invert_yaxis()
    axes.set_aspect("equal", anchor="W")
    axes.spines[:].set_visible(False)
    axes.grid(False)
    _draw_scale(figure, axes, lowest, highest)
    ends = f"from {_field(lowest)} (dark) to {_field(highest)} (bright)"
    return svg(figure, f"{description}, {ends}")


def _draw_scale(figure: Figure, axes: Any, lowest: float, highest: float) -> None:
    """Draw which colour stands for which value, right of a heat map."""
    axes.apply_aspect()
    map_box = axes.get_position()
    scale = figure.add_axes((map_box.x1 + 0.02, map_box.y0, 0.03, map_box.height))
    colours = np.linspace(0, 1, 65)[:, np.newaxis]
    scale.pcolormesh(colours, cmap=mpl.colormaps["cividis"], edgecolor="face", linewidth=0.3)
    values = [lowest, (lowest + highest) / 2, highest] if highest > lowest else [highest]
    places = [0, 32.5, 65] if highest > lowest else [65]
    scale.set_yticks(places, [_field(value) for value in values])
    scale.yaxis.tick_right()
    scale.set_xticks([])
    scale.tick_params(length=3, width=0.6, color=FAINT, labelcolor=INK, labelsize=_TICK_SIZE)
    scale.spines[:].set_visible(False)


def _field(value: float) -> str:
    """Return a number as a field of a heat map shows it, such as ``.25``."""
    if np.isnan(value):
        return ""
    if abs(value) < 1:
        return f"{value:.2f}".replace("0.", ".", 1)
    return f"{value:.1f}"


def mean_line(lines: Lines) -> dict[int, float]:
    """Return round -> mean over the lines that have the round."""
    return {round_: float(np.mean(values)) for round_, values in _by_round(lines).items()}


def _by_round(lines: Lines) -> dict[int, list[float]]:
    """Return round -> values of the lines that have the round, in the order of rounds."""
    by_round: dict[int, list[float]] = {}
    for line in lines.values():
        for round_, value in line.items():
            by_round.setdefault(round_, []).append(value)
    return dict(sorted(by_round.items()))


def _labelled(
    width: float, height: float, across: str, up: str, characters: int = 4
) -> tuple[Figure, Any]:
    """Return axes with labels; their longest tick label has so many characters."""
    room = 0.25 + 0.09 * characters
    # Long tick labels across are upright.
    bottom = room if characters > 4 else 0.48
    figure, axes = axes_of(width, height, left=room, bottom=bottom)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    return figure, axes


def _wide(height: float, across: str, up: str) -> tuple[Figure, Any]:
    """Return axes as wide as the page, over whole numbers."""
    figure, axes = _labelled(_WIDE, height, across, up)
    axes.locator_params(axis="x", integer=True)
    return figure, axes


def _draw_stacked(axes: Any, rounds: Sequence[int], parts: Mapping[str, Sequence[float]]) -> Values:
    """Draw bars on one another, with a legend above them; return the height of each bar (N,)."""
    low = np.zeros(len(rounds))
    for colour, (name, values) in zip(SERIES, parts.items(), strict=False):
        high = low + np.asarray(values)
        bars(axes, rounds, low, high, colour, label=name)
        low = high
    axes.set_ylim(0, max(float(low.max()) * 1.25, 1e-6))
    axes.legend(frameon=False, labelcolor=INK, ncols=len(parts), loc="upper left")
    return low


def _draw_range(axes: Any, lines: Lines) -> None:
    """Shade from the lowest to the highest line; of many lines also from quartile to quartile."""
    by_round = _by_round(lines)
    rounds = list(by_round)
    quantiles = [np.quantile(values, (0, 0.25, 0.75, 1)) for values in by_round.values()]
    lowest, lower, upper, highest = np.stack(quantiles).T
    axes.fill_between(rounds, lowest, highest, color=SHADE, linewidth=0)
    if len(lines) > MOST_LINES:
        axes.fill_between(rounds, lower, upper, color=FAINT, linewidth=0, alpha=0.6)


def _draw_runs(axes: Any, lines: Lines, legend: bool = True, **style: Any) -> None:
    """Draw a line for each run."""
    for index, line in enumerate(lines.values()):
        colour = SERIES[index % len(SERIES)]
        dash = _DASHES[index % len(_DASHES)]
        axes.plot(*xy(line), linewidth=2, color=colour, linestyle=dash, **style)
    if legend:
        # A label that a line itself has would be dropped if it begins with an underscore.
        axes.legend(axes.lines, list(lines), frameon=False, labelcolor=INK, loc="lower right")


def _shade_warm_up(axes: Any, rounds: int, line: Line, start: float = 0.0) -> None:
    if rounds == 0:
        return
    end = start + min(rounds, max(line))
    axes.axvspan(start, end, color=WARM, linewidth=0, zorder=0)
    # Across in rounds, and up as a share of the height.
    place = axes.get_xaxis_transform()
    middle = (start + end) / 2
    axes.text(middle, 0.02, "warm-up", color=INK, ha="center", va="bottom", transform=place)
