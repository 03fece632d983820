import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedward.errors import DataError
from fedward.sites.data import BadRow
from fedward.sites.images import decode, decode_files

HALVES = np.repeat([[40, 200]], 8, axis=1).reshape(1, 16).repeat(16, axis=0).astype(np.uint8)  # dark left, light right


def save(path: Path, image: Image.Image, **options) -> Path:
    image.save(path, **options)
    return path


def test_sixteen_bits_are_scaled_by_their_range_not_clipped(tmp_path):
    twelve_bits = np.linspace(0, 4095, 256).round().astype(np.uint16).reshape(16, 16)
    pixels = decode(save(tmp_path / "a.png", Image.fromarray(twelve_bits)), 16, 1)[..., 0]
    assert pixels.ravel().tolist() == list(range(256))
    shifted = decode(save(tmp_path / "b.png", Image.fromarray(twelve_bits + np.uint16(50000))), 16, 1)[..., 0]
    assert shifted.ravel().tolist() == list(range(256))


def test_float_images_are_scaled_and_must_be_finite(tmp_path):
    values = np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16)
    assert decode(save(tmp_path / "a.tif", Image.fromarray(values)), 16, 1).ravel().tolist() == list(range(256))
    values[0, 0] = np.nan
    with pytest.raises(BadRow, match="NaN"):
        decode(save(tmp_path / "b.tif", Image.fromarray(values)), 16, 1)


@pytest.mark.parametrize("mode", ["L", "1", "P", "LA", "RGBA", "CMYK", "RGB"])
@pytest.mark.parametrize("channels", [1, 3])
def test_modes_become_the_channels_asked_for(tmp_path, mode, channels):
    image = Image.fromarray(HALVES).convert("RGB").convert(mode)
    pixels = decode(save(tmp_path / ("a.tif" if mode == "CMYK" else "a.png"), image), 16, channels)
    assert pixels.shape == (16, 16, channels)
    left, right = (0, 255) if mode == "1" else (40, 200)
    assert pixels[:, :4].mean() == pytest.approx(left, abs=40 if mode == "1" else 3)
    assert pixels[:, -4:].mean() == pytest.approx(right, abs=60 if mode == "1" else 3)


def test_rgb_becomes_luma(tmp_path):
    image = np.zeros((16, 16, 3), np.uint8)
    image[:8] = (255, 0, 0)
    assert decode(save(tmp_path / "a.png", Image.fromarray(image)), 16, 1)[0, 0, 0] == 76


def test_transparency_lies_on_black(tmp_path):
    image = np.full((16, 16, 4), 200, np.uint8)
    image[:, :8, 3], image[:, 8:, 3] = 0, 255
    pixels = decode(save(tmp_path / "a.png", Image.fromarray(image)), 16, 3)
    assert (pixels[:, :8] == 0).all()
    assert (pixels[:, 8:] == 200).all()


def test_transparent_palette(tmp_path):
    image = Image.fromarray(HALVES).convert("P")
    image.info["transparency"] = image.getpixel((0, 0))
    pixels = decode(save(tmp_path / "a.png", image, transparency=image.info["transparency"]), 16, 3)
    assert (pixels[:, :8] == 0).all()
    assert (pixels[:, 8:] == 200).all()


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise: what was on the left is on top
    path = save(tmp_path / "a.jpg", Image.fromarray(HALVES), exif=exif, quality=95)
    pixels = decode(path, 16, 1)
    assert pixels[:6].mean() < 60
    assert pixels[-6:].mean() > 180


def test_resizing_squashes_and_averages(tmp_path):
    stripes = np.tile(np.array([[0, 254]], np.uint8), (32, 64))
    pixels = decode(save(tmp_path / "a.png", Image.fromarray(np.vstack([stripes, stripes * 0 + 60]))), 16, 1)
    assert pixels[2, 3:-3].ravel() == pytest.approx(127, abs=3)


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    path = save(tmp_path / "a.png", Image.fromarray(HALVES))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(BadRow, match="Decompression"):
        decode(path, 16, 1)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for index in range(6):
        image = Image.fromarray(rng.integers(0, 256, (20, 20, 3), np.uint8))
        paths.append(save(tmp_path / f"{index}.png", image))
    Image.new("RGB", (9, 9)).save(paths[4])
    return paths


def test_the_cache_gives_the_same_without_decoding(files, tmp_path, monkeypatch):
    plain, failed = decode_files(files, 16, 3, None, "s")
    assert set(failed) == {4}
    first, _ = decode_files(files, 16, 3, tmp_path / "cache", "s")
    monkeypatch.setattr("fedward.sites.images.decode", None)
    again, notes = decode_files(files, 16, 3, tmp_path / "cache", "s")
    assert isinstance(again, np.memmap)
    assert np.array_equal(plain, again)
    assert np.array_equal(first, again)
    assert notes == failed
    assert not again.flags.writeable


def test_the_cache_knows_size_channels_and_files(files, tmp_path):
    cache = tmp_path / "cache"
    assert decode_files(files, 16, 3, cache, "s")[0].shape == (5, 16, 16, 3)
    assert decode_files(files, 8, 3, cache, "s")[0].shape == (5, 8, 8, 3)
    assert decode_files(files, 16, 1, cache, "s")[0].shape == (5, 16, 16, 1)
    assert decode_files(files[:2], 16, 3, cache, "s")[0].shape == (2, 16, 16, 3)
    Image.new("RGB", (90, 90)).save(files[0])
    assert set(decode_files(files, 16, 3, cache, "s")[1]) == {0, 4}
    assert len(list(cache.glob("*.npy"))) == 5
    assert not list(cache.glob(".building*"))


@pytest.mark.parametrize("damage", ["cut", "flip", "notes", "no notes", "other"])
def test_a_damaged_cache_is_built_again(files, tmp_path, damage):
    cache = tmp_path / "cache"
    plain, failed = decode_files(files, 16, 3, None, "s")
    decode_files(files, 16, 3, cache, "s")
    target, notes = next(cache.glob("*.npy")), next(cache.glob("*.json"))
    content = target.read_bytes()
    if damage == "cut":
        target.write_bytes(content[:1000])
    elif damage == "flip":
        target.write_bytes(content[:-1] + bytes([content[-1] ^ 255]))
    elif damage == "notes":
        notes.write_text("[1, 2")
    elif damage == "no notes":
        notes.unlink()
    else:
        np.save(target, np.zeros(3))
    pixels, reasons = decode_files(files, 16, 3, cache, "s")
    assert np.array_equal(pixels, plain)
    assert reasons == failed
    assert json.loads(notes.read_text())["failed"] == {"4": failed[4]}


def build(files, cache):
    decode_files(files, 16, 3, cache, "s")


def test_processes_may_build_one_cache_together(files, tmp_path):
    plain, _ = decode_files(files, 16, 3, None, "s")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=build, args=(files, tmp_path / "cache")) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert np.array_equal(decode_files(files, 16, 3, tmp_path / "cache", "s")[0], plain)


def test_all_files_bad_is_an_empty_cache(files, tmp_path):
    for _ in range(2):
        pixels, failed = decode_files(files[4:5], 16, 3, tmp_path / "cache", "s")
        assert pixels.shape == (0, 16, 16, 3)
        assert set(failed) == {0}


def test_a_cache_that_cannot_be_written_is_named(files, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match="site s, cache"):
        decode_files(files, 16, 3, tmp_path / "cache", "s")
