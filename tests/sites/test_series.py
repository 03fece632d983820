"""DICOM series as volumes: the slices of the NIfTI file, whatever the order, and folders that are
no whole series.
"""

import csv
import logging
import os

import numpy as np
import pytest
import yaml

from deciding import read_csv, read_folder
from dicom_files import RLE, save
from fedward import cli
from fedward.config import DataSpec
from fedward.lab.partition.csv_pool import CsvOptions
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted
from fedward.sites import load_site
from fedward.sites.decoding import BadRow
from fedward.sites.doctor import examine
from fedward.sites.images import decode_file, decode_files, open_parts
from fedward.sites.rendering import Rendering, Slices
from nifti_files import body, write
from series_files import series

SECRET = "Mueller-4711"
WINDOW = (40, 400)


def slices_of(path, window=WINDOW, neighbours=True, **slices):
    """Return index -> pixels of a volume's slices, by default all that are not almost empty."""
    found = open_parts(
        path, Rendering(window, slices=Slices(**{"at_most": 1000, **slices})), neighbours
    )
    return {int(part[1:]): np.asarray(image) for part, image in found}


def same(one, other):
    return list(one) == list(other) and all(
        np.array_equal(one[index], other[index]) for index in one
    )


@pytest.mark.parametrize("axis", ["axial", "coronal", "sagittal"])
@pytest.mark.parametrize("axes", ["LPS", "LPI", "PSL", "LIA", "RAS"])
def test_a_series_is_the_volume_that_nifti_is(tmp_path, axes, axis):
    plain = slices_of(write(tmp_path / "x.nii", body()), axis=axis)
    assert len(plain) > 5
    assert same(slices_of(series(tmp_path / "x", body(), axes), axis=axis), plain)


def test_compressed_slices_and_uneven_rescale_are_read(tmp_path):
    plain = slices_of(write(tmp_path / "x.nii", body()))
    own = {index: {"syntax": RLE} if index % 2 else {} for index in range(12)}
    assert same(slices_of(series(tmp_path / "rle", body(), slices=own)), plain)
    shifted = {
        4: {"RescaleIntercept": -1024 + 30}
    }  # as in PET, whose slices have slopes of their own
    brighter = body()
    brighter[:, :, 4] += 30
    assert same(
        slices_of(series(tmp_path / "pet", body(), slices=shifted)),
        slices_of(write(tmp_path / "y.nii", brighter)),
    )


def test_positions_order_slices_and_numbers_only_without_them(tmp_path):
    plain = slices_of(write(tmp_path / "x.nii", body()))
    wrong = {index: {"InstanceNumber": 7} for index in range(12)}
    assert same(slices_of(series(tmp_path / "positions", body(), slices=wrong)), plain)
    nowhere = {"ImagePositionPatient": None, "ImageOrientationPatient": None}
    numbers = {index: {"InstanceNumber": 40 + index} for index in range(12)}
    path = series(tmp_path / "numbers", body(), slices=numbers, **nowhere)
    assert same(slices_of(path), plain)
    with pytest.raises(BadRow, match="none, and so only axis: axial"):
        slices_of(path, axis="coronal")
    with pytest.raises(BadRow, match="an InstanceNumber for each slice without gaps"):
        slices_of(series(tmp_path / "gap", body(), slices={**numbers, 5: None}, **nowhere))


def test_the_sites_window_goes_before_the_files_own(tmp_path):
    wide = series(tmp_path / "own", body(), WindowCenter=100, WindowWidth=300)
    plain = write(tmp_path / "x.nii", body())
    assert same(slices_of(wide, None), slices_of(plain, (100, 300)))
    assert same(slices_of(wide), slices_of(plain))
    several = series(
        tmp_path / "mr", body(), slices={3: {"WindowCenter": 90}}, WindowCenter=100, WindowWidth=300
    )  # as in MR: no one window is the volume's
    assert same(slices_of(several, None), slices_of(plain, None))


def other_file(path, name, **tags):
    save(path / name, np.ones((24, 20), np.uint16), **{"SeriesInstanceUID": "1.2.3.4", **tags})


def report(path):
    """Write a DICOM object without pixels beside the slices, a text and a pipe."""
    save(
        path / "SR",
        np.ones((2, 2), np.uint8),
        Rows=None,
        Columns=None,
        PixelData=b"",
        SeriesInstanceUID="9",
    )
    (path / "Thumbs.db").write_text(SECRET)
    os.mkfifo(path / "control")


def test_what_is_no_image_is_left_out(tmp_path):
    path = series(tmp_path / "x", body())
    plain = slices_of(path)
    report(path)
    assert same(slices_of(path), plain)


def with_link(path):
    (path.parent / "outside").mkdir()
    os.rename(path / "IM003", path.parent / "outside" / "IM003")
    os.symlink(path.parent / "outside" / "IM003", path / "IM003")


HERE = [0, 0, 20]
BROKEN = {
    "two series": (
        {"slices": {5: {"SeriesInstanceUID": "9"}}},
        None,
        "found 2 series: give each a folder",
    ),
    "missing": (
        {"slices": {5: None}},
        None,
        "found one 2 times the usual one between slices 4 and 5: is a file miss",
    ),
    "uneven": ({"slices": {3: {"ImagePositionPatient": [0, 0, 16]}}}, None, "even gaps"),
    "over time": (
        {"slices": {5: {"ImagePositionPatient": HERE}}},
        None,
        "found several: a series over time",
    ),
    "other size": (
        {},
        lambda path: other_file(path, "IM777", Rows=12, Columns=40),
        "of one size, found 20 x 24 and 40",
    ),
    "other pixels": ({"slices": {5: {"PixelSpacing": [2, 2]}}}, None, "several sizes of pixels"),
    "other plane": (
        {"slices": {5: {"ImageOrientationPatient": [1, 0, 0, 0, 0, -1]}}},
        None,
        "found several directions",
    ),
    "some places": ({"slices": {5: {"ImagePositionPatient": None}}}, None, "found some without"),
    "no directions": (
        {"ImageOrientationPatient": [0, 0, 0, 0, 0, 0]},
        None,
        "where right, front and head are",
    ),
    "NaN": (
        {"slices": {5: {"ImagePositionPatient": ["nan", 0, 0]}}},
        None,
        "where right, front and head are",
    ),
    "one slice": (
        {"slices": dict.fromkeys(range(11))},
        None,
        "found 1: name a single image itself",
    ),
    "inverted": ({"PhotometricInterpretation": "MONOCHROME1"}, None, "lowest value is black"),
    "frames": ({"slices": {5: {"NumberOfFrames": 2}}}, None, "slice IM0.*2 frames"),
    "no DICOM": (
        {},
        lambda path: (path / "x.DCM").write_text("text"),
        "1 that are not, such as 'x.DCM'",
    ),
    "pipe": ({}, lambda path: os.mkfifo(path / "x.dcm"), "1 that are not, such as 'x.dcm'"),
    "cut short": (
        {},
        lambda path: os.truncate(path / "IM003", 700),
        "slice IM003: expected 960 bytes of pixels, found .*cut short",
    ),
    "mask": ({"values": (body() > 0).astype(np.int16)}, None, "found a mask"),
    "link": ({}, with_link, "found a link that leaves it"),
}
LEAVING = pytest.mark.proves(
    "files",
    "a DICOM series with slices of two, one too many or too few, or a link that leaves its folder",
    "refused",
)
ENDLESS = pytest.mark.proves(
    "files",
    "a pipe or a device in place of a slice, a CSV, an npz file or a description of images",
    "refused and named; nothing is waited for",
)
MIXED = pytest.mark.proves(
    "files",
    "a DICOM series with slices of two, one too many or too few, or a link that leaves its folder",
    "refused",
)
PROVES = {
    "link": [LEAVING],
    "pipe": [ENDLESS],
    **{
        kind: [MIXED]
        for kind in ("two series", "missing", "over time", "other size", "other plane")
    },
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=PROVES.get(kind, [])) for kind in BROKEN]
)
def test_what_is_no_whole_series_is_refused(tmp_path, kind):
    wrong, spoil, said = BROKEN[kind]
    path = series(tmp_path / "x", **{"values": body(), **wrong})
    if spoil:
        spoil(path)
    with pytest.raises(BadRow, match=said):
        decode_file(path, 16, 1, Rendering(slices=Slices()))


def test_what_a_file_manager_leaves_beside_a_series_is_left_out(tmp_path):
    path = series(tmp_path / "x", body())
    plain = decode_file(path, 16, 1, Rendering(slices=Slices()))
    for name in ("._IM003.dcm", ".DS_Store", "Thumbs.db", "desktop.ini"):
        (path / name).write_bytes(b"\0\5\x16\7")
    (path / ".IM003").write_bytes((path / "IM003").read_bytes())
    found = decode_file(path, 16, 1, Rendering(slices=Slices()))
    assert list(found) == list(plain)


def test_a_series_is_refused_without_a_word_or_too_large(tmp_path, monkeypatch):
    path = series(tmp_path / "x", body())
    with pytest.raises(BadRow, match="found a volume: to use it, write slices"):
        decode_file(path, 16, 1)
    monkeypatch.setattr("fedward.sites.volumes._MOST_VOXELS", 5000)
    with pytest.raises(BadRow, match="at most 5000 voxels, found 20 x 24 x 12"):
        decode_file(path, 16, 1, Rendering(slices=Slices()))


@pytest.mark.filterwarnings("ignore:Expected explicit VR")
def test_no_damage_of_a_slice_is_a_traceback_or_tells_a_name(tmp_path, caplog, capfd):
    rng = np.random.default_rng(0)
    rendering = Rendering(slices=Slices())
    path = series(
        tmp_path / "x", body(), PatientName=SECRET, PatientID=SECRET, SeriesDescription=SECRET
    )
    whole = (path / "IM003").read_bytes()
    said = list[str]()
    with caplog.at_level(logging.DEBUG):
        for _ in range(60):
            content = bytearray(whole)
            for place in rng.integers(132, 900, rng.integers(1, 6)):
                content[place] = rng.integers(0, 256)
            (path / "IM003").write_bytes(
                content[: rng.choice([len(content), int(rng.integers(140, len(content)))])]
            )
            failed = decode_files([path], 16, 1, None, "s", rendering).failed
            said += [failure.reason for failure in failed.values()]
    assert len(said) > 30
    assert not [
        text
        for text in (*said, *capfd.readouterr(), caplog.text)
        if "Mueller" in text or "4711" in text
    ]


def test_a_slice_that_changes_is_read_again(tmp_path):
    path = series(tmp_path / "x", body())
    rendering = Rendering(WINDOW, slices=Slices())
    first = decode_files([path], 16, 1, tmp_path / "cache", "s", rendering)
    before = os.stat(path)
    for file in path.iterdir():
        file.write_bytes(file.read_bytes()[:-480] + bytes(480))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = decode_files([path], 16, 1, tmp_path / "cache", "s", rendering)
    assert first.parts == again.parts
    assert not np.array_equal(first.pixels, again.pixels)


# --- partition and sites


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Forty patients, some with two series, in a folder for each of two classes, then patient and
    series.
    """
    folder = tmp_path_factory.mktemp("ct") / "livers"
    for index in range(40):
        organ = (60, 200)[index % 2]
        kind = ("healthy", "lesion")[index % 2]
        for number in range(1 + (index % 5 == 0)):
            values = body(10 * index + number, (20, 24, 8), organ)
            tags = {
                "SeriesInstanceUID": f"1.2.{index}.{number}",
                "PatientID": f"{SECRET}-{index}",
                "PatientName": SECRET,
            }
            series(folder / kind / f"p{index}" / f"s{number}", values, **tags)
    save(folder / "healthy" / "alone.dcm", np.arange(480, dtype=np.uint16).reshape(20, 24))
    return folder


def test_a_folder_of_series_is_cut_by_patient(scans, tmp_path):
    rendering = Rendering(WINDOW, slices=Slices(at_most=4))
    told = " ".join(partition(scans, tmp_path, Wanted(sites=2, rendering=rendering)).split())
    assert "Folders with several DICOM files: 48. Each is one volume." in told
    assert "48 DICOM files are grouped by their headers into 40 patients" in told
    spec = DataSpec.model_validate(yaml.safe_load((tmp_path / "data.json").read_text()))
    assert (spec.evaluate_by, spec.channels, spec.image_size) == ("patient", 3, 20)
    places = {}
    for name in ("site-1", "site-2"):
        data = load_site(tmp_path / f"{name}.yaml", spec, tmp_path / "cache")
        assert not data.rejected
        for part in ("labelled", "val", "test"):
            for sample in getattr(data, part).ids:
                file, _, index = sample.partition("#")
                places.setdefault(file.split("/")[1], set()).add((name, part))
                assert index in ("2", "3", "4", "5") or file == "healthy/alone.dcm"
    assert len(places) == 41
    assert all(len(found) == 1 for found in places.values())
    assert SECRET not in "".join(path.read_text() for path in tmp_path.glob("site-*"))


def test_without_slices_each_file_is_an_image(scans):
    pool = read_folder(scans)
    assert (len(pool.labels), len(set(pool.groups))) == (48 * 8 + 1, 41)
    assert "if they are CT or MR series, give --slices" in " ".join(pool.notes)


def test_a_csv_names_folders_and_the_doctor_counts_files(scans, tmp_path):
    rows = [
        [f"{path.relative_to(scans)}", path.parts[-3], path.parts[-2]]
        for path in sorted(scans.glob("*/*/s0"))
    ][8:32]
    with (tmp_path / "manifest.csv").open("w") as file:
        csv.writer(file).writerows(
            [["image", "label", "patient"], *rows, ["lesion", "lesion", "x"]]
        )
    rendering = Rendering(WINDOW, slices=Slices(at_most=2))
    pool = read_csv(tmp_path / "manifest.csv", scans, CsvOptions(rendering=rendering))
    assert (len(pool.labels), len(set(pool.groups))) == (24, 24)
    [image] = pool.left_out
    assert "found a folder without DICOM files at 'lesion'" in image.reason
    partition(
        tmp_path / "manifest.csv",
        tmp_path / "s",
        Wanted(sites=1, images=scans, rendering=rendering),
    )
    spec = DataSpec.model_validate(yaml.safe_load((tmp_path / "s" / "data.json").read_text()))
    found = examine(tmp_path / "s" / "site-1.yaml", spec)
    assert not found.leaks
    assert f"{24 * 8} DICOM files" in found.headers[0]
    assert f"PatientName {24 * 8}" in found.text()
    assert SECRET not in found.text()


def test_a_folder_that_is_no_series_is_a_bad_row(empty_hospital):
    hospital = empty_hospital()
    for index in range(20):
        series(hospital.folder / f"p{index}", body(index))
        hospital.rows.append([f"s{index:02}", f"p{index}", ("MEL", "NV")[index % 2], f"g{index}"])
    (hospital.folder / "empty").mkdir()
    hospital.rows.append(["s20", "empty", "NV", "g20"])
    (hospital.folder / "p7" / "IM003").unlink()
    hospital.spec = hospital.spec.model_copy(update={"classes": ("MEL", "NV"), "channels": 1})
    data = load_site(hospital.write(slices={"at_most": 2}, max_rejected=0.2), hospital.spec)
    reasons = {row.sample_id: row.reason for row in data.rejected}
    assert sorted(reasons) == ["s07", "s20"]
    assert "is a file missing?" in reasons["s07"]
    assert "a folder without DICOM files" in reasons["s20"]


def test_the_help_says_what_a_series_is(capsys):
    with pytest.raises(SystemExit):
        cli.main(["partition", "--help"])
    assert "a folder for each DICOM series" in " ".join(capsys.readouterr().out.split())
