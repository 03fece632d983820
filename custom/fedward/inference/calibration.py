"""Reads the temperature of a model that an evaluation has found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedward.errors import ConfigError, reason_of
from fedward.evaluation.temperature import COLDEST, HOTTEST
from fedward.json_text import read_json_file
from fedward.label_kinds import LabelKind


def temperature_of(
    file: Path, sha256: str, classes: Sequence[str], label_kind: LabelKind
) -> float | tuple[float, ...]:
    """Return the temperature that ``fedward evaluate`` wrote about a model.

    For a multi-label model there is one for each class, 1 where the evaluation found none.

    Args:
        file: that ``fedward evaluate`` wrote.
        sha256: of the model.
        classes: of the model.
        label_kind: of the model.

    Raises:
        ConfigError: the file cannot be read, is about another model, or has no temperature.
    """
    where = f"calibration {file}"
    remedy = "Name the file that `fedward evaluate` wrote about this model."
    try:
        content: Any = read_json_file(file)
        model = str(content["model"]["sha256"])
        temperature = content["temperature"] or {}
        if not label_kind.exclusive:
            by_class = temperature.get("classes", {})
            values = {name: float(by_class[name]["value"]) for name in by_class}
        elif temperature:
            values = {"": float(temperature["value"])}
        else:
            values = {}
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
    ) as error:
        raise ConfigError(
            where,
            remedy,
            expected="the JSON file of an evaluation",
            found=f"{reason_of(error):.200}",
        ) from None
    if model != sha256:
        raise ConfigError(
            where, remedy, expected=f"one of the model {sha256}", found=f"one of {model:.64}"
        )
    wrong = [f"{value}" for value in values.values() if not COLDEST <= value <= HOTTEST]
    if wrong or not values:
        raise ConfigError(
            where,
            "Evaluate at a site with more validation images, or remove the calibration.",
            expected=f"a temperature from {COLDEST:g} to {HOTTEST:g}",
            found=", ".join(wrong) or "none",
        )
    if label_kind.exclusive:
        return values[""]
    return tuple(values.get(name, 1.0) for name in classes)
