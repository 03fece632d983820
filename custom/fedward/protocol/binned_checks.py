"""The check of a site's counts of a model's answers: they obey the small-count rule, and they fit
together.
"""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.binned import INTERVALS, Binned
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.protocol.fields import refusal
from fedward.protocol.messages import BinnedCounts, Metric


def check_binned(
    where: str,
    sent: BinnedCounts,
    metrics: Sequence[Metric],
    classes: int,
    label_kind: LabelKind = ONE_LABEL,
) -> None:
    """Raise RefusedError unless counts are possible ones of the test images that the metrics are
    of.

    ``classes``: how many the job has.
    """
    _check_form(where, sent, classes)
    counts = Binned.read(sent.model_dump())
    most = max((row.n for row in metrics if row.split == "test"), default=0)
    if not label_kind.exclusive:
        _check_each(where, sent, counts, most)
        return
    total = counts.total
    wrong = counts.images - counts.found
    _require(where, total <= most, f"no more images than the {most} that metrics are of")
    for name in ("images", "scores", "sure"):
        _enough(f"{where}, {name}", getattr(counts, name))
    cells = [cell[2] for cell in sent.cells]
    _require(
        f"{where}, cells",
        min(cells, default=SMALLEST_COUNT) >= SMALLEST_COUNT,
        "five images or more",
    )
    fits = [
        ("found", (wrong >= 0).all()),
        ("mistaken", counts.mistaken.sum() == wrong.sum()),
        (
            "cells",
            (counts.cells.sum(axis=1) <= wrong).all()
            and (counts.cells.sum(axis=0) <= counts.mistaken).all(),
        ),
        ("scores", (counts.scores.sum(axis=1) == total).all()),
        (
            "inside",
            (counts.inside <= counts.scores).all()
            and (counts.inside.sum(axis=1) == counts.images).all(),
        ),
        ("sure", counts.sure.sum() == total),
        ("right", (counts.right <= counts.sure).all() and counts.right.sum() == counts.found.sum()),
    ]
    for name, holds in fits:
        _require(f"{where}, {name}", bool(holds), "counts that fit the others")
    _require(
        f"{where}, confidence",
        all(0 <= value <= 1.001 for value in sent.confidence),
        "numbers from 0 to 1",
    )


def _check_each(where: str, sent: BinnedCounts, counts: Binned, images: int) -> None:
    """Raise RefusedError unless each class is counted against its rest, on all of so many images or
    on none.
    """
    total = counts.scores.sum(axis=1)
    others = total - counts.images
    used = total > 0
    for name, sides in (("images", counts.images), ("others", others)):
        enough = (sides[used] >= SMALLEST_COUNT).all() and not sides[~used].any()
        _require(
            f"{where}, {name}",
            bool(enough),
            f"{SMALLEST_COUNT} images or more of each class that is counted",
        )
    _enough(f"{where}, scores", counts.scores)
    fits = [
        ("scores", (total[used] == images).all()),
        ("found", (counts.found <= counts.images).all()),
        ("mistaken", (counts.mistaken <= others).all()),
        (
            "inside",
            (counts.inside <= counts.scores).all()
            and (counts.inside.sum(axis=1) == counts.images).all(),
        ),
    ]
    for name, holds in fits:
        _require(f"{where}, {name}", bool(holds), "counts that fit the others")
    for name in ("cells", "sure", "right", "confidence"):
        _require(f"{where}, {name}", not any(getattr(sent, name)), "none in a multi-label job")


def _check_form(where: str, sent: BinnedCounts, classes: int) -> None:
    for name in ("images", "found", "mistaken", "scores", "inside"):
        _length(f"{where}, {name}", getattr(sent, name), classes)
    for name in ("scores", "inside"):
        for row in getattr(sent, name):
            _length(f"{where}, {name}", row, INTERVALS)
    for name in ("sure", "right", "confidence"):
        _length(f"{where}, {name}", getattr(sent, name), INTERVALS)
    pairs = [tuple(cell[:2]) for cell in sent.cells if len(cell) == 3]
    possible = all(max(pair) < classes and pair[0] != pair[1] for pair in pairs)
    expected = "two different classes of the job and their images, each pair once"
    _require(f"{where}, cells", possible and len(set(pairs)) == len(sent.cells), expected)


def _enough(where: str, counts: NDArray[np.int64]) -> None:
    _require(
        where,
        not ((counts > 0) & (counts < SMALLEST_COUNT)).any(),
        f"0, or {SMALLEST_COUNT} images or more",
    )


def _length(where: str, values: Sequence[object], length: int) -> None:
    _require(where, len(values) == length, f"{length} values")


def _require(where: str, holds: bool, expected: str) -> None:
    if not holds:
        _refuse(where, expected)


def _refuse(where: str, expected: str) -> NoReturn:
    raise refusal(where, expected, "others")
