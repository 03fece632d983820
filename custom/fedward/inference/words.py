"""An evaluation as text for an 80-column terminal."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from fedward.errors import listed
from fedward.evaluation.small_counts import SMALLEST_COUNT

_WIDTH = 80
_REFER = 0.9
"""The threshold of referral that is shown for each class of a multi-label model."""
_OVERALL = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1_macro": "macro F1",
    "auroc_macro": "macro AUROC",
    "auprc_macro": "macro AUPRC",
    "hamming_accuracy": "Hamming accuracy",
    "exact_match": "exact match",
}
_TABLES = (
    {"sensitivity": "sensitivity", "specificity": "specificity", "auroc": "AUROC"},
    {"positive": "positive pred.", "negative": "negative pred."},
)
"""Numbers of a class that stand side by side, and what they are called."""


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about what :func:`fedward.inference.evaluation.evaluate` returned."""
    yield f"{found['site']}, {found['split']}: {found['images']} {found['unit']}s"
    yield ""
    for name, title in _OVERALL.items():
        if name in found["overall"]:
            yield f"{title:<20}{_number(found['overall'][name])}"
    several = found["confusion"] is None  # labels an image
    if not several:
        yield from _calibration(found)
    for table in _TABLES:
        yield ""
        yield f"{found['unit'] + 's':>8}  {''.join(f'{title:<17}' for title in table.values())}class"
        for name, of in found["classes"].items():
            yield f"{of['images']:>8}  {''.join(f'{_number(of[key]):<17}' for key in table)}{name}"
    yield ""
    if several:
        yield from _answers(found)
        yield ""
    else:
        names = list(found["groups"] or found["model"]["classes"])
        yield from _confusion(found["confusion"], names, found["unit"])
        yield ""
        yield from _referral(found)
        yield ""
    yield from wrap(_notes(found), _WIDTH)


def _number(estimate: Mapping[str, float | None] | None) -> str:
    if estimate is None:
        return "-"
    interval = "n/a" if estimate["low"] is None else f"{estimate['low']:.2f}-{estimate['high']:.2f}"
    return f"{estimate['value']:.2f} ({interval})"


def _calibration(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{'calibration error':<20}{found['calibration_error']:.3f}"
    after = found["temperature"]
    if found["split"] == "test" and not after:
        yield f"{'':<20}no temperature follows from the validation images"
    if after:
        changed = f"{after['calibration_error']:.3f} at temperature {after['value']:.2f}"
        yield f"{'':<20}{changed}, by {after['images']} validation images"
        if after["calibration_error"] > found["calibration_error"]:
            yield f"{'':<20}which is worse: use no temperature"


def _confusion(
    rows: Mapping[str, Sequence[int | None]], names: Sequence[str], unit: str
) -> Iterator[str]:
    """Yield the confusion matrix; a column has the number of its class, as the names may be long."""
    width = max(4, *(len(str(count)) for row in rows.values() for count in row)) + 1
    yield f"{unit}s by predicted class (columns) and true class (rows)"
    yield "".join(f"{number:>{width}}" for number in range(1, len(names) + 1))
    for number, name in enumerate(names, 1):
        if name in rows:
            counts = (f"<{SMALLEST_COUNT}" if count is None else count for count in rows[name])
            yield "".join(f"{count:>{width}}" for count in counts) + f"  {number} = {name}"
        else:
            yield " " * width * len(names) + f"  {number} = {name}: no {unit}s, or too few"


def _referral(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what thresholds of ``fedward predict --refer-below`` do, also with the temperature."""
    after = found["temperature"]
    ways = [found["referral"]]
    title = "referred, accuracy of the others"
    yield f"{'refer below':<15}{title}{'  with the temperature' if after else ''}"
    ways += [after["referral"]] if after else []
    for rows in zip(*ways, strict=True):
        cells = (f"{row['referred']:>5.0%}  {_number(row['accuracy'])}" for row in rows)
        yield f"{rows[0]['below']:<15}{''.join(f'{cell:<34}' for cell in cells)}".rstrip()


def _answers(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield how far the answers yes and no to each class can be trusted, also with the class's
    temperature.
    """
    after = (found["temperature"] or {"classes": {}})["classes"]
    yield f"{'calibration error, with temperature':<37}refer below {_REFER}: referred, right else"
    for name, of in found["classes"].items():
        warm = after.get(name)
        row = next(row for row in of["referral"] if row["below"] == _REFER)
        with_it = f"{warm['calibration_error']:.3f} at {warm['value']:.2f}" if warm else "-"
        error = f"{of['calibration_error']:>8.3f}  {with_it}"
        yield f"{error:<37}{row['referred']:>5.0%}  {_number(row['accuracy']):<17}  {name}"


def _notes(found: Mapping[str, Any]) -> str:
    unit = f"{found['unit']}s"
    notes = f"In brackets: 95 % intervals, for {unit} that are independent of each other."
    if found["unit"] == "patient":
        notes += " A patient's answer is the mean of the probabilities of its images."
    left = found["not_evaluated"]
    if left:
        notes += f" In no number, as there are fewer than {SMALLEST_COUNT} {unit} of them: {listed(left)}."
    return notes
