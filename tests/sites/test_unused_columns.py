"""Columns of a CSV that seem to say whose an image is."""

import numpy as np
import pytest
from PIL import Image

from deciding import read_csv
from fedward.errors import DataError
from fedward.lab.partition.csv_pool import CsvOptions
from fedward.sites.unused_columns import called_patients, like_patients


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
        ("Patient Age", False),
        ("patient_sex", False),
        ("study_id", False),
        ("code", False),
    ],
)
def test_the_name_of_a_column_says_whether_it_names_patients(name, is_called):
    assert called_patients({name: ["A1", "A1", "A2", ""]}) == ([name] if is_called else [])
    assert called_patients({name: ["A1", "A2", "A3", ""]}) == []
    assert called_patients({name: ["A1"] * 50 + ["A2"] * 50}) == []


def rows_with(folder, header, cells):
    """Write 12 images, and a CSV that has these cells for each row."""
    lines = [f"image,label,{header}"]
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        lines.append(f"{number}.png,{'ab'[number // 2 % 2]},{cells(number)}")
    path = folder / "t.csv"
    path.write_text("\n".join(lines))
    return path


def test_a_cut_needs_a_decision_where_an_unused_column_is_called_as_patients(tmp_path):
    table = rows_with(tmp_path, "Patienten-ID", lambda number: number // 2)
    with pytest.raises(DataError, match="found Patienten-ID, which nothing uses") as refused:
        read_csv(table, tmp_path)
    assert "so: --columns group=Patienten-ID. If not" in str(refused.value)
    assert "or nothing: --columns group=." in str(refused.value)
    pool = read_csv(table, tmp_path, CsvOptions(columns={"group": "Patienten-ID"}))
    assert pool.groups == [f"{number // 2}" for number in range(12)]
    alone = read_csv(table, tmp_path, CsvOptions(columns={"group": ""}))
    assert (alone.grouped, len(set(alone.groups))) == (False, 12)


def test_lesions_do_not_stand_for_the_patients_that_another_column_names(tmp_path):
    """A patient may have several lesions."""
    table = rows_with(tmp_path, "lesion_id,MRN", lambda number: f"L{number // 2},{number // 4}")
    with pytest.raises(DataError, match="together, or nothing: --columns group=lesion_id"):
        read_csv(table, tmp_path)
    by_lesion = read_csv(table, tmp_path, CsvOptions(columns={"group": "lesion_id"}))
    assert len(set(by_lesion.groups)) == 6
    well_known = table.read_text().replace("MRN", "patient")
    table.write_text(well_known)
    assert len(set(read_csv(table, tmp_path).groups)) == 3
