"""DICOM files: the values of the standard, and files that no one should have to read."""

import logging
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dicom_files import JPEG_2000, LITTLE_ENDIAN, RLE, dataset, pydicom, save, table
from fedward.annotation.pictures import Pictures
from fedward.errors import DataError
from fedward.sites import load_site
from fedward.sites.decoding import BadRow, Unreadable
from fedward.sites.dicom import open_dicom
from fedward.sites.images import decode_files

SECRET = "Mueller-4711"
RAMP = np.arange(4096, dtype=np.uint16).reshape(64, 64)
PYDICOMS_OWN = Path(pydicom.__file__).parent / "data" / "test_files"


def shown(path, values, window=None, **tags):
    return np.asarray(open_dicom(save(path / "x", values, **tags), window))


def between_percentiles(values):
    low, high = np.percentile(values, (1, 99))
    return np.clip((values - low) / (high - low) * 255, 0, 255).round()


def test_without_a_window_percentiles_are_black_and_white(tmp_path):
    assert np.array_equal(shown(tmp_path, RAMP), between_percentiles(RAMP))
    signed = (RAMP.astype(np.int16) - 2048) * 16
    assert np.array_equal(shown(tmp_path, signed), between_percentiles(signed))
    falling = shown(tmp_path, signed, RescaleSlope=-2, RescaleIntercept=3)
    assert np.array_equal(falling, between_percentiles(-2.0 * signed + 3))
    deep = RAMP.astype(np.uint32) * 1_000_000
    assert np.array_equal(shown(tmp_path, deep), between_percentiles(deep))
    eight = RAMP.astype(np.uint8)  # made for a screen
    assert np.array_equal(shown(tmp_path, eight), eight)


def test_a_marker_does_not_darken_the_picture(tmp_path):
    marked = RAMP.copy()
    marked[:3, :8] = 65535
    assert np.array_equal(shown(tmp_path, marked), between_percentiles(marked))
    assert shown(tmp_path, marked).std() > 70


def test_the_rescale_comes_before_the_window(tmp_path):
    stored = np.array([[0, 984, 1064, 1264, 2000]], np.uint16)
    scale = {"RescaleSlope": 1, "RescaleIntercept": -1024}
    expected = [[0, 0, 128, 255, 255]]  # of -1024, -40, 40, 240 and 976: DICOM PS3.3, C.11.2.1.2
    found = shown(tmp_path, stored, **scale, WindowCenter=[40, 700], WindowWidth=[160, 2])
    assert np.array_equal(found, expected)
    assert np.array_equal(
        shown(tmp_path, stored, (40, 160), **scale, WindowCenter=0, WindowWidth=9), expected
    )
    # Of no width: it is none.
    assert np.array_equal(
        shown(tmp_path, stored, **scale, WindowCenter=40, WindowWidth=0),
        between_percentiles(stored - 1024.0),
    )


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("LINEAR", [0, 85, 170, 255]),
        ("LINEAR_EXACT", [0, 64, 128, 255]),
        ("SIGMOID", [30, 69, 128, 225]),
    ],
)
def test_the_files_window_has_its_function(tmp_path, function, expected):
    stored = np.array([[98, 99, 100, 102]], np.uint8)
    tags = {"WindowCenter": 100, "WindowWidth": 4, "VOILUTFunction": function}
    assert shown(tmp_path, stored, **tags).tolist() == [expected]


def test_tables_are_used_as_modality_and_as_window(tmp_path):
    stored = np.array([[0, 1, 2, 3]], np.uint8)
    modality = table(0, np.array([0, 6553, 19660, 65535]), 16)
    modality[0].ModalityLUTType = "US"
    assert shown(tmp_path, stored, ModalityLUTSequence=modality).tolist() == [[0, 25, 76, 255]]
    window = table(1, np.array([0, 307, 1023]), 10)
    found = shown(tmp_path, stored, VOILUTSequence=window, WindowCenter=1, WindowWidth=2)
    assert found.tolist() == [[0, 0, 77, 255]]


def test_monochrome1_is_inverted(tmp_path):
    plain = shown(tmp_path, RAMP, BitsStored=12, WindowCenter=2000, WindowWidth=900)
    turned = shown(
        tmp_path,
        RAMP,
        BitsStored=12,
        WindowCenter=2000,
        WindowWidth=900,
        PhotometricInterpretation="MONOCHROME1",
    )
    assert np.abs(255 - turned.astype(int) - plain).max() <= 1  # rounding of halves


def test_colours_become_rgb(tmp_path):
    rgb = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    assert np.array_equal(shown(tmp_path, rgb), rgb)
    planes = rgb.transpose(2, 0, 1).copy()
    assert np.array_equal(
        shown(tmp_path, rgb, PlanarConfiguration=1, PixelData=planes.tobytes()), rgb
    )
    deep = rgb.astype(np.uint16) * 257
    assert np.array_equal(shown(tmp_path, deep), rgb)
    ybr = np.asarray(Image.fromarray(rgb).convert("YCbCr"))
    back = shown(tmp_path, ybr, PhotometricInterpretation="YBR_FULL")
    assert np.abs(back.astype(int) - rgb).max() <= 2


def test_a_palette_is_applied(tmp_path):
    stored = np.array([[0, 1], [2, 0]], np.uint8)
    tags = {"PhotometricInterpretation": "PALETTE COLOR"}
    colours = {"Red": [0, 255, 10], "Green": [0, 0, 20], "Blue": [9, 0, 30]}
    for name, entries in colours.items():
        tags[f"{name}PaletteColorLookupTableDescriptor"] = [3, 0, 16]
        tags[f"{name}PaletteColorLookupTableData"] = (np.array(entries, "<u2") * 257).tobytes()
    made = shown(tmp_path, stored, **tags)
    assert made.tolist() == [[[0, 0, 9], [255, 0, 0]], [[10, 20, 30], [0, 0, 9]]]


@pytest.mark.parametrize("syntax", [RLE, JPEG_2000])
def test_lossless_compression_changes_no_pixel(tmp_path, syntax):
    pytest.importorskip("pylibjpeg", reason="pip install fedward[dicom]")
    for values, tags in ((RAMP, {"BitsStored": 12}), (RAMP.astype(np.uint8), {})):
        plain = shown(tmp_path, values, **tags)
        assert np.array_equal(shown(tmp_path, values, syntax=syntax, **tags), plain)


@pytest.mark.parametrize(
    ("compressed", "plain", "most"),
    [
        ("MR_small_jpeg_ls_lossless.dcm", "MR_small.dcm", 0),
        ("MR_small_jp2klossless.dcm", "MR_small.dcm", 0),
        ("MR_small_RLE.dcm", "MR_small.dcm", 0),
        ("MR_small_bigendian.dcm", "MR_small.dcm", 0),
        ("SC_rgb_jpeg_gdcm.dcm", "SC_rgb_rle.dcm", 0),
        ("SC_rgb_jpeg_dcmtk.dcm", "SC_rgb_rle.dcm", 6),
        ("SC_rgb_jls_lossy_line.dcm", "SC_rgb_rle.dcm", 6),
    ],
)
def test_others_compression_is_read(compressed, plain, most):
    pytest.importorskip("libjpeg", reason="pip install fedward[dicom]")
    one, other = (
        np.asarray(open_dicom(PYDICOMS_OWN / name)).astype(int) for name in (compressed, plain)
    )
    assert np.abs(one - other).max() <= most


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ({"NumberOfFrames": 2}, "of 2 frames"),
        ({"PixelData": None}, "no pixel data"),
        ({"Rows": None}, "with Rows, found none"),
        ({"SamplesPerPixel": None}, "with SamplesPerPixel, found none"),
        ({"PhotometricInterpretation": ""}, "with PhotometricInterpretation, found none"),
        ({"BitsStored": None, "HighBit": None}, "with BitsStored, found none"),
        ({"PixelRepresentation": None}, "with PixelRepresentation, found none"),
        ({"Rows": 60000, "Columns": 60000}, "expected 1 to"),
        ({"Rows": 0}, "found 0 x 64"),
        ({"PixelData": b"\0" * 40}, "8192 bytes of pixels, found 40: the file is cut short"),
        (
            {"BitsAllocated": 64, "BitsStored": 64, "HighBit": 63},
            "8, 16 or 32 bits a value of grey, found 64",
        ),
        ({"BitsStored": 12, "HighBit": 7}, "BitsAllocated 16, BitsStored 12 and HighBit 7"),
        ({"PhotometricInterpretation": "YBR_PARTIAL_420"}, "found YBR_PARTIAL_420"),
        ({"SamplesPerPixel": 3}, "SamplesPerPixel 1 for MONOCHROME2, found 3"),
        ({"RescaleSlope": 0, "RescaleIntercept": 0}, "RescaleSlope other than 0"),
        ({"RescaleSlope": 1, "RescaleIntercept": "nan"}, "a RescaleIntercept below 1e"),
        ({"PhotometricInterpretation": SECRET.upper()}, "another photometric"),
        ({"RescaleSlope": "1e400", "RescaleIntercept": 0}, "a RescaleSlope below 1e"),
    ],
)
def test_what_is_no_image_is_refused_in_our_words(tmp_path, tags, said):
    made = dataset(RAMP)
    for name, value in tags.items():
        if value is None:
            del made[name]
        else:
            setattr(made, name, value)
    made.save_as(tmp_path / "x.png", enforce_file_format=True)
    with pytest.raises(BadRow, match=said) as caught:
        open_dicom(tmp_path / "x.png")
    assert SECRET.upper() not in str(caught.value)


def test_compressed_pixels_may_not_outgrow_the_header(tmp_path):
    pytest.importorskip("openjpeg", reason="pip install fedward[dicom]")
    path = save(tmp_path / "x", RAMP, JPEG_2000)
    content = path.read_bytes()
    start = content.index(b"\xff\x4f\xff\x51") + 8
    path.write_bytes(content[:start] + (60000).to_bytes(4, "big") * 2 + content[start + 8 :])
    with pytest.raises(BadRow, match="64 x 64, as the header says, found 60000 x 60000"):
        open_dicom(path)


def test_a_deflated_header_is_not_unpacked(tmp_path):
    made = dataset(RAMP)
    made.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1.99"
    made.save_as(tmp_path / "x", enforce_file_format=True)
    with pytest.raises(BadRow, match="deflated"):
        open_dicom(tmp_path / "x")


def test_no_damage_ends_in_a_traceback_or_tells_the_header(tmp_path, caplog, capfd):
    pytest.importorskip("pylibjpeg", reason="pip install fedward[dicom]")
    rng = random.Random(0)
    path = tmp_path / "x"
    said = list[str]()
    names = {
        "PatientName": SECRET,
        "PatientID": SECRET,
        "StudyDate": SECRET,
        "WindowCenter": 9,
        "WindowWidth": 9,
    }
    whole = [
        save(tmp_path / "whole", RAMP, syntax, **names).read_bytes()
        for syntax in (LITTLE_ENDIAN, RLE, JPEG_2000)
    ]
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as told:
        caplog.clear()
        for start in whole:
            for _ in range(60):
                content = bytearray(
                    start[: rng.choice([len(start), rng.randrange(132, len(start))])]
                )
                for place in (
                    rng.choices(range(132, len(content)), k=rng.choice([1, 8]))
                    if len(content) > 132
                    else []
                ):
                    content[place] = rng.randrange(256)
                path.write_bytes(content)
                failed = decode_files([path], 16, 1, None, "s").failed
                said += [failure.reason for failure in failed.values()]
        path.write_bytes(start.replace(b"9.0 ", b"Muel"))
        with pytest.raises(BadRow, match="number as WindowCenter, found text that is not a number"):
            open_dicom(path)
    assert len(said) > 40
    assert not [
        text
        for text in (*said, *map(str, told), *capfd.readouterr(), caplog.text)
        if SECRET in text
    ]


def test_a_site_of_dicom_files(empty_hospital):
    hospital = empty_hospital()
    hospital.spec = hospital.spec.model_copy(update={"channels": 1})
    for index in range(40):
        values = np.random.default_rng(index).integers(0, 2000, (20, 24), np.uint16)
        save(
            hospital.folder / "images" / f"{index}.png", values, BitsStored=12
        )  # the name says nothing
        hospital.rows.append(
            [f"s{index:02}", f"images/{index}.png", ("MEL", "NV", "BCC")[index % 3], f"g{index}"]
        )
    cut = hospital.folder / "images" / "0.png"
    cut.write_bytes(cut.read_bytes()[:-100])
    plain, other = (
        load_site(hospital.write(**more), hospital.spec, hospital.folder / "cache")
        for more in ({}, {"window": [500, 1000]})
    )
    assert [row.sample_id for row in plain.rejected] == ["s00"]
    assert len(plain.labelled) == len(other.labelled) > 0
    assert other.labelled.pixels.mean() > plain.labelled.pixels.mean() + 50
    picture = Pictures(hospital.write(window=[500, 1]), hospital.spec.classes)
    assert picture.png("s01") != Pictures(hospital.write(), hospital.spec.classes).png("s01")
    for window in ([500, 0], [500], ["a", 1], [0, float("inf")]):
        with pytest.raises(DataError, match="window"):
            load_site(hospital.write(window=window), hospital.spec)


def test_a_site_without_pydicom_is_told_what_to_install(tmp_path, monkeypatch):
    from fedward.sites import dicom

    path = save(tmp_path / "x", RAMP)
    dicom.pydicom.cache_clear()
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(Unreadable, match=r"fedward\[dicom\]"):
        open_dicom(path)
    failed = decode_files([path], 16, 1, tmp_path / "cache", "s").failed
    monkeypatch.undo()
    assert "fedward[dicom]" in failed[0].reason
    assert not decode_files([path], 16, 1, tmp_path / "cache", "s")[1]  # installed meanwhile
