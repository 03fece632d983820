"""Where the rows of a study fail: at the lowest site, in rare classes, below the baseline."""

from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import fmean

from fedward.lab.bench.forest import Difference, baseline_of, groups_of
from fedward.lab.bench.markdown import gap_text, metric_name
from fedward.lab.bench.results import Results

_MOST_ROWS = 3
"""Number of rows below the baseline that are named, the lowest first."""
_MUCH = 0.05
"""How far Macro F1 is below Accuracy if rare classes are recognised clearly less well."""
_CLASSES = ("accuracy", "f1_macro")
"""The first counts every image once, the second every class."""


def shortcomings(results: Results) -> str:
    """Return a list of where rows fail, from the recorded lines; empty if nothing has run."""
    lines = [line for line in (_sites(results), _classes(results), _below(results)) if line]
    if not lines:
        return ""
    return "\n".join(["**Where it fails**", "", *(f"- {line}" for line in lines)])


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
    below = [(title, one) for title, one in compared if _is_below(one)]
    baseline = results.study.rows[baseline_of(results)].title
    if not below:
        return f"No row has its whole interval of {metric_name(metric)} below *{baseline}*."
    below.sort(key=lambda titled: titled[1].gap.mean)
    rows = [_named(title, one) for title, one in below[:_MOST_ROWS]]
    more = len(below) - len(rows)
    others = f", and {more} more" if more else ""
    withheld = sum(one.withheld for _, one in below)
    if withheld == len(below):
        note = f"No conclusion may be drawn from {'it' if len(below) == 1 else 'them'}."
    elif withheld:
        note = (
            f"No conclusion may be drawn from {withheld} of them, and from the others only where "
            "it was claimed."
        )
    else:
        note = "A conclusion may be drawn only where it was claimed."
    return (
        f"Lower in {metric_name(metric)} than *{baseline}*, with the whole interval below 0: "
        f"{', '.join(rows)}{others}. {note}"
    )


def _is_below(difference: Difference) -> bool:
    return difference.gap.high is not None and difference.gap.high < 0


def _named(group: str, difference: Difference) -> str:
    name = f"{difference.title}, {group}" if group else difference.title
    return f"*{name}* {gap_text(difference.gap)}"


def _sites(results: Results) -> str:
    """Return the lowest and the highest site of the page's row, as means over repetitions."""
    metric = results.study.metrics[0]
    for variant, row in _described(results, metric):
        records = results.by_seed(variant, row)
        by_seed = {seed: record.of_sites(metric) for seed, record in records.items()}
        by_seed = {seed: values for seed, values in by_seed.items() if len(values) > 1}
        if by_seed:
            title = results.study.rows[row].title
            return f"Sites with *{title}*: {_ends(by_seed, metric)}."
    return ""


def _ends(by_seed: Mapping[int, Mapping[str, float]], metric: str) -> str:
    lowest = [min(values.values()) for values in by_seed.values()]
    highest = [max(values.values()) for values in by_seed.values()]
    names = Counter(min(values, key=values.__getitem__) for values in by_seed.values())
    name, times = names.most_common(1)[0]
    where = f" ({name} each time)" if 1 < len(by_seed) == times else ""
    repetitions = f"means of {len(by_seed)} repetitions" if len(by_seed) > 1 else "one repetition"
    return (
        f"{metric_name(metric)} is {fmean(lowest):.3f} at the lowest{where}, and "
        f"{fmean(highest):.3f} at the highest ({repetitions})"
    )


def _classes(results: Results) -> str:
    """Return how far the mean over classes is below the mean over images, which rare classes
    hardly change; lines have no value by class.
    """
    if not set(_CLASSES) <= set(results.study.metrics):
        return ""
    for variant, row in _described(results, *_CLASSES):
        every_image, every_class = (
            fmean(results.test_values(variant, row, metric).values()) for metric in _CLASSES
        )
        title = results.study.rows[row].title
        numbers = f"Macro F1 is {every_class:.3f} and Accuracy {every_image:.3f}"
        conclusion = ""
        if every_image - every_class >= _MUCH:
            conclusion = ", so rare classes are recognised less often"
        return f"Classes with *{title}*: {numbers}{conclusion}."
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
            withheld = any(results.bounds_refusal(variant, metric) for metric in metrics)
            if results.by_seed(variant, row) and not withheld:
                yield variant, row
