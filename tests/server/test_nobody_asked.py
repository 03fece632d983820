"""A run of active learning says in all places where nobody is asked, and where nobody answers."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedward.config import DataSpec
from fedward.console.console import Console
from fedward.runs.open_questions import open_questions
from fedward.runs.sentences import nobody_asked, unanswered
from fedward.server.questions import enough_labels
from fedward.server.run_status import lines, progress
from running import run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2"]


def write_site(folder: Path, site: str, labelled: float) -> None:
    """Write a site of 20 training images, of which it uses this share of the labels."""
    random = np.random.default_rng(len(site))
    arrays = dict[str, Any]()
    for split, count in (("train", 20), ("val", 12), ("test", 12)):
        arrays[f"{split}_images"] = random.integers(0, 256, (count, 16, 16, 3), np.uint8)
        arrays[f"{split}_labels"] = np.arange(count).reshape(-1, 1) % 2
    np.savez(folder / f"{site}.npz", **arrays)
    text = (
        f"kind: npz\nfile: {site}.npz\nlabels: {{0: MEL, 1: NV}}\n"
        f"labelled: {labelled}\nannotation: queue\n"
    )
    (folder / f"{site}.yaml").write_text(text)


@pytest.mark.parametrize(("labelled", "nobody"), [(1.0, True), (0.2, False)])
def test_a_run_says_where_nobody_is_asked(tmp_path: Path, labelled: float, nobody: bool) -> None:
    printed = io.StringIO()
    for site in SITES:
        write_site(tmp_path, site, labelled)
    experiment = tiny("fedal", synthetic=None, data=DataSpec(image_size=16, classes=("MEL", "NV")))
    choices = {"sites": SITES, "site_folders": [tmp_path], "console": Console(printed)}
    folder = run_local(experiment, tmp_path / "run", **choices)
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    asked = sum(row["asked"] for row in rows)
    assert (asked == 0) == nobody
    counts = {row["site"]: (row["labelled"], row["labelled"] + row["unlabelled"]) for row in rows}
    label_counts = {
        site: f"{with_label} of {images} training images have a label"
        for site, (with_label, images) in counts.items()
    }
    summary = json.loads((folder / "run.json").read_text())["summary"]
    expected = label_counts if nobody else {}
    assert summary.get("enough_labels", {}) == expected
    state = progress(folder)
    assert state["enough_labels"] == expected
    without_label = dict.fromkeys(SITES, 0)
    for row in rows:
        without_label[row["site"]] += row["asked"]  # no question is answered
    waiting = {site: images for site, images in without_label.items() if images}
    assert state["open_questions"] == open_questions(folder) == waiting
    text = " ".join(printed.getvalue().split())
    status = " ".join(" ".join(lines(state)).split())
    for output in (text, status):
        assert output.count("no labels are asked for") == nobody
        assert (nobody_asked(label_counts) in output) == nobody
        assert output.count("asked about had no label yet") == bool(waiting)
        assert unanswered(waiting) in output


@pytest.mark.parametrize(
    ("asked", "labelled", "expected"),
    [
        ((0, 0), 50, {"a": "50 of 100 training images have a label"}),
        ((0, 0), 49, {}),  # it asks in a later round
        ((1, 0), 50, {}),
    ],
)
def test_only_who_asks_nobody_and_never_will_is_told(
    tmp_path: Path, asked: tuple[int, int], labelled: int, expected: dict[str, str]
) -> None:
    rest = {"bought": 0, "waiting": 0, "cannot_tell": 0, "unusable": 0, "minutes": None}
    counts = {"labelled": labelled, "unlabelled": 100 - labelled, **rest}
    rows = [
        {"round": place + 1, "site": "a", "asked": number, **counts}
        for place, number in enumerate(asked)
    ]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert enough_labels(tmp_path, tiny("fedal", options={"target_fraction": 0.5})) == expected
    assert enough_labels(tmp_path, tiny("fedavg")) == {}


def test_only_images_without_an_answer_count_as_open(tmp_path: Path) -> None:
    rest = {"bought": 0, "unusable": 0, "labelled": 9, "unlabelled": 9, "minutes": None}
    rows = [
        {"round": 1, "site": "b", "asked": 4, "waiting": 4, "cannot_tell": 0, **rest},
        {"round": 1, "site": "a", "asked": 3, "waiting": 3, "cannot_tell": 0, **rest},
        {"round": 1, "site": "c", "asked": 0, "waiting": 0, "cannot_tell": 0, **rest},
        {"round": 2, "site": "a", "asked": 2, "waiting": 0, "cannot_tell": 5, **rest},
    ]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert open_questions(tmp_path) == {"b": 4}
    assert open_questions(tmp_path / "a run that buys no labels") == {}


def test_questions_of_all_sites_are_added_up_and_few_sites_named() -> None:
    assert unanswered({"a": 1, "b": 2}).startswith(
        "3 images asked about had no label yet (a: 1; b: 2). "
    )
    many = unanswered({f"site-{number}": 1 for number in (10, 11, 12, *range(1, 10))})
    assert many.startswith("12 images ")
    assert "(site-1: 1; site-2: 1; " in many
    assert "site-10: 1; and 2 more sites" in many
    assert unanswered({}) == ""


def test_many_sites_are_counted() -> None:
    sentence = nobody_asked(
        {f"s{index:02d}": "9 of 9 training images have a label" for index in range(12)}
    )
    assert "s09" in sentence
    assert "s10" not in sentence
    assert "2 more sites" in sentence
    assert nobody_asked({}) == ""
