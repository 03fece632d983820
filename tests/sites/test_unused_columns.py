"""Columns of a CSV that seem to say whose an image is."""

import pytest

from fedward.sites.unused_columns import like_patients


@pytest.mark.parametrize(
    ("name", "cells", "may_be"),
    [
        ("pid", "1 1 2 2", True),
        ("PatientNr", "1 1 2 2", True),
        ("patient-id", "1 1 2 2", True),
        ("ProbandinNr", "1 1 2 2", True),
        ("Fallnummer", "1 1 2 2", True),
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
