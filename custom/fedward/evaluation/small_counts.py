"""The small-count rule: what a site reports about its validation and test images holds nothing of
rare classes.

The rule: in each split, an image whose class has fewer than five images there is never evaluated.
No model sees it, no metric counts it, and ``n`` does not include it. A rare class is reported like
a class that the site does not have.

Why this protects: everything that is reported about a split is computed from the other images
alone. It is therefore the same for 0, 1, 2, 3 and 4 images of each rare class, whatever models a
server sends and in how many rounds.

Not protected: that a class has fewer than five images; where splits are drawn, that a patient of
several classes goes to one split with all images; whether a site refuses a job that leaves its
classes out; and what the training images tell by their number and by updates, which noise limits
(docs/privacy.md). From it and a site's shares the number of test images may be estimated.

In a multi-label job an image is not left out, as it may show other classes too. A class that fewer
than five images of a split show, or fewer than five do not, is left out of all numbers there
(:mod:`fedward.evaluation.multi_label`): they are the same whatever the images show of it.

Labelled training images follow the same rule where a method sends sums of each class by itself
(``common_classes`` of its requirements): those of a rare class are never used, nor counted.

Where a job evaluates by patient, all of this counts patients in place of images.

Images that belong to nobody, synthetic ones and public ones at the server, are evaluated in full.
Only the per-class numbers of rare classes are left out there.
"""

from collections.abc import Mapping
from typing import Any

SMALLEST_COUNT = 5
"""Images of a class that a split needs for the class to be evaluated and reported."""


def withhold_small_counts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return metric rows without the numbers of classes that have fewer than five images in the
    row's split.

    Their values are None, whether the class is rare or absent, and no row names them among the
    classes present.
    """
    counts = {_place(row): row["value"] for row in rows if row["name"].startswith("support/")}
    rare = {place for place, count in counts.items() if count is None or count < SMALLEST_COUNT}
    return [_without(rare, row) for row in rows]


def _without(rare: set[tuple[str, str]], row: Mapping[str, Any]) -> dict[str, Any]:
    classes = [name for name in row["classes"] if (row["split"], name) not in rare]
    return {**row, "value": None if _place(row) in rare else row["value"], "classes": classes}


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return a row's split and class."""
    return row["split"], row["name"].partition("/")[2]
