"""The methods by name. A new method is one file and one row in :mod:`fedward.registry`, or a
package of its own.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedward.registry import METHODS

if TYPE_CHECKING:
    from fedward.config import Experiment
    from fedward.methods.algorithm import Algorithm
    from fedward.methods.settings import Settings


def settings_of(method: str, options: Mapping[str, Any]) -> "Settings":
    """Return a method's checked settings; ConfigError for an unknown method, pydantic's error for a
    wrong value.
    """
    return METHODS[method].settings_type.model_validate(dict(options))


def method_of(experiment: "Experiment") -> "Algorithm[Any]":
    """Return the method an experiment names, with its settings."""
    settings = settings_of(experiment.method, experiment.options)
    return METHODS[experiment.method](settings)


__all__ = ["METHODS", "method_of", "settings_of"]
