"""The settings of an experiment by their dotted names."""

from collections.abc import Container, Mapping
from typing import Any

from fedward.config import Experiment
from fedward.methods import settings_of


def all_settings(experiment: Experiment, whole: Container[str] = ()) -> dict[str, Any]:
    """Return all settings as JSON values by the names that ``--set`` takes, the method's own last.

    Args:
        experiment: whose settings.
        whole: as for :func:`by_dotted_name`.
    """
    common = experiment.model_dump(mode="json", exclude={"options"})
    of_method = settings_of(experiment.method, experiment.options).model_dump(mode="json")
    return by_dotted_name({**common, **of_method}, whole)


def by_dotted_name(settings: Mapping[str, Any], whole: Container[str] = ()) -> dict[str, Any]:
    """Return dotted name -> value of nested settings, such as ``data.image_size`` -> 32.

    Args:
        settings: name -> value. A mapping with content is divided into its own settings.
        whole: dotted names whose mappings stay one value.
    """
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value and name not in whole:
            parts = by_dotted_name(
                {f"{name}.{part}": content for part, content in value.items()}, whole
            )
            values |= parts
        else:
            values[name] = value
    return values
