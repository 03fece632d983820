"""The temperature of a model, as an evaluation found and wrote it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedward.errors import ConfigError, reason_of
from fedward.evaluation.calibration import COLDEST, HOTTEST
from fedward.label_kinds import LabelKind


def temperature_of(
    file: Path, sha256: str, classes: Sequence[str], label_kind: LabelKind
) -> float | tuple[float, ...]:
    """Return the temperature that ``fedward evaluate`` wrote into a file about the model with this
    SHA-256.

    Of a multi-label model there is one for each of its classes, 1 where the evaluation found none.

    Raises:
        ConfigError: the file cannot be read, is about another model, or found no temperature.
    """
    where = f"calibration {file}"
    remedy = "Name what `fedward evaluate` wrote about this model."
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        model = str(content["model"]["sha256"])
        found = content["temperature"] or {}
        each = {"": found} if found else {}
        if not label_kind.exclusive:
            each = found.get("classes", {})
        values = {name: float(of["value"]) for name, of in each.items()}
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        expected = "the JSON file of an evaluation"
        kind = reason_of(error)
        raise ConfigError(where, expected=expected, found=f"{kind:.200}", remedy=remedy) from None
    if model != sha256:
        raise ConfigError(
            where, expected=f"one of the model {sha256}", found=f"one of {model:.64}", remedy=remedy
        )
    wrong = [f"{value}" for value in values.values() if not COLDEST <= value <= HOTTEST]
    if wrong or not values:
        wanted = f"a temperature from {COLDEST:g} to {HOTTEST:g}"
        remedy = "Evaluate at a site with more validation images, or leave the calibration away."
        raise ConfigError(
            where,
            expected=wanted,
            found=", ".join(wrong) or "none",
            remedy=remedy,
        )
    if label_kind.exclusive:
        return values[""]
    return tuple(values.get(name, 1.0) for name in classes)
