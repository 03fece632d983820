"""Settings every method shares, as a typed and frozen model."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

UnitInterval = Annotated[float, Field(ge=0.0, le=1.0)]
"""A number from 0 to 1."""
Positive = Annotated[float, Field(gt=0.0)]
Schedule = Literal["constant", "cosine"]
Optimizer = Literal["adam", "adamw", "sgd"]
ClassWeighting = Literal["median_frequency", "none"]


class NeededSetting(NamedTuple):
    """A setting, and a value of it, without which another setting changes nothing."""

    name: str
    value: bool | int | str | None


class StepSize(NamedTuple):
    """Size of the optimiser steps of one kind at a site, in every round of a run."""

    setting: str
    """Name of the setting that gives the size."""
    largest: float
    """Largest learning rate, above 0; schedules and warm-ups only lower it."""
    optimizer: Optimizer
    """The optimiser that takes these steps."""


class Settings(BaseModel):
    """Settings that the server loop and the local training of every method need.

    Defaults are FedPerl's (Bdair et al., MELBA 2022), except where a field names another value of
    the paper. With few labels at a site, the values chosen here let methods learn from unlabelled
    images (docs/methods.md, "How sites train"). FedVC (Hsu et al., 2020) fixes the number of images
    per site and round, so that every participant takes the same number of steps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rounds: int = Field(500, ge=1)
    """R: communication rounds. Paper: 500."""
    participants: int | None = Field(3, ge=1)
    """n: sites drawn in a round, uniformly and without replacement; None: all. Paper: 3 of 10."""
    images_per_round: int | None = Field(416, ge=1)
    """N_VC of FedVC: images of each kind (labelled, unlabelled) on which a site trains in a round.

    The default is about what the authors' smallest client has. None: every site passes through its
    images, and images that do not fill a batch are spread over the others."""
    local_epochs: int = Field(1, ge=1)
    """Passes through a site's images in a round; without effect beside ``images_per_round``."""
    images_at_most: int | None = Field(None, ge=1)
    """Images after which a site ends its passes, other ones in each round; None: no limit.

    Without effect beside ``images_per_round``."""
    batch: int = Field(16, ge=1)
    """B: images of each kind in one step. Paper: 16."""
    optimizer: Optimizer = "adam"
    """Optimiser of a site, which is a new one in every round, without moments. Paper: Adam.

    AdamW decays matrices and convolution kernels alone: no biases, scales, tokens or positions."""
    learning_rate: Positive = 5e-5
    """Largest step size. Paper: 5e-5."""
    schedule: Schedule = "cosine"
    """Course of the learning rate over the rounds: half a cosine down to almost 0, or constant.

    Paper: constant."""
    round_warm_up: UnitInterval = 0.2
    """Share of a round's steps over which the learning rate rises to its full size. Paper: 0.

    A new optimiser has no moments, so that its first steps would be its largest."""
    momentum: UnitInterval = 0.9
    """Momentum of SGD."""
    weight_decay: float = Field(0.0, ge=0.0)
    """L2 penalty, added to the gradient; with AdamW decoupled from it. Paper: none."""
    clip_gradient: Positive | None = None
    """Largest gradient norm of a step; None: no limit, as in the paper."""
    class_weighting: ClassWeighting = "none"
    """Class weights of the supervised cross-entropy, by the labels at each site.

    FedPerl's code has median_frequency, with which a few labels of a rare class make a network
    predict that class everywhere."""
    batch_statistics: Literal["weak_views", "all_views"] = "weak_views"
    """Views that move BatchNorm's running statistics, with which models are evaluated.

    With weak views alone, strong views are normalised by their batch and leave no trace. All views
    move them in FedPerl's code, if their labels are kept."""
    largest_share: float = Field(0.5, gt=0.0, le=1.0)
    """Largest share of all images, or steps, that one site counts for; 1: no cap.

    It holds in averages of three sites or more."""
    robust: Literal["no", "median", "trimmed_mean"] = "no"
    """Mean in place of the weighted one, which hostile models cannot move far.

    Each site then counts once."""
    trim: float = Field(0.2, ge=0.0, le=0.5)
    """Share of the sites that the trimmed mean cuts off at either end, rounded up."""
    average_decay: float = Field(0.0, ge=0.0, lt=1.0)
    """Decay of a moving average of the global model over the rounds; 0: no average.

    The average is evaluated and saved in place of the global model."""

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """Sizes of the sites' optimiser steps; empty where no optimiser steps."""
        return [StepSize("learning_rate", self.learning_rate, self.optimizer)]

    @property
    def counted_in_rounds(self) -> Sequence[str]:
        """Settings that say after how many rounds something happens.

        A run that is stretched over more rounds has them larger by the same factor.
        """
        return ["rounds"]

    @property
    def without_effect(self) -> Mapping[str, NeededSetting | None]:
        """Settings that change nothing beside the others -> what would give each an effect.

        None: nothing would in this method. Methods add their own settings.
        """
        needed = dict[str, NeededSetting | None]()
        if self.images_per_round is not None:
            of_passes = ("local_epochs", "images_at_most")
            needed |= dict.fromkeys(of_passes, NeededSetting("images_per_round", None))
        if self.optimizer != "sgd":
            needed["momentum"] = NeededSetting("optimizer", "sgd")
        if self.robust != "trimmed_mean":
            needed["trim"] = NeededSetting("robust", "trimmed_mean")
        return needed

    @property
    def pull(self) -> float:
        """Weight of a quadratic loss term that pulls a site's model towards the one it received."""
        return 0.0

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """Setting -> weight of a loss that sites minimise besides the loss against labels."""
        return {}

    @property
    def one_label(self) -> str:
        """The setting that needs one label an image, as ``name=value``; empty where none does."""
        return changed(self, "class_weighting")

    @model_validator(mode="after")
    def _whole_batches(self) -> "Settings":
        if self.images_per_round is not None and self.images_per_round % self.batch:
            raise ValueError(
                f"images_per_round={self.images_per_round} must be a multiple of batch={self.batch}"
            )
        return self


def changed(settings: BaseModel, *names: str) -> str:
    """Return the first of these settings that differs from its default, as ``name=value``.

    Returns an empty text where all have their defaults.
    """
    for name in names:
        value = getattr(settings, name)
        if value != type(settings).model_fields[name].default:
            return f"{name}={value}"
    return ""


class ServerLabels(Settings):
    """Settings of methods whose labels may be at the server, in place of the sites."""

    server_labels: bool = False
    """Whether the labels are at the server alone.

    The server trains the global model on labelled images of its own, before the first round and
    after each one. The sites use none of their labels for training, and are still tested on their
    labelled test images."""
    server_learning_rate: Positive | None = None
    """Largest step size at the server, if the labels are there; None: ``learning_rate``.

    Sites that learn from pseudo-labels alone may need smaller steps than the server. In FedMatch's
    code the weights of the two losses, 10 and 0.01, make SGD's steps differ by a thousand."""

    @property
    def without_effect(self) -> Mapping[str, NeededSetting | None]:
        """See :attr:`Settings.without_effect`."""
        needed = dict(super().without_effect)
        if not self.server_labels:
            needed["server_learning_rate"] = NeededSetting("server_labels", True)
        return needed


class AllImages(Settings):
    """Settings of methods whose sites all take part in every round, each with all its images."""

    participants: int | None = Field(None, ge=1)
    images_per_round: int | None = Field(None, ge=1)
