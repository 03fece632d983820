"""FedPerl's settings."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, model_validator

from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.settings import NeededSetting, changed


class FedPerlSettings(FixMatchSettings):
    """FedPerl's settings.

    Defaults are the paper's. Where paper and code differ, docs/methods says how they were read.
    """

    consistency_weight: float = Field(0.01, ge=0.0)
    """γ: weight of the distance to the peers' predictions. Paper: 0.01. In the authors' code no
    gradient flows through this term, which is as if γ were 0."""
    committee: int = Field(2, ge=0)
    """T: peers of one site; 0 is SSFL. Paper: 2."""
    warm_up: int = Field(10, ge=0)
    """Rounds without peers at the start. Paper: 10; authors' code: 0."""
    anonymise: bool = True
    """Whether the peers are averaged into one model before it is sent. If not, sites receive the
    models of other sites."""
    peers: Literal["similar", "random"] = "similar"
    """Which sites become peers: those with the most similar models, or any."""
    policy: Literal["static", "validation", "gated_validation", "gated_similarity"] = "static"
    """Which peers may teach a site. ``static``: all. ``validation``: those at least as accurate as
    the site on the server's validation images. ``gated_validation``: those whose accuracy there is
    at least ``gate``. ``gated_similarity``: those whose similarity to the site is."""
    gate: float = Field(0.85, ge=-1.0, le=1.0)
    """ρ of the gated policies: an accuracy in [0, 1], or a cosine. Paper: 0.75, 0.85, 0.95."""
    similarity: Literal["moments", "rows", "answers"] = "moments"
    """What describes a site's model when models are compared: the moments of all tensors that
    travel; those of each class's row of the classifier; or its answers to one image of noise, as in
    FedMatch. Paper: moments, of whole networks. Of a head these are four numbers."""
    similarity_scale: Literal["minmax", "none"] = "minmax"
    """How moments are scaled before models are compared. Authors' code: minmax; the paper names no
    scaling."""
    combine: Literal["mean", "sum"] = "mean"
    """Whether the mean or the sum of the probabilities is compared with τ. Authors' code: mean;
    printed in the paper: sum."""
    batch_statistics_for_labels: bool = False
    """Whether pseudo-labels come from the network in training mode, as in the authors' code."""

    @property
    def counted_in_rounds(self) -> Sequence[str]:
        """See :attr:`fedward.methods.settings.Settings.counted_in_rounds`."""
        return [*super().counted_in_rounds, "warm_up"]

    @property
    def without_effect(self) -> Mapping[str, NeededSetting | None]:
        """See :attr:`fedward.methods.settings.Settings.without_effect`."""
        needed = dict(super().without_effect)
        if not self.committee:
            of_peers = ("consistency_weight", "anonymise", "peers", "policy", "combine")
            needed |= dict.fromkeys(of_peers, NeededSetting("committee", 2))
        if self.policy not in ("gated_validation", "gated_similarity"):
            needed["gate"] = NeededSetting("policy", "gated_validation")
        if self.similarity != "moments":
            needed["similarity_scale"] = NeededSetting("similarity", "moments")
        return needed

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """Weights of the loss terms besides the supervised one, by setting."""
        return {**super().loss_weights, "consistency_weight": self.consistency_weight}

    @property
    def compares_accuracies(self) -> bool:
        """Whether the policy needs accuracies on the server's validation images."""
        return self.policy in ("validation", "gated_validation")

    @property
    def one_label(self) -> str:
        """The setting that needs one label an image, as ``name=value``; empty where none does.

        Validation policies compare accuracies, which need one label an image.
        """
        setting = super().one_label or changed(self, "combine")
        if not setting and self.compares_accuracies:
            setting = f"policy={self.policy}"
        return setting

    @model_validator(mode="after")
    def _has_rounds_with_peers(self) -> "FedPerlSettings":
        if self.committee and self.warm_up >= self.rounds:
            raise ValueError(
                f"warm_up={self.warm_up} leaves none of {self.rounds} rounds to learn from peers: "
                "lower warm_up, raise rounds, or set committee=0, which is SSFL"
            )
        return self

    @model_validator(mode="after")
    def _sum_needs_a_fixed_threshold(self) -> "FedPerlSettings":
        if self.combine == "sum" and self.pseudo_labels != "fixed":
            raise ValueError(
                "combine=sum gives no probabilities, which "
                f"pseudo_labels={self.pseudo_labels} needs: set combine=mean, or "
                "pseudo_labels=fixed"
            )
        return self

    @model_validator(mode="after")
    def _similarity_gate_needs_cosines(self) -> "FedPerlSettings":
        if self.policy == "gated_similarity" and self.similarity == "answers":
            raise ValueError(
                "policy=gated_similarity compares cosines with its gate, and similarity=answers has"
                " distances: choose another policy, or similarity=moments or rows"
            )
        return self

    @model_validator(mode="after")
    def _refuses_a_lone_peer(self) -> "FedPerlSettings":
        if self.anonymise and self.committee == 1:
            raise ValueError(
                "committee=1 with anonymise=true would hand one hospital's model to another: use "
                "committee=2 or more, or set anonymise=false knowingly"
            )
        return self
