"""Federated averaging, and the class weights every supervised loss here shares.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep networks from
decentralized data*, AISTATS 2017, Algorithm 1. Class weights: median-frequency balancing of Eigen and Fergus,
*Predicting depth, surface normals and semantic labels*, ICCV 2015, Sec. 6.3.2, as used per site by FedPerl
(Bdair, Navab, Albarqouni, MELBA 2022).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.aggregation import (
    aggregate,
    capped_counts,
    weighted_average,  # noqa: F401 - Algorithm 1's equation, for those who import it from its method
)
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs
from fedward.methods.settings import Settings
from fedward.methods.workflow import Ask, Federation, Reply, Rounds, State, Work
from fedward.seeds import numpy_generator

ABSENT_CLASS_WEIGHT = 100.0
"""Weight of a class that a site has no labelled image of."""
LARGEST_RATIO = 50.0
"""Of two classes' weights: one rare image shall not be nearly all of its batch's loss, and so of an update."""


def class_weights(counts: Tensor) -> Tensor:
    """Return median-frequency weights, so that rare classes count as much as common ones.

    ``w_c = median{n_j : n_j > 0} / max(n_c, max_j n_j / 50)``, and 100 where ``n_c = 0``.

    Source: Eigen and Fergus, ICCV 2015, Sec. 6.3.2; per site as in Bdair et al., MELBA 2022 (authors' code).

    Args:
        counts: (K,), labelled training images of each class at one site; any real dtype, finite, >= 0, K >= 1.

    Returns:
        (K,) float32 on the device of ``counts``, all > 0. The median of an even number of classes is the mean of the
        middle two. Multiplying all counts by one number changes nothing.

    Raises:
        ConfigError: not one-dimensional, no class, a count that is negative or not finite.

    Edge cases:
        ==================  ==========================================================
        equal counts        all 1
        one present class   1 for it, 100 for the others
        absent class        100; never used by a loss on that site's own labels
        no label at all     all 100
        ==================  ==========================================================

    Deviates: the equation divides by ``n_c`` itself. With 5000 images of one class and one of another it would give the
    one image 99.7 % of the loss of a batch of 16; here it is 77 % at most. Up to 1 : 50 nothing changes.
    """
    frequency = counts.to(torch.float32)
    if frequency.dim() != 1 or not len(frequency) or not bool(((frequency >= 0) & frequency.isfinite()).all()):
        raise ConfigError(
            "fedavg.class_weights",
            expected="one finite count >= 0 for each class",
            found=f"{counts.tolist()}",
            remedy="Count the labelled training images of the site by class.",
        )
    present = frequency > 0
    weights = torch.full_like(frequency, ABSENT_CLASS_WEIGHT)
    if bool(present.any()):
        # torch.median would return the lower of the two middle values.
        median, fewest = frequency[present].quantile(0.5), float(frequency.max()) / LARGEST_RATIO
        weights[present] = median / frequency[present].clamp_min(fewest)
    return weights


class Supervised(Objective):
    """Class-weighted cross-entropy on the labelled images, and nothing else."""

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs) -> Losses:
        """Return ``L_sup`` = CE_w(y, f(alpha(x))); Bdair et al., MELBA 2022, eq. (2), first term."""
        if batch.labelled is None or batch.labels is None:
            return Losses({})
        return Losses({"loss_supervised": supervised_loss(net, batch.labelled, batch.labels, inputs)})


def supervised_loss(net: nn.Module, images: Tensor, labels: Tensor, inputs: RoundInputs) -> Tensor:
    """Return the class-weighted cross-entropy of ``net`` on (B, C, H, W) images with (B,) labels."""
    return F.cross_entropy(net(images), labels, weight=inputs.class_weights)


def draw_participants(names: Sequence[str], count: int | None, seed: int, *purpose: str | int) -> list[str]:
    """Return ``count`` sites drawn uniformly without replacement, sorted; all if there are no more, or for None."""
    order = numpy_generator(seed, "participants", *purpose).permutation(len(names))
    return sorted(names[index] for index in order[:count])


@dataclass
class FedAvgState:
    """The server's state between two rounds."""

    round: int
    """Rounds finished."""
    model: State
    """The global model."""


class FedAvg:
    """Supervised federated averaging: the lower bound (few labels) and the upper bound (all labels).

    What happens with fewer replies than asked for:

    ==========================  =======================================================================
    some sites fail             the mean is taken over those that replied
    none replies                the model stays; three such rounds in a row end the run
    a site without labels       takes no step and is reported, its weight is 0, never 1
    late or second reply        not used: the first answer within the time stands
    NaN, wrong shape, missing   refused on arrival, with the site's name; counts as failed
    ==========================  =======================================================================
    """

    settings_type: type[Settings] = Settings
    state_type: type[FedAvgState] = FedAvgState
    wants_validation = False
    wants_own_images = False
    """Whether the server trains on images of its own, by :attr:`Federation.learn`."""
    wants_pictures = False
    """Whether a report is to show images of the server's own as a model sees them, by :attr:`Federation.show`."""
    most_peers = 0
    """Models besides the global one that a site is sent at most: ``peer0``, ``peer1`` and so on."""
    lone_peers = ""
    """The setting by which a site may be sent another site's own model; empty where it cannot be."""
    per_class: tuple[str, ...] = ()
    """First parts of the names of tensors that :meth:`extend` adds and that, as a classifier's, belong to classes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @staticmethod
    def weight(labelled: int, unlabelled: int, steps: int) -> int:
        """Return what a site that took steps weighs in the mean, by its counts alone: here its steps.

        Not its images: a site without labels would then weigh nothing, or as much as one with many.
        """
        return steps

    def mean(self, replies: Sequence[Reply], model: State) -> State:
        """Return the mean of the replies that took steps; ``model`` itself if none has any weight.

        By :meth:`weight` and as the settings say: see :mod:`fedward.methods.aggregation`. With FedVC all sites take
        equally many steps, so this is a plain mean.
        """
        trained = [reply for reply in replies if reply.steps]
        weights = [float(self.weight(reply.labelled, reply.unlabelled, reply.steps)) for reply in trained]
        if not any(weights):
            return model
        capped = capped_counts(weights, self.settings.largest_share)
        return aggregate([reply.state for reply in trained], capped, self.settings)

    @property
    def needs_weights(self) -> str:
        """Why no median can stand for this method's mean; empty where one can."""
        return ""

    @property
    def needs_single_models(self) -> str:
        """Why the mean of the sites' models by :meth:`weight` is not enough for the server; empty where it is."""
        return ""

    @property
    def exchanges(self) -> int:
        """How many exchanges a round has at most; sites refuse further ones."""
        return 1

    @property
    def needs_one_process(self) -> str:
        """Why several processes cannot share a site's training; empty where they can."""
        return ""

    @property
    def stays(self) -> tuple[str, ...]:
        """First parts of the names of tensors that a site trains and keeps for itself; none where all are sent."""
        return ()

    def withheld(self, task: str) -> tuple[str, ...]:
        """Return first parts of the names of tensors that do not go up after a task: the server has its own.

        What :attr:`stays`, and what the task does not train. Encrypted updates are added up: there, tasks that sites
        have in one exchange withhold the same.
        """
        return self.stays

    @property
    def untrained(self) -> tuple[str, ...]:
        """First parts of the names of tensors behind the logits that no round trains: such a model is not judged."""
        return ()

    def extend(self, net: nn.Module) -> None:
        """Add to a fresh network what the method trains besides it; here nothing."""

    def pictures(self, net: nn.Module, images: Tensor) -> dict[str, Tensor]:
        """Return what :attr:`Federation.show` keeps, by name: pictures (N, C, H, W) in [0, 1], here none.

        Args:
            net: in evaluation mode.
            images: (N, C, H, W) float32 in [0, 1], on the network's device.
        """
        return {}

    def objective(self) -> Objective:
        """Return the local objective."""
        return Supervised()

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return what a site does for a task in its round; nothing if the task is not for a site like it.

        Args:
            task: its name in the site's :class:`Work`.
            round_: from 1.
            labelled: number of labelled training images the site holds.
        """
        return [Phase(self.objective(), self.settings.learning_rate)]

    def task(self, round_: int) -> str:
        """Return what all participants of a round do."""
        return "train"

    def start(self, model: State) -> FedAvgState:
        """Return the state before the first round."""
        return self.state_type(0, model)

    def rounds(self, state: FedAvgState, federation: Federation) -> Rounds:
        """McMahan et al., Algorithm 1, with ``n`` of the sites a round."""
        while state.round < self.settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(federation.sites, self.settings.participants, federation.seed, round_)
            replies = yield Ask(round_, state.model, {site: Work(self.task(round_)) for site in sites})
            state.model = self.mean(replies, state.model)
            state.round = round_
