"""Whether the values of a recorded line agree with each other."""

from pathlib import Path

from fedward.errors import ConfigError
from fedward.evaluation.selection import LAST, mean
from fedward.lab.bench.recording import CURVES
from fedward.lab.bench.records import DIGITS, Record, values_of_sites

_ROUNDING = 2e-5
"""By how much a mean of recorded values may differ from a recorded mean."""
_RECORD_AGAIN = "Record the run again, or delete its line and run the study again."


def require_agreement(file: Path, record: Record, *, alone: bool) -> None:
    """Refuse a line of which one value does not follow from others.

    Args:
        file: of the line.
        record: of a run or a reference.
        alone: whether it is of a row whose sites train alone, each with a best round of its own.

    Raises:
        ConfigError: the metric that chose a round is not that of the settings, test values are not
            the means of those of the sites, values of the last rounds are not the means of the
            curve's end, values of the best round are not on the curve, or that round is not the
            best one.
    """
    if record.metric != record.settings["key_metric"]:
        raise ConfigError(
            f"{file}, {record.cell}",
            _RECORD_AGAIN,
            expected=f"a round that was chosen by {record.settings['key_metric']}",
            found=f"one by {record.metric}",
        )
    _require_means_of_sites(file, record)
    if not record.reference:
        _require_last_rounds(file, record)
        _require_best_round(file, record, alone)


def _require_means_of_sites(file: Path, record: Record) -> None:
    """Refuse test values of a result that are not those that its sites' values give.

    They are the means over sites; the accuracy over all test images is a mean over images.
    """
    given = values_of_sites(record.sites)
    for metric, value in record.test["global"].items():
        of_sites = given.get(metric)
        if of_sites is None or abs(of_sites - value) > _ROUNDING:
            raise ConfigError(
                f"{file}, {record.cell}",
                "Run the study again; fit a reference again by deleting its line.",
                expected="no value without sites"
                if of_sites is None
                else f"{metric} to be the mean of its sites, {of_sites:.5f}",
                found=f"{metric} {value:.5f}",
            )
    has_rounds = record.best_round or record.best_val is not None
    if record.reference and (has_rounds or record.test["last"] != record.test["global"]):
        raise ConfigError(
            f"{file}, {record.cell}",
            "Fit it again by deleting its line.",
            expected="a reference with one value of each metric",
            found="values of several rounds, which it does not have",
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


def _require_best_round(file: Path, record: Record, alone: bool) -> None:
    """Refuse a best round that is not the best on validation, or values that the curve lacks there.

    Older lines name neither the round nor the digest of what judged their study. The curve lacks
    the model before training, and is a mean over sites, of which those that are alone may choose
    different rounds.
    """
    rounds = sorted(set(record.best_round.values()))
    if not rounds and not record.judged_by:
        return
    if not rounds or (len(rounds) > 1 and not alone):
        raise ConfigError(
            f"{file}, {record.cell}",
            _RECORD_AGAIN,
            expected="one best round of all sites",
            found=", ".join(map(str, rounds)) or "none",
        )
    if len(rounds) > 1:
        return
    (round_,) = rounds
    if round_ > 0:
        _require_on_curve(file, record, round_)
    if not alone:
        _require_best_on_validation(file, record, round_)


def _require_on_curve(file: Path, record: Record, round_: int) -> None:
    """Refuse values of a run's best round that are not those of its curve there."""
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


def _require_best_on_validation(file: Path, record: Record, round_: int) -> None:
    """Refuse a best round with a lower validation value than a round with as many labels.

    A round that was chosen by its test value would make the row too good.
    """
    largest = max(record.curve.val_since_labels, default=0.0)
    if record.best_val is None or record.best_val < largest:
        raise ConfigError(
            f"{file}, {record.cell}",
            _RECORD_AGAIN,
            expected=f"the round that is best on validation images, with {_digits(largest)}",
            found=f"round {round_}, with {_digits(record.best_val)}",
        )


def _require_equal(
    file: Path, record: Record, name: str, *, on_curve: float | None, value: float | None
) -> None:
    """Refuse a value of a run that is not that of its curve; None where there is none."""
    if on_curve is None or value is None or abs(on_curve - value) > _ROUNDING:
        raise ConfigError(
            f"{file}, {record.cell}",
            _RECORD_AGAIN,
            expected=f"{name} to be that of the curve, {_digits(on_curve)}",
            found=_digits(value),
        )


def _digits(value: float | None) -> str:
    return "none" if value is None else f"{value:.{DIGITS}f}"
