import errno
import json
import multiprocessing
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from fedward.annotation.levels import in_window, levels_of
from fedward.errors import DataError
from fedward.sites import decoding as reading
from fedward.sites.caches import BUILDING, KEPT, building
from fedward.sites.decoding import BadRow, decode, open_image
from fedward.sites.images import _together, decode_files
from odd_images import ODD_TAGS, deep_png, deep_tiff, odd_exif

HALVES = (
    np.repeat([[40, 200]], 8, axis=1).reshape(1, 16).repeat(16, axis=0).astype(np.uint8)
)  # dark left, light right


def save(path: Path, image: Image.Image, **options) -> Path:
    image.save(path, **options)
    return path


def test_sixteen_bits_are_scaled_by_their_range_not_clipped(tmp_path):
    twelve_bits = np.linspace(0, 4095, 256).round().astype(np.uint16).reshape(16, 16)
    pixels = decode(save(tmp_path / "a.png", Image.fromarray(twelve_bits)), 16, 1)[..., 0]
    assert np.array_equal(pixels, between_percentiles(twelve_bits))
    shifted = decode(
        save(tmp_path / "b.png", Image.fromarray(twelve_bits + np.uint16(50000))), 16, 1
    )[..., 0]
    assert np.array_equal(shifted, pixels)


def between_percentiles(values):
    low, high = np.percentile(values, (1, 99))
    return np.clip((values.astype(float) - low) / (high - low) * 255, 0, 255).round()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("a.png", np.arange(4096, dtype=np.uint16)),
        ("a.tif", np.arange(4096, dtype=np.uint16) + 30000),
        ("a.tif", np.arange(4096, dtype=np.int32) * 400_000 - 7),
        ("a.tif", np.linspace(-1e-9, 1e-9, 4096, dtype=np.float32)),
        ("a.pgm", np.arange(4096, dtype=np.uint16)),
    ],
)
def test_a_hot_pixel_or_a_marker_does_not_darken_deep_grey(tmp_path, name, values):
    values = values.reshape(64, 64)
    values[0, :30] = np.iinfo(values.dtype).max if values.dtype.kind in "iu" else 1e9
    pixels = decode(save(tmp_path / name, Image.fromarray(values)), 64, 1)[..., 0]
    assert np.array_equal(pixels, between_percentiles(values))
    assert pixels.std() > 70


def test_few_bright_pixels_on_one_grey_are_seen(tmp_path):
    values = np.full((64, 64), 9, np.uint16)
    values[3:5, 3:9] = 3000
    pixels = decode(save(tmp_path / "a.png", Image.fromarray(values)), 64, 1)[..., 0]
    assert np.array_equal(pixels, np.where(values > 9, 255, 0))


def test_float_images_are_scaled_and_black_where_they_are_not_finite(tmp_path):
    values = np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16)
    pixels = decode(save(tmp_path / "a.tif", Image.fromarray(values)), 16, 1)[..., 0]
    assert np.array_equal(pixels, between_percentiles(values))
    values[12:, 3] = [np.nan, np.inf, -np.inf, np.nan]
    finite = np.isfinite(values)
    pixels = decode(save(tmp_path / "b.tif", Image.fromarray(values)), 16, 1)[..., 0]
    low, high = np.percentile(values[finite], (1, 99))
    expected = np.clip((values - low) / (high - low) * 255, 0, 255).round()
    assert np.array_equal(pixels, np.where(finite, expected, 0))
    values[:] = np.nan
    with pytest.raises(BadRow, match="NaN, infinity or transparent ones alone"):
        decode(save(tmp_path / "c.tif", Image.fromarray(values)), 16, 1)


@pytest.mark.parametrize("kind", ["transparent", "not finite", "not finite, white is zero"])
def test_deep_pixels_without_a_value_are_black_in_every_window(tmp_path, kind):
    values = np.linspace(1000, 3000, 256).round().reshape(16, 16)
    outside = np.zeros((16, 16), np.bool_)
    outside[10:] = True
    if kind == "transparent":
        stored = np.where(outside, 65535, values).astype(np.uint16)
        path = save(tmp_path / "a.png", Image.fromarray(stored), transparency=65535)
    else:
        stored = np.where(outside, np.nan, values).astype(np.float32)
        tags = {262: 0} if "zero" in kind else {}
        path = save(tmp_path / "a.tif", Image.fromarray(stored), tiffinfo=tags)
    low, high = np.percentile(values[~outside], (1, 99))
    shares = np.clip((values - low) / (high - low), 0, 1)
    expected = np.where(outside, 0, (1 - shares if "zero" in kind else shares) * 255)
    picture = open_image(path)
    assert np.abs(np.asarray(picture) - expected).max() <= 0.51
    levels = levels_of(path, picture, None)
    assert (levels.centre, levels.width) == pytest.approx(((low + high) / 2, high - low))
    first = np.asarray(in_window(path, (levels.centre, levels.width)))
    assert np.abs(first - expected).max() <= 0.51
    assert (np.asarray(in_window(path, (0.0, 10.0)))[outside] == 0).all()


@pytest.mark.parametrize(
    ("mode", "channels"),
    [
        ("L", 1),
        ("L", 3),
        ("1", 3),
        ("P", 3),
        ("P", 1),
        ("LA", 1),
        ("RGBA", 3),
        ("CMYK", 3),
        ("RGB", 1),
        ("RGB", 3),
    ],
)
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


TURNED = {
    1: lambda values: values,
    2: np.fliplr,
    3: lambda values: np.rot90(values, 2),
    4: np.flipud,
    5: lambda values: values.swapaxes(0, 1),
    6: lambda values: np.rot90(values, -1),
    7: lambda values: np.rot90(values, 2).swapaxes(0, 1),
    8: np.rot90,
}
"""EXIF orientation -> what shows the rows and columns of a file upright (TIFF 6.0, page 36)."""


@pytest.mark.parametrize("orientation", range(10))
def test_every_orientation_is_shown_as_pillow_shows_it(tmp_path, orientation):
    corner = np.arange(256, dtype=np.uint8).reshape(16, 16)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "a.png", Image.fromarray(corner), exif=exif)
    with Image.open(path) as image:
        assert np.array_equal(
            decode(path, 16, 1)[..., 0], np.asarray(ImageOps.exif_transpose(image))
        )


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["L", "I;16", "RGB"])
@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
def test_every_orientation_of_a_tiff_is_shown(tmp_path, orientation, mode, compression):
    """Of each page: Pillow would take an uncompressed one from a path with rows of another size."""
    rng = np.random.default_rng(0)
    shape = (5, 9, 3) if mode == "RGB" else (5, 9)
    pages = [rng.permutation(np.prod(shape)).reshape(shape) for _ in range(2)]
    kind = np.uint16 if mode == "I;16" else np.uint8
    images = [Image.fromarray(page.astype(kind)) for page in pages]
    tags = {0x0112: orientation}
    path = tmp_path / "a.tif"
    images[0].save(
        path, save_all=True, append_images=images[1:], tiffinfo=tags, compression=compression
    )
    for number, page in enumerate(pages):
        expected = between_percentiles(page) if mode == "I;16" else page
        turned = TURNED[orientation](expected)
        assert np.array_equal(np.asarray(open_image(path, page=number)), turned)


@pytest.mark.parametrize("what", ODD_TAGS)
def test_odd_exif_costs_neither_the_pixels_nor_the_orientation(tmp_path, what):
    path = save(tmp_path / "a.jpg", Image.fromarray(HALVES), exif=odd_exif(what), quality=95)
    with Image.open(path) as image, pytest.raises((TypeError, struct.error, AttributeError)):
        ImageOps.exif_transpose(image)
    pixels = decode(path, 16, 1)
    assert pixels[:6].mean() < 60
    assert pixels[-6:].mean() > 180


def test_an_orientation_that_cannot_be_read_is_none(tmp_path, monkeypatch):
    path = save(tmp_path / "a.jpg", Image.fromarray(HALVES), quality=95)
    monkeypatch.setattr(Image.Image, "getexif", lambda image: {}[0])
    assert decode(path, 16, 1)[:, :6].mean() < 60


@pytest.mark.parametrize("error", [RuntimeError, TypeError, KeyError, ZeroDivisionError])
def test_whatever_a_decoder_raises_costs_one_row(files, monkeypatch, error):
    def damaged(image):
        raise error("a damaged chunk")

    whole, _, _ = decode_files(files, 16, 3, None, "s")
    upright = reading._upright
    second = open_image(files[2]).tobytes()
    monkeypatch.setattr(
        reading,
        "_upright",
        lambda image: (damaged if image.tobytes() == second else upright)(image),
    )
    pixels, failed, _ = decode_files(files, 16, 3, None, "s")
    assert set(failed) == {2, 4}
    assert "a damaged chunk" in failed[2].reason
    assert np.array_equal(pixels, whole[[0, 1, 3, 4]])


DEEP = ["colour.png", "grey and transparency.png", "colour.tif", "colour.ppm", "plain colour.ppm"]


@pytest.mark.parametrize("kind", DEEP)
def test_colours_of_sixteen_bits_are_refused_not_darkened(tmp_path, kind):
    """A detector of 12 bits: the upper eight of sixteen are at most 15."""
    deep = np.random.default_rng(0).integers(0, 4096, (16, 16, 3), np.uint16)
    grey = kind.startswith("grey")
    if kind.endswith(".tif"):
        content = deep_tiff(deep)
    elif kind == "colour.ppm":
        content = b"P6 16 16 65535\n" + deep.astype(">u2").tobytes()
    elif kind == "plain colour.ppm":
        content = b"P3 16 16 65535\n" + " ".join(map(str, deep.ravel())).encode()
    else:
        content = deep_png(deep[..., : 2 if grey else 3], 4 if grey else 2)
    (tmp_path / kind).write_bytes(content)
    with Image.open(tmp_path / kind) as image:
        assert np.asarray(image.convert("RGB")).max() <= 16
    named = "grey with transparency" if grey else "colours"
    with pytest.raises(BadRow, match=f"{named} of 8 bits a channel, found more: convert to 8 bit"):
        decode(tmp_path / kind, 16, 3)


@pytest.mark.parametrize("name", ["a.tif", "a.png", "a.ppm", "a.jpg", "a.bmp"])
def test_colours_of_eight_bits_are_read(tmp_path, name):
    assert (
        decode(save(tmp_path / name, Image.fromarray(HALVES).convert("RGB")), 16, 3)[:, -4:].mean()
        > 180
    )


def test_resizing_squashes_and_averages(tmp_path):
    stripes = np.tile(np.array([[0, 254]], np.uint8), (32, 64))
    pixels = decode(
        save(tmp_path / "a.png", Image.fromarray(np.vstack([stripes, stripes * 0 + 60]))), 16, 1
    )
    assert pixels[2, 3:-3].ravel() == pytest.approx(127, abs=3)


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    path = save(tmp_path / "a.png", Image.fromarray(HALVES))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(BadRow, match="exceeds limit"):
        decode(path, 16, 1)


@pytest.mark.parametrize("large_page", [0, 1])
def test_each_page_is_measured_by_itself(large_page, tmp_path, monkeypatch):
    pages = [Image.fromarray(np.arange(100, dtype=np.uint8).reshape(10, 10))] * 2
    pages[large_page] = Image.fromarray(np.arange(120, dtype=np.uint8).reshape(10, 12))
    path = tmp_path / "a.tif"
    pages[0].save(path, save_all=True, append_images=pages[1:])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 110)
    with pytest.raises(BadRow, match="expected at most 110 pixels, found 120"):
        open_image(path, page=large_page)
    assert open_image(path, page=1 - large_page).size == (10, 10)


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
    plain, failed, _ = decode_files(files, 16, 3, None, "s")
    assert set(failed) == {4}
    first, _, _ = decode_files(files, 16, 3, tmp_path / "cache", "s")
    monkeypatch.setattr("fedward.sites.images.decode", None)
    again, notes, _ = decode_files(files, 16, 3, tmp_path / "cache", "s")
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
    assert len(list(cache.glob("*.npy"))) == KEPT
    assert not list(cache.glob(".building*"))


def names(cache):
    return sorted(path.name for path in cache.iterdir())


@pytest.mark.proves(
    "lead",
    "job after job with other image sizes, to fill a disk",
    "decoded images of the three newest sizes stay",
)
def test_only_the_newest_caches_and_those_in_use_stay(files, tmp_path):
    cache = tmp_path / "cache"
    sizes = range(16, 26)
    plain, _, _ = decode_files(files, 16, 3, None, "s")
    used, _, _ = decode_files(files, 16, 3, cache, "s")
    kept = set(names(cache))
    for size in sizes[1:]:
        decode_files(files, size, 3, cache, "s")
    assert len(names(cache)) == 2 * (KEPT + 1)
    assert kept < set(names(cache))
    assert np.array_equal(used, plain)
    del used
    decode_files(files, 30, 3, cache, "s")
    assert len(names(cache)) == 2 * KEPT
    assert not kept & set(names(cache))
    assert np.array_equal(decode_files(files, 16, 3, cache, "s")[0], plain)


def test_a_cache_that_is_used_again_counts_as_new(files, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    for size in (16, 17, 18, 16, 19, 16, 20):
        decode_files(files, size, 3, cache, "s")
    monkeypatch.setattr("fedward.sites.images.decode", None)
    for size in (16, 19, 20):
        assert decode_files(files, size, 3, cache, "s")[0].shape[1] == size


def use(files, cache, opened, leave):
    pixels, _, _ = decode_files(files, 16, 3, cache, "s")
    opened.set()
    leave.wait()
    os._exit(int(not np.array_equal(pixels, decode_files(files, 16, 3, None, "s")[0])))


def test_a_cache_that_another_process_uses_stays(files, tmp_path):
    cache = tmp_path / "cache"
    context = multiprocessing.get_context("fork")
    opened = context.Event()
    leave = context.Event()
    process = context.Process(target=use, args=(files, cache, opened, leave))
    process.start()
    assert opened.wait(60)
    kept = set(names(cache))
    for size in range(17, 22):
        decode_files(files, size, 3, cache, "s")
    assert kept < set(names(cache))
    leave.set()
    process.join()
    assert process.exitcode == 0
    decode_files(files, 30, 3, cache, "s")
    assert not kept & set(names(cache))


def test_only_the_half_built_cache_of_a_dead_process_is_removed(files, tmp_path):
    cache = tmp_path / "cache"
    left = cache / f"{BUILDING}left"
    left.mkdir(parents=True)
    (left / "raw").write_bytes(b"x")
    with building(cache):
        decode_files(files, 16, 3, cache, "s")
        assert left.exists()
    decode_files(files, 17, 3, cache, "s")
    assert len(names(cache)) == 4
    assert not left.exists()


@pytest.mark.parametrize("damage", ["cut", "flip", "notes", "deep notes", "no notes", "other"])
def test_a_damaged_cache_is_built_again(files, tmp_path, damage):
    cache = tmp_path / "cache"
    plain, failed, _ = decode_files(files, 16, 3, None, "s")
    decode_files(files, 16, 3, cache, "s")
    target = next(cache.glob("*.npy"))
    notes = next(cache.glob("*.json"))
    content = target.read_bytes()
    if damage == "cut":
        target.write_bytes(content[:1000])
    elif damage == "flip":
        target.write_bytes(content[:-1] + bytes([content[-1] ^ 255]))
    elif damage == "notes":
        notes.write_text("[1, 2")
    elif damage == "deep notes":
        notes.write_text("[" * 100_000)
    elif damage == "no notes":
        notes.unlink()
    else:
        np.save(target, np.zeros(3))
    pixels, reasons, _ = decode_files(files, 16, 3, cache, "s")
    assert np.array_equal(pixels, plain)
    assert reasons == failed
    assert json.loads(notes.read_text())["failed"] == {"4": [failed[4].reason, "file"]}


def build(files, cache):
    decode_files(files, 16, 3, cache, "s")


def test_processes_may_build_one_cache_together(files, tmp_path):
    plain, _, _ = decode_files(files, 16, 3, None, "s")
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
        pixels, failed, _ = decode_files(files[4:5], 16, 3, tmp_path / "cache", "s")
        assert pixels.shape == (0, 16, 16, 3)
        assert set(failed) == {0}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EIO, "Input/output error"), "found input/output error"),
        (MemoryError(), "too little memory"),
    ],
)
def test_a_failure_of_the_machine_is_not_remembered(files, tmp_path, monkeypatch, error, told):
    cache = tmp_path / "cache"
    opened = []
    plain, _, _ = decode_files(files, 16, 3, None, "s")

    def failing(file, formats):
        opened.append(Path(file.name))
        if opened[-1] == files[1]:
            raise error
        return Image._open(file, formats=formats)

    monkeypatch.setattr(Image, "_open", Image.open, raising=False)
    with monkeypatch.context() as broken:
        broken.setattr(Image, "open", failing)
        for looked_at in ([*files], [files[1]]):
            opened.clear()
            pixels, failed, _ = decode_files(files, 16, 3, cache, "s")
            assert set(failed) == {1, 4}
            assert told in failed[1].reason
            assert np.array_equal(pixels, plain[[0, 2, 3, 4]])
            assert sorted(opened) == looked_at, (
                "while it fails, only the file that may be mended is read again"
            )
    for _ in range(2):
        pixels, failed, _ = decode_files(files, 16, 3, cache, "s")
        assert set(failed) == {4}
        assert np.array_equal(pixels, plain)


def test_a_broken_file_is_remembered_once_it_can_be_read(files, tmp_path, monkeypatch):
    files[1].write_bytes(files[1].read_bytes()[:300])
    with monkeypatch.context() as broken:
        broken.setattr(
            reading,
            "_deep_channels",
            lambda image: (_ for _ in ()).throw(PermissionError(13, "denied")),
        )
        assert "denied" in decode_files(files, 16, 3, tmp_path / "cache", "s").failed[1].reason
    for _ in range(2):
        failed = decode_files(files, 16, 3, tmp_path / "cache", "s").failed
        assert "truncated" in failed[1].reason


def test_a_cache_that_cannot_be_written_is_named(files, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match="site s, cache"):
        decode_files(files, 16, 3, tmp_path / "cache", "s")


def test_an_image_that_has_vanished_is_no_full_disk(files, tmp_path):
    files[3].unlink()
    with pytest.raises(
        DataError, match=r"site s, image files: .*found no such file.*Connect"
    ) as caught:
        decode_files(files, 16, 3, tmp_path / "cache", "s")
    assert "3.png" not in str(caught.value)


@pytest.mark.parametrize("usual", [0, 3, 40, 70])
def test_images_in_memory_are_there_once(usual):
    """Files of one image each, of several, or with damaged ones among them."""
    blocks = [np.full((count, 64, 64, 3), count, np.uint8) for count in (1, 9, 0, 30)]
    tracemalloc.start()
    try:
        pixels = _together(iter(blocks), (64, 64, 3), usual)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(pixels, np.concatenate(blocks))
    assert peak < 1.2 * max(pixels.nbytes, usual * 64 * 64 * 3)
