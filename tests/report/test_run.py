"""Reading run folders: whole, killed, broken, and no run folders at all."""

import json

import pytest
from run_folders import SITES, write_run

from fedward.errors import FedwardError, RunError
from fedward.report import Run


@pytest.fixture
def make_run(tmp_path):
    """A function that writes a run folder below the test's own folder."""
    return lambda name="run", **changes: write_run(tmp_path / name, **changes)


def test_every_row_comes_back_typed(make_run):
    folder = make_run(rounds=5, warm_up=2)
    run = Run.load(folder)
    assert (run.method, run.seed, run.engine, run.status, run.notes) == ("fedperl", 1, "local", "finished", ())
    assert run.sites == SITES
    assert run.key_metric == "balanced_accuracy"
    for name in ("metrics", "rounds", "peers", "bytes"):
        lines = (folder / f"{name}.jsonl").read_text().splitlines()
        assert len(getattr(run, name)) == len(lines)
    first = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    row = run.metrics[0]
    assert (row.round, row.site, row.split, row.name, row.value, row.n) == tuple(first.values())[:6]
    assert run.at(row.site, row.split, row.round)[row.name] == row


def test_warm_up_ends_with_the_first_peer_or_as_the_job_says(make_run):
    folder = make_run(rounds=5, warm_up=2)
    assert Run.load(folder).warm_up == 2
    head = json.loads((folder / "run.json").read_text())
    head["experiment"]["options"]["warm_up"] = 4
    (folder / "run.json").write_text(json.dumps(head))
    assert Run.load(folder).warm_up == 4
    assert Run.load(make_run("avg", method="fedavg", rounds=2)).warm_up == 0


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
    assert run.metrics == whole.metrics
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


def test_not_a_number_is_not_available_and_said(make_run):
    folder = make_run(rounds=1)
    row = {"round": 9, "site": "site-1", "split": "train", "name": "loss", "value": float("nan"), "n": 1, "classes": []}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    run = Run.load(folder)
    assert run.metrics[-1].value is None
    assert "1 values are not finite" in run.notes[0]


def test_logs_that_do_not_exist_yet_are_empty(make_run):
    folder = make_run(rounds=1)
    for path in folder.glob("*.jsonl"):
        path.unlink()
    run = Run.load(folder)
    assert (run.metrics, run.rounds, run.peers, run.bytes, run.warm_up) == ((), (), (), (), 0)


def test_two_exchanges_of_one_round_are_both_kept(make_run):
    folder = make_run(rounds=1)
    path = folder / "rounds.jsonl"
    path.write_text(path.read_text() * 2)
    assert [row.round for row in Run.load(folder).rounds] == [1, 1]


@pytest.mark.parametrize("head", [None, "{", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "seed": "x"}'])
def test_no_run_folder_is_refused(tmp_path, head):
    if head is not None:
        (tmp_path / "run.json").write_text(head)
    with pytest.raises(RunError, match=str(tmp_path)):
        Run.load(tmp_path)


def test_a_similarity_of_the_wrong_size_is_refused(make_run):
    folder = make_run(rounds=1)
    bad = {"round": 1, "sites": ["a", "b"], "similarity": [[1.0]], "chosen": {}, "anonymised": True}
    (folder / "peers.jsonl").write_text(json.dumps(bad) + "\n")
    with pytest.raises(RunError, match="2 x 2"):
        Run.load(folder)
