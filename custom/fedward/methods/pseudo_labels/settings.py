"""Settings of the methods whose sites make pseudo-labels."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import Field

from fedward.methods.settings import NeededSetting, Positive, ServerLabels, UnitInterval, changed

LabellerName: TypeAlias = Literal["fixed", "soft"]


class FixMatchSettings(ServerLabels):
    """Settings of FixMatch, with FedPerl's values as defaults."""

    threshold: UnitInterval = 0.6
    """τ: smallest confidence of a pseudo-label. In a multi-label job it holds for both answers, yes
    and no, to each class. Paper: 0.6 in a federation, 0.9 at a single site."""
    pseudo_labels: LabellerName = "fixed"
    """What a pseudo-label is: the most probable class (``fixed``, as in FixMatch), or the sharpened
    probabilities (``soft``, as in UDA). Either is kept from τ on."""
    temperature: Positive = 0.4
    """Temperature of ``pseudo_labels=soft``; below 1 it sharpens. UDA: 0.4."""
    unlabelled_weight: float = Field(0.5, ge=0.0)
    """β: weight of the pseudo-label loss; 0 is supervised training. Paper: 0.5."""
    pseudo_label_mean: Literal["kept", "all"] = "kept"
    """What the pseudo-label loss is averaged over. ``kept``: the images whose labels are kept, as
    in FedPerl's code, so that a single one has all the weight. ``all``: all unlabelled images of
    the batch, as in FixMatch."""
    proximal_weight: float = Field(0.0, ge=0.0)
    """μ, weight of FedProx's proximal term; 0: none. FedPerl's code: 0.01 where it is switched
    on."""

    @property
    def without_effect(self) -> Mapping[str, NeededSetting | None]:
        """See :attr:`fedward.methods.settings.Settings.without_effect`."""
        needed = dict(super().without_effect)
        if self.pseudo_labels != "soft":
            needed["temperature"] = NeededSetting("pseudo_labels", "soft")
        return needed

    @property
    def pull(self) -> float:
        """μ; see :attr:`fedward.methods.settings.Settings.pull`."""
        return self.proximal_weight

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """Weights of the loss terms besides the supervised one, by setting."""
        return {**super().loss_weights, "unlabelled_weight": self.unlabelled_weight}

    @property
    def one_label(self) -> str:
        """The setting that needs one label an image, as ``name=value``; empty where none does."""
        return super().one_label or changed(self, "pseudo_labels")
