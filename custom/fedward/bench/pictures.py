"""Figures of a study as files: a line for each row and its 95 % interval as a band, for light and dark pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedward.bench.records import Curve
from fedward.bench.tables import Results
from fedward.evaluation import mean_and_interval
from fedward.report.drawing import FAINT, INK, SERIES, axes_of, svg

_STYLE = """<style>
:root { --ink: #1b2430; --faint: #aab4c0; --shade: #e9eef4; --series-1: #0072b2; --series-2: #d55e00;
  --series-3: #009e73; --series-4: #cc79a7; --series-5: #56b4e9; --series-6: #e69f00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf1; --faint: #6b7786; --shade: #232c37;
  --series-1: #4aa8e0; --series-2: #ff8a3d; --series-3: #2fc49a; } }
text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
</style>"""
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)))
_WIDTH, _HEIGHT = 8.4, 4.2


def draw(results: Results, file: Path) -> None:
    """Write the rows of the first variant that have converged, as SVG: equal bytes for equal results.

    Over rounds it is the key metric on validation images. Where labels are bought, it is macro F1 on test images over
    the number of labels.
    """
    study, variant = results.study, results.study.reference
    shown = [row for row in study.rows if not results.refused(variant, row)]
    curves = {row: [result.curve for result in results.of(variant, row).values()] for row in shown}
    bought = any(len(set(curve.labels)) > 1 for found in curves.values() for curve in found)
    figure, axes = axes_of(_WIDTH, _HEIGHT, left=0.65, bottom=0.5)
    for index, (row, found) in enumerate(curves.items()):
        values = _by_labels(found) if bought else _by_round(found)
        own = row == study.own
        colour = INK if own else SERIES[index % len(SERIES)]
        style: dict[str, Any] = {"color": colour, "linestyle": "-" if own else _DASHES[index // len(SERIES) % 3]}
        style |= {"linewidth": 2.6 if own else 1.4, "label": study.rows[row].title}
        if len(values) == 1:
            axes.axhline(mean_and_interval(next(iter(values.values()))).mean, **{**style, "linestyle": (0, (6, 3))})
            continue
        intervals = {x: mean_and_interval(each) for x, each in values.items()}
        axes.plot(list(intervals), [each.mean for each in intervals.values()], **style)
        if all(each.low is not None for each in intervals.values()):
            low, high = ([getattr(each, side) for each in intervals.values()] for side in ("low", "high"))
            axes.fill_between(list(intervals), low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("labels at all sites" if bought else "round", color=INK)
    axes.set_ylabel("macro F1, test" if bought else "key metric, validation", color=INK)
    axes.legend(frameon=False, fontsize=8.5, ncols=2, labelcolor=INK, edgecolor=FAINT)
    text = svg(figure, f"{study.title}: {', '.join(study.rows[row].title for row in shown)}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_standalone(text), encoding="utf-8")


def _standalone(text: str) -> str:
    """Return an inline ``<svg>`` as a file that has its own colours."""
    head, end, body = text.partition(">")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head} xmlns="http://www.w3.org/2000/svg"{_links(head)}{end}{_STYLE}{body}\n'


def _links(head: str) -> str:
    return "" if "xlink" in head else ' xmlns:xlink="http://www.w3.org/1999/xlink"'


def _by_round(curves: Sequence[Curve]) -> Mapping[int, list[float]]:
    return _grouped([(round_, value) for curve in curves for round_, value in zip(curve.round, curve.val, strict=True)])


def _by_labels(curves: Sequence[Curve]) -> Mapping[int, list[float]]:
    """Return number of labels -> the last test value with so many, seed by seed; the place is the mean over seeds."""
    steps = [dict(zip(curve.labels, curve.test["f1_macro"], strict=True)) for curve in curves if curve.labels]
    places = [sum(each) / len(each) for each in zip(*steps, strict=True)]
    return {
        round(place): list(each)
        for place, each in zip(places, zip(*(s.values() for s in steps), strict=True), strict=True)
    }


def _grouped(points: Sequence[tuple[int, float]]) -> Mapping[int, list[float]]:
    found: dict[int, list[float]] = {}
    for place, value in points:
        found.setdefault(place, []).append(value)
    return dict(sorted(found.items()))
