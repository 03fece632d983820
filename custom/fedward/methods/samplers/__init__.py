"""Samplers by name: which images of its pool a site labels next.

A sampler is a class and a row in :mod:`fedward.registry`, or of a package of its own. It says what
it looks at (:class:`Uses`), the site computes that for its pool (:class:`Pool`), and
:meth:`Sampler.choose` returns ids.
"""

from collections.abc import Mapping
from typing import Any

from fedward.methods.samplers.allocation import (
    SCORE_INTERVALS,
    allocate,
    allocate_by_counts,
    counts_in_fives,
    has_bounded_scores,
    score_counts,
)
from fedward.methods.samplers.base import Sampler, SamplerSettings, ScoreSampler
from fedward.methods.samplers.pool import Pool, Uses
from fedward.registry import SAMPLERS

__all__ = [
    "SAMPLERS",
    "SCORE_INTERVALS",
    "Pool",
    "Sampler",
    "SamplerSettings",
    "ScoreSampler",
    "Uses",
    "sampler_of",
]
__all__ += [
    "allocate",
    "allocate_by_counts",
    "counts_in_fives",
    "has_bounded_scores",
    "score_counts",
]


def sampler_of(name: str, options: Mapping[str, Any] | None = None) -> Sampler:
    """Return a sampler with its checked settings; ConfigError for an unknown name, pydantic's for a
    wrong value.
    """
    sampler = SAMPLERS[name]
    return sampler(sampler.settings_type.model_validate(dict(options or {})))
