"""Reads the headers of DICOM files: which have a picture, and the numbers of their tags.

Files come as scanners and archives write them: without the 128 bytes of a preamble, with empty
tags, or with a comma in a decimal number. Messages name tags and repeat no text of a header: they
may reach a log.
"""

import io
import logging
import math
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from fedward.sites.decoding import BadRow, Unreadable
from fedward.sites.rendering import Window

_DEFLATED = "1.2.840.10008.1.2.1.99"
_PREAMBLE = b"\0" * 128
_PREFIX = b"DICM"
_FIRST_ELEMENTS = {0x0002: 0x0102, 0x0008: 0x0018}
"""Group that a file without a preamble begins with -> highest number of its first element."""
_REPRESENTATIONS = frozenset(
    {b"AE", b"CS", b"DA", b"DT", b"LO", b"OB", b"SH", b"SQ", b"ST", b"TM", b"UI", b"UL", b"UN"}
)
"""Value representations of such first elements."""
_LONGEST_FIRST = 64
"""Most bytes of a first element whose value representation is implicit."""
_BINARY = frozenset({"FD", "FL", "SL", "SS", "UL", "US"})
"""Value representations of numbers that are not text."""
_REMEMBERED = 2**17
"""Files of which is remembered whether they have a picture."""
_SOP_CLASS = 0x00080016
"""The tag of the class of an object."""
_PIXELS = frozenset({0x7FE00008, 0x7FE00009, 0x7FE00010})
"""Tags of pixels: floats, doubles and whole numbers."""
_NO_PICTURES = frozenset(
    {
        "1.2.840.10008.5.1.4.1.1.66.4",
        "1.2.840.10008.5.1.4.1.1.66.7",
        "1.2.840.10008.5.1.4.1.1.481.2",
    }
)
"""SOP classes that have pixels and are no pictures: segmentations, label maps and doses."""
_THOUSANDS = re.compile(r"[+-]?0*[1-9]\d{0,2},\d{3}$")
"""A number whose comma may separate thousands."""


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


def begins_as_dicom(start: bytes) -> bool:
    """Return whether the first 132 bytes of a file are those of a DICOM file.

    These are a preamble and ``DICM``; or, as older scanners write, the first element of a header.
    """
    if start[128:132] == _PREFIX or start.startswith(_PREFIX):
        return True
    if len(start) < 8:
        return False
    group, element = struct.unpack("<HH", start[:4])
    if element <= _FIRST_ELEMENTS.get(group, -1):
        length = int.from_bytes(start[4:8], "little")
        return start[4:6] in _REPRESENTATIONS or length <= _LONGEST_FIRST
    group, element = struct.unpack(">HH", start[:4])
    # Big endian always names the representation.
    return element <= _FIRST_ELEMENTS.get(group, -1) and start[4:6] in _REPRESENTATIONS


def read_header(path: Path, tags: list[str] | None = None) -> Any:
    """Return these tags of a DICOM file; by default all but the pixels.

    Raises:
        BadRow: the whole file is deflated, which may unpack to any size.
        Exception: whatever pydicom makes of a damaged file.
    """
    with dicom_stream(path) as file:
        return pydicom().dcmread(file, specific_tags=tags, stop_before_pixels=True)


@contextmanager
def dicom_stream(path: Path) -> Iterator[BinaryIO]:
    """Open a DICOM file for pydicom, with the preamble that it may lack.

    Raises:
        BadRow: the whole file is deflated, which may unpack to any size.
        OSError: the file cannot be read.
        Exception: whatever pydicom makes of a damaged file.
    """
    deflated = BadRow(
        "expected DICOM with a header that is not compressed, found a deflated one: export it "
        "without"
    )
    with path.open("rb") as file:
        start = file.read(132)
        if start[128:] == _PREFIX:
            meta = pydicom().filereader.read_file_meta_info(path)
            if meta.get("TransferSyntaxUID") == _DEFLATED:
                raise deflated
            file.seek(0)
            yield file
            return
        content = start + file.read()
    if _DEFLATED.encode() in content:
        raise deflated
    prefix = b"" if content.startswith(_PREFIX) else _PREFIX
    yield io.BytesIO(_PREAMBLE + prefix + content)


def object_without_picture(path: Path) -> str:
    """Return what a DICOM object is that has no picture, such as ``Basic Text SR``; else empty.

    Reports, presentation states, directories of a medium (DICOMDIR), documents, structures and
    doses of radiotherapy, and segmentations are without a picture, and so is what has no pixels. A
    file that is damaged, or that cannot be read without pydicom, counts as a picture: reading it
    gives the reason.
    """
    try:
        state = path.stat()
        return _object_without_picture(path, state.st_size, state.st_mtime_ns)
    except Exception:  # the fault is reported where the image is read
        return ""


@lru_cache(_REMEMBERED)
def _object_without_picture(path: Path, _size: int, _changed: int) -> str:
    """Return :func:`object_without_picture`, which several parts ask of the same file."""
    with path.open("rb") as start:
        if not begins_as_dicom(start.read(132)):
            return ""
    pixels_found = []

    def at_pixels(tag: int, _representation: str | None, _length: int) -> bool:
        if tag in _PIXELS:
            pixels_found.append(tag)
        return tag in _PIXELS

    with dicom_stream(path) as file:
        header = pydicom().filereader.read_partial(file, at_pixels, specific_tags=[_SOP_CLASS])
    is_picture = bool(pixels_found) and not is_other_class(header)
    is_cut_short = not class_of(header)
    return "" if is_picture or is_cut_short else name_of_class(header)


def is_other_class(header: Any) -> bool:
    """Return whether objects of a header's class have pixels and are no pictures."""
    return class_of(header) in _NO_PICTURES


def name_of_class(header: Any) -> str:
    """Return the name of a header's SOP class without ``Storage``; unknown: ``another object``."""
    known_names = pydicom().uid.UID_dictionary
    sop_class = class_of(header)
    if sop_class not in known_names:
        return "another object"
    return str(known_names[sop_class][0]).removesuffix(" Storage")


def class_of(header: Any) -> str:
    """Return the SOP class of a header, or of the information about its file; empty without one."""
    return str(header.get("SOPClassUID") or header.file_meta.get("MediaStorageSOPClassUID") or "")


def whole_number(header: Any, name: str) -> int:
    """Return the value of a tag that must hold one whole number.

    Raises:
        BadRow: the tag is missing or empty, or holds something else.
    """
    values = numbers(header, name)
    if not values or values[0] is None:
        raise BadRow(f"expected a DICOM image with {name}, found none")
    if not math.isfinite(values[0]):
        raise BadRow(f"expected a whole number as {name}, found none that is finite")
    if values[0] != int(values[0]):
        raise BadRow(f"expected a whole number as {name}, found a number with decimals")
    return int(values[0])


def first_number(header: Any, name: str, default: float) -> float:
    """Return the first number of a tag; the default if it is absent or empty.

    Raises:
        BadRow: it is not a number.
    """
    values = numbers(header, name)
    return default if not values or values[0] is None else values[0]


def numbers(header: Any, name: str) -> list[float | None]:
    """Return the numbers of a tag, None for one that is empty; no number if it is absent or empty.

    A comma is read as a decimal point, unless it may separate thousands.

    Raises:
        BadRow: one of them is not a number.
    """
    if name not in header:
        return []
    element = header.get_item(name)
    value = element.value
    if isinstance(value, bytes) and element.VR not in _BINARY and not _is_binary(name, element.VR):
        value = value.decode("latin-1").split("\\")
    elif isinstance(value, bytes):
        try:
            value = header[name].value
        except Exception:
            raise BadRow(f"expected a number as {name}, found bytes of another kind") from None
    if value is None:
        return []
    values = value if isinstance(value, list | pydicom().multival.MultiValue) else [value]
    found = [_number(part, name) for part in values]
    return [] if set(found) == {None} else found


def _is_binary(name: str, representation: str | None) -> bool:
    """Return whether a tag without its own representation holds numbers that are not text."""
    if representation not in (None, "UN"):
        return False
    usual = str(pydicom().datadict.dictionary_VR(name))
    return usual[:2] in _BINARY


def _number(part: object, name: str) -> float | None:
    """Return a number that a tag holds; None if it is empty."""
    text = str(part).strip(" \0\t\r\n")
    if part is None or not text:
        return None
    if _THOUSANDS.match(text):
        raise BadRow(
            f"expected a number as {name}, found one whose comma may be a decimal point or "
            "separate thousands"
        )
    try:
        return float(text.replace(",", "."))
    except ValueError:
        raise BadRow(f"expected a number as {name}, found text that is not a number") from None


def file_window(header: Any) -> Window | None:
    """Return the first window of a header that can be used; None if there is none.

    Raises:
        BadRow: it is not of numbers.
    """
    centres = numbers(header, "WindowCenter")
    widths = numbers(header, "WindowWidth")
    for centre, width in zip(centres, widths, strict=False):
        if centre is None or width is None:
            continue
        if math.isfinite(centre) and math.isfinite(width) and width > 0:
            return centre, width
    return None


def voi_function(header: Any) -> str:
    """Return the function of a header's windows: LINEAR, LINEAR_EXACT or SIGMOID."""
    name = str(header.get("VOILUTFunction") or "").strip().upper()
    return name if name in ("LINEAR_EXACT", "SIGMOID") else "LINEAR"
