"""The figures of the SelfFed benchmark as markdown tables and pictures: test accuracy against one thing at a time."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from fedward.bench.numbers import difference, head, line, mean
from papers.selffed import GAMMAS, ROWS, SHARES, USUAL_GAMMA, USUAL_SHARE
from papers.svg import STYLE, save

Result = dict[str, Any]
_AXES: dict[int, tuple[str, Sequence[float], Callable[[float], str], str]] = {
    3: ("gamma", GAMMAS, lambda value: f"Dir({value:g})", "concentration of the split: even, moderate, severe"),
    6: ("share", SHARES, lambda value: f"{value:.0%}", "labelled share of the training images"),
}
"""What a figure varies: the field of a cell, its values, how a value is written, and what the axis is called."""


def figure_table(results: Sequence[Result], figure: int) -> str:
    """Return a figure's numbers: a line for each row, a column for each value of what is varied.

    Percent of all test images at the round that validation chooses; mean and sample standard deviation over seeds.
    ``minus federated MAE``: of each seed's mean over the columns that both have, paired by seed, with the 95 %
    interval. Below, the same of each seed and column, since an interval over two seeds tells little.
    """
    field, values, written, _ = _AXES[figure]
    found = _by_row(_varied(results, figure))
    heads = [written(value) for value in values]
    lines = [
        f"\n### Figure {figure}, test accuracy, %\n",
        *head("method", "seeds", *heads, "minus federated MAE [95 %]"),
    ]
    for row, mine in found.items():
        points = [_accuracies([one for one in mine if one[field] == value]) for value in values]
        cells = [mean(point, digits=1) if point else "" for point in points]
        lines.append(line(ROWS[row].title, _seeds(mine), *cells, _distance(mine, found.get("mae", []), field)))
    lines += ["\nMinus federated MAE, seed by seed:\n", *head("method", *heads)]
    for row, mine in found.items():
        if row == "mae":
            continue
        pairs = _paired(mine, found.get("mae", []), field)
        gaps = [[ours - theirs for (_, at), (ours, theirs) in pairs.items() if at == value] for value in values]
        lines.append(line(ROWS[row].title, *(", ".join(f"{gap:+.1f}" for gap in each) for each in gaps)))
    return "\n".join(lines)


def rows_table(results: Sequence[Result], title: str) -> str:
    """Return the rows at the usual setting, each with its distance from the row that differs in one thing."""
    found = _by_row([one for one in results if (one["gamma"], one["share"]) == (USUAL_GAMMA, USUAL_SHARE)])
    lines = [f"\n### {title}, test accuracy, %\n"]
    lines += head("method", "seeds", "chosen round", "last round", "minus [95 %]", "which")
    for row, mine in found.items():
        against = ROWS[row].against
        last = mean([one["last"] for one in mine], digits=1)
        distance = _distance(mine, found.get(against, []), "share")
        other = "-" if distance == "-" else ROWS[against].title
        lines.append(line(ROWS[row].title, _seeds(mine), mean(_accuracies(mine), digits=1), last, distance, other))
    return "\n".join(lines)


def draw(results: Sequence[Result], figure: int, picture: Path) -> None:
    """Write a figure as SVG: a line for each row, a point for each seed. Without results what lies there stays."""
    field, values, written, name = _AXES[figure]
    if not (found := _by_row(_varied(results, figure))):
        return
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(6.4, 4.2), layout="constrained")
        panel = drawn.subplots()
        for index, (row, mine) in enumerate(found.items()):
            there = [value for value in values if any(one[field] == value for one in mine)]
            points = [_accuracies([one for one in mine if one[field] == value]) for value in there]
            at, colour = [values.index(value) for value in there], mpl.colormaps["tab10"](index)
            panel.plot(at, [fmean(each) for each in points], color=colour, label=ROWS[row].title)
            for place, each in zip(at, points, strict=True):
                panel.plot([place] * len(each), each, "o", color=colour, markersize=3)
        panel.set_xticks(range(len(values)), [written(value) for value in values])
        panel.set(xlabel=name, ylabel="test accuracy, %")
        panel.spines[["top", "right"]].set_visible(False)
        drawn.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
        save(drawn, picture)


def _varied(results: Sequence[Result], figure: int) -> list[Result]:
    """Return the results of a figure: what it does not vary is as usual."""
    other, usual = ("share", USUAL_SHARE) if _AXES[figure][0] == "gamma" else ("gamma", USUAL_GAMMA)
    return [one for one in results if one[other] == usual]


def _by_row(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return row -> results, in the order of the rows; those without a result are left out."""
    found = {row: [one for one in results if one["row"] == row] for row in ROWS}
    return {row: mine for row, mine in found.items() if mine}


def _distance(ours: Sequence[Result], theirs: Sequence[Result], field: str) -> str:
    """Return the difference, a number for each seed: the mean over the values of ``field`` that both have.

    A dash for a row and itself.
    """
    pairs = _paired(ours, theirs, field)
    if not pairs or ours == theirs:
        return "-"
    seeds = sorted({seed for seed, _ in pairs})
    own, other = (
        [fmean(pair[side] for (found, _), pair in pairs.items() if found == seed) for seed in seeds] for side in (0, 1)
    )
    return difference(own, other, digits=1)


def _paired(
    ours: Sequence[Result], theirs: Sequence[Result], field: str
) -> dict[tuple[int, float], tuple[float, float]]:
    """Return (seed, value of ``field``) -> the accuracies of both, where both have one, in the seeds' order."""
    mine, others = ({(one["seed"], one[field]): float(one["accuracy"]) for one in each} for each in (ours, theirs))
    return {pair: (mine[pair], others[pair]) for pair in sorted(mine.keys() & others.keys())}


def _accuracies(results: Sequence[Result]) -> list[float]:
    return [float(one["accuracy"]) for one in results]


def _seeds(results: Sequence[Result]) -> str:
    return str(len({one["seed"] for one in results}))
