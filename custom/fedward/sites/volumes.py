"""One volume, NIfTI or a DICOM series, to the 8-bit slices that a network is shown, alone or
between neighbours.

Messages from here repeat no text of a header: they may reach a log.
"""

import logging
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fedward.sites.decoding import BadRow, Pixels, Unreadable, as_bad_row, as_image
from fedward.sites.rendering import Slices, Values, Volume, Window, eight_bits, evenly, windowed

_AXES = {"sagittal": 0, "coronal": 1, "axial": 2}
_LARGEST = 2**28
"""Voxels of a volume, 1 GiB as float32: 512 x 512 x 1024."""
_PART = 32
"""Slices of a file that are read at once."""
_LABELS = 32
"""A volume with as few whole numbers alone is taken for a mask."""
_LABEL_INTENT = 1002
_MASK = "expected a scan, found a mask: a few whole numbers alone"
_NO_PLACE = "expected a header that says where right, front and head are, found none"
_STEP = 25
_SHARE = 0.02
"""A slice is almost empty if fewer than 2 % of its pixels differ from its median by more than a
tenth of the greys.
"""


@cache
def nibabel() -> Any:
    """Return nibabel, which from now on says nothing of a header in logs.

    Raises:
        Unreadable: it is not installed.
    """
    try:
        import nibabel as library
    except ImportError:
        raise Unreadable("found a volume, and no nibabel: pip install 'fedward[volumes]'") from None
    logging.getLogger("nibabel.global").setLevel(logging.CRITICAL + 1)
    return library


def open_slices(
    path: Path,
    read: Callable[[Path, int], Volume],
    slices: Slices | None,
    window: Window | None = None,
    neighbours: bool = False,
) -> Iterator[tuple[int, Image.Image]]:
    """Yield slices of a volume with their indices, as images of mode ``L``, or ``RGB`` with
    neighbours.

    The volume is brought to RAS first: x grows to the patient's right, y to the front, z to the
    head. The index of a slice counts from 0 along that axis, whatever the order in the file. A
    slice is shown as radiologists see it: the patient's right (sagittal: the front) at the left,
    the front (else the head) at the top.

    Args:
        path: of the volume.
        read: path and most voxels -> volume; :func:`read_nifti` or
            :func:`fedward.sites.series.read_series`.
        slices: which; None: volumes are refused.
        window: of the site, mapped to 0..255 as DICOM's linear function does; by default the one
            that all files of a series have, else percentiles of the volume.
        neighbours: whether the channels are the slice before, the slice and the one after; at an
            end the slice itself stands for the missing one.

    Raises:
        Unreadable: the machine failed to read the file, has too little memory, or lacks nibabel.
        BadRow: no slices are wanted; the volume is damaged, too large, not of three dimensions, has
            colours, values that are not finite or no orientation, is a mask, or has no slice that
            is not almost empty; or its slices are no whole series.
    """
    if slices is None:
        remedy = "to use it, write slices: {axis: axial, at_most: 16} "
        remedy += "into the site file (fedward partition --slices 16)"
        raise BadRow(f"expected a 2D image, found a volume: {remedy}")
    shown = open_stack(path, read, slices, window).shown()
    kept = [index for index, each in enumerate(shown) if not _almost_empty(each)]
    if not kept:
        raise BadRow(f"expected a scan, found {len(shown)} slices that are all almost empty")
    last = len(shown) - 1
    for index in evenly(kept, slices.at_most):
        around = [max(index - 1, 0), index, min(index + 1, last)]
        yield index, as_image(shown[around].transpose(1, 2, 0) if neighbours else shown[index])


class Stack(NamedTuple):
    """The slices of a volume in memory, drawn when they are wanted."""

    values: Values
    """(slices, rows, columns), as they are shown."""
    window: Window
    """Centre and width with which all slices are shown."""
    function: str
    """Of the window; see :func:`~fedward.sites.rendering.windowed`."""

    def shown(self) -> Pixels:
        """Return all slices as uint8 (slices, rows, columns)."""
        return np.stack(
            [eight_bits(windowed(each, self.window, self.function)) for each in self.values]
        )

    def draw(self, index: int, window: Window | None = None) -> Image.Image:
        """Return one slice as an image of mode ``L``, in its own window or another; BadRow where
        there is none.
        """
        if not 0 <= index < len(self.values):
            raise BadRow(f"expected one of {len(self.values)} slices, found another index")
        shown_as = (self.window, self.function) if window is None else (window, "LINEAR_EXACT")
        return as_image(eight_bits(windowed(self.values[index], *shown_as)))


def open_stack(
    path: Path, read: Callable[[Path, int], Volume], slices: Slices, window: Window | None = None
) -> Stack:
    """Read a volume whole; arguments and errors as of :func:`open_slices`, but that slices may be
    empty.
    """
    with as_bad_row("a whole volume"):
        volume = read(path, _LARGEST)
        return _stack(
            _upright(volume, slices.axis), slices, (window, "LINEAR") if window else volume.window
        )


def read_nifti(path: Path, largest: int) -> Volume:
    """Read a NIfTI file.

    Raises:
        BadRow: see :func:`open_slices`.
        Exception: whatever nibabel makes of a damaged file.
    """
    image = nibabel().load(path, keep_file_open=True)  # else each part unpacks all before it
    shape = image.shape
    header = image.header
    if len(shape) < 3 or math.prod(shape[3:]) > 1:
        remedy = (
            "a series over time or of directions is not read"
            if len(shape) > 3
            else "convert it to PNG"
        )
        raise BadRow(
            f"expected a volume of three dimensions, found {' x '.join(map(str, shape))}: {remedy}"
        )
    if not 0 < math.prod(shape) <= largest:
        raise BadRow(f"expected at most {largest} voxels, found {' x '.join(map(str, shape[:3]))}")
    if header.get_data_dtype().kind not in "biuf":
        raise BadRow("expected one real number a voxel, found colours or complex numbers")
    if int(header.get("intent_code", 0)) == _LABEL_INTENT:
        raise BadRow(_MASK)
    if not np.isfinite(image.affine).all() or abs(np.linalg.det(image.affine[:3, :3])) < 1e-12:
        raise BadRow(_NO_PLACE)
    values = np.empty(shape[:3], np.float32, order="F")
    for start in range(
        0, shape[2], _PART
    ):  # nibabel scales in double precision, so never all at once
        part = slice(start, start + _PART)
        values[:, :, part] = image.dataobj[:, :, part].reshape(values[:, :, part].shape)
    return Volume(values, image.affine)


def _upright(volume: Volume, axis: str) -> Values:
    """Return the values (x, y, z) of a volume in RAS."""
    if not np.isfinite(volume.values).all():
        raise BadRow("expected finite values, found NaN or infinity")
    if _is_mask(volume.values):
        raise BadRow(_MASK)
    if volume.affine is None and axis != "axial":
        raise BadRow(f"{_NO_PLACE}, and so only axis: axial")
    orientations = nibabel().orientations
    affine = np.diag([-1, -1, 1, 1]) if volume.affine is None else volume.affine
    return np.asarray(
        orientations.apply_orientation(volume.values, orientations.io_orientation(affine))
    )


def _is_mask(values: Values) -> bool:
    for part in (
        values[::8, ::8, ::8],
        values,
    ):  # the first says of nearly all scans that they are none
        found = np.unique(part)
        if len(found) > _LABELS or (found != np.round(found)).any():
            return False
    return len(found) > 1


def _stack(values: Values, slices: Slices, shown_as: tuple[Window, str] | None) -> Stack:
    """Return the slices, to be shown by a window and its function, else by percentiles."""
    if shown_as is None:
        low, high = (float(value) for value in np.percentile(values, slices.percentiles))
        if low >= high:
            raise BadRow("expected a scan, found one value between the percentiles")
        shown_as = ((low + high) / 2, high - low), "LINEAR_EXACT"
    axis = _AXES[slices.axis]
    return Stack(
        values.transpose(axis, *(other for other in (2, 1, 0) if other != axis))[:, ::-1, ::-1],
        *shown_as,
    )


def _almost_empty(shown: Pixels) -> bool:
    return bool((np.abs(shown - float(np.median(shown))) > _STEP).mean() < _SHARE)
