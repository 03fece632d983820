"""Makes a site's four sets of images from rows whose splits are known."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from fedward.errors import DataError
from fedward.labels import Labels, known, strata
from fedward.sites.data import SPLITS, Images, Row, SiteData
from fedward.sites.decoding import Pixels
from fedward.sites.split import labelled_share
from fedward.text import count


def divide(
    site: str,
    classes: Sequence[str],
    rows: Sequence[Row],
    pixels: Pixels,
    labelled: float | Collection[str],
    rng: np.random.Generator,
    by_patient: bool = False,
) -> SiteData:
    """Return the four sets of a site, hiding all but some of the training labels.

    Which labels are seen is drawn before rows without images are dropped, so that repairing one
    file moves no other image. A set whose images are next to each other stays a view of ``pixels``:
    val and test of a memmap are not read.

    Args:
        site: for messages.
        classes: of the job.
        rows: N rows, in the order of their images. A row of several images has one label, seen for
            all or for none.
        pixels: uint8 (M, H, W, C) of the rows' M images.
        labelled: share of training labels that are seen, as for
            :func:`~fedward.sites.split.labelled_share`, or the ids of the images whose labels are.
        rng: draws which labels are seen.
        by_patient: whether the images of a group are evaluated as one.

    Raises:
        DataError: no row has an image; a named image is not a training image with a label; or a
            group that is evaluated as one has several labels.
    """
    ids = [f"{row.sample_id}{part}" for row in rows for part in row.parts]
    if not ids:
        raise DataError(
            f"site {site}",
            "Check the site file.",
            expected="at least one usable image",
            found=f"none of {count(len(rows), 'row')}",
        )
    if len(set(ids)) < len(ids):
        raise DataError(
            f"site {site} has images whose ids look like those of frames of another image",
            "Rename ids that end in # and a number.",
        )
    split = np.array([SPLITS.index(row.split) for row in rows])
    labels = np.array([row.label for row in rows], np.int64)
    train = np.flatnonzero(split == 0)
    seen = np.zeros(len(split), np.bool_)
    if isinstance(labelled, float):
        seen[train] = labelled_share(strata(labels[train]), labelled, rng)
    else:
        train_ids = [rows[int(place)].sample_id for place in train]
        seen[train] = _named(site, train_ids, known(labels[train]), set(labelled))
    # From rows to images.
    row_of = np.repeat(np.arange(len(rows)), [len(row.parts) for row in rows])
    split = split[row_of]
    seen = seen[row_of]
    labels = labels[row_of]

    names_patients = any(len(row.parts) > 1 or row.group not in ("", row.sample_id) for row in rows)

    def owners(own_rows: Sequence[Row]) -> tuple[str, ...]:
        return tuple(row.group or row.sample_id for row in own_rows)

    def images(chosen: npt.NDArray[np.bool_], shown_labels: Labels) -> Images:
        places = np.flatnonzero(chosen)
        adjacent = len(places) and places[-1] - places[0] == len(places) - 1
        # A slice is a view; a list of places would copy the images into memory.
        own_pixels = pixels[places[0] : places[-1] + 1] if adjacent else pixels[places]
        own_rows = [rows[int(row_of[place])] for place in places]
        return Images(
            ids=tuple(ids[int(place)] for place in places),
            pixels=own_pixels,
            labels=shown_labels[places],
            groups=owners(own_rows) if by_patient else (),
            subgroups=tuple(row.subgroups for row in own_rows if row.subgroups),
            patients=owners(own_rows) if names_patients else (),
        )

    data = SiteData(
        site=site,
        classes=tuple(classes),
        labelled=images((split == 0) & seen, labels),
        unlabelled=images((split == 0) & ~seen, np.full_like(labels, -1)),
        val=images(split == 1, labels),
        test=images(split == 2, labels),
    )
    for part in (data.val, data.test):
        require_one_label(site, part)
    return data


def require_one_label(site: str, images: Images) -> None:
    """Refuse images of which a group that is evaluated as one has several labels.

    Raises:
        DataError: a group has several labels.
    """
    labels_by_group: dict[str, set[int]] = {}
    for group, label in zip(images.groups, images.labels, strict=False):
        labels_by_group.setdefault(group, set()).add(int(label))
    several = sorted(group for group, labels in labels_by_group.items() if len(labels) > 1)
    if several:
        raise DataError(
            f"site {site}",
            "Evaluate by image (data.evaluate_by=image), or name another column of groups, such as "
            "lesions.",
            expected="one label for each group, as the job evaluates by patient",
            found=f"{len(several)} with several, such as {several[0]!r:.80}",
        )


def _named(
    site: str, ids: Sequence[str], labelled: npt.NDArray[np.bool_], named: set[str]
) -> npt.NDArray[np.bool_]:
    """Return which training images are among the named ones; each of these must have a label."""
    labelled_ids = {name for name, has_label in zip(ids, labelled, strict=True) if has_label}
    unknown = sorted(named - labelled_ids)
    if unknown:
        raise DataError(
            f"site {site}, field labelled",
            "Take them out of the list, or give a share of the labels.",
            expected="ids of training images that have a label",
            found=f"{len(unknown)} others, such as {unknown[0]!r:.80}",
        )
    return np.array([name in named for name in ids], np.bool_)
