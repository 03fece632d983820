"""Which of a site's labelled images a model may be evaluated on, by the small-count rule."""

import numpy as np

from fedward.evaluation.patients import unit_labels
from fedward.evaluation.small_counts import common_classes
from fedward.sites.data import Images


def images_of_common_classes(images: Images) -> Images:
    """Return the labelled images of one split that the rule lets be evaluated.

    These are the images of classes with five images or more in the split; where patients are
    evaluated, with five patients or more. Where an image may show several classes it is never left
    out, as it may show common classes too.

    Returns:
        The argument itself if all of it may be evaluated, else a copy in the same order.
    """
    if images.labels.ndim == 2:
        return images
    _, labels = unit_labels(images)
    is_common = common_classes(labels, 0)
    keep = is_common[images.labels]
    return images if keep.all() else images.taken(np.flatnonzero(keep))
