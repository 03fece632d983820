"""Settings of all methods whose sites make pseudo-labels."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import Field, model_validator

from fedward.methods.settings import Settings, Share, changed

Labelling: TypeAlias = Literal["fixed", "freematch", "aligned", "balanced", "corrected"]


class FixMatchSettings(Settings):
    """FixMatch with FedPerl's values."""

    threshold: Share = 0.6
    """tau: smallest confidence of a pseudo-label, in a multi-label job of either answer to each
    class. Paper: 0.6 in a federation, 0.9 at a single site."""
    pseudo_labels: Labelling = "fixed"
    """How they are made: with this threshold; or with thresholds that follow the net's confidence
    (FreeMatch, which has no tau), with answers aligned to the site's labels, with thresholds around
    tau by the site's class counts (CBAFed), or with a target between the net and the model received
    (SAGE)."""
    fairness_weight: float = Field(0.0, ge=0.0)
    """Of FreeMatch's term for evenly spread answers, as a share of the pseudo-label loss. Authors'
    code: 0.001 to 0.01; wrong where a site lacks classes."""
    unlabelled_weight: float = Field(0.5, ge=0.0)
    """beta: weight of the pseudo-label loss; 0 is supervised training. Paper: 0.5."""
    pseudo_label_mean: Literal["kept", "all"] = "kept"
    """What the pseudo-label loss is a mean over: the images whose labels are kept, as in FedPerl's
    code, so that a single one has all the weight; or all, as in FixMatch."""

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """As of :class:`Settings`."""
        fairness = {"fairness_weight": self.fairness_weight} if self.fairness_weight else {}
        return {**super().loss_weights, "unlabelled_weight": self.unlabelled_weight, **fairness}

    @property
    def one_label(self) -> str:
        """As of :class:`Settings`."""
        return super().one_label or changed(self, "pseudo_labels")

    @model_validator(mode="after")
    def _fairness_of_freematch(self) -> "FixMatchSettings":
        if self.fairness_weight and self.pseudo_labels != "freematch":
            remedy = "set pseudo_labels=freematch, or fairness_weight=0"
            raise ValueError(
                f"fairness_weight is FreeMatch's, and pseudo_labels={self.pseudo_labels}: {remedy}"
            )
        return self
