"""Which of a site's labelled images a model may be evaluated on, by the small-count rule."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.small_counts import common_classes
from fedward.labels import Labels
from fedward.sites.data import Images

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind


def images_of_common_classes(images: Images) -> Images:
    """Return the labelled images of one split that the rule lets be evaluated.

    These are the images of classes with five images or more in the split; where patients are
    evaluated, with images of five patients or more. Where an image may show several classes it is
    never left out, as it may show common classes too.

    Returns:
        The argument itself if all of it may be evaluated, else a copy in the same order.
    """
    if images.labels.ndim == 2:
        return images
    labels = images.labels
    if images.groups:
        # Training images of one patient may be of several classes.
        classes_of_patients = set(zip(images.groups, labels.tolist(), strict=True))
        labels = np.array([label for _, label in classes_of_patients], np.int64)
    is_common = common_classes(labels, 0)
    keep = is_common[images.labels]
    return images if keep.all() else images.taken(np.flatnonzero(keep))


def fewest_measured(label_kind: "LabelKind") -> int:
    """Return how many classes a run must measure for its numbers to say something.

    With one label an image these are two, because a model that always answers the only one would be
    right. Of several labels each is measured against the images that do not show it.
    """
    return 2 if label_kind.exclusive else 1


def measured_classes(
    labels: Labels, groups: Sequence[str], classes: int, label_kind: "LabelKind"
) -> NDArray[np.bool_]:
    """Return of which classes (K,) a split of a site's images gives numbers.

    Args:
        labels: of the N images that have one, (N,) or (N, K).
        groups: of N images what is evaluated as one; empty where each image is.
        classes: K.
        label_kind: what an image may show.
    """
    names = tuple(str(place) for place in range(len(labels)))
    without_pixels = np.zeros((len(labels), 0, 0, 0), np.uint8)
    images = Images(names, without_pixels, labels, tuple(groups))
    evaluated = images_of_common_classes(images)
    return label_kind.evaluated_classes(evaluated.labels, classes)
