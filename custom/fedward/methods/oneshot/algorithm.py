"""One-shot learning: sites measure their features once, and the server computes the classifier."""

from collections.abc import Sequence

from pydantic import Field
from torch import Tensor

from fedward.methods.aggregation import mean_of
from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.local import Phase
from fedward.methods.oneshot.discriminant import chosen_shrinkage, discriminant
from fedward.methods.oneshot.moments import NAME, MeasuredMoments, add_moments, unpacked
from fedward.methods.participants import draw_participants
from fedward.methods.requirements import Feature, Requirements, Sends, TensorRules
from fedward.methods.settings import AllImages, StepSize
from fedward.methods.site_weights import labelled_images
from fedward.methods.workflow import ClientTask, Exchange, Federation, Rounds
from fedward.model_state import State

MEASURE = "measure"
"""Task of a site: to send the sums over its labelled images."""


class OneShotSettings(AllImages):
    """Settings of one round, to which every site brings all its labelled images.

    Nothing is trained, so learning rates have no effect.
    """

    rounds: int = Field(1, ge=1, le=1)
    """Always 1: further rounds would send the same sums over the same images."""
    images_per_round: None = None
    """Always None: of a drawn part of the images, a rare class might be a single one."""
    images_at_most: None = None
    """Always None, as ``images_per_round``."""
    shrinkage: float | None = Field(None, gt=0.0, le=1.0)
    """ρ: how far the covariance within classes is moved towards a multiple of the identity.

    None: chosen from the sums, by generalised cross-validation. FedCGS: not at all."""

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """Nothing, because no optimiser steps."""
        return ()


class OneShot(Algorithm[ServerState]):
    """A linear classifier of a frozen encoder's features, in closed form (FedCGS).

    It is the classifier of all images in one place, whichever site they are at, up to rounding in
    float32, unless ``largest_share`` lowers the weight of a site. What happens with fewer replies
    than asked for is as in FedAvg, with the sums of the sites that replied.

    Deviates: FedCGS divides by the covariance of all images, class means included, and does not
    shrink it. Its second round, in which sites train models of their own, is left out.
    """

    settings_type = OneShotSettings
    state_type = ServerState

    def __init__(self, settings: OneShotSettings) -> None:
        self.settings = settings
        # With these weights the mean of the sites' moments is that of all their images.
        self.weight = labelled_images
        self.extend = add_moments
        head_alone = "it computes the head alone"
        self.requirements = Requirements(
            tasks=frozenset({MEASURE}),
            sends=Sends(class_totals=True, records=frozenset({"heads"})),
            tensors=TensorRules(moments=NAME),
            reasons_against={
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
        return [Phase(MeasuredMoments(), 0.0)] if labelled else []

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """Take the mean of the sites' moments, and compute the classifier from it."""
        settings = self.settings
        while state.round < settings.rounds:
            sites = draw_participants(federation.sites, settings.participants, federation.seed, 1)
            tasks = {site: ClientTask(MEASURE) for site in sites}
            updates = yield Exchange(1, state.model, tasks)
            mean = mean_of(
                updates, MEASURE, self.weight, settings, state.model, federation.effective_replies
            )
            # Without an answer the mean is the model itself.
            if mean is not state.model:
                images = sum(update.labelled for update in updates if update.trained)
                shrinkage = self.shrinkage(mean, images)
                state.model = self.with_head(state.model, mean, shrinkage)
                absent = (mean[f"{NAME}.shares"] <= 0).nonzero().flatten().tolist()
                head = {"round": 1, "images": images, "shrinkage": shrinkage, "absent": absent}
                federation.record("heads", head)
            state.round = 1

    def shrinkage(self, moments: State, images: int) -> float:
        """Return the shrinkage of the settings, or the one chosen from the images' moments."""
        if self.settings.shrinkage is not None:
            return self.settings.shrinkage
        return chosen_shrinkage(*_statistics(moments), images)

    def with_head(self, model: State, moments: State, shrinkage: float) -> State:
        """Return ``model`` with the classifier that the moments give.

        The model's own moments stay those of standard features, so that a site which gets the model
        sees the classifier alone.
        """
        weight, bias = discriminant(*_statistics(moments), shrinkage)
        updated = dict(model)
        for name, tensor in model.items():
            if name.startswith(f"{NAME}."):
                continue
            # All other tensors of the model are the classifier's weight (K, D) and bias (K,).
            computed = weight if tensor.dim() == 2 else bias
            updated[name] = computed.to(tensor.dtype)
        return updated


def _statistics(moments: State) -> tuple[Tensor, Tensor, Tensor]:
    """Return shares (K,), sums (K, D) and products (D, D) of a model's moments."""
    sums = moments[f"{NAME}.sums"]
    products = unpacked(moments[f"{NAME}.products"], sums.shape[1])
    return moments[f"{NAME}.shares"], sums, products
