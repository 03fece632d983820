"""Columns of an npz file: arrays with a value for each image, such as its patient or hospital."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedward.errors import DataError
from fedward.lab.row_groups import filled
from fedward.sites.any_csv import columns_of_groups, is_of_groups, plain_name
from fedward.sites.patient_names import patient_names
from fedward.sites.stored_images import (
    StoredArray,
    array_names,
    read_column,
    refusing_broken_bytes,
)
from fedward.text import composed

MOST_BYTES = 1 << 30
"""Bytes of all columns and names of a file together, which must be fewer."""
_EXPECTED = "an npz file of arrays"


class NpzGroups(NamedTuple):
    """What the images of a file stay together with."""

    by_prefix: Mapping[str, Sequence[str]]
    """Prefix -> the group of each image; empty: the image is alone."""
    further_columns: Sequence[str]
    """Columns that group images without a group in the first one."""


class NpzColumns:
    """The columns of a file, judged by their headers; each is read when it is asked for.

    Every split has arrays of its own, as ``train_patient`` and ``test_patient`` of the column
    ``patient``. An array is a column if it has the shape (N,) or (N, 1), for the N labels of its
    split, in one split at least. So is one that is called as those of groups, whatever its shape:
    without it images of one patient might be in training and in test. Splits may lack a column.

    Args:
        path: of the file.
        where: names it, for errors.
        prefixes: start of the names of each split's arrays, as ``train_``; an empty one without
            splits.
        groups_alone: whether no other columns than those of groups may be asked for.

    Raises:
        DataError: headers cannot be read, or the columns would take :data:`MOST_BYTES` or more.
    """

    def __init__(
        self,
        path: Path,
        where: str,
        prefixes: Sequence[str],
        *,
        groups_alone: bool = False,
    ) -> None:
        self._path = path
        self._where = where
        with refusing_broken_bytes(where, _EXPECTED):
            self._present = array_names(path)
            self.counts = {
                prefix: len(StoredArray(path, f"{prefix}labels", where))
                for prefix in prefixes
                if f"{prefix}labels" in self._present
            }
            """Prefix -> number of its labels, of the splits that have labels."""
            candidates = self._candidates(groups_alone)
        self._arrays = {
            name: arrays
            for name, arrays in candidates.items()
            if is_of_groups(name)
            or any(self._fits(prefix, array) for prefix, array in arrays.items())
        }
        """Column -> prefix -> array, which may be of a wrong length in some splits."""
        self._refuse_gigabytes()

    @property
    def names(self) -> list[str]:
        """Names of the columns, sorted."""
        return sorted(self._arrays)

    @property
    def of_groups(self) -> list[str]:
        """The columns that say which images stay together, those of patients before lesions."""
        return columns_of_groups(self.names)

    def check_lengths(self) -> None:
        """Raise DataError if a column has not one value for each image in a split that has it."""
        expected = []
        found = []
        for name in self.names:
            for prefix, array in self._arrays[name].items():
                if not self._fits(prefix, array):
                    expected.append(f"{self.counts[prefix]} in {prefix}{name}")
                    values = len(array) if _is_flat(array) else array.shape
                    found.append(f"{values} in {prefix}{name}")
        if expected:
            raise DataError(
                self._where,
                "Write these arrays again, or leave them out.",
                expected=f"a value for each image: {', '.join(expected)}",
                found=", ".join(found),
            )

    def texts(self, name: str) -> dict[str, list[str]]:
        """Return prefix -> a text for each image, of the splits that have the column.

        Numbers that have names become these, and a negative one, which is nobody's, an empty text.

        Raises:
            DataError: the column cannot be read.
        """
        values = {prefix: self._values(f"{prefix}{name}") for prefix in self._arrays[name]}
        names = self.value_names(name)
        if names is None or not all(_are_places(array, len(names)) for array in values.values()):
            return {prefix: list(map(_text, array)) for prefix, array in values.items()}
        return {
            prefix: [names[place] if place >= 0 else "" for place in array.tolist()]
            for prefix, array in values.items()
        }

    def groups(self) -> NpzGroups:
        """Return the groups of all images, which are of the right number (:meth:`check_lengths`).

        The first of the columns :attr:`of_groups` counts, and the others where its value is empty.
        All are alone without such a column.

        Raises:
            DataError: a column cannot be read, or two may be the first one.
        """
        if not self.of_groups:
            return NpzGroups({}, ())
        first, *others = self.of_groups
        if others and plain_name(others[0]) == plain_name(first):
            raise DataError(
                self._where,
                "Leave out the wrong one, or give it another name.",
                expected=f"one column of the name {plain_name(first)}",
                found=f"{first} and {others[0]}",
            )
        further = {name: self._numbered_groups(name) for name in others}
        groups = filled(self._numbered_groups(first), further)
        of_all = list(groups.of_rows.values())
        by_prefix = {}
        start = 0
        for prefix, count in self.counts.items():
            by_prefix[prefix] = of_all[start : start + count]
            start += count
        return NpzGroups(by_prefix, groups.further_columns)

    def _numbered_groups(self, name: str) -> dict[int, str]:
        """Return number of an image, through all splits -> its group by a column."""
        by_prefix = self.groups_in(name)
        groups: list[str] = []
        for prefix, count in self.counts.items():
            groups += by_prefix.get(prefix, [""] * count)
        return dict(enumerate(groups))

    def groups_in(self, name: str) -> dict[str, list[str]]:
        """Return prefix -> the group of each image by a column, of the splits that have it.

        The group of an image is empty where nobody knows it. It has one spelling in all splits.

        Raises:
            DataError: the column cannot be read.
        """
        texts_of = self.texts(name)
        cells = [text for texts in texts_of.values() for text in texts]
        group_of = dict(zip(cells, patient_names(cells).of_rows, strict=True))
        return {prefix: [group_of[text] for text in texts] for prefix, texts in texts_of.items()}

    def value_names(self, name: str) -> list[str] | None:
        """Return the names of a column's numbers, or of the labels for ``label``; None without.

        Raises:
            DataError: they cannot be read.
        """
        for array_name in _arrays_of_names(name):
            if array_name in self._present:
                with refusing_broken_bytes(self._where, _EXPECTED):
                    names = read_column(self._path, array_name)
                if names is not None:
                    return [composed(_text(name)) for name in names.reshape(-1)]
        return None

    def _candidates(self, groups_alone: bool) -> dict[str, dict[str, StoredArray]]:
        """Return name -> prefix -> array, of all arrays but images and labels.

        ``groups_alone``: of those of groups alone.
        """
        candidates: dict[str, dict[str, StoredArray]] = {}
        for prefix in self.counts:
            for array_name in sorted(self._present):
                name = array_name.removeprefix(prefix)
                is_other = not array_name.endswith(("images", "labels"))
                is_of_split = array_name.startswith(prefix)
                if is_other and is_of_split and (not groups_alone or is_of_groups(name)):
                    array = StoredArray(self._path, array_name, self._where)
                    candidates.setdefault(name, {})[prefix] = array
        return candidates

    def _fits(self, prefix: str, array: StoredArray) -> bool:
        """Return whether an array has one value for each label of its split."""
        return _is_flat(array) and len(array) == self.counts[prefix]

    def _values(self, array_name: str) -> npt.NDArray[Any]:
        """Return a column of a split, (N,)."""
        with refusing_broken_bytes(self._where, _EXPECTED):
            values = read_column(self._path, array_name)
        assert values is not None, "only arrays (N,) and (N, 1) are columns"
        return values.reshape(-1)

    def _refuse_gigabytes(self) -> None:
        """Raise DataError if the columns and their names would take too much memory."""
        sizes = self._sizes_of_names()
        for name, arrays in self._arrays.items():
            sizes |= {f"{prefix}{name}": _bytes(array) for prefix, array in arrays.items()}
        if sum(sizes.values()) >= MOST_BYTES:
            largest = max(sizes, key=lambda name: sizes[name])
            raise DataError(
                self._where,
                "Leave out what nobody needs, or write shorter texts.",
                expected=f"columns of fewer than {MOST_BYTES} bytes together",
                found=f"{sum(sizes.values())}, with an array {largest} of {sizes[largest]} bytes",
            )

    def _sizes_of_names(self) -> dict[str, int]:
        """Return name -> bytes of each array that names the numbers of labels or of a column."""
        wanted = [array for name in ("label", *self._arrays) for array in _arrays_of_names(name)]
        sizes = {}
        with refusing_broken_bytes(self._where, _EXPECTED):
            for array_name in sorted(self._present.intersection(wanted)):
                array = StoredArray(self._path, array_name, self._where)
                sizes[array_name] = _bytes(array) if _is_flat(array) else 0
        return sizes


def _is_flat(array: StoredArray) -> bool:
    """Return whether an array is (N,) or (N, 1)."""
    return len(array.shape) == 1 or array.shape[1:] == (1,)


def _bytes(array: StoredArray) -> int:
    return array.size * array.dtype.itemsize


def _arrays_of_names(name: str) -> list[str]:
    """Return the arrays that may name the numbers of a column: ``group_names`` of ``groups``."""
    return [f"{name}_names", f"{name.removesuffix('s')}_names"]


def _are_places(values: npt.NDArray[Any], names: int) -> bool:
    """Return whether values are places among so many names, or negative."""
    if not np.issubdtype(values.dtype, np.integer):
        return False
    return not values.size or int(values.max()) < names


def _text(value: object) -> str:
    """Return a value of a column as text without blanks at its ends; bytes are read as UTF-8."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text.strip()
