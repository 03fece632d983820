"""Turns a DICOM file into 8-bit images: its only frame, or chosen frames, in grey or colour.

Messages from here repeat no text of a header: they may reach a log.
"""

import logging
import math
import struct
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedward.sites.decoding import BadRow, Unreadable, as_bad_row, as_image
from fedward.sites.rendering import Frames, Window, eight_bits, windowed

_DEFLATED = "1.2.840.10008.1.2.1.99"
_GREY = ("MONOCHROME1", "MONOCHROME2")
_COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT", "PALETTE COLOR")
PHOTOMETRIC = (*_GREY, *_COLOUR)
"""Photometric interpretations that are read."""
_PALETTES = [
    "RedPaletteColorLookupTableDescriptor",
    "RedPaletteColorLookupTableData",
    "GreenPaletteColorLookupTableDescriptor",
    "GreenPaletteColorLookupTableData",
    "BluePaletteColorLookupTableDescriptor",
    "BluePaletteColorLookupTableData",
    "SegmentedRedPaletteColorLookupTableData",
    "SegmentedGreenPaletteColorLookupTableData",
    "SegmentedBluePaletteColorLookupTableData",
]
_NEEDED = [
    "Rows",
    "Columns",
    "NumberOfFrames",
    "SamplesPerPixel",
    "PlanarConfiguration",
    "PhotometricInterpretation",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "PixelData",
    "RescaleSlope",
    "RescaleIntercept",
    "ModalityLUTSequence",
    "WindowCenter",
    "WindowWidth",
    "VOILUTFunction",
    "VOILUTSequence",
    "SharedFunctionalGroupsSequence",
    "PerFrameFunctionalGroupsSequence",
    *_PALETTES,
]
"""The tags that are read; none of them is about a patient."""
_PIXELS = 0x7FE00010
"""The tag of pixels."""
_OF_FRAMES = ("RescaleSlope", "RescaleIntercept", "WindowCenter", "WindowWidth", "VOILUTFunction")
"""Tags that a frame may have for itself."""
_FRAME_STARTS = frozenset({*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC})
"""Markers of JPEG and JPEG-LS that are followed by the size of the image."""


@cache
def pydicom() -> Any:
    """Return pydicom, kept from repeating parts of a header in warnings and logs.

    Raises:
        Unreadable: it is not installed.
    """
    try:
        import pydicom as library
    except ImportError:
        raise Unreadable(
            "found a DICOM file, and no pydicom: pip install 'fedward[dicom]'"
        ) from None
    library.config.settings.reading_validation_mode = library.config.IGNORE
    for name in ("pydicom", "openjpeg", "libjpeg"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="pydicom")
    return library


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
    the file's own table or first window, else the whole range of the stored bits. MONOCHROME1 is
    inverted, so that the lowest value is black or white as the file says. Colour becomes RGB of 8
    bits a channel. Slopes and windows of a frame (functional groups) override those of the file.

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
        dataset, count = _checked(path, several=frames is not None)
        if frames is None or count == 1:
            yield None, as_image(eight_bits(_frame(dataset, 0, count, window)))
            return
        for index in frames.chosen(count):
            yield index, as_image(eight_bits(_frame(dataset, index, count, window)))


def open_frame(path: Path, index: int, window: Window | None = None) -> Image.Image:
    """Read one of several frames by its number from 0; raises the errors of :func:`open_frames`."""
    with as_bad_row("a whole DICOM image"):
        dataset, count = _checked(path, several=True)
        if not 0 <= index < count or count == 1:
            raise BadRow(f"expected the number of one of several frames, found {count} in the file")
        return as_image(eight_bits(_frame(dataset, index, count, window)))


def count_frames(path: Path) -> int:
    """Return how many frames a DICOM file has; raises the errors of :func:`open_frames`."""
    with as_bad_row("a whole DICOM image"):
        return int(read_header(path, ["NumberOfFrames"]).get("NumberOfFrames") or 1)


def open_values(path: Path) -> npt.NDArray[np.float32]:
    """Return the values (H, W) of a grey DICOM file of one frame, after its modality rescale.

    Raises:
        BadRow: as :func:`open_frames`, or the lowest value is white.
        Exception: whatever pydicom makes of a damaged file.
    """
    dataset, count = _checked(path, several=False)
    if dataset.PhotometricInterpretation != "MONOCHROME2":
        raise BadRow(
            "expected grey slices whose lowest value is black (MONOCHROME2), found another "
            "interpretation"
        )
    stored = _stored(dataset, 0, count)
    values = pydicom().pixels.apply_modality_lut(stored, _header_of_frame(dataset, 0))
    return np.asarray(values, np.float32)


def read_header(path: Path, tags: list[str] | None = None) -> Any:
    """Return these tags of a DICOM file; by default all but the pixels.

    Raises:
        BadRow: the whole file is deflated, which may unpack to any size.
        Exception: whatever pydicom makes of a damaged file.
    """
    library = pydicom()
    if library.filereader.read_file_meta_info(path).get("TransferSyntaxUID") == _DEFLATED:
        raise BadRow(
            "expected DICOM with a header that is not compressed, found a deflated one: export it "
            "without"
        )
    return library.dcmread(path, specific_tags=tags, stop_before_pixels=True)


def _checked(path: Path, several: bool) -> tuple[Any, int]:
    """Return a file and how many frames it has, after checks of its size and kind.

    Pixels are read after the checks.
    """
    header = read_header(path, _NEEDED)
    if "Rows" not in header or "Columns" not in header:
        raise BadRow("expected a DICOM image, found another DICOM object")
    count = int(header.get("NumberOfFrames") or 1)
    if count > 1 and not several:
        raise BadRow(
            f"expected a 2D image, found a DICOM file of {count} frames: to use them, write "
            "frames: {at_most: 8} into the site file (fedward partition --frames 8)"
        )
    rows, columns = _size(header)
    limit = Image.MAX_IMAGE_PIXELS or math.inf
    if not 0 < rows * columns <= limit:
        raise BadRow(f"expected at most {limit} pixels, found {rows} x {columns}")
    photometric = header.get("PhotometricInterpretation")
    grey_of_several = photometric in _GREY and header.SamplesPerPixel != 1
    if photometric not in PHOTOMETRIC or grey_of_several:
        raise BadRow(
            "expected a grey, RGB, YBR or palette image, found another photometric interpretation"
        )
    if header.BitsAllocated not in (8, 16):
        raise BadRow(f"expected 8 or 16 bits a value, found {int(header.BitsAllocated)}")
    dataset = pydicom().dcmread(path, specific_tags=_NEEDED)
    if "PixelData" not in dataset:
        raise BadRow("expected a DICOM image, found no pixel data")
    return dataset, count


def _frame(dataset: Any, index: int, count: int, window: Window | None) -> npt.NDArray[Any]:
    """Return a frame as values in 0..1, (H, W) or (H, W, 3)."""
    stored = _stored(dataset, index, count)
    header = _header_of_frame(dataset, index)
    grey = dataset.PhotometricInterpretation in _GREY
    values = _grey(header, stored, window) if grey else _colour(header, stored)
    if not np.isfinite(values).all():
        raise BadRow("expected finite pixel values, found NaN or infinity")
    return values


def _stored(dataset: Any, index: int, count: int) -> npt.NDArray[Any]:
    """Return a frame's values as they are stored."""
    if dataset.file_meta.TransferSyntaxUID.is_compressed:
        _check_frame(dataset, index, count)
    return np.asarray(pydicom().pixels.pixel_array(dataset, index=index))


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
    for tag in dataset.keys():  # noqa: SIM118 - iterating over a dataset reads its elements
        if tag != _PIXELS:
            header[tag] = dataset[tag]
    for group in groups:
        for name in ("PixelValueTransformationSequence", "FrameVOILUTSequence"):
            for item in group.get(name) or ():
                for element in item:
                    if element.keyword in _OF_FRAMES:
                        header[element.tag] = element
    return header


def _check_frame(dataset: Any, index: int, count: int) -> None:
    """Refuse compressed pixels without a decoder, and those of another size than the header's."""
    if not pydicom().pixels.get_decoder(dataset.file_meta.TransferSyntaxUID).is_available:
        raise Unreadable(
            "found a compressed DICOM file, and nothing that decodes it: "
            "pip install 'fedward[dicom]'"
        )
    if "JPEG" not in dataset.file_meta.TransferSyntaxUID.name:
        return
    frame = pydicom().encaps.get_frame(dataset.PixelData, index, number_of_frames=count)
    rows, columns = _size(dataset)
    frame_rows, frame_columns = _size_of_frame(frame)
    if (frame_rows, frame_columns) != (rows, columns):
        raise BadRow(
            f"expected a compressed image of {rows} x {columns}, as the header says, found "
            f"{frame_rows} x {frame_columns}"
        )


def _size(header: Any) -> tuple[int, int]:
    """Return rows and columns as a header says."""
    return int(header.Rows), int(header.Columns)


def _size_of_frame(frame: bytes) -> tuple[int, int]:
    """Return rows and columns of a JPEG, JPEG-LS or JPEG 2000 image; zeros if it has none."""
    if not frame.startswith(b"\xff\xd8"):  # JPEG 2000
        start = frame.find(b"\xff\x4f\xff\x51")
        if start < 0:
            return 0, 0
        right, bottom, left, top = struct.unpack(">4I", frame[start + 8 : start + 24])
        return bottom - top, right - left
    place = 2
    while place + 9 <= len(frame):
        marker = frame[place + 1]
        if marker in _FRAME_STARTS:
            rows, columns = struct.unpack(">2H", frame[place + 5 : place + 9])
            return rows, columns
        if marker == 0xFF:  # a byte that fills up
            place += 1
        else:
            place += 2 + int.from_bytes(frame[place + 2 : place + 4])
    return 0, 0


def _grey(dataset: Any, stored: npt.NDArray[Any], window: Window | None) -> npt.NDArray[Any]:
    """Return the values of a grey image as 0..1."""
    values = pydicom().pixels.apply_modality_lut(stored, dataset)
    own_window = file_window(dataset)
    if window is not None:
        shown = windowed(values, window, "LINEAR")
    elif dataset.get("VOILUTSequence"):
        table_values = pydicom().pixels.apply_voi(np.round(values).astype(np.int64), dataset)
        bits = int(dataset.VOILUTSequence[0].LUTDescriptor[2])
        shown = table_values / (2**bits - 1)
    elif own_window is not None:
        shown = windowed(values, own_window, dataset.get("VOILUTFunction") or "LINEAR")
    else:
        shown = np.interp(values, _range(dataset), (0, 1))
    return 1 - shown if dataset.PhotometricInterpretation == "MONOCHROME1" else shown


def file_window(dataset: Any) -> Window | None:
    """Return the first window of a header; None if there is none that can be used."""
    centre = _first_number(dataset.get("WindowCenter"))
    width = _first_number(dataset.get("WindowWidth"))
    if centre is None or width is None:
        return None
    usable = math.isfinite(centre) and math.isfinite(width) and width > 0
    return (centre, width) if usable else None


def _first_number(value: Any) -> float | None:
    """Return the value of a tag, or the first of several values."""
    if isinstance(value, list | pydicom().multival.MultiValue):
        value = value[0]
    return None if value is None else float(value)


def _range(dataset: Any) -> list[float]:
    """Return the lowest and highest value that the stored bits can have, after the rescale."""
    if dataset.get("ModalityLUTSequence"):
        return [0, 2 ** int(dataset.ModalityLUTSequence[0].LUTDescriptor[2]) - 1]
    levels = 2 ** int(dataset.BitsStored)
    lowest = -levels // 2 if dataset.PixelRepresentation else 0
    slope = float(dataset.get("RescaleSlope", 1))
    intercept = float(dataset.get("RescaleIntercept", 0))
    return sorted(slope * value + intercept for value in (lowest, lowest + levels - 1))


def _colour(dataset: Any, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values of a colour image as RGB in 0..1."""
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        colours = pydicom().pixels.apply_color_lut(stored, dataset)
        return np.asarray(colours / np.iinfo(colours.dtype).max)
    return np.asarray(stored / (2 ** int(dataset.BitsStored) - 1))
