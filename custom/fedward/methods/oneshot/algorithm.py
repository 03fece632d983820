"""One-shot learning of a head: the sites measure their features once, and the server computes the
classifier.
"""

from collections.abc import Sequence

from pydantic import Field

from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.fedavg import draw_participants, mean_of
from fedward.methods.local import Phase
from fedward.methods.oneshot.discriminant import discriminant
from fedward.methods.oneshot.moments import NAME, Measured, add_moments, unpacked
from fedward.methods.requirements import Feature, Requirements, Sends
from fedward.methods.settings import AllImages, StepSize
from fedward.methods.workflow import ClientTask, Exchange, Federation, Rounds, State

_TASK = "measure"


class OneShotSettings(AllImages):
    """One round, to which every site brings all its labelled images; nothing is trained, so that no
    rate counts.
    """

    rounds: int = Field(1, ge=1, le=1)
    """Sums over the same images would be the same in every further round."""
    images_per_round: None = None
    """Of a drawn part of the images, rare classes might be a single one."""
    images_at_most: None = None
    """As ``images_per_round``."""
    shrinkage: float = Field(0.2, gt=0.0, le=1.0)
    """rho: how far the covariance within classes is moved towards a multiple of the identity.
    FedCGS: none.
    """

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """Return nothing: no optimiser steps."""
        return ()


def labelled_images(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by its labelled images: the mean of moments is then that of all images."""
    return labelled


class OneShot(Algorithm[ServerState]):
    """A linear classifier of a frozen encoder's features, in closed form from sums over the sites
    (FedCGS).

    It is the classifier of all images in one place, whatever site they are at, but for rounding in
    float32. What happens with fewer replies than asked for: as FedAvg, with the sums of those that
    replied.

    Deviates: FedCGS divides by the covariance of all images, class means included, and does not
    shrink it. Its second round, in which sites train models of their own, is left out.
    """

    settings_type = OneShotSettings
    state_type = ServerState

    def __init__(self, settings: OneShotSettings) -> None:
        self.settings = settings
        self.weight = labelled_images
        self.extend = add_moments
        head_alone = "it computes the head alone"
        self.requirements = Requirements(
            sends=Sends(class_totals=True),
            unsupported={
                Feature.ROBUST_MEAN: "its classifier is made of sums over all sites",
                Feature.FLOAT16_UPDATES: "its covariance is a difference of nearly equal sums",
                Feature.TRAIN_ALL: head_alone,
                Feature.TRAIN_LAST_BLOCKS: head_alone,
                Feature.TRAIN_ADAPTERS: head_alone,
            },
            plain_images=True,
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return the measurement; a site without labels declines."""
        return [Phase(Measured(), 0.0)] if labelled else []

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """Take the mean of the sites' moments, and make the classifier of it."""
        while state.round < self.settings.rounds:
            sites = draw_participants(
                federation.sites, self.settings.participants, federation.seed, 1
            )
            updates = yield Exchange(1, state.model, {site: ClientTask(_TASK) for site in sites})
            mean = mean_of(
                updates,
                _TASK,
                self.weight,
                self.settings,
                state.model,
                federation.effective_replies,
            )
            if mean is not state.model:
                state.model = self.with_head(state.model, mean)
            state.round = 1

    def with_head(self, model: State, moments: State) -> State:
        """Return ``model`` with the classifier by ``moments``, which do not go on: sites see the
        classifier alone.
        """
        shares, sums, products = (
            moments[f"{NAME}.{kind}"] for kind in ("shares", "sums", "products")
        )
        matrix = unpacked(products, sums.shape[1])
        head = dict(
            zip((2, 1), discriminant(shares, sums, matrix, self.settings.shrinkage), strict=True)
        )
        own = [
            name for name in model if not name.startswith(f"{NAME}.")
        ]  # weight (K, D) and bias (K,)
        return {**model, **{name: head[model[name].dim()].to(model[name].dtype) for name in own}}
