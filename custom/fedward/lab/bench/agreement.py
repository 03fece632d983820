"""Whether the values of a recorded line agree with each other."""

from pathlib import Path

from fedward.errors import ConfigError
from fedward.evaluation.selection import LAST, mean
from fedward.lab.bench.recording import CURVES
from fedward.lab.bench.records import DIGITS, Record, values_of_sites

_ROUNDING = 2e-5
"""By how much a mean of recorded values may differ from a recorded mean."""


def require_agreement(file: Path, record: Record) -> None:
    """Refuse a line of which one value does not follow from others.

    Args:
        file: of the line.
        record: of a run or a reference.

    Raises:
        ConfigError: test values are not the means of those of the sites, values of the last rounds
            are not the means of the curve's end, or values of the best round are not on the curve.
    """
    _require_means_of_sites(file, record)
    if not record.reference:
        _require_last_rounds(file, record)
        _require_best_round(file, record)


def _require_means_of_sites(file: Path, record: Record) -> None:
    """Refuse test values of a result that are not those that its sites' values give.

    They are the means over sites; the accuracy over all test images is a mean over images.
    """
    given = values_of_sites(record.sites)
    for metric, value in record.test["global"].items():
        of_sites = given.get(metric)
        # Whatever is no number is not near one either.
        if of_sites is None or not abs(of_sites - value) <= _ROUNDING:
            raise ConfigError(
                f"{file}, {record.cell}",
                "Run the study again; fit a reference again by deleting its line.",
                expected="no value without sites"
                if of_sites is None
                else f"{metric} to be the mean of its sites, {of_sites:.5f}",
                found=f"{metric} {value:.5f}",
            )
    if record.reference and record.test["last"] != record.test["global"]:
        raise ConfigError(
            f"{file}, {record.cell}",
            "Fit it again by deleting its line.",
            expected="a reference with one value of each metric",
            found="other values of the last rounds, which it does not have",
        )


def _require_last_rounds(file: Path, record: Record) -> None:
    """Refuse values of a run's last rounds that are not the means of the end of its curve."""
    for metric in CURVES:
        if metric in record.test["last"]:
            end_of_curve = record.curve.test.get(metric, ())[-LAST:]
            _require_equal(
                file,
                record,
                f"{metric} of the last rounds",
                on_curve=mean(end_of_curve),
                value=record.test["last"][metric],
            )


def _require_best_round(file: Path, record: Record) -> None:
    """Refuse values of a run's best round that are not those of its curve there.

    Older lines do not name the round. The curve lacks the model before training, and is a mean over
    sites, of which those that are alone may choose different rounds.
    """
    if len(set(record.best_round.values())) != 1:
        return
    (round_,) = set(record.best_round.values())
    if round_ == 0:
        return
    on_validation = dict(zip(record.curve.round, record.curve.val, strict=False))
    _require_equal(
        file,
        record,
        f"the validation value of round {round_}",
        on_curve=on_validation.get(round_),
        value=record.best_val,
    )
    for metric in CURVES:
        if metric in record.test["global"]:
            on_test = record.curve.test.get(metric, ())
            _require_equal(
                file,
                record,
                f"{metric} of round {round_}",
                on_curve=dict(zip(record.curve.round, on_test, strict=False)).get(round_),
                value=record.test["global"][metric],
            )


def _require_equal(
    file: Path, record: Record, name: str, *, on_curve: float | None, value: float | None
) -> None:
    """Refuse a value of a run that is not that of its curve; None where there is none."""
    # Whatever is no number is not near one either.
    if on_curve is None or value is None or not abs(on_curve - value) <= _ROUNDING:
        raise ConfigError(
            f"{file}, {record.cell}",
            "Record the run again, or delete its line and run the study again.",
            expected=f"{name} to be that of the curve, {_digits(on_curve)}",
            found=_digits(value),
        )


def _digits(value: float | None) -> str:
    return "none" if value is None else f"{value:.{DIGITS}f}"
