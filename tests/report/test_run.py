"""Reading run folders: whole, killed, broken, and no run folders at all."""

import json

import pytest
from run_folders import SITES, add_answers, average, write_run

from fedward.errors import FedwardError, RunError
from fedward.report import Run
from fedward.storage.info import FORMAT
from fedward.storage.run_folder import RunFolder

CLUSTERS = {"patients": [5] * 8, "effective": [5] * 8, "all_patients": 5, "all_effective": 5}


def column(**changes):
    """Counts of 8 classes by a column of two groups."""
    counts = {"images": [[5, 5]] * 8, "right": [[5, 5]] * 8}
    return {"column": "sex", "groups": ["women", "men"], **counts, **changes}


@pytest.fixture
def make_run(tmp_path):
    """A function that writes a run folder below the test's own folder."""
    return lambda name="run", **changes: write_run(tmp_path / name, **changes)


def test_every_row_comes_back_typed(make_run):
    folder = make_run(rounds=5, warm_up=2)
    run = Run.load(folder)
    info = run.info
    assert (info.method, info.seed, info.engine, info.status, run.notes) == (
        "fedperl",
        1,
        "local",
        "finished",
        (),
    )
    assert run.info.sites == SITES
    assert run.key_metric == "balanced_accuracy"
    for name in ("metrics", "rounds", "peers", "bytes"):
        lines = (folder / f"{name}.jsonl").read_text().splitlines()
        assert len(getattr(run, name)) == len(lines)
    first = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    row = next(iter(run.metrics))
    assert (row.round, row.site, row.split, row.name, row.value, row.n) == tuple(first.values())[:6]
    assert run.at(row.site, row.split, row.round)[row.name] == row


@pytest.mark.parametrize(
    ("method", "rounds"), [("fedperl", 2), ("fedavg", 0), ("selffed", 0), ("fedmatch", 0)]
)
def test_warm_up_ends_with_the_first_peer(make_run, method, rounds):
    """SelfFed's ``warm_up`` is a learning rate that rises. FedMatch's helpers come now and then."""
    folder = make_run(method=method, rounds=5, warm_up=2)
    head = json.loads((folder / "run.json").read_text())
    head["experiment"]["options"]["warm_up"] = 4
    (folder / "run.json").write_text(json.dumps(head))
    assert Run.load(folder).warm_up == rounds


GROUPS = (
    average(1, 0, "labelled", a=(1.0, 0.0)),
    average(2, 0, "labelled", a=(1.0, 0.0)),
    average(3, 0, "unlabelled", b=(0.75, 1.5), c=(0.25, 2.5)),
    average(3, 1, "labelled", a=(1.0, 0.0)),
)


def test_averages_come_back_typed(make_run):
    run = Run.load(make_run(method="isofed", groups=GROUPS))
    assert len(run.groups) == 4
    row = run.groups[2]
    assert (row.round, row.part, row.group, row.sites) == (3, 0, "unlabelled", ("b", "c"))
    assert (row.weights, row.distances) == ((0.75, 0.25), (1.5, 2.5))
    assert Run.load(make_run("avg", method="fedavg", rounds=1)).groups == ()


@pytest.mark.parametrize(
    ("rows", "rounds"), [(GROUPS, 2), (GROUPS[:2], 0), (GROUPS[2:], 2), (GROUPS[3:], 0)]
)
@pytest.mark.parametrize("named", [None, 7])
def test_the_warm_up_of_groups_is_what_labelled_sites_did_alone(make_run, rows, rounds, named):
    """Whatever the job says: one that only ever trains labelled sites has no warm-up."""
    folder = make_run(method="isofed", groups=rows)
    head = json.loads((folder / "run.json").read_text())
    head["experiment"]["options"]["warm_up"] = named
    (folder / "run.json").write_text(json.dumps(head))
    assert Run.load(folder).warm_up == rounds


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"weights": [1.0]}, "2 sites, 1 weights, 2 distances"),
        ({"distances": []}, "2 sites, 2 weights, 0 distances"),
        ({"group": "some"}, "group: 'some', not one of labelled"),
        ({"weights": [0.5, float("nan")]}, "line 1"),
        ({"weights": None}, "line 1"),
        ({"part": "first"}, "line 1"),
    ],
)
def test_a_broken_average_is_refused(make_run, wrong, found):
    folder = make_run(method="isofed", rounds=1, groups=[GROUPS[2] | wrong])
    with pytest.raises(RunError, match=rf"groups\.jsonl.*{found}"):
        Run.load(folder)


def one_less(values):
    return values[:-1]


@pytest.mark.proves(
    "files",
    "counts in a run folder that fit neither each other nor the run's classes",
    "refused by file and line",
)
@pytest.mark.parametrize(
    ("field", "change", "found"),
    [
        ("images", one_less, "images of 7 classes, and other counts of more or fewer"),
        ("found", one_less, "images of 8 classes, and other counts of more or fewer"),
        ("scores", lambda rows: [*rows[:-1], rows[0][:-1]], "more or fewer intervals or groups"),
        ("inside", lambda rows: [*rows[:-1], [*rows[0], 5]], "more or fewer intervals or groups"),
        ("sure", one_less, "confidences of more or fewer than 20 intervals"),
        ("confidence", lambda values: [*values, 0.5], "more or fewer than 20 intervals"),
        ("cells", lambda _: [[0, 8, 5]], "cells that are not two of 8 classes and their images"),
        ("cells", lambda _: [[0, 1]], "cells that are not two of 8 classes and their images"),
        ("cells", lambda _: [[]], "cells that are not two of 8 classes and their images"),
        ("images", lambda counts: [-1, *counts[1:]], "images"),
        ("images", lambda counts: [10**30, *counts[1:]], "images"),
        ("subgroups", lambda _: [column(images=[[5, 5]] * 7)], "images of 8 classes"),
        ("subgroups", lambda _: [column(right=[[5]] * 8)], "more or fewer intervals or groups"),
        ("clusters", lambda _: {**CLUSTERS, "effective": [5] * 9}, "images of 8 classes"),
    ],
)
def test_counts_of_answers_that_do_not_fit_are_refused(make_run, field, change, found):
    folder = make_run(rounds=1)
    add_answers(folder, 1)
    path = folder / "binned.jsonl"
    first, *others = path.read_text().splitlines()
    row = json.loads(first)
    row[field] = change(row.get(field))
    path.write_text("\n".join([json.dumps(row), *others, ""]))
    with pytest.raises(RunError, match=rf"binned\.jsonl.*line 1: .*{found}"):
        Run.load(folder).binned(0)


@pytest.mark.proves(
    "files",
    "counts in a run folder that fit neither each other nor the run's classes",
    "refused by file and line",
)
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, "expected counts of the run's 8 classes, found 2"),
        ({"val": [5]}, "line 1: .*images of different numbers of classes"),
        ({"contrast": [5]}, "line 1: .*more or fewer intervals than there are"),
        ({"sides": [5] * 9}, "line 1: .*more or fewer intervals than there are"),
    ],
)
def test_surveys_that_do_not_fit_are_refused(make_run, changes, found):
    counts = dict.fromkeys(("unlabelled", "grey", "colour", "dark", "repeated"), 5)
    of_classes = {"labelled": [5, 5], "val": [5, 5], "test": [5, 5]}
    levels = {"sides": [5] * 8, "brightness": [5] * 20, "contrast": [5] * 20}
    row = {"round": 1, "site": "a", "patients": [], "sizes": [], "columns": {}}
    folder = make_run(rounds=1)
    text = json.dumps(row | counts | of_classes | levels | changes)
    (folder / "surveys.jsonl").write_text(f"{text}\n")
    with pytest.raises(RunError, match=rf"surveys\.jsonl.*{found}"):
        Run.load(folder)


@pytest.mark.proves(
    "files",
    "counts in a run folder that fit neither each other nor the run's classes",
    "refused by file and line",
)
@pytest.mark.parametrize("value", [-1, 2**53 + 1, 10**400])
@pytest.mark.parametrize(
    ("log", "field"),
    [
        ("metrics", "round"),
        ("metrics", "n"),
        ("rounds", "bytes_down"),
        ("rounds", "restarts"),
        ("bytes", "up"),
    ],
)
def test_a_number_that_counts_nothing_is_refused(make_run, log, field, value):
    folder = make_run(rounds=1)
    path = folder / f"{log}.jsonl"
    first, *others = path.read_text().splitlines()
    row = json.loads(first) | {field: {"site-1": value} if field == "restarts" else value}
    path.write_text("\n".join([json.dumps(row), *others, ""]))
    with pytest.raises(RunError, match=rf"{log}\.jsonl.*line 1: {field}"):
        Run.load(folder)


@pytest.mark.parametrize("cut", [1, 9, 60])
def test_averages_cut_off_are_left_out_and_said(make_run, cut):
    folder = make_run(method="isofed", groups=GROUPS)
    path = folder / "groups.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    run = Run.load(folder)
    assert len(run.groups) == (4 if cut == 1 else 3)
    assert len(run.notes) == (cut > 1)


def test_series_leaves_out_what_is_undefined(make_run):
    run = Run.load(make_run(rounds=2))
    lines = run.series("test", "auroc/DF")
    assert "site-9" not in lines  # it has no DF
    assert list(lines["site-1"]) == [0, 1, 2]


def test_a_cut_off_last_line_is_left_out_and_said(make_run):
    folder = make_run(rounds=2)
    whole = Run.load(folder)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "site": "si')
    run = Run.load(folder)
    assert list(run.metrics) == list(whole.metrics)
    assert len(run.notes) == 1
    assert "cut off" in run.notes[0]


@pytest.mark.parametrize("cut", [1, 7, 30])
def test_a_log_cut_anywhere_is_readable(make_run, cut):
    folder = make_run(rounds=1)
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(Run.load(folder).metrics) >= 1


def test_a_broken_line_inside_is_refused_with_its_place(make_run):
    folder = make_run(rounds=1)
    path = folder / "rounds.jsonl"
    path.write_text("{broken\n" + path.read_text())
    with pytest.raises(RunError, match=r"rounds\.jsonl.*line 1"):
        Run.load(folder)


@pytest.mark.parametrize("line", ["[]", "{}", '{"round": "one"}', "null", ""])
def test_a_line_of_another_kind_is_refused(make_run, line):
    folder = make_run(rounds=1)
    path = folder / "bytes.jsonl"
    path.write_text(line + "\n" + path.read_text())
    with pytest.raises(FedwardError, match="line 1"):
        Run.load(folder)


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "1 value is not finite and is"), (2, "2 values are not finite and are")],
)
def test_not_a_number_is_not_available_and_said(make_run, number, words):
    folder = make_run(rounds=1)
    row = {
        "round": 9,
        "site": "site-1",
        "split": "train",
        "name": "loss",
        "value": float("nan"),
        "n": 1,
        "classes": [],
    }
    with (folder / "metrics.jsonl").open("a") as file:
        file.write((json.dumps(row) + "\n") * number)
    run = Run.load(folder)
    assert run.at("site-1", "train", 9)["loss"].value is None
    assert run.notes == (f"metrics.jsonl: {words} shown as not available.",)


def test_logs_that_do_not_exist_yet_are_empty(make_run):
    folder = make_run(rounds=1)
    for path in folder.glob("*.jsonl"):
        path.unlink()
    run = Run.load(folder)
    assert (len(run.metrics), run.rounds, run.peers, run.bytes, run.warm_up) == (0, (), (), (), 0)


def test_two_exchanges_of_one_round_are_both_kept(make_run):
    folder = make_run(rounds=1)
    path = folder / "rounds.jsonl"
    path.write_text(path.read_text() * 2)
    assert [row.round for row in Run.load(folder).rounds] == [1, 1]


@pytest.mark.parametrize(
    "head", [None, "{", "[]", '{"format": 1}', '{"format": 3}', '{"format": 3, "seed": "x"}']
)
def test_no_run_folder_is_refused(tmp_path, head):
    if head is not None:
        (tmp_path / "run.json").write_text(head)
    with pytest.raises(RunError, match=str(tmp_path)):
        Run.load(tmp_path)


@pytest.mark.parametrize("number", [0, 1, 1.5, "2", None, True, 10**30])
def test_another_folder_format_is_refused_with_both_numbers(make_run, number):
    folder = make_run(rounds=1)
    head = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**head, "format": number}))
    for read in (Run.load, RunFolder.reopen):
        with pytest.raises(RunError) as caught:
            read(folder)
        assert f"expected format {FORMAT}, found format {number!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("nearest", "similarity"),
    [([["b"]], [[1.0, 0.5]]), ([["b"], ["a"]], [[1.0], [1.0]]), ([], []), ([["b"]], [])],
)
def test_a_similarity_of_the_wrong_size_is_refused(make_run, nearest, similarity):
    folder = make_run(rounds=1)
    bad = {
        "round": 1,
        "sites": ["a"],
        "nearest": nearest,
        "similarity": similarity,
        "chosen": {},
        "anonymised": True,
        "features": 24,
    }
    (folder / "peers.jsonl").write_text(json.dumps(bad) + "\n")
    with pytest.raises(RunError, match=r"1 sites, \d sites near them, \d similarities"):
        Run.load(folder)
