"""Active learning: in which rounds sites ask for labels, and for how many."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pydantic import Field, model_validator

from fedward.methods.samplers import sampler_of
from fedward.methods.samplers.base import Sampler
from fedward.methods.settings import AllImages, Positive, Schedule, StepSize, UnitInterval
from fedward.methods.workflow import QUERY, TRAIN


class ActiveSettings(AllImages):
    """FedAL's settings. Defaults are the paper's where it gives a value."""

    rounds: int = Field(25, ge=1)
    """T: rounds. Paper: 25, which are 125 local epochs."""
    local_epochs: int = Field(5, ge=1)
    """E: local epochs of a round. Paper: 5."""
    batch: int = Field(32, ge=1)
    """Images in a step. Not in the paper."""
    learning_rate: Positive = 2e-4
    """Largest step size. Paper: 2e-4 at first; its schedule is not given."""
    schedule: Schedule = "constant"
    """How the learning rate changes from round to round. With a cosine, labels that were bought
    late would teach least."""
    weight_decay: float = Field(5e-4, ge=0.0)
    """L2 penalty, added to the gradient. Paper: 5e-4."""
    sampler: str = "fedal"
    """How a query chooses images: a name of ``fedward.methods.samplers``."""
    sampler_options: dict[str, Any] = Field(default_factory=dict)
    """The sampler's own settings."""
    out_of_distribution_filter: bool = False
    """Whether sites do not ask about images that look like none of their labelled ones. Not in the
    paper."""
    query_every: int = Field(2, ge=1)
    """K: rounds from one query to the next; the first query follows K rounds of training. Paper:
    every 10 of its epochs, which are 2 rounds."""
    steps: int = Field(10, ge=1)
    """G: queries in the run, not optimiser steps; rounds after the last one fine-tune. Paper: 10,
    up to epoch 100."""
    initial_fraction: UnitInterval = 0.1
    """Share of a site's training images that is labelled by chance before the first round. Not in
    the paper."""
    target_fraction: UnitInterval = 0.5
    """γ: share of a site's training images that is labelled after the last query. Paper: 0.5."""

    @property
    def counted_in_rounds(self) -> Sequence[str]:
        """See :attr:`fedward.methods.settings.Settings.counted_in_rounds`."""
        return [*super().counted_in_rounds, "query_every"]

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """Step sizes of the network and, with MCDAL, of its auxiliary heads, which use Adam."""
        step_sizes = list(super().step_sizes)
        if self._sampler().uses.heads:
            step_sizes.append(StepSize("learning_rate of the heads", self.learning_rate, "adam"))
        return step_sizes

    @property
    def one_label(self) -> str:
        """The setting that needs one label an image, as ``name=value``; empty where none does."""
        setting = super().one_label
        if not setting and self._sampler().assumes_one_label:
            setting = f"sampler={self.sampler}"
        return setting

    def _sampler(self) -> Sampler:
        return sampler_of(self.sampler, self.sampler_options)

    @model_validator(mode="after")
    def _feasible(self) -> "ActiveSettings":
        if self.initial_fraction > self.target_fraction:
            raise ValueError(f"initial_fraction={self.initial_fraction} is above target_fraction")
        last_query = 1 + self.steps * self.query_every
        if last_query > self.rounds:
            raise ValueError(
                f"with steps={self.steps} and query_every={self.query_every}, rounds must be "
                f"{last_query} or more, not {self.rounds}: the last query comes in round "
                f"{last_query}"
            )
        self._sampler()  # It refuses an unknown name, and options that the sampler does not have.
        return self


class ActiveLearning:
    """When sites buy labels, how many they buy, and how they choose the images."""

    def __init__(self, settings: ActiveSettings) -> None:
        self.settings = settings
        self.sampler = sampler_of(settings.sampler, settings.sampler_options)
        self.rounds = settings.rounds
        self.filters_unfamiliar_images = settings.out_of_distribution_filter

    def task(self, round_: int) -> str:
        """Return the task of a round.

        It is ``query`` in rounds 1 + K, 1 + 2K, ..., 1 + GK, and in all rounds after these, in
        which a site asks for the labels that it has missed.
        """
        queries_before, rest = divmod(round_ - 1, self.settings.query_every)
        all_queries_are_over = queries_before >= self.settings.steps
        comes_after_k_rounds = queries_before > 0 and rest == 0
        return QUERY if all_queries_are_over or comes_after_k_rounds else TRAIN

    def initial_labels(self, pool: int) -> int:
        """Return n_0: how many images of a pool are labelled by chance before any training."""
        return round(self.settings.initial_fraction * pool)

    def labels_wanted(self, round_: int, pool: int, initial: int) -> int:
        """Return how many labels a site should have asked for by the query of a round.

        The initial labels count among them.

        Args:
            round_: from 1.
            pool: N_m, training images of the site that have a label or may get one.
            initial: n_0, labels that the site began with. If these are more than the target, no
                further ones are wanted.
        """
        if initial >= round(self.settings.target_fraction * pool):
            return initial
        budget = annotation_budget(
            pool, initial, self.settings.target_fraction, self.settings.steps
        )
        queries_until_now = (round_ - 1) // self.settings.query_every
        return initial + sum(budget[:queries_until_now])

    def most_labelled(self, round_: int, pool: int, initial: int) -> int:
        """Return how many images of a pool can have a label in a round.

        ``initial`` of them had a label before the run.
        """
        return self.labels_wanted(round_, pool, max(self.initial_labels(pool), initial))


def annotation_budget(pool: int, initial: int, target_fraction: float, queries: int) -> list[int]:
    """Return how many images a site labels in each query.

    ``a^{m,k} = A_k - A_{k-1}`` with ``A_k = round(k (round(γ N_m) - n_0) / G)``, a half rounded up,
    for k = 1 ... G. In ``round(γ N_m)`` a half goes to the even number, as Python rounds.

    Source: Deng et al., arXiv 2406.11310, eq. (1), with the share γ of Tables 3 and 4.

    Args:
        pool: N_m >= 0, training images of the site, labelled or not.
        initial: n_0 in [0, round(γ N_m)], how many of them are labelled at the start.
        target_fraction: γ in [0, 1], the share that is labelled at the end.
        queries: G >= 1, queries of the run.

    Returns:
        G numbers >= 0 that sum to ``round(γ N_m) - n_0`` and differ by at most one.

    Edge cases: the target is reached already: zeros. Fewer images than queries: ones among zeros.
    N_m = 0: zeros.

    Deviates: eq. (1) multiplies γ by the unlabelled images alone and does not round. With the first
    10 % labelled and γ = 0.5 it would end at 55 % of the data, where the tables say 50 %.
    """
    total = round(target_fraction * pool) - initial
    # A_k in integers: floor(k total / G + 1/2).
    labelled_after = [
        (2 * query * total + queries) // (2 * queries) for query in range(queries + 1)
    ]
    return [after - before for before, after in pairwise(labelled_after)]
