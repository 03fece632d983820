"""SelfFed's rounds: pre-training without labels, then fine-tuning with them, and the mean that
knows who came often.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from fedward.errors import RunError
from fedward.methods.aggregation import (
    capped_counts,
    capped_weights,
    levelled_weights,
    weighted_average,
)
from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.fedavg import draw_participants, mean_of
from fedward.methods.local import Phase
from fedward.methods.requirements import (
    Feature,
    Requirements,
    Sends,
    ServerImages,
    ServerNeeds,
    TensorRules,
)
from fedward.methods.schedule import scheduled_rate
from fedward.methods.selffed.objectives import (
    QUEUE,
    TARGET,
    Contrastive,
    MaskedModelling,
    add_projection,
    reconstructions,
)
from fedward.methods.selffed.participation import gain_recession_weights
from fedward.methods.selffed.settings import SelfFedSettings
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import ClientTask, ClientUpdate, Exchange, Federation, Rounds, State
from fedward.seeds import torch_generator

PRETRAIN = "pretrain"
FINE_TUNE = "train"
CONTRAST = "contrast"
"""Tasks of a site in phase 1 and in phase 2, and of the server between two rounds of phase 2."""

_HEAD = "classifier."
_PARTS = ("encoder.", _HEAD, "mask_token", "decoder.", "projection.")
"""How the names of the network's tensors begin."""


@dataclass
class SelfFedState(ServerState):
    """The server's state between two rounds."""

    participations: dict[str, int] = field(default_factory=dict)
    """F: accepted contributions of each site in phase 2."""
    target: State = field(default_factory=dict)
    """Target network of the server's contrastive step; empty before the first."""
    queue: State = field(default_factory=dict)
    """Its queue, as ``{"keys": (Q, D), "images": (Q, 1)}``."""


def images_of_phase(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by all its images in phase 1, and by the labelled ones in phase 2: n_k of eq.
    (7).
    """
    return labelled + unlabelled if task == PRETRAIN else labelled


class SelfFed(Algorithm[SelfFedState]):
    """Federated masked pre-training, then fine-tuning with a contrastive network and gain-recession
    weights.

    Between two rounds of phase 2 the order is: average, contrast, send. What happens with fewer
    replies than asked for:

    - some sites fail: the mean is taken over those that replied; the others' F stays
    - none replies: the model stays, nothing is contrasted; three such rounds in a row end the run
    - a site without labels: takes part in phase 1; in phase 2 it declines, whatever it could
      contrast
    - late, second, broken reply: as FedAvg; it does not count in F

    Deviates: the classifier travels and is averaged with the encoder. Where sites "send only the
    encoder part" (Sec. III-E), ``upload = "encoder"``, metrics are those of the global encoder with
    each site's own classifier, as its last training left it. The decoder is averaged in phase 1, as
    in Fed-MAE. There is no contrastive step after the last
    round: no site would fit its classifier to it.
    """

    settings_type = SelfFedSettings
    state_type = SelfFedState

    def __init__(self, settings: SelfFedSettings) -> None:
        self.settings = settings
        self.weight = images_of_phase
        self.requirements = _requirements(settings)
        self.extend = add_projection
        if "pictures" in self.requirements.server.images:
            self.pictures = lambda net, images: reconstructions(
                net, images, settings.mask_ratio, torch_generator(0, "reconstructions")
            )

    def task(self, round_: int) -> str:
        """Return the task of the phase a round belongs to."""
        return PRETRAIN if round_ <= self.settings.pretraining_rounds else FINE_TUNE

    def rate(self, round_: int) -> float:
        """Return the learning rate of a round, by its phase's schedule, whoever takes part."""
        choice = self.settings
        before = self.settings.pretraining_rounds
        if round_ <= before:
            base = choice.pretraining_rate
            first = 0
            total = before
            warm_up = choice.pretraining_warm_up
        else:
            base = choice.learning_rate
            first = before
            total = choice.rounds - before
            warm_up = choice.warm_up
        return scheduled_rate(base, round_ - first - 0.5, total, warm_up, choice.schedule)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return the pretext's phase, or cross-entropy (after a contrastive phase where sites
        contrast).

        The contrast slows down with the cross-entropy, whose last small steps could not follow it
        otherwise.
        """
        if task == PRETRAIN:
            masked = self.settings.pretext == "masked"
            return [
                Phase(
                    (MaskedModelling if masked else Contrastive)(self.settings), self.rate(round_)
                )
            ]
        rate = self.rate(round_) * self.settings.contrastive_rate / self.settings.learning_rate
        contrast = Phase(Contrastive(self.settings), rate, (CONTRAST,))
        if task == CONTRAST:
            return [contrast]
        if not labelled:
            return []
        first = [contrast] if self.settings.contrastive == "client" else []
        return [*first, Phase(Supervised(), self.rate(round_))]

    def rounds(self, state: SelfFedState, federation: Federation) -> Rounds:
        """Khowaja et al., arXiv 2307.01514, Sec. III-C to III-E."""
        while state.round < self.settings.rounds:
            round_ = state.round + 1
            names = federation.sites
            sites = draw_participants(names, self.settings.participants, federation.seed, round_)
            task = self.task(round_)
            tasks = {site: ClientTask(task) for site in sites}
            updates = yield Exchange(round_, state.model, tasks, evaluate=task == FINE_TUNE)
            if task == PRETRAIN:
                least = federation.effective_replies
                state.model = mean_of(updates, task, self.weight, self.settings, state.model, least)
            elif trained := [update for update in updates if update.steps and update.labelled]:
                state.model = self.aggregate(state, trained, federation.effective_replies)
                if round_ < self.settings.rounds:
                    self.contrast(state, federation)
            if round_ == self.settings.pretraining_rounds and federation.show is not None:
                federation.show(state.model, {"round": round_, "hidden": self.settings.mask_ratio})
            if (
                round_ == self.settings.rounds != self.settings.pretraining_rounds
                and not state.participations
            ):
                where = f"round {round_}, sites {', '.join(names)}"
                remedy = "Give a site labels, or only pre-train."
                expected = (
                    "a site with labels that trained the classifier, in some round of phase 2"
                )
                raise RunError(where, expected=expected, found="none", remedy=remedy)
            state.round = round_

    def aggregate(
        self, state: SelfFedState, updates: Sequence[ClientUpdate], least: float
    ) -> State:
        """Return the mean of the replies by labelled images and participations, and count these.

        ``W = Σ_k w_k W_k`` with ``w_k`` of :func:`gain_recession_weights`, or, where updates are
        weighted, ``W <- W + Σ_k (n_k / n) β^F_k (W_k - W)``. The weights of the replies are capped
        and levelled by themselves: the part of ``W`` is known to all, and hides nobody's reply.
        """
        choice = self.settings
        models = [update.state for update in updates]
        counts = capped_counts([update.labelled for update in updates], choice.largest_share)
        taken_part = [state.participations.get(update.site, 0) for update in updates]
        state.participations |= {
            update.site: 1 + times for update, times in zip(updates, taken_part, strict=True)
        }
        sizes, times = torch.tensor([counts, taken_part], dtype=torch.float64)
        if choice.aggregation == "normalised":
            weights = gain_recession_weights(sizes, times, choice.beta)
            capped = capped_weights(weights, sizes, choice.largest_share)
            return weighted_average(models, levelled_weights(capped.tolist(), counts, least))
        shares = capped_weights(
            sizes / sizes.sum() * choice.beta**times, sizes, choice.largest_share
        )
        rest = max(1 - float(shares.sum()), 0.0)
        return weighted_average(
            [state.model, *models], [rest, *levelled_weights(shares.tolist(), counts, least)]
        )

    def contrast(self, state: SelfFedState, federation: Federation) -> None:
        """Train the model on the server's own images, where it is to."""
        if federation.learn is None:
            return
        memory: dict[str, State] = (
            {TARGET: state.target, QUEUE: state.queue} if state.target else {}
        )
        state.model = federation.learn(state.model, state.round + 1, CONTRAST, memory)
        state.target = memory[TARGET]
        state.queue = memory[QUEUE]


def _requirements(settings: SelfFedSettings) -> Requirements:
    masked = settings.pretext == "masked"
    own = settings.contrastive == "client"
    images = set[ServerImages]()
    if settings.contrastive == "server" and settings.pretraining_rounds < settings.rounds - 1:
        images.add("training")
    if masked and settings.pretraining_rounds:
        images.add("pictures")
    pretext = ("mask_token", "decoder.") if masked else ("projection.",)
    trained = {
        PRETRAIN: ("encoder.", *pretext),
        FINE_TUNE: ("encoder.", _HEAD, *(("projection.",) if own else ())),
    }
    whole_network = "pre-training is to change the encoder"
    unsupported = {
        Feature.ROBUST_MEAN: "it weights sites by their images and by how often each took part",
        Feature.TRAIN_HEAD: whole_network,
        Feature.TRAIN_LAST_BLOCKS: whole_network,
        Feature.TRAIN_ADAPTERS: whole_network,
        Feature.SEVERAL_PROCESSES: "selffed trains from features and predicted pixels",
    }
    if settings.beta < 1:
        unsupported[Feature.SECURE_AGGREGATION] = (
            "its weights depend on how often each site took part; beta=1 does without"
        )
    return Requirements(
        sends=Sends(frozenset({"loss_supervised", "loss_contrastive", "loss_reconstruction"})),
        server=ServerNeeds(images=frozenset(images)),
        tensors=TensorRules(
            private=(_HEAD,) if settings.upload == "encoder" else (),
            excluded={
                task: tuple(part for part in _PARTS if part not in parts)
                for task, parts in trained.items()
            },
            untrained=(_HEAD,) if settings.pretraining_rounds == settings.rounds else (),
        ),
        unsupported=unsupported,
    )
