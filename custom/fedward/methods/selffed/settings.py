"""SelfFed's settings. Its two phases have a learning rate each, and share everything else."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, model_validator

from fedward.methods.settings import (
    AllImages,
    NeededSetting,
    Optimizer,
    Positive,
    StepSize,
    UnitInterval,
)


class SelfFedSettings(AllImages):
    """SelfFed's settings.

    What the paper leaves open is taken from Fed-MAE, whose code and data it builds on. Learning
    rates are those of the chest X-ray runs, whose batches are of one size in both phases. A site
    passes through all its images; in phase 2 through the labelled ones, unless images are
    contrasted.
    """

    rounds: int = Field(1700, ge=1)
    """Rounds of both phases together. Paper: 1600 and 100."""
    batch: int = Field(64, ge=1)
    """Images in a step. Paper: 64 for chest X-rays, 128 and 256 for retina."""
    optimizer: Optimizer = "adamw"
    """Optimiser of both phases. Paper: AdamW."""
    weight_decay: float = Field(0.05, ge=0.0)
    """Weight decay, decoupled with AdamW. Fed-MAE: 0.05, which the paper calls a cosine decay."""
    pretraining_rounds: int = Field(1600, ge=0)
    """Rounds of phase 1. With 0, the run fine-tunes the model it starts from; with as many as
    ``rounds``, it only pre-trains. Paper: 1600."""
    pretext: Literal["masked", "contrastive"] = "masked"
    """What phase 1 learns without labels: to fill in hidden parts; or, as in MoCo, to find another
    view of an image among earlier images of the same site (a baseline)."""
    pretraining_rate: Positive = 3.75e-4
    """Largest learning rate of phase 1. Paper: 3.75e-4."""
    pretraining_warm_up: float = Field(40.0, ge=0.0)
    """Rounds over which the rate of phase 1 rises. Fed-MAE: 40; the paper says 5 epochs."""
    mask_ratio: float = Field(0.6, gt=0.0, le=1.0)
    """ψ: share of an image that is hidden. Paper: 0.6."""
    predicted_pixels: Literal["normalised", "raw"] = "normalised"
    """What is predicted of a hidden unit: its pixels relative to their mean and deviation, as in
    Fed-MAE's scripts; or the pixels themselves, as eq. (3) prints."""
    learning_rate: Positive = 7.5e-4
    """Largest learning rate of phase 2. Fed-MAE: 7.5e-4 for batches of 64; the paper prints its
    rate for 256, 3e-3."""
    warm_up: float = Field(5.0, ge=0.0)
    """Rounds of phase 2 over which its rate rises. Paper: 5."""
    contrastive: Literal["server", "client", "off"] = "server"
    """Whose images the contrastive network sees in phase 2: the server's own public ones between
    two rounds, as in the paper; or each site's, with a queue and a target network that stay there.
    ``off`` with ``beta`` = 1 is Fed-MAE."""
    contrastive_rate: Positive = 1e-4
    """Largest learning rate of the contrastive network; it rises and falls with that of phase 2.
    Not in the paper."""
    temperature: Positive = 0.2
    """μ of :func:`fedward.methods.selffed.contrast.info_nce`. Not in the paper; MoCo v2's."""
    queue: int = Field(4096, ge=1, le=65536)
    """N: keys of earlier batches. At most as many as in MoCo, because sites keep them. Not in the
    paper."""
    target_decay: UnitInterval = 0.99
    """θ, applied once per step. Paper: around 0.9, apparently once per round."""
    upload: Literal["model", "encoder"] = "model"
    """What sites send: the whole model, so that there is one classifier for all; or, as in the
    paper, no classifier, so that each site keeps its own and goes on training it."""
    beta: float = Field(0.9, gt=0.0, le=1.0)
    """β: base of the weights by participation. With 1, weights follow images alone. Not in the
    paper."""
    aggregation: Literal["normalised", "update"] = "normalised"
    """What β changes: the sites' shares of the mean, which does nothing while all sites take part
    in every round; or the weight of their updates, so that the model also moves less as rounds go
    by."""

    @property
    def counted_in_rounds(self) -> Sequence[str]:
        """See :attr:`fedward.methods.settings.Settings.counted_in_rounds`."""
        names = ("pretraining_rounds", "pretraining_warm_up", "warm_up")
        return [*super().counted_in_rounds, *names]

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """Step sizes of the phases at a site. The server's contrastive step is not among them."""
        rates: dict[str, float] = {}
        if self.pretraining_rounds:
            rates["pretraining_rate"] = self.pretraining_rate
        if self.rounds > self.pretraining_rounds:
            rates["learning_rate"] = self.learning_rate
            if self.contrastive == "client":
                rates["contrastive_rate"] = self.contrastive_rate
        return [StepSize(setting, rate, self.optimizer) for setting, rate in rates.items()]

    @property
    def without_effect(self) -> Mapping[str, NeededSetting | None]:
        """See :attr:`fedward.methods.settings.Settings.without_effect`."""
        needed = dict(super().without_effect)
        of_masks = ("mask_ratio", "predicted_pixels")
        if not self.pretraining_rounds:
            of_pretraining = ("pretext", "pretraining_rate", "pretraining_warm_up", *of_masks)
            some_rounds = NeededSetting("pretraining_rounds", max(1, self.rounds // 2))
            needed |= dict.fromkeys(of_pretraining, some_rounds)
        elif self.pretext != "masked":
            needed |= dict.fromkeys(of_masks, NeededSetting("pretext", "masked"))
        if self.contrastive == "off":
            needed["contrastive_rate"] = NeededSetting("contrastive", "server")
            if not (self.pretraining_rounds and self.pretext == "contrastive"):
                of_contrast = ("temperature", "queue", "target_decay")
                needed |= dict.fromkeys(of_contrast, NeededSetting("contrastive", "server"))
        return needed

    @model_validator(mode="after")
    def _feasible(self) -> "SelfFedSettings":
        if self.pretraining_rounds > self.rounds:
            raise ValueError(
                f"pretraining_rounds={self.pretraining_rounds} is more than rounds={self.rounds};"
                " each phase also needs more rounds than its warm-up has"
                f" (pretraining_warm_up={self.pretraining_warm_up:g}, warm_up={self.warm_up:g})"
            )
        fine_tuning_rounds = self.rounds - self.pretraining_rounds
        if self.pretraining_rounds and self.pretraining_warm_up >= self.pretraining_rounds:
            raise ValueError(
                f"pretraining_warm_up={self.pretraining_warm_up:g} leaves no round of phase 1"
            )
        if fine_tuning_rounds and self.warm_up >= fine_tuning_rounds:
            raise ValueError(
                f"warm_up={self.warm_up:g} leaves none of {fine_tuning_rounds} rounds of phase 2"
            )
        return self
