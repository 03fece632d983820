"""What a site counts for in a mean, before any limit: its steps, or images of some kind.

The limits are in :mod:`fedward.methods.weight_limits`.
"""

from typing import Protocol


class SiteWeight(Protocol):
    """Computes what a site counts for in a mean from what it reports of itself.

    It is asked only for sites that took at least one step.
    """

    def __call__(self, task: str, labelled: int, unlabelled: int, steps: int) -> int:
        """Return a whole number >= 0; with 0 the site does not count.

        Args:
            task: the task that the site was given.
            labelled: number of its labelled training images, >= 0.
            unlabelled: number of its unlabelled training images, >= 0.
            steps: optimiser steps that it took, >= 1; a batch that was measured counts as one.
        """
        ...


def steps_taken(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by its steps.

    With FedVC all sites take the same number of steps, so that all have the same weight.
    """
    return steps


def labelled_images(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by its images that have a label when it answers."""
    return labelled


def images_of_group(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by the images of its group: the labelled ones where it has any."""
    return labelled or unlabelled
