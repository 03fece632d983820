"""What a survey declares: a job in which sites count what their images are.

It is no method, because nothing is trained. The server's half is :mod:`fedward.server.survey`, and
the site's half :mod:`fedward.client.survey`.
"""

from collections.abc import Sequence

from pydantic import Field

from fedward.methods.requirements import Feature, Requirements, Sends
from fedward.methods.settings import AllImages, StepSize

_NO_MODEL = "it has no model"


class SurveySettings(AllImages):
    """Every site is asked once; the settings of a training count for nothing."""

    rounds: int = Field(1, ge=1, le=1)
    """Counts of the same images would be the same in every further round."""

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """Return nothing: no optimiser steps."""
        return ()


class Survey:
    """The settings of a survey, what it may write, and what it cannot be combined with."""

    def __init__(self, settings: SurveySettings) -> None:
        self.settings = settings
        self.requirements = Requirements(
            tasks=frozenset(),
            sends=Sends(
                records=frozenset({"surveys"}), card=False, subgroups=False, clusters=False
            ),
            reasons_against={
                Feature.SECURE_AGGREGATION: _NO_MODEL,
                Feature.ROBUST_MEAN: _NO_MODEL,
                Feature.TRAIN_HEAD: _NO_MODEL,
                Feature.TRAIN_LAST_BLOCKS: _NO_MODEL,
                Feature.TRAIN_ADAPTERS: _NO_MODEL,
                Feature.FLOAT16_UPDATES: _NO_MODEL,
            },
        )
