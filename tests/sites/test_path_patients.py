"""Patients whom only paths name, and a table with many faults, as CheXpert's has them."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedward import cli
from fedward.sites.path_patients import (
    folders_of_few,
    patients_in_paths,
    patients_in_paths_note,
)

ROWS = [
    (f"CheXpert-v1.0-small/train/patient{patient:05}/study{study}/view1_frontal.jpg", patient)
    for patient in range(1, 31)
    for study in (1, 2)
]


@pytest.mark.parametrize(
    ("paths", "patients"),
    [
        (["train/patient1/s1/a.jpg", "train/patient1/s2/a.jpg", "train/patient2/a.jpg"], "112"),
        (["p10/p10000032/s5/a.jpg", "p10/p10000032/s6/a.jpg", "p10/p10000764/s1/a.jpg"], "112"),
        (["sub-01/ses-1/sub-01_T1w.nii", "sub-01/ses-2/b.nii", "sub-02/ses-1/b.nii"], "112"),
        (
            ["test/person1_virus_6.jpeg", "train/person1_bacteria_1.jpeg", "train/person3.jpeg"],
            "112",
        ),
        (["w/A/Patient (1)/a.png", "w/A/Patient (1)/b.png", "w/B/Patient (1)/a.png"], "112"),
        (["nevus/case_7/a.png", "mel/case_7/b.png", "mel/case_8/b.png"], "112"),
        (["A/case1.png", "A/case2.png", "B/case1.png"], "   "),
        (["subset1/a.png", "subset1/b.png", "subset2/a.png"], "   "),
        (["images_001/a.png", "images_001/b.png", "images_002/c.png"], "   "),
        (["patient1/a.png", "patient1/b.png"], "  "),
        (["Probandin 1/a.png", "Probandin 1/b.png", "Proband 2/a.png"], "112"),
        (["probandn1/a.png", "probandn1/b.png", "probandn2/a.png"], "   "),
        (["paciente_1_0.png", "paciente_1_1.png", "paciente_2_0.png"], "112"),
        (["a/Fall_1_0.png", "a/Fall_1_1.png", "a/Fall_2_0.png"], "112"),
        (["sujet-1/a.png", "sujet-1/b.png", "sujet-2/a.png"], "112"),
    ],
)
def test_the_patients_that_paths_name_are_found(paths, patients):
    found = patients_in_paths(paths, [Path(path).parts[0] for path in paths])
    names = dict(zip(found, patients, strict=True))
    assert "".join(names[name] for name in found) == patients
    assert (names.get("") == " ") == (patients.strip() == "")
    assert bool(patients_in_paths_note(paths, paths)) == bool(set(patients_in_paths(paths)) - {""})
    assert not patients_in_paths_note(paths, ["one", *paths[2:], "one"])


@pytest.mark.parametrize(
    ("paths", "labels", "patients"),
    [
        # Whoever renames a label, or writes a table, calls it otherwise than its folder.
        (["cov/pat1/a.png", "nor/pat1/b.png", "nor/pat2/c.png"], ("covid", "ok", "ok"), "112"),
        (["cov/pat1/a.png", "no/pat1/b.png", "no/pat2/c.png"], ("covid", "", ""), "112"),
        (["x/cov/pat1/a.png", "y/no/pat1/b.png", "x/no/pat1/c.png"], ("c", "n", "n"), "121"),
        # Folders of hospitals, each with images of all labels.
        (["w/pat1/a.png", "w/pat1/b.png", "v/pat1/c.png", "v/pat1/d.png"], "abab", "1122"),
        # A label in several folders, and a folder of several labels.
        (["a1/pat1/a.png", "a2/pat1/b.png", "b/pat1/c.png", "b/pat1/d.png"], "aabb", "1233"),
        (["a/pat1/a.png", "a/pat1/b.png", "b/pat1/c.png"], "xyz", "112"),
    ],
)
def test_folders_of_labels_tear_no_patient(paths, labels, patients):
    found = patients_in_paths(paths, labels)
    names = list(dict.fromkeys(found))
    assert "".join(f"{names.index(name) + 1}" for name in found) == patients


@pytest.mark.parametrize(
    ("names", "images", "few"),
    [
        (["0017", "0018", "0021", "0034", "0040"], 2, True),
        (["0017", "0018", "0021", "0034"], 2, False),
        (["0017", "0018", "0021", "0034", "0040"], 1, False),
        (["0017", "0018", "0021", "0034", "0040"], 21, False),
        (["Müller, Anna", "Roth, Max", "Amann, Eva", "Sand, Ida", "Weiß, Jo"], 2, True),
        (["grade0", "grade1", "grade2", "grade3", "grade4"], 2, False),
    ],
)
def test_folders_of_few_images_may_be_patients(names, images, few):
    paths = [f"{name}/{number}.png" for name in names for number in range(images)]
    labels = [path[:6] if path.startswith("grade") else "nevus" for path in paths]
    assert bool(folders_of_few(paths, labels)) == few


@pytest.fixture
def chexpert(tmp_path):
    """A CSV of 60 images of 30 patients, without a column of patients."""
    folder = tmp_path / "CheXpert-v1.0-small"
    rng = np.random.default_rng(0)
    with (tmp_path / "train.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Path", "No Finding", "Edema", "Support Devices"])
        for number, (path, patient) in enumerate(ROWS):
            place = folder.parent / path
            place.parent.mkdir(parents=True)
            Image.fromarray(rng.integers(0, 256, (16, 16), np.uint8)).save(place)
            edema = ("1.0", "-1.0", "")[number % 3]
            devices = "1.0" if patient % 2 else "0.0"
            writer.writerow([path, "" if edema else "1.0", edema, devices])
    return tmp_path / "train.csv"


def test_all_that_is_wrong_is_said_at_once_and_patients_stay_together(chexpert, capsys):
    out = chexpert.parent / "cut"
    columns = ["label=No Finding", "label=Edema", "label=Support Devices"]
    words = ["partition", chexpert, "--columns", *columns, "--out", out]
    assert cli.main([*map(str, words), "--sites", "9"]) == 1
    error = " ".join(capsys.readouterr().err.split())
    cures = {"--uncertain": "negative", "--no-finding": "ignored"}
    assert "3 things must be fixed or decided" in error
    assert "found it beside Support Devices 10" in error
    assert "9 with fewer" in error
    for option, value in cures.items():
        assert f"{option} {value}" in error
        words += [option, value]
    assert cli.main([*map(str, words), "--sites", "2"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "60 images are grouped by the patients that their paths name" in output
    assert "such as CheXpert-v1.0-small/patient00001: 30 patients." in output
    places: dict[str, set[str]] = {}
    labels = set()
    for site in ("site-1", "site-2"):
        for row in csv.DictReader((out / f"{site}.csv").open()):
            patient = Path(row["image"]).parts[-3]
            places.setdefault(patient, set()).add(f"{site} {row['split']}")
            labels.add(row["label"])
    assert len(places) == 30
    assert all(len(place) == 1 for place in places.values())
    assert labels == {"Edema", "Support Devices", "Edema|Support Devices", "No Finding"}
