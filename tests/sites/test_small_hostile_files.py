"""Small files that would unpack to gigabytes or take hours are refused by their headers."""

import bz2
import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from deciding import read_npz
from dicom_files import JPEG_2000, dataset, pydicom, save
from fedward.errors import DataError
from fedward.lab.noted_answers import groups_in
from fedward.sites import decoding, npz
from fedward.sites.decoding import (
    BadRow,
    between,
    check_scans,
    check_taken,
    count_pages,
    decode,
    grey_range,
    looked_up,
    open_image,
    open_pages,
)
from fedward.sites.identifying import _fields, identifying_notes
from fedward.sites.images import decode_file
from fedward.sites.nifti import check_size
from fedward.sites.npz import are_pictures, read_arrays
from fedward.sites.rendering import Frames, Rendering, Slices
from fedward.sites.stored_images import StoredArray, StoredImages
from nifti_files import body, nibabel, write

HOSTILE = pytest.mark.proves(
    "files",
    "a small image, volume or npz file that unpacks to gigabytes, or takes hours: long extensions "
    "and axes, thousands of pages, frames or scans, tables that repeat themselves",
    "refused by its header; nothing is unpacked",
)
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 24), np.uint8))
FRAMES = Rendering(frames=Frames(at_most=2))
SLICES = Rendering(slices=Slices(at_most=2))


def forbidden(*_: Any, **__: Any) -> Any:
    """Stand in for what unpacks a file."""
    raise AssertionError("a hostile file is unpacked")


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Return the bytes of a file."""
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


# --- volumes


def volume_header(shape: tuple[int, ...], before: int, version: int = 1) -> bytes:
    """Return the header of a NIfTI file, and the mark of extensions, but no more."""
    kind = nibabel.Nifti1Header if version == 1 else nibabel.Nifti2Header
    header = kind()
    header.set_data_shape(shape)
    header.set_data_dtype(np.uint8)
    header.set_sform(np.eye(4), 1)
    header["magic"] = header.single_magic
    header["vox_offset"] = before
    return bytes(header.binaryblock) + b"\1\0\0\0"


@HOSTILE
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("before", [2**25, 2**30])
def test_a_long_header_of_a_volume_is_not_read(tmp_path: Path, version: int, before: int) -> None:
    """The file ends behind the header, so reading on would give another reason."""
    path = tmp_path / "x.nii.gz"
    path.write_bytes(gzip.compress(volume_header((4, 4, 4), before, version)))
    with pytest.raises(
        BadRow,
        match=f"within the first 16777216 bytes, found vox_offset {before}: save it again without",
    ):
        decode_file(path, 16, 1, SLICES)


@HOSTILE
@pytest.mark.parametrize("shape", [(1, 1, 20_000), (20_000, 1, 1), (1, 2**28, 1)])
def test_a_volume_of_very_many_slices_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "x.nii.gz"
    path.write_bytes(gzip.compress(volume_header(shape, 544, version=2)))
    found = " x ".join(map(str, shape))
    with pytest.raises(BadRow, match=f"16384 voxels along an axis, found {found}: cut it"):
        decode_file(path, 16, 1, SLICES)


@pytest.mark.parametrize("shape", [(512, 512, 1000), (320, 320, 2500), (6000, 6000, 5)])
def test_large_scans_have_no_side_too_long(shape: tuple[int, ...]) -> None:
    check_size(shape, 2**28)


def test_extensions_of_a_volume_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write(tmp_path / "plain.nii.gz", body())
    image = nibabel.load(plain)
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * 2**21))
    path = tmp_path / "x.nii.gz"
    nibabel.save(image, path)
    assert "NIfTI extension 1" in identifying_notes({"x": path}, SLICES)[0]
    monkeypatch.setattr(nibabel.nifti1.Nifti1Extensions, "from_fileobj", forbidden)
    expected = decode_file(plain, 16, 1, SLICES)
    found = decode_file(path, 16, 1, SLICES)
    assert list(found) == list(expected)
    assert all(np.array_equal(found[part], expected[part]) for part in found)


# --- npz


def write_npz(
    path: Path, how: int = zipfile.ZIP_DEFLATED, order: str = "C", **arrays: tuple[Any, str]
) -> Path:
    """Write headers of arrays (shape, type) without any content."""
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, (shape, kind) in arrays.items():
            archive.writestr(f"{name}.npy", header(shape, kind, order))
    return path


def header(shape: Any, kind: str, order: str = "C") -> bytes:
    """Return the header of an array that has no content."""
    head = io.BytesIO()
    about = {"descr": kind, "fortran_order": order == "F", "shape": shape}
    np.lib.format.write_array_header_1_0(head, about)
    return head.getvalue()


@HOSTILE
@pytest.mark.parametrize(
    ("images", "labels", "found"),
    [
        ((1, 30_000, 30_000), ((1,), "|u1"), r"30000\) \(1 to 89478485 pixels an image\)"),
        ((1, 30_000, 30_000, 3), ((1,), "|u1"), "1 to 89478485 pixels an image"),
        ((10**8, 0, 28), ((10**8,), "|u1"), r"\(100000000, 0, 28\) \(1 to .*where 16777216 num"),
        ((10**7, 1, 1), ((10**7,), "|u1"), "at most 1048576 images: write some as image files"),
        ((9, 28, 28), ((10**7,), "|u1"), "9 images and 10000000 labels"),
        ((9, 28, 28), ((9, 10**8), "|u1"), "16777216 numbers are read at most"),
        ((9, 28, 28), ((10**9,), "<f8"), "float64 .*16777216 numbers are read at most"),
        ((9, 28, 28), ((9,), "|O"), r"labels pickled objects \(9,\)"),
        ((9, 28, 28), ((9,), "<U1000000"), "labels <U1000000"),
    ],
)
def test_arrays_are_judged_by_their_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: Any, labels: Any, found: str
) -> None:
    path = write_npz(tmp_path / "x.npz", images=(images, "|u1"), labels=labels)
    monkeypatch.setattr(np, "load", forbidden)
    with pytest.raises(DataError, match=found):
        read_arrays(path, "", "here")


@HOSTILE
def test_large_numbers_are_not_searched_for_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (30_000, 28, 28)
    path = write_npz(tmp_path / "x.npz", images=(shape, "<f8"), labels=((30_000,), "|u1"))
    monkeypatch.setattr(np, "load", forbidden)
    with pytest.raises(DataError, match=r"found images float64 \(30000, 28, 28\)\."):
        read_arrays(path, "", "here")


@HOSTILE
def test_an_array_by_columns_is_not_read_whole_if_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_npz(tmp_path / "x.npz", order="F", images=((20_000, 300, 300), "|u1"))
    images = StoredImages(path, "images", "here")
    monkeypatch.setattr(np, "load", forbidden)
    with pytest.raises(DataError, match=r"1800000000 bytes in the order of columns, .*contiguous"):
        list(images.read([0]))


@HOSTILE
def test_an_archive_is_compressed_as_numpy_does(tmp_path: Path) -> None:
    assert len(bz2.compress(bytes(2**24))) < 100, "why this is a rule"
    for how, name in ((zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "lzma")):
        path = write_npz(tmp_path / name, how, images=((1, 9, 9), "|u1"), labels=((1,), "|u1"))
        with pytest.raises(DataError, match="compressed in another way than NumPy's"):
            read_arrays(path, "", "here")


@HOSTILE
def test_a_second_array_under_a_name_is_not_read(tmp_path: Path) -> None:
    """NumPy finds ``labels`` before ``labels.npy``, whose header was judged."""
    np.savez(tmp_path / "x.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.arange(2))
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        archive.writestr("labels", b"\x93NUMPY another array")
    _, labels = read_arrays(tmp_path / "x.npz", "", "here")
    assert labels.tolist() == [0, 1]


@HOSTILE
@pytest.mark.parametrize("name", ["train_groups", "label_names", "train_notes"])
def test_a_column_of_gigabytes_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    headers = {
        "train_images": ((4, 28, 28), "|u1"),
        "train_labels": ((4,), "|u1"),
        name: ((4,), "<U100000000"),
    }
    path = write_npz(tmp_path / "x.npz", **headers)
    monkeypatch.setattr(np, "load", forbidden)
    with pytest.raises(DataError, match=f"an array {name} of 1600000000 bytes"):
        read_npz(path)


@HOSTILE
def test_columns_of_gigabytes_together_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"train_images": ((4, 28, 28), "|u1"), "train_labels": ((4,), "|u1")}
    headers |= {f"train_{name}": ((4,), "<U20000000") for name in ("age", "place", "sex", "x")}
    path = write_npz(tmp_path / "x.npz", **headers)
    monkeypatch.setattr(np, "load", forbidden)
    with pytest.raises(
        DataError, match="fewer than 1073741824 bytes together, found 1280000000, with an array"
    ):
        read_npz(path)


@HOSTILE
@pytest.mark.parametrize("name", ["notes", "train_notes"])
def test_gigabytes_that_are_no_column_are_left_where_they_are(tmp_path: Path, name: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)
    np.savez(tmp_path / "x.npz", train_images=images, train_labels=np.arange(4) % 2)
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        archive.writestr(f"{name}.npy", header((5,), "<U100000000"))
    assert not read_npz(tmp_path / "x.npz").columns


@HOSTILE
def test_arrays_that_are_no_columns_are_left_where_they_are(tmp_path: Path) -> None:
    arrays = {"images": np.zeros((4, 28, 28), np.uint8), "labels": np.arange(4) % 2}
    arrays["images"][:, 0, 0] = range(4)
    np.savez(tmp_path / "x.npz", **arrays, groups=np.array(["a", "b", "b", "c"]))
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        archive.writestr("masks.npy", header((4, 30_000, 30_000), "<f8"))
    pool = read_npz(tmp_path / "x.npz")
    assert pool.groups == ["a", "b", "b", "c"]
    assert "masks" not in pool.columns


@HOSTILE
def test_groups_of_gigabytes_are_not_unpacked_where_answers_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {
        "train_images": ((4, 28, 28), "|u1"),
        "train_labels": ((4,), "|u1"),
        "train_groups": ((4,), "<U100000000"),
    }
    write_npz(tmp_path / "x.npz", **headers)
    site = {"kind": "npz", "site": "north", "file": "x.npz", "labels": {"0": "a", "1": "b"}}
    (tmp_path / "north.json").write_text(json.dumps(site), "utf-8")
    monkeypatch.setattr(np, "load", forbidden)
    with pytest.raises(DataError, match="an array train_groups of 1600000000 bytes"):
        groups_in(tmp_path / "north.json")


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ((165_466, 28, 28), (165_466, 1)),
        ((89_996, 28, 28, 3), (89_996, 1)),
        ((78_468, 224, 224), (78_468, 14)),
        ((1_000_000, 28, 28), (1_000_000,)),
        ((3, 9000, 9000, 3), (3,)),
    ],
)
def test_whole_data_sets_are_within_the_limits(tmp_path: Path, images: Any, labels: Any) -> None:
    path = write_npz(tmp_path / "x.npz", images=(images, "|u1"), labels=(labels, "|u1"))
    assert are_pictures(StoredImages(path, "images", "here"))
    assert not npz._label_faults(StoredArray(path, "labels", "here"))


# --- TIFF


def tiff(pages: int, order: str = "<", big: bool = False, back_to: int | None = None) -> bytes:
    """Return a TIFF of 2 x 2 pixels whose pages, of eight fields each, share their pixels.

    The last page leads on to another one, or nowhere.
    """
    mark = b"II" if order == "<" else b"MM"
    if big:
        content = mark + struct.pack(order + "HHHQ", 43, 8, 0, 24)
    else:
        content = mark + struct.pack(order + "HL", 42, 16)
    content = content.ljust(16, b"\0") + (b"\1\2\3\4".ljust(8, b"\0") if big else b"")
    pixels = 16
    if not big:
        # The pixels lie behind the pages.
        pixels = 16 + pages * 102
    number, link, field = ("Q", "Q", "HHQQ") if big else ("H", "L", "HHLL")
    size = struct.calcsize(f"<{number}{link}") + 8 * struct.calcsize(f"<{field}")
    first = 24 if big else 16
    values = {256: 2, 257: 2, 258: 8, 259: 1, 262: 1, 273: pixels, 278: 2, 279: 4}
    places = [first + page * size for page in range(pages)]
    following = [*places[1:], 0 if back_to is None else places[back_to]]
    for place in following:
        content += struct.pack(order + number, len(values))
        for tag, value in values.items():
            content += struct.pack(order + field, tag, 16 if big else 4, 1, value)
        content += struct.pack(order + link, place)
    return content + b"\1\2\3\4"


KINDS = [("<", False), (">", False), ("<", True)]


@HOSTILE
@pytest.mark.parametrize(("order", "big"), KINDS)
def test_pages_of_a_tiff_are_counted_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, big: bool
) -> None:
    path = tmp_path / "x.tif"
    path.write_bytes(tiff(5000, order, big))
    monkeypatch.setattr(TiffImageFile, "seek", forbidden)
    for rendering in (Rendering(), FRAMES):
        with pytest.raises(BadRow, match="a TIFF of at most 4096 pages with 262144 fields, found"):
            decode_file(path, 16, 1, rendering)
    assert count_pages(path) == 1


@pytest.mark.parametrize(("order", "big"), KINDS)
@pytest.mark.parametrize("back_to", [None, 0, 2])
def test_as_many_pages_as_allowed_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, big: bool, back_to: int | None
) -> None:
    """Also where the last page leads back to another one."""
    path = tmp_path / "x.tif"
    path.write_bytes(tiff(5, order, big, back_to))
    monkeypatch.setattr(decoding, "MOST_PAGES", 5)
    monkeypatch.setattr(decoding, "_MOST_FIELDS", 40)
    assert count_pages(path) == 5
    assert np.asarray(open_image(path, page=4)).tolist() == [[1, 2], [3, 4]]
    monkeypatch.setattr(decoding, "_MOST_FIELDS", 39)
    with pytest.raises(BadRow, match="with 39 fields, found more"):
        open_image(path, page=4)
    monkeypatch.setattr(decoding, "_MOST_FIELDS", 40)
    monkeypatch.setattr(decoding, "MOST_PAGES", 4)
    with pytest.raises(BadRow, match="at most 4 pages"):
        open_image(path, page=0)


def test_a_big_endian_bigtiff_is_refused(tmp_path: Path) -> None:
    """Pillow takes it for a TIFF of 32 bits, so its pages would be counted otherwise."""
    (tmp_path / "x.tif").write_bytes(tiff(1, ">", big=True))
    with pytest.raises(BadRow, match="a BigTIFF that is damaged or of a rare kind"):
        decode(tmp_path / "x.tif", 16, 1)


@HOSTILE
def test_strips_of_a_page_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PICTURE.save(tmp_path / "x.tif", tiffinfo={278: 1})
    assert open_image(tmp_path / "x.tif").size == (24, 20)
    with Image.open(tmp_path / "x.tif") as image:
        parts = len(image.tile)
    monkeypatch.setattr(decoding, "_MOST_PARTS", parts - 1)
    with pytest.raises(BadRow, match=f"at most {parts - 1} strips or tiles, found {parts}: conv"):
        open_image(tmp_path / "x.tif")


# --- pages and frames that are taken together


def chunk(kind: bytes, content: bytes) -> bytes:
    """Return a part of a PNG."""
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


@pytest.mark.parametrize("far", [2**50, 2**62], ids=hex)
@pytest.mark.parametrize("field", ["first page", "next page", "strip"])
def test_a_place_that_no_file_has_is_a_damage_and_no_failure_of_the_machine(
    tmp_path: Path, field: str, far: int
) -> None:
    places = {"first page": 16, "next page": 0, "strip": 184} | {field: far}
    values = {256: 4, 257: 4, 258: 8, 259: 1, 262: 1, 273: places["strip"], 278: 4, 279: 16}
    content = struct.pack("<2sHHHQQ", b"II", 43, 8, 0, places["first page"], len(values))
    for tag, value in values.items():
        content += struct.pack("<HHQQ", tag, 16, 1, value)
    content += struct.pack("<Q", places["next page"]) + bytes(range(16))
    (tmp_path / "x.tif").write_bytes(content)
    with pytest.raises(BadRow, match="found a damaged file") as caught:
        open_image(tmp_path / "x.tif")
    assert type(caught.value) is BadRow, "a file that is to blame is remembered as such"


@HOSTILE
@pytest.mark.parametrize("count", [5000, 2**31])
def test_a_png_that_claims_very_many_pictures_is_refused(tmp_path: Path, count: int) -> None:
    plain = saved(PICTURE, "PNG")
    (tmp_path / "x.png").write_bytes(
        plain[:33] + chunk(b"acTL", struct.pack(">II", count, 0)) + plain[33:]
    )
    for rendering in (Rendering(), FRAMES):
        with pytest.raises(BadRow, match=r"at most 4096 pages or frames, found \d+: save those"):
            decode_file(tmp_path / "x.png", 16, 1, rendering)


@HOSTILE
def test_pixels_of_all_pages_together_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tif"
    path.write_bytes(tiff(6))
    monkeypatch.setattr(decoding, "MOST_TAKEN", 16)
    assert len(dict(open_pages(path, Frames(at_most=4).chosen))) == 4
    with pytest.raises(BadRow, match="at most 16 pixels in all pages or frames, found more: save"):
        list(open_pages(path, Frames().chosen))
    pictures = [PICTURE, PICTURE.rotate(180), PICTURE.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    pictures[0].save(tmp_path / "x.png", save_all=True, append_images=pictures[1:])
    monkeypatch.setattr(decoding, "MOST_TAKEN", 3 * 480)
    assert len(decode_file(tmp_path / "x.png", 16, 1, FRAMES)) == 2
    monkeypatch.setattr(decoding, "MOST_TAKEN", 3 * 480 - 1)
    with pytest.raises(BadRow, match="pixels in all pages or frames, found 3 of 480"):
        decode_file(tmp_path / "x.png", 16, 1, FRAMES)


@HOSTILE
def test_frames_of_a_dicom_file_that_are_taken_are_limited(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (5000, 1, 2), np.uint8)
    tags = {"Rows": 1, "Columns": 2, "NumberOfFrames": 5000, "PixelData": values.tobytes()}
    path = save(tmp_path / "x", values[0], **tags)
    with pytest.raises(BadRow, match="at most 4096 pages or frames, found 5000"):
        decode_file(path, 16, 1, Rendering(frames=Frames()))
    assert list(decode_file(path, 16, 1, FRAMES)) == ["#1250", "#3750"]


def test_long_recordings_are_within_the_limits() -> None:
    check_taken(2000, 1024 * 1024)
    check_taken(12, 9000 * 9000)
    with pytest.raises(BadRow, match="at most 4294967296 pixels"):
        check_taken(4096, 9000 * 9000)


@pytest.mark.parametrize("kind", ["TIFF", "PNG"])
def test_pages_are_the_same_alone_and_in_turn(tmp_path: Path, kind: str) -> None:
    """Also where they have sizes, turns and modes of their own."""
    rng = np.random.default_rng(3)
    shape = (9, 7)
    pages = [Image.fromarray(rng.integers(0, 256, shape, np.uint8)) for _ in range(4)]
    options: dict[str, Any] = {}
    if kind == "TIFF":
        pages[1] = Image.fromarray(rng.integers(0, 4096, (5, 6), np.uint16))
        pages[2] = Image.fromarray(rng.integers(0, 256, (8, 3, 3), np.uint8))
        options = {"tiffinfo": {274: 6}}
    path = tmp_path / "x"
    pages[0].save(path, kind, save_all=True, append_images=pages[1:], **options)
    found = list(open_pages(path, Frames().chosen))
    assert [number for number, _ in found] == [0, 1, 2, 3]
    for number, image in found:
        assert np.array_equal(np.asarray(image), np.asarray(open_image(path, page=number)))


# --- JPEG


def with_scans(scans: int, before: bytes = b"", behind: bytes = b"") -> bytes:
    """Return a progressive JPEG whose last scan is repeated, with bytes before and behind all."""
    content = saved(PICTURE.resize((64, 64)), "JPEG", progressive=True)
    last = content.rindex(b"\xff\xda")
    more = scans - content.count(b"\xff\xda")
    repeated = content[last:-2] * max(0, more)
    return content[:2] + before + content[2:-2] + repeated + content[-2:] + behind


@HOSTILE
def test_scans_of_a_jpeg_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.jpg"
    for scans in (0, 100):
        path.write_bytes(with_scans(scans))
        assert decode(path, 16, 1).std() > 1
    path.write_bytes(with_scans(101))
    monkeypatch.setattr(Image.Image, "convert", forbidden)
    with pytest.raises(BadRow, match="a JPEG of at most 100 scans, found 101: convert it to PNG"):
        decode(path, 16, 1)


def test_what_is_no_scan_of_a_jpeg_is_not_counted(tmp_path: Path) -> None:
    """A thumbnail, and what telephones write behind the end, such as a film."""
    marks = b"\xff\xda\0\x08" * 200
    thumbnail = b"\xff\xe2" + struct.pack(">H", len(marks) + 2) + marks
    content = with_scans(0, before=thumbnail, behind=marks)
    (tmp_path / "x.jpg").write_bytes(content)
    assert decode(tmp_path / "x.jpg", 16, 1).std() > 1


@pytest.mark.parametrize(
    "between_scans",
    [b"\xff\xff\xff", b"\xff\0\xff\xd3", b"\0\xff\1", b"\xff\xfe\0\x02", b"\xff\xd0"],
)
def test_scans_are_found_whatever_lies_between_them(between_scans: bytes) -> None:
    """Bytes that fill up, stuffed bytes, marks of a restart, and a comment without a text."""
    scan = between_scans + b"\xff\xda\0\x08\1\1\0\0\x3f\0\x55\xff\0"
    check_scans(b"\xff\xd8" + scan * 100 + b"\xff\xd9")
    with pytest.raises(BadRow, match="found 101"):
        check_scans(b"\xff\xd8" + scan * 101 + b"\xff\xd9")
    check_scans(b"\xff\xd8" + scan * 100 + b"\xff\xd9" + scan)


@HOSTILE
def test_a_jpeg_that_claims_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    Image.effect_noise((32, 32), 40).save(path)
    with path.open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(BadRow, match=f"expected a JPEG of at most {2**30} bytes, found {2**40}"):
        decode(path, 16, 1)


def encapsulated(path: Path, frame: bytes, syntax: str, size: Sequence[int]) -> Path:
    """Write a DICOM file of one compressed frame."""
    made = dataset(np.zeros(tuple(size), np.uint8))
    made.file_meta.TransferSyntaxUID = syntax
    made.PixelData = pydicom.encaps.encapsulate([frame])
    made["PixelData"].is_undefined_length = True
    made.save_as(path, enforce_file_format=True)
    return path


@HOSTILE
def test_scans_of_a_jpeg_within_dicom_are_limited(tmp_path: Path) -> None:
    path = encapsulated(tmp_path / "x", with_scans(101), "1.2.840.10008.1.2.4.50", (64, 64))
    with pytest.raises(BadRow, match="at most 100 scans, found 101"):
        decode_file(path, 16, 1)


@HOSTILE
def test_a_compressed_frame_has_no_more_samples_than_its_header_says(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    path = save(tmp_path / "x", values, JPEG_2000)
    assert decode_file(path, 16, 1)
    content = bytearray(path.read_bytes())
    start = content.index(b"\xff\x4f\xff\x51")
    content[start + 40 : start + 42] = struct.pack(">H", 16_384)
    path.write_bytes(content)
    with pytest.raises(BadRow, match="with SamplesPerPixel 1, as the header says, found 16384"):
        decode_file(path, 16, 1)
    content = bytearray(saved(PICTURE, "JPEG"))
    place = content.index(b"\xff\xc0")
    content[place + 9] = 200
    path = encapsulated(tmp_path / "y", bytes(content), "1.2.840.10008.1.2.4.50", (20, 24))
    with pytest.raises(BadRow, match="with SamplesPerPixel 1, as the header says, found 200"):
        decode_file(path, 16, 1)


# --- palettes of DICOM files


def with_palette(path: Path, words: Sequence[int]) -> Path:
    """Write a DICOM file whose palette has segments."""
    tags: dict[str, Any] = {"PhotometricInterpretation": "PALETTE COLOR"}
    for colour in ("Red", "Green", "Blue"):
        tags[f"{colour}PaletteColorLookupTableDescriptor"] = [256, 0, 16]
        segments = struct.pack(f"<{len(words)}H", *words)
        tags[f"Segmented{colour}PaletteColorLookupTableData"] = segments
    return save(path, np.arange(256, dtype=np.uint8).reshape(16, 16), **tags)


def test_a_palette_of_segments_is_read(tmp_path: Path) -> None:
    path = with_palette(tmp_path / "x", [0, 1, 0, 1, 255, 65_535])
    shown = decode_file(path, 16, 1)[""].ravel().astype(int)
    assert np.abs(shown - np.arange(256)).max() <= 1


@HOSTILE
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([0, 1, 0, *([1, 65_535, 9] * 100)], "at most 65536 entries in a palette, found more"),
        ([0, 1, 0, 1, 60_000, 9, 2, 2, 0, 0], "a segment that repeats others: export it as RGB"),
    ],
)
def test_a_palette_that_unpacks_to_more_than_a_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[int], said: str
) -> None:
    path = with_palette(tmp_path / "x", words)
    monkeypatch.setattr(pydicom.pixels, "apply_color_lut", forbidden)
    with pytest.raises(BadRow, match=said):
        decode_file(path, 16, 1)


# --- deep greys


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rng.integers(0, 65_536, (1200, 1000), np.uint16),
        lambda rng: rng.integers(-3000, 3000, (1200, 1000), np.int16),
        lambda rng: rng.integers(-(2**31), -(2**31) + 500, (1200, 1000), np.int32),
        lambda rng: rng.integers(2**32 - 500, 2**32, (1200, 1000), np.uint32),
    ],
)
def test_deep_greys_are_the_same_in_parts(
    make: Callable[[np.random.Generator], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = make(np.random.default_rng(0))
    low, high = grey_range(values)
    assert (low, high) == pytest.approx(np.percentile(values.astype(float), (1, 99)))
    shown = np.clip((values.astype(float) - low) * (255 / (high - low)), 0, 255)
    assert np.array_equal(between(values, low, high), np.rint(shown).astype(np.uint8))
    table = np.arange(100, dtype=np.uint8)
    assert looked_up(table, np.array([[-5, 94]]), -5).tolist() == [[0, 99]]


@HOSTILE
def test_no_large_png_is_read_for_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PICTURE.save(tmp_path / "x.png")
    read = list[str]()
    monkeypatch.setattr(PngImageFile, "load", lambda image: read.append(image.filename))
    assert _fields(tmp_path / "x.png") == set()
    assert len(read) == 1
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    assert _fields(tmp_path / "x.png") == set()
    assert len(read) == 1
