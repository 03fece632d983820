"""A pool that is one npz file: in the MedMNIST layout, or images and labels without splits."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedward.errors import ConfigError, DataError, listed, reason_of
from fedward.lab.partition.pool import (
    Classes,
    Listing,
    Pool,
    Rows,
    check_groups,
    is_label,
    take_classes,
)
from fedward.label_kinds import kind_of_labels
from fedward.sites.data import Labels
from fedward.sites.image_list import GROUP_COLUMNS
from fedward.sites.npz import read_arrays

_UNNAMED = "The labels are numbers. --classes names them, in this order."
Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]


def read_npz(path: Path, classes: Sequence[str] = ()) -> Pool:
    """Read a file of arrays as a pool.

    It has ``train_images`` and ``train_labels``, perhaps ``val_...`` and ``test_...``, or just
    ``images`` and ``labels``. Other arrays of one value an image are columns (``source``, or
    ``train_source``); one of them may say what stays together (``groups``, ``patient``).
    ``label_names`` has the names of the labels, ``NAME_names`` those of the numbers in the column
    ``NAME``. Images whose label is called ``unlabelled`` have none. Labels (N, C) of 0 and 1 are
    those of a multi-label data set, and their names those of the columns.

    Args:
        path: of the file.
        classes: names of the labels in the order of their numbers, by default the numbers. Where
            the file has ``label_names``: those of the classes to use, in their order; images of
            others are left out.

    Raises:
        DataError: see :func:`fedward.sites.npz.read_arrays`; a group is in two splits.
        ConfigError: the classes are not as many as the labels, or see :func:`~.pool.take_classes`.
    """
    names, others = _others(path)
    prefixes = [""] if "images" in names and "train_images" not in names else ["train_"]
    prefixes += [
        start for start in ("val_", "test_") if f"{start}images" in names and prefixes != [""]
    ]
    parts = [read_arrays(path, [start], f"{path}, {start}images") for start in prefixes]
    labels, counts = (
        _together(path, [labels for _, labels in parts]),
        [len(labels) for _, labels in parts],
    )
    several = not kind_of_labels(labels).exclusive
    numbers = [*range(labels.shape[1])] if several else sorted(set(labels.tolist()))
    called = _names(path, numbers, others.get("label_names"), classes)
    chosen = (
        _of_columns(labels, called, classes) if several else _of_numbers(labels, called, classes)
    )
    columns = _columns(others, prefixes, counts)
    grouping = next(
        (columns[name] for name in GROUP_COLUMNS if name in columns), [""] * len(labels)
    )
    index = np.concatenate([np.arange(count) for count in counts])
    splits = [
        start[:-1] or "train"
        for start, count in zip(prefixes, counts, strict=True)
        for _ in range(count)
    ]
    groups = [
        group or f"{split}-{row}" for group, split, row in zip(grouping, splits, index, strict=True)
    ]
    check_groups(f"{path}", groups, splits)
    first = parts[0][0]
    kept = chosen.rows
    used = {
        number: name if name in chosen.classes else ""
        for number, name in called.items()
        if several or name in chosen.classes or not is_label(name)
    }
    return Pool(
        name=path.stem,
        classes=chosen.classes,
        labels=chosen.labels,
        groups=[groups[row] for row in kept],
        splits=[splits[row] for row in kept],
        side=min(first.shape[1:3]),
        channels=1 if first.ndim == 3 else first.shape[3],
        listing=partial(_listing, path, used, index[kept]),
        columns={name: [values[row] for row in kept] for name, values in columns.items()},
        grouped=any(grouping),
        notes=chosen.notes if classes or "label_names" in others else (*chosen.notes, _UNNAMED),
    )


def _together(path: Path, parts: Sequence[Labels]) -> Labels:
    """Return the labels of all splits; DataError where they are not of one kind."""
    kinds = {labels.shape[1:] for labels in parts}
    if len(kinds) > 1:
        found = ", ".join(map(str, kinds))
        remedy = "Use a file whose splits are labelled alike."
        raise DataError(
            f"{path}", expected="labels of one shape in all splits", found=found, remedy=remedy
        )
    return np.concatenate(parts)


def _of_numbers(labels: Labels, called: Mapping[int, str], classes: Sequence[str]) -> Classes:
    order = [name for name in called.values() if is_label(name)]
    return take_classes([called[number] for number in labels.tolist()], classes or order)


def _of_columns(labels: Labels, called: Mapping[int, str], classes: Sequence[str]) -> Classes:
    """Return the classes of labels (N, C), and those of their columns; all images are kept."""
    order = take_classes([*called.values()], classes or [*called.values()]).classes
    place = {name: number for number, name in called.items()}
    left = [name for name in called.values() if name not in order]
    notes = (
        (f"Findings that are left out: {', '.join(left)}. An image with these alone shows none.",)
        if left
        else ()
    )
    return Classes(
        order, labels[:, [place[name] for name in order]], list(range(len(labels))), notes
    )


def _others(path: Path) -> tuple[list[str], dict[str, npt.NDArray[Any]]]:
    """Return the names of all arrays, and the arrays that are neither images nor labels."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = list(arrays.files)
            return names, {
                name: arrays[name] for name in names if not name.endswith(("images", "labels"))
            }
    except Exception as error:  # as in read_arrays
        found = reason_of(error)
        remedy = "Fetch it again, or name another file."
        raise DataError(
            f"{path}", expected="an npz file of arrays", found=found, remedy=remedy
        ) from None


def _names(
    path: Path, numbers: Sequence[int], known: npt.NDArray[Any] | None, classes: Sequence[str]
) -> dict[int, str]:
    """Return number -> name of all labels."""
    if known is None:
        names = list(classes or map(str, numbers))
        if len(names) != len(numbers):
            expected = f"a name for each of the labels {', '.join(map(str, numbers))}"
            found = listed(names)
            raise ConfigError(
                "--classes", expected=expected, found=found, remedy="Name them in this order."
            )
        return dict(zip(numbers, names, strict=True))
    if not 0 <= min(numbers) <= max(numbers) < len(known):
        expected = f"labels from 0 to {len(known) - 1}, as label_names has them"
        found = f"{min(numbers)} to {max(numbers)}"
        remedy = "Complete label_names."
        raise DataError(f"{path}", expected=expected, found=found, remedy=remedy)
    return {number: str(known[number]) for number in numbers}


def _columns(
    others: Arrays, prefixes: Sequence[str], counts: Sequence[int]
) -> dict[str, list[str]]:
    """Return the columns by name, one text for each image; an empty one where a split has no such
    array.
    """
    found = {name[len(start) :] for start in prefixes for name in others if name.startswith(start)}
    columns = {}
    for name in sorted(found):
        parts = [others.get(f"{start}{name}", np.empty(0)) for start in prefixes]
        if not any(
            part.shape in ((count,), (count, 1)) for part, count in zip(parts, counts, strict=True)
        ):
            continue
        names = next(
            (
                others[f"{one}_names"]
                for one in (name, name.removesuffix("s"))
                if f"{one}_names" in others
            ),
            None,
        )
        columns[name] = [
            text
            for part, count in zip(parts, counts, strict=True)
            for text in (_texts(part.reshape(-1), names) if part.size == count else [""] * count)
        ]
    return columns


def _texts(values: npt.NDArray[Any], names: npt.NDArray[Any] | None) -> list[str]:
    if (
        names is not None
        and np.issubdtype(values.dtype, np.integer)
        and values.max(initial=0) < len(names)
    ):
        return [str(names[value]) for value in values]
    return list(map(str, values))


def _listing(
    path: Path, called: Mapping[int, str], index: Rows, _: str, mine: Mapping[str, Rows], out: Path
) -> Listing:
    content = {
        "kind": "npz",
        "file": str(path.resolve()),
        "labels": dict(called),
    }
    return Listing(
        content, {"indices": {split: index[rows].tolist() for split, rows in mine.items()}}
    )
