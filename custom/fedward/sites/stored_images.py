"""The images of an npz file, read one after the other: all of them may not fit in memory."""

import math
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedward.errors import DataError, reason_of

_BLOCK = 1 << 20
"""Bytes that are read at once of what is passed over."""
_MOST_BY_COLUMN = 1 << 30
"""Bytes of an array at most that must be in memory as a whole, as each image is all over it."""
_MOST_IN_A_COLUMN = 1 << 30
"""Bytes of a column at most, which is in memory as a whole."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How NumPy writes arrays: others, as bzip2, may unpack a kilobyte to a gigabyte."""


@contextmanager
def refusing_broken_bytes(where: str, expected: str) -> Iterator[None]:
    """Turn every error inside into one DataError.

    Broken bytes fail in a dozen ways: in the archive, its compression, or the header of an array.

    Args:
        where: names the file, and what of it is read.
        expected: what the file should hold.
    """
    try:
        yield
    except Exception as error:
        raise DataError(
            where,
            "Fetch the file again, or name another.",
            expected=expected,
            found=reason_of(error),
        ) from None


class StoredArray:
    """An array in an npz file; only its header is read before :meth:`whole`.

    Args:
        path: of the npz file.
        name: of the array.
        where: names both, for errors.

    Raises:
        Exception: the header cannot be read; see :func:`refusing_broken_bytes`.
    """

    shape: tuple[int, ...]
    """Of the array: (N, H, W) or (N, H, W, channels), if it is one of images."""
    dtype: np.dtype[Any]
    """Of the array."""

    def __init__(self, path: Path, name: str, where: str) -> None:
        self._path = path
        self.name = name
        self._where = where
        with self._open() as (_, self.shape, self._by_column, self.dtype):
            pass
        if min(self.shape, default=0) < 0:
            raise ValueError("the array has a negative size")

    def __len__(self) -> int:
        """Return the number of images or labels."""
        return self.shape[0] if self.shape else 0

    @property
    def size(self) -> int:
        """Number of values in the array."""
        return math.prod(self.shape)

    def whole(self) -> npt.NDArray[Any]:
        """Return the array.

        Raises:
            Exception: it cannot be read, as for the header.
        """
        with np.load(self._path, allow_pickle=False) as arrays:
            return np.asarray(arrays[f"{self.name}.npy"])

    @contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], tuple[int, ...], bool, np.dtype[Any]]]:
        """Yield the array's file at the end of its header; shape, order by columns, and type."""
        with zipfile.ZipFile(self._path) as archive, archive.open(f"{self.name}.npy") as file:
            if archive.getinfo(f"{self.name}.npy").compress_type not in _COMPRESSIONS:
                raise ValueError("the array is compressed in another way than NumPy's")
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                yield file, *np.lib.format.read_array_header_1_0(file)
            else:
                yield file, *np.lib.format.read_array_header_2_0(file)


class StoredImages(StoredArray):
    """An array of images in an npz file, of which one after the other is read."""

    def read(self, indices: Iterable[int]) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the images with these indices, which ascend, as uint8 (H, W[, channels]).

        The archive is read to its end, where its checksum is compared.

        Raises:
            DataError: the file is damaged.
        """
        with refusing_broken_bytes(self._where, "a whole array of images"):
            yield from self._images(indices)

    def _images(self, indices: Iterable[int]) -> Iterator[npt.NDArray[np.uint8]]:
        if self._by_column:  # An image is then spread over the whole array.
            if self.size > _MOST_BY_COLUMN:
                raise ValueError(
                    f"{self.size} bytes in the order of columns, where {_MOST_BY_COLUMN} are read "
                    "at most: save numpy.ascontiguousarray of them"
                )
            images = self.whole()
            for index in indices:
                yield images[index]
            return
        size = math.prod(self.shape[1:])
        done = 0
        with self._open() as (file, *_):
            for index in indices:
                _pass_over(file, (index - done) * size)
                pixels = np.frombuffer(_exactly(file, size), np.uint8)
                yield pixels.reshape(self.shape[1:])
                done = index + 1
            _pass_over(file, (len(self) - done) * size)
            file.read(1)  # The checksum is compared where the archive ends.


def array_names(path: Path) -> frozenset[str]:
    """Return the names of the arrays in an npz file.

    Raises:
        Exception: the file is no archive.
    """
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return frozenset(name.removesuffix(".npy") for name in names if name.endswith(".npy"))


def read_column(path: Path, name: str) -> npt.NDArray[Any] | None:
    """Return an array (N,) or (N, 1) of an npz file; None if it has another shape.

    Raises:
        Exception: it cannot be read, as for :class:`StoredArray`, or would take a GiB or more.
    """
    array = StoredArray(path, name, f"{path}")
    is_column = len(array.shape) == 1 or array.shape[1:] == (1,)
    if not is_column:
        return None
    size = array.size * array.dtype.itemsize
    if size >= _MOST_IN_A_COLUMN:
        raise ValueError(
            f"an array {name} of {size} bytes, where fewer than {_MOST_IN_A_COLUMN} are read"
        )
    return array.whole()


class JoinedImages:
    """Several arrays of images one after the other, as if they were one.

    Args:
        parts: one array or more.
        where: names them, for errors.

    Raises:
        DataError: the images are not of one size.
    """

    def __init__(self, parts: Sequence[StoredImages], where: str) -> None:
        sizes = {part.shape[1:] for part in parts}
        if len(sizes) > 1:
            raise DataError(
                where,
                "Use a file whose splits are alike.",
                expected="images of one size in all splits",
                found=", ".join(map(str, sorted(sizes))),
            )
        self._parts = parts
        self.shape = (sum(map(len, parts)), *parts[0].shape[1:])
        """As of one array."""

    def __len__(self) -> int:
        """Return the number of images."""
        return self.shape[0]

    def read(self, indices: Iterable[int]) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the images with these indices, as :meth:`StoredImages.read`."""
        wanted = list(indices)
        first = 0
        for part in self._parts:
            own = [index - first for index in wanted if first <= index < first + len(part)]
            yield from part.read(own)
            first += len(part)


ImagesOnDisk = StoredImages | JoinedImages


def _exactly(file: IO[bytes], size: int) -> bytes:
    """Return so many bytes of a file; EOFError if it has fewer."""
    content = file.read(size)
    if len(content) < size:
        raise EOFError("the array ends too early")
    return content


def _pass_over(file: IO[bytes], size: int) -> None:
    while size > 0:
        size -= len(_exactly(file, min(size, _BLOCK)))
