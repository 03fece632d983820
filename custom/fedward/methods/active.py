"""Federated active learning: FedAvg whose sites buy labels at fixed rounds, for the images a sampler chooses.

Deng, Yang, Suzuki: *Federated active learning framework for efficient annotation strategy in skin-lesion
classification*, arXiv 2406.11310, Alg. 1. With the sampler ``fedal`` it is FedAL; with another one of
:mod:`fedward.methods.samplers` that one's baseline: rounds, budgets and the first labels are the same for all.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, model_validator
from torch import nn

from fedward.methods.auxiliary import HEADS, SupervisedWithHeads, add_heads
from fedward.methods.fedal import annotation_budget
from fedward.methods.fedavg import FedAvg, FedAvgState, Supervised, draw_participants
from fedward.methods.local import Objective
from fedward.methods.samplers import Sampler, allocate_by_counts, has_bounded_scores, sampler_of
from fedward.methods.settings import Positive, Settings, Share
from fedward.methods.workflow import SCORE, Ask, Federation, Reply, Rounds, Work

QUERY = "query"
"""The task of a round in which sites ask for the labels that are due there."""


class ActiveSettings(Settings):
    """FedAL's choices; defaults are the paper's, where it names some."""

    rounds: int = Field(25, ge=1)
    """T: rounds. Paper: 25, which are 125 local epochs."""
    participants: int | None = Field(None, ge=1)
    """None: all sites. Paper: all four."""
    images_per_round: int | None = Field(None, ge=1)
    """None: a site passes through the images it has labels of."""
    local_epochs: int = Field(5, ge=1)
    """E: local epochs of a round. Paper: 5."""
    batch: int = Field(32, ge=1)
    """Not in the paper."""
    learning_rate: Positive = 2e-4
    """Paper: 2e-4 at first; its schedule is not given, and there is none here."""
    weight_decay: float = Field(5e-4, ge=0.0)
    """Paper: 5e-4."""
    class_weighting: Literal["median_frequency", "none"] = "none"
    """Paper: none."""
    sampler: str = "fedal"
    """How a query chooses: a name of ``fedward.methods.samplers``."""
    sampler_options: dict[str, Any] = Field(default_factory=dict)
    """The sampler's own settings."""
    budget: Literal["by_size", "by_score"] = "by_size"
    """How the labels of a query are divided: each site gets its share by size, as in the paper, or they go where the
    scores are highest, for which each site tells how its scores are distributed."""
    query_every: int = Field(2, ge=1)
    """K: rounds from a query to the next; the first comes after so many. Paper: every 10 of its epochs, 2 rounds."""
    steps: int = Field(10, ge=1)
    """G: queries in the run; what is left of the rounds fine-tunes. Paper: 10, up to epoch 100."""
    initial_fraction: Share = 0.1
    """Share of a site's training images that is labelled by chance before the first round. Not in the paper."""
    target_fraction: Share = 0.5
    """gamma: share that is labelled after the last query. Paper: 0.5."""

    @model_validator(mode="after")
    def _feasible(self) -> "ActiveSettings":
        if self.initial_fraction > self.target_fraction:
            raise ValueError(f"initial_fraction={self.initial_fraction} is above target_fraction")
        if (last := 1 + self.steps * self.query_every) > self.rounds:
            raise ValueError(f"the last of {self.steps} queries would come in round {last} of {self.rounds}")
        sampler = sampler_of(self.sampler, self.sampler_options)
        if self.budget == "by_score" and not has_bounded_scores(sampler):
            raise ValueError(f"budget='by_score' needs a sampler whose scores have bounds, and {self.sampler} has none")
        return self


@dataclass
class ScoredState(FedAvgState):
    """The server's state between two rounds, where budgets go by scores."""

    missed: list[str] = field(default_factory=list)
    """Sites that took no part in the newest query."""


class ActiveLearning(FedAvg):
    """FedAvg on the images that are labelled so far, weighted by their number.

    With fewer replies than asked for: as FedAvg, and

    ===============================  ========================================================================
    a site misses a query            it asks for what it missed at its next one; after the last, in its next round
    a site tells no scores           it gets none of a budget that goes by scores, and what it would have had later;
                                     after the last query this is its share by size
    a site has not trained before    the global model stands for its own in the ensemble; its log says so
    labels do not come               the site trains on those it has, or waits first, as its site file says
    ===============================  ========================================================================
    """

    settings_type = ActiveSettings
    per_class = (f"{HEADS}.",)
    settings: ActiveSettings

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if self.settings.budget == "by_score":
            self.state_type = ScoredState

    @staticmethod
    def weight(labelled: int, unlabelled: int, steps: int) -> int:
        """Return the images labelled at present (eq. (2))."""
        return labelled

    @cached_property
    def sampler(self) -> Sampler:
        """How queries choose."""
        return sampler_of(self.settings.sampler, self.settings.sampler_options)

    @property
    def exchanges(self) -> int:
        """Scores, and then the labels that are given out by them."""
        return 2 if self.settings.budget == "by_score" else 1

    @property
    def needs_one_process(self) -> str:
        """Heads are trained beside the network."""
        return "the sampler trains auxiliary heads beside the network" if self.sampler.uses.heads else ""

    def extend(self, net: nn.Module) -> None:
        """Add auxiliary heads where the sampler looks at them."""
        if self.sampler.uses.heads:
            add_heads(net)

    def objective(self) -> Objective:
        """Return cross-entropy, and the training of heads where there are some."""
        return SupervisedWithHeads(self.settings) if self.sampler.uses.heads else Supervised()

    def task(self, round_: int) -> str:
        """Return ``query`` in rounds 1 + K, 1 + 2K, ..., 1 + GK, the beginning of which the paper's epochs mean.

        And in all after these, where a site asks for what it missed: nothing, if it has all.
        """
        step, rest = divmod(round_ - 1, self.settings.query_every)
        return QUERY if step >= self.settings.steps or (step and not rest) else "train"

    def first(self, pool: int) -> int:
        """Return n_0: how many images of a site's pool are labelled by chance before its first training."""
        return round(self.settings.initial_fraction * pool)

    def wanted(self, round_: int, pool: int, first: int) -> int:
        """Return how many labels a site is to have asked for by a query in a round, the first ones among them.

        Counted from the start, so that a site which missed a query catches up.

        Args:
            round_: from 1.
            pool: N_m, training images of the site that have a label or may get one.
            first: n_0, labels it began with; where these are more than the target, no others are wanted.
        """
        if first >= round(self.settings.target_fraction * pool):
            return first
        budget = annotation_budget(pool, first, self.settings.target_fraction, self.settings.steps)
        return first + sum(budget[: (round_ - 1) // self.settings.query_every])

    def most_labelled(self, round_: int, pool: int, known: int) -> int:
        """Return how many images of a pool can have a label in a round; ``known`` had one before the run."""
        if self.settings.budget == "by_score":
            return pool
        return self.wanted(round_, pool, max(self.first(pool), known))

    def most_due(self, round_: int, total: int) -> int:
        """Return how many labels can be due in a round at a site with so many training images, if none came so far."""
        first = self.first(total)
        return self.wanted(round_, total, first) - first + 1  # a smaller pool may round up

    def rounds(self, state: FedAvgState, federation: Federation) -> Rounds:
        """Deng et al., Alg. 1; where the budget goes by scores, a query is preceded by a look at them."""
        while state.round < self.settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(federation.sites, self.settings.participants, federation.seed, round_)
            if isinstance(state, ScoredState) and self.task(round_) == QUERY:
                replies = yield from self._query_by_scores(state, sites, federation.sites)
            else:
                replies = yield Ask(round_, state.model, {site: Work(self.task(round_)) for site in sites})
            state.model = self.mean(replies, state.model)
            state.round = round_

    def _query_by_scores(
        self, state: ScoredState, sites: Sequence[str], everyone: Sequence[str]
    ) -> Generator[Ask, list[Reply], list[Reply]]:
        round_ = state.round + 1
        if round_ > 1 + self.settings.steps * self.settings.query_every:
            # Its share by size: for the few that missed the last query, all would have to score once more.
            late = {site: Work(QUERY if site in state.missed else "train") for site in sites}
            return (yield Ask(round_, state.model, late))
        scored = yield Ask(round_, state.model, {site: Work(SCORE) for site in sites})
        budgets = divide(scored)
        work = {site: Work(QUERY, labels=budgets.get(site, 0)) for site in sites}
        replies = yield Ask(round_, state.model, work, record={"budgets": {"labels": budgets}}, part=1)
        took_part = {reply.site for reply in scored if any(reply.scores)} & {reply.site for reply in replies}
        state.missed = sorted(set(everyone) - took_part)
        return replies


def divide(replies: Sequence[Reply]) -> dict[str, int]:
    """Return how many labels each site is to ask for.

    They are as many together as by the sites' sizes, and go where the scores are highest.
    """
    scored = [reply for reply in replies if reply.scores]
    budget = max(0, sum(reply.due for reply in scored))
    return allocate_by_counts({reply.site: reply.scores for reply in scored}, budget)
