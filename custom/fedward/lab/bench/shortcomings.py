"""Where the rows of a study fail: at the lowest site, in rare classes, below the baseline."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from fedward.lab.bench.evidence import bounds_refusal
from fedward.lab.bench.forest import Difference, baseline_of, groups_of
from fedward.lab.bench.markdown import gap_text, metric_name
from fedward.lab.bench.results import Results

_MOST_ROWS = 3
"""Number of rows below the baseline that are named, the lowest first."""
_MUCH = 0.05
"""How far balanced accuracy is below accuracy if rare classes are recognised clearly less well."""


def shortcomings(results: Results) -> str:
    """Return a list of where rows fail, from the recorded lines; empty if nothing has run."""
    sentences = [_sites(results), _classes(results), _below(results)]
    lines = [f"- {sentence}" for sentence in sentences if sentence]
    if not lines:
        return ""
    return "\n".join(["**Where it fails**", "", *lines])


def _below(results: Results) -> str:
    """Return the rows whose difference from the baseline has its whole interval below 0."""
    metric = results.study.metrics[0]
    compared = [
        (group.title, difference)
        for group in groups_of(results, metric)
        for difference in group.differences
        if not difference.is_reference
    ]
    if not compared:
        return ""
    below = [(title, difference) for title, difference in compared if _is_below(difference)]
    baseline = results.study.rows[baseline_of(results)].title
    if not below:
        return (
            f"No row that trains is lower in {metric_name(metric)} than *{baseline}* with the "
            "whole interval below 0."
        )
    below.sort(key=lambda titled: titled[1].gap.mean)
    rows = [_named(title, difference) for title, difference in below[:_MOST_ROWS]]
    more = len(below) - len(rows)
    others = f", and {more} more" if more else ""
    withheld = sum(difference.withheld for _, difference in below)
    return (
        f"Lower in {metric_name(metric)} than *{baseline}*, with the whole interval below 0: "
        f"{', '.join(rows)}{others}. {_conclusions(withheld, len(below))}"
    )


def _conclusions(withheld: int, rows: int) -> str:
    """Return what may be concluded from some rows, of which the rules withhold some."""
    if withheld == rows:
        them = "it" if rows == 1 else "them"
        return f"No conclusion may be drawn from {them}."
    if withheld:
        return (
            f"No conclusion may be drawn from {withheld} of them; from the others, only where a "
            "claim was made."
        )
    return "A conclusion may be drawn only where a claim was made."


def _is_below(difference: Difference) -> bool:
    """Return whether a difference has its whole interval below 0."""
    return difference.gap.high is not None and difference.gap.high < 0


def _named(variant_title: str, difference: Difference) -> str:
    """Return a row's name and its difference, after the variant's title if it has one."""
    name = f"{variant_title}: {difference.title}" if variant_title else difference.title
    return f"*{name}* {gap_text(difference.gap)}"


def _sites(results: Results) -> str:
    """Return the lowest and the highest site of the page's row, as means over repetitions."""
    metric = results.study.metrics[0]
    for variant, row in _described(results, metric):
        records = results.repetitions(variant, row)
        of_repetitions = [record.of_sites(metric) for record in records]
        of_repetitions = [of_sites for of_sites in of_repetitions if len(of_sites) > 1]
        if of_repetitions:
            title = results.study.name_of(variant, row)
            return f"Sites with *{title}*: {_lowest_and_highest(of_repetitions, metric)}."
    return ""


def _lowest_and_highest(of_repetitions: Sequence[Mapping[str, float]], metric: str) -> str:
    """Return the values at the lowest and the highest site, in words.

    Args:
        of_repetitions: one or more, each with site -> value.
        metric: what the values are of.
    """
    lowest = [min(of_sites.values()) for of_sites in of_repetitions]
    highest = [max(of_sites.values()) for of_sites in of_repetitions]
    lowest_sites = {min(of_sites, key=of_sites.__getitem__) for of_sites in of_repetitions}
    where = ""
    repetitions = "one repetition"
    if len(of_repetitions) > 1:
        repetitions = f"means of {len(of_repetitions)} repetitions"
        if len(lowest_sites) == 1:
            where = f" ({lowest_sites.pop()} each time)"
    return (
        f"{metric_name(metric)} is {fmean(lowest):.3f} at the lowest{where}, and "
        f"{fmean(highest):.3f} at the highest ({repetitions})"
    )


def _classes(results: Results) -> str:
    """Return how far the mean over classes is below the mean over images.

    Rare classes hardly change the latter. Recorded lines have no value of each class.
    """
    # The first counts every image once, the second every class.
    metrics = ("accuracy", "f1_macro")
    if not set(metrics) <= set(results.study.metrics):
        return ""
    for variant, row in _described(results, *metrics):
        accuracy = fmean(results.test_values(variant, row, "accuracy").values())
        macro_f1 = fmean(results.test_values(variant, row, "f1_macro").values())
        title = results.study.name_of(variant, row)
        text = (
            f"Rare classes with *{title}*: Macro F1, which counts classes alike, is "
            f"{macro_f1:.3f}; Accuracy, which counts images alike, is {accuracy:.3f}."
        )
        if bounds_refusal(results, variant, "balanced_accuracy"):
            return text
        found = fmean(results.test_values(variant, row, "balanced_accuracy").values())
        if accuracy - found >= _MUCH:
            text += (
                f" In the mean over classes {found:.3f} of the images are recognised, so rare "
                "classes are recognised less often."
            )
        return text
    return ""


def _described(results: Results, *metrics: str) -> Iterator[tuple[str, str]]:
    """Yield (variant, row) of the row that the page is about, else of few or of all labels.

    A variant in which one of the metrics is withheld is left out.
    """
    study = results.study
    for row in dict.fromkeys((study.own, study.lower, study.upper)):
        for variant in study.variants:
            if not row or row not in study.rows_of(variant):
                continue
            withheld = any(bounds_refusal(results, variant, metric) for metric in metrics)
            if results.has_run(variant, row) and not withheld:
                yield variant, row
