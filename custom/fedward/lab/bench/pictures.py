"""Figures of a study as files: a line for each row and its 95 % interval as a band, for light and
dark pages.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fedward.evaluation import mean_and_interval
from fedward.evaluation.names import SCORES
from fedward.lab.bench.records import Curve
from fedward.lab.bench.study import Study
from fedward.lab.bench.tables import Results, metric_name
from fedward.report.drawing import INK, SERIES, axes_of, palette, svg

_FONT = 'text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }'
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)))
"""Of curves, one after the other when all colours are used."""
_LEVELS = ((0, (6, 3)), (0, (8, 2, 1, 2)), (0, (3, 3)))
"""Of rows with a single value, likewise."""
_WIDTH = 8.4
_HEIGHT = 4.3
_COLUMNS = 2
_ROW = 0.19
"""Of the legend above the axes; inches for each row of it."""
Line: TypeAlias = Mapping[int, list[float]]
"""Place on the axis -> values by seed."""


def draw(results: Results, file: Path) -> None:
    """Write what has converged as SVG: equal bytes for equal results.

    Where variants differ by labels, it is the first metric on test images over the labelled share;
    where labels are bought, macro F1 on test images over their number; else the key metric on
    validation images over rounds.
    """
    study = results.study
    shown = _lines(results)
    top = 0.2 + _ROW * ceil(len(shown.lines) / _COLUMNS)
    figure, axes = axes_of(_WIDTH, _HEIGHT + top, left=0.75, bottom=0.5, top=top)
    for index, (row, line) in enumerate(shown.lines.items()):
        _draw_line(axes, study, row, index, line)
    axes.set_xlabel(shown.across, color=INK)
    axes.set_ylabel(shown.up, color=INK)
    if shown.lines:
        low, high = axes.get_ylim()
        axes.set_ylim(*((max(low, 0.0), min(high, 1.0)) if shown.bounded else (low, high)))
        above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
        axes.legend(frameon=False, fontsize=8.5, ncols=_COLUMNS, labelcolor=INK, **above)
    text = svg(figure, f"{study.title}: {', '.join(study.rows[row].title for row in shown.lines)}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_standalone(text), encoding="utf-8")


class _Shown(NamedTuple):
    across: str
    up: str
    lines: dict[str, Line]
    """Row -> its line."""
    bounded: bool
    """Whether values are scores, so that the axis ends at 0 and 1, and bands with it."""


def _lines(results: Results) -> _Shown:
    study = results.study
    variant = results.study.reference
    if study.by_labels:
        metric = study.metrics[0]
        found = {row: _by_share(results, row, metric) for row in study.rows}
        across = "labelled training images, %"
        up = f"{metric_name(metric)}, test"
        return _Shown(
            across, up, {row: line for row, line in found.items() if line}, metric in SCORES
        )
    rows = [row for row in study.rows if not results.refused(variant, row)]
    curves = {row: [result.curve for result in results.of(variant, row).values()] for row in rows}
    if any(len(set(curve.labels)) > 1 for each in curves.values() for curve in each):
        lines = {row: _by_labels(each) for row, each in curves.items()}
        return _Shown(
            "labels at all sites", f"{metric_name('f1_macro')}, test", lines, bounded=True
        )
    lines = {row: _by_round(each) for row, each in curves.items()}
    chosen = dict.fromkeys(study.experiment(cell).key_metric for cell in study.cells([variant]))
    return _Shown(
        "round", f"{', '.join(map(metric_name, chosen))}, validation", lines, set(chosen) <= SCORES
    )


def _draw_line(axes: Any, study: Study, row: str, index: int, line: Line) -> None:
    own = row == study.own
    colour = INK if own else SERIES[index % len(SERIES)]
    style: dict[str, Any] = {
        "color": colour,
        "linewidth": 2.6 if own else 1.4,
        "label": study.rows[row].title,
    }
    intervals = {place: mean_and_interval(values) for place, values in line.items()}
    means = [each.mean for each in intervals.values()]
    cycle = index // len(SERIES)
    if len(line) == 1:
        axes.axhline(means[0], linestyle=_LEVELS[cycle % len(_LEVELS)], **style)
        return
    axes.plot(list(line), means, linestyle="-" if own else _DASHES[cycle % len(_DASHES)], **style)
    if all(each.low is not None for each in intervals.values()):
        low, high = (
            [getattr(each, side) for each in intervals.values()] for side in ("low", "high")
        )
        axes.fill_between(list(line), low, high, color=colour, alpha=0.15, linewidth=0)


def _standalone(text: str) -> str:
    """Return an inline ``<svg>`` as a file that has its own colours."""
    head, end, body = text.partition(">")
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head} {names}{end}<style>\n{palette()}\n{_FONT}\n</style>{body}\n'


def _by_share(results: Results, row: str, metric: str) -> Line:
    """Return labelled percent -> test values by seed, of the variants in which the row has
    converged.
    """
    study = results.study
    shares = {
        name: round(100 * (variant.labelled or 0)) for name, variant in study.variants.items()
    }
    shown = [
        name for name in shares if row in study.rows_of(name) and not results.refused(name, row)
    ]
    points = {shares[name]: list(results.test(name, row, metric).values()) for name in shown}
    return dict(sorted(points.items()))


def _by_round(curves: Sequence[Curve]) -> Line:
    found: dict[int, list[float]] = {}
    for curve in curves:
        for round_, value in zip(curve.round, curve.val, strict=True):
            found.setdefault(round_, []).append(value)
    return dict(sorted(found.items()))


def _by_labels(curves: Sequence[Curve]) -> Line:
    """Return number of labels -> the last test value with so many, seed by seed; the place is the
    mean over seeds.
    """
    if not any(curve.labels for curve in curves):  # all labels from the start: one level
        return {0: [curve.test["f1_macro"][-1] for curve in curves]}
    steps = [
        dict(zip(curve.labels, curve.test["f1_macro"], strict=True))
        for curve in curves
        if curve.labels
    ]
    places = [sum(each) / len(each) for each in zip(*steps, strict=True)]
    return {
        round(place): list(each)
        for place, each in zip(places, zip(*(s.values() for s in steps), strict=True), strict=True)
    }
