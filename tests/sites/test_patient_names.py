"""Patients who are written in several ways: one person is never in training and in test."""

import csv
from pathlib import Path
from random import Random

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from deciding import read_csv, read_npz
from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.lab.noted_answers import groups_in
from fedward.lab.partition.csv_pool import CsvOptions
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted
from fedward.sites import load_site
from fedward.sites.path_patients import patients_in_paths
from fedward.sites.patient_names import patient_names, words_of
from fedward.sites.site_csv import read_rows
from fedward.sites.site_file import read_site_file
from fedward.sites.split import owners
from fedward.sites.table_notes import group_notes

CLASSES = ("nevus", "melanoma")
PATIENTS = 40
SPELLINGS = ("P{:02d}", "p{:02d}", "P {:d}", "P-{:03d}", " p_{:02d}", "P\u200b{:02d}", "Ｐ{:02d}")
"""Ways to write the patient of a number."""


def written(number: int) -> str:
    """Return the patient of an image in one of the spellings; each patient has two images."""
    return SPELLINGS[number % len(SPELLINGS)].format(number // 2 + 1)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two images of each patient; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("images")
    for number in range(2 * PATIENTS):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def table_of(path: Path, **columns: list[str]) -> Path:
    """Write a CSV of the images, whose classes come in turn from patient to patient."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", *columns])
        for number in range(2 * PATIENTS):
            cells = [column[number] for column in columns.values()]
            writer.writerow([f"{number}.png", CLASSES[number // 2 % 2], *cells])
    return path


def site_of(images: Path, table: Path, sample_id: str = "image") -> Path:
    """Write a hospital's own site file of a CSV with a column of patients."""
    content = {
        "kind": "manifest",
        "folder": str(images),
        "manifest": str(table),
        "columns": {"sample_id": sample_id, "group": "patient"},
    }
    path = table.with_name("site-1.yaml")
    path.write_text(yaml.safe_dump(content))
    return path


def splits_of_patients(site_files: list[Path]) -> dict[int, set[tuple[str, str]]]:
    """Return number of a patient -> the sites and splits that have their images."""
    places: dict[int, set[tuple[str, str]]] = {}
    for path in site_files:
        data = load_site(path, DataSpec(classes=CLASSES, image_size=16, channels=1))
        for split, part in {
            "train": [*data.labelled.ids, *data.unlabelled.ids],
            "val": data.val.ids,
            "test": data.test.ids,
        }.items():
            for name in part:
                patient = int(Path(name).stem) // 2
                places.setdefault(patient, set()).add((path.stem, split))
    return places


@pytest.mark.parametrize(
    "spellings",
    [
        ["P01", "p01 ", "P 01", "P-1", "P_001", "(p1)"],
        ["7", "007", "7.0", "7,00", "#7"],
        ["M\u00fcller, Hans", "muller hans", "MULLER^HANS", "Mu\u0308ller Hans", "Mueller Hans"],
        ["A\u200b1", "\uff211", "A1", "\u03911"],
    ],
)
def test_spellings_of_one_patient_have_one_name(spellings):
    assert len(set(patient_names(spellings).of_rows)) == 1


@pytest.mark.parametrize(
    "patients",
    [
        ["P1", "P1a", "P1-1", "P11", "PP1", "P10"],
        ["1-23", "12-3", "1.2", "1.20", "123"],
        ["+", "++", "P"],
        ["0", "10", "100"],
    ],
)
def test_other_words_or_numbers_name_other_patients(patients):
    assert patient_names(patients).of_rows == patients


NAMES = st.text("aAbBeÄ01 -_.", max_size=5)


@example([" ", "\u200b", ""], Random(0))
@given(st.lists(NAMES, max_size=12), st.randoms())
def test_rows_have_one_name_if_and_only_if_their_words_are_the_same(cells, random):
    names = patient_names(cells).of_rows
    for cell, name in zip(cells, names, strict=True):
        assert not name or words_of(cell) == words_of(name)
    assert len(set(names)) == len({words_of(name) for name in names})
    assert patient_names(names).of_rows == names
    order = random.sample(range(len(cells)), len(cells))
    shuffled = patient_names([cells[row] for row in order]).of_rows
    assert shuffled == [names[row] for row in order]


def test_the_commonest_spelling_is_the_name_and_the_note_has_all():
    cells = ["99", "099", "099", "-1", "7"]
    names = patient_names(cells)
    assert names.of_rows == ["099", "099", "099", "", "7"]
    assert group_notes(cells, names) == [
        "Groups that name nobody, and count as empty cells do: -1 1.",
        "Groups that are written in several ways, each of which counts as one: 1, as 099 and 99. "
        "If they are different patients, give them names that differ in a word or a number.",
    ]


def test_rows_alone_that_have_their_ids_as_patients_stay_alone():
    """A cut writes an image's id where it has no patient, and ids may differ in case alone."""
    cells = ["a.png", "A.png", "P1", "p1", "b1.png", "B1.PNG"]
    ids = ["a.png", "A.png", "x.png", "y.png", "b1.png", "z.png"]
    assert patient_names(cells, ids).of_rows == ["a.png", "A.png", "P1", "P1", "B1.PNG", "B1.PNG"]
    assert owners(["7", "", ""], ["a", "007", "b"]) == ["7", "007 (alone)", "b"]


def test_a_cut_keeps_a_patient_of_several_spellings_together(images, tmp_path):
    patients = [written(number) for number in range(2 * PATIENTS)]
    table = table_of(tmp_path / "t.csv", patient=patients)
    assert len(set(read_csv(table, images).groups)) == PATIENTS
    partition(table, tmp_path / "sites", Wanted(sites=2, images=images))
    places = splits_of_patients(sorted((tmp_path / "sites").glob("site-*.yaml")))
    assert len(places) == PATIENTS
    assert all(len(found) == 1 for found in places.values())


def test_splits_of_the_data_that_tear_such_a_patient_are_refused(images, tmp_path):
    patients = [f"P{number // 2:02d}" for number in range(2 * PATIENTS)]
    splits = [("train", "train", "test")[number // 2 % 3] for number in range(2 * PATIENTS)]
    read_csv(table_of(tmp_path / "t.csv", patient=patients, split=splits), images)
    patients[5] = "p 2"
    splits[5] = "train"
    table = table_of(tmp_path / "t.csv", patient=patients, split=splits)
    with pytest.raises(DataError, match="1 in several, such as P02") as refused:
        read_csv(table, images)
    assert "zeros before a number do not tell groups apart" in str(refused.value)
    pool = read_csv(table, images, CsvOptions(columns={"split": ""}))
    assert pool.groups[4] == pool.groups[5]
    with pytest.raises(DataError, match="groups in several: P02"):
        load_site(site_of(images, table), DataSpec(classes=CLASSES, image_size=16, channels=1))


def test_a_hospital_draws_its_splits_by_patients_of_several_spellings(images, tmp_path):
    patients = [written(number) for number in range(2 * PATIENTS)]
    file = site_of(images, table_of(tmp_path / "t.csv", patient=patients))
    places = splits_of_patients([file])
    assert len(places) == PATIENTS
    assert all(len(found) == 1 for found in places.values())
    assert {split for found in places.values() for _, split in found} == {"train", "val", "test"}
    # What counts patients, such as a survey, counts them once.
    rows = read_rows(read_site_file(file), CLASSES, DataSpec(classes=CLASSES).label_kind)
    assert len({entry.group for entry in rows.entries}) == PATIENTS
    assert len(set(groups_in(file).values())) == PATIENTS


def test_a_row_that_repeats_an_image_may_spell_its_patient_otherwise(images, tmp_path):
    patients = [f"P{number // 2}" for number in range(2 * PATIENTS)]
    table = table_of(tmp_path / "t.csv", patient=patients)
    with table.open("a") as file:
        file.write("3.png,melanoma,p 01\n")
    pool = read_csv(table, images)
    assert [image.reason for image in pool.left_out] == ["a repeat of line 5"]
    data = load_site(site_of(images, table), DataSpec(classes=CLASSES, image_size=16, channels=1))
    assert [(row.reason, row.counted) for row in data.rejected] == [
        ("not used: it repeats the image of line 5", False)
    ]


def test_arrays_of_patients_are_read_by_the_same_words(tmp_path):
    def file(**arrays):
        path = tmp_path / "pool.npz"
        pixels = np.random.default_rng(0).integers(0, 256, (2 * PATIENTS, 16, 16), np.uint8)
        np.savez(path, images=pixels, labels=np.arange(2 * PATIENTS) // 2 % 2, **arrays)
        return path

    patients = np.array([written(number) for number in range(2 * PATIENTS)])
    pool = read_npz(file(patient=patients))
    assert len(set(pool.groups)) == PATIENTS
    assert pool.groups[0::2] == pool.groups[1::2]
    assert any("written in several ways" in note for note in pool.notes)


def test_paths_name_a_patient_by_the_same_words():
    paths = ["Patient01/a.png", "patient1/b.png", "patient 01/c.png", "Patient02/d.png"]
    first, second, third, other = patients_in_paths(paths)
    assert first == second == third != other
