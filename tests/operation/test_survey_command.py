"""``fedward survey``: counts and a page of site files, and pictures that stay at their site."""

import json
import re
import stat
from pathlib import Path

import pytest

from fedward import cli
from fedward.config import DataSpec
from fedward.evaluation.in_fives import LEVELS, SIDES
from fedward.report.survey import Surveyed, render_survey
from fedward.report.survey_words import conclusions, flags, median
from fedward.storage.rows import SurveyRow
from surveyed import CLASSES, Held, write_hospital

HELD: list[Held] = [
    ("MEL", "train", 10, 60, "a*", "X"),
    ("NV", "train", 10, 60, "a*", "<b>Y"),
    ("NV", "test", 5, 60, "b*", "X"),
    ("DF", "test", 3, 250, "c*", "Z"),
]


def run(*arguments: object) -> int:
    return cli.main(["survey", *map(str, arguments), "--classes", *CLASSES, "--image-size", "16"])


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sites")
    held: dict[str, list[Held]] = {
        "site-2": HELD,
        "site-10": [*HELD, ("DF", "train", 25, 60, "d*", "X")],
    }
    return [
        write_hospital(folder / site, rows, survey_columns=["camera"])
        for site, rows in held.items()
    ]


def test_it_writes_a_page_and_json(
    sites: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*sites, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "survey.html")
    told = json.loads((tmp_path / "out" / "survey.json").read_text())
    assert [(row["site"], row["labelled"], row["test"]) for row in told["sites"]] == [
        ("site-2", [10, 10, 0], [0, 5, 0]),
        ("site-10", [10, 10, 25], [0, 5, 0]),
    ]
    page = (tmp_path / "out" / "survey.html").read_text()
    assert "site-2 has no DF: no labels, or fewer than five patients in each split." in page
    assert "&lt;b&gt;Y" in page
    assert "<b>Y" not in page
    assert "data:image" not in page
    assert "s0" not in re.findall(r"\bs\d+\b", page), "no sample is named"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert modes == {0o600}


@pytest.mark.proves(
    "files",
    "a link at the name of the page of a survey, or of a contact sheet",
    "replaced and not followed: no other file is written over",
)
def test_a_link_in_the_place_of_the_page_is_not_followed(sites: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "other").write_text("of another use")
    (out / "survey.html").symlink_to(tmp_path / "other")
    assert run(sites[0], "--pictures", "--out", out) == 0
    assert (tmp_path / "other").read_text() == "of another use"
    assert not (out / "survey.html").is_symlink()
    assert stat.S_IMODE((out / "survey.html").stat().st_mode) == 0o600


def test_a_folder_of_site_files_is_all_of_them(sites: list[Path], tmp_path: Path) -> None:
    assert run(sites[0].parent, "--out", tmp_path / "one") == 0
    one, two = (tmp_path / name / "survey.html" for name in ("one", "two"))
    assert run(sites[0], "--out", tmp_path / "two") == 0
    assert one.read_text() == two.read_text()


@pytest.mark.proves("lead", "pictures in a survey", "only on a page that a site writes for itself")
def test_pictures_are_of_one_site_and_its_page_says_so(
    sites: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*sites, "--pictures", "--out", tmp_path / "all") == 2
    assert "Name one site file: pictures stay where they are." in capsys.readouterr().err
    assert not (tmp_path / "all").exists()
    assert run(sites[1], "--pictures", "--out", tmp_path / "own") == 0
    page = (tmp_path / "own" / "survey.html").read_text()
    assert page.count("data:image/png") == 10 + 15 + 24, "of a class 24 at most"
    assert "It stays at this site." in page
    assert "It shows patients' images: delete it" in capsys.readouterr().out
    assert "data:" not in (tmp_path / "own" / "survey.json").read_text().replace('"data":', "")


def test_what_cannot_be_surveyed_is_reported(
    sites: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(sites[0], sites[0]) == 2
    assert "expected each site once" in capsys.readouterr().err
    assert run(tmp_path) == 2
    assert "expected a folder with a file SITE.yaml for each site" in capsys.readouterr().err
    assert run(tmp_path / "none.yaml", "--out", tmp_path / "out") == 1
    assert "site none" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- words


def row(site: str, labelled: list[int], darker: bool = False, **changes: object) -> SurveyRow:
    counts = [0] * LEVELS
    counts[4 if darker else 12] = 100
    sides = [0] * (len(SIDES) - 1)
    sides[3] = 100
    fields: dict[str, object] = {
        **{
            "unlabelled": 50,
            "val": labelled,
            "test": labelled,
            "patients": [],
            "sizes": [],
            "sides": sides,
        },
        **{
            "grey": 0,
            "colour": 100,
            "brightness": counts,
            "contrast": counts,
            "dark": 0,
            "repeated": 0,
            "columns": {},
        },
    }
    return SurveyRow(1, site, labelled, **{**fields, **changes})  # type: ignore[arg-type]


def test_flags_name_what_spoils_a_training() -> None:
    small = [0, 100, *[0] * (len(SIDES) - 3)]
    rows = [
        row("a", [50, 30, 0]),
        row("b", [50, 0, 0], repeated=10, grey=100, colour=0, sides=small),
        row("c", [0, 0, 0], darker=True),
    ]
    black = row("d", [50, 30, 20], dark=40)
    assert [sentence for sentence in flags([black], CLASSES) if "black" in sentence] == [
        "At d at least 40 of 100 images are nearly black or of one grey: look at them with "
        "`fedward doctor`. DICOM files may need a window in the site file."
    ]
    found = flags(rows, CLASSES)
    assert conclusions(rows, CLASSES) == [
        "3 sites report about 280 training images, 130 of them with a label (46 %), 130 for "
        "validation and 130 for testing. Labels of a class with fewer than five patients in a "
        "split of a site are in none of these numbers.",
        "MEL is the commonest class, with 77 % of the labels: a model must beat that.",
    ]
    assert [sentence.split(":")[0] for sentence in found] == [
        "No site reports images of DF",
        "No labels, or fewer than five patients of each class",
        "b has no NV",
        "c has no MEL or NV",
        "At b at least 10 validation or test images are also in another split, pixel by pixel. "
        "Results on known images "
        "say nothing about new ones; `fedward doctor` lists them.",
        "No validation images, or fewer than five patients of each class",
        "No test images, or fewer than five patients of each class",
        "b has validation images of MEL alone, in numbers that are counted",
        "b has test images of MEL alone, in numbers that are counted",
        "c's images are darker than the median of all sites",
        "c's images are of less contrast than the median of all sites",
        "b's images are smaller than the median of all sites",
        "Most images of b are grey, those of the other sites are in colour.",
        "Only a has labelled training images of NV",
    ]


def test_sites_that_are_alike_raise_no_flag() -> None:
    assert flags([row("a", [50, 30, 20]), row("b", [50, 30, 20])], CLASSES) == []
    assert flags([], CLASSES) == conclusions([], CLASSES) == []


def test_labels_without_training_images_are_scarce() -> None:
    scarce = flags([row("a", [15, 30, 0], test=[5, 5, 5])], CLASSES)[1]
    missing = flags([row("a", [50, 50, 0])], CLASSES)
    assert scarce == "Labels are scarce, fewer than 20 at all sites together: MEL (15)."
    assert missing == [
        "No site reports images of DF: no labels, or fewer than five patients in each split. "
        "`fedward doctor` tells a site which. Leave a class out of the job if no site has any, or "
        "have some labelled."
    ]


def test_medians_by_hand() -> None:
    assert median([0, 10, 0], (0, 1, 2, 3)) == 1.5
    assert median([5, 10, 5], (0, 1, 2, 3)) == 1.5
    assert median([30, 10], (0, 1, 2)) == pytest.approx(2 / 3)


def test_a_page_of_forty_sites_shows_all_in_tables() -> None:
    rows = [row(f"site-{number}", [50, 30, 20]) for number in range(40)]
    page = render_survey(Surveyed("moles", DataSpec(classes=CLASSES).classes, rows, "here"))
    assert all(page.count(f'<th scope="row">site-{number}</th>') == 5 for number in range(40))
    assert "Line: of all 30 sites shown here" in page
    assert page.count("<svg") == 60


@pytest.mark.proves(
    "site",
    "markup, links, scripts or line breaks in names",
    "text on one line",
)
def test_a_site_cannot_write_into_the_page() -> None:
    evil = (
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "$x_1$ \\frac",
        "{{ 7*7 }}",
    )
    columns = {name: dict.fromkeys(evil, 5) for name in evil}
    rows = [row(name, [50, 30, 20], columns=columns) for name in evil]
    page = render_survey(
        Surveyed(evil[0], evil[:3], rows, evil[1], failed=dict.fromkeys(evil, evil[0]))
    )
    assert page.count("<script") == 1, "the page's own"
    assert "<img" not in page
    assert "49" not in re.findall(r'<th scope="col">([^<]*)</th>', page)
    assert page.count("{{ 7*7 }}") > len(evil)


def test_other_values_come_last_and_numbers_in_order() -> None:
    columns = {"age": {"10": 5, "9": 10, "(others)": 5}}
    page = render_survey(
        Surveyed("moles", CLASSES, [row("a", [50, 30, 20], columns=columns)], "here")
    )
    headings = re.findall(r'<th scope="col">(9|10|\(others\))</th>', page)
    assert headings == ["9", "10", "(others)"]
