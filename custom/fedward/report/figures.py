"""Figures of a report, as wide as its page or half of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

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
    svg,
    xy,
)
from fedward.terminal import shortened

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
_LINES = 30
_DOTS = 2000
"""So many lines and dots are drawn at most: a picture has no more pixels, and a page is sent."""
_TOLD = 12
"""Up to so many lines have their values shown under the pointer."""
_MANY = 12
"""From so many sites on, heat maps carry no numbers."""


def convergence(lines: Lines, metric: str, warm_up: int, marked: int | None) -> Markup:
    """One thin line per site, or of many sites the quartiles; their mean and range; the best single
    round is marked.
    """
    mean = mean_line(lines)
    figure, axes = _wide(3.6, "rounds of training", f"validation {metric}")
    _bands(axes, lines)
    if len(lines) <= _LINES:
        for line in lines.values():
            axes.plot(*xy(line), color=FAINT, linewidth=0.8)
    axes.plot(*xy(mean), color=SERIES[0], linewidth=2.4)
    _warm_up(axes, warm_up, mean)
    last = max(mean)
    if marked in mean:
        axes.plot([marked], [mean[marked]], "o", color=SERIES[1], markersize=7)
        offset, side = ((-8, 9), "right") if marked > last / 2 else ((8, 9), "left")
        text = f"best single round: {marked}"
        place = (marked, mean[marked])
        axes.annotate(text, place, offset, textcoords="offset points", ha=side, color=INK)
    words = f"Validation {metric} by round: mean over {len(lines)} sites, {mean[last]:.3f} after round {last}"
    told = {"mean": mean, **(lines if len(lines) <= _TOLD else {})}
    return svg(figure, words, told=told)


def comparison(lines: Lines, metric: str) -> Markup:
    """Mean over sites of several runs; lines differ in colour and dash and are named at their end."""
    figure, axes = _wide(3.6, "rounds of training", f"validation {metric}")
    _one_line_a_run(axes, lines)
    return svg(figure, f"Validation {metric} by round for {', '.join(lines)}", told=lines)


def label_curves(lines: Lines, metric: str) -> Markup:
    """Mean over sites against labels bought, a line a run; ``lines`` are name -> labels -> value."""
    figure, axes = _wide(3.2, "labels bought, all sites", f"validation {metric}")
    _one_line_a_run(axes, lines, named=len(lines) > 1, marker="o", markersize=5)
    return svg(figure, f"Validation {metric} by labels bought for {', '.join(lines)}")


def share_kept(lines: Lines, warm_up: int) -> Markup:
    """Share of pseudo-labels above the threshold: the sites that trained, and their mean."""
    mean = mean_line(lines)
    figure, axes = _wide(2.4, "round", "share kept")
    if sum(map(len, lines.values())) <= _DOTS:
        for line in lines.values():
            axes.plot(*xy(line), "o", color=FAINT, markersize=2.5)
    else:
        _bands(axes, lines)
    axes.plot(*xy(mean), color=SERIES[2], linewidth=2)
    axes.set_ylim(0, 1.02)
    _warm_up(axes, warm_up, mean, start=0.5)
    return svg(
        figure, f"Share of pseudo-labels kept by round, {mean[max(mean)]:.2f} in the last one"
    )


def distribution(values: Mapping[str, float], metric: str) -> Markup:
    """How many sites have which test value."""
    figure, axes = _labelled(_WIDE, 2.4, f"test {metric}", "sites")
    axes.hist(list(values.values()), bins=30, color=SERIES[0])
    axes.axvline(middle := float(np.median(list(values.values()))), color=SERIES[1], linewidth=2)
    return svg(figure, f"Test {metric} of {len(values)} sites, median {middle:.3f}")


def traffic(rounds: Sequence[int], parts: Mapping[str, Sequence[float]]) -> Markup:
    """Stacked megabytes per round; ``parts`` from the bottom up."""
    figure, axes = _wide(2.6, "round", "MB")
    top = _stacked(axes, rounds, parts)
    return svg(figure, f"Megabytes per round, {top.mean():.1f} on average")


def kept_classes(rounds: Sequence[int], shares: Mapping[str, Sequence[float]]) -> Markup:
    """Stacked shares of classes among the pseudo-labels that were kept in each round."""
    figure, axes = _wide(2.8, "round", "share of the kept")
    _stacked(axes, rounds, shares)
    last = ", ".join(f"{name} {values[-1]:.2f}" for name, values in shares.items())
    return svg(figure, f"Classes of the kept pseudo-labels by round; in the last: {last}")


def durations(seconds: Mapping[int, float]) -> Markup:
    """Seconds per round."""
    figure, axes = _wide(1.9, "round", "seconds")
    values = np.asarray(list(seconds.values()))
    bars(axes, list(seconds), values * 0, values, SERIES[4])
    axes.set_ylim(bottom=0)
    return svg(figure, f"Seconds per round, median {np.median(values):.1f}")


def heat_map(
    sites: Sequence[str], matrix: Sequence[Sequence[float]], words: str, down: str, across: str
) -> Markup:
    """A square table as colours, with numbers while they fit; rows ``down``, columns ``across``,
    NaN an empty field.
    """
    values = np.asarray(matrix, dtype=float)
    names = [shortened(site, 14) for site in sites]
    figure, axes = _labelled(5.2, 4.6, across, down, max(map(len, names), default=0))
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
    if len(sites) <= _MANY:
        for (row, column), value in np.ndenumerate(values):
            colour = (
                "#111111" if scaled[row, column] > 0.55 else "#ffffff"
            )  # cividis is darkest at 0
            text = f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.1f}"
            text = "" if np.isnan(value) else text
            axes.text(column + 0.5, row + 0.5, text, color=colour, ha="center", va="center")
    ticks = np.arange(len(sites)) + 0.5
    axes.set_xticks(ticks, names, rotation=90)
    axes.set_yticks(ticks, names)
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    axes.grid(False)
    return svg(figure, words)


def mean_line(lines: Lines) -> dict[int, float]:
    """Return round -> mean over the lines that have the round."""
    rounds = sorted({r for line in lines.values() for r in line})
    return {r: float(np.mean([line[r] for line in lines.values() if r in line])) for r in rounds}


def _labelled(
    width: float, height: float, across: str, up: str, names: int = 4
) -> tuple[Figure, Any]:
    """Return axes with labels; ``names`` are the characters of their longest tick labels, those
    across are upright.
    """
    room = 0.25 + 0.09 * names
    figure, axes = axes_of(width, height, left=room, bottom=room if names > 4 else 0.48)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    return figure, axes


def _wide(height: float, across: str, up: str) -> tuple[Figure, Any]:
    """Return axes as wide as the page, over whole numbers."""
    figure, axes = _labelled(_WIDE, height, across, up)
    axes.locator_params(axis="x", integer=True)
    return figure, axes


def _stacked(axes: Any, rounds: Sequence[int], parts: Mapping[str, Sequence[float]]) -> Values:
    """Draw bars on one another, with a legend above them, and return how high they are."""
    floor = np.zeros(len(rounds))
    for colour, (name, values) in zip(SERIES, parts.items(), strict=False):
        top = floor + np.asarray(values)
        bars(axes, rounds, floor, top, colour, label=name)
        floor = top
    axes.set_ylim(0, max(float(floor.max()) * 1.25, 1e-6))
    axes.legend(frameon=False, labelcolor=INK, ncols=len(parts), loc="upper left")
    return floor


def _bands(axes: Any, lines: Lines) -> None:
    """Shade from the lowest to the highest line; of many lines also from quartile to quartile,
    darker.
    """
    at = sorted({r for line in lines.values() for r in line})
    values = [
        np.quantile([line[r] for line in lines.values() if r in line], (0, 0.25, 0.75, 1))
        for r in at
    ]
    lowest, lower, upper, highest = np.stack(values).T
    axes.fill_between(at, lowest, highest, color=SHADE, linewidth=0)
    if len(lines) > _LINES:
        axes.fill_between(at, lower, upper, color=FAINT, linewidth=0, alpha=0.6)


def _one_line_a_run(axes: Any, lines: Lines, named: bool = True, **style: Any) -> None:
    for index, line in enumerate(lines.values()):
        colour = SERIES[index % len(SERIES)]
        dash = _DASHES[index % len(_DASHES)]
        axes.plot(*xy(line), linewidth=2, color=colour, linestyle=dash, **style)
    if named:  # here, since a label that begins with an underscore would be dropped if it came from its line
        axes.legend(axes.lines, list(lines), frameon=False, labelcolor=INK, loc="lower right")


def _warm_up(axes: Any, rounds: int, line: Mapping[int, float], start: float = 0.0) -> None:
    if rounds > 0:
        end = start + min(rounds, max(line))
        axes.axvspan(start, end, color=WARM, linewidth=0, zorder=0)
        middle = (start + end) / 2
        low = axes.get_xaxis_transform()
        axes.text(middle, 0.02, "warm-up", color=INK, ha="center", va="bottom", transform=low)
