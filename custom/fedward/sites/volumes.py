"""Turns a volume (NIfTI or a DICOM series) into 8-bit slices, alone or with their neighbours.

Messages from here repeat no text of a header: they may reach a log.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from fedward.sites.decoding import BadRow, Blank, Pixels, as_bad_row, as_image
from fedward.sites.nifti import MASK, NO_PLACE, nibabel, read_nifti
from fedward.sites.rendering import Slices, Values, Volume, Window, eight_bits, evenly, windowed
from fedward.sites.series import read_series
from fedward.text import count

_AXES = {"sagittal": 0, "coronal": 1, "axial": 2}
"""Name of the slices -> axis of a volume in RAS that they are counted along."""
_MOST_VOXELS = 2**28
"""Voxels of a volume at most, 1 GiB as float32: 512 x 512 x 1024."""
_VALUES_AT_ONCE = 2**18
"""Values of which NaN are taken out at once."""
_MOST_LABELS = 32
"""A volume with no more different values than this, all whole numbers, is taken for a mask."""
_GREY_STEP = 25
"""Difference from which a grey counts as another one: a tenth of the 256 greys."""
_LEAST_CONTENT = 0.02
"""A slice is almost empty if a smaller share of it differs from its median by a grey step."""


def open_slices(
    path: Path,
    slices: Slices | None,
    window: Window | None,
    neighbours: bool = False,
) -> Iterator[tuple[int, Image.Image]]:
    """Yield index and image of slices of a volume, of mode ``L``, or ``RGB`` with neighbours.

    The volume is brought to RAS first: x grows to the patient's right, y to the front, z to the
    head. The index of a slice counts from 0 along its axis, whatever the order in the file. A slice
    is shown as radiologists see it: the patient's right (sagittal: the front) at the left, the
    front (coronal and sagittal: the head) at the top.

    Args:
        path: the volume's file, or the folder of a DICOM series.
        slices: which slices; None: volumes are refused.
        window: the site's window, mapped to 0..255 by DICOM's linear function; by default the
            window that all files of a series have in common, else percentiles of the volume.
        neighbours: whether the channels are the slice before, the slice and the one after; at an
            end the slice itself stands for the missing one.

    Raises:
        Unreadable: the machine failed to read the file, has too little memory, or lacks nibabel.
        BadRow: no slices are wanted; the volume is damaged, too large, not of three dimensions, has
            colours, no finite value or no orientation, is a mask, or has only slices that are
            almost empty; or its slices are not a whole series.
    """
    if slices is None:
        raise BadRow(
            "expected a 2D image, found a volume: to use it, write "
            "slices: {axis: axial, at_most: 16} into the site file (fedward partition --slices 16)"
        )
    shown = open_stack(path, slices, window).shown()
    used = [index for index, pixels in enumerate(shown) if not _almost_empty(pixels)]
    if not used:
        raise Blank(f"expected a scan, found {count(len(shown), 'slice')}, all almost empty")
    last = len(shown) - 1
    for index in evenly(used, slices.at_most):
        if neighbours:
            channels = [max(index - 1, 0), index, min(index + 1, last)]
            yield index, as_image(shown[channels].transpose(1, 2, 0))
        else:
            yield index, as_image(shown[index])


class Stack(NamedTuple):
    """The slices of a volume in memory."""

    values: Values
    """(slices, rows, columns), in the orientation in which they are shown."""
    window: Window
    """Window in which all slices are shown."""
    function: str
    """VOI function of the window; see :func:`~fedward.sites.rendering.windowed`."""

    def shown(self) -> Pixels:
        """Return all slices as uint8 (slices, rows, columns)."""
        return np.stack(
            [eight_bits(windowed(values, self.window, self.function)) for values in self.values]
        )

    def draw(self, index: int, window: Window | None = None) -> Image.Image:
        """Return one slice as an image of mode ``L``, in its own window or another.

        Raises:
            BadRow: there is no such slice.
        """
        if not 0 <= index < len(self.values):
            raise BadRow(f"expected one of {count(len(self.values), 'slice')}, found another index")
        if window is None:
            shown = windowed(self.values[index], self.window, self.function)
        else:
            shown = windowed(self.values[index], window, "LINEAR_EXACT")
        return as_image(eight_bits(shown))


def open_stack(path: Path, slices: Slices, window: Window | None = None) -> Stack:
    """Read all slices of a volume.

    Arguments and errors are those of :func:`open_slices`, except that slices may be almost empty.
    """
    with as_bad_row("a whole volume"):
        volume = _read(path)
        if _has_background(volume.values) and np.isnan(volume.values).all():
            raise BadRow("expected a scan, found no finite value")
        shown_as = (window, "LINEAR") if window else volume.window
        return _stack(_upright(volume, slices.axis), slices, shown_as)


def window_of_volume(path: Path, slices: Slices, window: Window | None) -> Window | None:
    """Return the window between the percentiles of a volume that is shown in another one.

    Arguments and errors are those of :func:`open_slices`. None: without the site's window the
    volume has none, and so is shown between its percentiles; or these are the same value.
    """
    with as_bad_row("a whole volume"):
        volume = _read(path)
        if (window or volume.window) is None or np.isnan(volume.values).all():
            return None
        low, high = _between_percentiles(volume.values, slices.percentiles)
        return ((low + high) / 2, high - low) if low < high else None


def _read(path: Path) -> Volume:
    """Read a NIfTI file, or the DICOM series in a folder."""
    read = read_series if path.is_dir() else read_nifti
    return read(path, _MOST_VOXELS)


def _upright(volume: Volume, axis: str) -> Values:
    """Return the values (x, y, z) of a volume in RAS.

    Raises:
        BadRow: the volume is a mask, or says nothing of its orientation although slices of another
            ``axis`` than axial are wanted.
    """
    if _is_mask(volume.values):
        raise BadRow(MASK)
    if volume.affine is None and axis != "axial":
        raise BadRow(f"{NO_PLACE}, and so only axis: axial")
    affine = volume.affine
    if affine is None:
        # DICOM's usual axes: x grows to the patient's left, y to the back, z to the head.
        affine = np.diag([-1.0, -1.0, 1.0, 1.0])
    orientations = nibabel().orientations
    to_ras = orientations.io_orientation(affine)
    return np.asarray(orientations.apply_orientation(volume.values, to_ras))


def _has_background(values: Values) -> bool:
    """Return whether some values are NaN, by a maximum, which then is NaN too."""
    return bool(np.isnan(values.max()))


def _is_mask(values: Values) -> bool:
    """Return whether a volume has few different values, all whole numbers."""
    # A few voxels are enough to recognise nearly every scan, so few volumes are sorted as a whole.
    sample = values[::8, ::8, ::8]
    if not _has_labels_only(sample) or not _has_labels_only(values):
        return False
    return bool(np.nanmin(values) != np.nanmax(values))


def _has_labels_only(values: Values) -> bool:
    """Return whether values are few different whole numbers, as labels are."""
    different = np.unique(values)
    different = different[~np.isnan(different)]
    return len(different) <= _MOST_LABELS and bool((different == np.round(different)).all())


def _stack(values: Values, slices: Slices, shown_as: tuple[Window, str] | None) -> Stack:
    """Return the slices of a volume in RAS, turned as they are shown.

    Args:
        values: (x, y, z).
        slices: the axis of the slices, and the percentiles for a volume without a window.
        shown_as: a window and its VOI function; None: the window lies between the percentiles.

    Raises:
        BadRow: both percentiles are the same value.
    """
    if shown_as is None:
        low, high = _between_percentiles(values, slices.percentiles)
        if low >= high:
            raise BadRow("expected a scan, found one value between the percentiles")
        window = ((low + high) / 2, high - low)
        function = "LINEAR_EXACT"
    else:
        window, function = shown_as
    axis = _AXES[slices.axis]
    rows, columns = [other for other in (2, 1, 0) if other != axis]
    # Rows and columns are reversed, so that the head or front is at the top, and right at the left.
    turned = values.transpose(axis, rows, columns)[:, ::-1, ::-1]
    return Stack(turned, window, function)


def _between_percentiles(values: Values, percentiles: tuple[float, float]) -> tuple[float, float]:
    """Return two percentiles of the values that are not NaN, of which there must be one.

    It takes as much memory as the values do, and no more.
    """
    finite = values.flatten(order="K")
    kept = 0
    for start in range(0, finite.size, _VALUES_AT_ONCE):
        part = finite[start : start + _VALUES_AT_ONCE]
        part = part[~np.isnan(part)]
        finite[kept : kept + part.size] = part
        kept += part.size
    low, high = np.percentile(finite[:kept], percentiles, overwrite_input=True).tolist()
    return low, high


def _almost_empty(shown: Pixels) -> bool:
    """Return whether nearly all pixels of a slice are of one grey."""
    far_from_median = np.abs(shown - float(np.median(shown))) > _GREY_STEP
    return bool(far_from_median.mean() < _LEAST_CONTENT)
