"""What study and sites state about themselves, on all pages of a run."""

import json

import pytest
from pages import Page
from run_folders import SITES, write_run

from fedward.cards import LONGEST_TEXT, STUDY_ITEMS
from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.report import Run, write_report
from fedward.runs.about import About, spelled_out
from fedward.sites.site_file import read_site_file

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run in which the study states one item, and two of ten sites two others."""
    folder = write_run(tmp_path_factory.mktemp("about") / "run", rounds=1, synthetic=())
    info = json.loads((folder / "run.json").read_text())
    data = info["experiment"]["data"]
    data |= {"card": {"intended_use": HOSTILE}, "titles": {"MEL": HOSTILE[:60]}}
    info["cards"] = {
        site: {"texts": {"devices": HOSTILE, "labelled_by": site}, "unusable": 0}
        for site in SITES[:2]
    }
    (folder / "run.json").write_text(json.dumps(info))
    write_report(folder)
    return folder


@pytest.mark.proves(
    "site",
    "HTML and scripts in a card's texts or in titles of classes",
    "shown as they are written; they become no element of a page",
)
def test_texts_are_shown_and_never_run(folder):
    for name in ("report.html", "clinician.html"):
        html = (folder / name).read_text(encoding="utf-8")
        assert "<script>alert" not in html
        assert "<img src=x" not in html
        assert HOSTILE in Page(html).text


def test_what_nobody_states_is_said(folder):
    report = Page((folder / "report.html").read_text(encoding="utf-8"))
    study = dict(report.tables["table-study"][1:])
    assert study.pop("Intended use") == HOSTILE
    assert set(study.values()) == {"not stated"}
    cards = dict(report.tables["table-cards"][1:])
    silent = ", ".join(f"site-{number}" for number in range(3, 11))
    assert cards["Devices"] == f"site-1, site-2: {HOSTILE} 8 other sites: not stated {silent}"
    assert cards["Dates of the images"] == "not stated"
    unusable = {row[0]: row[2] for row in report.tables["table-flow"][1:]}
    assert (unusable["site-1"], unusable["site-3"]) == ("fewer than five", "not stated")
    sheet = Page((folder / "clinician.html").read_text(encoding="utf-8")).text
    assert "Dates of the images: not stated" in sheet
    for text in (sheet, report.text):
        assert "Not intended for: not stated" in text
    assert "Who labelled, and how: stated by 2 of 10 sites, in the full report" in sheet


def test_no_image_is_called_uncounted_that_is_counted(tmp_path):
    """Synthetic images are all counted, and images of several labels whatever they show."""
    sentence = "Validation and test images of classes with fewer than five at the site are in no"
    hospitals = write_run(tmp_path / "hospitals", rounds=1, synthetic=())
    drawn = write_run(tmp_path / "drawn", rounds=1, synthetic=SITES)
    several = write_run(tmp_path / "several", rounds=1, synthetic=())
    info = json.loads((several / "run.json").read_text())
    info["experiment"]["data"]["multi_label"] = True
    (several / "run.json").write_text(json.dumps(info))
    assert About.of(Run.load(hospitals), ()).uncounted.startswith(sentence)
    assert [About.of(Run.load(folder), ()).uncounted for folder in (drawn, several)] == ["", ""]


def test_classes_that_a_text_names_are_spelled_out(folder):
    run = Run.load(folder)
    assert spelled_out(run, "Better.", "It misses NV (MEL).").startswith("MEL\N{NO-BREAK SPACE}")
    assert spelled_out(run, "It misses NV, MELANOMA.") == ""


@pytest.mark.parametrize("text", ["x" * (LONGEST_TEXT + 1), "a\u202eb", "\x1b[2J"])
def test_texts_that_would_spoil_a_page_are_refused(tmp_path, text):
    with pytest.raises(ValueError, match="printable characters in one line as contact"):
        DataSpec(card={"contact": text})
    file = tmp_path / "site-1.yaml"
    file.write_text(f"kind: manifest\nfolder: .\ncard: {json.dumps({'contact': text})}\n")
    with pytest.raises(DataError, match="field card: expected 1 to 300 printable"):
        read_site_file(file)


def test_white_space_and_numbers_are_read_as_people_write_them(tmp_path):
    file = tmp_path / "site-1.yaml"
    file.write_text(
        "kind: manifest\nfolder: .\ncard:\n  dates: 2021\n  devices: >\n    two\n    cameras\n"
        '  contact: ""\n'
    )
    assert read_site_file(file).card == {"dates": "2021", "devices": "two cameras"}


def test_a_site_cannot_name_items_of_its_own(tmp_path):
    file = tmp_path / "site-1.yaml"
    file.write_text("kind: manifest\nfolder: .\ncard: {patient: A}\n")
    with pytest.raises(DataError, match="only the fields labelled_by"):
        read_site_file(file)
    with pytest.raises(ValueError, match=f"only the fields {next(iter(STUDY_ITEMS))}"):
        DataSpec(card={"devices": "camera"})


def test_titles_are_of_classes():
    assert DataSpec().titles["MEL"] == "melanoma"
    assert not DataSpec(classes=("MEL", "other")).titles
    with pytest.raises(ValueError, match="'other' is not one of the classes"):
        DataSpec(titles={"other": "x"})
