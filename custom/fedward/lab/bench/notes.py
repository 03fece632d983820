"""What the numbers of a study support: intervals, regime, bounds, convergence, and its claims."""

from collections.abc import Mapping, Sequence

from fedward.lab.bench.bounds import upper_bound
from fedward.lab.bench.by_group import half_width_over_groups
from fedward.lab.bench.convergence import NOT_CONVERGED, NOT_SHOWN, unconverged
from fedward.lab.bench.evidence import (
    NO_BOUNDS,
    bounds_refusal,
    bounds_unknown,
    regime_refusal,
)
from fedward.lab.bench.markdown import metric_name
from fedward.lab.bench.records import Record
from fedward.lab.bench.repetition import data_varied
from fedward.lab.bench.results import Results
from fedward.lab.bench.verdicts import sentences


def notes(results: Results, studies_on_page: Sequence[Results]) -> str:
    """Return the list under a table that says what its numbers support.

    Args:
        results: of the study.
        studies_on_page: results of all studies whose tables stand on the same page, ``results``
            among them.
    """
    texts = [
        caption(results),
        _group_note(results),
        _regime_note(results),
        _unknown_bounds_note(results),
        _withheld_note(results),
        _upper_bound_note(results),
        _convergence_note(results),
        _start_note(results),
        *(
            sentences(results, studies_on_page)
            or ["**Claims**: none stood in the study before it ran."]
        ),
    ]
    return "\n".join(f"- {text}" for text in texts if text)


def caption(results: Results) -> str:
    """Return what the intervals over repetitions cover; empty if they cover data and weights."""
    ran = results.rows_that_ran()
    titles_of: dict[str, list[str]] = {}
    for variant, row in ran:
        records = results.repetitions(variant, row)
        if not data_varied(records):
            titles_of.setdefault(_covered(records), []).append(results.study.rows[row].title)
    if not titles_of:
        return ""
    parts = []
    for covered, titles in titles_of.items():
        of_rows = "" if len(titles) == len(ran) else f" of {_listed(titles)}"
        parts.append(f"**Intervals**{of_rows} are {covered}.")
    return f"{' '.join(parts)} No difference is shown."


def _covered(records: Sequence[Record]) -> str:
    """Return what the repetitions of a row differ in, if not in all images and labels."""
    test_images = {record.cut.test for record in records}
    labels = {record.cut.labels for record in records}
    if len(test_images) == len(labels) == 1:
        return "over first weights only; the images and labels were the same"
    if len(test_images) == 1:
        return "over first weights and labelled images only; the test images were the same"
    if len(labels) == 1:
        return "over first weights and test images only; the labelled images were the same"
    return "over repetitions that are not known to differ in all images and labels"


def _group_note(results: Results) -> str:
    metric = results.study.metrics[0]
    for variant, row in results.rows_that_ran():
        if half_width_over_groups(results.repetitions(variant, row), metric) is None:
            return "**Test images**: intervals over groups of them were not recorded for all rows."
    return ""


def _regime_note(results: Results) -> str:
    refusals = {
        variant: regime_refusal(results, variant)
        for variant in dict.fromkeys(variant for variant, _ in results.rows_that_ran())
    }
    texts = _by_text(results, refusals)
    where = "" if all(refusals.values()) else " there"
    return f"**Regime**: {texts}, so nothing is concluded on methods{where}." if texts else ""


def _unknown_bounds_note(results: Results) -> str:
    """Return where rows of few and of all labels have not both run."""
    unknown = {
        variant: NO_BOUNDS if bounds_unknown(results, variant) else ""
        for variant in results.study.variants
    }
    text = _by_text(results, unknown)
    where = "here" if all(unknown.values()) else "there"
    conclusion = f"so nothing {where} says what unlabelled images are worth"
    return f"**Bounds**: {text}, {conclusion}." if text else ""


def _withheld_note(results: Results) -> str:
    """Return which metrics are withheld, and why."""
    lines = []
    for metric in results.study.metrics:
        refusals = {
            variant: bounds_refusal(results, variant, metric) for variant in results.study.variants
        }
        text = _by_text(results, refusals)
        if text:
            lines.append(f"    - {metric_name(metric)}: {text}.")
    return "\n".join(["**Withheld** metrics:", *lines]) if lines else ""


def _upper_bound_note(results: Results) -> str:
    """Return what the upper bound of the first metric is in each repetition."""
    study = results.study
    best = upper_bound(results, study.first_variant, study.metrics[0])
    if not study.lower or not best.values:
        return ""
    bound = f"**Upper bound** of {metric_name(study.metrics[0])}, chosen by validation"
    if len(best.chosen) == 1:
        (title,) = best.chosen
        return f"{bound}: *{title}* each time."
    most_frequent_first = sorted(best.chosen.items(), key=lambda chosen: -chosen[1])
    lines = [f"    - *{title}*: {_times(count)}." for title, count in most_frequent_first]
    return "\n".join([f"{bound} in each repetition:", *lines])


def _convergence_note(results: Results) -> str:
    """Return the rows whose convergence is not shown, and a line for each value that moves."""
    study = results.study
    not_shown: list[str] = []
    moving: list[str] = []
    trained_rows = 0
    for variant, row in results.rows_that_ran():
        title = study.name_of(variant, row)
        records = results.repetitions(variant, row)
        doubled = results.doubled(variant, row)
        texts = {metric: unconverged(records, doubled, metric) for metric in study.metrics}
        if any(record.rounds > 1 for record in records):
            trained_rows += 1
        if NOT_SHOWN in texts.values():
            not_shown.append(title)
        for metric, text in texts.items():
            if text and text != NOT_SHOWN:
                reason = text.removeprefix(NOT_CONVERGED)
                moving.append(f"    - *{title}*, {metric_name(metric)}: {reason}.")
    parts = []
    if not_shown and len(not_shown) < trained_rows:
        parts.append(f"not shown for {_listed([f'*{title}*' for title in not_shown])}")
    elif not_shown:
        parts.append(f"shown for no row that trains, as {_lacking(results)}")
    if moving:
        parts.append("these values have not converged:")
    if not parts:
        return ""
    ending = "" if moving else "."
    return "\n".join([f"**Convergence**: {'; '.join(parts)}{ending}", *moving])


def _start_note(results: Results) -> str:
    """Return the rows for which validation chose the model before training, as far as lines say."""
    parts = []
    for variant, row in results.rows_that_ran():
        records = results.repetitions(variant, row)
        at_start = [
            record
            for record in records
            if record.best_round and not any(record.best_round.values())
        ]
        if at_start:
            title = results.study.name_of(variant, row)
            parts.append(f"*{title}* ({len(at_start)} of {len(records)} repetitions)")
    if not parts:
        return ""
    return (
        "**Start**: validation chose the model before training, whose values are shown, for "
        f"{', '.join(parts)}."
    )


def _lacking(results: Results) -> str:
    """Return what all rows that train lack to show convergence."""
    if any(results.doubled(variant, row) for variant, row in results.rows_that_ran()):
        return "none has both several repetitions and one of them with twice the rounds as well"
    return "none ran with twice the rounds as well"


def _by_text(results: Results, text_of: Mapping[str, str]) -> str:
    """Return each text once, with the titles of its variants unless it is of all.

    Args:
        results: of the study.
        text_of: variant -> text; empty ones are left out.
    """
    titles_of: dict[str, list[str]] = {}
    for variant, text in text_of.items():
        if text:
            titles_of.setdefault(text, []).append(results.study.variants[variant].title)
    parts = []
    for text, titles in titles_of.items():
        is_of_all = len(titles) == len(text_of)
        parts.append(text if is_of_all else f"{text} ({_listed(titles)})")
    return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    """Return the names, each of them once."""
    return ", ".join(dict.fromkeys(names))


def _times(count: int) -> str:
    """Return how often something was chosen, in words up to twice."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
