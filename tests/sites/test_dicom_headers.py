"""Headers of DICOM files: patients stay whole, persons are pointed out, and nothing of a header
leaves the site.
"""

import csv
import json
from collections import Counter

import numpy as np
import pytest
import yaml
from PIL import Image

from deciding import read_csv, read_folder
from dicom_files import RLE, pydicom, save
from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.lab.local import LocalTransport
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted
from fedward.sites import load_site
from fedward.sites.doctor import examine
from fedward.sites.headers import IDENTIFYING, DicomPatients, dicom_patients, header_notes
from fedward.sites.leaks import leaks_between
from running import run_local
from tiny import tiny

SECRET = "Mueller-4711"
TEXTS = (
    "PatientID",
    "PatientName",
    "AccessionNumber",
    "InstitutionName",
    "StudyDescription",
    "ImageComments",
)


def clinic(folder, patients=24, images=2, known=True, **more):
    """Write DICOM files without endings, in a folder for each of two classes."""
    for patient in range(patients):
        for index in range(images):
            values = np.random.default_rng(100 * patient + index).integers(
                0, 4096, (20, 24), np.uint16
            )
            tags = dict.fromkeys(TEXTS, SECRET) | {
                "PatientID": f"{SECRET}-{patient}" if known else ""
            }
            save(
                folder / "AB"[patient % 2] / f"IM{index}{patient:04}",
                values,
                BitsStored=12,
                **(tags | more),
            )
    return folder


def said_of(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_patients_stay_whole_under_names_that_tell_nothing(tmp_path):
    root = clinic(tmp_path / "scans")
    shown = partition(root, tmp_path / "sites", Wanted(sites=2))
    assert "24 patients" in " ".join(shown.split())
    places = {}
    for path in sorted((tmp_path / "sites").glob("site-*.csv")):
        for line in path.read_text().splitlines()[1:]:
            _, image, _, group, split = line.split(",")
            assert places.setdefault(image[-4:], (path, group, split)) == (path, group, split)
    assert {group for _, group, _ in places.values()} == {
        f"DICOM patient {number + 1}" for number in range(24)
    }
    assert SECRET.encode() not in said_of(tmp_path / "sites")
    assert SECRET not in shown
    partition(root, tmp_path / "sites", Wanted(sites=2))  # the same again


def test_a_csv_without_groups_takes_patients_too(tmp_path):
    root = clinic(tmp_path / "scans", patients=8)
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("IM*"))
    rows = [f"{name},{name[0]},L{index}" for index, name in enumerate(names)]
    (root / "list.csv").write_text("image,label,lesion\n" + "\n".join(rows))
    assert (
        len(set(read_csv(root / "list.csv", root).groups)) == 16
    )  # a column says what stays together
    (root / "list.csv").write_text(
        "image,label\n" + "\n".join(row.rsplit(",", 1)[0] for row in rows)
    )
    pool = read_csv(root / "list.csv", root)
    assert len(set(pool.groups)) == 8
    assert pool.data_spec()["channels"] == 1


@pytest.mark.parametrize(
    ("issuers", "numbers"),
    [
        (("", "", ""), [1, 1, 1]),
        (("north", "south", "north"), [1, 2, 1]),
        (("north", "", "north"), [1, 1, 1]),
        (("north", "south", ""), [1, 1, 1]),
    ],
)
def test_an_id_without_its_issuer_may_be_any_of_these_patients(tmp_path, issuers, numbers):
    """To take two patients for one puts none of them into training and into test."""
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    paths = [
        save(tmp_path / f"{index}", values, PatientID="7", IssuerOfPatientID=issuer)
        for index, issuer in enumerate(issuers)
    ]
    another = save(tmp_path / "another", values, PatientID="8", IssuerOfPatientID="north")
    assert dicom_patients([*paths, another]).numbers == [*numbers, max(numbers) + 1]


def test_an_id_and_its_issuer_may_be_spelt_in_several_ways(tmp_path):
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    patients = [("P01", "North"), ("p 1", "NORTH"), ("P-001", "north "), ("P01a", "north")]
    paths = [
        save(tmp_path / f"{index}", values, PatientID=patient, IssuerOfPatientID=issuer)
        for index, (patient, issuer) in enumerate(patients)
    ]
    assert dicom_patients(paths).numbers == [1, 1, 1, 2]


def test_ids_of_nobody_group_nothing(tmp_path):
    assert not read_folder(clinic(tmp_path / "empty", 4, known=False)).grouped
    same = read_folder(clinic(tmp_path / "same", 4, PatientID="ANONYMOUS"))
    assert not same.grouped
    assert "8 DICOM files have a PatientID that is ignored" in " ".join(same.notes)


@pytest.mark.parametrize("shared", ["", "RESEARCH"])
def test_studies_stay_whole_where_no_header_names_a_patient(tmp_path, shared):
    """As exports that are de-identified have them: the id is empty, or the same in all files."""
    root = clinic(tmp_path / "scans", PatientID=shared)
    for path in root.rglob("IM*"):
        made = pydicom.dcmread(path)
        made.StudyInstanceUID = f"1.2.{path.name[3:].lstrip('0') or 0}"
        made.save_as(path)
    pool = read_folder(root)
    assert sorted(Counter(pool.groups).values()) == [2] * 24
    note = (
        "48 DICOM files name no patient, so each of their 24 studies counts as a patient. One "
        "patient may have several studies."
    )
    assert note in pool.notes
    report = examine(site_of(root), SPEC)
    assert len(report.leaks) == 24
    assert report.leaks[0] == "one DICOM patient: s0 (train), s12 (test)"
    assert note in report.notes


@pytest.mark.parametrize("patient", ["ANONYMOUS", "Anon", "anonymized^", "000", "Test", "n/a", "?"])
def test_an_id_of_anybody_on_some_files_is_nobodys(tmp_path, patient):
    """Nobody could mend the leak that it would be."""
    root = clinic(tmp_path / "scans", 4)
    clinic(root, 2, PatientID=patient)
    assert len(set(read_folder(root).groups)) == 4 + 2
    assert len(examine(site_of(root), SPEC).leaks) == 2


def test_a_single_file_of_nobody_is_noted():
    alone = DicomPatients([1, None], ignored=1, by_study=1, studies=1)
    ignored, by_study = alone.notes
    assert ignored.startswith("1 DICOM file has a PatientID that is ignored")
    assert by_study.startswith("1 DICOM file names no patient, so its study counts as a patient")


def test_a_file_that_names_no_patient_has_that_of_its_study(tmp_path):
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    tags = [("7", "1.1"), ("", "1.1"), ("8", "1.2"), ("", "1.3"), ("", "1.3"), ("7", ""), ("", "")]
    paths = [
        save(tmp_path / f"{index}", values, PatientID=patient, StudyInstanceUID=study)
        for index, (patient, study) in enumerate(tags)
    ]
    found = dicom_patients(paths)
    assert found.numbers == [1, 1, 2, 3, 3, 1, None]
    assert (found.ignored, found.by_study, found.studies) == (0, 2, 1)
    assert found.notes == [
        "2 DICOM files name no patient, so their study counts as a patient. One patient may have "
        "several studies."
    ]
    # One patient and one study of all files tell nobody apart.
    same = dicom_patients(
        [paths[0], save(tmp_path / "x", values, PatientID="7", StudyInstanceUID="1.1")]
    )
    assert same.numbers == [None, None]


def test_a_patient_is_named_by_a_cell_or_else_a_header_or_else_a_path(tmp_path):
    """One image of another kind takes the patients of the others from nobody."""
    root = clinic(tmp_path / "scans", 3)
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for name in ("patient007_1", "patient007_2", "patient8_1", "patient8_2", "other"):
        Image.fromarray(values).save(root / "A" / f"{name}.png")
    pool = read_folder(root)
    of_headers = {f"DICOM patient {number}": 2 for number in (1, 2, 3)}
    of_paths = {"A/patient007": 2, "A/patient8": 2}
    assert Counter(pool.groups) == {**of_headers, **of_paths, "A/other.png": 1}
    for note in (
        "6 DICOM files are grouped by their headers into 3 patients, who get new numbers.",
        "4 images are grouped by the patients that their paths name, such as A/patient007: 2 "
        "patients.",
    ):
        assert note in pool.notes
    assert [pool.groups[row] for row, alone in enumerate(pool.alone) if alone] == ["A/other.png"]
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.*"))
    paths += sorted(path.relative_to(root).as_posix() for path in root.rglob("IM*"))
    rows = [f"{path},{path[0]},{'X' if 'IM00000' in path else ''}" for path in paths]
    (root / "list.csv").write_text("\n".join(["image,label,patient", *rows]))
    listed = read_csv(root / "list.csv", root)
    # The other image of the patient whose one cell is filled is known by its header.
    others = dict(list(of_headers.items())[1:])
    assert Counter(listed.groups) == {"X": 2, **others, **of_paths, "A/other.png": 1}


def test_a_patient_in_two_splits_of_the_data_is_refused(tmp_path):
    clinic(tmp_path / "scans" / "train", 4)
    clinic(tmp_path / "scans" / "test", 4)
    with pytest.raises(DataError, match="each group") as caught:
        read_folder(tmp_path / "scans")
    assert SECRET not in str(caught.value)


def test_new_splits_hold_a_patient_once_whom_those_of_the_data_share(tmp_path):
    for split in ("train", "test"):
        clinic(tmp_path / "scans" / split, 16)
    partition(tmp_path / "scans", tmp_path / "sites", Wanted(sites=2, resplit=True))
    places = {}
    for path in (tmp_path / "sites").glob("site-*.csv"):
        for row in csv.DictReader(path.open()):
            places.setdefault(row["group"], []).append((path.stem, row["split"]))
    assert [len(found) for found in places.values()] == [4] * 16
    assert all(len(set(found)) == 1 for found in places.values())
    assert {found[0][1] for found in places.values()} == {"train", "val", "test"}


def site_of(folder, **more):
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("IM*"))
    lines = [
        f"s{index},{name},{name[0]},,{'train' if name[4] == '0' else 'test'}"
        for index, name in enumerate(names)
    ]
    (folder / "manifest.csv").write_text("sample_id,image,label,group,split\n" + "\n".join(lines))
    (folder / "site-1.yaml").write_text(yaml.safe_dump({"kind": "manifest", "folder": ".", **more}))
    return folder / "site-1.yaml"


SPEC = DataSpec(classes=("A", "B"), image_size=16, channels=1)


def test_doctor_counts_tags_and_tells_no_value(tmp_path):
    root = clinic(tmp_path / "scans", 12, BurnedInAnnotation="NO")
    one = np.random.default_rng(7).integers(0, 256, (20, 24), np.uint8)
    tags = {"PhotometricInterpretation": "MONOCHROME1", "WindowCenter": 90, "WindowWidth": 150}
    save(root / "A" / "IM9", one, RLE, BurnedInAnnotation="YES", **tags)
    save(root / "A" / "IM8", 255 - one, BurnedInAnnotation=SECRET.upper())
    text = " ".join(examine(site_of(root), SPEC).text().split())
    for told in (
        "26 DICOM files",
        "Explicit VR Little Endian 25, RLE Lossless 1",
        "MONOCHROME2 25, MONOCHROME1 1",
        "12-bit 24, 8-bit 2",
        "none 25, centre and width 1",
        "PatientName 24, PatientID 24",
        "SOPInstanceUID 26",
        "YES in 1 file and missing in 1",
        "window: [CENTRE, WIDTH]",
        "one DICOM patient: s0 (train), s6 (test)",
    ):
        assert told in text
    assert "window: [" not in " ".join(examine(site_of(root, window=[50, 90]), SPEC).headers)
    assert not {"mueller", "4711"} & set(text.lower().replace("-", " ").split())


def test_doctor_points_out_names_at_any_depth_and_where_a_patient_lies(tmp_path):
    observer = pydicom.Dataset()
    observer.VerifyingObserverName = SECRET
    plan = pydicom.Dataset()
    plan.CodeMeaning = SECRET
    path = save(
        tmp_path / "x",
        np.random.default_rng(0).integers(0, 256, (20, 24), np.uint8),
        ContentCreatorName=SECRET,
        OtherPatientNames="",
        VerifyingObserverSequence=[observer],
        CurrentPatientLocation=SECRET,
        PatientInsurancePlanCodeSequence=[plan],
        AcquisitionTime="101010",
    )
    text = " ".join(header_notes([path], windowed=False))
    assert "1 DICOM file " in f"{text} "
    assert (
        "in how many files: ContentCreatorName 1, VerifyingObserverName 1, "
        "CurrentPatientLocation 1, PatientInsurancePlanCodeSequence 1, AcquisitionTime 1, "
        "SOPInstanceUID 1." in text
    )
    assert "OtherPatientNames" not in text
    assert SECRET not in text


def test_the_tags_that_are_pointed_out_are_those_of_dicom():
    assert [name for name in IDENTIFYING if pydicom.datadict.tag_for_keyword(name) is None] == []


def test_one_patient_of_all_files_of_a_site_is_no_leak(tmp_path):
    """De-identified files have one PatientID in place of all others."""
    nobody = examine(site_of(clinic(tmp_path / "a", 4, PatientID="RESEARCH")), SPEC)
    assert nobody.leaks == ()
    ignored = (
        "8 DICOM files have a PatientID that is ignored: ANONYMOUS or the like, or the same in all "
        "files."
    )
    assert ignored in nobody.notes
    somebody = examine(site_of(clinic(tmp_path / "b", 4)), SPEC)
    assert len(somebody.leaks) == 4
    assert ignored not in somebody.notes
    renamed = [
        (path, place._replace(site="another", split="test")) for path, place in somebody.dicom
    ]
    together = leaks_between([], [*nobody.dicom, *renamed])
    assert together == {"picture": [], "patient": []}
    together = leaks_between([], [*nobody.dicom, *somebody.dicom[:2], *renamed])
    assert {place.sample for places in together["patient"] for place in places} >= {"s0"}


@pytest.mark.parametrize(
    ("column", "names", "leaks"),
    [
        ("patient_id", "ABCDEFGH", 0),
        ("patient_id", "AB  CD  ", 4),
        ("lesion", "ABCDEFGH", 4),
    ],
)
def test_a_column_of_patients_counts_more_than_headers(tmp_path, column, names, leaks):
    """As where a program has written one PatientID for several patients, who else would leak."""
    file = site_of(clinic(tmp_path / "scans", 4), columns={"group": column})
    header, *rows = (tmp_path / "scans" / "manifest.csv").read_text().splitlines()
    rows = [f"{row},{name.strip()}" for row, name in zip(rows, names, strict=True)]
    (tmp_path / "scans" / "manifest.csv").write_text("\n".join([f"{header},{column}", *rows]))
    report = examine(file, SPEC)
    assert len(report.leaks) == leaks
    note = (
        "Patients by DICOM headers who are several by a site's column, which counts: 4, such as "
        "that of s0 and s2 (site-1). If these are one patient, correct the column."
    )
    assert (note in report.notes) == (leaks == 0)


def test_nothing_of_a_header_leaves_the_site(tmp_path, monkeypatch, capfd):
    """Two sites train, one of them with a broken file; at the third every file is broken."""
    root = clinic(tmp_path / "scans", 48, WindowCenter=2000, WindowWidth=4000)
    partition(root, tmp_path / "sites", Wanted(sites=3))
    broken = [
        f"{name},".split(",")[1]
        for name in (tmp_path / "sites" / "site-3.csv").read_text().splitlines()[1:]
    ]
    first = (tmp_path / "sites" / "site-1.csv").read_text().splitlines()[1].split(",")[1]
    for name in {first, *broken}:
        content = (root / name).read_bytes()
        assert b"4000" in content
        (root / name).write_bytes(content.replace(b"4000", b"4711"[:2] + b"Mu"))
    messages = []
    exchange = LocalTransport.exchange

    def heard(self, requests, timeout, deliver):
        messages.extend(repr(request) for request in requests.values())
        exchange(
            self,
            requests,
            timeout,
            lambda name, answer: (messages.append(repr(answer)), deliver(name, answer)),
        )

    monkeypatch.setattr(LocalTransport, "exchange", heard)
    spec = DataSpec.model_validate(
        json.loads((tmp_path / "sites" / "data.json").read_text()) | {"image_size": 16}
    )
    experiment = tiny("fedavg", data=spec, synthetic=None, minimum_replies=1, options={"rounds": 2})
    names = ["site-1", "site-2", "site-3"]
    run = run_local(experiment, tmp_path / "run", sites=names, site_folders=[tmp_path / "sites"])
    assert len(load_site(tmp_path / "sites" / "site-1.yaml", spec).rejected) == 1
    assert len(messages) > 8
    everything = said_of(run) + "".join((*messages, *capfd.readouterr())).encode()
    for word in (SECRET, "Mueller", "47Mu"):
        assert word.encode() not in everything
