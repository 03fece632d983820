"""Figures of studies as files, for light and dark pages.

A row is a line with its 95 % interval as a band.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fedward.evaluation import mean_and_interval
from fedward.evaluation.names import SCORES
from fedward.lab.bench.markdown import metric_name
from fedward.lab.bench.records import Curve
from fedward.lab.bench.results import Results
from fedward.lab.bench.study import Study
from fedward.report.drawing import INK, SERIES, axes_of, palette, svg

_FONT = 'text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }'
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)))
"""Line styles of curves; the next one is used when all colours are used up."""
_LEVEL_DASHES = ((0, (6, 3)), (0, (8, 2, 1, 2)), (0, (3, 3)))
"""Line styles of rows with a single value, in the same way."""
_WIDTH = 8.4
_HEIGHT = 4.3
"""Inches, without the legend above the axes."""
_LEGEND_COLUMNS = 2
_LEGEND_ROW_HEIGHT = 0.19
Line: TypeAlias = Mapping[int, list[float]]
"""Place on the horizontal axis -> values by seed."""


class _Plot(NamedTuple):
    x_label: str
    y_label: str
    lines: dict[str, Line]
    """Row -> its line."""
    scores: bool
    """Whether values are scores in [0, 1], so that the axis ends there."""


def draw(results: Results, file: Path, caption: str = "") -> None:
    """Write the rows of a study as SVG; equal results give equal bytes.

    Its title, which screen readers speak, ends with ``caption``: what the bands do not cover.

    Where variants differ by their share of labels, the figure shows the first metric on test images
    over this share; where labels are bought, macro F1 on test images over the number of labels;
    else the key metric on validation images over rounds.
    """
    study = results.study
    plot = _plot(results)
    legend_rows = ceil(len(plot.lines) / _LEGEND_COLUMNS)
    top = 0.2 + _LEGEND_ROW_HEIGHT * legend_rows
    figure, axes = axes_of(_WIDTH, _HEIGHT + top, left=0.75, bottom=0.5, top=top)
    for index, (row, line) in enumerate(plot.lines.items()):
        _draw_line(axes, study, row, index, line)
    axes.set_xlabel(plot.x_label, color=INK)
    axes.set_ylabel(plot.y_label, color=INK)
    if plot.lines:
        if plot.scores:
            low, high = axes.get_ylim()
            axes.set_ylim(max(low, 0.0), min(high, 1.0))
        axes.legend(
            frameon=False,
            fontsize=8.5,
            ncols=_LEGEND_COLUMNS,
            labelcolor=INK,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            borderaxespad=0.2,
        )
    titles = ", ".join(study.rows[row].title for row in plot.lines)
    title = f"{study.title}: {titles}."
    text = svg(figure, f"{title} {caption.replace('*', '')}" if caption else title)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_standalone(text), encoding="utf-8")


def _plot(results: Results) -> _Plot:
    """Return what the figure of a study shows."""
    study = results.study
    variant = study.reference
    if study.by_labels:
        metric = study.metrics[0]
        lines = {row: _over_labelled_share(results, row, metric) for row in study.rows}
        return _Plot(
            x_label="labelled training images, %",
            y_label=f"{metric_name(metric)}, test",
            lines={row: line for row, line in lines.items() if line},
            scores=metric in SCORES,
        )
    curves: dict[str, list[Curve]] = {}
    for row in study.rows:
        if not results.refusal(variant, row):
            curves[row] = [record.curve for record in results.by_seed(variant, row).values()]
    if any(len(set(curve.labels)) > 1 for by_seed in curves.values() for curve in by_seed):
        return _Plot(
            x_label="labels at all sites",
            y_label=f"{metric_name('f1_macro')}, test",
            lines={row: _over_labels(by_seed) for row, by_seed in curves.items()},
            scores=True,
        )
    key_metrics = dict.fromkeys(
        study.experiment(cell).key_metric for cell in study.cells([variant])
    )
    return _Plot(
        x_label="round",
        y_label=f"{', '.join(map(metric_name, key_metrics))}, validation",
        lines={row: _over_rounds(by_seed) for row, by_seed in curves.items()},
        scores=set(key_metrics) <= SCORES,
    )


def _draw_line(axes: Any, study: Study, row: str, index: int, line: Line) -> None:
    """Draw the line of the row number ``index``; the row that the page is about stands out."""
    own = row == study.own
    colour = INK if own else SERIES[index % len(SERIES)]
    style: dict[str, Any] = {
        "color": colour,
        "linewidth": 2.6 if own else 1.4,
        "label": study.rows[row].title,
    }
    places = list(line)
    intervals = [mean_and_interval(values) for values in line.values()]
    means = [interval.mean for interval in intervals]
    cycle = index // len(SERIES)
    if len(line) == 1:
        axes.axhline(means[0], linestyle=_LEVEL_DASHES[cycle % len(_LEVEL_DASHES)], **style)
        return
    axes.plot(places, means, linestyle="-" if own else _DASHES[cycle % len(_DASHES)], **style)
    lows = [interval.low for interval in intervals]
    highs = [interval.high for interval in intervals]
    if None not in lows:
        axes.fill_between(places, lows, highs, color=colour, alpha=0.15, linewidth=0)


def _standalone(text: str) -> str:
    """Return an inline ``<svg>`` as a file that has its own colours."""
    head, end, body = text.partition(">")
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f"{head} {names}{end}<style>\n{palette()}\n{_FONT}\n</style>{body}\n"
    )


def _over_labelled_share(results: Results, row: str, metric: str) -> Line:
    """Return labelled percentage -> test values, of the variants in which the row may be shown."""
    study = results.study
    line: dict[int, list[float]] = {}
    for name, variant in study.variants.items():
        if row in study.rows_of(name) and not results.refusal(name, row):
            percentage = round(100 * (variant.labelled or 0))
            line[percentage] = list(results.test_values(name, row, metric).values())
    return dict(sorted(line.items()))


def _over_rounds(curves: Sequence[Curve]) -> Line:
    """Return round -> validation values by seed."""
    line: dict[int, list[float]] = {}
    for curve in curves:
        for round_, value in zip(curve.round, curve.val, strict=True):
            line.setdefault(round_, []).append(value)
    return dict(sorted(line.items()))


def _over_labels(curves: Sequence[Curve]) -> Line:
    """Return number of labels -> the last test value with as many labels, by seed.

    Seeds may have bought different numbers of labels: the place is their mean.
    """
    last_values: list[dict[int, float]] = []
    for curve in curves:
        if curve.labels:
            last_values.append(dict(zip(curve.labels, curve.test["f1_macro"], strict=True)))
    if not last_values:  # All labels are there from the start.
        return {0: [curve.test["f1_macro"][-1] for curve in curves]}
    line: dict[int, list[float]] = {}
    for steps in zip(*(values.items() for values in last_values), strict=True):
        label_counts = [labels for labels, _ in steps]
        place = round(sum(label_counts) / len(label_counts))
        line[place] = [value for _, value in steps]
    return line
