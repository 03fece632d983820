"""What a hospital's export holds beside pictures: reports, directories of media, thumbnails."""

from pathlib import Path

import numpy as np
import pytest

from dicom_files import dataset, save
from fedward.errors import DataError
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted
from fedward.sites import load_site
from fedward.sites.decoding import BadRow
from fedward.sites.files import LeftOut, is_image, volumes_in
from fedward.sites.images import decode_file, decode_files
from fedward.sites.rendering import Frames, Rendering

CLASSES = {
    "Comprehensive SR": "1.2.840.10008.5.1.4.1.1.88.33",
    "Grayscale Softcopy Presentation State": "1.2.840.10008.5.1.4.1.1.11.1",
    "Media Storage Directory": "1.2.840.10008.1.3.10",
    "Encapsulated PDF": "1.2.840.10008.5.1.4.1.1.104.1",
    "RT Structure Set": "1.2.840.10008.5.1.4.1.1.481.3",
    "Key Object Selection Document": "1.2.840.10008.5.1.4.1.1.88.59",
    "12-lead ECG Waveform": "1.2.840.10008.5.1.4.1.1.9.1.1",
    "Raw Data": "1.2.840.10008.5.1.4.1.1.66",
    "CT Image": "1.2.840.10008.5.1.4.1.1.2",
    "another object": "1.3.12.2.1107.5.9.1",
}
"""Name of a class of objects that have no pixels here -> its UID."""
WITH_PIXELS = {
    "Segmentation": "1.2.840.10008.5.1.4.1.1.66.4",
    "RT Dose": "1.2.840.10008.5.1.4.1.1.481.2",
}


def report(path: Path, kind: str) -> Path:
    """Write an object without a picture."""
    pixels = {} if kind in WITH_PIXELS else dict.fromkeys(("Rows", "Columns", "PixelData"))
    made = dataset(np.zeros((8, 8), np.uint16))
    for name in pixels:
        del made[name]
    made.SOPClassUID = {**CLASSES, **WITH_PIXELS}[kind]
    made.file_meta.MediaStorageSOPClassUID = made.SOPClassUID
    made.save_as(path, enforce_file_format=True)
    return path


def picture(path: Path, seed: int, patient: int) -> Path:
    values = np.random.default_rng(seed).integers(0, 4096, (32, 32), np.uint16)
    return save(path, values, BitsStored=12, PatientID=f"P{patient}")


@pytest.mark.parametrize("kind", [*CLASSES, *WITH_PIXELS])
def test_an_object_without_a_picture_is_no_image_and_named(tmp_path, kind):
    path = report(tmp_path / "x.dcm", kind)
    assert not is_image(path)
    with pytest.raises(BadRow, match=f"an object without a picture: {kind}"):
        decode_file(path, 16, 1, Rendering(frames=Frames()))
    bare = tmp_path / "bare"
    bare.write_bytes(path.read_bytes()[132:])
    assert not is_image(bare)


def test_pictures_and_damaged_ones_are_images(tmp_path):
    path = picture(tmp_path / "x", 0, 0)
    assert is_image(path)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(path.read_bytes()[:140])
    assert is_image(damaged)
    assert "with Rows, found none" in decode_files([damaged], 16, 1, None, "s").failed[0].reason


@pytest.mark.parametrize("name", ["x.dcm", "x.DCM", "x.ima", "x.dicom"])
def test_a_file_that_is_called_dicom_is_an_image_however_damaged(tmp_path, name):
    """An interrupted copy leaves empty files, or zeros."""
    for content in (b"", b"\0" * 400):
        (tmp_path / name).write_bytes(content)
        assert is_image(tmp_path / name)


def test_many_damaged_files_of_a_class_are_not_left_out_as_another_kind(tmp_path):
    for patient in range(40):
        folder = tmp_path / "export" / ("benign", "malignant")[patient % 2]
        picture(folder / f"{patient}.dcm", patient, patient)
        if patient % 8 == 0:
            (folder / f"{patient}.dcm").write_bytes(b"")
    with pytest.raises(DataError, match=r"5 of 40 that cannot: .*an empty file: benign/0\.dcm, "):
        partition(tmp_path / "export", tmp_path / "sites", Wanted(sites=2))


def test_a_folder_of_classes_may_hold_reports_and_thumbnails(tmp_path):
    root = tmp_path / "export"
    for patient in range(40):
        folder = root / ("benign", "malignant")[patient % 2] / f"patient-{patient}"
        for number in range(2):
            picture(folder / f"IM{number}", 2 * patient + number, patient)
        report(folder / "SR0", "Comprehensive SR")
        for name in ("Thumbs.db", "desktop.ini", ".DS_Store", "._IM0"):
            (folder / name).write_bytes(b"\0\5\x16\7")
    report(root / "benign" / "DICOMDIR", "Media Storage Directory")
    text = " ".join(partition(root, tmp_path / "sites", Wanted(sites=2)).split())
    assert "Listed: 201 files. Used: 80. Left out: 121, " in text
    for item in (
        "40: a DICOM object without a picture: Comprehensive SR: ",
        "1: a DICOM object without a picture: Media Storage Directory: benign/DICOMDIR",
        "40: .db is no ending of an image: ",
        "40: .ini is no ending of an image: ",
    ):
        assert f"- {item}" in text
    assert "80 DICOM files are grouped by their headers into 40 patients" in text
    listed = "".join((tmp_path / "sites" / f"site-{site}.csv").read_text() for site in (1, 2))
    assert listed.count("IM") == 2 * 80  # sample_id and image
    assert "SR0" not in listed
    assert "DICOMDIR" not in listed


def test_reports_that_a_sites_csv_lists_are_rejected_and_not_counted(empty_hospital):
    hospital = empty_hospital()
    hospital.spec = hospital.spec.model_copy(update={"channels": 1})
    for index in range(40):
        label = ("MEL", "NV", "BCC")[index % 3]
        picture(hospital.folder / "images" / f"IM{index}", index, index)
        hospital.rows.append([f"s{index:02}", f"images/IM{index}", label, f"g{index}"])
        if index % 2:
            report(hospital.folder / "images" / f"SR{index}", "Comprehensive SR")
            hospital.rows.append([f"r{index:02}", f"images/SR{index}", label, f"g{index}"])
    data = load_site(hospital.write(), hospital.spec)
    assert len(data.rejected) == 20
    assert {row.counted for row in data.rejected} == {False}
    assert "without a picture: Comprehensive SR" in data.rejected[0].reason
    (hospital.folder / "images" / "IM3").write_bytes(b"")
    [damaged] = [row for row in load_site(hospital.write(), hospital.spec).rejected if row.counted]
    assert damaged.sample_id == "s03"


def test_partition_leaves_out_the_reports_that_a_csv_lists(tmp_path):
    rows = ["image,label"]
    for patient in range(40):
        label = ("benign", "malignant")[patient % 2]
        picture(tmp_path / f"IM{patient}", patient, patient)
        report(tmp_path / f"SR{patient}", "Comprehensive SR")
        rows += [f"IM{patient},{label}", f"SR{patient},{label}"]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    text = " ".join(partition(tmp_path / "list.csv", tmp_path / "sites", Wanted(sites=2)).split())
    assert "Listed: 80 rows. Used: 40. Left out: 40, " in text
    assert "- 40: a DICOM object without a picture: Comprehensive SR: line 3 (SR0), " in text
    assert "40 DICOM files are grouped by their headers into 40 patients" in text
    listed = "".join((tmp_path / "sites" / f"site-{site}.csv").read_text() for site in (1, 2))
    assert listed.count("IM") == 2 * 40  # sample_id and image
    assert "SR" not in listed


def test_a_report_beside_one_image_makes_no_series(tmp_path):
    image = picture(tmp_path / "a" / "p" / "IM0", 0, 0)
    note = report(tmp_path / "a" / "p" / "SR0", "Comprehensive SR")
    assert volumes_in([image, note], tmp_path / "a") == [image, note]
    left_out = LeftOut()
    assert left_out.images([image, note]) == [image]
    assert left_out.notes() == ["Left out: 1 DICOM object without a picture (Comprehensive SR 1)."]
    second = picture(tmp_path / "a" / "p" / "IM1", 1, 0)
    series = tmp_path / "a" / "p"
    assert volumes_in([image, second, note], tmp_path / "a") == [series, note]
    assert LeftOut().images([series, note]) == [series]
