"""FedPerl's choices as a typed, frozen model."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from fedward.methods.fixmatch import FixMatchSettings
from fedward.methods.settings import changed


class FedPerlSettings(FixMatchSettings):
    """FedPerl's choices. Defaults are the paper's, read as docs/methods explains where paper and
    code differ.
    """

    consistency_weight: float = Field(0.01, ge=0.0)
    """gamma: weight of the distance to the peers' predictions. Paper: 0.01."""
    committee: int = Field(2, ge=0)
    """T: peers of one site; 0 is SSFL. Paper: 2."""
    warm_up: int = Field(10, ge=0)
    """Rounds without peers at the start. Paper: 10; authors' code: 0."""
    anonymise: bool = True
    """Average the peers into one model before it is sent. Without, sites receive other sites'
    models.
    """
    allow_single_peer: bool = False
    """Send an "anonymous" peer even if it is one hospital's own model."""
    peers: Literal["similar", "random"] = "similar"
    """Which sites become peers: those with the most similar models, or any."""
    policy: Literal["static", "validation", "gated_validation", "gated_similarity"] = "static"
    """Which peers may teach: all; those at least as accurate as the site on the server's validation
    images; those whose accuracy there, or whose similarity to the site, is at least ``gate``."""
    gate: float = Field(0.85, ge=-1.0, le=1.0)
    """rho of the gated policies. Paper: 0.75, 0.85, 0.95."""
    similarity_scale: Literal["minmax", "none"] = "minmax"
    """Authors' code: minmax; the paper names no scaling."""
    combine: Literal["mean", "sum"] = "mean"
    """What is compared with tau. Authors' code: mean; printed in the paper: sum."""
    batch_statistics_for_labels: bool = False
    """True as in the authors' code: pseudo-labels come from the net in training mode."""

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """As of :class:`~fedward.methods.settings.Settings`."""
        return {**super().loss_weights, "consistency_weight": self.consistency_weight}

    @property
    def one_label(self) -> str:
        """As of :class:`Settings`; validation policies compare accuracies."""
        policy = (
            f"policy={self.policy}" if self.policy in ("validation", "gated_validation") else ""
        )
        return super().one_label or changed(self, "combine") or policy

    @model_validator(mode="after")
    def _sum_of_the_paper(self) -> "FedPerlSettings":
        if self.combine == "sum" and self.pseudo_labels != "fixed":
            remedy = "set combine=mean, or pseudo_labels=fixed"
            raise ValueError(
                f"combine=sum is no probability, as pseudo_labels={self.pseudo_labels} needs: {remedy}"
            )
        return self

    @model_validator(mode="after")
    def _no_lone_peer(self) -> "FedPerlSettings":
        if self.anonymise and self.committee == 1 and not self.allow_single_peer:
            remedy = "use committee=2 or more, or set allow_single_peer=true knowingly"
            raise ValueError(
                f"committee=1 with anonymise=true hands one hospital's model to another: {remedy}"
            )
        return self
