"""FedMatch's settings."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from fedward.methods.settings import Positive, Settings, UnitInterval


class FedMatchSettings(Settings):
    """Settings of FedMatch with labels at the sites.

    The fields below have the released code's values. There the loss against labels has the weight
    10, and here it has 1: all other weights are divided by 10, and the learning rate is multiplied
    by 10, which gives the same steps of SGD. Inherited fields, such as ``participants``, ``batch``
    and ``schedule``, have this package's defaults; ``fedward run fedmatch --paper`` sets the
    code's.
    """

    rounds: int = Field(200, ge=1)
    """R: communication rounds. Released code: 200."""
    optimizer: Literal["adam", "sgd"] = "sgd"
    """Optimiser of a site. Released code: SGD."""
    learning_rate: Positive = 1e-2
    """Largest step size. Released code: 1e-3, with the weight 10 of the loss against labels."""
    momentum: UnitInterval = 0.0
    """Momentum of SGD. Released code: none."""
    threshold: UnitInterval = 0.75
    """τ: smallest confidence of a site's own prediction. Released code: 0.75."""
    unlabelled_weight: float = Field(1e-3, ge=0.0)
    """λ_a: weight of the loss against pseudo-labels. Released code: 0.01 beside 10."""
    consistency_weight: float = Field(1e-3, ge=0.0)
    """λ_i: weight of the divergence from the helpers. Released code: 0.01 beside 10."""
    l1_weight: float = Field(1e-5, ge=0.0)
    """λ_L1: weight of ψ's absolute values. Released code: 1e-4 beside 10."""
    l2_weight: float = Field(1.0, ge=0.0)
    """λ_L2: weight of the squared distance of ψ to σ. Released code: 10 beside 10."""
    helpers: int = Field(2, ge=0)
    """H: helpers of one site. Released code: 2."""
    helper_every: int = Field(10, ge=1)
    """Sites have helpers in every round that is a multiple of this number. Released code: 10."""
    anonymise: bool = False
    """Whether the mean of the helpers is sent in place of the helpers.

    If not, as in the released code, a site receives the ψ of each of its helpers."""

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """See :attr:`fedward.methods.settings.Settings.loss_weights`."""
        return {
            **super().loss_weights,
            "unlabelled_weight": self.unlabelled_weight,
            "consistency_weight": self.consistency_weight,
            "l1_weight": self.l1_weight,
            "l2_weight": self.l2_weight,
        }

    @property
    def pull(self) -> float:
        """2 λ_L2, because the gradient of ``λ_L2 ‖σ - ψ‖²`` is ``2 λ_L2 (ψ - σ)``."""
        return 2 * self.l2_weight

    @model_validator(mode="after")
    def _has_rounds_with_helpers(self) -> "FedMatchSettings":
        if self.helpers and self.helper_every > self.rounds:
            raise ValueError(
                f"helper_every={self.helper_every} leaves none of {self.rounds} rounds with "
                "helpers: lower helper_every, raise rounds, or set helpers=0"
            )
        return self

    @model_validator(mode="after")
    def _no_lone_helper(self) -> "FedMatchSettings":
        if self.anonymise and self.helpers == 1:
            raise ValueError(
                "helpers=1 with anonymise=true hands one hospital's parameters to another: use "
                "helpers=2 or more, or set anonymise=false knowingly"
            )
        return self
