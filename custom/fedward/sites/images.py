"""Image files to uint8 arrays: decoded once, resized, cached on disk, and opened as a memmap ever after."""

import hashlib
import json
import os
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps

from fedward.errors import DataError
from fedward.sites.data import BadRow, Pixels

_FORMAT = 1  # of the cache: raise it when the same file would give other pixels
_THREADS = 4


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

    The EXIF orientation is applied; transparency is composited on black; grey becomes RGB or RGB becomes grey (ITU-R
    601 luma); 16-bit, 32-bit and float images are scaled from their own minimum..maximum to 0..255 (the range of a
    detector is rarely that of its container); the picture is squashed to a square with an antialiased bilinear filter.

    Raises:
        BadRow: the file is no image, is cut short, is too large (Pillow's limit), or shows one constant value.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                image.draft(None, (2 * size, 2 * size))  # JPEG: skip detail that the resize would average away
                image.load()
                pixels = fit(_eight_bits(ImageOps.exif_transpose(image)), size, channels)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError, Warning) as error:
        raise BadRow(f"expected a whole image, found {type(error).__name__}: {error}") from None
    check_not_blank(pixels)
    return pixels


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


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image, np.float64)
        low, high = float(values.min()), float(values.max())
        if not np.isfinite([low, high]).all():
            raise BadRow("expected finite pixel values, found NaN or infinity")
        scaled = (values - low) * (255 / (high - low) if high > low else 0)
        return Image.fromarray(scaled.round().astype(np.uint8))
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
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
            damaged one (length or checksum) is built again.
        site: name for messages.

    Returns:
        uint8 (M, size, size, channels) of the M files that could be read, in the order of the paths (a read-only memmap
        if cached), and the reasons of the others by their index in ``paths``.

    Raises:
        DataError: the cache folder cannot be written.
    """
    failed: dict[int, str] = {}
    shape = (size, size, channels)

    def good() -> Iterable[Pixels]:
        with ThreadPoolExecutor(_THREADS) as pool:
            for index, result in enumerate(pool.map(lambda path: _try(decode, path, size, channels), paths)):
                if isinstance(result, str):
                    failed[index] = result
                else:
                    yield result

    if cache is None or not paths:
        images = list(good())
        return (np.stack(images) if images else np.zeros((0, *shape), np.uint8)), failed
    try:
        cache.mkdir(parents=True, exist_ok=True)
        target = cache / f"{_key(paths, size, channels)}.npy"
        known = _open(target, shape)
        if known is not None:
            return known
        _write(target, good(), failed, shape)
    except OSError as error:
        raise DataError(
            f"site {site}, cache {cache}",
            expected="room to write",
            found=str(error),
            remedy="Name another cache folder.",
        ) from None
    # Decoded just now, so a second damage is a failing disk and may be an error.
    return np.load(target, mmap_mode="r"), failed


def _try(read: Callable[[Path, int, int], Pixels], path: Path, size: int, channels: int) -> Pixels | str:
    try:
        return read(path, size, channels)
    except BadRow as problem:
        return str(problem)


def _key(paths: Sequence[Path], size: int, channels: int) -> str:
    states = [(str(path), state.st_size, state.st_mtime_ns) for path in paths for state in (path.stat(),)]
    return hashlib.sha256(json.dumps([_FORMAT, size, channels, states]).encode()).hexdigest()[:32]


def _open(target: Path, shape: tuple[int, int, int]) -> tuple[Pixels, dict[int, str]] | None:
    try:
        notes = json.loads(target.with_suffix(".json").read_text())
        pixels: Pixels = np.load(target, mmap_mode="r", allow_pickle=False)
        whole = pixels.shape[1:] == shape and pixels.dtype == np.uint8 and _checksum(pixels) == notes["crc32"]
        return (pixels, {int(index): reason for index, reason in notes["failed"].items()}) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _checksum(pixels: Pixels, block: int = 256) -> int:
    crc = 0
    for start in range(0, len(pixels), block):
        crc = zlib.crc32(pixels[start : start + block].tobytes(), crc)
    return crc


def _write(target: Path, images: Iterable[Pixels], failed: dict[int, str], shape: tuple[int, int, int]) -> None:
    """Stream the images to the target; the notes go first, so that whoever sees the pixels finds their notes."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as folder:
        raw, whole, notes = (Path(folder) / name for name in ("raw", "pixels.npy", "notes.json"))
        count = crc = 0
        with raw.open("wb") as file:
            for image in images:
                file.write(image.tobytes())
                crc = zlib.crc32(image.tobytes(), crc)
                count += 1
        with whole.open("wb") as file, raw.open("rb") as body:
            _header(file, (count, *shape))
            while block := body.read(1 << 20):
                file.write(block)
        notes.write_text(json.dumps({"crc32": crc, "failed": failed}))
        os.replace(notes, target.with_suffix(".json"))
        os.replace(whole, target)


def _header(file: IO[bytes], shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
