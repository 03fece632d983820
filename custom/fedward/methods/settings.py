"""Settings every method shares, as a typed and frozen model."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Schedule = Literal["constant", "cosine"]
Optimizer = Literal["adam", "adamw", "sgd"]
MissingClasses = Literal["as_any", "restricted"]


class StepSize(NamedTuple):
    """How far the steps of one kind go at a site, in every round of a run."""

    setting: str
    """What says so."""
    largest: float
    """Largest learning rate, above 0: schedules and warm-ups only lower it."""
    optimizer: Optimizer


class Settings(BaseModel):
    """What the server loop and the local training of every method need.

    Defaults are FedPerl's (Bdair et al., MELBA 2022), except where a field names another value of
    the paper: with few labels at a site these let methods learn from unlabelled images
    (docs/methods.md, "How sites train"). FedVC (Hsu et al., 2020) fixes the number of images per
    site and round, so every participant takes the same number of steps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rounds: int = Field(500, ge=1)
    """R: communication rounds. Paper: 500."""
    participants: int | None = Field(3, ge=1)
    """n: sites drawn in each round, uniformly, without replacement; None: all. Paper: 3 of 10."""
    images_per_round: int | None = Field(416, ge=1)
    """N_VC of FedVC: images of each kind (labelled, unlabelled) a site trains on in one round,
    about what the authors' smallest client has. None: every site passes through its images, and
    batches share what is left over."""
    local_epochs: int = Field(1, ge=1)
    """Where a site passes through its images, so many times in a round."""
    images_at_most: int | None = Field(None, ge=1)
    """Where a site passes through its images: it stops after so many, other ones in each round.
    None: all.
    """
    batch: int = Field(16, ge=1)
    """B: images of each kind in one step. Paper: 16."""
    optimizer: Optimizer = "adam"
    """Its moments start anew every round. Paper: Adam. AdamW leaves out biases, scales of
    normalisation layers and Swin's biases of relative positions from weight decay."""
    learning_rate: Positive = 5e-5
    """Largest step size. Paper: 5e-5."""
    schedule: Schedule = "cosine"
    """How the learning rate goes on from round to round: half a cosine down to almost 0 in the last
    one, or always the same. Paper: constant."""
    round_warm_up: Share = 0.2
    """Share of the steps of each round over which the learning rate rises to its full size, since
    moments start anew.
    Paper: 0."""
    momentum: Share = 0.9
    """Of SGD."""
    weight_decay: float = Field(0.0, ge=0.0)
    """L2 penalty, added to the gradient; with AdamW decoupled from it. Paper: none."""
    clip_gradient: Positive | None = None
    """Largest gradient norm of a step; none in the paper."""
    class_weighting: Literal["median_frequency", "none"] = "none"
    """Of the supervised cross-entropy, by the labels at each site. FedPerl's code:
    median_frequency, with which few labels of a rare class teach a net to see it everywhere."""
    missing_classes: MissingClasses = "as_any"
    """How losses against labels treat classes of which a site has no labels: as any other class, as
    in the papers, or by FedRS's restricted softmax. Predictions stay as they are."""
    batch_statistics: Literal["weak_views", "all_views"] = "weak_views"
    """Which views move BatchNorm's running statistics, by which models are evaluated and label
    images: weak views, so that strong views are normalised by their batch and leave no trace; or
    all views, as in FedPerl's code for views whose labels are kept."""
    largest_share: float = Field(0.5, gt=0.0, le=1.0)
    """Most of all images, or steps, that one site counts for in an average of three sites or more;
    1: no cap.
    """
    robust: Literal["no", "median", "trimmed_mean"] = "no"
    """What replaces the mean of the sites' models, so that hostile ones cannot move it far; each
    site counts once.
    """
    trim: float = Field(0.2, ge=0.0, le=0.5)
    """Share of the sites that the trimmed mean leaves out at either end of each number, rounded up.
    """
    server_optimizer: Literal["average", "momentum"] = "average"
    """What the server does with the mean of the sites' models: it takes the mean as the next model,
    or steps towards it with momentum (FedAvgM)."""
    server_momentum: float = Field(0.9, ge=0.0, lt=1.0)
    """β of the server's momentum."""
    average_decay: float = Field(0.0, ge=0.0, lt=1.0)
    """Of a moving average of the global model over the rounds, which is evaluated and saved in its
    place; 0: none.
    """

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """What sites step by; nothing where no optimiser steps."""
        return [StepSize("learning_rate", self.learning_rate, self.optimizer)]

    @property
    def pull(self) -> float:
        """Weight of a quadratic loss term that draws a site's model to the one it received."""
        return 0.0

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """Weights of what sites minimise besides the loss against labels, by setting."""
        return {}

    @property
    def one_label(self) -> str:
        """A setting for one label an image, as ``name=value``; empty where several labels will do."""
        return changed(self, "class_weighting", "missing_classes")

    @property
    def takes_mean(self) -> bool:
        """Whether the mean of the sites' models is the next global model as it is."""
        return self.server_optimizer == "average"

    @model_validator(mode="after")
    def _whole_batches(self) -> "Settings":
        if self.images_per_round is not None and self.images_per_round % self.batch:
            raise ValueError(
                f"images_per_round={self.images_per_round} must be a multiple of batch={self.batch}"
            )
        return self


def changed(settings: BaseModel, *names: str) -> str:
    """Return the first of these settings that differs from its default, as ``name=value``; empty
    where none does.
    """
    values = {name: getattr(settings, name) for name in names}
    defaults = type(settings).model_fields
    return next(
        (f"{name}={value}" for name, value in values.items() if value != defaults[name].default), ""
    )


class AllImages(Settings):
    """Settings of methods whose sites all take part in every round, each with all its images."""

    participants: int | None = Field(None, ge=1)
    images_per_round: int | None = Field(None, ge=1)
