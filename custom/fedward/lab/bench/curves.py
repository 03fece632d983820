"""A study's curves: at most four rows, each named where its line ends."""

from collections.abc import Mapping, Sequence
from itertools import chain
from textwrap import wrap
from typing import Any, NamedTuple, TypeAlias

from fedward.evaluation import mean_and_interval
from fedward.evaluation.names import SCORES
from fedward.lab.bench.evidence import bounds_refusal
from fedward.lab.bench.markdown import interval_text, metric_name
from fedward.lab.bench.records import Curve
from fedward.lab.bench.results import Results
from fedward.report.drawing import INK, SERIES, axes_of

MOST_LINES = 4
_WIDTH = 8.4
_HEIGHT = 3.6
_RIGHT = 2.6
"""Margin for the names of lines; all lengths are in inches."""
_NAME_LENGTH = 34
"""Most letters in a line of a name."""
_NAME_HEIGHT = 0.16
"""Height of a line of a name."""
Line: TypeAlias = Mapping[float, list[float]]
"""Place on the horizontal axis -> the value of each repetition there."""


class _Plot(NamedTuple):
    x_label: str
    y_label: str
    lines: dict[str, Line]
    """Row -> its line."""
    scores: bool
    """Whether values are scores in [0, 1], so that the axis ends there."""


def draw_curves(results: Results) -> Any:
    """Return the figure; None without a row that has run and may be shown.

    Lines are means over repetitions, with their 95 % intervals as bands. Where variants differ by
    their share of labels, they show the study's first metric on test images over this share; where
    labels are bought, over their number; else over rounds. Lines that recorded no test values of
    this metric in each round show the metric that chooses rounds, on validation images. A variant
    in which the metric is withheld has no line.
    """
    plot = _plot(results)
    if not plot.lines:
        return None
    figure, axes = axes_of(_WIDTH, _HEIGHT, left=0.75, bottom=0.5, right=_RIGHT)
    ends = {}
    for index, (row, line) in enumerate(plot.lines.items()):
        own = row == results.study.own
        colour = INK if own else SERIES[index % len(SERIES)]
        ends[row] = _draw_line(axes, line, colour, 2.4 if own else 1.4)
    axes.set_xlabel(plot.x_label, color=INK)
    axes.set_ylabel(plot.y_label, color=INK)
    if plot.scores:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), min(high, 1.0))
    titles = {row: results.study.rows[row].title for row in plot.lines}
    _name_ends(axes, ends, titles, _HEIGHT - 0.62)
    return figure


def has_curves(results: Results) -> bool:
    """Return whether :func:`draw_curves` has a line to draw."""
    return bool(_plot(results).lines)


def has_level_lines(results: Results) -> bool:
    """Return whether :func:`draw_curves` draws a level, dashed line for a row with one value."""
    return any(len(line) == 1 for line in _plot(results).lines.values())


def plotted(results: Results) -> list[str]:
    """Return the words and numbers of the figure; an empty list without a figure.

    The text of a row ends with whether it is the page's own row, whose line is bold.
    """
    plot = _plot(results)
    if not plot.lines:
        return []
    texts = [plot.x_label, plot.y_label]
    for row, line in plot.lines.items():
        title = results.study.rows[row].title
        is_own = row == results.study.own
        points = [f"{place:.10g}: {interval_text(values, '')}" for place, values in line.items()]
        texts.append(f"{title}: {'; '.join(points)}, {is_own}")
    return texts


def shown_rows(results: Results) -> list[str]:
    """Return the rows that have a line, in the study's order.

    They are the first four of these that have run in some variant:

    - the page's own row, and the first row that a claim or a pair compares it with
    - the row of few labels, and that of all labels
    - the other rows of claims, then those of pairs
    - all other rows
    """
    study = results.study
    pairs = [(claim.row, claim.than) for claim in study.claims] + list(study.compare)
    of_own = [theirs for ours, theirs in pairs if ours == study.own]
    wanted = [study.own, *of_own[:1], study.lower, study.upper]
    for pair in pairs:
        wanted += pair
    wanted += study.rows
    chosen: dict[str, None] = {}
    for row in wanted:
        has_run = any(
            row in study.rows_of(variant) and results.has_run(variant, row)
            for variant in study.variants
        )
        if row and has_run and len(chosen) < MOST_LINES:
            chosen[row] = None
    return [row for row in study.rows if row in chosen]


def _plot(results: Results) -> _Plot:
    """Return what the figure of a study shows."""
    rows = shown_rows(results)
    if results.study.by_labels:
        return _plot_over_labelled_share(results, rows)
    return _plot_of_curves(results, rows)


def _plot_over_labelled_share(results: Results, rows: Sequence[str]) -> _Plot:
    """Return test values of the first metric over the share of labels of each variant."""
    metric = results.study.metrics[0]
    lines = {row: _over_labelled_share(results, row, metric) for row in rows}
    y_label = f"{metric_name(metric)}, test"
    return _Plot("labelled training images, %", y_label, _drawn(lines), metric in SCORES)


def _plot_of_curves(results: Results, rows: Sequence[str]) -> _Plot:
    """Return the curves of the first variant, over bought labels or else over rounds."""
    study = results.study
    variant = study.first_variant
    curves_of = {
        row: [record.curve for record in results.repetitions(variant, row)]
        for row in rows
        if results.has_run(variant, row)
    }
    all_curves = list(chain.from_iterable(curves_of.values()))
    metric = study.metrics[0]
    if all(len(curve.test.get(metric, ())) == len(curve.round) for curve in all_curves):
        test_metric = metric
        shown_metrics = {metric}
        y_label = f"{metric_name(metric)}, test"
    else:
        test_metric = ""
        shown_metrics = {study.experiment(cell).key_metric for cell in study.cells([variant])}
        y_label = f"{', '.join(map(metric_name, sorted(shown_metrics)))}, validation"
    if any(len(set(curve.labels)) > 1 for curve in all_curves):
        line_of = _over_labels
        x_label = "labels at all sites"
    else:
        line_of = _over_rounds
        x_label = "round"
    is_withheld = any(bounds_refusal(results, variant, shown) for shown in shown_metrics)
    lines = {}
    if not is_withheld:
        lines = {row: line_of(curves, test_metric) for row, curves in curves_of.items()}
    return _Plot(x_label, y_label, _drawn(lines), shown_metrics <= SCORES)


def _drawn(lines: Mapping[str, Line]) -> dict[str, Line]:
    """Return the lines that have a value."""
    return {row: line for row, line in lines.items() if line}


def _draw_line(axes: Any, line: Line, colour: str, width: float) -> tuple[str, float]:
    """Draw a line, level if it has a single place; return its colour and its last value."""
    places = list(line)
    intervals = [mean_and_interval(values) for values in line.values()]
    means = [interval.mean for interval in intervals]
    if len(places) == 1:
        axes.axhline(means[0], color=colour, linewidth=width, linestyle=(0, (6, 3)))
        return colour, means[0]
    axes.plot(places, means, color=colour, linewidth=width)
    lows = [interval.low for interval in intervals]
    highs = [interval.high for interval in intervals]
    if None not in lows:
        axes.fill_between(places, lows, highs, color=colour, alpha=0.15, linewidth=0)
    return colour, means[-1]


def _name_ends(
    axes: Any, ends: Mapping[str, tuple[str, float]], titles: Mapping[str, str], height: float
) -> None:
    """Write each line's name right of its end, moved up or down where names would overlap.

    Args:
        axes: where the lines are.
        ends: row -> the colour of its line, and its last value.
        titles: row -> its name.
        height: of the axes in inches.
    """
    low, high = axes.get_ylim()
    names = {row: wrap(title, _NAME_LENGTH) for row, title in titles.items()}
    by_end = sorted(ends, key=lambda row: ends[row][1])
    room = {row: _NAME_HEIGHT * len(names[row]) / height for row in by_end}
    places = {row: (ends[row][1] - low) / (high - low) for row in by_end}
    floor = 0.0
    for row in by_end:
        places[row] = max(places[row], floor + room[row] / 2)
        floor = places[row] + room[row] / 2
    ceiling = 1.0
    for row in reversed(by_end):
        places[row] = min(places[row], ceiling - room[row] / 2)
        ceiling = places[row] - room[row] / 2
    for row in by_end:
        axes.text(
            1.02,
            places[row],
            "\n".join(names[row]),
            transform=axes.transAxes,
            color=ends[row][0],
            fontsize=8.5,
            va="center",
        )


def _over_labelled_share(results: Results, row: str, metric: str) -> Line:
    """Return labelled percentage -> test values, of the variants in which the row may be shown."""
    study = results.study
    line: dict[float, list[float]] = {}
    for name, variant in study.variants.items():
        if row not in study.rows_of(name) or bounds_refusal(results, name, metric):
            continue
        if results.has_run(name, row):
            # Without the digits that only the product has: 7 %, not 7.000000000000001 %.
            percentage = round(100 * (variant.labelled or 0), 6)
            line[percentage] = list(results.test_values(name, row, metric).values())
    return dict(sorted(line.items()))


def _values(curve: Curve, metric: str) -> Sequence[float]:
    """Return the test values of a metric by round; without a metric, the validation values."""
    return curve.test[metric] if metric else curve.val


def _over_rounds(curves: Sequence[Curve], metric: str) -> Line:
    """Return round -> value of each repetition; see :func:`_values`."""
    line: dict[float, list[float]] = {}
    for curve in curves:
        for round_, value in zip(curve.round, _values(curve, metric), strict=True):
            line.setdefault(round_, []).append(value)
    return dict(sorted(line.items()))


def _over_labels(curves: Sequence[Curve], metric: str) -> Line:
    """Return number of labels -> value of each repetition, in the last round with as many labels.

    Repetitions may have different numbers of labels, and ask for them in different rounds. So each
    keeps the value of the number that it has reached until it has more. The line begins where all
    repetitions have labels.

    Args:
        curves: of the repetitions of a row, at least one.
        metric: as of :func:`_values`.
    """
    # Of several rounds with as many labels, the dict keeps the last.
    value_by_labels = [
        dict(zip(curve.labels, _values(curve, metric), strict=True))
        for curve in curves
        if curve.labels
    ]
    if not value_by_labels:  # All labels are there from the start.
        return {0: [_values(curve, metric)[-1] for curve in curves]}
    first = max(min(value_of) for value_of in value_by_labels)
    numbers = sorted(set(chain.from_iterable(value_by_labels)))
    line: dict[float, list[float]] = {}
    for number in numbers:
        if number < first:
            continue
        line[number] = []
        for value_of in value_by_labels:
            reached = max(labels for labels in value_of if labels <= number)
            line[number].append(value_of[reached])
    return line
