"""What may name a person in image files that are not DICOM: fields with text, and pictures.

It is for the site's own console, which shows names of fields and counts, and never a value.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

from fedward.sites.decoding import BadRow, check_pixels, open_with_pillow
from fedward.sites.files import is_dicom, is_volume
from fedward.sites.images import open_parts
from fedward.sites.nifti import nifti_header
from fedward.sites.rendering import Rendering, evenly
from fedward.text import count

_LOOKED_AT = 200
"""Files whose pictures are searched for text, spread evenly."""
_EXIF = (
    "Artist",
    "Copyright",
    "ImageDescription",
    "UserComment",
    "DocumentName",
    "PageName",
    "TargetPrinter",
    "HostComputer",
    "DateTime",
    "DateTimeOriginal",
    "CameraOwnerName",
    "BodySerialNumber",
    "ImageUniqueID",
    "XPAuthor",
    "XPComment",
    "XPKeywords",
    "XPSubject",
    "XPTitle",
    "GPSInfo",
    "MakerNote",
)
_FIRST_PRIVATE = 0x8000
"""Tag of a TIFF or of EXIF from which on there are tags of makers, whose names Pillow may lack."""
_IPTC_TAG = 0x83BB
"""Tag of a TIFF with captions and names in the form of the press (IPTC)."""
_IPTC_RESOURCE = 0x0404
"""Number of the same block among Photoshop's resources."""
_NIFTI = ("descrip", "aux_file", "intent_name", "db_name")
_LINE_HEIGHTS = (5, 60)
"""Fewest and most rows of pixels in a line of text."""
_JUMPS = 8
"""Fewest jumps of brightness in a row of pixels through text."""
_STEP = 128
"""How large a jump is, of 255."""


def identifying_notes(files: Mapping[str, Path], rendering: Rendering) -> list[str]:
    """Return notes on fields that hold text, and on pictures that seem to show some.

    Args:
        files: sample id -> image file that exists, and may be damaged.
        rendering: how they become images.
    """
    fields = Counter(name for path in files.values() for name in _fields(path))
    notes = []
    if fields:
        named = ", ".join(f"{name} {number}" for name, number in sorted(fields.items()))
        notes.append(
            f"Fields with text, which may name persons or places, and in how many files: {named}. "
            "fedward reads pixels and sends nothing of them. Remove them before the files go "
            "anywhere."
        )
    ids = list(files)
    searched = [ids[place] for place in evenly(range(len(ids)), _LOOKED_AT)]
    suspects = [name for name in searched if _shows_text(files[name], rendering)]
    if suspects:
        notes.append(
            f"Text seems to be within the picture of {len(suspects)} of "
            f"{count(len(searched), 'file')} looked at, such as {', '.join(suspects[:3])}. Leave "
            "out or mask those with names or dates: a network learns them."
        )
    return notes


def _fields(path: Path) -> set[str]:
    """Return the names of a file's fields that hold text.

    It is empty for DICOM files, whose tags are reported by :mod:`fedward.sites.headers`.
    """
    try:
        if is_volume(path):
            return _nifti_fields(path)
        if is_dicom(path):
            return set()
        return _image_fields(path)
    except Exception:  # the fault is reported where the image is read
        return set()


def _nifti_fields(path: Path) -> set[str]:
    header, is_extended = nifti_header(path)
    fields = set()
    for name in _NIFTI:
        if name in header and bytes(header[name]).strip(b"\0 "):
            fields.add(f"NIfTI {name}")
    if is_extended:
        fields.add("NIfTI extension")
    return fields


def _image_fields(path: Path) -> set[str]:
    with open_with_pillow(path) as image:
        check_pixels(image)  # Pillow reads all of a PNG to find its EXIF.
        exif = image.getexif()
        tags = [*exif, *exif.get_ifd(ExifTags.IFD.Exif)]
        names = {ExifTags.TAGS.get(tag, "") for tag in tags}
        fields = {f"EXIF {name}" for name in names if name in _EXIF}
        fields |= {
            f"private tag {tag}"
            for tag, value in exif.items()
            if tag >= _FIRST_PRIVATE and tag not in ExifTags.TAGS and _is_text(value)
        }
        if _has_caption(image, exif):
            fields.add("IPTC caption")
        for key, value in image.info.items():
            # Pillow notes the compression of a TIFF by a word of its own, such as ``raw``.
            if image.format == "TIFF" and key == "compression":
                continue
            if isinstance(value, str) or key in ("xmp", "comment"):
                fields.add(f"{image.format or 'other'} text")
        return fields


def _has_caption(image: Image.Image, exif: Image.Exif) -> bool:
    """Return whether an opened file has a block of captions and names (IPTC).

    A TIFF has it in a tag of its own, or within Photoshop's, where each resource begins with a mark
    and its number. A JPEG has the latter alone, which Pillow takes apart.
    """
    resources = exif.get(ExifTags.Base.ImageResources)
    mark = b"8BIM" + _IPTC_RESOURCE.to_bytes(2, "big")
    in_tags = _IPTC_TAG in exif or (isinstance(resources, bytes) and mark in resources)
    by_number = image.info.get("photoshop")
    return in_tags or (isinstance(by_number, dict) and _IPTC_RESOURCE in by_number)


def _is_text(value: object) -> bool:
    """Return whether the value of a tag is text that is not blank."""
    return isinstance(value, str) and bool(value.strip(" \0"))


def _shows_text(path: Path, rendering: Rendering) -> bool:
    try:
        image = next(image for _, image in open_parts(path, rendering))
    except BadRow:  # reported where the image is read
        return False
    return has_text_lines(np.asarray(image.convert("L")))


def has_text_lines(grey: npt.NDArray[np.uint8]) -> bool:
    """Return whether a picture (H, W) has rows like a line of text.

    These are 5 to 60 rows one above the other, each with eight or more jumps by half the greys
    within two pixels, and fewer in the rows above and below. Text that is small, faint or upright
    is not found, and grids are.
    """
    steps = np.abs(grey[:, 2:].astype(np.int16) - grey[:, :-2]) > _STEP
    # A jump that is wider than one pixel counts once.
    before = np.pad(steps, ((0, 0), (1, 0)))[:, :-1]
    jumps = (steps & ~before).sum(axis=1)
    # 1 for a row with enough jumps; the 0 at both ends closes the last line.
    busy = np.pad(jumps >= _JUMPS, 1).astype(np.int8)
    changes = np.diff(busy)
    starts = np.flatnonzero(changes == 1)
    ends = np.flatnonzero(changes == -1)
    # Rows at the edge of the picture may be a part of something taller.
    inside = (starts > 0) & (ends < len(grey))
    heights = (ends - starts)[inside]
    lowest, highest = _LINE_HEIGHTS
    return bool(((heights >= lowest) & (heights <= highest)).any())
