"""Columns of subgroups in a site file: which cells are in which group, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fedward.errors import DataError
from fedward.sites import load_site
from fedward.sites.doctor import examine
from fedward.sites.site_file import ManifestSite, read_site_file
from fedward.sites.subgroups import (
    NOT_STATED,
    cells_by_group,
    check_columns,
    is_left_over,
    subgroup_of,
)
from surveyed import SPEC, Held, write_hospital

SEX = {"women": ("F", "w", "2"), "men": ("M", "m", "1")}
AGE = {"0-39": ("0-39",), "40-64": ("40-64",), "65+": ("65+",)}


@pytest.mark.parametrize(
    ("cell", "groups", "group"),
    [
        ("F", SEX, "women"),
        ("W", SEX, "women"),
        ("1", SEX, "men"),
        ("2.0", SEX, "women"),
        ("diverse", SEX, NOT_STATED),
        ("", SEX, NOT_STATED),
        ("NaN", SEX, NOT_STATED),
        ("0", AGE, "0-39"),
        ("39", AGE, "0-39"),
        ("39.9", AGE, "0-39"),
        ("39,9", AGE, "0-39"),
        ("40", AGE, "40-64"),
        ("64.5", AGE, "40-64"),
        ("65", AGE, "65+"),
        ("130", AGE, "65+"),
        ("40-64", AGE, "40-64"),
        ("-3", AGE, NOT_STATED),
        ("inf", AGE, NOT_STATED),
        ("unknown", AGE, NOT_STATED),
        ("85+", AGE, "65+"),
        ("40-49", AGE, "40-64"),
        ("60-69", AGE, NOT_STATED),
        ("65 years", AGE, NOT_STATED),
        ("4_5", AGE, NOT_STATED),
        ("99", AGE, NOT_STATED),
        ("999", AGE, NOT_STATED),
        ("99", {"65-120": ("65-120",)}, "65-120"),
        ("99", {"none": ("99",), "0+": ("0+",)}, "none"),
        ("Unknown", {"asked, unknown": ("unknown",)}, "asked, unknown"),
        ("mu\u0308nchen", {"M": ("München",)}, "M"),
        ("arm,  left", {"arm": ("arm, left",)}, "arm"),
    ],
)
def test_a_cell_is_in_one_group(cell: str, groups: dict[str, Any], group: str) -> None:
    assert subgroup_of(cell, groups) == group


@pytest.mark.parametrize(
    ("cell", "is_left"),
    [("65 years", True), ("99", True), ("65", False), ("", False), ("NaN", False), ("-1", False)],
)
def test_what_states_something_and_is_in_no_group_is_left_over(cell: str, is_left: bool) -> None:
    assert is_left_over(cell, AGE) is is_left


def test_the_example_of_the_page_is_accepted() -> None:
    page = (Path(__file__).parents[2] / "docs" / "site_files.md").read_text()
    example = page.partition("## Subgroups")[2].partition("```yaml\n")[2].partition("```")[0]
    columns = cells_by_group(yaml.safe_load(example)["subgroups"])
    assert columns["sex"] == {"women": ["F", "w"], "men": ["M", "m"]}
    check_columns(columns)
    assert subgroup_of("m", columns["sex"]) == "men"


HELD: list[Held] = [
    ("MEL", "train", 2, 60, "a*", "X"),
    ("MEL", "test", 3, 60, "b", "x"),
    ("NV", "test", 2, 160, "c*", "Z"),
    ("NV", "val", 1, 160, "d*", ""),
]


def test_test_images_carry_their_groups_and_patients(tmp_path: Path) -> None:
    path = write_hospital(tmp_path / "here", HELD, subgroups={"camera": ["X", "Y"]})
    data = load_site(path, SPEC)
    assert data.subgroups == {"camera": ("X", "Y")}
    carried = zip(data.test.subgroups, data.test.patients, strict=True)
    assert sorted(carried) == [
        (("X",), "b"),
        (("X",), "b"),
        (("X",), "b"),
        ((NOT_STATED,), "c5"),
        ((NOT_STATED,), "c6"),
    ]
    # Images that are taken bring theirs along.
    assert data.test.taken([1]).patients == data.test.patients[1:2]


def test_the_doctor_counts_test_images_by_group(tmp_path: Path) -> None:
    path = write_hospital(tmp_path / "here", HELD, subgroups={"camera": ["X", "Y"]})
    notes = examine(path, SPEC).notes
    assert any(
        note.startswith("test images by camera: X 3, Y 0, not stated 2; cells") for note in notes
    )
    told = "a run has numbers of a group only where it has five test patients of a class"
    assert told in notes


def test_the_doctor_says_of_a_site_without_images_of_a_kind_only_that(tmp_path: Path) -> None:
    """As sites that train on a cut whose validation and test images are evaluated together."""
    columns = {"camera": ["X", "Y"]}
    trained = [held for held in HELD if held[1] == "train"]
    notes = examine(write_hospital(tmp_path / "trains", trained, subgroups=columns), SPEC).notes
    assert not any("test images" in note or "has numbers of a group" in note for note in notes)
    tested = [held for held in HELD if held[1] == "test"]
    notes = examine(write_hospital(tmp_path / "evaluates", tested, subgroups=columns), SPEC).notes
    assert "no training image: the site only evaluates" in notes
    assert not any("training label" in note for note in notes)


def test_without_columns_images_carry_neither_groups_nor_patients(tmp_path: Path) -> None:
    held = [(label, split, number, grey, "", "") for label, split, number, grey, *_ in HELD]
    data = load_site(write_hospital(tmp_path / "here", held), SPEC)
    assert data.subgroups == {}
    assert data.test.subgroups == data.test.patients == ()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"scanner": ["X"]}, "scanner"),
        ({"group": ["A"]}, "without group, which names images or patients"),
        ({"camera": []}, "1 to 11 groups"),
        ({"camera": [f"{number}" for number in range(12)]}, "1 to 11 groups"),
        ({"camera": ["X", "x"]}, "cells that are in one group each"),
        ({"camera": {"A": ["X"], "B": ["X"]}}, "cells that are in one group each"),
        ({"camera": {"A": ["2"], "B": ["2.0"]}}, "cells that are in one group each"),
        ({"camera": ["0-40", "40-64"]}, "bands that do not overlap"),
        ({"camera": ["not stated"]}, "no group not stated"),
        ({"camera": ["x" * 41]}, "1 to 40 printable characters"),
        ({"camera": {"A\u202e": ["X"]}}, "1 to 40 printable characters"),
        ({f"c{number}": ["X"] for number in range(6)}, "at most 5 columns"),
        ("camera", "columns, each with its groups"),
        (["camera"], "columns, each with its groups"),
        ({"camera": "X"}, "subgroups"),
    ],
)
def test_columns_that_cannot_be_counted_by_are_refused(
    tmp_path: Path, columns: Any, message: str
) -> None:
    path = write_hospital(tmp_path / "here", HELD)
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**content, "subgroups": columns}))
    with pytest.raises(DataError, match=message):
        load_site(path, SPEC)


def test_numbers_of_yaml_are_names(tmp_path: Path) -> None:
    path = write_hospital(tmp_path / "here", HELD, subgroups={"camera": {"new": 2, "old": [1, 3]}})
    file = read_site_file(path)
    assert isinstance(file, ManifestSite)
    assert file.subgroups == {"camera": {"new": ("2",), "old": ("1", "3")}}
