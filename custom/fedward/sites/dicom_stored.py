"""The stored values of a DICOM file: checks of what it holds, decoding, bits and padding.

Messages from here repeat no text of a header: they may reach a log.
"""

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedward.sites.decoding import (
    BadRow,
    SeveralImages,
    Unreadable,
    check_scans,
    grey_range,
)
from fedward.sites.dicom_frames import Frame, frame_facts
from fedward.sites.dicom_header import (
    class_of,
    dicom_stream,
    first_number,
    is_other_class,
    name_of_class,
    numbers,
    pydicom,
    whole_number,
)
from fedward.sites.dicom_tables import PALETTES

GREY = ("MONOCHROME1", "MONOCHROME2")
_YBR = ("YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
PHOTOMETRIC = (*GREY, "RGB", *_YBR, "PALETTE COLOR")
"""Photometric interpretations that are read."""
_CONTRADICTIONS = {
    ("MONOCHROME1", "IDENTITY"): "INVERSE",
    ("MONOCHROME2", "INVERSE"): "IDENTITY",
}
"""Photometric interpretation and shape that do not agree -> the shape that would."""
_OTHER_PHOTOMETRIC = ("ARGB", "CMYK", "HSV", "XYB", "YBR_PARTIAL_420", "YBR_PARTIAL_422")
"""Further ones of the standard, which a message may name."""
_NEEDED = [
    "SOPClassUID",
    "Rows",
    "Columns",
    "NumberOfFrames",
    "SamplesPerPixel",
    "PlanarConfiguration",
    "PhotometricInterpretation",
    "PresentationLUTShape",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "PixelPaddingValue",
    "PixelPaddingRangeLimit",
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
    *PALETTES,
]
"""The tags that are read; none of them is about a patient."""
_RLE = "1.2.840.10008.1.2.5"
_STANDARD_SYNTAX = re.compile(r"1\.2\.840\.10008\.1\.2[.\d]{0,16}")
"""A transfer syntax of the standard, which a message may name."""
_UNDEFINED = 0xFFFFFFFF
"""Length of pixels that are compressed."""
_CONVERT = "convert it to a transfer syntax without compression (Explicit VR Little Endian)"


class Stored(NamedTuple):
    """A frame as it is stored."""

    values: npt.NDArray[Any]
    """Whole numbers (H, W), or (H, W, 3) of RGB."""
    padding: npt.NDArray[np.bool_] | None = None
    """Which pixels fill the frame around the picture; None: none of them."""


def read_dataset(path: Path, several: bool) -> tuple[Any, int]:
    """Return a file and how many frames it has, after checks of its size and kind.

    Pixels are read after the checks.

    Args:
        path: of the file.
        several: whether it may have several frames.

    Raises:
        BadRow: the file holds no picture, or one that is too large or of a kind that is not read; a
            tag is missing, which the message names.
        Exception: whatever pydicom makes of a damaged file.
    """
    with dicom_stream(path) as file:
        header = pydicom().dcmread(file, specific_tags=_NEEDED, stop_before_pixels=True)
        _check_class(header)
        count = frame_count(header)
        if count > 1 and not several:
            raise SeveralImages(
                f"expected a 2D image, found a DICOM file of {count} frames: to use them, write "
                "frames: {at_most: 8} into the site file (fedward partition --frames 8)"
            )
        _check_kind(header)
        _check_bits(header)
        file.seek(0)
        dataset = pydicom().dcmread(file, specific_tags=_NEEDED)
    _check_pixels(dataset, count)
    return dataset, count


def frame_count(header: Any) -> int:
    """Return how many frames a header says a file has; one if it does not say."""
    count = first_number(header, "NumberOfFrames", 1)
    return int(count) if math.isfinite(count) and count > 1 else 1


def _check_class(header: Any) -> None:
    """Refuse objects that have no picture."""
    # A file without a class is cut short, and is refused for the tag that is missing.
    has_size = "Rows" in header or "Columns" in header or not class_of(header)
    if is_other_class(header) or not has_size:
        raise BadRow(
            f"expected a DICOM image, found an object without a picture: {name_of_class(header)}"
        )


def _check_kind(header: Any) -> None:
    """Refuse a picture that is too large, or of a photometric interpretation that is not read."""
    rows, columns = _size(header)
    limit = Image.MAX_IMAGE_PIXELS or math.inf
    if not 0 < rows * columns <= limit:
        raise BadRow(f"expected 1 to {limit} pixels, found {rows} x {columns}")
    photometric = header.get("PhotometricInterpretation")
    if not photometric:
        raise BadRow("expected a DICOM image with PhotometricInterpretation, found none")
    if photometric not in PHOTOMETRIC:
        name = photometric if photometric in _OTHER_PHOTOMETRIC else "another"
        raise BadRow(
            f"expected a grey, RGB, YBR or palette image, found {name} photometric interpretation"
        )
    samples = whole_number(header, "SamplesPerPixel")
    expected_samples = 1 if photometric in (*GREY, "PALETTE COLOR") else 3
    if samples != expected_samples:
        raise BadRow(
            f"expected SamplesPerPixel {expected_samples} for {photometric}, found {samples}"
        )
    if samples > 1:
        whole_number(header, "PlanarConfiguration")
    if photometric == "PALETTE COLOR" and not any(name in header for name in PALETTES):
        raise BadRow(f"expected a palette image with {PALETTES[0]}, found none")
    shape = str(header.get("PresentationLUTShape") or "").strip()
    if (photometric, shape) in _CONTRADICTIONS:
        raise BadRow(
            f"expected {_CONTRADICTIONS[photometric, shape]} as PresentationLUTShape of "
            f"{photometric}, found {shape}, so that black may be white: correct the header"
        )


def _check_bits(header: Any) -> None:
    """Refuse values whose bits are not read, or do not fit into one another."""
    allocated = whole_number(header, "BitsAllocated")
    stored = whole_number(header, "BitsStored")
    if whole_number(header, "PixelRepresentation") not in (0, 1):
        raise BadRow("expected 0 or 1 as PixelRepresentation, found another number")
    photometric = header.PhotometricInterpretation
    is_grey = photometric in GREY
    if allocated not in ((8, 16, 32) if is_grey else (8, 16)):
        usual = "8, 16 or 32 bits a value of grey" if is_grey else "8 or 16 bits a value of colour"
        raise BadRow(f"expected {usual}, found {allocated} (BitsAllocated)")
    if photometric in _YBR and allocated != 8:
        raise BadRow(f"expected 8 bits a value of YBR, found {allocated} (BitsAllocated)")
    high_bit = _high_bit(header)
    if not 1 <= stored <= high_bit + 1 <= allocated:
        raise BadRow(
            f"expected stored bits within those allocated, found BitsAllocated {allocated}, "
            f"BitsStored {stored} and HighBit {high_bit}"
        )
    if photometric not in GREY and high_bit != stored - 1:
        raise BadRow(
            f"expected colours whose HighBit is BitsStored - 1, found {high_bit} and {stored}"
        )


def _high_bit(header: Any) -> int:
    """Return the place of the highest stored bit, which without the tag is BitsStored - 1."""
    if not numbers(header, "HighBit"):
        return whole_number(header, "BitsStored") - 1
    return whole_number(header, "HighBit")


def _check_pixels(dataset: Any, count: int) -> None:
    """Refuse a file without pixels or with too few, and one of an unknown transfer syntax."""
    if "PixelData" not in dataset:
        raise BadRow("expected a DICOM image with PixelData, found no pixel data")
    pixels = dataset.get_item("PixelData")
    meta = dataset.file_meta
    if not meta.get("TransferSyntaxUID"):
        if pixels.length == _UNDEFINED:
            raise BadRow(
                "expected a DICOM file with TransferSyntaxUID, found none, and compressed pixels"
            )
        meta.TransferSyntaxUID = _uncompressed_syntax(*dataset.original_encoding)
    if _is_compressed(dataset):
        return
    rows, columns = _size(dataset)
    bits = rows * columns * count * int(dataset.SamplesPerPixel) * int(dataset.BitsAllocated)
    expected = bits // 8
    found = len(pixels.value or b"")
    if dataset.PhotometricInterpretation == "YBR_FULL_422":
        if found >= expected:
            # Whoever unpacked the file has left the header as it was.
            raise BadRow(
                f"expected two thirds of {expected} bytes of pixels, as YBR_FULL_422 has, found "
                f"{found}, as RGB and YBR_FULL have: correct PhotometricInterpretation"
            )
        expected = expected * 2 // 3
    if found < expected:
        raise BadRow(f"expected {expected} bytes of pixels, found {found}: the file is cut short")


def _uncompressed_syntax(implicit: bool, little_endian: bool) -> Any:
    """Return the transfer syntax of a file that does not name it."""
    uids = pydicom().uid
    if implicit:
        return uids.ImplicitVRLittleEndian
    return uids.ExplicitVRLittleEndian if little_endian else uids.ExplicitVRBigEndian


def _is_compressed(dataset: Any) -> bool:
    """Return whether the pixels of a file are compressed.

    Raises:
        BadRow: its transfer syntax is unknown.
    """
    try:
        return bool(dataset.file_meta.TransferSyntaxUID.is_compressed)
    except ValueError:
        syntax = str(dataset.file_meta.TransferSyntaxUID)
        name = syntax if _STANDARD_SYNTAX.fullmatch(syntax) else "one of a manufacturer"
        raise BadRow(f"expected a known transfer syntax, found {name}: {_CONVERT}") from None


def stored_frame(dataset: Any, index: int, count: int) -> Stored:
    """Return a frame's stored values, and which of its pixels are padding.

    Args:
        dataset: of :func:`read_dataset`.
        index: number of the frame, from 0.
        count: number of frames of the file.

    Raises:
        Unreadable: what decodes its pixels is missing.
        BadRow: nothing decodes them, or they are of another size than the header says.
        Exception: whatever pydicom makes of a damaged file.
    """
    photometric = str(dataset.PhotometricInterpretation)
    compressed = _is_compressed(dataset)
    if compressed:
        # A header may be of the file as it was before somebody compressed it.
        photometric = _photometric_of_frame(dataset, index, count) or photometric
    pixel_array = pydicom().pixels.pixel_array
    if dataset.PhotometricInterpretation not in GREY:
        colours = pixel_array(dataset, index=index, photometric_interpretation=photometric)
        return Stored(np.asarray(colours))
    if compressed and dataset.file_meta.TransferSyntaxUID != _RLE:
        # The codec knows how many bits there are.
        values = np.asarray(pixel_array(dataset, index=index))
        return Stored(values, _padding(dataset, values, values))
    words = np.asarray(pixel_array(dataset, index=index, correct_unused_bits=False))
    values = _stored_bits(dataset, words)
    return Stored(values, _padding(dataset, values, words))


def _stored_bits(dataset: Any, words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values of words without the bits above and below, where overlays may lie.

    Raises:
        BadRow: the values lie elsewhere than HighBit says.
    """
    allocated = int(dataset.BitsAllocated)
    stored = int(dataset.BitsStored)
    if stored == allocated:
        return words
    high_bit = _high_bit(dataset)
    place = high_bit + 1 - stored
    bits = words.view(f"u{words.dtype.itemsize}")
    if place and int(bits.max()) < 1 << stored and (bits & ((1 << place) - 1)).any():
        raise BadRow(
            f"expected values up to bit {high_bit}, as HighBit says, found them in the lowest "
            f"{stored} bits: one of both is wrong"
        )
    # Of signed values, the shift to the right copies the sign.
    return (words << (allocated - 1 - high_bit)) >> (allocated - stored)


def _padding(
    dataset: Any, values: npt.NDArray[Any], words: npt.NDArray[Any]
) -> npt.NDArray[np.bool_] | None:
    """Return which pixels have the value, or the range of values, of padding.

    Some files name a value that none of their pixels has, or one that is part of the picture, and
    are filled with another one, as those without the tag.

    Args:
        dataset: the file's.
        values: of the stored bits.
        words: of the allocated bits; a value of padding that needs more than the stored bits is
            found in them alone.
    """
    named = np.zeros(values.shape, np.bool_)
    if numbers(dataset, "PixelPaddingValue"):
        named = _named_padding(dataset, values, words)
    # Where padding is named, 0 of values without a sign may be the air beside the patient.
    is_whole = named.any() and not dataset.PixelRepresentation
    unnamed = None if is_whole else _unnamed_padding(dataset, values, named)
    padding = named if unnamed is None else named | unnamed
    return padding if padding.any() else None


def _named_padding(
    dataset: Any, values: npt.NDArray[Any], words: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Return which pixels have a value that the tags of padding name; see :func:`_padding`."""
    signed = bool(dataset.PixelRepresentation)
    limits = []
    for name in ("PixelPaddingValue", "PixelPaddingRangeLimit"):
        if numbers(dataset, name):
            limits.append(_as_word(whole_number(dataset, name), signed, words.dtype.itemsize * 8))
    low = min(limits)
    high = max(limits)
    stored = int(dataset.BitsStored)
    lowest = -(1 << (stored - 1)) if signed else 0
    fits = lowest <= low and high < lowest + (1 << stored)
    searched = values if fits else words
    return np.asarray((searched >= low) & (searched <= high))


def _unnamed_padding(
    dataset: Any, values: npt.NDArray[Any], named: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_] | None:
    """Return which pixels have the lowest value of the stored bits, where nothing else is near it.

    CT scanners fill what lies outside of their circle with such a value, as -32768, and some do not
    say so. As a part of the picture it would take more than half of the greys. Values that cannot
    be below zero have none: 0 is a dark part of the picture.

    Args:
        dataset: the file's.
        values: of the stored bits.
        named: which pixels the tags call padding.
    """
    signed = bool(dataset.PixelRepresentation)
    if not signed and not first_number(dataset, "RescaleIntercept", 0) < 0:
        return None
    lowest = -(1 << (int(dataset.BitsStored) - 1)) if signed else 0
    padding = values == lowest
    is_picture = ~(padding | named)
    if not padding.any() or not is_picture.any():
        return None
    picture = values[is_picture]
    black, white = grey_range(picture)
    gap = int(picture.min()) - lowest
    # A picture of one value would be blank without the other one.
    return padding if 0 < white - black < gap else None


def _as_word(value: int, signed: bool, bits: int) -> int:
    """Return a number as a word with or without a sign shows the same bits."""
    full = 1 << bits
    unsigned = value % full
    return unsigned - full if signed and 2 * unsigned >= full else unsigned


def _photometric_of_frame(dataset: Any, index: int, count: int) -> str:
    """Return the photometric interpretation that a compressed frame shows itself; empty: none.

    Raises:
        Unreadable: what decodes the frame is missing.
        BadRow: nothing decodes it, or its size is not as the header says.
    """
    syntax = dataset.file_meta.TransferSyntaxUID
    try:
        decoder = pydicom().pixels.get_decoder(syntax)
    except NotImplementedError:
        raise BadRow(
            f"found pixels of {syntax.name}, which nothing here decodes: {_CONVERT}"
        ) from None
    if not decoder.is_available:
        raise Unreadable(
            f"found pixels of {syntax.name}, and nothing that decodes it: "
            f"pip install 'fedward[dicom]', or {_CONVERT}"
        )
    if "JPEG" not in syntax.name and "JP2" not in syntax.name and "J2K" not in syntax.name:
        return ""
    frame = pydicom().encaps.get_frame(dataset.PixelData, index, number_of_frames=count)
    facts = frame_facts(frame)
    if facts == Frame():
        raise BadRow(
            f"expected a compressed image of {syntax.name}, as the header says, found a damaged "
            "one or other bytes"
        )
    rows, columns = _size(dataset)
    if (facts.rows, facts.columns) != (rows, columns):
        raise BadRow(
            f"expected a compressed image of {rows} x {columns}, as the header says, found "
            f"{facts.rows} x {facts.columns}"
        )
    samples = int(dataset.SamplesPerPixel)
    if facts.samples != samples:
        raise BadRow(
            f"expected a compressed image with SamplesPerPixel {samples}, as the header says, "
            f"found {facts.samples}"
        )
    check_scans(frame)
    return facts.photometric


def _size(header: Any) -> tuple[int, int]:
    """Return rows and columns as a header says."""
    return whole_number(header, "Rows"), whole_number(header, "Columns")
