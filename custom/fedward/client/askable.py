"""Which images of a site its annotators may be asked about.

An image must have no label and no question yet, and, if the method filters images, look like a
labelled one.
"""

from collections.abc import Callable, Collection, Sequence

from fedward.methods.abilities import LabelPurchases
from fedward.methods.fedal.out_of_distribution import LEAST_LABELLED, out_of_distribution
from fedward.methods.samplers.pool import Pool


def never_asked(
    pool: Sequence[str], labelled: Collection[str], asked: Collection[str]
) -> list[str]:
    """Return the images of a pool that have neither a label nor a question, in the pool's order.

    Args:
        pool: ids of the training images that have a label or may get one.
        labelled: ids of the images that have had a label from the start.
        asked: ids of the images that the run has asked about.
    """
    taken = {*labelled, *asked}
    return [name for name in pool if name not in taken]


def unfamiliar_images(
    method: LabelPurchases, labelled_images: int, look: Callable[[], Pool]
) -> dict[str, float]:
    """Return the images that look like no labelled one, and are not asked about.

    Args:
        method: says whether images are filtered at all.
        labelled_images: number of labelled images at the site.
        look: returns the features of the candidates; called only where images are filtered.

    Returns:
        What :func:`~fedward.methods.fedal.out_of_distribution.out_of_distribution` returns. Empty
        where the method does not filter, or the site has too few labelled images to compare with.
    """
    if not method.filters_unfamiliar_images or labelled_images < LEAST_LABELLED:
        return {}
    return out_of_distribution(look())
