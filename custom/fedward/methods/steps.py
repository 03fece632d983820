"""The pace of training: how many images and steps a phase of a site's round has.

The site and the server do the same arithmetic, so that the server can check what a site reports.
"""

from typing import NamedTuple

from fedward.methods.local import Uses
from fedward.methods.settings import Settings


class DrawnFrom(NamedTuple):
    """How many of a site's training images a phase draws from, by kind; 0 where it uses none."""

    labelled: int
    """Images that are seen with their labels."""
    unlabelled: int
    """Images that are seen without labels."""

    @classmethod
    def of(cls, uses: Uses, labelled: int, unlabelled: int) -> "DrawnFrom":
        """Return what a phase draws from at a site with so many labelled and unlabelled images."""
        without_labels = {"none": 0, "unlabelled": unlabelled, "all": labelled + unlabelled}
        return cls(labelled if uses.labelled else 0, without_labels[uses.unlabelled])


def phase_images(settings: Settings, uses: Uses, drawn_from: DrawnFrom) -> int:
    """Return how many images of each kind a phase takes at a site, repetitions included.

    ``images_per_round`` says it where the job has that setting. Otherwise the site passes
    ``local_epochs`` times through the images of the kind that sets the pace, and takes
    ``images_at_most`` at most. The kind is the more numerous one, or the labelled one where the
    objective says so. A phase without images of this kind takes none.
    """
    pacemakers = drawn_from.labelled if uses.pace == "labelled" else max(drawn_from)
    if not pacemakers:
        return 0
    if settings.images_per_round:
        return settings.images_per_round
    images = settings.local_epochs * pacemakers
    if settings.images_at_most:
        return min(images, settings.images_at_most)
    return images


def most_steps(uses: Uses, settings: Settings, labelled: int, unlabelled: int) -> int:
    """Return how many batches a phase has at a site with these numbers of training images."""
    images = phase_images(settings, uses, DrawnFrom.of(uses, labelled, unlabelled))
    return step_count(images, settings.batch)


def step_count(images: int, batch: int) -> int:
    """Return the number of batches into which :func:`batch_sizes` divides the images."""
    if not images:
        return 0
    return max(1, images // batch)


def batch_sizes(images: int, batch: int) -> list[int]:
    """Return the sizes of the batches of a phase.

    They add up to all images, differ by one at most, and none is smaller than ``batch`` where there
    are that many images. Images that do not fill a batch are spread over the others, the first ones
    first: a small batch of their own would be a step that tells much of few images.
    """
    steps = step_count(images, batch)
    if not steps:
        return []
    size, larger = divmod(images, steps)
    return [size + 1] * larger + [size] * (steps - larger)


def fewest_different(pool: int, images: int, batch: int) -> int:
    """Return how many different images each batch of a phase has at least, in whatever order.

    The batches are those of :func:`batch_sizes`, and their images those that
    :func:`~fedward.sites.sampling.virtual_client` draws. A batch across the end of a pass may hold
    an image twice: all images of its shorter part may be among those of the other.

    Args:
        pool: number of images that are drawn from, at least 1.
        images: as of :func:`batch_sizes`, at least 1.
        batch: likewise.

    Returns:
        A number from 1 to ``pool``, which some orders reach. O(pool) for any number of images.
    """
    steps = step_count(images, batch)
    size, larger = divmod(images, steps)
    fewest = pool
    for start, same_size, count in (
        (0, size + 1, larger),
        (larger * (size + 1), size, steps - larger),
    ):
        # After as many batches of one size as there are images, they begin at the same places.
        for number in range(min(count, pool)):
            left_of_pass = pool - (start + number * same_size) % pool
            in_this_pass = min(same_size, left_of_pass)
            in_the_next_one = min(same_size - in_this_pass, pool)
            fewest = min(fewest, max(in_this_pass, in_the_next_one))
    return fewest
