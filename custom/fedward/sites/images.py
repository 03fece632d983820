"""Image files to uint8 arrays: decoded once, resized, cached on disk, and opened as a memmap ever after."""

import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image
from PIL.Image import Transpose
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile

from fedward import private
from fedward.errors import DataError
from fedward.sites import caches
from fedward.sites.data import BadRow, Pixels

_FORMAT = 2  # of the cache: raise it when the same file would give other pixels
_THREADS = 4
_TURNS = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
"""EXIF orientation -> what shows the image upright."""


class Unreadable(BadRow):
    """A file cannot be read now, for a reason of the machine: it may be whole."""


class _Failure(NamedTuple):
    reason: str
    may_pass: bool


def locate(folder: Path, name: str) -> Path:
    """Return the file a row names, if it lies in the folder.

    Raises:
        BadRow: the path is absolute, leaves the folder (``..`` or a link), or is no file.
    """
    if not name or "\0" in name:
        raise BadRow(f"expected the path of an image, found {name!r}")
    root = folder.resolve()
    if Path(name).is_absolute():
        raise BadRow(f"expected a path relative to {folder}, found {name!r}")
    try:
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise BadRow(f"expected a path inside {folder}, found {name!r}, which leaves it")
        if not path.is_file():
            raise BadRow(f"expected an image file, found none at {name!r}")
    except OSError as error:
        raise BadRow(f"expected an image file at {name!r}, found {error.strerror}") from None
    return path


def decode(path: Path, size: int, channels: int) -> Pixels:
    """Read one image file as uint8 (size, size, channels).

    Grey becomes RGB or RGB becomes grey (ITU-R 601 luma). The picture is squashed to a square with an antialiased
    bilinear filter.

    Raises:
        Unreadable: as :func:`open_image`.
        BadRow: as :func:`open_image`, or the image shows one constant value.
    """
    pixels = fit(open_image(path, smallest=2 * size), size, channels)
    check_not_blank(pixels)
    return pixels


def open_image(path: Path, smallest: int | None = None) -> Image.Image:
    """Read one image file with 8 bits a channel.

    The EXIF orientation is applied if it can be read. Transparency is composited on black. Grey of 16 bits, 32 bits or
    floats is scaled from its own minimum..maximum to 0..255: the range of a detector is rarely that of its container.
    Colour of 16 bits a channel is refused: Pillow reads the upper eight alone, in which 12 bits are nearly black.

    Args:
        path: of the file.
        smallest: a JPEG may be read at a fraction of its size, but with no side below this; by default it is not.

    Raises:
        Unreadable: the machine failed to read the file, or had too little memory.
        BadRow: the file is no image, is cut short, is too large (Pillow's limit), has colours of 16 bits, or cannot be
            decoded for whatever else.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                if smallest:
                    image.draft(None, (smallest, smallest))  # skip detail that a resize would average away
                if _deep_colour(image):
                    raise BadRow("expected colours of 8 bits a channel, found 16: convert to 8 bit")
                image.load()
                return _eight_bits(_upright(image))
    except BadRow:
        raise
    except Exception as error:  # whatever a decoder makes of one damaged file, the others are still good
        # Pillow's own errors about a file's content are OSErrors, too, but carry no number.
        machine = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)
        kind = Unreadable if machine else BadRow
        raise kind(f"expected a whole image, found {type(error).__name__}: {error}") from None


def as_image(pixels: Pixels) -> Image.Image:
    """Return uint8 (H, W), (H, W, 1) or (H, W, 3) as a Pillow image."""
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels))


def check_not_blank(pixels: Pixels) -> None:
    """Refuse an image (H, W, C) in which every channel is constant.

    Raises:
        BadRow: it is.
    """
    if (pixels == pixels[:1, :1]).all():
        raise BadRow("expected an image, found a blank one: every pixel is the same")


def fit(image: Image.Image, size: int, channels: int) -> Pixels:
    """Return an 8-bit Pillow image as uint8 (size, size, channels): converted, then squashed to the square."""
    converted = image.convert("L" if channels == 1 else "RGB")
    if converted.size != (size, size):
        converted = converted.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(converted, np.uint8).reshape(size, size, channels)


def _deep_colour(image: Image.Image) -> bool:
    """Return whether Pillow will drop the lower half of an image's 16 bits; to be asked before it is loaded."""
    if image.mode.startswith(("I", "F")):
        return False
    if isinstance(image, TiffImageFile):
        return bool(max(image.tag_v2.get(BITSPERSAMPLE, (1,))) > 8)
    return any(";16" in str(tile.args) for tile in getattr(image, "tile", ()))


def _upright(image: Image.Image) -> Image.Image:
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # cameras write all kinds of EXIF, and the pixels are good without
        turn = None
    return image if turn is None else image.transpose(turn)


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image, np.float64)
        low, high = float(values.min()), float(values.max())
        if not np.isfinite([low, high]).all():
            raise BadRow("expected finite pixel values, found NaN or infinity")
        scaled = (values - low) * (255 / (high - low) if high > low else 0)
        return Image.fromarray(scaled.round().astype(np.uint8))
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", opaque.size, (0, 0, 0, 255)), opaque)
    return image


def decode_files(
    paths: Sequence[Path], size: int, channels: int, cache: Path | None, site: str
) -> tuple[Pixels, dict[int, str]]:
    """Decode many files, once.

    Args:
        paths: files that exist.
        size: height and width of the result.
        channels: 1 or 3.
        cache: folder for the decoded pixels; None keeps them in memory only. The name of a cache is a hash of the file
            list (paths, sizes, modification times), size, channels and format version. It is written to a temporary
            file and moved into place, so processes that build it at the same time end with the same whole file; a
            damaged one (length or checksum) is built again, and so is one without a file that the machine could not
            read then and can now. The newest caches of a folder stay, and those in use
            (:func:`fedward.sites.caches.keep_newest`).
        site: name for messages.

    Returns:
        uint8 (M, size, size, channels) of the M files that could be read, in the order of the paths (a read-only memmap
        if cached), and the reasons of the others by their index in ``paths``.

    Raises:
        DataError: the cache folder cannot be written.
    """

    def read(index: int) -> Pixels | _Failure:
        try:
            return decode(paths[index], size, channels)
        except BadRow as problem:
            return _Failure(str(problem), isinstance(problem, Unreadable))

    def still_fails(index: int) -> bool:
        again = read(index)
        return isinstance(again, _Failure) and again.may_pass

    def good() -> Iterator[Pixels]:
        with ThreadPoolExecutor(_THREADS) as pool:
            for index, result in enumerate(pool.map(read, range(len(paths)))):
                if isinstance(result, _Failure):
                    failed[index] = result
                else:
                    yield result

    failed: dict[int, _Failure] = {}
    shape = (size, size, channels)
    if cache is None or not paths:
        images = list(good())
        pixels = np.array(images, np.uint8).reshape(len(images), *shape)
    else:
        try:
            private.make_folder(cache)
            target = cache / f"{_key(paths, size, channels)}.npy"
            known = _open(target, shape)
            if known and all(still_fails(index) for index, failure in known[1].items() if failure.may_pass):
                pixels, failed = known
            else:
                whole = (image[None] for image in good())
                pixels = caches.write(target, whole, shape, np.uint8, lambda: {"failed": failed})
            caches.touch(target)
            caches.keep_newest(cache)
        except OSError as error:
            where, remedy = f"site {site}, cache {cache}", "Name another cache folder."
            raise DataError(where, expected="room to write", found=str(error), remedy=remedy) from None
    return pixels, {index: failure.reason for index, failure in failed.items()}


def _key(paths: Sequence[Path], size: int, channels: int) -> str:
    states = [(str(path), state.st_size, state.st_mtime_ns) for path in paths for state in (path.stat(),)]
    return hashlib.sha256(json.dumps([_FORMAT, size, channels, states]).encode()).hexdigest()[:32]


def _open(target: Path, shape: tuple[int, int, int]) -> tuple[Pixels, dict[int, _Failure]] | None:
    try:
        if (known := caches.read(target, np.uint8)) is None or known[0].shape[1:] != shape:
            return None
        return known[0], {int(index): _Failure(*failure) for index, failure in known[1]["failed"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
