"""What the numbers of a study support: intervals, regime, bounds, convergence, and its claims."""

from collections.abc import Mapping, Sequence

from fedward.lab.bench.convergence import NOT_CONVERGED, NOT_SHOWN
from fedward.lab.bench.markdown import metric_name
from fedward.lab.bench.results import NO_BOUNDS, Results
from fedward.lab.bench.tables import caption, rows_that_ran
from fedward.lab.bench.verdicts import sentences


def notes(results: Results, page: Sequence[Results]) -> str:
    """Return the list under a table that says what its numbers support.

    Args:
        results: of the study.
        page: results of all studies whose tables stand on the same page, ``results`` among them.
    """
    texts = [
        caption(results),
        _group_note(results),
        _regime_note(results),
        _bounds_note(results),
        _convergence_note(results),
        _start_note(results),
        *(sentences(results, page) or ["**Claims**: none stood in the study before it ran."]),
    ]
    return "\n".join(f"- {text}" for text in texts if text)


def _group_note(results: Results) -> str:
    metric = results.study.metrics[0]
    for variant, row in rows_that_ran(results):
        if results.group_interval(variant, row, metric) is None:
            return "**Test images**: intervals over groups of them were not recorded for all rows."
    return ""


def _regime_note(results: Results) -> str:
    refusals = {
        variant: results.regime_refusal(variant)
        for variant in results.study.variants
        if any(results.by_seed(variant, row) for row in results.study.rows_of(variant))
    }
    texts = _by_text(results, refusals)
    where = "" if all(refusals.values()) else " there"
    return f"**Regime**: {texts}, so nothing is concluded on methods{where}." if texts else ""


def _bounds_note(results: Results) -> str:
    """Return what the upper bounds are, and which metrics are withheld."""
    study = results.study
    parts = []
    unknown = {
        variant: NO_BOUNDS if results.bounds_unknown(variant) else "" for variant in study.variants
    }
    text = _by_text(results, unknown)
    if text:
        where = "here" if all(unknown.values()) else "there"
        parts.append(f"{text}, so nothing {where} says what unlabelled images are worth")
    for metric in study.metrics:
        refusals = {variant: results.bounds_refusal(variant, metric) for variant in study.variants}
        text = _by_text(results, refusals)
        if text:
            parts.append(f"{metric_name(metric)} withheld, {text}")
    best = results.upper(study.first_variant, study.metrics[0])
    if study.lower and best.values:
        chosen = _listed([f"*{title}* ({count} times)" for title, count in best.chosen.items()])
        way = "validation" if best.by_validation else "the other repetitions"
        name = metric_name(study.metrics[0])
        parts.append(f"the upper bound of {name} is {chosen}, chosen by {way}")
    return f"**Bounds**: {'; '.join(parts)}." if parts else ""


def _convergence_note(results: Results) -> str:
    """Return the rows whose convergence is not shown, and a line for each value that moves."""
    study = results.study
    not_shown: list[str] = []
    moving: list[str] = []
    trained_rows = 0
    for variant, row in rows_that_ran(results):
        title = study.in_variant(variant, study.rows[row].title)
        texts = {metric: results.unconverged(variant, row, metric) for metric in study.metrics}
        if any(record.rounds > 1 for record in results.by_seed(variant, row).values()):
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
    for variant, row in rows_that_ran(results):
        records = results.by_seed(variant, row).values()
        at_start = [
            record
            for record in records
            if record.best_round and not any(record.best_round.values())
        ]
        if at_start:
            title = results.study.in_variant(variant, results.study.rows[row].title)
            parts.append(f"*{title}* ({len(at_start)} of {len(records)} repetitions)")
    if not parts:
        return ""
    return (
        "**Start**: validation chose the model before training, whose values are shown, for "
        f"{', '.join(parts)}."
    )


def _lacking(results: Results) -> str:
    """Return what all rows that train lack to show convergence."""
    if any(results.doubled(variant, row) for variant, row in rows_that_ran(results)):
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
