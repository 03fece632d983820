"""What a site tells in a survey: numbers by hand, and attacks on the small-count rule."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedward.client.survey import survey_file, survey_of
from fedward.errors import DataError
from fedward.evaluation.in_fives import BRIGHTNESS, by_interval, by_value, in_fives
from fedward.sites import load_site
from fedward.sites.dark_images import nearly_black
from fedward.sites.data import Images, SiteData
from fedward.sites.facts import Fact, Size
from surveyed import CLASSES, SPEC, Held, write_hospital

BASE: list[Held] = [
    ("MEL", "train", 7, 60, "a*", "X"),
    ("NV", "train", 12, 160, "b*", "Y"),
    ("", "train", 6, 160, "c*", "Y"),
    ("MEL", "test", 5, 60, "d*", "X"),
    ("NV", "test", 10, 160, "e*", "Y"),
]


def survey_at(folder: Path, held: Sequence[Held], **file: Any) -> dict[str, Any]:
    """Write a hospital's images and site file, and return its survey."""
    path = write_hospital(folder, held, **file)
    return survey_file(path, load_site(path, SPEC, labelled=1.0))


def test_a_survey_by_hand(tmp_path: Path) -> None:
    survey = survey_at(tmp_path / "here", BASE, survey_columns=["camera"])
    assert survey["labelled"] == [5, 10, 0]
    assert survey["unlabelled"] == 5
    assert survey["val"] == [0, 0, 0]
    assert survey["test"] == [5, 10, 0]
    assert survey["patients"] == [25, 0, 15]
    assert survey["sizes"] == [{"width": 40, "height": 30, "images": 40}]
    assert survey["sides"] == [40, 0, 0, 0, 0, 0, 0, 0]
    assert survey["grey"] == 0
    assert survey["colour"] == 40
    assert survey["repeated"] == 0
    assert survey["columns"] == {"camera": {"X": 10, "Y": 30}}, "12 and 28 of 40"
    dark = int(70 / 255 * 20)
    bright = int(170 / 255 * 20)
    assert {place: count for place, count in enumerate(survey["brightness"]) if count} == {
        dark: 10,
        bright: 30,
    }
    assert sum(survey["contrast"]) == 40
    assert survey["contrast"][1] == 40, "10 of 255 grey values around the mean"
    assert json.loads(json.dumps(survey)) == survey


def test_a_site_tells_of_no_column_unless_its_file_names_it(tmp_path: Path) -> None:
    assert survey_at(tmp_path / "here", BASE)["columns"] == {}
    for column in ("sample_id", "group", "image"):
        path = write_hospital(tmp_path / column, BASE, survey_columns=[column])
        with pytest.raises(
            DataError, match=f"survey_columns.*without {column}, which names images or patients"
        ):
            load_site(path, SPEC)
    with pytest.raises(DataError, match="missing: scanner"):
        survey_at(tmp_path / "none", BASE, survey_columns=["scanner"])


def test_images_in_two_splits_are_counted(tmp_path: Path) -> None:
    path = write_hospital(tmp_path / "here", BASE)
    data = load_site(path, SPEC)
    leaking = SiteData(
        data.site, data.classes, data.labelled, data.unlabelled, data.val, data.labelled
    )
    assert survey_of(leaking, {})["repeated"] == 15, "19 images, in fives"
    assert survey_of(data, {})["patients"] == [], "nobody says whose images these are"


def test_dark_images_are_counted_by_the_rule_of_the_doctor(tmp_path: Path) -> None:
    data = load_site(write_hospital(tmp_path / "here", BASE), SPEC)
    sets = (data.labelled, data.unlabelled, data.test)
    expected = sum(int(nearly_black(images.pixels).sum()) for images in sets)
    assert expected > 0
    assert survey_of(data, {})["dark"] == in_fives(expected)


# --- attacks


@pytest.mark.proves(
    "lead",
    "images of a rare class, counted by surveys, crafted or random models, errors or sums",
    "all answers are the same for 0 to 4 of them, bit for bit",
)
@pytest.mark.parametrize(
    ("split", "label"), [("train", "DF"), ("val", "DF"), ("test", "DF"), ("train", "")]
)
def test_rare_classes_are_in_no_count(tmp_path: Path, split: str, label: str) -> None:
    """Their images differ from all others in every way that a survey looks at."""
    base = [row for row in BASE if row[0] or label]
    surveys = {
        json.dumps(
            survey_at(
                tmp_path / f"{count}",
                [*base, (label, split, count, 230, "z*", "Z")],
                survey_columns=["camera"],
            )
        )
        for count in range(5)
    }
    assert len(surveys) == 1
    five = survey_at(
        tmp_path / "5", [*base, (label, split, 5, 230, "z*", "Z")], survey_columns=["camera"]
    )
    assert five["columns"]["camera"]["Z"] == 5


@pytest.mark.proves(
    "lead",
    "images of a rare class, counted by surveys, crafted or random models, errors or sums",
    "all answers are the same for 0 to 4 of them, bit for bit",
)
@pytest.mark.parametrize("labelled", [0.0, 0.3, 0.5, ["s0", "s1", "s2", "s3", "s4", "s7"]])
def test_a_hidden_label_makes_no_image_common(tmp_path: Path, labelled: Any) -> None:
    rare = [("DF", "train", count, 230, "z*", "Z") for count in range(6)]
    wanted: dict[str, Any] = {"labelled": labelled, "survey_columns": ["camera"]}
    surveys = [
        json.dumps(survey_at(tmp_path / f"{n}", [*BASE, held], **wanted))
        for n, held in enumerate(rare)
    ]
    assert len(set(surveys[:5])) == 1
    assert surveys[5] != surveys[0]


def test_a_share_of_labels_is_counted_as_such(tmp_path: Path) -> None:
    """Half of 7 and of 12 are 4 and 6, and 4 are too few to be reported.

    9 hidden labels and 6 images without a label are 15.
    """
    half = survey_at(tmp_path / "half", BASE, labelled=0.5)
    assert half["labelled"] == [0, 5, 0]
    assert half["unlabelled"] == 15
    named = survey_at(tmp_path / "named", BASE, labelled=[f"s{number}" for number in range(6)])
    assert named["labelled"] == [5, 0, 0]
    assert named["unlabelled"] == 15


def numbers(content: Any) -> list[int]:
    """Return all numbers in nested dictionaries and lists."""
    if isinstance(content, dict):
        return [number for value in content.values() for number in numbers(value)]
    if isinstance(content, list):
        return [number for value in content for number in numbers(value)]
    return [content]


def cameras(*images: int) -> dict[str, int]:
    """Return what a survey says of so many images of camera A, B, ..., each of its own patient."""
    values = [name for name, count in zip("ABCDEFG", images, strict=False) for _ in range(count)]
    return by_value(values, [f"p{number}" for number in range(len(values))], 20)


@pytest.mark.proves(
    "lead",
    "images of a rare class, counted by surveys, crafted or random models, errors or sums",
    "all answers are the same for 0 to 4 of them, bit for bit",
)
@pytest.mark.parametrize("images", range(21, 41))
def test_totals_do_not_tell_how_many_are_few(images: int) -> None:
    """Of N images, known as from a training, some have the last of one to three cameras."""
    for first in ((), (8,), (5, 7)):
        last_two = images - sum(first)
        surveys = [cameras(*first, last_two - few, few) for few in range(5)]
        assert all(survey == surveys[0] for survey in surveys)
        assert [*surveys[0]] == [*"ABC"[: len(first) + 1]]
        assert sum(surveys[0].values()) == 5 * ((images + 2) // 5)


@pytest.mark.parametrize("seed", range(20))
def test_every_count_and_difference_is_in_fives(seed: int) -> None:
    """Of any site: no number, sum or difference of two of them speaks of one to four images."""
    rng = np.random.default_rng(seed)
    counts = iter(range(10**6))

    def images(most: int, labelled: bool = True) -> Images:
        size = int(rng.integers(0, most))
        labels = rng.choice(3, size, p=[0.8, 0.15, 0.05]) if labelled else np.full(size, -1)
        pixels = rng.integers(0, 256, (size, 1, 1, 1)) // 2 + rng.integers(0, 128, (size, 8, 8, 1))
        return Images(
            tuple(f"s{next(counts)}" for _ in range(size)),
            pixels.astype(np.uint8),
            labels.astype(np.int64),
        )

    data = SiteData("here", CLASSES, images(60), images(30, labelled=False), images(20), images(20))
    ids = [
        name for part in (data.labelled, data.unlabelled, data.val, data.test) for name in part.ids
    ]
    facts = {
        name: Fact(
            Size(*map(int, rng.integers(10, 14, 2)), bool(rng.integers(2))),
            f"p{rng.integers(9)}",
            (f"{rng.integers(7)}",),
        )
        for name in ids
    }
    survey = survey_of(data, facts, ["camera"])
    sizes = survey.pop("sizes")
    assert not [
        number for number in [*numbers(survey), *(size["images"] for size in sizes)] if number % 5
    ]
    totals = [sum(survey[name]) for name in ("labelled", "val", "test")]
    assert sum(survey["brightness"]) >= sum(totals) + survey["unlabelled"]


def test_an_image_apart_is_told_with_its_neighbours() -> None:
    """One very bright image among dark ones, or none, gives the same histogram.

    It is reported with its group of five.
    """
    dark = np.full(24, 0.1)
    assert by_interval(np.append(dark, 0.9), BRIGHTNESS) == by_interval(
        np.append(dark, 0.1), BRIGHTNESS
    )
    assert by_interval(np.array([0.1, 0.2]), BRIGHTNESS) == [0] * 20
    assert by_interval(np.array([]), BRIGHTNESS) == [0] * 20
    assert by_interval(np.array([1.0] * 7), BRIGHTNESS)[-1] == 5, (
        "the last interval has its upper end, too"
    )


def test_counting_in_fives() -> None:
    assert [in_fives(count) for count in (0, 4, 5, 9, 10, 104)] == [0, 0, 5, 5, 10, 100]
    values = [*"a" * 5, *"b" * 12, *"c" * 4, *[""] * 9, *["x" * 61] * 9, *["line\nbreak"] * 10]
    owners = [f"p{number}" for number in range(len(values))]
    assert by_value(values, owners, 20) == {"a": 5, "b": 10, "(others)": 35}, (
        "4 c, 9 empty, 9 long, 10 in two lines"
    )
    assert by_value(values, owners, 1) == {"b": 10, "(others)": 40}
    assert by_value(["a"] * 8, owners[:8], 20) == {"a": 10}, "to the nearest five"
    assert by_value(["a"] * 20, ["p1", "p2", "p3", "p4"] * 5, 20) == {}, "of four patients"


@pytest.mark.proves(
    "lead",
    "images of a rare class, counted by surveys, crafted or random models, errors or sums",
    "all answers are the same for 0 to 4 of them, bit for bit",
)
def test_many_images_of_few_patients_are_few(tmp_path: Path) -> None:
    held: Held = ("DF", "train", 12, 230, "z", "Z")
    few = [
        ("DF", "train", 3, 230 - 10 * patient, f"z{patient}", f"Z{patient}") for patient in range(4)
    ]
    surveys = [
        survey_at(tmp_path / f"{n}", more, survey_columns=["camera"])
        for n, more in enumerate((BASE, [*BASE, held], [*BASE, *few]))
    ]
    assert surveys[0] == surveys[1] == surveys[2]


def test_slices_of_one_volume_are_one_patient(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), np.uint8)
    no_images = Images((), pixels[:0], np.zeros(0, np.int64))
    for volumes, expected in ((4, 0), (5, 60)):
        ids = tuple(f"scan{number % volumes}#{number // volumes}" for number in range(60))
        data = SiteData(
            "here",
            CLASSES,
            Images(ids, pixels, np.zeros(60, np.int64)),
            no_images,
            no_images,
            no_images,
        )
        facts = {f"scan{number}": Fact(told=("CT",)) for number in range(volumes)}
        survey = survey_of(data, facts, ["kind"])
        assert survey["labelled"] == [expected, 0, 0]
        assert sum(survey["columns"]["kind"].values()) == expected
        assert survey["sizes"] == []
