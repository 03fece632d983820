"""Settings every method shares, as a typed and frozen model."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]


class Settings(BaseModel):
    """What the server loop and the local training of every method need.

    Defaults are FedPerl's (Bdair et al., MELBA 2022), as its baselines share them. FedVC (Hsu et al., 2020) fixes the
    number of images per site and round, so every participant takes the same number of steps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(500, ge=1)
    """R: communication rounds. Paper: 500."""
    participants: int = Field(3, ge=1)
    """n: sites drawn in each round, uniformly, without replacement. Paper: 3 of 10."""
    images_per_round: int = Field(416, ge=1)
    """N_VC of FedVC: images of each kind (labelled, unlabelled) a site trains on in one round.

    The authors' smallest client sets the steps of all; about 26 of 16 images by the sizes they publish."""
    batch: int = Field(16, ge=1)
    """B: images of each kind in one step. Paper: 16."""
    learning_rate: Positive = 5e-5
    """Adam's step size; no weight decay, no schedule, moments start anew every round. Paper: 5e-5."""
    clip_gradient: Positive | None = None
    """Largest gradient norm of a step; none in the paper."""

    @model_validator(mode="after")
    def _whole_batches(self) -> "Settings":
        if self.images_per_round % self.batch:
            raise ValueError(
                f"images_per_round={self.images_per_round} must be a multiple of batch={self.batch}, "
                "so that every site takes the same number of steps"
            )
        return self

    @property
    def steps(self) -> int:
        """Optimiser steps of one site in one round."""
        return self.images_per_round // self.batch
