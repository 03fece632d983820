"""Distance-weighted federated averaging over sites that have all their labels, or none.

Liang, Lin, Fu, Zhu, Li: *RSCFed*, CVPR 2022, eq. (5)-(7), as used by IsoFed (Saha et al., MICCAI 2023, eq. (2)-(3)).
Supervised, it is the bounds of the semi-supervised methods here; with a mean teacher at the sites without labels,
their baseline. A site's own file says whether it has labels: the server learns it from the site's first answer.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedward.errors import ConfigError, RunError
from fedward.methods.aggregation import aggregate, capped_counts, capped_weights, weighted_average
from fedward.methods.fedavg import FedAvg, FedAvgState, draw_participants
from fedward.methods.local import Phase
from fedward.methods.settings import Positive, Settings
from fedward.methods.workflow import Ask, Federation, Reply, Rounds, State, Work

SUPERVISED, UNSUPERVISED = "supervised", "unsupervised"
"""Tasks of a site with labels, and of one without."""
_FURTHEST = 1e300
"""Penalties beyond this are this: the product of two numbers may be infinite, and a difference of such is none."""
_SILENT_ROUNDS_IN_A_ROW = 3
"""Rounds without any average after which a run gives up; unlabelled sites alone could keep it busy for ever."""
LABELLED, UNLABELLED = "labelled", "unlabelled"
"""The two groups of sites."""


@torch.no_grad()
def model_distance(state: State, mean: State, norm: Literal["sum", "flat"] = "sum") -> float:
    """Return how far a model is from the mean of its group.

    "sum": ``d = Σ_l ‖W_l - W̄_l‖`` over tensors l; "flat": ``d = ‖W - W̄‖`` of all of them as one vector.

    Source: Saha et al., MICCAI 2023, eq. (3) is "flat"; RSCFed's code, with which the weights' scale was tuned, "sum".

    Args:
        state, mean: models of one architecture; floating-point tensors count, each is read once.

    Returns:
        d >= 0, computed in float64. ``flat <= sum <= sqrt(L) flat`` for L tensors.

    Raises:
        ConfigError: other keys or shapes, or an unknown norm.
    """
    if norm not in ("sum", "flat"):
        raise ConfigError("model_distance", expected='"sum" or "flat"', found=repr(norm), remedy="Choose one of them.")
    if different := set(state).symmetric_difference(mean):
        raise _mismatch(min(different), "in both models", "in one")
    squares = []
    for key in mean:
        if not mean[key].is_floating_point():
            continue
        one, other = state[key], mean[key]
        if one.shape != other.shape:
            raise _mismatch(key, f"shape {tuple(other.shape)}", f"shape {tuple(one.shape)}")
        squares.append(float((one.double() - other.double()).square().sum()))
    return math.sqrt(sum(squares)) if norm == "flat" else sum(map(math.sqrt, squares))


def distance_weights(sizes: Tensor, distances: Tensor, scale: float) -> Tensor:
    """Weigh sites by their images, and down the further their model is from the group's mean.

    ``c_k ∝ n_k exp(-λ d_k / n_k)``, scaled to a sum of 1.

    Source: Saha et al., MICCAI 2023, eq. (2)-(3).

    Args:
        sizes: n_k (K,), numbers of images, finite, >= 0, not all 0; K >= 1.
        distances: d_k (K,), finite, >= 0.
        scale: λ >= 0; 0 is federated averaging by size.

    Returns:
        (K,) float64 in [0, 1], sum 1. Computed in log space: however large λ d_k / n_k is, the largest weight survives.

    Raises:
        ConfigError: shapes that differ, or a number out of range.

    Edge cases:
        ==========================  ===================================================
        one site                    1
        size 0                      0
        equal sizes and distances   1 / K each
        no images at all            refused
        ==========================  ===================================================
    """
    n, d = sizes.to(torch.float64), distances.to(torch.float64)
    numbers = torch.cat([n.flatten(), d.flatten(), torch.tensor([scale], dtype=torch.float64)])
    fits = n.dim() == 1 and n.shape == d.shape and len(n) > 0
    if not fits or not bool((numbers.isfinite() & (numbers >= 0)).all()) or not bool((n > 0).any()):
        raise ConfigError(
            "distance_weights",
            expected="as many finite distances >= 0 as sizes >= 0, not all sizes 0, and a scale >= 0",
            found=f"sizes {sizes.tolist()}, distances {distances.tolist()}, scale {scale}",
            remedy="Weigh only replies that were accepted.",
        )
    some = n > 0
    logarithms = torch.full_like(n, -math.inf)
    penalties = (scale * d[some] / n[some]).clamp_max(_FURTHEST)
    logarithms[some] = n[some].log() - penalties
    return torch.softmax(logarithms, dim=0)


class WFedAvgSettings(Settings):
    """Values of RSCFed's code, which IsoFed says it follows; all sites take part, with all their images."""

    rounds: int = Field(200, ge=1)
    """RSCFed: 1000 on SVHN and CIFAR-10."""
    participants: int | None = Field(None, ge=1)
    images_per_round: int | None = Field(None, ge=1)
    batch: int = Field(64, ge=1)
    optimizer: Literal["adam", "sgd"] = "sgd"
    learning_rate: Positive = 0.03
    weight_decay: float = Field(5e-4, ge=0.0)
    clip_gradient: Positive | None = 5.0
    class_weighting: Literal["median_frequency", "none"] = "none"
    warm_up: int = Field(7, ge=0)
    """Rounds at the start in which only sites with labels train. RSCFed starts from such a model."""
    distance_scale: float = Field(100.0, ge=0.0)
    """lambda_c of :func:`distance_weights`; 0 weighs by images alone."""
    distance_norm: Literal["sum", "flat"] = "sum"


@dataclass
class GroupedState(FedAvgState):
    """The server's state between two rounds."""

    groups: dict[str, str] = field(default_factory=dict)
    """``labelled`` or ``unlabelled``, as each site's last answer said; sites that never answered are absent."""


Answers = Generator[Ask, "list[Reply]", "list[Reply]"]
"""One exchange inside a round: returns the replies that took steps."""
ModelOf = Generator[Ask, "list[Reply]", State]
"""A part of a round, or all of it: returns the model it ends with."""


class WFedAvg(FedAvg):
    """Distance-weighted averaging of supervised sites: the upper bound where all have labels, else the lower one.

    What happens with fewer replies than asked for, here and in the methods built on it:

    ================================  ============================================================================
    some sites fail                   the mean is taken over those that replied
    no labelled site replies          the model stays, whatever unlabelled sites have sent, if some were asked
    a group of one                    its weight is 1
    a site gains or loses its labels  its next answer says so, be it an evaluation; from then on it is in its group.
                                      If they are many, the server accepts that once the run is resumed
    no site has labels                the run ends, naming the sites; also after three rounds without an average
    late, second, broken reply        as FedAvg
    ================================  ============================================================================
    """

    settings_type: type[WFedAvgSettings] = WFedAvgSettings
    state_type: type[GroupedState] = GroupedState
    settings: WFedAvgSettings

    @staticmethod
    def weight(labelled: int, unlabelled: int, steps: int) -> int:
        """Return the images of the group a site is in."""
        return labelled or unlabelled

    @property
    def needs_single_models(self) -> str:
        """Distances are those of single models; without them images alone weigh."""
        if not self.settings.distance_scale:
            return ""
        return "its weights are distances of single sites' models; distance_scale=0 weighs by images alone"

    @property
    def needs_weights(self) -> str:
        """Distances say what a site counts for."""
        return self.needs_single_models

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return cross-entropy for a site with labels; a task for the other group is declined."""
        if (task == SUPERVISED) != (labelled > 0):
            return []
        return self.supervised_phases(round_) if labelled else self.unsupervised_phases(round_)

    def supervised_phases(self, round_: int) -> Sequence[Phase]:
        """Return what a site with labels does."""
        return [Phase(self.objective(), self.settings.learning_rate)]

    def unsupervised_phases(self, round_: int) -> Sequence[Phase]:
        """Return what a site without labels does: here nothing."""
        return []

    def rounds(self, state: FedAvgState, federation: Federation) -> Rounds:
        """Warm up on the sites with labels, then one round of the method after the other."""
        assert isinstance(state, GroupedState)
        silent = 0
        while state.round < self.settings.rounds:
            round_, before, known = state.round + 1, state.model, dict(state.groups)
            if round_ <= self.settings.warm_up:
                state.model = yield from self.supervised_round(state, federation, state.model)
            else:
                state.model = yield from self.one_round(state, federation)
            # A site that says for the first time that it has no labels is not silent.
            silent = silent + 1 if state.model is before and state.groups == known else 0
            self._stop_without_labels(state, federation, silent)
            state.round = round_

    @staticmethod
    def _stop_without_labels(state: GroupedState, federation: Federation, silent: int) -> None:
        everyone, nobody = set(state.groups) == set(federation.sites), LABELLED not in state.groups.values()
        if everyone and nobody:
            found = "no site has labels"
            remedy = "Give one of them labels (`labelled` in its site file), or add a site."
        elif silent >= _SILENT_ROUNDS_IN_A_ROW:
            found, remedy = f"none in {silent} rounds in a row", "Mend the sites, then resume this run folder."
        else:
            return
        raise RunError(
            f"round {state.round + 1}, sites {', '.join(federation.sites)}",
            expected="an answer from a site with labels",
            found=found,
            remedy=remedy,
        )

    def one_round(self, state: GroupedState, federation: Federation) -> ModelOf:
        """Return the model after a round behind the warm-up."""
        return (yield from self.supervised_round(state, federation, state.model))

    def supervised_round(self, state: GroupedState, federation: Federation, start: State, part: int = 0) -> ModelOf:
        """Train the labelled sites from ``start`` and average them; without a reply the global model stays."""
        tasks = dict.fromkeys(self.draw(state, federation, UNLABELLED), SUPERVISED)
        replies = yield from self.ask(state, start, tasks, part)
        return self.average(replies, state, federation, LABELLED, part)

    def draw(self, state: GroupedState, federation: Federation, without: str | None = None) -> list[str]:
        """Draw a round's participants among the sites that are not known to be in the group ``without``."""
        names = [site for site in federation.sites if without is None or state.groups.get(site) != without]
        round_ = state.round + 1
        return draw_participants(names, self.settings.participants, federation.seed, round_, without or "all")

    def ask(self, state: GroupedState, model: State, tasks: Mapping[str, str], part: int) -> Answers:
        """Send a model to sites with their tasks, note their groups, and return the replies that took steps."""
        if not tasks:
            return []
        replies = yield Ask(state.round + 1, model, {site: Work(task) for site, task in tasks.items()}, part=part)
        state.groups |= {reply.site: LABELLED if reply.labelled else UNLABELLED for reply in replies}
        return [reply for reply in replies if reply.steps]

    def average(
        self, replies: Sequence[Reply], state: GroupedState, federation: Federation, group: str, part: int
    ) -> State:
        """Return ``Σ_k c_k W_k`` of the replies, and log the weights; without replies the global model."""
        if not replies:
            return state.model
        sizes, distances = measure(replies, self.settings.distance_norm, self.settings.largest_share)
        weights = capped_weights(self.weigh(replies, sizes, distances), sizes, self.settings.largest_share)
        row = {"sites": [reply.site for reply in replies], "weights": weights.tolist(), "distances": distances.tolist()}
        federation.note("groups", {"round": state.round + 1, "part": part, "group": group, **row})
        return aggregate([reply.state for reply in replies], weights.tolist(), self.settings)

    def weigh(self, replies: Sequence[Reply], sizes: Tensor, distances: Tensor) -> Tensor:
        """Return the weights c_k (K,)."""
        return distance_weights(sizes, distances, self.settings.distance_scale)


def measure(replies: Sequence[Reply], norm: Literal["sum", "flat"], largest_share: float) -> tuple[Tensor, Tensor]:
    """Return the images n_k (K,) the replies were trained on and their distances d_k (K,) from their mean by n_k.

    The images are capped: see :func:`~fedward.methods.aggregation.capped_counts`.
    """
    images = [WFedAvg.weight(reply.labelled, reply.unlabelled, reply.steps) for reply in replies]
    sizes = capped_counts(images, largest_share)
    mean = weighted_average([reply.state for reply in replies], sizes)
    distances = [model_distance(reply.state, mean, norm) for reply in replies]
    return torch.tensor(sizes, dtype=torch.float64), torch.tensor(distances, dtype=torch.float64)


def _mismatch(key: str, expected: str, found: str) -> ConfigError:
    remedy = "Compare models of one architecture only."
    return ConfigError(f"model_distance, tensor {key}", expected=expected, found=found, remedy=remedy)
