"""Samplers by name: which images of its pool a site labels next.

A sampler is a class and a row in :mod:`fedward.registry`, or an entry point of another package. It
says what it looks at (:class:`PoolUses`), the site computes that for its pool (:class:`Pool`), and
:meth:`Sampler.choose` returns ids.
"""

from collections.abc import Mapping
from typing import Any

from fedward.methods.samplers.base import Sampler
from fedward.registry import SAMPLERS


def sampler_of(name: str, options: Mapping[str, Any] | None = None) -> Sampler:
    """Return a sampler with its checked settings.

    Raises:
        ConfigError: no sampler has this name.
        ValidationError: an option is not one of the sampler's settings (pydantic's error).
    """
    sampler_type = SAMPLERS[name]
    settings = sampler_type.settings_type.model_validate(dict(options or {}))
    return sampler_type(name, settings)
