"""The server's mean of a round's replies: what each counts for, the limits, and the kind of mean.

What a site counts for is in :mod:`fedward.methods.site_weights`, the limits are in
:mod:`fedward.methods.weight_limits`, and the arithmetic is in :mod:`fedward.methods.averages`.
"""

from collections.abc import Sequence

from torch import Tensor

from fedward.methods.averages import LARGEST_TRIM, trimmed_mean, weighted_average
from fedward.methods.settings import Settings
from fedward.methods.site_weights import SiteWeight
from fedward.methods.weight_limits import WeightLimits
from fedward.methods.workflow import ClientUpdate
from fedward.model_state import State


def mean_of(
    updates: Sequence[ClientUpdate],
    task: str,
    weight: SiteWeight,
    settings: Settings,
    fallback: State,
    least: float,
) -> State:
    """Return the mean of the replies that took steps for a task.

    Args:
        updates: accepted replies, in any number.
        task: the task that the sites were given.
        weight: computes what a site counts for, before the limits.
        settings: the job's settings, which limit a site's share and may ask for a robust mean.
        fallback: the model to return where no reply has any weight.
        least: effective number of replies that the mean must be worth,
            :attr:`Federation.effective_replies`.

    Returns:
        A new model, which shares no memory with the replies; or ``fallback``, the very object.

    Raises ConfigError: fewer than ``least`` replies have a weight, although some have. The server
    discards a round with so few replies before it averages.
    """
    trained = [update for update in updates if update.trained]
    counts = [
        float(weight(task, update.labelled, update.unlabelled, update.steps)) for update in trained
    ]
    if not any(counts):
        return fallback
    limits = WeightLimits(settings.largest_share, least)
    return aggregate([update.state for update in trained], limits.limited_counts(counts), settings)


def aggregate(
    states: Sequence[State], weights: Sequence[float], settings: Settings
) -> dict[str, Tensor]:
    """Return the kind of mean that a job's settings ask for.

    If ``robust`` is ``no``, this is :func:`weighted_average`. Otherwise it is :func:`trimmed_mean`
    of the models whose weight is above 0, each of which counts once. Arguments and errors are those
    of these functions.
    """
    if settings.robust == "no":
        return weighted_average(states, weights)
    counted = [state for state, weight in zip(states, weights, strict=True) if weight > 0]
    trim = LARGEST_TRIM if settings.robust == "median" else settings.trim
    return trimmed_mean(counted, trim)
