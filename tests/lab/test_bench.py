"""``fedward bench`` as a user calls it: it cuts, runs in processes, keeps what has finished, and
refuses wrong use.
"""

import json
import re
from pathlib import Path

import pytest

from fedward.cli import main
from fedward.lab.bench.records import read_records
from fedward.lab.bench.study_parts import Cell
from public_images import write_public_npz

STUDY = {
    "title": "Tiny",
    "settings": {
        "rounds": 1,
        "images_per_round": 8,
        "batch": 4,
        "net": "small_cnn",
        "participants": None,
    },
    "sites": {"two/{seed}": "images.npz --sites 2 --seed {seed}"},
    "rows": {"fedavg": {"title": "FedAvg", "job": "fedavg", "sites": "two/{seed}"}},
}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The command for a study of one row, on images that lie there."""
    write_public_npz(tmp_path / "images.npz", train=60, val=60, test=60)
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    places = ["--data", str(tmp_path), "--out", str(tmp_path / "out")]
    return ["bench", str(tmp_path / "study.json"), *places, "--workers", "1"]


def test_a_study_is_cut_run_and_shown_once(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "out" / "results.jsonl"
    assert main([*words, "--seeds", "3", "--cost"]) == 0
    text = capsys.readouterr().out
    assert "| fedavg | 1 |" in text
    assert "1 run, 0.0 core hours" in text
    references = set(read_records(results))
    assert all(read_records(results)[cell].reference for cell in references)
    assert main([*words, "--seeds", "3", "3"]) == 0
    text = capsys.readouterr().out
    assert set(read_records(results)) - references == {Cell("all", "fedavg", 3)}
    assert f"1 result to come, 1 at once, in {tmp_path / 'out'}\n1/1 all fedavg seed 3: acc" in text
    assert "| FedAvg | 1 (few) |" in text
    assert (tmp_path / "out" / "sites" / "two" / "3" / "site-2.yaml").exists()
    before = results.read_bytes()
    assert main([*words, "--seeds", "3"]) == 0
    assert "1/1" not in capsys.readouterr().out
    assert results.read_bytes() == before
    (tmp_path / "others" / "two" / "3").mkdir(parents=True)
    assert main([*words, "--seeds", "3", "--site-files", str(tmp_path / "others")]) == 2
    assert "--site-files: expected sites, found ../others" in capsys.readouterr().err


def test_a_later_row_runs_alone_with_references_of_the_first(
    words: list[str], tmp_path: Path
) -> None:
    rows = {
        name: {"title": name, "job": "fedavg", "sites": sites}
        for name, sites in (("first", "few"), ("later", "all"))
    }
    study = {**STUDY, "partition": "images.npz --sites 2 --labelled 0.5 --resplit", "rows": rows}
    del study["sites"]
    (tmp_path / "study.json").write_text(json.dumps(study))
    assert main([*words, "--seeds", "3", "--rows", "later"]) == 0
    lines = read_records(tmp_path / "out" / "results.jsonl").values()
    assert [line.row for line in lines if not line.reference] == ["later"]
    assert {line.reference.labels for line in lines if line.reference} == {"few", "all"}


def test_sites_alone_without_any_label_are_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {**STUDY["rows"]["fedavg"], "alone": True}
    sites = {"two/{seed}": "images.npz --sites 2 --labelled-sites 0 --seed {seed}"}
    study = {**STUDY, "rows": {"fedavg": row}, "sites": sites}
    (tmp_path / "study.json").write_text(json.dumps(study))
    assert main([*words, "--seeds", "3"]) == 2
    error = capsys.readouterr().err
    assert "expected sites that can train alone, with labels, found none" in error


def test_the_cost_counts_every_round(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No round takes less than a millisecond, so ten million take more than two hours."""
    many = ["--seeds", "3", "--cost", "--set", "rounds=10000000"]
    assert main([*words, *many]) == 0
    (hours,) = re.findall(r"1 run, ([\d.]+) core hours", capsys.readouterr().out)
    assert float(hours) > 2


@pytest.mark.parametrize("workers", ["0", "-1"])
def test_no_workers_are_refused(
    words: list[str], workers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--workers", workers]) == 2
    assert f"--workers: expected 1 or more, found {workers}" in capsys.readouterr().err


def test_missing_data_is_named_before_anything_runs(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images.npz").unlink()
    assert main(words) == 2
    assert f"{tmp_path / 'images.npz'}: expected an npz file" in capsys.readouterr().err
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_ctrl_c_says_that_finished_runs_are_kept(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedward.lab.bench.runs.run_all", interrupted)
    assert main(words) == 130
    assert "fedward: interrupted; finished runs are kept" in capsys.readouterr().err
