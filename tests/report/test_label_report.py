"""What a report says of labels that were bought: curves and counts worked by hand, and sites that
did not answer.
"""

import json
from pathlib import Path

import pytest
from pages import report
from run_folders import write_run

from fedward.errors import RunError
from fedward.report import Run, figures, labels, multiples

SITES = ("a", "b", "c")


def query(round_: int, site: str, bought: int, **changes: int) -> dict[str, int | str]:
    """A row of queries.jsonl: ten images, all that was asked about answered."""
    row = {"asked": 0, "bought": bought, "waiting": 0, "cannot_tell": 0, "unusable": 0}
    return {
        "round": round_,
        "site": site,
        **row,
        "labelled": bought,
        "unlabelled": 10 - bought,
        "minutes": None,
    } | changes


def value(round_: int, site: str, number: float) -> dict:
    row = {
        "round": round_,
        "site": site,
        "split": "val",
        "name": "balanced_accuracy",
        "value": number,
    }
    return {**row, "n": 20, "classes": []}


ASKED = (
    *(query(1, site, 2, asked=2) for site in SITES),
    *(query(2, site, 2) for site in SITES),
    query(3, "a", 5, asked=3),
    query(3, "b", 3, asked=3, waiting=2),
    query(4, "a", 5),
    query(4, "b", 4, waiting=1),
    query(4, "c", 2),
)
"""After two labels each, a gets three more at once, b one of three at once and another in round 4;
c misses round 3.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of three sites, whose values are the round over ten, a site's place added."""
    path = write_run(tmp_path / "run", method="fedal", rounds=4, sites=SITES)
    values = [
        value(r, site, r / 10 + place / 100) for r in range(5) for place, site in enumerate(SITES)
    ]
    rows = [json.loads(line) for line in (path / "metrics.jsonl").open()]
    others = [row for row in rows if row["split"] != "val"]
    write(path, "metrics", [*others, *values])
    write(path, "queries", ASKED)
    return path


def write(folder: Path, log: str, rows) -> None:
    (folder / f"{log}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_sites_curve_has_the_last_value_with_so_many_labels(folder):
    curves = labels.site_curves(Run.load(folder))
    assert curves["a"] == pytest.approx({2: 0.2, 5: 0.4})
    assert curves["b"] == pytest.approx({2: 0.21, 3: 0.31, 4: 0.41})
    assert curves["c"] == pytest.approx({2: 0.42}), "round 3 brought no answer"


def test_the_overall_curve_adds_labels_and_averages_sites(folder):
    """In round 3, c counts with what it had."""
    assert labels.overall_curve(Run.load(folder), "balanced_accuracy") == pytest.approx(
        {6: 0.21, 10: 0.31, 11: 0.41}
    )


def test_the_table_and_the_figures_are_in_the_report(folder):
    html, page = report(folder)
    assert page.tables["table-labels"][1:] == [
        ["a", "5", "5", "0", "0", "0", "n/a", "5", "5"],
        ["b", "5", "4", "1", "0", "0", "n/a", "4", "6"],
        ["c", "2", "2", "0", "0", "0", "n/a", "2", "8"],
    ]
    assert "labels bought, all sites" in html
    assert "a: 0.400 with 5 labels bought" in html


def test_a_comparison_sets_two_runs_curves_side_by_side(folder, tmp_path):
    other = write_run(tmp_path / "other", method="fedal", rounds=4, sites=SITES, seed=2)
    write(other, "queries", ASKED)
    html, _ = report(folder, other)
    assert "by labels bought for fedal (run), fedal (other)" in html


def test_curves_side_by_side_are_of_one_metric(folder, tmp_path, monkeypatch):
    """That of the run whose report it is, as the axis says, also where another run was chosen by
    another.
    """
    drawn = {}
    monkeypatch.setattr(
        figures, "label_curves", lambda curves, metric: drawn.update(curves) or metric
    )
    other = write_run(tmp_path / "other", method="fedperl", rounds=4, sites=SITES, seed=2)
    write(other, "queries", ASKED)
    head = json.loads((other / "run.json").read_text())
    head["experiment"]["key_metric"] = "accuracy"
    (other / "run.json").write_text(json.dumps(head))
    html, _ = report(folder, other)
    assert "balanced accuracy" in html
    values = figures.mean_line(Run.load(other).series("val", "balanced_accuracy"))
    assert drawn["fedperl"] == pytest.approx({6: values[2], 10: values[3], 11: values[4]})


def test_sentences_name_sites_whose_questions_are_open(folder):
    assert labels.sentences(Run.load(folder)) == [
        "11 labels came by asking, at 3 sites; 11 of 30 training images had a label at the end.",
        "At b, 1 of 5 images asked about had no label yet.",
    ]


def test_minutes_are_those_of_the_sites_that_told_them(folder):
    rows = [
        query(1, "a", 4, asked=4, minutes=2.0),
        query(2, "a", 7, asked=3, minutes=3.5),
        query(2, "b", 2, asked=2),
    ]
    write(folder, "queries", rows)
    assert (
        "Annotation took 4 minutes at the only site that reported the time for one answer."
        in labels.sentences(Run.load(folder))
    )
    write(folder, "queries", [*rows, query(3, "b", 2, minutes=1.5)])
    assert "Annotation took 5 minutes." in labels.sentences(Run.load(folder))
    write(folder, "queries", [query(1, site, 2, minutes=0.3) for site in ("a", "b", "c")])
    assert "Annotation took 1 minute." in labels.sentences(Run.load(folder))
    write(folder, "queries", [*rows, query(3, "b", 2, minutes=1.5)])
    _, page = report(folder)
    assert [line[6] for line in page.tables["table-labels"][1:]] == ["4", "2"]


def test_one_label_is_in_the_singular():
    assert "a: 0.500 with 1 label bought" in multiples.label_curves({"a": {1: 0.5}}, 1)["a"]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            {"asked": 3, "waiting": 3},
            "c asked about 3 images and got no label. Does somebody answer there?",
        ),
        (
            {"asked": 3, "waiting": 0, "cannot_tell": 3},
            "c asked about 3 images, and no answer was a label that it could use.",
        ),
        (
            {"asked": 0, "labelled": 4, "unlabelled": 6},
            "c asked nobody: it trained with the 4 labels it has.",
        ),
        (
            {"asked": 3, "waiting": 3, "unusable": 1},
            "At c, 1 answer could not be used; the log there says why.",
        ),
    ],
)
def test_a_site_without_answers_is_named_with_the_reason(folder, row, sentence):
    write(folder, "queries", [query(1, "a", 2, asked=2), query(1, "c", 0, **row)])
    _, page = report(folder)
    assert sentence in labels.sentences(Run.load(folder))
    assert sentence in page.text


def test_a_run_that_buys_no_labels_has_no_such_section(tmp_path):
    html, page = report(write_run(tmp_path / "run"))
    assert "table-labels" not in page.tables
    assert labels.sentences(Run.load(tmp_path / "run")) == []
    assert "labels bought" not in html


def test_a_run_without_an_answer_yet_has_no_curve(folder):
    write(folder, "queries", [query(1, site, 0, asked=2, waiting=2) for site in SITES])
    html, page = report(folder)
    assert "labels bought, all sites" not in html
    assert len(page.tables["table-labels"]) == 4


def test_a_broken_row_is_named(folder):
    write(folder, "queries", [{"round": 1, "site": "a"}, query(1, "b", 2)])
    with pytest.raises(RunError, match=r"queries\.jsonl: .*line 1: asked: missing"):
        Run.load(folder)
