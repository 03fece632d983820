"""How far a run is: read from its folder alone, whatever state that is in."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedward.cli import main
from fedward.errors import RunError
from fedward.lab.local import LocalTransport
from fedward.methods.algorithm import ServerState
from fedward.server.run_status import lines, progress
from fedward.storage.lock import sole_writer
from fedward.storage.run_folder import RunFolder
from fedward.terminal import WIDTH
from finished_run import new_run
from run_files import rows
from running import run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-9"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_local(tiny("fedperl"), tmp_path_factory.mktemp("runs") / "run", sites=SITES)


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that a kill has ended in its third exchange, when no answer had come."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    whole = LocalTransport.exchange
    calls = iter(range(9))

    def exchange(self: LocalTransport, *arguments: Any) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt
        whole(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalTransport, "exchange", exchange)
        for end in ("set_status", "report"):  # as it is where the process is gone
            patch.setattr(RunFolder, end, lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            run_local(tiny("ssfl", options={"rounds": 7}), folder, sites=SITES)
    return folder


def test_a_finished_run_tells_its_end(finished):
    state = progress(finished)
    last = rows(finished, "rounds")[-1]
    info = json.loads((finished / "run.json").read_text())
    best = json.loads((finished / "best.json").read_text())
    assert state["status"] == "finished"
    assert state["reason"] is None
    assert state["method"] == "fedperl"
    assert state["sites"] == 3
    assert state["round"] == 3
    assert state["rounds"] == 3
    assert state["under_way"] is None
    assert state["started"] == info["started"]
    assert state["written"] == info["ended"]
    assert state["exchange"] == {
        key: last[key] for key in ("round", "seconds", "asked", "replied", "failed")
    }
    assert state["best"] == {"round": best["round"], "value": best["value"]}
    assert state["best"]["round"] == info["summary"]["best_round"]
    assert state["not_evaluated"] == {}
    assert state["seconds_per_round"] == pytest.approx(
        sum(row["seconds"] for row in rows(finished, "rounds")) / 3
    )
    for way in ("down", "up"):
        assert state[f"bytes_{way}"] == sum(row[f"bytes_{way}"] for row in rows(finished, "rounds"))


def test_the_last_value_is_the_mean_of_the_last_evaluation(finished):
    values = [
        row["value"]
        for row in rows(finished, "metrics")
        if (row["round"], row["split"], row["name"]) == (3, "val", "accuracy")
    ]
    assert len(values) == 3
    assert progress(finished)["last"] == {"round": 3, "value": pytest.approx(sum(values) / 3)}


def test_what_is_asked_and_not_answered_is_under_way(broken_off):
    state = progress(broken_off)
    assert state["status"] == "stopped"
    assert state["round"] == 2
    assert state["rounds"] == 7
    assert state["exchange"]["round"] == 2
    under_way = state["under_way"]
    assert under_way["round"] == 3
    assert under_way["part"] == 0
    assert under_way["asked"] == SITES
    assert under_way["since"] == state["written"] >= state["committed"]


def test_a_round_that_was_given_up_does_not_count(broken_off, tmp_path):
    folder = shutil.copytree(broken_off, tmp_path / "run")
    (folder / "rounds" / "00002" / "state.safetensors").write_bytes(b"damaged")
    RunFolder.reopen(folder).restore(ServerState)
    state = progress(folder)
    assert state["round"] == 1
    (row,) = rows(folder, "rounds")
    assert state["seconds_per_round"] == pytest.approx(row["seconds"])


def test_a_run_that_has_just_begun_tells_what_there_is(tmp_path):
    folder = new_run(tmp_path / "run", tiny("ssfl"), SITES, "local").path
    with sole_writer(folder):
        state = progress(folder)
    assert state["status"] == "running"
    assert state["round"] == 0
    assert state["rounds"] == 3
    nothing = ("exchange", "under_way", "best", "last", "committed", "seconds_per_round")
    assert [state[name] for name in nothing] == [None] * len(nothing)
    assert lines(state)[0] == "ssfl: running, round 0 of 3, 3 sites"


def test_a_run_whose_process_was_killed_is_stopped(tmp_path):
    """A real process, a real SIGKILL, and what run.json says stays as it was."""
    folder = new_run(tmp_path / "run", tiny("ssfl"), SITES, "local").path
    code = (
        "import sys, time; from pathlib import Path; from fedward.storage.lock import sole_writer\n"
        "with sole_writer(Path(sys.argv[1])):\n    print(flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    assert progress(folder)["status"] == "running"
    process.kill()
    process.communicate()
    assert progress(folder)["status"] == "stopped"
    assert json.loads((folder / "run.json").read_text())["status"] == "running"


def test_the_rounds_of_a_job_that_names_none_are_the_methods(tmp_path):
    experiment = tiny("ssfl")
    experiment = experiment.model_copy(update={"options": {"participants": 2}})
    folder = new_run(tmp_path / "run", experiment, SITES, "local").path
    assert progress(folder)["rounds"] == 500


def test_a_folder_without_an_audit_log_is_read_too(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "audit.jsonl").unlink()
    state = progress(folder)
    assert state["round"] == 3
    assert state["committed"] is None
    assert state["written"] == state["started"]


def test_what_it_tells_can_be_sent(broken_off, finished):
    for folder in (broken_off, finished):
        assert json.loads(json.dumps(progress(folder))) == progress(folder)


def test_a_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(RunError, match=str(tmp_path)):
        progress(tmp_path)


def test_the_text_fits_80_columns_and_names_who_failed_and_why(finished):
    reason = (
        "no answer within 3600 s, because of a reason that goes on for longer than one line of a "
        "terminal has room"
    )
    state = progress(finished)
    state |= {
        "reason": reason,
        "under_way": {"round": 3, "asked": SITES * 9, "since": state["written"]},
    }
    state["exchange"]["failed"] = {"site-2": reason}
    state["not_evaluated"] = {"site-3": "no answer within 60 s"}
    text = lines(state)
    assert all(len(line) <= WIDTH for line in text)
    words = " ".join(" ".join(text).split())
    assert f"site-2: {reason}" in words
    assert f"reason {reason}" in words
    assert "2 asked, 2 replied, 1 failed" in words
    assert "missing evaluation of the last model, at 1 site site-3: no answer within 60 s" in words


def test_of_many_sites_the_first_by_number_are_named(finished):
    names = [f"site-{number}" for number in (10, 11, 12, *range(1, 10))]
    shown = ["site-1", "site-2", "site-10"]
    state = progress(finished)
    state["waiting"] = dict.fromkeys(names, "digest")
    state["exchange"]["failed"] = dict.fromkeys(names, "no answer")
    words = " ".join(" ".join(lines(state)).split())
    for before, after in (("for approval: ", ", job digest"), ("", ": no answer")):
        assert all(f"{before}{name}{after}" in words for name in shown)
        assert f"{before}site-11{after}" not in words


def test_the_command_prints_a_folder(finished, tmp_path, capsys):
    assert main(["status", str(finished)]) == 0
    assert capsys.readouterr().out.splitlines() == lines(progress(finished))
    assert main(["status", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert main(["status", str(finished), "a-job"]) == 2
    assert "expected a startup kit" in capsys.readouterr().err
