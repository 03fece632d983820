"""An evaluation as text for an 80-column terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedward.errors import listed
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.terminal import fold, on_one_line
from fedward.text import count

_REFER = 0.9
"""The threshold of referral that is shown for each class of a multi-label model."""
_OVERALL = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1_macro": "macro F1",
    "precision_macro": "macro precision",
    "auroc_macro": "macro AUROC",
    "auprc_macro": "macro AUPRC",
    "hamming_accuracy": "Hamming accuracy",
    "exact_match": "exact match",
}
_TABLES = (
    {"sensitivity": "sensitivity", "specificity": "specificity", "auroc": "AUROC"},
    {"positive": "positive pred.", "negative": "negative pred."},
)
"""Tables of classes: number -> title of its column."""


def lines(evaluation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about what :func:`fedward.inference.evaluation.evaluate` returned."""
    unit = evaluation["unit"]
    yield f"{evaluation['site']}, {evaluation['split']}: {evaluation['images']} {unit}s"
    yield ""
    for name, title in _OVERALL.items():
        if name in evaluation["overall"]:
            yield f"{title:<20}{_number(evaluation['overall'][name])}"
    multi_label = evaluation["confusion"] is None
    if not multi_label:
        yield from _calibration(evaluation)
    for table in _TABLES:
        yield ""
        titles = "".join(f"{title:<17}" for title in table.values())
        yield f"{unit + 's':>8}  {titles}class"
        for name, of_class in evaluation["classes"].items():
            numbers = "".join(f"{_number(of_class[key]):<17}" for key in table)
            yield f"{of_class['images']:>8}  {numbers}{on_one_line(name)}"
    yield ""
    if multi_label:
        yield from _answers(evaluation)
        yield ""
    else:
        names = list(evaluation["groups"] or evaluation["model"]["classes"])
        yield from _confusion(evaluation["confusion"], names, unit)
        yield ""
        yield from _referral(evaluation)
        yield ""
    yield from fold(_notes(evaluation))


def _number(estimate: Mapping[str, float | None] | None) -> str:
    """Return a number with its interval."""
    if estimate is None:
        return "-"
    interval = "n/a" if estimate["low"] is None else f"{estimate['low']:.2f}-{estimate['high']:.2f}"
    return f"{estimate['value']:.2f} ({interval})"


def _calibration(evaluation: Mapping[str, Any]) -> Iterator[str]:
    """Yield calibration errors, what a temperature makes of them, and the area of risks."""
    indent = " " * 20
    largest = evaluation["largest_calibration_error"]
    errors = f"{evaluation['calibration_error']:.3f}, at most {largest:.3f} in an interval"
    yield f"{'calibration error':<20}{errors}"
    adaptive = evaluation["adaptive_bins"]
    largest = adaptive["largest_calibration_error"]
    yield f"{indent}{adaptive['calibration_error']:.3f}, at most {largest:.3f} in adaptive bins"
    tempered = evaluation["temperature"]
    if evaluation["split"] == "test" and not tempered:
        yield f"{indent}no temperature follows from the validation images"
    if tempered:
        error = f"{tempered['calibration_error']:.3f} at temperature {tempered['value']:.2f}"
        yield f"{indent}{error}, by {count(tempered['images'], 'validation image')}"
        if tempered["calibration_error"] > evaluation["calibration_error"]:
            yield f"{indent}which is worse: use no temperature"
    yield f"{'risk-coverage area':<20}{evaluation['risk_coverage_area']:.3f}"


def _confusion(
    rows: Mapping[str, Sequence[int | None]], names: Sequence[str], unit: str
) -> Iterator[str]:
    """Yield the confusion matrix; columns have numbers, because names may be long."""
    width = max(4, *(len(str(count)) for row in rows.values() for count in row)) + 1
    yield f"{unit}s by predicted class (columns) and true class (rows)"
    yield "".join(f"{number:>{width}}" for number in range(1, len(names) + 1))
    for number, name in enumerate(names, 1):
        # A class that is a number itself would read as a sum.
        called = f"class {name}" if name.isdecimal() else on_one_line(name)
        if name in rows:
            counts = (f"<{SMALLEST_COUNT}" if count is None else count for count in rows[name])
            yield "".join(f"{count:>{width}}" for count in counts) + f"  {number} = {called}"
        else:
            yield " " * width * len(names) + f"  {number} = {called}: no {unit}s, or too few"


def _referral(evaluation: Mapping[str, Any]) -> Iterator[str]:
    """Yield what thresholds of ``fedward predict --refer-below`` do, also with the temperature."""
    columns = [evaluation["referral"]]
    header = f"{'refer below':<15}referred, accuracy of the others"
    if evaluation["temperature"]:
        columns.append(evaluation["temperature"]["referral"])
        header += "  with the temperature"
    yield header
    for rows in zip(*columns, strict=True):
        line = f"{rows[0]['below']:<15}"
        for row in rows:
            cell = f"{row['referred']:>5.0%}  {_number(row['accuracy'])}"
            line += f"{cell:<34}"
        yield line.rstrip()


def _answers(evaluation: Mapping[str, Any]) -> Iterator[str]:
    """Yield how far answers to each class can be trusted, also with the class's temperature."""
    tempered = evaluation["temperature"]["classes"] if evaluation["temperature"] else {}
    yield f"{'calibration error, with temperature':<37}refer below {_REFER}: referred, right else"
    for name, of_class in evaluation["classes"].items():
        with_temperature = "-"
        if name in tempered:
            error = tempered[name]["calibration_error"]
            with_temperature = f"{error:.3f} at {tempered[name]['value']:.2f}"
        calibration = f"{of_class['calibration_error']:>8.3f}  {with_temperature}"
        row = next(row for row in of_class["referral"] if row["below"] == _REFER)
        right = f"{_number(row['accuracy']):<17}"
        yield f"{calibration:<37}{row['referred']:>5.0%}  {right}  {on_one_line(name)}"


def _notes(evaluation: Mapping[str, Any]) -> str:
    unit = f"{evaluation['unit']}s"
    several_labels = evaluation["confusion"] is None
    notes = f"In brackets: 95 % intervals, for {unit} that are independent of each other."
    if evaluation["unit"] == "patient":
        notes += " A patient's answer is the mean of the probabilities of its images."
    elif evaluation["patients_have_several_images"]:
        notes += " They are too narrow, as some patients of this site have several images"
        # A model of several labels is never evaluated by patient.
        notes += "." if several_labels else ": `--by patient` counts patients."
    omitted = evaluation["not_evaluated"]
    if omitted:
        why = f"with fewer than {SMALLEST_COUNT} {unit}"
        if several_labels:
            few = f"fewer than {SMALLEST_COUNT}"
            why = f"as {few} {unit} show the class, or {few} do not"
        notes += f" Left out of all numbers, {why}: {listed(omitted)}."
    return notes
