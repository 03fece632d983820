"""The temperature of a model, as an evaluation found and wrote it."""

import json
from pathlib import Path
from typing import Any

from fedward.errors import ConfigError, reason_of


def temperature_of(file: Path, sha256: str) -> float:
    """Return the temperature that ``fedward evaluate`` wrote into a file about the model with this SHA-256.

    Raises:
        ConfigError: the file cannot be read, is about another model, or found no temperature.
    """
    where, remedy = f"calibration {file}", "Name what `fedward evaluate` wrote about this model."
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        model, found = str(content["model"]["sha256"]), content["temperature"]
        value = None if found is None else float(found["value"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected, kind = "the JSON file of an evaluation", reason_of(error)
        raise ConfigError(where, expected=expected, found=f"{kind:.200}", remedy=remedy) from None
    if model != sha256:
        raise ConfigError(where, expected=f"one of the model {sha256}", found=f"one of {model:.64}", remedy=remedy)
    if value is None or not 0 < value < float("inf"):
        remedy = "Evaluate at a site with more validation images, or leave the calibration away."
        raise ConfigError(
            where, expected="a temperature above 0", found="none" if value is None else f"{value}", remedy=remedy
        )
    return value
