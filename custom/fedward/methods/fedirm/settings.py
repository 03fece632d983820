"""FedIRM's settings."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from fedward.methods.mean_teacher import MeanTeacherSettings
from fedward.methods.settings import Positive, UnitInterval


class FedIRMSettings(MeanTeacherSettings):
    """Settings of FedIRM.

    The fields below have the released code's values, unless they say otherwise. Inherited ones,
    such as ``schedule``, have this package's; ``fedward run fedirm --paper`` sets the code's.

    The default weights of its losses exceed what a site's policy allows by default. Each site has
    to allow them, or the job to lower them.
    """

    batch: int = Field(48, ge=1)
    """B: images of each kind in one step. Released code: 48."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Optimiser of a site, new in each round. Released code: Adam, whose moments are kept."""
    learning_rate: Positive = 2e-4
    """Largest step size of sites with labels. Released code: 2e-4, and 3e-4 from round 22 on."""
    unlabelled_learning_rate: Positive = 2e-4
    """Largest step size of sites without labels. Released code: 2e-4."""
    clip_gradient: Positive | None = None
    """Largest gradient norm of a step; None: no limit, as in the released code."""
    warm_up: int = Field(21, ge=0)
    """Rounds at the start in which only sites with labels train. Released code: 21."""
    distance_scale: float = Field(0.0, ge=0.0)
    """λ_c of :func:`distance_weights`, which is not the λ_c of ``unlabelled_weight``.

    With 0 sites are weighted by their images alone. Released code: all sites count the same, and
    have equal numbers of images."""
    unlabelled_weight: float = Field(15.0, ge=0.0)
    """λ_c: weight of the distance to the teacher. Released code: 15."""
    temperature: Positive = 1.0
    """τ of :func:`sharpen`; 1 leaves the teacher's answers unchanged, as in the released code."""
    ema_decay: UnitInterval = 0.99
    """Largest decay of the teacher. Released code: 0.99."""
    ramp_up: int = Field(30, ge=0)
    """R: rounds after which the losses of unlabelled images have full weight. Released code: 30."""
    relation_weight: float = Field(15.0, ge=0.0)
    """λ_m: weight of the relation loss; 0: only the mean teacher. Released code: 15."""
    relation_temperature: float = Field(2.0, ge=0.01)
    """T: how much relation matrices are softened. Released code: 2."""
    threshold: UnitInterval = 0.3
    """Smallest confidence of a pseudo-label. Released code: 0.3."""
    largest_uncertainty: UnitInterval = 0.5
    """Largest uncertainty of a pseudo-label, as a share of log K; 1: no limit.

    The released code's bound of 2.0 lies above log 5, so that it rejects nothing. The default here
    is this package's own choice."""
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    """Share of the features that each pass for the uncertainty drops. Released code: 0.2."""
    passes: int = Field(11, ge=1, le=1000)
    """P: passes for the uncertainty of an image. Released code: 11."""

    @property
    def counted_in_rounds(self) -> Sequence[str]:
        """See :attr:`fedward.methods.settings.Settings.counted_in_rounds`."""
        return [*super().counted_in_rounds, "ramp_up"]

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """See :attr:`fedward.methods.settings.Settings.loss_weights`."""
        return {**super().loss_weights, "relation_weight": self.relation_weight}
