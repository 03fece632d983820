"""SelfFed's rounds: pre-training without labels, then fine-tuning with labels.

Khowaja et al., arXiv 2307.01514, Sec. III-C to III-E.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedward.errors import RunError
from fedward.methods.aggregation import mean_of
from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.averages import weighted_average
from fedward.methods.local import Phase
from fedward.methods.participants import draw_participants
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
from fedward.methods.weight_limits import WeightLimits, capped_counts
from fedward.methods.workflow import (
    TRAIN,
    ClientTask,
    ClientUpdate,
    Exchange,
    Federation,
    Rounds,
)
from fedward.model_state import State
from fedward.seeds import torch_generator

PRETRAIN = "pretrain"
"""Task of a site in phase 1."""
FINE_TUNE = TRAIN
"""Task of a site in phase 2."""
CONTRAST = "contrast"
"""Task of the server between two rounds of phase 2. Its name also sets apart the random draws of a
contrastive phase.
"""

_HEAD = "classifier."
_PARTS = ("encoder.", _HEAD, "mask_token", "decoder.", "projection.")
"""Prefixes of the names of the network's tensors, one for each of its parts."""


@dataclass
class SelfFedState(ServerState):
    """The server's state between two rounds."""

    participations: dict[str, int] = field(default_factory=dict)
    """F: accepted contributions of each site in phase 2."""
    target: State = field(default_factory=dict)
    """Target network of the server's contrastive step; empty before the first step."""
    queue: State = field(default_factory=dict)
    """Queue of that step, ``{"keys": (Q, D), "images": (Q, 1)}``; empty before the first step."""


def images_of_phase(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by all images in phase 1, by labelled ones in phase 2: n_k of eq. (7)."""
    return labelled + unlabelled if task == PRETRAIN else labelled


class SelfFed(Algorithm[SelfFedState]):
    """Federated masked pre-training, then fine-tuning beside a contrastive network.

    Between two rounds of phase 2 the order is: average, contrast, send. What happens with fewer
    replies than asked for:

    - some sites fail: the mean is taken over those that replied; F of the other sites stays
    - none replies: the model stays, nothing is contrasted; three such rounds in a row end the run
    - a site without labels: takes part in phase 1; in phase 2 it declines, whatever it could
      contrast
    - a late, second or broken reply: as in FedAvg; it does not count in F

    Deviates: the classifier travels and is averaged with the encoder. Where sites "send only the
    encoder part" (Sec. III-E), ``upload = "encoder"``, metrics are those of the global encoder with
    each site's own classifier, as its last training left it. The decoder is averaged in phase 1, as
    in Fed-MAE. There is no contrastive step after the last round, because no site would fit its
    classifier to it.
    """

    settings_type = SelfFedSettings
    state_type = SelfFedState

    def __init__(self, settings: SelfFedSettings) -> None:
        self.settings = settings
        self.weight = images_of_phase
        self.requirements = _requirements(settings)
        self.extend = add_projection
        if "pictures" in self.requirements.server.images:
            self.pictures = self._pictures

    def task(self, round_: int) -> str:
        """Return the task of the phase that a round belongs to."""
        return PRETRAIN if round_ <= self.settings.pretraining_rounds else FINE_TUNE

    def rate(self, round_: int) -> float:
        """Return the learning rate of a round by its phase's schedule, whoever takes part."""
        settings = self.settings
        if self.task(round_) == PRETRAIN:
            largest = settings.pretraining_rate
            rounds_before = 0
            rounds = settings.pretraining_rounds
            warm_up = settings.pretraining_warm_up
        else:
            largest = settings.learning_rate
            rounds_before = settings.pretraining_rounds
            rounds = settings.rounds - settings.pretraining_rounds
            warm_up = settings.warm_up
        # The middle of the round stands for all of it.
        position = round_ - rounds_before - 0.5
        return scheduled_rate(largest, position, rounds, warm_up, settings.schedule)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return the pretext in phase 1, and cross-entropy in phase 2.

        If sites contrast, a contrastive phase comes before the cross-entropy. Its rate falls with
        that of the cross-entropy: the small last steps of the cross-entropy could not follow an
        encoder that contrast still moves fast.
        """
        settings = self.settings
        rate = self.rate(round_)
        if task == PRETRAIN:
            if settings.pretext == "masked":
                return [Phase(MaskedModelling(settings), rate)]
            return [Phase(Contrastive(settings), rate)]
        contrastive_rate = rate * settings.contrastive_rate / settings.learning_rate
        contrast = Phase(Contrastive(settings), contrastive_rate, (CONTRAST,))
        if task == CONTRAST:
            return [contrast]
        if not labelled:
            return []
        fine_tuning = Phase(Supervised(), rate)
        if settings.contrastive == "client":
            return [contrast, fine_tuning]
        return [fine_tuning]

    def rounds(self, state: SelfFedState, federation: Federation) -> Rounds:
        """Ask the drawn sites to pre-train, then to fine-tune, and average their replies.

        Source: Khowaja et al., arXiv 2307.01514, Sec. III-C to III-E.
        """
        settings = self.settings
        while state.round < settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(
                federation.sites, settings.participants, federation.seed, round_
            )
            task = self.task(round_)
            tasks = {site: ClientTask(task) for site in sites}
            # Until a site has fine-tuned, no round of a run that pre-trains trained the classifier.
            evaluate = not settings.pretraining_rounds or bool(state.participations)
            updates = yield Exchange(round_, state.model, tasks, evaluate=evaluate)
            if task == PRETRAIN:
                state.model = mean_of(
                    updates, task, self.weight, settings, state.model, federation.effective_replies
                )
            else:
                self._fine_tuned(state, updates, round_, federation)
            if round_ == settings.pretraining_rounds and federation.show is not None:
                federation.show(state.model, {"round": round_, "hidden": settings.mask_ratio})
            if round_ == settings.rounds:
                self._require_trained_classifier(state, federation)
            state.round = round_

    def _fine_tuned(
        self,
        state: SelfFedState,
        updates: Sequence[ClientUpdate],
        round_: int,
        federation: Federation,
    ) -> None:
        """Average the replies of a round of phase 2; contrast the mean before the next round."""
        trained = [update for update in updates if update.trained and update.labelled]
        if not trained:
            return
        state.model = self.aggregate(state, trained, federation.effective_replies)
        if round_ < self.settings.rounds:
            self.contrast(state, federation)

    def _require_trained_classifier(self, state: SelfFedState, federation: Federation) -> None:
        """Raise RunError if the run was to fine-tune and no site has trained the classifier."""
        only_pretrains = self.settings.rounds == self.settings.pretraining_rounds
        if only_pretrains or state.participations:
            return
        raise RunError(
            f"round {self.settings.rounds}, sites {', '.join(federation.sites)}",
            "Give a site labels (`labelled` in its site file), let more sites take part in a round "
            "(participants), or only pre-train.",
            expected="a site with labels that trained the classifier, in some round of phase 2",
            found="none",
        )

    def aggregate(
        self, state: SelfFedState, updates: Sequence[ClientUpdate], least: float
    ) -> State:
        """Return the mean of the replies by labelled images and participations, and count these.

        ``W = Σ_k w_k W_k`` with ``w_k`` of :func:`gain_recession_weights`; or, where updates are
        weighted, ``W <- W + Σ_k (n_k / n) β^F_k (W_k - W)``. In the latter the limits are those
        of the replies' weights among themselves: the part of ``W`` is known to all sites, and hides
        no reply. Once the replies have come so often that their weights do not change a sum with 1
        in double precision, ``W`` itself is returned.

        Args:
            state: the server's; participations are counted in it.
            updates: replies of sites that have labels and took steps, at least one.
            least: the effective number of replies that the mean must be worth.
        """
        settings = self.settings
        models = [update.state for update in updates]
        counts = capped_counts([update.labelled for update in updates], settings.largest_share)
        participations = [state.participations.get(update.site, 0) for update in updates]
        for update, times in zip(updates, participations, strict=True):
            state.participations[update.site] = times + 1
        n = torch.tensor(counts, dtype=torch.float64)  # (K,)
        f = torch.tensor(participations, dtype=torch.float64)  # (K,)
        limits = WeightLimits(settings.largest_share, least)
        if settings.aggregation == "normalised":
            weights = gain_recession_weights(n, f, settings.beta)
            return weighted_average(models, limits.limited_weights(weights, n))
        shares = n / n.sum() * settings.beta**f
        # The limits keep the sum of the shares, so that this share does not depend on them.
        share_of_the_model = max(1 - float(shares.sum()), 0.0)
        if share_of_the_model == 1:
            return state.model
        limited_shares = limits.limited_weights(shares, n)
        return weighted_average([state.model, *models], [share_of_the_model, *limited_shares])

    def contrast(self, state: SelfFedState, federation: Federation) -> None:
        """Train the model on the server's own images, where the method uses them."""
        if federation.learn is None:
            return
        memory: dict[str, State] = {}
        if state.target:
            memory = {TARGET: state.target, QUEUE: state.queue}
        state.model = federation.learn(state.model, state.round + 1, CONTRAST, memory)
        state.target = memory[TARGET]
        state.queue = memory[QUEUE]

    def _pictures(self, net: nn.Module, images: Tensor) -> Mapping[str, Tensor]:
        """Return the reconstructions of the server's images; the masks are equal in all runs."""
        generator = torch_generator(0, "reconstructions")
        return reconstructions(net, images, self.settings, generator)


def _requirements(settings: SelfFedSettings) -> Requirements:
    masked = settings.pretext == "masked"
    images = set[ServerImages]()
    if settings.contrastive == "server" and settings.pretraining_rounds < settings.rounds - 1:
        images.add("training")
    if masked and settings.pretraining_rounds:
        images.add("pictures")

    trained_in_phase_1 = {"encoder."}
    if masked:
        trained_in_phase_1 |= {"mask_token", "decoder."}
    else:
        trained_in_phase_1 |= {"projection."}
    trained_in_phase_2 = {"encoder.", _HEAD}
    if settings.contrastive == "client":
        trained_in_phase_2 |= {"projection."}
    excluded = {
        PRETRAIN: tuple(part for part in _PARTS if part not in trained_in_phase_1),
        FINE_TUNE: tuple(part for part in _PARTS if part not in trained_in_phase_2),
    }

    whole_network = "pre-training is to change the encoder"
    reasons_against = {
        Feature.ROBUST_MEAN: "it weights sites by their images and by how often each took part",
        Feature.TRAIN_HEAD: whole_network,
        Feature.TRAIN_LAST_BLOCKS: whole_network,
        Feature.TRAIN_ADAPTERS: whole_network,
        Feature.SEVERAL_PROCESSES: "selffed trains from features and predicted pixels",
    }
    if settings.upload == "encoder":
        reasons_against[Feature.MOVING_AVERAGE] = (
            "with upload=encoder the classifiers stay at their sites, so that no average has one"
        )
    if settings.beta < 1:
        reasons_against[Feature.SECURE_AGGREGATION] = (
            "its weights depend on how often each site took part; beta=1 does without"
        )
    return Requirements(
        tasks=frozenset({PRETRAIN, FINE_TUNE}),
        sends=Sends(frozenset({"loss_supervised", "loss_contrastive", "loss_reconstruction"})),
        server=ServerNeeds(images=frozenset(images)),
        tensors=TensorRules(
            private=(_HEAD,) if settings.upload == "encoder" else (),
            excluded=excluded,
            untrained=(_HEAD,) if settings.pretraining_rounds == settings.rounds else (),
        ),
        reasons_against=reasons_against,
    )
