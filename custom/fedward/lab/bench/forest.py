"""A study's forest plot: how far each row is from the baseline, and which differences are withheld.

A difference is grey if the rules of evidence would not let a claim on it be judged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from fedward.evaluation.intervals import Interval
from fedward.lab.bench.comparisons import paired_gap
from fedward.lab.bench.evidence import bounds_refusal, refusal
from fedward.lab.bench.markdown import gap_text, metric_name
from fedward.lab.bench.results import Results, test_values
from fedward.report.drawing import FAINT, INK, SERIES, axes_of

_WIDTH = 8.4
_LEFT = 3.3
"""Margin for the names of rows; all lengths are in inches."""
_RIGHT = 2.2
"""Margin for the differences in numbers."""
_TOP = 0.1
_BOTTOM = 0.5
_LINE_HEIGHT = 0.17
"""Height of a line of a name."""
_SPACE = 0.09
"""Height between two rows."""
_NAME_LENGTH = 44
"""Most letters in a line of a name."""


@dataclass(frozen=True)
class Difference:
    """A row or a reference, compared with the baseline in the repetitions that both have."""

    title: str
    gap: Interval
    withheld: bool
    """Whether no conclusion may be drawn from it, by the rules of evidence."""
    is_own: bool = False
    """Whether the page is about this row."""
    is_reference: bool = False


@dataclass(frozen=True)
class Group:
    """The differences of one variant."""

    title: str
    """Empty if the study has one variant."""
    differences: tuple[Difference, ...]
    refusal: str = ""
    """Why the metric must not be shown; then there are no differences."""


def baseline_of(results: Results) -> str:
    """Return the row that others are compared with.

    It is that of few labels, else the second one of the study's first pair, else the first row.
    """
    study = results.study
    if study.lower:
        return study.lower
    if study.compare:
        return study.compare[0][1]
    return next(iter(study.rows))


def groups_of(results: Results, metric: str) -> list[Group]:
    """Return the differences from the baseline by variant, of the variants in which it has run."""
    baseline = baseline_of(results)
    groups = []
    for variant in results.study.variants:
        if not results.has_run(variant, baseline):
            continue
        title = results.study.variants[variant].title
        reason = bounds_refusal(results, variant, metric)
        if reason:
            groups.append(Group(title, (), reason))
            continue
        differences = (
            *_of_rows(results, variant, baseline, metric),
            *_of_references(results, variant, baseline, metric),
        )
        if differences:
            groups.append(Group(title, differences))
    return groups


def _of_rows(results: Results, variant: str, baseline: str, metric: str) -> Iterator[Difference]:
    """Yield the differences of all other rows of a variant."""
    of_baseline = results.test_values(variant, baseline, metric)
    for row in results.study.rows_of(variant):
        gap = paired_gap(results.test_values(variant, row, metric), of_baseline)
        if row != baseline and gap is not None:
            places = ((variant, row), (variant, baseline))
            yield Difference(
                results.study.rows[row].title,
                gap,
                withheld=bool(refusal(results, places, metric)),
                is_own=row == results.study.own,
            )


def _of_references(
    results: Results, variant: str, baseline: str, metric: str
) -> Iterator[Difference]:
    """Yield the differences of the references of all sites together that a variant has itself."""
    if results.study.variant_of_references(variant) != variant:
        return
    of_baseline = results.test_values(variant, baseline, metric)
    withheld = bool(refusal(results, ((variant, baseline),), metric))
    for title, by_seed in results.references(variant, sites="pooled").items():
        gap = paired_gap(test_values(by_seed, metric), of_baseline)
        if gap is not None:
            yield Difference(title, gap, withheld, is_reference=True)


def plotted(results: Results) -> list[str]:
    """Return what the figure shows, in words and numbers; empty if there is none."""
    texts = []
    for group in groups_of(results, results.study.metrics[0]):
        texts += [group.title, group.refusal]
        for difference in group.differences:
            marks = f"{difference.withheld} {difference.is_own} {difference.is_reference}"
            texts.append(f"{difference.title}: {_number(difference.gap)}, {marks}")
    return texts


def draw_forest(results: Results) -> Any:
    """Return the figure; None if nothing may be compared with the baseline.

    Rows are from top to bottom as the study has them. Beside each stands its difference with the
    95 % interval over repetitions, and their number.
    """
    metric = results.study.metrics[0]
    groups = groups_of(results, metric)
    if not groups:
        return None
    lines = _lines(groups)
    height = sum(line.height for line in lines)
    figure, axes = axes_of(_WIDTH, height + _TOP + _BOTTOM, _LEFT, _BOTTOM, _TOP, _RIGHT)
    axes.grid(visible=False)
    axes.grid(axis="x", color=FAINT, alpha=0.35, linewidth=0.6)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_ylim(height, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    place = 0.0
    for line in lines:
        _draw_line(axes, line, place + line.height / 2)
        place += line.height
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=5)
    baseline = results.study.rows[baseline_of(results)].title
    axes.set_xlabel(f"{metric_name(metric)}, test, minus {baseline}", color=INK)
    return figure


@dataclass(frozen=True)
class _Line:
    """A line of the picture: words alone, or a difference."""

    texts: tuple[str, ...]
    difference: Difference | None = None
    is_title: bool = False
    """Whether the words are the title of a variant."""

    @property
    def height(self) -> float:
        return _LINE_HEIGHT * len(self.texts) + _SPACE


def _lines(groups: list[Group]) -> list[_Line]:
    lines = []
    for group in groups:
        if group.title:
            lines.append(_Line((group.title,), is_title=True))
        if group.refusal:
            lines.append(_Line(tuple(wrap(f"withheld: {group.refusal}", _NAME_LENGTH))))
        for difference in group.differences:
            lines.append(_Line(tuple(wrap(difference.title, _NAME_LENGTH)), difference))
    return lines


def _draw_line(axes: Any, line: _Line, place: float) -> None:
    """Draw a line of the picture at a height below its top."""
    difference = line.difference
    outside = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8.5}
    text = "\n".join(line.texts)
    is_bold = line.is_title or (difference is not None and difference.is_own)
    weight = "bold" if is_bold else "normal"
    axes.text(-0.03, place, text, ha="right", color=INK, fontweight=weight, **outside)
    if difference is None:
        return
    number = _number(difference.gap)
    colour = _colour(difference)
    axes.text(1.03, place, number, ha="left", color=INK, **outside)
    gap = difference.gap
    if gap.low is not None and gap.high is not None:
        axes.plot([gap.low, gap.high], [place, place], color=colour, linewidth=1.6)
    axes.plot(
        [gap.mean],
        [place],
        color=colour,
        marker="D" if difference.is_reference else "o",
        markersize=5,
        markerfacecolor="none" if difference.withheld else colour,
    )


def _number(gap: Interval) -> str:
    """Return what stands beside a difference: the number itself, and that of its repetitions."""
    return f"{gap_text(gap)}, n = {gap.n}"


def _colour(difference: Difference) -> str:
    if difference.withheld:
        return FAINT
    return INK if difference.is_own else SERIES[0]
