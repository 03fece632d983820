"""Samplers by name: which images of its pool a site labels next.

A sampler is a class and a row of :data:`SAMPLERS`. It says what it looks at (:class:`Uses`), the site computes that for
its pool (:class:`Pool`), and :meth:`Sampler.choose` returns ids.
"""

from collections.abc import Mapping
from typing import Any

from fedward.errors import ConfigError
from fedward.methods.samplers.aift import AIFT, AIFTSettings
from fedward.methods.samplers.allocation import (
    SCORE_INTERVALS,
    allocate,
    allocate_by_counts,
    counts_in_fives,
    has_bounded_scores,
    score_counts,
)
from fedward.methods.samplers.base import Random, Sampler, SamplerSettings, ScoreSampler
from fedward.methods.samplers.core_set import CoreSet
from fedward.methods.samplers.mcdal import MCDAL, AuxiliaryHeads
from fedward.methods.samplers.pool import Pool, Uses
from fedward.methods.samplers.suggestive import Suggestive, SuggestiveSettings
from fedward.methods.samplers.uncertainty import BALD, FedAL, GlobalEntropy, LocalEntropy, Margin

_ALL: tuple[type[Sampler], ...] = (
    *(Random, LocalEntropy, GlobalEntropy, FedAL),
    *(AIFT, Suggestive, MCDAL, BALD, Margin, CoreSet),
)
SAMPLERS: dict[str, type[Sampler]] = {sampler.name: sampler for sampler in _ALL}


def sampler_of(name: str, options: Mapping[str, Any] | None = None) -> Sampler:
    """Return a sampler with its checked settings; ConfigError for an unknown name, pydantic's for a wrong value."""
    if name not in SAMPLERS:
        raise ConfigError(
            "sampler", expected=f"one of {', '.join(SAMPLERS)}", found=repr(name), remedy="Name one of them."
        )
    sampler = SAMPLERS[name]
    return sampler(sampler.settings_type.model_validate(dict(options or {})))


__all__ = [
    "SAMPLERS",
    "SCORE_INTERVALS",
    "AIFTSettings",
    "AuxiliaryHeads",
    "Pool",
    "Sampler",
    "SamplerSettings",
    "ScoreSampler",
    "SuggestiveSettings",
    "Uses",
    "allocate",
    "allocate_by_counts",
    "counts_in_fives",
    "has_bounded_scores",
    "sampler_of",
    "score_counts",
]
