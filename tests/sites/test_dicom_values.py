"""Which grey the values of DICOM files become, as scanners and archives write them: tables, bits,
padding, numbers and transfer syntaxes.
"""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dicom_files import JPEG_2000, RLE, dataset, pydicom, save, table, with_raw
from fedward.annotation.levels import levels_of
from fedward.sites.decoding import BadRow, Unreadable
from fedward.sites.dicom import open_dicom, open_frame
from fedward.sites.images import decode_file
from fedward.sites.rendering import windowed

RAMP = np.arange(4096, dtype=np.uint16).reshape(64, 64)
PYDICOMS_OWN = Path(pydicom.__file__).parent / "data" / "test_files"
HTJ2K = "1.2.840.10008.1.2.4.201"
JPEG = "1.2.840.10008.1.2.4.50"
RED = (200, 40, 40)
TWELVE = {"BitsStored": 12, "WindowCenter": 2048, "WindowWidth": 4096}
TWELVE_BITS_SHOWN = np.round(RAMP / 4095 * 255)


def shown(folder, values, window=None, **tags):
    return np.asarray(open_dicom(save(folder / "x", values, **tags), window))


# --- colours


def red_jpeg(held: str, sampling: int = 0, adobe: bytes = b"") -> bytes:
    """Return a red JPEG that holds RGB or YCbCr, and does not say which unless Adobe's way."""
    red = Image.new("RGB", (32, 32), RED)
    # Pillow writes the bands of YCbCr as they are.
    bands = red if held == "YCbCr" else Image.merge("YCbCr", red.split())
    content = io.BytesIO()
    bands.save(content, "JPEG", quality=95, subsampling=sampling)
    start, jfif, rest = np.split(np.frombuffer(content.getvalue(), np.uint8), [2, 20])
    assert jfif.tobytes().startswith(b"\xff\xe0\0\x10JFIF")
    said = adobe and b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + adobe
    return start.tobytes() + said + rest.tobytes()


def shown_jpeg(folder, frame, header, syntax=JPEG):
    made = dataset(np.zeros((32, 32, 3), np.uint8), PhotometricInterpretation=header)
    made.file_meta.TransferSyntaxUID = syntax
    made.PixelData = pydicom.encaps.encapsulate([frame])
    made["PixelData"].is_undefined_length = True
    made.save_as(folder / "x", enforce_file_format=True)
    return np.asarray(open_dicom(folder / "x"))


@pytest.mark.parametrize(
    ("frame", "header"),
    [
        (red_jpeg("YCbCr"), "YBR_FULL_422"),
        (red_jpeg("RGB"), "RGB"),
        (red_jpeg("YCbCr", sampling=1), "RGB"),
        (red_jpeg("YCbCr", sampling=2), "RGB"),
        (red_jpeg("YCbCr", adobe=b"\1"), "RGB"),
        (red_jpeg("YCbCr", sampling=2, adobe=b"\1"), "YBR_FULL_422"),
        (red_jpeg("RGB", adobe=b"\0"), "RGB"),
        (red_jpeg("RGB", adobe=b"\0"), "YBR_FULL"),
        (red_jpeg("RGB", adobe=b"\0"), "YBR_FULL_422"),
    ],
)
def test_a_jpeg_shows_how_it_holds_colours_whatever_its_header_says(tmp_path, frame, header):
    """Without its own sign, the header is right."""
    colours = shown_jpeg(tmp_path, frame, header)
    assert np.abs(colours.astype(int) - RED).max() <= 2


def test_each_frame_shows_how_it_holds_colours(tmp_path):
    frames = [red_jpeg("RGB", adobe=b"\0"), red_jpeg("YCbCr", adobe=b"\1")]
    made = dataset(np.zeros((32, 32, 3), np.uint8), NumberOfFrames=2)
    made.file_meta.TransferSyntaxUID = JPEG
    made.PixelData = pydicom.encaps.encapsulate(frames)
    made["PixelData"].is_undefined_length = True
    made.save_as(tmp_path / "x", enforce_file_format=True)
    for number in (0, 1):
        colours = np.asarray(open_frame(tmp_path / "x", number))
        assert np.abs(colours.astype(int) - RED).max() <= 2


def test_a_grey_jpeg_is_none_of_colours(tmp_path):
    content = io.BytesIO()
    Image.new("L", (32, 32), 100).save(content, "JPEG")
    with pytest.raises(BadRow, match="with SamplesPerPixel 3, as the header says, found 1"):
        shown_jpeg(tmp_path, content.getvalue(), "RGB")


@pytest.mark.parametrize("header", ["RGB", "YBR_RCT", "YBR_ICT", "YBR_FULL", "YBR_FULL_422"])
def test_transformed_colours_of_a_jpeg_2000_are_rgb_whatever_its_header_says(tmp_path, header):
    """Decoders undo the transform. A header may be of the JPEG that it was before."""
    red = np.full((32, 32, 3), RED, np.uint8)
    openjpeg = pytest.importorskip("openjpeg.utils", reason="pip install fedward[dicom]")
    frame = openjpeg.encode_array(red, photometric_interpretation=1, use_mct=True)
    assert (shown_jpeg(tmp_path, frame, header, JPEG_2000) == RED).all()


def test_colours_of_a_jpeg_2000_without_a_transform_are_as_its_header_says(tmp_path):
    """Some archives store YBR_FULL so."""
    held = np.asarray(Image.new("RGB", (32, 32), RED).convert("YCbCr"))
    openjpeg = pytest.importorskip("openjpeg.utils", reason="pip install fedward[dicom]")
    frame = openjpeg.encode_array(held, photometric_interpretation=1, use_mct=False)
    colours = shown_jpeg(tmp_path, frame, "YBR_FULL", JPEG_2000)
    assert np.abs(colours.astype(int) - RED).max() <= 2


@pytest.mark.parametrize(
    ("frame", "syntax"),
    [
        (red_jpeg("RGB")[:40], JPEG),
        (b"\xff\x4f\xff\x51" + bytes(16), JPEG_2000),
        (b"BM" + bytes(100), JPEG),
    ],
)
def test_what_is_no_whole_frame_is_named_by_what_the_header_says(tmp_path, frame, syntax):
    with pytest.raises(BadRow, match=r"a compressed image of JPEG .* a damaged one or other bytes"):
        shown_jpeg(tmp_path, frame, "RGB", syntax)


def test_unpacked_colours_under_the_header_of_packed_ones_are_named(tmp_path):
    """Nothing says whether they are RGB or YBR_FULL."""
    values = np.full((8, 6, 3), 90, np.uint8)
    with pytest.raises(
        BadRow, match=r"two thirds of 144 bytes .* found 144, .* correct Photometric"
    ):
        shown(tmp_path, values, PhotometricInterpretation="YBR_FULL_422")


# --- tables


@pytest.mark.parametrize("declared", [10, 12, 14, 16])
@pytest.mark.parametrize("used", [8, 10, 12, 16])
def test_a_table_is_scaled_by_the_bits_that_it_holds(tmp_path, used, declared):
    entries = np.linspace(0, 2**used - 1, 4096).round()
    voi = table(0, entries, declared)
    assert np.array_equal(
        shown(tmp_path, RAMP, VOILUTSequence=voi), np.round(entries / (2**used - 1) * 255)[RAMP]
    )


def test_a_table_of_full_range_is_as_pydicom_applies_it(tmp_path):
    rng = np.random.default_rng(0)
    entries = np.sort(rng.integers(0, 1024, 500))
    entries[-1] = 1000  # the lightest grey need not be white
    path = save(tmp_path / "x", RAMP, VOILUTSequence=table(900, entries, 10))
    values = pydicom.pixels.apply_voi_lut(RAMP, pydicom.dcmread(path))
    assert np.array_equal(np.asarray(open_dicom(path)), np.round(values / 1023 * 255))


def test_entries_of_eight_bits_may_share_a_word(tmp_path):
    stored = np.array([[0, 1, 2, 3, 4]], np.uint8)
    in_words = table(1, np.array([3, 100, 255]), 8)
    packed = table(1, np.array([3, 100, 255]), 8)
    packed[0].LUTData = bytes([3, 100, 255, 0])
    for voi in (in_words, packed):
        assert shown(tmp_path, stored, VOILUTSequence=voi).tolist() == [[3, 3, 100, 255, 255]]


def test_a_table_of_65536_entries_and_one_that_is_too_short(tmp_path):
    stored = np.array([[0, 40000, 65535]], np.uint16)
    whole = table(0, np.arange(65536), 16)
    whole[0].LUTDescriptor[0] = 0
    assert shown(tmp_path, stored, VOILUTSequence=whole).tolist() == [[0, 156, 255]]
    short = table(0, np.array([0, 65535]), 16)
    short[0].LUTDescriptor[0] = 9
    assert shown(tmp_path, stored, VOILUTSequence=short).tolist() == [[0, 255, 255]]


@pytest.mark.parametrize("first", [-1024, 65536 - 1024])
def test_the_first_value_of_a_table_may_be_negative(tmp_path, first):
    """Written as a number with or without a sign."""
    stored = np.array([[0, 1, 2, 9]], np.uint16)
    voi = table(0, np.array([0, 128, 255]), 8)
    voi[0]["LUTDescriptor"].VR = "SS" if first < 0 else "US"
    voi[0].LUTDescriptor = [3, first, 8]
    found = shown(tmp_path, stored, VOILUTSequence=voi, RescaleSlope=1, RescaleIntercept=-1024)
    assert found.tolist() == [[0, 128, 255, 255]]


@pytest.mark.parametrize("first", [-1024, 65536 - 1024])
def test_a_table_that_begins_below_zero_shows_values_above_it(tmp_path, first):
    """As bones alone: no value of the picture is negative."""
    voi = table(0, np.arange(3072) * 4095 // 3071, 12)
    voi[0]["LUTDescriptor"].VR = "SS" if first < 0 else "US"
    voi[0].LUTDescriptor = [3072, first, 12]
    stored = np.array([[0, 1000, 2047, 3000]], np.uint16)
    found = shown(tmp_path, stored, VOILUTSequence=voi)
    assert found.tolist() == [[85, 168, 255, 255]]


def test_a_table_without_data_is_none_and_a_broken_one_is_named(tmp_path):
    empty = table(0, np.array([0, 255]), 8)
    del empty[0].LUTData
    assert np.array_equal(shown(tmp_path, RAMP, VOILUTSequence=empty, **TWELVE), TWELVE_BITS_SHOWN)
    broken = table(0, np.array([0, 255]), 8)
    broken[0].LUTDescriptor = [2, 0]
    with pytest.raises(BadRow, match="three numbers as LUTDescriptor, found 2"):
        shown(tmp_path, RAMP, VOILUTSequence=broken)


def test_a_palette_may_hold_fewer_bits_than_it_declares(tmp_path):
    tags = {"PhotometricInterpretation": "PALETTE COLOR"}
    for name, entries in {"Red": [0, 255], "Green": [0, 7], "Blue": [100, 0]}.items():
        tags[f"{name}PaletteColorLookupTableDescriptor"] = [2, 300, 16]
        tags[f"{name}PaletteColorLookupTableData"] = np.array(entries, "<u2").tobytes()
    stored = np.array([[0, 300, 301, 999]], np.uint16)
    dark = [0, 0, 100]
    assert shown(tmp_path, stored, **tags).tolist() == [[dark, dark, [255, 7, 0], [255, 7, 0]]]


def test_a_window_of_width_one_is_a_threshold():
    values = np.array([98.0, 99.5, 99.6, 100.0, 101.0])
    assert windowed(values, (100, 1), "LINEAR").tolist() == [0, 0, 1, 1, 1]


# --- bits


@pytest.mark.parametrize("high_bit", [11, 13, 15])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2.1", RLE])
def test_stored_bits_may_lie_anywhere(tmp_path, high_bit, signed, syntax):
    """Bits above and below them are those of overlays."""
    around = np.random.default_rng(0).integers(0, 2**16, RAMP.shape)
    place = high_bit - 11
    mask = 0xFFF << place
    words = ((RAMP.astype(int) << place) | (around & ~mask)).astype(np.uint16)
    if signed:
        words = words.view(np.int16)
    values = np.where(RAMP > 2047, RAMP.astype(int) - 4096, RAMP) if signed else RAMP
    centre = 0 if signed else 2048
    tags = {**TWELVE, "HighBit": high_bit, "WindowCenter": centre}
    found = np.asarray(open_dicom(save(tmp_path / "x", words, syntax, **tags)))
    assert np.array_equal(found, np.round((values + (2048 - centre)) / 4095 * 255))


def test_values_elsewhere_than_the_high_bit_says_are_refused(tmp_path):
    with pytest.raises(BadRow, match="up to bit 15, as HighBit says, found them in the lowest 12"):
        shown(tmp_path, RAMP, **TWELVE, HighBit=15)


def test_without_a_high_bit_the_lowest_bits_are_stored(tmp_path):
    assert np.array_equal(shown(tmp_path, RAMP, **TWELVE, HighBit=None), TWELVE_BITS_SHOWN)


# --- padding


@pytest.mark.parametrize("kind", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("padding", [-2000, 63536])
def test_padding_is_black_and_counts_for_no_percentile(tmp_path, kind, padding):
    values = RAMP.astype(np.int16)
    values[:30] = -2000
    picture = values[30:]
    low, high = np.percentile(picture, (1, 99))
    expected = np.clip((picture - low) / (high - low), 0, 1) * 255
    if kind == "MONOCHROME1":
        expected = 255 - expected
    made = dataset(values, PhotometricInterpretation=kind)
    made.add_new("PixelPaddingValue", "SS" if padding < 0 else "US", padding)
    made.save_as(tmp_path / "x", enforce_file_format=True)
    found = np.asarray(open_dicom(tmp_path / "x"))
    assert not found[:30].any()
    assert np.abs(found[30:] - expected).max() <= 0.5001


def test_padding_may_be_a_range_and_need_more_bits_than_are_stored(tmp_path):
    values = RAMP.copy()
    values[0, :9] = range(9)
    values[1] = 0xF830
    tags = {**TWELVE, "PixelPaddingValue": 8, "PixelPaddingRangeLimit": 3}
    found = shown(tmp_path, values, **tags, PhotometricInterpretation="MONOCHROME1")
    assert found[0, :10].tolist() == [255, 255, 255, 0, 0, 0, 0, 0, 0, 254]
    found = shown(tmp_path, values, **{**TWELVE, "PixelPaddingValue": 0xF830})
    assert not found[1].any()
    assert np.array_equal(found[2:], TWELVE_BITS_SHOWN[2:])  # 0x830 among them


@pytest.mark.parametrize(
    ("padding", "tags"),
    [
        (-32768, {}),
        (-2048, {"BitsStored": 12}),
        (0, {"RescaleIntercept": -32768, "RescaleSlope": 1}),
    ],
)
def test_padding_that_no_tag_names_stretches_no_greys(tmp_path, padding, tags):
    """A circle of CT in 16 signed bits, in 12, and in unsigned bits with an intercept."""
    values = RAMP[30:].astype(np.int32) // 4 - 500
    if not padding:
        values += 31744
    kind = np.int16 if padding else np.uint16
    stored = np.concatenate([np.full((30, 64), padding), values]).astype(kind)
    low, high = np.percentile(values, (1, 99))
    expected = np.clip((values - low) / (high - low), 0, 1) * 255
    found = shown(tmp_path, stored, **tags)
    assert not found[:30].any()
    assert np.abs(found[30:] - expected).max() <= 0.5001
    named = shown(tmp_path / "named", stored, **tags, PixelPaddingValue=padding)
    assert np.array_equal(found, named)


@pytest.mark.parametrize(
    "tags", [{}, {"RescaleIntercept": -1024, "RescaleSlope": 1}], ids=["no intercept", "air"]
)
def test_the_lowest_value_of_a_picture_is_no_padding(tmp_path, tags):
    """Values that cannot be below zero have a dark background, and air is near the body."""
    stored = RAMP.copy() // 2 + (0 if tags else 3000)
    stored[:30] = 0
    low, high = np.percentile(stored, (1, 99))
    expected = np.clip((stored.astype(float) - low) / (high - low), 0, 1) * 255
    assert np.abs(shown(tmp_path, stored, **tags) - expected).max() <= 0.5001


@pytest.mark.parametrize("tag", [-2000, 0], ids=["in no pixel", "in the picture"])
def test_a_tag_that_names_another_value_hides_no_padding(tmp_path, tag):
    picture = RAMP[30:].astype(np.int16)
    picture[0, :2] = 0
    stored = np.concatenate([np.full((30, 64), -32768, np.int16), picture])
    found = shown(tmp_path, stored, PixelPaddingValue=tag)
    is_picture = picture != tag
    low, high = np.percentile(picture[is_picture], (1, 99))
    expected = np.clip((picture - low) / (high - low), 0, 1) * 255
    assert not found[:30].any()
    assert np.abs(found[30:] - expected)[is_picture].max() <= 0.5001


def test_air_beside_named_padding_is_part_of_the_picture(tmp_path):
    tissue = (1000 + RAMP[:30] % 300).astype(np.uint16)
    air = np.zeros((20, 64), np.uint16)
    stored = np.concatenate([np.full((14, 64), 63536, np.uint16), air, tissue])
    tags = {"RescaleSlope": 1, "RescaleIntercept": -1024}
    found = shown(tmp_path, stored, **tags, PixelPaddingValue=63536)
    low, high = np.percentile(stored[14:], (1, 99))
    expected = np.clip((stored[14:] - low) / (high - low), 0, 1) * 255
    assert not found[:14].any()
    assert np.abs(found[14:] - expected).max() <= 0.5001


def test_a_picture_of_two_values_has_no_padding(tmp_path):
    stored = np.array([[-32768, 100], [100, 100]], np.int16)
    assert shown(tmp_path, stored).tolist() == [[0, 255], [255, 255]]


def test_padding_alone_is_no_image(tmp_path):
    with pytest.raises(BadRow, match="padding alone"):
        shown(tmp_path, np.full((8, 8), 7, np.uint16), PixelPaddingValue=7)


# --- numbers


@pytest.mark.parametrize(
    ("tags", "same_as"),
    [
        ({"RescaleSlope": b"0,5", "RescaleIntercept": b"-1,25 "}, (0.5, -1.25, 1000, 2000)),
        ({"RescaleSlope": b"", "RescaleIntercept": b""}, (1, 0, 1000, 2000)),
        ({"RescaleSlope": b"2 "}, (2, 0, 1000, 2000)),
        ({"RescaleSlope": b"2\\9 ", "RescaleIntercept": b"\0\0"}, (2, 0, 1000, 2000)),
        ({"WindowCenter": b"900,5 ", "WindowWidth": b"1500,25 "}, (1, 0, 900.5, 1500.25)),
        ({"WindowCenter": b"\\700", "WindowWidth": b"\\300"}, (1, 0, 700, 300)),
        ({"WindowCenter": b"5\\700 ", "WindowWidth": b"0\\300 "}, (1, 0, 700, 300)),
        ({"WindowCenter": b"+7.0E2", "WindowWidth": b"  300 "}, (1, 0, 700, 300)),
    ],
)
def test_numbers_are_read_as_they_are_written(tmp_path, tags, same_as):
    made = dataset(RAMP, WindowCenter=1000, WindowWidth=2000)
    with_raw(made, **tags).save_as(tmp_path / "x", enforce_file_format=True)
    slope, intercept, centre, width = same_as
    values = RAMP.astype(float) * slope + intercept
    values = np.clip((values - centre + 0.5) / (width - 1) + 0.5, 0, 1)
    assert np.abs(np.asarray(open_dicom(tmp_path / "x")) - values * 255).max() <= 0.5001


def test_empty_windows_are_none(tmp_path):
    plain = shown(tmp_path, RAMP)
    made = with_raw(dataset(RAMP), WindowCenter=b"", WindowWidth=b"")
    made.save_as(tmp_path / "y", enforce_file_format=True)
    assert np.array_equal(np.asarray(open_dicom(tmp_path / "y")), plain)


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ({"RescaleIntercept": b"-1,024"}, "RescaleIntercept, found one whose comma may be a dec"),
        ({"RescaleSlope": b"1,000.5 "}, "number as RescaleSlope, found text that is not"),
        ({"WindowCenter": b"Mueller "}, "number as WindowCenter, found text that is not"),
    ],
)
def test_numbers_that_cannot_be_told_are_named_without_their_text(tmp_path, tags, said):
    made = dataset(RAMP, WindowCenter=1000, WindowWidth=2000)
    with_raw(made, **tags).save_as(tmp_path / "x", enforce_file_format=True)
    with pytest.raises(BadRow, match=said) as caught:
        open_dicom(tmp_path / "x")
    assert "Mueller" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"), [("12.5", "a number with decimals"), ("inf", "none that is finite")]
)
def test_a_number_that_must_be_whole_is_named(tmp_path, text, said):
    made = dataset(RAMP)
    made["BitsStored"] = pydicom.DataElement("BitsStored", "DS", text)
    made.save_as(tmp_path / "x", enforce_file_format=True)
    with pytest.raises(BadRow, match=f"a whole number as BitsStored, found {said}"):
        open_dicom(tmp_path / "x")


def test_a_frame_has_its_own_numbers(tmp_path):
    frames = np.stack([RAMP, RAMP])
    made = dataset(RAMP, PixelData=frames.tobytes(), NumberOfFrames=2, BitsStored=12)
    groups = []
    for centre in (b"1000,0", b""):
        voi = with_raw(pydicom.Dataset(), WindowCenter=centre, WindowWidth=b"2000,0")
        group = pydicom.Dataset()
        group.FrameVOILUTSequence = [voi]
        groups.append(group)
    made.PerFrameFunctionalGroupsSequence = groups
    made.save_as(tmp_path / "x", enforce_file_format=True)
    first, second = (np.asarray(open_frame(tmp_path / "x", index)) for index in range(2))
    values = np.clip((RAMP - 999.5) / 1999 + 0.5, 0, 1) * 255
    assert np.abs(first - values).max() <= 0.5001
    low, high = np.percentile(RAMP, (1, 99))
    assert np.abs(second - np.clip((RAMP - low) / (high - low), 0, 1) * 255).max() <= 0.5001


# --- transfer syntaxes


def bare(path, how):
    """Write a picture without a preamble, and perhaps without what follows it."""
    made = dataset(RAMP, **TWELVE)
    if how in ("no preamble", "prefix alone"):
        made.save_as(path, enforce_file_format=True)
        start = 132 if how == "no preamble" else 128
        path.write_bytes(path.read_bytes()[start:])
        return
    del made.file_meta
    if how == "big endian":
        made.PixelData = RAMP.astype(">u2").tobytes()
    made.save_as(
        path,
        implicit_vr=how == "implicit",
        little_endian=how != "big endian",
        enforce_file_format=False,
    )


@pytest.mark.parametrize(
    "how", ["no preamble", "prefix alone", "implicit", "explicit", "big endian"]
)
def test_files_without_a_preamble_are_read(tmp_path, how):
    bare(tmp_path / "IM0001", how)
    found = decode_file(tmp_path / "IM0001", 64, 1)[""][..., 0]
    assert np.array_equal(found, TWELVE_BITS_SHOWN)
    path = tmp_path / "IM0001"
    assert levels_of(path, Image.fromarray(found), None).centre == 2048


@pytest.mark.parametrize(
    ("syntax", "said", "kind"),
    [
        ("1.2.840.10008.1.2.4.102", r"MPEG-4 AVC.*nothing here decodes: convert it to", BadRow),
        ("1.2.840.10008.1.2.4.110", r"known.*, found 1.2.840.10008.1.2.4.110: convert it", BadRow),
        ("1.3.46.670589.33.1.4.1", "known.*, found one of a manufacturer: convert it to", BadRow),
        (JPEG_2000, r"pip install 'fedward\[dicom\]', or convert it to", Unreadable),
    ],
)
def test_pixels_that_nothing_decodes_are_named(tmp_path, monkeypatch, syntax, said, kind):
    # pydicom writes no unknown syntax, so that one of the same length is replaced.
    written = HTJ2K if len(syntax) == len(HTJ2K) else JPEG_2000
    made = dataset(RAMP)
    made.file_meta.TransferSyntaxUID = written
    made.PixelData = pydicom.encaps.encapsulate([b"\0\0\0\1"])
    made["PixelData"].is_undefined_length = True
    made.save_as(tmp_path / "x")
    content = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(content.replace(written.encode(), syntax.encode()))
    if kind is Unreadable:
        monkeypatch.setattr(pydicom.pixels.get_decoder(syntax), "_available", {})
    with pytest.raises(kind, match=said):
        open_dicom(tmp_path / "x")


def test_compressed_pixels_need_a_transfer_syntax(tmp_path):
    pytest.importorskip("openjpeg", reason="pip install fedward[dicom]")
    path = save(tmp_path / "x", RAMP, JPEG_2000)
    content = path.read_bytes()
    start = content.index(struct.pack("<2H", 8, 0x16))  # behind the group 0002
    path.write_bytes(content[start:])
    with pytest.raises(BadRow, match="with TransferSyntaxUID, found none, and compressed"):
        open_dicom(path)
