"""``fedward runs``: what each run was, and what its model came from."""

import json

import pytest

from fedward.cli import main
from fedward.digests import file_digest
from fedward.operation.runs import runs
from fedward.storage.lock import sole_writer


def test_a_run_is_listed_with_where_its_model_comes_from(ended):
    (run,) = runs([ended])
    info = json.loads((ended / "run.json").read_text())
    assert run["job"] == "ended"
    assert run["status"] == "finished"
    assert run["method"] == "fedperl"
    assert run["net"] == "small_cnn"
    assert run["id"] == info["id"]
    assert run["sites"] == ["site-1"]
    assert run["rounds"] == 3
    assert run["model"] == file_digest(ended / "model.safetensors")
    assert run["versions"] == info["versions"]
    assert run["init"] is None
    assert run["audit"] == "verified"


def test_runs_of_several_folders_are_listed_once_oldest_first(ended, interrupted, tmp_path):
    for folder, started in (
        (ended, "2026-05-01T00:00:00+00:00"),
        (interrupted, "2025-05-01T00:00:00+00:00"),
    ):
        info = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**info, "started": started}))
    assert [run["job"] for run in runs([tmp_path, ended, tmp_path / "runs"])] == [
        "interrupted",
        "ended",
    ]


def test_the_runs_of_a_servers_kit_are_found(ended, tmp_path):
    (tmp_path / "kit" / "fedward").mkdir(parents=True)
    ended.parents[1].rename(tmp_path / "kit" / "fedward" / "runs")
    assert [run["job"] for run in runs([tmp_path / "kit"])] == ["ended"]


def test_weights_that_a_run_started_from_are_named(ended):
    info = json.loads((ended / "run.json").read_text())
    (ended / "run.json").write_text(json.dumps({**info, "init": {"sha256": "ab" * 32}}))
    assert runs([ended])[0]["init"] == "ab" * 32


def test_a_run_without_a_process_has_stopped(interrupted):
    assert runs([interrupted])[0]["status"] == "stopped"
    with sole_writer(interrupted):
        assert runs([interrupted])[0]["status"] == "running"


@pytest.mark.proves(
    "files",
    "a finished run's model is exchanged in the archive",
    "`fedward runs` reports that the audit fails",
)
def test_a_model_that_was_exchanged_is_named(ended, capsys):
    content = (ended / "model.safetensors").read_bytes()
    (ended / "model.safetensors").write_bytes(content[:-1] + b"\x01")
    assert main(["runs", str(ended)]) == 0
    out = capsys.readouterr().out
    assert "WRONG" in out
    assert "model.safetensors" in out


def test_a_run_that_cannot_be_read_is_named_among_the_others(ended, interrupted, tmp_path, capsys):
    info = json.loads((interrupted / "run.json").read_text())
    (interrupted / "run.json").write_text(json.dumps({**info, "format": 99}))
    assert main(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "unreadable" in out
    assert "99" in out
    assert "finished" in out


def test_the_table_is_80_columns_wide_and_the_same_in_json(
    ended, interrupted, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["runs", "runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == [
        "started",
        "status",
        "method",
        "net",
        "sites",
        "rounds",
        "model",
        "audit",
    ]
    assert main(["runs", "runs", "--json"]) == 0
    assert {run["job"] for run in json.loads(capsys.readouterr().out)} == {"ended", "interrupted"}


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"scripts": {}}')
    assert main(["runs", str(tmp_path)]) == 2
    assert "expected a run folder, or one with some, found none" in capsys.readouterr().err
