"""A run folder after a power cut: committed states are there, and damaged ones are replaced."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedward.errors import RunError
from fedward.lab.local import LocalTransport, Sites
from fedward.methods.algorithm import ServerState
from fedward.operation.audit_check import verify
from fedward.server.run_status import progress
from fedward.storage.audit import LOG, AuditLog
from fedward.storage.info import Summary, read_info
from fedward.storage.model_files import StoredState, save_state
from fedward.storage.run_folder import RunFolder, refuse_results
from fedward.storage.saved_states import SavedStates
from finished_run import new_run
from interrupted import interrupted
from isolated import SITES as ISOLATED
from isolated import isolated, write_sites
from power_cut import on_the_disk, unwritten
from run_files import assert_equal, rows, steady_rows, weights
from running import resume_local, run_experiment, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-9"]


def events(folder: Path) -> list[tuple[str, int | None]]:
    lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    return [(line["event"], line["details"].get("round")) for line in lines]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def holding(text: str) -> Callable[[Path], object]:
    """Return a damage after which a file holds other JSON."""
    return lambda path: path.write_text(text)


DAMAGES = [
    (empty, "rounds/00003/state.safetensors", "the audit log says"),
    (change, "rounds/00003/state.safetensors", "the audit log says"),
    (empty, "rounds/00003/state.json", "text that is not valid JSON at line 1, column 1"),
    (Path.unlink, "rounds/00003/state.json", "FileNotFoundError"),
    (holding("{}"), "rounds/00003/state.json", "state.json holds no state"),
    (holding("[[]]"), "rounds/00003/state.json", "state.json holds no state"),
    (
        holding('{"numbers": {}, "tensors": {"model": 1}}'),
        "rounds/00003/state.json",
        "state.json holds no state",
    ),
    (holding("[" * 100_000), "rounds/00003/state.json", "text that is nested too deeply"),
    (empty, "rounds/00003.logs.json", "text that is not valid JSON at line 1, column 1"),
    (holding("7"), "rounds/00003.logs.json", "00003.logs.json holds no lengths of logs"),
    (holding('{"metrics": -1}'), "rounds/00003.logs.json", "holds no lengths of logs"),
    (holding('{"../metrics": 0}'), "rounds/00003.logs.json", "holds no lengths of logs"),
    (
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        "metrics.jsonl",
        "rows are missing in metrics",
    ),
]


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    return run_local(
        tiny(options={"rounds": 4}), tmp_path_factory.mktemp("straight") / "run", sites=SITES
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """Return a run that was killed in its fourth round, of which tests damage copies."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    interrupted(tiny(options={"rounds": 4}), folder, SITES, 4, 1)
    return folder


def assert_logs_end_with_the_newest_state(folder: Path) -> None:
    """Check that the interrupted round wrote nothing into the logs."""
    lengths = json.loads((folder / "rounds" / "00003.logs.json").read_text())
    for log, length in lengths.items():
        assert (folder / f"{log}.jsonl").stat().st_size == length


@pytest.mark.parametrize(("damage", "name", "reason"), DAMAGES)
def test_a_run_goes_on_from_the_state_before_a_damaged_one(
    tmp_path, straight, stopped, damage, name, reason, caplog
):
    """In FedPerl the peers are the sites' last models, which must be those of that round too."""
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    assert_logs_end_with_the_newest_state(folder)
    damage(folder / name)
    with caplog.at_level(logging.WARNING):
        resume_local(folder)
    assert_equal(weights(straight), weights(folder))
    for log in ("metrics", "peers", "bytes"):
        assert steady_rows(folder, log) == steady_rows(straight, log)
    assert "the state after round 3 is not used, but that after 2" in caplog.text
    event_rows = events(folder)
    place = event_rows.index(("unusable", 3))
    assert event_rows[place + 1 : place + 5] == [
        ("resumed", 2),
        ("asked", 3),
        ("answered", 3),
        ("committed", 3),
    ]
    line = json.loads((folder / LOG).read_text().splitlines()[place])
    assert reason in line["details"]["found"]
    assert (folder / "rounds" / "00003.damaged").is_dir()
    assert verify(folder).lines == len(event_rows)


def test_the_best_model_is_that_of_a_committed_round(tmp_path, stopped):
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    before = {name: (folder / name).read_bytes() for name in ("best.json", "best.safetensors")}
    run = RunFolder.reopen(folder)
    run.keep_best(dict(StoredState(folder / "best.safetensors")), {"round": 3, "value": 2.0})
    assert run.best() == (3, 2.0)
    assert before == {name: (folder / name).read_bytes() for name in before}
    assert RunFolder.reopen(folder).best() != (3, 2.0)


def name_a_later_round(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "round": 4}))


@pytest.mark.parametrize("leave", [name_a_later_round, Path.unlink])
def test_a_best_model_of_a_round_that_was_given_up_is_removed(tmp_path, stopped, leave, caplog):
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    leave(folder / "best.json")
    with caplog.at_level(logging.WARNING):
        resume_local(folder)
    assert "the best model is removed" in caplog.text
    assert verify(folder)
    best = json.loads((folder / "best.json").read_text())
    assert best["round"] == read_info(folder).summary.best_round


def test_status_takes_a_better_model_that_is_being_saved_for_none(tmp_path, stopped, monkeypatch):
    """The run removes the file after status has listed the folder, and before status reads it."""
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    assert progress(folder)["best"]
    read_bytes = Path.read_bytes

    def removed(path: Path) -> bytes:
        if path.name == "best.json":
            path.unlink()
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", removed)
    assert progress(folder)["best"] is None


@pytest.mark.parametrize(
    "content", ["", "[" * 100_000, "{}", '{"round": Infinity, "value": 1}', '{"round": 1}', "[]"]
)
def test_what_a_damaged_file_says_of_the_best_model_is_named(tmp_path, stopped, content):
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    (folder / "best.json").write_text(content)
    before = (folder / "best.safetensors").read_bytes()
    for read in (progress, resume_local):
        with pytest.raises(RunError, match=r"best\.json: expected the round of the best model"):
            read(folder)
    assert (folder / "best.safetensors").read_bytes() == before


def test_a_run_without_its_saved_states_does_not_begin_again(tmp_path, stopped):
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    shutil.rmtree(folder / "rounds")
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="expected a saved state to go on from, found none"):
        resume_local(folder)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_sites_know_what_they_knew_before_the_older_state(tmp_path):
    """RSCFed's teachers are at the sites, which have done a part of the next round."""
    folders = [write_sites(tmp_path / "sites")]
    experiment = isolated("rscfed", options={"warm_up": 0})
    straight = run_local(experiment, tmp_path / "straight", sites=ISOLATED, site_folders=folders)
    last = max(int(path.name) for path in (straight / "rounds").glob("?????"))
    folder = tmp_path / "run"
    interrupted(experiment, folder, ISOLATED, last, len(ISOLATED), site_folders=folders)
    empty(folder / "rounds" / f"{last - 1:05d}" / "state.safetensors")
    resume_local(folder, site_folders=folders)
    assert ("resumed", last - 2) in events(folder)
    assert_equal(weights(straight), weights(folder))
    assert steady_rows(folder, "groups") == steady_rows(straight, "groups")


def test_without_a_whole_state_a_run_is_refused_and_unchanged(tmp_path):
    folder = tmp_path / "run"
    interrupted(tiny("fedavg"), folder, SITES, 3, 1)
    for state in (folder / "rounds").glob("?????/state.json"):
        empty(state)
    before = {path: path.read_bytes() for path in (folder / "rounds").rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"expected one that is whole, found round 2: .*; round 1: "):
        RunFolder.reopen(folder).restore(ServerState)
    assert before == {
        path: path.read_bytes() for path in (folder / "rounds").rglob("*") if path.is_file()
    }
    assert not [event for event in events(folder) if event[0] in ("unusable", "resumed")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "text that is not valid JSON at line 1, column 2"),
        ("[]", "a list"),
        ("{}", "format, id, method, engine, seed, sites, started, status, versions, experiment"),
        (
            '{"id": "a", "sites": ["b"], "status": "running", "experiment": 3}',
            "broken format, .*experiment",
        ),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_broken_run_json_is_reported(tmp_path, content, problem):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunError, match=f"expected a readable run.json, found .*{problem}"):
        RunFolder.reopen(tmp_path)


def test_a_state_that_the_audit_log_does_not_know_yet_is_used(tmp_path, monkeypatch):
    """The server died between the two."""
    folder = tmp_path / "run"
    add = AuditLog.add

    def dies(self, event, **details):
        if (event, details.get("round")) == ("committed", 2):
            raise KeyboardInterrupt
        return add(self, event, **details)

    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, "add", dies)
        with pytest.raises(KeyboardInterrupt):
            run_local(tiny("fedavg"), folder, sites=SITES)
    resume_local(folder)
    assert [
        event for event in events(folder) if event[0] in ("committed", "resumed", "unusable")
    ] == [
        *(("committed", round_) for round_ in (0, 1)),
        ("resumed", 2),
        ("committed", 3),
    ]
    assert [row["round"] for row in rows(folder, "rounds")] == [1, 2, 3]
    assert verify(folder)


def test_a_state_made_anew_is_checked_by_its_own_hash(tmp_path):
    """Machines may differ in a last digit, so two states after round 2 need not be equal."""
    run = new_run(tmp_path / "run", tiny("fedavg"), SITES, "local")
    for round_ in (0, 1, 2):
        run.commit(round_, ServerState(round_, {"w": torch.tensor(float(round_))}))
    empty(run.path / "rounds" / "00002" / "state.json")
    run = RunFolder.reopen(run.path)
    assert run.restore(ServerState).round == 1
    save_state(run.path / "rounds" / "00002", ServerState(2, {"w": torch.tensor(2.5)}))  # and dies
    restored = RunFolder.reopen(run.path).restore(ServerState)
    assert restored.round == 2
    assert restored.model["w"] == 2.5


def test_a_round_that_is_damaged_again_is_replaced_again(tmp_path):
    run = new_run(tmp_path / "run", tiny("fedavg"), SITES, "local")
    run.commit(1, ServerState(1, {"w": torch.tensor(1.0)}))
    for content in (b"first", b"second"):
        run.commit(2, ServerState(2, {"w": torch.tensor(2.0)}))
        (run.path / "rounds" / "00002" / "state.json").write_bytes(content)
        run = RunFolder.reopen(run.path)
        assert run.restore(ServerState).round == 1
        damaged = run.path / "rounds" / "00002.damaged" / "state.json"
        assert damaged.read_bytes() == content


def test_a_site_that_joins_an_unfinished_run_is_in_its_log(tmp_path):
    run = new_run(tmp_path / "run", tiny("fedavg"), SITES, "local")
    run.commit(0, ServerState(0, {"w": torch.tensor(0.0)}))
    run = RunFolder.reopen(run.path, sites=["site-1", "site-5"])
    assert run.sites == ["site-1", "site-2", "site-5", "site-9"]
    line = json.loads((run.path / LOG).read_text().splitlines()[-1])
    assert (line["event"], line["details"]) == ("joined", {"sites": ["site-5"]})
    run.set_status("finished", Summary(rounds=0))
    lines = (run.path / LOG).read_text()
    assert RunFolder.reopen(run.path, sites=["site-6"]).sites == run.sites
    assert (run.path / LOG).read_text() == lines


def test_a_round_is_on_disk_before_it_is_called_committed(tmp_path, monkeypatch):
    synced = on_the_disk(monkeypatch)
    add = AuditLog.add
    late = []

    def checked(self: AuditLog, event: str, **details: object) -> str:
        if event == "committed":
            late.append(unwritten(tmp_path / "run", synced))
        return add(self, event, **details)

    monkeypatch.setattr(AuditLog, "add", checked)
    experiment = tiny("fedavg", options={"rounds": 2})
    transport = LocalTransport(Sites(experiment, tmp_path / "sites"), SITES)
    run_experiment(experiment, tmp_path / "run", transport)
    assert late == [[], [], []]


@pytest.mark.parametrize("job", ["", "fedperl"], ids=["nvflare simulator", "job.py"])
def test_the_run_of_a_simulator_is_named(job, tmp_path):
    inside = tmp_path / job / "server" / "simulate_job" / "fedward"
    inside.mkdir(parents=True)
    (inside / "run.json").touch()
    with pytest.raises(RunError, match=f"The run of FLARE's simulator is {inside}"):
        RunFolder.reopen(tmp_path)


# --- what a new run may find


@pytest.mark.parametrize("name", ["site-1.yaml", ".DS_Store", "site-1/site.csv"])
def test_a_folder_with_other_files_of_sites_is_no_new_one(tmp_path, name):
    path = tmp_path / "sites" / name
    path.parent.mkdir(parents=True)
    path.write_text("kind: manifest")
    with pytest.raises(RunError, match="expected a new or empty folder, found files in it"):
        refuse_results(tmp_path)


def test_a_file_is_no_new_folder(tmp_path):
    (tmp_path / "run").write_text("of somebody")
    with pytest.raises(RunError, match="expected a new or empty folder, found a file"):
        refuse_results(tmp_path / "run")


def test_a_folder_of_decoded_images_alone_is_a_new_one(tmp_path):
    (tmp_path / "sites" / "site-1" / "cache").mkdir(parents=True)
    (tmp_path / "sites" / "site-2").mkdir()
    refuse_results(tmp_path)


def test_files_that_are_no_states_are_passed_over(tmp_path):
    """Such as those that a file manager leaves."""
    rounds = tmp_path / "rounds"
    for name in ("00002", "100000", "99999", "notes", "a0001", "00003.damaged", "100001.logs.json"):
        (rounds / name).mkdir(parents=True)
    assert SavedStates(tmp_path).rounds() == [2, 99_999, 100_000]
