"""Arrays that wait on the disk until they are read.

They lie in a file without a name, so nothing is left when the process ends, however it ends.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from weakref import finalize

import numpy as np

from fedward.disk import read_fully
from fedward.errors import RunError


class Spill:
    """A file in ``folder`` to which arrays are added. It is closed when nobody can read it."""

    def __init__(self, folder: Path) -> None:
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 - closed with this object
        finalize(self, self._file.close)

    def put(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Write arrays, and return a mapping that reads an array whenever it is asked for one.

        Any thread may read.
        """
        return _Stored(self, {name: self._write(array) for name, array in arrays.items()})

    def read(self, place: "_Place") -> np.ndarray:
        """Return an array as it was written; raise RunError if the file has become shorter."""
        array = np.empty(place.shape, place.dtype)
        content = array.reshape(-1).view(np.uint8).data
        found = read_fully(self._file.fileno(), content, place.start)
        if found < array.nbytes:
            raise RunError(
                "request on the disk",
                "Look at the disk of the run folder, and resume the run.",
                expected=f"{array.nbytes} bytes",
                found=f"{found}",
            )
        return array

    def _write(self, array: np.ndarray) -> "_Place":
        place = _Place(self._file.seek(0, os.SEEK_END), array.dtype, array.shape)
        self._file.write(array.tobytes())
        self._file.flush()
        return place


@dataclass(frozen=True)
class _Place:
    """The place of an array in the file, in bytes, and what makes an array of them."""

    start: int
    dtype: np.dtype
    shape: tuple[int, ...]


class _Stored(Mapping[str, np.ndarray]):
    """Name -> array, read from the disk at each access."""

    def __init__(self, spill: Spill, places: Mapping[str, _Place]) -> None:
        self._spill = spill
        self._places = places

    def __getitem__(self, name: str) -> np.ndarray:
        return self._spill.read(self._places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
