"""The settings of an experiment by their dotted names."""

from collections.abc import Container, Mapping
from typing import Any


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
