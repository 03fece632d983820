"""What may name a person in image files that are not DICOM, for the site's own console: fields with
text, and pictures.

Only names of fields and counts are told, never a value.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import ExifTags

from fedward.sites.decoding import BadRow, opened
from fedward.sites.files import is_dicom, is_volume
from fedward.sites.images import open_parts
from fedward.sites.rendering import Rendering, evenly
from fedward.sites.volumes import nibabel

_LOOKED_AT = 200
"""Files whose pictures are searched for text, spread evenly."""
_EXIF = (
    "Artist",
    "Copyright",
    "ImageDescription",
    "UserComment",
    "HostComputer",
    "DateTime",
    "DateTimeOriginal",
    "CameraOwnerName",
    "BodySerialNumber",
    "ImageUniqueID",
    "XPAuthor",
    "XPComment",
    "XPTitle",
    "GPSInfo",
    "MakerNote",
)
_NIFTI = ("descrip", "aux_file", "intent_name", "db_name")
_LINES = (5, 60)
_JUMPS = 8
_STEP = 128
"""Rows of a line of text, jumps of brightness in each, and how large a jump is, of 255."""


def identifying_notes(files: Mapping[str, Path], rendering: Rendering) -> list[str]:
    """Return notes of the fields that hold text, and of pictures that seem to.

    Args:
        files: sample id -> image file that exists, damaged perhaps.
        rendering: how they become images.
    """
    fields = Counter(name for path in files.values() for name in _fields(path))
    notes = []
    if fields:
        named = ", ".join(f"{name} {count}" for name, count in sorted(fields.items()))
        notes.append(
            f"Fields with text, which may name persons or places, and in how many files: {named}. fedward reads pixels "
            "and sends nothing of them. Remove them before the files go anywhere."
        )
    looked = [list(files)[place] for place in evenly(range(len(files)), _LOOKED_AT)]
    suspects = [name for name in looked if _shows_text(files[name], rendering)]
    if suspects:
        notes.append(
            f"Text seems to be within the picture of {len(suspects)} of {len(looked)} files looked at, such as "
            f"{', '.join(suspects[:3])}. Leave out or mask those with names or dates: a network learns them."
        )
    return notes


def _fields(path: Path) -> set[str]:
    """Return the names of a file's fields that hold text; none of DICOM files, whose tags are told
    in full.
    """
    try:
        if is_volume(path):
            header = nibabel().load(path).header
            filled = {
                f"NIfTI {name}"
                for name in _NIFTI
                if name in header and bytes(header[name]).strip(b"\0 ")
            }
            return filled | ({"NIfTI extension"} if list(header.extensions) else set())
        if is_dicom(path):
            return set()
        with opened(path) as image:
            exif = image.getexif()
            tags = {ExifTags.TAGS.get(tag, "") for tag in (*exif, *exif.get_ifd(ExifTags.IFD.Exif))}
            texts = {
                key
                for key, value in image.info.items()
                if isinstance(value, str) or key in ("xmp", "comment")
            }
            kind = image.format or "other"
        return {f"EXIF {name}" for name in tags if name in _EXIF} | (
            {f"{kind} text"} if texts else set()
        )
    except Exception:  # whatever is wrong with the file is told where the image is read
        return set()


def _shows_text(path: Path, rendering: Rendering) -> bool:
    try:
        image = next(image for _, image in open_parts(path, rendering))
    except BadRow:  # told where the image is read
        return False
    return has_text_lines(np.asarray(image.convert("L")))


def has_text_lines(grey: npt.NDArray[np.uint8]) -> bool:
    """Return whether a picture (H, W) has rows like a line of text.

    These are 5 to 60 rows one above the other, each with eight or more jumps by half the greys
    within two pixels, and fewer in the rows above and below. Text that is small, faint or upright
    is not found, and grids are.
    """
    steps = np.abs(grey[:, 2:].astype(np.int16) - grey[:, :-2]) > _STEP
    begins = steps & ~np.pad(steps, ((0, 0), (1, 0)))[:, :-1]
    busy = np.pad(begins.sum(axis=1) >= _JUMPS, 1).astype(np.int8)
    starts, ends = (np.flatnonzero(np.diff(busy) == way) for way in (1, -1))
    heights = (ends - starts)[(starts > 0) & (ends < len(grey))]
    return bool(((heights >= _LINES[0]) & (heights <= _LINES[1])).any())
