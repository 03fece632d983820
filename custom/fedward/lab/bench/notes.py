"""What the numbers of a study support: intervals, regime, bounds, convergence, and its claims."""

from collections.abc import Mapping, Sequence
from itertools import chain

from fedward.lab.bench.bounds import NOT_APART, upper_bound
from fedward.lab.bench.by_group import half_width_over_groups
from fedward.lab.bench.convergence import (
    FEWEST_SEEDS,
    NOT_CONVERGED,
    NOT_SHOWN,
    change_by_doubling,
    half_interval,
    unconverged,
)
from fedward.lab.bench.evidence import (
    NO_BOUNDS,
    bounds_refusal,
    bounds_unknown,
    regime_refusal,
)
from fedward.lab.bench.markdown import Table, metric_name
from fedward.lab.bench.records import Record
from fedward.lab.bench.repetition import data_varied
from fedward.lab.bench.results import Results, chosen_value
from fedward.lab.bench.study_parts import RowOfVariant
from fedward.lab.bench.verdicts import sentences


def notes(results: Results, studies_on_page: Sequence[Results]) -> str:
    """Return what a study's numbers support: a list, then tables of values that allow nothing.

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
        *(
            sentences(results, studies_on_page)
            or ["**Claims**: none stood in the study before it ran."]
        ),
        _upper_bound_note(results),
        _convergence_note(results),
        _start_note(results),
    ]
    listed = "\n".join(f"- {text}" for text in texts if text)
    parts = [listed, _unconverged_values(results), _withheld_values(results)]
    return "\n\n".join(part for part in parts if part)


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
    """Return where nothing is concluded on methods, with a line for each reason if it differs."""
    refusals = {
        variant: regime_refusal(results, variant)
        for variant in dict.fromkeys(variant for variant, _ in results.rows_that_ran())
    }
    by_reason = _titles_by_text(results, refusals)
    if not by_reason:
        return ""
    if len(by_reason) == 1 and all(refusals.values()):
        (reason,) = by_reason
        return f"**Regime**: {reason}, so nothing is concluded on methods."
    where = "" if all(refusals.values()) else " in these variants"
    lines = [f"**Regime**: nothing is concluded on methods{where}:", *_lines(by_reason)]
    return "\n".join(lines)


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
    """Return the rows whose convergence is not shown."""
    study = results.study
    not_shown: dict[RowOfVariant, str] = {}
    trained_rows = 0
    for variant, row in results.rows_that_ran():
        records = results.repetitions(variant, row)
        doubled = results.doubled(variant, row)
        texts = [unconverged(records, doubled, metric) for metric in study.metrics]
        if any(record.rounds > 1 for record in records):
            trained_rows += 1
        if NOT_SHOWN in texts:
            not_shown[variant, row] = f"*{study.rows[row].title}*"
    if not not_shown:
        return ""
    if len(not_shown) < trained_rows:
        return f"**Convergence**: not shown for {_of_rows(results, not_shown)}"
    return f"**Convergence**: shown for no row that trains, as {_lacking(results)}."


def _unconverged_values(results: Results) -> str:
    """Return a table of the values that twice the rounds change by too much; empty without any."""
    study = results.study
    table = Table(["not converged", *map(metric_name, study.metrics)])
    for variant, row in results.rows_that_ran():
        cells = [_too_large_change(results, variant, row, metric) for metric in study.metrics]
        if any(cells):
            table.add(study.name_of(variant, row), *cells)
    if not table.lines:
        return ""
    return (
        "**Values that have not converged.** Twice the rounds change them by half of their "
        "interval or more. The table has this change and, in brackets, half the interval.\n\n"
        f"{table.markdown()}"
    )


def _too_large_change(results: Results, variant: str, row: str, metric: str) -> str:
    """Return how far twice the rounds change a value; empty if it is not known to be too far."""
    records = results.repetitions(variant, row)
    doubled = results.doubled(variant, row)
    if not unconverged(records, doubled, metric).startswith(NOT_CONVERGED):
        return ""
    change = change_by_doubling(records, doubled, metric)
    half = half_interval([chosen_value(record, metric) for record in records])
    return f"{change:.3f} ({half:.3f})"


def _withheld_values(results: Results) -> str:
    """Return a table of the variants and metrics that are withheld; empty without any."""
    study = results.study
    table = Table(["withheld", *map(metric_name, study.metrics)])
    for name, variant in study.variants.items():
        reasons = [bounds_refusal(results, name, metric) for metric in study.metrics]
        if any(reasons):
            cells = [reason.removeprefix(NOT_APART) for reason in reasons]
            table.add(variant.title or "all rows", *cells)
    if not table.lines:
        return ""
    return (
        "**Values that are withheld.** A number is the difference of all labels from few, which is "
        f"not shown to be above 0.\n\n{table.markdown()}"
    )


def _start_note(results: Results) -> str:
    """Return the rows for which validation chose the model before training, as far as lines say."""
    chosen: dict[RowOfVariant, str] = {}
    for variant, row in results.rows_that_ran():
        records = results.repetitions(variant, row)
        at_start = [
            record
            for record in records
            if record.best_round and not any(record.best_round.values())
        ]
        if at_start:
            title = results.study.rows[row].title
            chosen[variant, row] = f"*{title}* ({len(at_start)} of {len(records)} repetitions)"
    if not chosen:
        return ""
    return (
        "**Start**: validation chose the model before training, whose values are shown, for "
        f"{_of_rows(results, chosen)}"
    )


def _lacking(results: Results) -> str:
    """Return what all rows that train lack to show convergence."""
    if any(results.doubled(variant, row) for variant, row in results.rows_that_ran()):
        return (
            f"none has both {FEWEST_SEEDS} repetitions or more and one of them with twice the "
            "rounds as well"
        )
    return "none ran with twice the rounds as well"


def _of_rows(results: Results, text_of: Mapping[RowOfVariant, str]) -> str:
    """Return texts on rows as the end of a sentence, in a line for each variant if it has a title.

    Args:
        results: of the study.
        text_of: (variant, row) -> text on the row, one or more.
    """
    of_variants = {
        variant: ", ".join(text for (other, _), text in text_of.items() if other == variant)
        for variant in results.study.variants
    }
    by_text = _titles_by_text(results, of_variants)
    if not any(chain.from_iterable(by_text.values())):
        return f"{', '.join(by_text)}."
    return "\n".join(["these rows:", *_lines(by_text)])


def _lines(by_text: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line of an inner list for each text, after the titles of its variants."""
    return [f"    - *{'; '.join(titles)}*: {text}." for text, titles in by_text.items()]


def _by_text(results: Results, text_of: Mapping[str, str]) -> str:
    """Return each text once, with the titles of its variants unless it is of all.

    Args:
        results: of the study.
        text_of: variant -> text; empty ones are left out.
    """
    parts = []
    for text, titles in _titles_by_text(results, text_of).items():
        is_of_all = len(titles) == len(text_of)
        parts.append(text if is_of_all else f"{text} ({_listed(titles)})")
    return "; ".join(parts)


def _titles_by_text(results: Results, text_of: Mapping[str, str]) -> dict[str, list[str]]:
    """Return text -> the titles of its variants; empty texts are left out."""
    titles_of: dict[str, list[str]] = {}
    for variant, text in text_of.items():
        if text:
            titles_of.setdefault(text, []).append(results.study.variants[variant].title)
    return titles_of


def _listed(names: Sequence[str]) -> str:
    """Return the names, each of them once."""
    return ", ".join(dict.fromkeys(names))


def _times(count: int) -> str:
    """Return how often something was chosen, in words up to twice."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
