"""The tables of the FedAL benchmark in markdown: our scores beside the paper's, and their distance from FedAL's."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from fedward.bench.numbers import difference, head, line, mean
from papers.fedal import ROWS
from papers.fedal_paper import HOSPITALS, METRICS, TABLE_3, TABLE_4
from papers.fedal_results import CHOOSES, mean_over_hospitals
from papers.fedal_sites import CLASSES

Result = dict[str, Any]
Seeds = dict[int, Result]
"""Results of one row by seed."""

_DISTANCES = ("method", "pairs", *(part for name in METRICS.values() for part in (f"{name} [95 %]", "p")))
PROTOCOLS = {"chosen": "best round on validation images with all labels", "last": "last round"}


def table_3(results: Sequence[Result], split: str) -> str:
    """Return Table 3 for one split, by both ways to choose a round, each with the distances from FedAL.

    Percent on test images, mean over hospitals; mean and sample standard deviation over seeds. ``minus FedAL``: paired
    by seed, with the 95 % interval and the p value of the paired t-test, uncorrected for the number of comparisons.
    """
    rows = _by_row(results, split)
    lines: list[str] = []
    for protocol, words in PROTOCOLS.items():
        lines += [f"\n### Table 3, split by {split}, {words}\n", *_scores(rows, protocol)]
        if distances := _distances(rows, protocol):
            lines += [f"\n#### Minus FedAL, split by {split}, {words}\n", *head(*_DISTANCES), *distances]
    return "\n".join(lines)


def table_4(results: Sequence[Result], split: str) -> str:
    """Return Table 4 for one split, by both ways to choose a round: macro-F1 of each hospital and their mean."""
    names, rows = [*HOSPITALS, "mean"], _by_row(results, split)
    lines: list[str] = []
    for protocol, words in PROTOCOLS.items():
        lines.append(f"\n### Table 4, macro-F1, split by {split}, {words}\n")
        lines += head("method", "labels", "seeds", *(part for name in names for part in (name, "paper")))
        for row, seeds in rows.items():
            cells = []
            for name in names:
                values = [_macro_f1(result, protocol, name) for result in seeds.values()]
                cells += [mean(values, digits=1), f"{TABLE_4[row][name]:.1f}" if row in TABLE_4 else "-"]
            lines.append(line(ROWS[row].title, ROWS[row].data, str(len(seeds)), *cells))
    return "\n".join(lines)


def bought_table(results: Sequence[Result], split: str) -> str:
    """Return the classes of the labels that the hospitals of each row together have in the end, in percent."""
    rows = _by_row([result for result in results if result["bought"]], split)
    shares_of = [f"{name} %" for name in CLASSES]
    lines = [f"\n### Labels by class, split by {split}\n", *head("method", "seeds", "labels", *shares_of)]
    for row, seeds in rows.items():
        counts = [_counts(result) for result in seeds.values()]
        shares = [[100 * of_run[name] / sum(of_run.values()) for of_run in counts] for name in CLASSES]
        number = mean([sum(of_run.values()) for of_run in counts], digits=0)
        lines.append(line(ROWS[row].title, str(len(seeds)), number, *(mean(share, digits=1) for share in shares)))
    return "\n".join(lines)


def curve_table(results: Sequence[Result], split: str) -> str:
    """Return the means over all points of the curves but the first, which all have in common.

    One round says little of a few hundred test images; a sampler that finds its labels earlier is higher all along.
    ``minus random``: paired by seed, with the 95 % interval.
    """
    rows = _by_row([result for result in results if not ROWS[result["row"]].everything], split)
    random = rows.get("random", {})
    lines = [f"\n### Mean along the curve, split by {split}\n"]
    lines += head("method", "seeds", *(part for name in METRICS.values() for part in (name, "minus random [95 %]")))
    for row, seeds in rows.items():
        pairs = [] if row == "random" else sorted(set(seeds) & set(random))
        cells = []
        for metric in METRICS:
            cells.append(mean([_along(result, metric) for result in seeds.values()], digits=2))
            ours, theirs = ([_along(each[seed], metric) for seed in pairs] for each in (seeds, random))
            cells.append(difference(ours, theirs, digits=2) if pairs else "-")
        lines.append(line(ROWS[row].title, str(len(seeds)), *cells))
    return "\n".join(lines)


def _along(result: Result, metric: str) -> float:
    return fmean(point["test"][metric] for point in result["curve"] if point["queries"])


def _counts(result: Result) -> dict[str, int]:
    """Return class -> labels at all hospitals."""
    return {name: sum(own[name] for own in result["bought"].values()) for name in CLASSES}


def _scores(rows: dict[str, Seeds], protocol: str) -> list[str]:
    lines = head("method", "labels", "seeds", *(part for name in METRICS.values() for part in (name, "paper")))
    for row, seeds in rows.items():
        cells = []
        for metric in METRICS:
            paper = TABLE_3.get(row)
            cells.append(mean(_values(seeds, sorted(seeds), protocol, metric), digits=2))
            cells.append(f"{paper[metric].mean:.2f} ± {paper[metric].sd:.2f}" if paper else "-")
        lines.append(line(ROWS[row].title, ROWS[row].data, str(len(seeds)), *cells))
    return lines


def _distances(rows: dict[str, Seeds], protocol: str) -> list[str]:
    """Return a line for each row that has a seed in common with FedAL."""
    lines: list[str] = []
    fedal = rows.get("fedal", {})
    for row, seeds in rows.items():
        pairs = sorted(set(seeds) & set(fedal))
        if row == "fedal" or not pairs:
            continue
        cells = []
        for metric in METRICS:
            ours, theirs = (_values(each, pairs, protocol, metric) for each in (seeds, fedal))
            cells += [difference(ours, theirs, digits=2), _p_value(ours, theirs)]
        lines.append(line(ROWS[row].title, str(len(pairs)), *cells))
    return lines


def _p_value(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return p of the two-sided paired t-test; a dash where it has none: one pair, or equal differences."""
    gaps = {round(a - b, 9) for a, b in zip(ours, theirs, strict=True)}
    if len(gaps) < 2:
        return "-"
    from scipy.stats import ttest_rel  # type: ignore[import-untyped,unused-ignore]  # here, as it is slow to import

    return f"{float(ttest_rel(ours, theirs).pvalue):.3f}"


def _values(seeds: Seeds, wanted: Sequence[int], protocol: str, metric: str) -> list[float]:
    return [mean_over_hospitals(seeds[seed][protocol], metric) for seed in wanted]


def _macro_f1(result: Result, protocol: str, name: str) -> float:
    scores = result[protocol]
    return mean_over_hospitals(scores, CHOOSES) if name == "mean" else float(scores[name][CHOOSES])


def _by_row(results: Sequence[Result], split: str) -> dict[str, Seeds]:
    """Return row -> seed -> result of one split, in the order of the tables; rows without a result are left out."""
    found = {row: {r["seed"]: r for r in results if (r["row"], r["split"]) == (row, split)} for row in ROWS}
    return {row: seeds for row, seeds in found.items() if seeds}
