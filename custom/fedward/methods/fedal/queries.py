"""Active learning at the sites: in which rounds they ask for labels, for how many, and for which
images.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.samplers import has_bounded_scores, sampler_of
from fedward.methods.samplers.equations import annotation_budget
from fedward.methods.settings import AllImages, Positive, Schedule, Share, StepSize, changed
from fedward.methods.workflow import QUERY


class ActiveSettings(AllImages, FixMatchSettings):
    """FedAL's choices; defaults are the paper's, where it names some."""

    rounds: int = Field(25, ge=1)
    """T: rounds. Paper: 25, which are 125 local epochs."""
    local_epochs: int = Field(5, ge=1)
    """E: local epochs of a round. Paper: 5."""
    batch: int = Field(32, ge=1)
    """Not in the paper."""
    learning_rate: Positive = 2e-4
    """Paper: 2e-4 at first; its schedule is not given."""
    schedule: Schedule = "constant"
    """With a cosine, labels that were bought late would teach least."""
    weight_decay: float = Field(5e-4, ge=0.0)
    """Paper: 5e-4."""
    loss: Literal["cross_entropy", "evidential"] = "cross_entropy"
    """What trains the model: cross-entropy, as in the paper, or FEAL's evidential loss."""
    unlabelled_weight: float = Field(0.0, ge=0.0)
    """beta: weight of the pseudo-label loss on the images that have no label yet, as in SSFL.
    Paper: 0.
    """
    sampler: str = "fedal"
    """How a query chooses: a name of ``fedward.methods.samplers``."""
    sampler_options: dict[str, Any] = Field(default_factory=dict)
    """The sampler's own settings."""
    budget: Literal["by_size", "by_score"] = "by_size"
    """How the labels of a query are divided: each site gets its share by size, as in the paper, or
    they go where the scores are highest, for which each site tells how its scores are
    distributed."""
    out_of_distribution_filter: bool = False
    """Whether sites do not ask about images that look like none of their labelled ones; not in the
    paper.
    """
    query_every: int = Field(2, ge=1)
    """K: rounds from a query to the next; the first comes after so many. Paper: every 10 of its
    epochs, 2 rounds.
    """
    steps: int = Field(10, ge=1)
    """G: queries in the run; what is left of the rounds fine-tunes. Paper: 10, up to epoch 100."""
    initial_fraction: Share = 0.1
    """Share of a site's training images that is labelled by chance before the first round. Not in
    the paper.
    """
    target_fraction: Share = 0.5
    """gamma: share that is labelled after the last query. Paper: 0.5."""

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """As of :class:`~fedward.methods.settings.Settings`; auxiliary heads have an Adam of their
        own.
        """
        heads = sampler_of(self.sampler, self.sampler_options).uses.heads
        return [
            *super().step_sizes,
            *[StepSize("learning_rate of the heads", self.learning_rate, "adam")] * heads,
        ]

    @property
    def one_label(self) -> str:
        """As of :class:`~fedward.methods.settings.Settings`."""
        sampler = (
            f"sampler={self.sampler}"
            if sampler_of(self.sampler, self.sampler_options).one_label
            else ""
        )
        return super().one_label or changed(self, "loss") or sampler

    @model_validator(mode="after")
    def _feasible(self) -> "ActiveSettings":
        if self.initial_fraction > self.target_fraction:
            raise ValueError(f"initial_fraction={self.initial_fraction} is above target_fraction")
        last = 1 + self.steps * self.query_every
        if last > self.rounds:
            these = f"with steps={self.steps} and query_every={self.query_every}, rounds"
            raise ValueError(
                f"{these} must be {last} or more, not {self.rounds}: the last query comes in round {last}"
            )
        sampler = sampler_of(self.sampler, self.sampler_options)
        if self.unlabelled_weight and (sampler.uses.heads or self.loss == "evidential"):
            why = (
                f"{self.sampler} trains heads of its own"
                if sampler.uses.heads
                else "the loss is evidential"
            )
            raise ValueError(f"unlabelled_weight must be 0: {why}, and there are no pseudo-labels")
        if self.budget == "by_score" and not has_bounded_scores(sampler):
            raise ValueError(
                f"budget='by_score' needs a sampler whose scores have bounds, and {self.sampler} has none"
            )
        own_weights = self.class_weighting == "none" and self.missing_classes == "as_any"
        if self.loss == "evidential" and (sampler.uses.heads or not own_weights):
            needs = f"class_weighting='none', missing_classes='as_any', and a sampler without heads, not {self.sampler}"
            raise ValueError(
                f"loss='evidential' weights classes itself and has no heads: it needs {needs}"
            )
        return self


class ActiveLearning:
    """When sites buy labels, how many, and how they choose the images."""

    def __init__(self, settings: ActiveSettings) -> None:
        self.settings = settings
        self.sampler = sampler_of(settings.sampler, settings.sampler_options)
        self.rounds = settings.rounds
        self.by_score = settings.budget == "by_score"
        self.filters_unfamiliar_images = settings.out_of_distribution_filter

    def task(self, round_: int) -> str:
        """Return ``query`` in rounds 1 + K, 1 + 2K, ..., 1 + GK, and in all after these for what a
        site has missed.
        """
        step, rest = divmod(round_ - 1, self.settings.query_every)
        return QUERY if step >= self.settings.steps or (step and not rest) else "train"

    def first(self, pool: int) -> int:
        """Return n_0: how many images of a site's pool are labelled by chance before its first
        training.
        """
        return round(self.settings.initial_fraction * pool)

    def wanted(self, round_: int, pool: int, first: int) -> int:
        """Return how many labels a site is to have asked for by a query in a round, the first ones
        among them.

        Args:
            round_: from 1.
            pool: N_m, training images of the site that have a label or may get one.
            first: n_0, labels it began with; where these are more than the target, no others are
                wanted.
        """
        if first >= round(self.settings.target_fraction * pool):
            return first
        budget = annotation_budget(pool, first, self.settings.target_fraction, self.settings.steps)
        return first + sum(budget[: (round_ - 1) // self.settings.query_every])

    def most_labelled(self, round_: int, pool: int, known: int) -> int:
        """Return how many images of a pool can have a label in a round; ``known`` had one before
        the run.
        """
        if self.by_score:
            return pool
        return self.wanted(round_, pool, max(self.first(pool), known))

    def most_due(self, round_: int, total: int) -> int:
        """Return how many labels can be due in a round at a site with so many training images, if
        none came so far.
        """
        first = self.first(total)
        return self.wanted(round_, total, first) - first + 1  # a smaller pool may round up
