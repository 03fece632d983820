"""Columns of a CSV that seem to say whose an image is."""

import numpy as np
import pytest
from PIL import Image

from deciding import read_csv
from fedward.errors import DataError
from fedward.lab.partition.csv_pool import CsvOptions
from fedward.sites.unused_columns import like_patients, torn_patients, unused_patients


@pytest.mark.parametrize(
    ("name", "cells", "may_be"),
    [
        ("pid", "1 1 2 2", True),
        ("PatientNr", "1 1 2 2", True),
        ("patient-id", "1 1 2 2", True),
        ("ProbandinNr", "1 1 2 2", True),
        ("Fallnummer", "1 1 2 2", True),
        ("Patienten-ID", "1 1 2 2", True),
        ("Numéro du patient", "1 1 2 2", True),
        ("Patiëntnummer", "1 1 2 2", True),
        ("pid", "1 2 3 4", False),
        ("pid", "1 1 1 1", False),
        ("paid", "1 1 2 2", False),
        ("code", "A-1 A-1 A-2 A-2", True),
        ("code", "10 10 20 20", False),
        ("camera", "left left right right", False),
        ("code", " ".join(["A1"] * 50 + ["A2"] * 50), False),
    ],
)
def test_a_column_may_be_patients_by_its_name_or_by_its_identifiers(name, cells, may_be):
    assert like_patients({name: cells.split(" ")}) == ([name] if may_be else [])


@pytest.mark.parametrize(
    ("name", "is_called"),
    [
        ("Patienten-ID", True),
        ("Pat.-Nr.", True),
        ("MRN", True),
        ("case number", True),
        ("PatientName", True),
        ("Numéro de dossier patient", True),
        ("N° paciente", True),
        ("Codice paziente", True),
        ("Patient Identifier", True),
        ("Study Patient ID", True),
        ("Patient (pseudonymisiert)", True),
        ("patient_hash", True),
        ("Fallnummer", True),
        ("Patient Age", False),
        ("Patientenalter", False),
        ("PatientSex_DICOM", False),
        ("View Position of patient", False),
        ("study_id", False),
        ("code", False),
    ],
)
def test_the_name_of_a_column_says_whether_it_names_patients(name, is_called):
    patients = [f"A{number % 5}" for number in range(500)]
    images = list(map(str, range(500)))
    assert torn_patients({name: patients}, {"group"}, images) == ([name] if is_called else [])
    # One that is used, or that the groups hold whole, or that has few values, as yes and no.
    assert torn_patients({name: patients}, {name}, images) == []
    assert torn_patients({name: patients}, {"group"}, patients) == []
    assert torn_patients({name: images}, {"group"}, images) == []
    assert torn_patients({name: ["A1", "A2", "A3", "A4", ""] * 100}, {"group"}, images) == []


def test_a_column_of_patients_in_use_leaves_no_doubt_of_others():
    """``case`` may number the images of each patient."""
    patients = [f"P{number // 5}" for number in range(50)]
    cases = {"case": [f"{number % 5}" for number in range(50)]}
    assert unused_patients(cases, {"image", "Patient ID"}, patients) == []
    assert unused_patients(cases, {"image", "group"}, patients) == ["case"]
    # Where images stay together, identifiers without a word for patients say too little.
    batches = {"batch": [f"B{number % 5}" for number in range(50)]}
    assert unused_patients(batches, {"image", "group"}, patients) == []
    images = list(map(str, range(50)))
    assert unused_patients(batches, {"image"}, images) == ["batch"]


@pytest.mark.parametrize(
    ("name", "is_noted"),
    [("IPP", True), ("NHC", True), ("Prénom", True), ("Geburtsdatum", True), ("class_name", False)],
)
def test_a_column_of_names_is_noted_where_no_images_stay_together(name, is_noted):
    columns = {name: ["Anna", "Anna", "Max", ""]}
    assert unused_patients(columns, {"image"}, list("1234")) == ([name] if is_noted else [])
    assert torn_patients(columns, {"image"}, list("1234")) == []
    assert unused_patients({name: ["Anna", "Max", "Eva", ""]}, {"image"}, list("1234")) == []


def rows_with(folder, header, cells, images=24):
    """Write images, and a CSV that has these cells for each row."""
    lines = [f"image,label,{header}"]
    for number in range(images):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        lines.append(f"{number}.png,{'ab'[number // 2 % 2]},{cells(number)}")
    path = folder / "t.csv"
    path.write_text("\n".join(lines))
    return path


def test_a_cut_needs_a_decision_where_an_unused_column_is_called_as_patients(tmp_path):
    table = rows_with(tmp_path, "Patienten-ID", lambda number: number // 2)
    with pytest.raises(DataError, match="found Patienten-ID, whose images would") as refused:
        read_csv(table, tmp_path)
    assert "so: --columns group=Patienten-ID. If not" in str(refused.value)
    assert "or nothing: --columns group=." in str(refused.value)
    pool = read_csv(table, tmp_path, CsvOptions(columns={"group": "Patienten-ID"}))
    assert pool.groups == [f"{number // 2}" for number in range(24)]
    alone = read_csv(table, tmp_path, CsvOptions(columns={"group": ""}))
    assert (alone.grouped, len(set(alone.groups))) == (False, 24)


@pytest.mark.parametrize("column", ["lesion_id", "case_id", "group"])
def test_groups_do_not_stand_for_the_patients_that_another_column_names(tmp_path, column):
    """A patient may have several lesions or cases."""
    table = rows_with(tmp_path, f"{column},MRN", lambda number: f"L{number // 2},{number // 4}")
    with pytest.raises(DataError, match=f"together, or nothing: --columns group={column}"):
        read_csv(table, tmp_path)
    by_lesion = read_csv(table, tmp_path, CsvOptions(columns={"group": column}))
    assert len(set(by_lesion.groups)) == 12
    table.write_text(table.read_text().replace(column, "lesion").replace("MRN", "patient"))
    assert len(set(read_csv(table, tmp_path).groups)) == 6


def test_the_images_of_a_video_do_not_hide_whose_it_is(tmp_path):
    """A patient has more frames, tiles or slices than photographs."""
    batches = rows_with(
        tmp_path, "group,patient_id", lambda number: f"B{number % 9},{number // 30}", images=150
    )
    with pytest.raises(DataError, match="found patient_id, whose images would not stay together"):
        read_csv(batches, tmp_path)
    # A row without a group stays with its patient.
    without = rows_with(tmp_path, "group,patient_id", lambda number: f",{number // 30}", images=150)
    assert len(set(read_csv(without, tmp_path).groups)) == 5
