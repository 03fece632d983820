"""The methods by name.

A new method is one file and one row in :mod:`fedward.registry`, or a package of its own.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from fedward.frozen import plain
from fedward.registry import METHODS

if TYPE_CHECKING:
    from fedward.config import Experiment
    from fedward.methods.algorithm import Algorithm
    from fedward.methods.requirements import Feature
    from fedward.methods.settings import Settings


def settings_of(method: str, options: Mapping[str, Any]) -> "Settings":
    """Return a method's checked settings.

    Raises ConfigError for an unknown method, and pydantic's error for a wrong value.
    """
    return METHODS[method].settings_type.model_validate(plain(options))


def method_of(experiment: "Experiment") -> "Algorithm[Any]":
    """Return the method an experiment names, with its settings.

    A process makes it once, where it begins, and hands it on.
    """
    settings = settings_of(experiment.method, experiment.options)
    return METHODS[experiment.method](settings)


def methods_supporting(features: "Collection[Feature]") -> list[str]:
    """Return the methods that, with their default settings, support all of these features.

    A survey is not among them, because it trains nothing. Nor are methods of installed packages,
    because a site imports only those that its policy admits.
    """
    names = []
    for name in sorted(METHODS):
        requirements = METHODS[name](settings_of(name, {})).requirements
        unsupported = [feature for feature in features if requirements.reason_against(feature)]
        if not unsupported and not requirements.survey:
            names.append(name)
    return names


__all__ = ["METHODS", "method_of", "methods_supporting", "settings_of"]
