"""Turns one image file into the uint8 array that a network is shown.

This file stands alone, with NumPy and Pillow: an exported bundle takes a copy of it along
(docs/model.md), so that its pixels are those of the training.
"""

import errno
import math
import re
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.Image import Transpose
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import (
    BITSPERSAMPLE,
    PHOTOMETRIC_INTERPRETATION,
    SAMPLEFORMAT,
    TiffImageFile,
)

_SUBFILE_TYPE = 254
"""TIFF tag NewSubfileType: bit 0 marks a smaller copy of another page, bit 2 a mask of one."""

Pixels: TypeAlias = npt.NDArray[np.uint8]
Fit: TypeAlias = Literal["squash", "crop"]
"""How a picture becomes a square: all of it is squashed, or its central square is cut out."""

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "PPM")
"""Formats that are read, recognised by the first bytes of a file and not by its name.

Pillow knows many more. For EPS it would start Ghostscript, which runs the program that such a file
is.
"""
ENDINGS = frozenset(
    {
        ".png",
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".tif",
        ".tiff",
        ".bmp",
        ".dib",
        ".pbm",
        ".pgm",
        ".ppm",
        ".pnm",
    }
)
"""Endings of their files' names, in lower case."""
_RARE = "that is damaged or of a rare kind: convert it to PNG of 8 bits"
_ALL_FORMATS = f"{', '.join(FORMATS[:-1])} and {FORMATS[-1]}"
_NOT_READ = f"which is not one of {_ALL_FORMATS}: convert it to PNG"
_STARTS = {
    b"\x89PNG": f"a PNG {_RARE}",
    b"\xff\xd8\xff": f"a JPEG {_RARE}",
    b"II*\0": f"a TIFF {_RARE}",
    b"MM\0*": f"a TIFF {_RARE}",
    b"II+\0": f"a BigTIFF {_RARE}",
    b"MM\0+": f"a BigTIFF {_RARE}",
    b"\x5c\1\0\0": "the header of a volume (.hdr and .img): save it as one .nii.gz file",
    b"NRRD": "a volume in NRRD: convert it to .nii.gz",
    b"\x1f\x8b": "a compressed file: a volume must be NIfTI, and end in .nii.gz",
    b"GIF8": f"a GIF, {_NOT_READ}",
    b"RIFF": f"a WebP image or a film, {_NOT_READ}",
    b"\xff\x0a": f"a JPEG XL image, {_NOT_READ}",
    b"\0\0\0\x0cJXL ": f"a JPEG XL image, {_NOT_READ}",
    b"\0\0\0\x0cjP  ": f"a JPEG 2000 image, {_NOT_READ}",
    b"\xff\x4f\xff\x51": f"a JPEG 2000 image, {_NOT_READ}",
    b"%PDF": f"a PDF, {_NOT_READ}",
    b"PK\x03\x04": "an archive: unpack it",
    b"<": "a web page or another text: fetch the image again",
    b"version https://git-lfs": "a pointer of Git LFS: fetch the image with git lfs pull",
}
"""First bytes of a file that Pillow does not read -> what it is."""
_FILM = b"ftyp"
"""Bytes 4 to 8 of HEIC, AVIF and films."""

_TURNS = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
"""EXIF orientation -> the operation that shows the image upright."""
_SHOWN_PERCENTILES = (1, 99)
"""Percentiles of an image's values that are black and white, where the file does not say."""
_MOST_SORTED = 2**16
"""Values that are sorted for percentiles: of twice as many or more, evenly spaced ones are."""
_SCALED_AT_ONCE = 2**15
"""Values that are scaled at once."""
_MOST_COUNTED = 2**16
"""Different whole numbers that are counted one by one at most."""
_COUNTED_AT_ONCE = 2**20
"""Values that are counted at once."""

MOST_PAGES = 2**12
"""Pages or frames of a file at most: a page may take a few bytes, and each of them takes time.

The longest CT scans have about half as many slices.
"""
MOST_TAKEN = 2**32
"""Pixels of all images of a file at most: 1,000 frames of 2048 x 2048.

Pages may share their bytes, so that a small file holds thousands of the largest images.
"""
_MOST_FIELDS = 2**18
"""Fields of all pages of a TIFF at most, 64 a page: pages may share them, and each takes time."""
_MOST_PARTS = 2**16
"""Strips or tiles of a page at most: one may take a few bytes, and each is read by itself."""
_MOST_SCANS = 100
"""Scans of a JPEG at most, as libtiff allows: one may take 100 bytes, and goes over all pixels.

Progressive JPEGs have about ten.
"""
_MOST_BYTES = 2**30
"""Bytes of a JPEG at most, as it is read whole to count its scans.

Pillow's limit of 90 million pixels is 268 MB of RGB. A file without content, which takes no room on
the disk, may claim any size.
"""
_SCAN = b"\xff\xda"
"""Marker of a scan of a JPEG."""
_WITH_LENGTH = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")
"""A marker of a JPEG before a segment that begins with its length, or the marker of the end."""
_END_OF_JPEG = 0xD9
_BIG_ENDIAN_BIGTIFF = b"MM\0+"

# Pillow warns of damaged EXIF and of large images. Both are judged here.
warnings.filterwarnings("ignore", module=r"PIL\.")


class BadRow(Exception):  # noqa: N818 - no error of the program: it is kept as Rejected
    """One row or image cannot be used; the text says what was expected and what was found."""


class SeveralImages(BadRow):
    """A file holds several pages or frames, and nobody has said which are used."""


class Blank(BadRow):
    """Nothing can be seen in a picture, as it is shown."""


EVERY_PIXEL_THE_SAME = "expected an image, found a blank one: every pixel is the same"
"""Text of :class:`Blank` for a picture of one value."""


class Unreadable(BadRow):
    """A file cannot be read now because the machine failed: the file may be whole."""


@contextmanager
def as_bad_row(what: str) -> Iterator[None]:
    """Turn a library's exception about ``what`` it reads into BadRow.

    It becomes Unreadable where the machine failed. The text names the exception's type alone: the
    exception's message may repeat parts of a header.
    """
    try:
        yield
    except BadRow:
        raise
    except Exception as error:
        raise _kind(error)(
            f"expected {what}, found one that cannot be read ({type(error).__name__})"
        ) from None


def _kind(error: Exception) -> type[BadRow]:
    """Return Unreadable if the machine failed, and BadRow if the file is to blame."""
    if isinstance(error, MemoryError):
        return Unreadable
    # Pillow raises OSError about a file's content, too, but without a number. EINVAL is about the
    # content as well: a damaged file names a place in it that no file can have.
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        return Unreadable
    return BadRow


def decode(path: Path, size: int, channels: int, how: Fit = "squash") -> Pixels:
    """Read one image file as uint8 (size, size, channels).

    Grey becomes RGB or RGB becomes grey (ITU-R 601 luma). See :func:`fit` for how the picture
    becomes a square.

    Raises:
        Unreadable: as :func:`open_image`.
        Blank: the image shows one constant value.
        BadRow: as :func:`open_image`.
    """
    with as_bad_row("a whole image"):
        pixels = fit(open_image(path, smallest=2 * size), size, channels, how)
        check_not_blank(pixels)
        return pixels


@contextmanager
def open_with_pillow(path: Path) -> Iterator[Image.Image]:
    """Open an image file of one of :data:`FORMATS` without reading its pixels.

    This is the one place at which fedward opens image files with Pillow. It raises what Pillow
    raises.
    """
    # From a path, Pillow would map an uncompressed TIFF into memory, with rows of the turned size.
    with path.open("rb") as file, Image.open(file, formats=FORMATS) as image:
        yield image


def count_pages(path: Path) -> int:
    """Return how many pages a TIFF, or pictures an animated PNG, has; 1 for any other file."""
    try:
        with open_with_pillow(path) as image:
            return max(1, len(_pages(image, path)))
    except Exception:
        # The fault is reported where the image is read.
        return 1


def _pages(image: Image.Image, path: Path) -> Sequence[int]:
    """Return the places of the pages of an opened file, without smaller copies and masks.

    A JPEG may hold further pictures, too, such as the depth of a telephone's camera: the first is
    the photograph.
    """
    if image.format == "PNG":
        count = getattr(image, "n_frames", 1)
        check_taken(count, image.width * image.height)
        return range(count)
    if not isinstance(image, TiffImageFile):
        return [0]
    _check_directories(path)
    whole = []
    for place in range(image.n_frames):
        image.seek(place)
        if not image.tag_v2.get(_SUBFILE_TYPE, 0) & 0b101:
            whole.append(place)
    image.seek(0)
    return whole or [0]


def check_pixels(image: Image.Image) -> None:
    """Refuse the page that an opened file is turned to if it has more pixels than Pillow's limit.

    Raises:
        BadRow: it has. Pillow itself warns alone of less than twice as many.
    """
    limit = Image.MAX_IMAGE_PIXELS
    if limit and image.width * image.height > limit:
        raise BadRow(f"expected at most {limit} pixels, found {image.width * image.height}")


def check_taken(count: int, pixels: int) -> None:
    """Refuse to take many images of one file, which may be small all the same.

    Args:
        count: of pages or frames.
        pixels: of each.

    Raises:
        BadRow: there are too many images or pixels.
    """
    if count > MOST_PAGES:
        raise BadRow(
            f"expected at most {MOST_PAGES} pages or frames, found {count}: save those that are "
            "needed as files of their own"
        )
    _check_sum(count * pixels, f"{count} of {pixels}")


def _check_sum(pixels: int, found: str) -> None:
    """Refuse to take this many pixels of one file; ``found`` says in words how many there are."""
    if pixels > MOST_TAKEN:
        raise BadRow(
            f"expected at most {MOST_TAKEN} pixels in all pages or frames, found {found}: save "
            "those that are needed as files of their own"
        )


def _check_directories(path: Path) -> None:
    """Refuse a TIFF of too many pages or fields, before Pillow reads each of them.

    Each page has a directory: the number of its fields, the fields, and the place of the next
    directory, or 0. A chain that leads back ends there, as for Pillow.
    """
    places = set[int]()
    field_count = 0
    with path.open("rb") as file:
        start = file.read(16)
        if start.startswith(_BIG_ENDIAN_BIGTIFF):
            raise BadRow(f"expected a whole image, found {_STARTS[_BIG_ENDIAN_BIGTIFF]}")
        order = "<" if start.startswith(b"II") else ">"
        is_big = start[2] == 43
        number = struct.Struct(order + ("Q" if is_big else "H"))
        link = struct.Struct(order + ("Q" if is_big else "L"))
        field_size = 20 if is_big else 12
        (place,) = link.unpack_from(start, 8 if is_big else 4)
        while place and place not in places:
            places.add(place)
            file.seek(place)
            head = file.read(number.size)
            if len(head) < number.size:
                return  # Pillow finds no directory there, either.
            (fields,) = number.unpack(head)
            field_count += fields
            if len(places) > MOST_PAGES or field_count > _MOST_FIELDS:
                raise BadRow(
                    f"expected a TIFF of at most {MOST_PAGES} pages with {_MOST_FIELDS} fields, "
                    "found more: save the pages that are needed as files of their own"
                )
            file.seek(place + number.size + fields * field_size)
            following = file.read(link.size)
            place = link.unpack(following)[0] if len(following) == link.size else 0


def check_scans(content: bytes) -> None:
    """Refuse a JPEG of many scans, each of which goes over all pixels.

    Args:
        content: of the file, from its start.

    Raises:
        BadRow: there are too many.
    """
    if content.count(_SCAN) <= _MOST_SCANS:
        return
    # The same bytes may be within a thumbnail, or after the end.
    scans = 0
    marker = _WITH_LENGTH.search(content)
    while marker and marker[1][0] != _END_OF_JPEG:
        scans += marker[0] == _SCAN
        length = int.from_bytes(content[marker.end() : marker.end() + 2])
        marker = _WITH_LENGTH.search(content, marker.end() + max(2, length))
    if scans > _MOST_SCANS:
        raise BadRow(
            f"expected a JPEG of at most {_MOST_SCANS} scans, found {scans}: convert it to PNG"
        )


def _seek_page(image: Image.Image, path: Path, page: int | None) -> None:
    """Turn an opened file to one of its pages; without a number it must have one."""
    pages = _pages(image, path)
    if page is None and len(pages) > 1:
        raise SeveralImages(
            f"expected one image, found {len(pages)} pages in the file: to use them, write "
            "frames: {at_most: 8} into the site file (fedward partition --frames 8)"
        )
    place = pages[page or 0]
    if place:
        image.seek(place)


def open_image(path: Path, smallest: int | None = None, page: int | None = None) -> Image.Image:
    """Read one image file as an image of mode ``L`` or ``RGB``.

    The EXIF orientation is applied if it can be read. Transparency is composited on black. Grey of
    16 bits, 32 bits or floats is shown between two percentiles (:func:`grey_range`): the range of a
    detector is rarely that of its container, and a marker or a broken pixel must not take all the
    greys. Values that are not finite are black. Colour of more than 8 bits a channel, and grey of
    16 with an alpha channel, are refused: Pillow keeps the upper eight alone, in which 12 bits are
    nearly black.

    Args:
        path: of the file.
        smallest: a JPEG may be read at a fraction of its size, but with no side below this; by
            default it is not.
        page: number of the page, from 0, of a file of several; by default there must be one.

    Raises:
        Unreadable: the machine failed to read the file, or had too little memory.
        BadRow: the file is not an image of :data:`FORMATS`, is cut short, is too large (Pillow's
            limit), has too many pages, strips, scans or bytes, has several pages, has more than
            8 bits a channel of colour or beside an alpha channel, or cannot be decoded for another
            reason.
    """
    with _explained(path), open_with_pillow(path) as image:
        _seek_page(image, path, page)  # Pages may have sizes of their own.
        return _shown(image, path, smallest)


def open_pages(
    path: Path, chosen: Callable[[int], Sequence[int]]
) -> Iterator[tuple[int, Image.Image]]:
    """Yield number and image, as :func:`open_image`, of pages of a file, which is opened once.

    Args:
        path: of the file.
        chosen: returns the numbers of the pages, from 0 and ascending, given how many there are.

    Raises:
        Unreadable: as :func:`open_image`.
        BadRow: likewise, or all the pages together have too many pixels.
    """
    with _explained(path), open_with_pillow(path) as image:
        pages = _pages(image, path)
        taken = 0
        for number in chosen(len(pages)):
            image.seek(pages[number])
            taken += image.width * image.height
            _check_sum(taken, "more")
            # The next page may be read into the same image.
            yield number, _shown(image, path).copy()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what Pillow raises while it reads a file into BadRow or Unreadable."""
    try:
        yield
    except BadRow:
        raise
    except Exception as error:
        # Decoders fail in many ways at a damaged file. The other files are still good.
        raise _kind(error)(f"expected a whole image, found {_why(error, path)}") from None


def _shown(image: Image.Image, path: Path, smallest: int | None = None) -> Image.Image:
    """Return the page that an opened file is turned to; see :func:`open_image`."""
    check_pixels(image)
    parts = len(getattr(image, "tile", ()))
    if parts > _MOST_PARTS:
        raise BadRow(
            f"expected at most {_MOST_PARTS} strips or tiles, found {parts}: convert it to PNG"
        )
    if isinstance(image, JpegImageFile):
        byte_count = path.stat().st_size
        if byte_count > _MOST_BYTES:
            raise BadRow(f"expected a JPEG of at most {_MOST_BYTES} bytes, found {byte_count}")
        check_scans(path.read_bytes())
    if smallest:
        # A JPEG is decoded without the detail that a resize would average away.
        image.draft(None, (smallest, smallest))
    deep = _deep_channels(image)
    if deep:
        raise BadRow(f"expected {deep} of 8 bits a channel, found more: convert to 8 bit")
    image.load()
    if is_deep(image):
        return Image.fromarray(_shown_between_percentiles(image))
    return _eight_bits(_upright(image))


def _why(error: Exception, path: Path) -> str:
    """Return why a file could not be decoded, without its path."""
    if isinstance(error, UnidentifiedImageError):
        with path.open("rb") as file:
            start = file.read(max(map(len, _STARTS)))
        if not start:
            return "an empty file"
        for known_start, description in _STARTS.items():
            if start.startswith(known_start):
                return description
        if start[4:8] == _FILM:
            return f"a HEIC or AVIF image or a film, {_NOT_READ}"
        return f"a file that is not one of {_ALL_FORMATS}"
    if isinstance(error, MemoryError):
        return "too little memory to read it"
    words = str(error) or type(error).__name__
    of_system = getattr(error, "strerror", None)
    if of_system:
        # The system begins it as a sentence of its own.
        words = f"{of_system[0].lower()}{of_system[1:]}"
    return words if _kind(error) is Unreadable else f"a damaged file ({words})"


def as_image(pixels: Pixels) -> Image.Image:
    """Return uint8 (H, W), (H, W, 1) or (H, W, 3) as a Pillow image."""
    if pixels.shape[2:] == (1,):
        pixels = pixels[..., 0]
    return Image.fromarray(np.ascontiguousarray(pixels))


def is_blank(pixels: Pixels) -> bool:
    """Return whether every channel of an image (H, W, C) is constant."""
    return bool((pixels == pixels[:1, :1]).all())


def check_not_blank(pixels: Pixels) -> None:
    """Refuse a blank image.

    Args:
        pixels: (H, W, C).

    Raises:
        Blank: every channel is constant.
    """
    if is_blank(pixels):
        raise Blank(EVERY_PIXEL_THE_SAME)


def fit(image: Image.Image, size: int, channels: int, how: Fit = "squash") -> Pixels:
    """Return an 8-bit Pillow image as uint8 (size, size, channels).

    The picture, or with ``crop`` the central square of its shorter side, is resized with an
    antialiased bilinear filter.
    """
    if how == "crop":
        side = min(image.size)
        left = (image.width - side) // 2
        top = (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side))
    converted = image.convert("L" if channels == 1 else "RGB")
    if converted.size != (size, size):
        converted = converted.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(converted, np.uint8).reshape(size, size, channels)


def is_deep(image: Image.Image) -> bool:
    """Return whether an image is grey with more than 8 bits, or with 8 of which one is a sign."""
    return image.mode.startswith(("I", "F")) or _is_signed(image)


def _is_signed(image: Image.Image) -> bool:
    """Return whether a TIFF holds grey of 8 bits with a sign, which Pillow takes for none."""
    if not isinstance(image, TiffImageFile) or image.mode != "L":
        return False
    return bool(image.tag_v2.get(SAMPLEFORMAT, (1,)) == (2,))


def white_is_zero(image: Image.Image) -> bool:
    """Return whether the lowest value of a deep image is white, which Pillow leaves to its user."""
    if not isinstance(image, TiffImageFile):
        return False
    return bool(image.tag_v2.get(PHOTOMETRIC_INTERPRETATION) == 0)


def deep_values(image: Image.Image) -> npt.NDArray[Any]:
    """Return the values (H, W) of a loaded, deep image, upright."""
    values = np.asarray(_upright(image))
    if _is_signed(image):
        values = values.view(np.int8)
    if isinstance(image, TiffImageFile) and values.dtype == np.int32:
        tags = image.tag_v2
        if tags.get(BITSPERSAMPLE) == (32,) and tags.get(SAMPLEFORMAT, (1,)) == (1,):
            # Pillow has no mode for numbers without a sign.
            return values.view(np.uint32)
    return values


def without_value(image: Image.Image, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which pixels (H, W) of a deep image show nothing: not finite, or transparent.

    Args:
        image: loaded.
        values: of :func:`deep_values`.
    """
    if values.dtype.kind == "f":
        return np.asarray(~np.isfinite(values))
    # A PNG may name one grey that is transparent.
    transparent = image.info.get("transparency")
    if transparent is None:
        return np.zeros(values.shape, np.bool_)
    return np.asarray(values == transparent)


def _deep_channels(image: Image.Image) -> str:
    """Return what a file holds of which Pillow will drop all bits but the upper eight, in words.

    It is empty where none are dropped. The image is not yet loaded.
    """
    if is_deep(image):
        return ""
    if isinstance(image, TiffImageFile):
        return "colours" if max(image.tag_v2.get(BITSPERSAMPLE, (1,))) > 8 else ""
    for tile in getattr(image, "tile", ()):
        if "LA;16" in str(tile.args):
            return "grey with transparency"
        if ";16" in str(tile.args) or _is_deep_ppm(image, tile.args):
            return "colours"
    return ""


def _is_deep_ppm(image: Image.Image, args: object) -> bool:
    """Return whether a file is a PPM of colours whose white is above 255.

    ``args``: of its decoder, which end with that number where it is not 255.
    """
    return image.format == "PPM" and isinstance(args, tuple) and args[-1] > 255


def _upright(image: Image.Image) -> Image.Image:
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        # Cameras write all kinds of EXIF, and the pixels are good without it.
        return image
    return image if turn is None else image.transpose(turn)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return a loaded image that is not deep as one of mode ``L`` or ``RGB``."""
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", opaque.size, (0, 0, 0, 255)), opaque)
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _shown_between_percentiles(image: Image.Image) -> Pixels:
    """Return the values of a deep image as 0..255; :func:`without_value` are black."""
    values = deep_values(image)
    outside = without_value(image, values)
    if not outside.any():
        shown = between(values, *grey_range(values))
        return 255 - shown if white_is_zero(image) else shown
    if outside.all():
        raise BadRow("expected pixel values, found NaN, infinity or transparent ones alone")
    low, high = grey_range(values[~outside])
    shown = between(np.where(outside, low, values), low, high)
    if white_is_zero(image):
        shown = 255 - shown
    shown[outside] = 0
    return shown


def grey_range(values: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the values that are shown black and white: percentiles 1 and 99.

    They are the lowest and the highest value where both percentiles are the same. Of 131,072 floats
    or more, or as many whole numbers of a wider range than 65,536, only evenly spaced ones count,
    at least 65,536.

    Args:
        values: finite numbers, at least one.
    """
    lowest = values.min()
    highest = values.max()
    if values.dtype.kind in "iu" and int(highest) - int(lowest) < _MOST_COUNTED:
        # Counts are of 0 and up, so that only negative numbers have to be moved.
        offset = min(0, int(lowest)) if int(highest) < _MOST_COUNTED else int(lowest)
        counts = _counts(values, offset, int(highest))
        low, high = (offset + _percentile(counts, part) for part in _SHOWN_PERCENTILES)
    else:
        step = max(1, values.size // _MOST_SORTED)
        low, high = np.percentile(values.ravel()[::step], _SHOWN_PERCENTILES).tolist()
    return (low, high) if low < high else (float(lowest), float(highest))


def _counts(values: npt.NDArray[Any], lowest: int, highest: int) -> npt.NDArray[np.intp]:
    """Return how often each whole number from ``lowest`` to ``highest`` occurs."""
    flat = values.ravel()
    counts = np.zeros(highest - lowest + 1, np.intp)
    # In parts, as NumPy counts in numbers of 64 bits.
    for start in range(0, flat.size, _COUNTED_AT_ONCE):
        part = flat[start : start + _COUNTED_AT_ONCE].astype(np.intp)
        counts += np.bincount(part - lowest, minlength=len(counts))
    return counts


def _percentile(counts: npt.NDArray[np.intp], part: float) -> float:
    """Return a percentile, interpolated as NumPy does, of numbers that occur so often each."""
    up_to = counts.cumsum()
    place = part / 100 * (int(up_to[-1]) - 1)
    before, after = np.searchsorted(up_to, [int(place), math.ceil(place)], side="right").tolist()
    return float(before + (place - int(place)) * (after - before))


def between(values: npt.NDArray[Any], low: float, high: float) -> Pixels:
    """Return finite values as 0..255, with ``low`` black and ``high`` white; equal: all black."""
    if values.dtype.kind in "iu":
        lowest = int(values.min())
        levels = int(values.max()) - lowest + 1
        if levels < values.size:
            # Each value that may occur is scaled once.
            table = _scaled(np.arange(lowest, lowest + levels), low, high)
            return looked_up(table, values, lowest)
    return _scaled(values, low, high)


def looked_up(table: Pixels, values: npt.NDArray[Any], lowest: int) -> Pixels:
    """Return what a table, whose first entry is of the value ``lowest``, says of whole numbers."""
    flat = values.ravel()
    pixels = np.empty(flat.shape, np.uint8)
    # All places in the table at once would need eight times the memory of the picture.
    for start in range(0, flat.size, _SCALED_AT_ONCE):
        part = flat[start : start + _SCALED_AT_ONCE].astype(np.intp)
        pixels[start : start + _SCALED_AT_ONCE] = table[part - lowest]
    return pixels.reshape(values.shape)


def _scaled(values: npt.NDArray[Any], low: float, high: float) -> Pixels:
    """Return :func:`between` of values, each of which is computed."""
    flat = values.ravel()
    pixels = np.empty(flat.shape, np.uint8)
    factor = 255 / (high - low) if high > low else 0
    # In parts that fit into the processor's cache, in double precision.
    for start in range(0, flat.size, _SCALED_AT_ONCE):
        part = flat[start : start + _SCALED_AT_ONCE].astype(np.float64)
        part -= low
        part *= factor
        np.clip(part, 0, 255, out=part)
        pixels[start : start + _SCALED_AT_ONCE] = np.rint(part, out=part)
    return pixels.reshape(values.shape)
