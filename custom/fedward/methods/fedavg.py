"""Federated averaging, and the class weights every supervised loss here shares.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep networks
from decentralized data*, AISTATS 2017, Algorithm 1. Eigen and Fergus: *Predicting depth, surface
normals and semantic labels*, ICCV 2015.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.aggregation import aggregate, capped_counts, levelled_weights
from fedward.methods.algorithm import Algorithm, Requirements, ServerState, Weight
from fedward.methods.local import Batch, Losses, Phase, RoundInputs, Stateless
from fedward.methods.schedule import rate_of_round
from fedward.methods.server_optimizer import advance
from fedward.methods.settings import Settings
from fedward.methods.workflow import ClientTask, ClientUpdate, Exchange, Federation, Rounds, State
from fedward.seeds import numpy_generator

ABSENT_CLASS_WEIGHT = 100.0
"""Weight of a class that a site has no labelled image of."""
LARGEST_RATIO = 50.0
"""Of two classes' weights: one rare image shall not be nearly all of its batch's loss, and so of an
update.
"""


def class_weights(counts: Tensor) -> Tensor:
    """Return median-frequency weights, so that rare classes count as much as common ones.

    ``w_c = median{n_j : n_j > 0} / max(n_c, max_j n_j / 50)``, and 100 where ``n_c = 0``.
    Source: Eigen and Fergus, ICCV 2015, Sec. 6.3.2; per site as in Bdair et al., MELBA 2022
    (authors' code).

    Args:
        counts: (K,), labelled training images of each class at one site; any real dtype, finite, >=
            0, K >= 1.

    Returns:
        (K,) float32 on the device of ``counts``, all > 0. The median of an even number of classes
        is the mean of the middle two.

    Raises ConfigError: not one-dimensional, no class, a count that is negative or not finite.

    Edge cases: equal counts: all 1. absent class: 100; never used by a loss on that site's own
    labels.

    Deviates: the equation divides by ``n_c`` itself, which would give one image among 5000 of
    another class 99.7 % of the loss of a batch of 16; here it is 77 % at most.
    """
    frequency = counts.to(torch.float32)
    if (
        frequency.dim() != 1
        or not len(frequency)
        or not bool(((frequency >= 0) & frequency.isfinite()).all())
    ):
        expected = "one finite count >= 0 for each class"
        remedy = "Count a site's labelled training images by class."
        raise ConfigError(
            "fedavg.class_weights", expected=expected, found=f"{counts.tolist()}", remedy=remedy
        )
    present = frequency > 0
    weights = torch.full_like(frequency, ABSENT_CLASS_WEIGHT)
    if bool(present.any()):
        # torch.median would return the lower of the two middle values.
        median = frequency[present].quantile(0.5)
        fewest = float(frequency.max()) / LARGEST_RATIO
        weights[present] = median / frequency[present].clamp_min(fewest)
    return weights


class Supervised(Stateless):
    """Cross-entropy on the labelled images, and nothing else."""

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        """Return ``L_sup`` = CE_w(y, f(alpha(x))); Bdair et al., MELBA 2022, eq. (2), first term."""
        if batch.labelled is None or batch.labels is None:
            return Losses({})
        return Losses(
            {"loss_supervised": supervised_loss(net, batch.labelled, batch.labels, inputs)}
        )


def supervised_loss(net: nn.Module, images: Tensor, labels: Tensor, inputs: RoundInputs) -> Tensor:
    """Return the cross-entropy of ``net`` on (B, C, H, W) images: class-weighted for labels (B,),
    for (B, K) binary.

    ``-(1 / B K) Σ_i Σ_c y_ic log σ(z_ic) + (1 - y_ic) log(1 - σ(z_ic))`` is the binary one of a
    multi-label job.
    """
    logits = inputs.seen_by_losses(net(images))
    if inputs.multi_label:
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    return F.cross_entropy(logits, labels, weight=inputs.class_weights)


def draw_participants(
    names: Sequence[str], count: int | None, seed: int, *purpose: str | int
) -> list[str]:
    """Return ``count`` sites drawn uniformly without replacement, sorted; all if there are no more,
    or for None.
    """
    order = numpy_generator(seed, "participants", *purpose).permutation(len(names))
    return sorted(names[index] for index in order[:count])


def steps_taken(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by its steps. With FedVC all take equally many, so that the mean is a plain
    one.
    """
    return steps


def mean_of(
    updates: Sequence[ClientUpdate],
    task: str,
    weight: Weight,
    settings: Settings,
    otherwise: State,
    least: float,
) -> State:
    """Return the mean by ``weight`` of the replies that took steps for a task; ``otherwise`` if
    none has any weight.

    ``least``: the effective number of replies that the mean must be worth,
    :attr:`Federation.effective_replies`.
    """
    trained = [update for update in updates if update.steps]
    weights = [
        float(weight(task, update.labelled, update.unlabelled, update.steps)) for update in trained
    ]
    if not any(weights):
        return otherwise
    counts = levelled_weights(capped_counts(weights, settings.largest_share), weights, least)
    return aggregate([update.state for update in trained], counts, settings)


def federated_averaging(
    state: ServerState,
    federation: Federation,
    settings: Settings,
    weight: Weight,
    task: str = "train",
) -> Rounds:
    """McMahan et al., Algorithm 1, with ``n`` of the sites a round."""
    while state.round < settings.rounds:
        round_ = state.round + 1
        sites = draw_participants(federation.sites, settings.participants, federation.seed, round_)
        updates = yield Exchange(round_, state.model, {site: ClientTask(task) for site in sites})
        mean = mean_of(updates, task, weight, settings, state.model, federation.effective_replies)
        advance(state, mean, settings, federation.parameters)
        state.round = round_


class FedAvg(Algorithm[ServerState]):
    """Supervised federated averaging: the lower bound (few labels) and the upper bound (all
    labels).

    What happens with fewer replies than asked for:

    - some sites fail: the mean is taken over those that replied
    - none replies: the model stays; three such rounds in a row end the run
    - a site without labels: takes no step and is reported, its weight is 0, never 1
    - late or second reply: not used: the first answer within the time stands
    - NaN, wrong shape, missing: refused on arrival, with the site's name; counts as failed
    """

    settings_type = Settings
    state_type = ServerState

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.weight = steps_taken
        losses = frozenset({"loss_supervised"})
        self.requirements = Requirements(
            losses, server_optimizer=True, one_label=settings.one_label
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return cross-entropy."""
        return [
            Phase(Supervised(), rate_of_round(self.settings.learning_rate, round_, self.settings))
        ]

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """McMahan et al., Algorithm 1."""
        return federated_averaging(state, federation, self.settings, self.weight)
