"""The tables of the IsoFed benchmark in markdown: our scores beside the paper's, and what the comparison says."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fedward.bench.numbers import difference, head, line, mean
from fedward.report.run import Run
from papers.isofed import DATASETS, GAMMAS, ROWS, SITES, Cell, result_file
from papers.isofed_paper import PAPER, Scores

Result = dict[str, Any]
Accuracies = dict[tuple[float, int, int], float]
"""Accuracy by (gamma, labelled sites, seed)."""
_COMPARED = ("isofed", "isofed_wo_pt")
"""The rows whose distance from each row is shown."""


def table(results: Sequence[Result]) -> str:
    """Return the table of a data set a section, ours as mean and sample standard deviation over seeds.

    The paper's numbers are from one run each.
    """
    lines: list[str] = []
    for dataset in [name for name in DATASETS if any(result["dataset"] == name for result in results)]:
        mine = [result for result in results if result["dataset"] == dataset]
        scores = [part for name in Scores._fields for part in (name, "paper")]
        lines += [f"\n### {dataset}\n", *head("L:U", "gamma", "method", "seeds", *scores, left=(0, 2))]
        for labelled in range(SITES, 0, -1):
            for gamma in GAMMAS:
                lines += [
                    _line(group, PAPER.get((dataset, row, labelled, gamma)))
                    for row in ROWS
                    if (group := _group(mine, row=row, labelled=labelled, gamma=gamma))
                ]
    return "\n".join([*lines, "", comparison(results)])


def comparison(results: Sequence[Result]) -> str:
    """Return, for each data set, the mean accuracy of each row, and the two IsoFed rows' distances from it, in pairs.

    A pair is the same data set, setting and seed; the interval is Student's t over all pairs, which are not quite
    independent, since settings of one seed share images.
    """
    lines = ["\n### Mean over the settings with unlabelled sites\n"]
    distances = [f"{ROWS[base].title} minus it [95 %]" for base in _COMPARED]
    lines += head("data set", "method", "runs", "accuracy", "paper", *distances, left=(0, 1))
    for dataset in DATASETS:
        by_row: dict[str, Accuracies] = defaultdict(dict)
        for result in results:
            if result["dataset"] == dataset and result["labelled"] < SITES:
                key = (result["gamma"], result["labelled"], result["seed"])
                by_row[result["row"]][key] = result["accuracy"]
        for row in [name for name in ROWS if name in by_row]:
            own, paper = by_row[row], _paper_mean(dataset, row)
            gaps = [_gap(by_row.get(base, {}), own) if base != row else "" for base in _COMPARED]
            printed = "-" if paper is None else f"{paper:.1f}"
            mean_accuracy = f"{fmean(own.values()):.1f}"
            lines.append(line(dataset, ROWS[row].title, str(len(own)), mean_accuracy, printed, *gaps))
    return "\n".join(lines)


def _gap(ours: Accuracies, theirs: Accuracies) -> str:
    """Return the mean difference over common settings and seeds, with its interval; nothing without any."""
    pairs = sorted(set(ours) & set(theirs))
    if not pairs:
        return ""
    return difference([ours[key] for key in pairs], [theirs[key] for key in pairs], digits=1)


def adaptation(out: Path, cells: Sequence[Cell]) -> str:
    """Return what IsoFed's adaptation does at equal rounds: validation accuracy with it and without.

    At equal work a method that adapts has half the rounds; this compares both after the last round that both were
    evaluated at, from the logs of their runs.
    """
    lines = ["\n### Adaptation at equal rounds: validation accuracy\n"]
    lines += head("data set", "pairs", "after round", "with", "without", "difference [95 %]")
    for dataset in DATASETS:
        pairs = [
            pair
            for cell in cells
            if cell.dataset == dataset and cell.row == "isofed" and (pair := _at_equal_rounds(out, cell)) is not None
        ]
        if not pairs:
            continue
        rounds, adapted, plain = zip(*pairs, strict=True)
        gap = difference(adapted, plain, digits=1)
        after = f"{min(rounds)}" if min(rounds) == max(rounds) else f"{min(rounds)} to {max(rounds)}"
        means = [f"{fmean(own):.1f}" for own in (adapted, plain)]
        lines.append(line(dataset, str(len(pairs)), after, *means, gap))
    return "\n".join(lines)


def _at_equal_rounds(out: Path, cell: Cell) -> tuple[int, float, float] | None:
    """Return (round, accuracy with adaptation, without) of a setting and seed; None until both runs are there."""
    twins = [cell, replace(cell, row="isofed_wo_pt")]
    if not all(result_file(out, twin).exists() for twin in twins):
        return None
    curves = [Run.load(result_file(out, twin).parent / "run").series("val", "accuracy") for twin in twins]
    common = set.intersection(*(set(line) for curve in curves for line in curve.values()))
    last = max(common)
    with_it, without = (100 * fmean(line[last] for line in curve.values()) for curve in curves)
    return last, with_it, without


def _paper_mean(dataset: str, row: str) -> float | None:
    found = [s.accuracy for (name, method, n, _), s in PAPER.items() if (name, method) == (dataset, row) and n < SITES]
    return fmean(found) if found else None


def _group(results: Sequence[Result], **wanted: Any) -> list[Result]:
    return [result for result in results if all(result[name] == value for name, value in wanted.items())]


def _line(group: Sequence[Result], paper: Scores | None) -> str:
    first = group[0]
    sites = f"{first['labelled']}:{SITES - first['labelled']}"
    numbers = []
    for name in Scores._fields:
        numbers.append(mean([result[name] for result in group], digits=1))
        numbers.append("-" if paper is None else f"{getattr(paper, name):.1f}")
    return line(sites, str(first["gamma"]), ROWS[first["row"]].title, str(len(group)), *numbers)
