"""The picture of a verdict: all images, each class and each site, the worst on top, with n."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from markupsafe import Markup

from fedward.report.drawing import FAINT, INK, SERIES, axes_of, svg
from fedward.runs.measured import Measured, lowest_first
from fedward.runs.verdict import Verdict
from fedward.runs.verdict_words import percent

_ROW = 0.24
"""Height of a row in inches."""
_WIDTH = 5.6
_LEFT = 1.55
_RIGHT_OF_AXES = 1.02
"""Where numbers begin, in widths of the axes."""
_LONGEST_NAME = 20
_MOST_CLASSES = 12
_MOST_SITES = 12
_MOST_GROUPS = 12


class _Row(NamedTuple):
    name: str
    measured: Measured | None
    """None for a heading, or for the row of those that are left out."""


def forest(verdict: Verdict) -> Markup | None:
    """Draw shares of right answers with their intervals; None for a verdict without classes.

    The dashed line beside all images is the share of the commonest class, which a constant answer
    would reach. It says nothing about one class, site or group.
    """
    rows = _rows(verdict)
    if not rows:
        return None
    height = _ROW * len(rows) + 0.6
    figure, axes = axes_of(_WIDTH, height, left=_LEFT, bottom=0.46, top=0.06, right=0.95)
    axes.grid(visible=False)
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(_meaning(verdict))
    if verdict.common:
        common = verdict.common.value
        axes.plot([common] * 2, [-0.45, 0.45], color=FAINT, linewidth=1.4, linestyle=(0, (2, 1.5)))
    for place, row in enumerate(rows):
        _draw(axes, place, row)
    return svg(figure, _in_words(verdict, rows))


def _meaning(verdict: Verdict) -> str:
    if verdict.exclusive:
        return f"right answers of 100 {verdict.unit}s, with 95 % interval"
    return f"{verdict.unit}s with the finding that it finds, of 100"


def _rows(verdict: Verdict) -> list[_Row]:
    if not verdict.classes:
        return []
    rows = []
    if verdict.overall:
        rows.append(_Row("all", verdict.overall))
    rows.append(_Row("by class", None))
    rows += _some(verdict.parts, _MOST_CLASSES)
    if verdict.exclusive and len(verdict.sites) > 1:
        rows.append(_Row("by site", None))
        rows += _some(verdict.sites, _MOST_SITES)
    if verdict.subgroups:
        rows.append(_Row("by group", None))
        groups = [replace(one.measured, name=one.title) for one in verdict.subgroups]
        rows += _some(lowest_first(groups), _MOST_GROUPS)
    return rows


def _some(values: Sequence[Measured], most: int) -> list[_Row]:
    """Return a row of each value; of too many, the lowest and the last one."""
    rows = [_Row(value.name, value) for value in values]
    if len(rows) <= most:
        return rows
    left_out = len(rows) - most
    return [*rows[: most - 1], _Row(f"… {left_out} more", None), rows[-1]]


def _draw(axes: Any, place: int, row: _Row) -> None:
    name = row.name if len(row.name) <= _LONGEST_NAME else f"{row.name[: _LONGEST_NAME - 1]}…"
    weight = "bold" if row.name == "all" or row.measured is None else "normal"
    axes.text(-0.03, place, name, ha="right", va="center", color=INK, fontweight=weight)
    if row.measured is None:
        return
    value = row.measured
    if value.low is not None and value.high is not None:
        axes.plot([value.low, value.high], [place, place], color=SERIES[0], linewidth=1.6)
    axes.plot([value.value], [place], "o", color=SERIES[0], markersize=5, clip_on=False)
    number = f"{percent(value.value)} · n {value.n}"
    axes.text(_RIGHT_OF_AXES + 0.01, place, number, va="center", color=INK, fontsize=9)


def _in_words(verdict: Verdict, rows: Sequence[_Row]) -> str:
    shares = [
        f"{row.name}: {percent(row.measured.value)} % of {row.measured.n}"
        for row in rows
        if row.measured
    ]
    return f"Right answers with the lowest first: {'; '.join(shares)}"
