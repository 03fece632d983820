"""Turns a DICOM file into 8-bit images: its only frame, or chosen frames, in grey or colour.

Messages from here repeat no text of a header: they may reach a log.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedward.sites.decoding import (
    BadRow,
    Pixels,
    as_bad_row,
    as_image,
    check_taken,
    grey_range,
    looked_up,
)
from fedward.sites.dicom_header import (
    file_window,
    first_number,
    pydicom,
    read_header,
    voi_function,
)
from fedward.sites.dicom_stored import GREY, Stored, frame_count, read_dataset, stored_frame
from fedward.sites.dicom_tables import colours, sequence_table
from fedward.sites.rendering import Frames, Window, eight_bits, windowed

_PIXELS = 0x7FE00010
"""The tag of pixels."""
_OF_FRAMES = ("RescaleSlope", "RescaleIntercept", "WindowCenter", "WindowWidth", "VOILUTFunction")
"""Tags that a frame may have for itself."""
_LARGEST = 1e30
"""Slopes and intercepts are below this, so that values fit into 32 bits as floats."""


def open_dicom(path: Path, window: Window | None = None) -> Image.Image:
    """Read a DICOM file of one frame as :func:`open_frames`."""
    return next(image for _, image in open_frames(path, window))


def open_frames(
    path: Path, window: Window | None = None, frames: Frames | None = None
) -> Iterator[tuple[int | None, Image.Image]]:
    """Yield the number from 0 and the image, of mode ``L`` or ``RGB``, of each frame of a file.

    The number of a file's only frame is None.

    Grey: stored values become those of the modality (slope and intercept, or table). The window
    then maps them to 0..255 and clips what is outside (DICOM PS3.3, C.11.2). It is the site's, else
    the file's own table or first window that can be used. Without any, 8 stored bits are shown as
    they are, and more between percentiles of the frame
    (:func:`fedward.sites.decoding.grey_range`). MONOCHROME1 is inverted, so that the lowest value
    is black or white as the file says. Pixels of padding are black and count for no percentile.
    Colour becomes RGB of 8 bits a channel. Slopes and windows of a frame (functional groups)
    override those of the file.

    Args:
        path: of the file.
        window: of the site, for all grey images.
        frames: which frames of a file of several; None: such a file is refused.

    Raises:
        Unreadable: the machine failed to read the file, has too little memory, or lacks pydicom or
            what decodes it.
        BadRow: the file holds no image, or several frames that are not wanted; it is damaged, too
            large (Pillow's limit), of another size than its header says, or of a kind that is not
            read.
    """
    with as_bad_row("a whole DICOM image"):
        dataset, count = read_dataset(path, several=frames is not None)
        if frames is None or count == 1:
            yield None, as_image(_frame(dataset, 0, count, window))
            return
        chosen = frames.chosen(count)
        check_taken(len(chosen), int(dataset.Rows) * int(dataset.Columns))
        for index in chosen:
            yield index, as_image(_frame(dataset, index, count, window))


def open_frame(path: Path, index: int, window: Window | None = None) -> Image.Image:
    """Read one of several frames by its number from 0; raises the errors of :func:`open_frames`."""
    with as_bad_row("a whole DICOM image"):
        dataset, count = read_dataset(path, several=True)
        if not 0 <= index < count or count == 1:
            raise BadRow(f"expected the number of one of several frames, found {count} in the file")
        return as_image(_frame(dataset, index, count, window))


def count_frames(path: Path) -> int:
    """Return how many frames a DICOM file has; raises the errors of :func:`open_frames`."""
    with as_bad_row("a whole DICOM image"):
        return frame_count(read_header(path, ["NumberOfFrames"]))


def open_values(path: Path) -> npt.NDArray[np.float32]:
    """Return the values (H, W) of a grey DICOM file of one frame, after its modality rescale.

    Padding is NaN.

    Raises:
        BadRow: as :func:`open_frames`, or the lowest value is white.
        Exception: whatever pydicom makes of a damaged file.
    """
    dataset, count = read_dataset(path, several=False)
    if dataset.PhotometricInterpretation != "MONOCHROME2":
        raise BadRow(
            "expected grey slices whose lowest value is black (MONOCHROME2), found another "
            "interpretation"
        )
    stored = stored_frame(dataset, 0, count)
    header = _header_of_frame(dataset, 0)
    values = _modality_values(header, stored.values, _little_endian(dataset)).astype(np.float32)
    if stored.padding is not None:
        values[stored.padding] = np.nan
    return values


class ValueRange(NamedTuple):
    """The values of a grey file, in units of the modality."""

    low: float
    """The lowest value that the stored bits can hold."""
    high: float
    """The highest value that they can hold."""
    window: Window
    """The file's own window, or what :func:`open_dicom` shows without one."""
    inverted: bool
    """Whether the lowest value is white."""


def value_range(path: Path) -> ValueRange:
    """Return the values that a grey file may have, and the window that its first frame is shown in.

    Raises:
        Unreadable: as :func:`open_frames`.
        BadRow: likewise.
    """
    with as_bad_row("a whole DICOM image"):
        dataset, count = read_dataset(path, several=True)
        header = _header_of_frame(dataset, 0)
        little_endian = _little_endian(dataset)
        window = file_window(header)
        if window is None:
            stored = stored_frame(dataset, 0, count)
            black, white = _range_without_window(header, stored, little_endian)
            window = ((black + white) / 2, white - black)
        low, high = _in_modality(header, _stored_limits(header), little_endian)
        return ValueRange(low, high, window, dataset.PhotometricInterpretation == "MONOCHROME1")


def has_window(path: Path, window: Window | None) -> bool:
    """Return whether a grey file is shown in a window, or by a table of its own.

    Args:
        path: of the file.
        window: of the site; None: the file's own is used.

    Raises:
        Unreadable: as :func:`open_frames`.
        BadRow: likewise.
    """
    with as_bad_row("a whole DICOM image"):
        dataset, count = read_dataset(path, several=True)
        header = _header_of_frame(dataset, _middle(count))
        shown_in = window or file_window(header) or header.get("VOILUTSequence")
        return dataset.PhotometricInterpretation in GREY and bool(shown_in)


def window_of_values(path: Path) -> Window | None:
    """Return the window between percentiles 1 and 99 of a grey file.

    It is that of the frame in the middle: the first one of many is often empty. None: the file is
    in colour, or both percentiles are the same value.

    Raises:
        Unreadable: as :func:`open_frames`.
        BadRow: likewise.
    """
    with as_bad_row("a whole DICOM image"):
        dataset, count = read_dataset(path, several=True)
        if dataset.PhotometricInterpretation not in GREY:
            return None
        index = _middle(count)
        stored = stored_frame(dataset, index, count)
        header = _header_of_frame(dataset, index)
        low, high = _between_percentiles(header, stored, _little_endian(dataset))
        return ((low + high) / 2, high - low) if low < high else None


def _middle(count: int) -> int:
    """Return the number of the frame that is chosen where one of ``count`` is wanted."""
    return Frames(at_most=1).chosen(count)[0]


def _little_endian(dataset: Any) -> bool:
    """Return how a file stores numbers."""
    return bool(dataset.original_encoding[1])


def _frame(dataset: Any, index: int, count: int, window: Window | None) -> Pixels:
    """Return a frame as 0..255, (H, W) or (H, W, 3)."""
    stored = stored_frame(dataset, index, count)
    header = _header_of_frame(dataset, index)
    little_endian = _little_endian(dataset)
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        return eight_bits(colours(dataset, stored.values, little_endian))
    if dataset.PhotometricInterpretation not in GREY:
        if int(dataset.BitsStored) == 8 and stored.values.dtype == np.uint8:
            return stored.values
        return eight_bits(stored.values / (2 ** int(dataset.BitsStored) - 1))
    return _grey(header, stored, window, little_endian)


def _header_of_frame(dataset: Any, index: int) -> Any:
    """Return the header with the slope and window of a frame, which functional groups hold.

    The frame's own group overrides the one that frames share.
    """
    shared = dataset.get("SharedFunctionalGroupsSequence") or ()
    per_frame = dataset.get("PerFrameFunctionalGroupsSequence") or ()
    groups = [*shared[:1], *per_frame[index : index + 1]]
    if not groups:
        return dataset
    header = pydicom().Dataset()
    header.file_meta = dataset.file_meta
    # Iterating over a dataset, and over an item, would convert all its elements.
    for tag in dataset.keys():  # noqa: SIM118
        if tag != _PIXELS:
            header[tag] = dataset.get_item(tag)
    for group in groups:
        for name in ("PixelValueTransformationSequence", "FrameVOILUTSequence"):
            for item in group.get(name) or ():
                for tag in _OF_FRAMES:
                    if tag in item:
                        element = item.get_item(tag)
                        header[element.tag] = element
    return header


def _grey(header: Any, stored: Stored, window: Window | None, little_endian: bool) -> Pixels:
    """Return a grey frame as 0..255."""
    show = _Look(header, stored, window, little_endian)
    lowest = int(stored.values.min())
    highest = int(stored.values.max())
    if highest - lowest < stored.values.size:
        # Each value that may occur is computed once.
        table = show.pixels(np.arange(lowest, highest + 1))
        pixels = looked_up(table, stored.values, lowest)
    else:
        pixels = show.pixels(stored.values)
    if stored.padding is not None:
        pixels = np.where(stored.padding, np.uint8(0), pixels)
    return pixels


class _Look:
    """How the stored values of a grey frame are shown.

    Args:
        header: of the frame.
        stored: the frame.
        window: the site's; None: the file's own.
        little_endian: how the file stores numbers.
    """

    def __init__(
        self, header: Any, stored: Stored, window: Window | None, little_endian: bool
    ) -> None:
        self._header = header
        self._little_endian = little_endian
        self._function = "LINEAR"
        self._table = None
        self._window = window
        if window is None:
            self._table = sequence_table(header, "VOILUTSequence", little_endian)
        if window is None and self._table is None:
            self._window = file_window(header)
            self._function = voi_function(header)
        if self._window is None and self._table is None:
            low, high = _range_without_window(header, stored, little_endian)
            self._window = ((low + high) / 2, high - low)
            self._function = "LINEAR_EXACT"

    def pixels(self, stored: npt.NDArray[Any]) -> Pixels:
        """Return stored values of any shape as 0..255."""
        values = _modality_values(self._header, stored, self._little_endian)
        if self._table is not None:
            shown = self._table.applied(values) / self._table.white
        elif self._window is not None and self._window[1] > 0:
            shown = windowed(values, self._window, self._function)
        else:
            shown = np.zeros(values.shape)
        if self._header.PhotometricInterpretation == "MONOCHROME1":
            shown = 1 - shown
        return eight_bits(shown)


def _modality_values(
    header: Any, stored: npt.NDArray[Any], little_endian: bool
) -> npt.NDArray[Any]:
    """Return stored values of any shape in units of the modality (DICOM PS3.3, C.11.1)."""
    table = sequence_table(header, "ModalityLUTSequence", little_endian)
    if table is not None:
        return table.applied(stored)
    slope = first_number(header, "RescaleSlope", 1)
    intercept = first_number(header, "RescaleIntercept", 0)
    if slope == 0:
        raise BadRow("expected a RescaleSlope other than 0, found 0: all values would be the same")
    for name, value in (("RescaleSlope", slope), ("RescaleIntercept", intercept)):
        # Comparisons with NaN are false.
        if not abs(value) < _LARGEST:
            raise BadRow(f"expected a {name} below {_LARGEST:g}, found one that is not")
    return np.asarray(stored.astype(np.float64) * slope + intercept)


def _stored_limits(header: Any) -> tuple[float, float]:
    """Return the lowest and highest value that the stored bits can hold."""
    bits = int(header.BitsStored)
    lowest = -(2 ** (bits - 1)) if header.PixelRepresentation else 0
    return lowest, lowest + 2**bits - 1


def _in_modality(
    header: Any, limits: tuple[float, float], little_endian: bool
) -> tuple[float, float]:
    """Return two stored values in units of the modality, the lower first."""
    low, high = sorted(_modality_values(header, np.array(limits), little_endian).tolist())
    return low, high


def _range_without_window(header: Any, stored: Stored, little_endian: bool) -> tuple[float, float]:
    """Return the values, in units of the modality, that are black and white without a window."""
    if int(header.BitsStored) <= 8 and not header.get("ModalityLUTSequence"):
        # The picture has been made for a screen, as a PNG of 8 bits has.
        return _in_modality(header, _stored_limits(header), little_endian)
    return _between_percentiles(header, stored, little_endian)


def _between_percentiles(header: Any, stored: Stored, little_endian: bool) -> tuple[float, float]:
    """Return percentiles 1 and 99 of the picture, in units of the modality, without its padding."""
    pixels = stored.values
    if stored.padding is not None:
        pixels = pixels[~stored.padding]
    if not pixels.size:
        raise BadRow("expected an image, found padding alone")
    return _in_modality(header, grey_range(pixels), little_endian)
