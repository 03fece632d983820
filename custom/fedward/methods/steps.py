"""How many images and steps a phase of a site's round has: the same arithmetic at the site and at
the server.
"""

from collections.abc import Sequence

from fedward.methods.local import Uses
from fedward.methods.settings import Settings


def phase_images(settings: Settings, sizes: Sequence[int]) -> int:
    """Return how many images of each kind a phase takes from a site with so many."""
    if not sizes:
        return 0
    passed = settings.local_epochs * max(sizes)
    return settings.images_per_round or min(passed, settings.images_at_most or passed)


def most_steps(uses: Uses, settings: Settings, labelled: int, unlabelled: int) -> int:
    """Return how many batches a phase has at a site with so many images."""
    kinds = {"none": 0, "unlabelled": unlabelled, "all": labelled + unlabelled}
    sizes = [
        labelled if uses.labelled else 0,
        *([] if uses.pace == "labelled" else [kinds[uses.unlabelled]]),
    ]
    return step_count(phase_images(settings, [size for size in sizes if size]), settings.batch)


def step_count(images: int, batch: int) -> int:
    """Return the length of :func:`batch_sizes`."""
    return max(1, images // batch) if images else 0


def batch_sizes(images: int, batch: int) -> list[int]:
    """Return the batches' sizes, which add up to all images, none smaller than ``batch`` where
    there are that many.

    What is left over from whole batches is spread over them, from the first on: a batch of its own
    would be a step on few images, which a site's update would then tell much of. Sizes differ by
    one at most.
    """
    steps = step_count(images, batch)
    if not steps:
        return []
    each, more = divmod(images, steps)
    return [each + 1] * more + [each] * (steps - more)
