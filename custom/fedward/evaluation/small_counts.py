"""The small-count rule: what a site reports about its validation and test images holds nothing of rare classes.

The rule: in each split, an image whose class has fewer than five images there is never evaluated. No model sees it, no
metric counts it, and ``n`` does not include it. A rare class is reported like a class that the site does not have.

Why this protects: everything that is reported about a split is computed from the other images alone. It is therefore
the same for 0, 1, 2, 3 and 4 images of each rare class, whatever models a server sends and in how many rounds. Metrics
on the other images are exact.

Not protected: that a class has fewer than five images. What the training images tell: their number is reported, and an
update depends on the labels it was trained with. A reader who knows how many images of a rare class a site trains on,
and that the site divides its images by shares, can estimate how many of them it tests on. Noise on updates
(docs/privacy.md) is what limits that.

Images that belong to nobody need none of this: the synthetic data, and public images at the server, are evaluated in
full. Only the per-class numbers of rare classes are left out there.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedward.sites.data import Images

SMALLEST_COUNT = 5
"""Images of a class that a split needs for the class to be evaluated and reported."""


def reportable(images: Images) -> Images:
    """Return the images of one split that may be evaluated: those of classes with at least five images in it.

    Args:
        images: all labelled.

    Returns:
        The images themselves where every class has enough; else a copy without the others, in their order.
    """
    enough = np.bincount(images.labels) >= SMALLEST_COUNT
    keep = enough[images.labels]
    if keep.all():
        return images
    ids = tuple(name for name, kept in zip(images.ids, keep, strict=True) if kept)
    return Images(ids, images.pixels[keep], images.labels[keep])


def withhold_small_counts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return metric rows without the numbers of classes that have fewer than five images in the row's split.

    Their values are None, whether the class is rare or absent, and no row names them among the classes present.
    """
    counts = {(row["split"], _class_of(row)): row["value"] for row in rows if row["name"].startswith("support/")}
    rare = {place for place, count in counts.items() if count < SMALLEST_COUNT}
    return [_without(rare, row) for row in rows]


def _without(rare: set[tuple[str, str]], row: Mapping[str, Any]) -> dict[str, Any]:
    value = None if (row["split"], _class_of(row)) in rare else row["value"]
    return {**row, "value": value, "classes": [name for name in row["classes"] if (row["split"], name) not in rare]}


def _class_of(row: Mapping[str, Any]) -> str:
    return str(row["name"].partition("/")[2])
