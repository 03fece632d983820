"""The methods by name, and the survey, which is a job like theirs but trains nothing.

A new method is one file and one row in :mod:`fedward.registry`, or a package of its own.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from fedward.errors import ConfigError
from fedward.frozen import plain
from fedward.registry import METHODS, SURVEY

if TYPE_CHECKING:
    from fedward.config import Experiment
    from fedward.methods.algorithm import Algorithm
    from fedward.methods.requirements import Feature
    from fedward.methods.settings import Settings
    from fedward.methods.survey import Survey


def settings_type(name: str) -> "type[Settings]":
    """Return the type of the settings of a method, or of the survey.

    Raises ConfigError for an unknown name.
    """
    if name == SURVEY:
        from fedward.methods.survey import SurveySettings

        return SurveySettings
    return METHODS[name].settings_type


def settings_of(name: str, options: Mapping[str, Any]) -> "Settings":
    """Return the checked settings of a method, or of the survey.

    Raises ConfigError for an unknown name, and pydantic's error for a wrong value.
    """
    return settings_type(name).model_validate(plain(options))


def job_of(experiment: "Experiment") -> "Algorithm[Any] | Survey":
    """Return what an experiment asks sites to do, with its settings: a method, or a survey.

    A process makes it once, where it begins, and hands it on.
    """
    settings = settings_of(experiment.method, experiment.options)
    if experiment.method == SURVEY:
        from fedward.methods.survey import Survey, SurveySettings

        assert isinstance(settings, SurveySettings)
        return Survey(settings)
    return METHODS[experiment.method](settings)


def method_of(experiment: "Experiment") -> "Algorithm[Any]":
    """Return the method by which an experiment trains, with its settings.

    Raises ConfigError for a survey.
    """
    if experiment.method == SURVEY:
        raise ConfigError("a survey trains nothing and has no model", "Name a job that trains.")
    return METHODS[experiment.method](settings_of(experiment.method, experiment.options))


def methods_supporting(features: "Collection[Feature]") -> list[str]:
    """Return the methods that, with their default settings, support all of these features.

    Methods of installed packages are not among them, because a site imports only those that its
    policy admits.
    """
    names = []
    for name in sorted(METHODS):
        requirements = METHODS[name](settings_of(name, {})).requirements
        unsupported = [feature for feature in features if requirements.reason_against(feature)]
        if not unsupported:
            names.append(name)
    return names
