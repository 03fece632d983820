"""No file, whatever it holds, ends in an error of a decoder: it gives pixels or a reason."""

import io
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dicom_files import RLE, save
from fedward.sites.decoding import FORMATS, BadRow, decode
from fedward.sites.facts import _size
from fedward.sites.files import LeftOut
from fedward.sites.headers import dicom_patients, header_notes
from fedward.sites.identifying import identifying_notes
from fedward.sites.images import decode_file, decode_files
from fedward.sites.rendering import Frames, Rendering, Slices
from nifti_files import body, write
from odd_images import deep_tiff, grey_tiff

SHAPE = (20, 24)
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*SHAPE, 3), np.uint8))
MODES = (
    *("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"),
    *("I", "I;16", "I;16B", "I;16L", "F", "La", "RGBa"),
)
COLOURS = ("P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV")
EVERYTHING = Rendering(frames=Frames(at_most=2), slices=Slices(at_most=2))


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    """Return the bytes of a file; empty if Pillow writes no such mode in this format."""
    content = io.BytesIO()
    try:
        image.save(content, kind, **options)
    except Exception:
        return b""
    return content.getvalue()


def in_mode(picture: Image.Image, mode: str) -> Image.Image:
    """Return a picture in a mode, by way of another where Pillow has no direct way."""
    for between in ("RGB", "L", "LA", "RGBA", "I"):
        try:
            return picture.convert(between).convert(mode)
        except ValueError:
            continue
    raise AssertionError(f"Pillow has no way to mode {mode}")


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_that_pillow_saves_is_read(tmp_path: Path, mode: str) -> None:
    """In its colours, or in grey: a ramp from left to right that turns from red to green."""
    ramp = np.linspace(0, 255, 24)
    colours = np.stack([255 - ramp, ramp, ramp / 2], axis=1)
    picture = Image.fromarray(np.broadcast_to(colours, (24, 24, 3)).round().astype(np.uint8))
    image = in_mode(picture, mode)
    grey = np.asarray(picture.convert("L"), float)
    for kind in FORMATS:
        content = saved(image, kind)
        if not content:
            continue
        path = tmp_path / "x"
        path.write_bytes(content)
        pixels = decode_file(path, 24, 1)[""]
        assert pixels.shape == (24, 24, 1)
        assert np.corrcoef(pixels.ravel(), grey.ravel())[0, 1] > (0.2 if mode == "1" else 0.9)
        pixels = decode_file(path, 24, 3)[""]
        assert pixels.shape == (24, 24, 3)
        if mode in COLOURS:
            assert np.abs(pixels - colours).mean() < (40 if mode in ("P", "PA") else 12)
        else:
            assert (pixels == pixels[..., :1]).all()


def test_a_tiff_whose_lowest_value_is_white_is_inverted(tmp_path: Path) -> None:
    values = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    for white_is_zero in (False, True):
        (tmp_path / "x.tif").write_bytes(grey_tiff(values, 0 if white_is_zero else 1))
        pixels = decode(tmp_path / "x.tif", 64, 1)[..., 0]
        assert (pixels[0, 0], pixels[-1, -1]) == ((255, 0) if white_is_zero else (0, 255))


def test_whole_numbers_of_32_bits_without_a_sign_are_read(tmp_path: Path) -> None:
    values = np.linspace(0, 2**32 - 1, 4096).astype(np.uint32).reshape(64, 64)
    (tmp_path / "x.tif").write_bytes(grey_tiff(values, 1))
    pixels = decode(tmp_path / "x.tif", 64, 1)[..., 0]
    assert (np.diff(pixels.ravel().astype(int)) >= 0).all()


def test_a_tiff_of_a_rare_kind_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "x.tif").write_bytes(grey_tiff(np.zeros((8, 8), np.float64), 1))
    with pytest.raises(BadRow, match="a TIFF that is damaged or of a rare kind: convert it to PNG"):
        decode(tmp_path / "x.tif", 16, 1)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"\x5c\1\0\0", "save it as one .nii.gz file"),
        (b"NRRD0004", "a volume in NRRD: convert it"),
        (b"\x1f\x8b\x08", "a compressed file: a volume must be NIfTI"),
    ],
)
def test_volumes_of_other_formats_are_named(tmp_path: Path, start: bytes, said: str) -> None:
    (tmp_path / "x.img").write_bytes(start + bytes(400))
    with pytest.raises(BadRow, match=said):
        decode_file(tmp_path / "x.img", 16, 1)


def whole_files(folder: Path) -> dict[str, bytes]:
    """Return name -> bytes of files of all kinds."""
    deep = np.random.default_rng(1).integers(0, 4096, SHAPE, np.uint16)
    files = {}
    for kind in FORMATS:
        files[kind] = saved(PICTURE, kind)
    files["deep PNG"] = saved(Image.fromarray(deep), "PNG")
    files["palette"] = saved(PICTURE.convert("P"), "PNG")
    files["CMYK"] = saved(PICTURE.convert("CMYK"), "JPEG")
    for packed in ("tiff_lzw", "tiff_adobe_deflate", "jpeg"):
        files[packed] = saved(PICTURE, "TIFF", compression=packed)
    files["floats"] = saved(Image.fromarray(deep.astype(np.float32)), "TIFF")
    files["deep TIFF"] = deep_tiff(np.stack([deep] * 3, axis=2))
    tags = {"BitsStored": 12, "WindowCenter": 900, "WindowWidth": 99, "PixelPaddingValue": 3}
    files["DICOM"] = save(folder / "x", deep, **tags).read_bytes()
    files["no preamble"] = files["DICOM"][132:]
    files["RLE"] = save(folder / "x", deep, RLE, **tags).read_bytes()
    files["NIfTI"] = write(folder / "x.nii", body()).read_bytes()
    return files


def damaged(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """Return a file that is cut, changed, or continued by another one."""
    spoilt = bytearray(content)
    place = rng.randrange(min(len(spoilt), rng.choice([64, 500, 100_000])))
    kind = rng.choice(["cut", "bytes", "large", "zero", "other", "more"])
    if kind == "cut":
        return bytes(spoilt[:place])
    if kind == "bytes":
        for _ in range(rng.choice([1, 9, 60])):
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
    elif kind in ("large", "zero"):
        spoilt[place : place + 4] = (b"\xff" if kind == "large" else b"\0") * rng.choice([2, 4])
    elif kind == "other":
        spoilt[place:] = other[place:]
    else:
        spoilt[place:place] = rng.randbytes(rng.choice([1, 7, 300]))
    return bytes(spoilt)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "BMP"])
def test_a_file_without_its_second_half_is_called_damaged(tmp_path: Path, kind: str) -> None:
    Image.effect_noise((64, 64), 80).save(tmp_path / "x", kind)
    content = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(content[: len(content) // 2])
    with pytest.raises(BadRow, match=r"^expected a whole image, found a damaged file \(.+\)$"):
        decode(tmp_path / "x", 24, 1)


def test_a_damaged_file_gives_pixels_or_a_reason(tmp_path: Path) -> None:
    rng = random.Random(0)
    files = whole_files(tmp_path)
    names = list(files)
    read = 0
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module=r"PIL\.|pydicom")
        for number in range(400):
            name = names[number % len(names)]
            path = tmp_path / f"damaged{'.nii' if name == 'NIfTI' else ''}"
            path.write_bytes(damaged(files[name], files[rng.choice(names)], rng))
            channels = rng.choice([1, 3])
            images, reasons, _ = decode_files([path], 16, channels, None, "s", EVERYTHING)
            assert images.shape[1:] == (16, 16, channels)
            assert len(images) or reasons[0].reason
            read += bool(len(images))
            refused += bool(reasons)
            # The headers are read on their own before the pixels.
            LeftOut().images([path])
            _size(path)
            header_notes([path], False)
            dicom_patients([path])
            if number % 4 == 0:
                identifying_notes({"x": path}, EVERYTHING)
    assert read > 60
    assert refused > 100


@pytest.mark.parametrize("size", [(0, 0), (0, 7), (2**31 - 1, 2**31 - 1), (60_000, 60_000)])
@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "DICOM"])
def test_no_size_is_too_small_or_too_large(
    tmp_path: Path, kind: str, size: tuple[int, int]
) -> None:
    width, height = size
    if kind == "PNG":
        content = bytearray(saved(PICTURE, "PNG"))
        content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    elif kind == "BMP":
        content = bytearray(saved(PICTURE, "BMP"))
        content[18:26] = width.to_bytes(4, "little") + height.to_bytes(4, "little")
    elif kind == "PPM":
        content = bytearray(b"P5 %d %d 255\n" % size + bytes(99))
    else:
        tags = {"Rows": height % 2**16, "Columns": width % 2**16}
        path = save(tmp_path / "y", np.zeros((8, 8), np.uint16), **tags)
        content = bytearray(path.read_bytes())
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BadRow):
        decode_file(tmp_path / "x", 16, 1)


def test_an_image_just_over_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow itself only warns of less than twice its limit."""
    PICTURE.save(tmp_path / "x.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    warnings.simplefilter("ignore")
    with pytest.raises(BadRow, match="at most 400 pixels, found 480"):
        decode(tmp_path / "x.png", 16, 1)
