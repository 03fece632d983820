"""``fedward prune``: what it removes, and what it never touches."""

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedward.cli import main
from fedward.errors import ConfigError, RunError
from fedward.operation import prune
from fedward.operation.audit_check import verify
from fedward.operation.prune import find, remove
from fedward.storage.lock import sole_writer

YEAR = 365


def names(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }


# --- runs


def test_without_delete_nothing_changes_and_the_bytes_are_shown(ended, age, tmp_path, capsys):
    age(ended, YEAR)
    before = names(tmp_path)
    assert main(["prune", str(tmp_path)]) == 0
    assert names(tmp_path) == before
    out = capsys.readouterr().out
    assert "models of single sites\n            runs/lead/ended/models" in out
    assert "0.0 MB  could be removed; nothing was, add --delete" in out


def test_delete_removes_what_serves_only_to_continue_the_run(ended, age, tmp_path):
    age(ended, YEAR)
    found = find(tmp_path, 180)
    assert {item.path.name: item.bytes for item in found.items} == {
        "models": 1000,
        "rounds": 1000,
        "server": 1000,
    }
    assert main(["prune", str(tmp_path), "--delete"]) == 0
    remaining = names(ended)
    assert {"run.json", "audit.jsonl", "model.safetensors", "model.json"} <= remaining
    assert not [name for name in remaining if name.split("/")[0] in ("models", "rounds", "server")]
    assert verify(ended).lines
    assert not find(tmp_path, 180).items


def test_models_are_removed_if_asked_for_alone(ended, age, tmp_path):
    age(ended, YEAR)
    assert main(["prune", str(tmp_path), "--delete", "--models"]) == 0
    assert "model.safetensors" not in names(ended)
    assert {"model.json", "audit.jsonl", "run.json"} <= names(ended)


def test_an_abandoned_run_is_pruned_too(interrupted, age, tmp_path):
    age(interrupted, YEAR)
    assert [item.path for item in find(tmp_path, 180).items] == [interrupted / "rounds"]


def test_a_run_that_was_written_lately_stays(ended, age, tmp_path):
    age(ended, 179)
    assert not find(tmp_path, 180).items
    assert find(tmp_path, 178).items


@pytest.mark.proves(
    "files",
    "a running run whose run.json claims that it ended long ago, before `fedward prune --delete`",
    "kept: its lock and the age of its files count",
)
@pytest.mark.parametrize("old", [True, False], ids=["files of last year", "files of today"])
def test_a_running_run_is_left_alone_whatever_its_run_json_says(ended, age, tmp_path, old):
    info = json.loads((ended / "run.json").read_text())
    lie = {
        **info,
        "status": "finished",
        "started": "2001-01-01T00:00:00+00:00",
        "ended": "2001-01-02T00:00:00+00:00",
    }
    (ended / "run.json").write_text(json.dumps(lie))
    age(ended, YEAR if old else 0)
    before = names(ended)
    with sole_writer(ended):
        assert main(["prune", str(tmp_path), "--older-than", "1d", "--delete"]) == 0
        assert [kept.reason for kept in find(tmp_path, 1).kept] == (
            ["a process writes this run"] if old else []
        )
    assert names(ended) == before


def test_a_run_that_begins_again_meanwhile_is_left_alone(ended, age, tmp_path):
    age(ended, YEAR)
    item = find(tmp_path, 180).items[0]
    with sole_writer(ended), pytest.raises(RunError, match="another process has been writing it"):
        remove(item)
    assert item.path.exists()


LINKS = pytest.mark.proves(
    "files",
    "a link to a folder outside, in a run or in a kit, before `fedward prune --delete`",
    "not followed: what it points to stays",
)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside" / "cache"
    folder.mkdir(parents=True)
    (folder / "patients.csv").write_text("1")
    return folder.parent


@LINKS
@pytest.mark.parametrize("name", ["models", "sites", "rounds/00001"])
def test_a_link_in_a_run_is_not_followed(ended, age, outside, tmp_path, name):
    link = ended / name
    if link.is_dir():
        subprocess.run(["rm", "-r", link], check=True)
    link.symlink_to(outside if name != "sites" else tmp_path, target_is_directory=True)
    age(tmp_path, YEAR)
    assert main(["prune", str(tmp_path / "runs"), "--delete"]) == 0
    assert (outside / "cache" / "patients.csv").exists()


@LINKS
def test_a_run_that_is_a_link_is_not_found(ended, age, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run").symlink_to(ended, target_is_directory=True)
    age(tmp_path, YEAR)
    with pytest.raises(ConfigError, match="found none of them"):
        find(tmp_path / "other", 180)


@LINKS
def test_a_folder_that_became_a_link_is_not_removed(ended, age, outside, tmp_path):
    age(ended, YEAR)
    (item,) = (item for item in find(tmp_path, 180).items if item.path.name == "models")
    subprocess.run(["rm", "-r", item.path], check=True)
    item.path.symlink_to(outside, target_is_directory=True)
    remove(item)
    assert (outside / "cache" / "patients.csv").exists()


@pytest.mark.proves(
    "files",
    "a folder that is not fedward's, given to `fedward prune --delete`",
    "refused; nothing is removed",
)
@pytest.mark.parametrize("content", [None, "{}", "[]", "no json", '{"format": 1, "id": "1"}'])
def test_a_folder_of_something_else_is_refused(tmp_path, age, content, capsys):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.safetensors").write_text("mine")
    if content:
        (tmp_path / "run.json").write_text(content)
    age(tmp_path, YEAR)
    assert main(["prune", str(tmp_path), "--delete"]) == 2
    assert (tmp_path / "models" / "mine.safetensors").exists()
    assert "a startup kit, a run folder, or a folder with runs" in capsys.readouterr().err


def test_a_folder_with_a_link_to_a_run_json_is_no_run(ended, age, tmp_path):
    mine = tmp_path / "mine"
    (mine / "models").mkdir(parents=True)
    (mine / "run.json").symlink_to(ended / "run.json")
    age(tmp_path, YEAR)
    with pytest.raises(ConfigError, match="found none of them"):
        find(mine, 180)


def test_what_cannot_be_removed_is_named_and_all_else_is_removed(
    ended, age, tmp_path, monkeypatch, capsys
):
    remove_tree = shutil.rmtree

    def refuse_models(name: str, **place: int) -> None:
        if name == "models":
            raise PermissionError(13, "Permission denied", name)
        remove_tree(name, **place)

    monkeypatch.setattr(prune.shutil, "rmtree", refuse_models)
    (ended / "rounds" / "00001" / "state.safetensors").write_bytes(bytes(2_000_000))
    (ended / "models" / "hospital-a" / "00001.safetensors").write_bytes(bytes(5_000_000))
    age(ended, YEAR)
    assert main(["prune", str(tmp_path), "--delete"]) == 1
    told = capsys.readouterr()
    assert f"{ended / 'models'} stays: " in told.err
    assert told.out.endswith("    2.0 MB  removed\n")
    assert {path.name for path in ended.iterdir()} & {"models", "rounds", "server"} == {"models"}


@pytest.mark.parametrize("days", ["0d", "00d", "180", "-3d", "1.5d", ""])
def test_days_are_at_least_one(ended, days):
    with pytest.raises(SystemExit):
        main(["prune", str(ended), "--older-than", days])


# --- kits


JOB = str(uuid.UUID(int=7))
RUN = "ab" * 16
NEVER = [
    f"{JOB}.backup/log.txt",
    f"fedward/memory/{RUN}.backup/a",
    "fedward/privacy-hospital-a.jsonl",
    f"fedward/answers/{RUN}.jsonl",
    f"fedward/sources/{RUN}.json",
    "local/fedward_site.yaml",
    "local/annotation/fedward_site/queue.sqlite",
    "startup/client.key",
    "log.txt",
]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site's kit as it lies there after a job."""
    kit = tmp_path / "kit"
    startup = {
        "servers": [{"name": "x", "service": {"target": "h:8002"}}],
        "client": {"fqsn": "hospital-a"},
    }
    files = dict.fromkeys(
        [*NEVER, f"{JOB}/log.txt", f"fedward/memory/{RUN}/a", "fedward/cache/a.npy"], "x"
    )
    for name, text in {**files, "startup/fed_client.json": json.dumps(startup)}.items():
        (kit / name).parent.mkdir(parents=True, exist_ok=True)
        (kit / name).write_text(text)
    return kit


def test_a_site_loses_only_job_folders_memory_and_cache(site, age):
    age(site, YEAR)
    before = names(site)
    assert main(["prune", str(site), "--delete"]) == 0
    assert before - names(site) == {
        f"{JOB}/log.txt",
        f"fedward/memory/{RUN}/a",
        "fedward/cache/a.npy",
    }
    assert set(NEVER) <= names(site)


def test_a_sites_state_is_pruned_where_it_is_kept(site, age, tmp_path, monkeypatch):
    """Neither what an old ``fedward`` in the kit holds, nor the ledger beside what is removed."""
    state = tmp_path / "state"
    monkeypatch.setenv("FEDWARD_STATE", str(state))
    for name in (f"memory/{RUN}/a", "cache/a.npy", "privacy-hospital-a.jsonl"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text("x")
    age(tmp_path, YEAR)
    before = names(site)
    assert main(["prune", str(site), "--delete"]) == 0
    assert names(state) == {"privacy-hospital-a.jsonl"}
    assert before - names(site) == {f"{JOB}/log.txt"}


def test_state_that_nothing_names_is_not_guessed(site, age, capsys):
    """Jobs in containers keep it in a folder of their own."""
    (site / "local" / "resources.json").write_text(
        json.dumps({"components": [{"id": "docker_launcher"}]})
    )
    age(site, YEAR)
    before = names(site)
    assert main(["prune", str(site), "--delete"]) == 2
    assert names(site) == before
    assert "FEDWARD_STATE" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["_newest", "_item"])
def test_a_folder_that_somebody_removes_meanwhile_stops_no_search(site, age, monkeypatch, step):
    """FLARE removes the folder of a job that ends."""
    age(site, YEAR)
    look = getattr(prune, step)

    def remove_and_look(path: Path, *arguments: Any) -> Any:
        if path.name == JOB:
            subprocess.run(["rm", "-rf", path], check=True)
        return look(path, *arguments)

    monkeypatch.setattr(prune, step, remove_and_look)
    bytes_of = {item.path.name: item.bytes for item in find(site, 180).items}
    assert bytes_of == {**({JOB: 0} if step == "_item" else {}), "cache": 1, RUN: 1}


def test_a_model_that_somebody_removes_meanwhile_stops_no_search(ended, age, tmp_path, monkeypatch):
    age(ended, YEAR)
    look = prune._item

    def remove_and_look(path: Path, *arguments: Any) -> Any:
        if path.name == "model.safetensors":
            path.unlink()
        return look(path, *arguments)

    monkeypatch.setattr(prune, "_item", remove_and_look)
    bytes_of = {item.path.name: item.bytes for item in find(tmp_path, 180, models=True).items}
    assert bytes_of["model.safetensors"] == 0


def test_what_is_new_stays_in_a_kit(site, capsys):
    assert not find(site, 180).items
    assert main(["prune", str(site), "--older-than", "90d", "--delete"]) == 0
    assert capsys.readouterr().out == "nothing to remove is older than 90 days\n"
    assert main(["prune", str(site), "--older-than", "1d"]) == 0
    assert capsys.readouterr().out == "nothing to remove is older than 1 day\n"


@pytest.mark.parametrize("at", [JOB, f"fedward/memory/{RUN}", "fedward/cache"])
@LINKS
def test_a_link_in_a_kit_is_not_followed(site, age, outside, at):
    subprocess.run(["rm", "-r", site / at], check=True)
    (site / at).symlink_to(outside, target_is_directory=True)
    age(site, YEAR)
    age(outside, YEAR)
    assert main(["prune", str(site), "--delete"]) == 0
    assert (outside / "cache" / "patients.csv").exists()


@contextmanager
def running(kit: Path, module: str, job: str) -> Iterator[None]:
    """Let a process work on a job, as FLARE starts one, by its command line."""
    wait = "import sys; print(flush=True); sys.stdin.read()"
    workspace = str(kit / "startup" / "..")
    command = [sys.executable, "-c", wait, module, "-m", workspace, "-n", job]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield
        process.communicate()


def test_while_a_job_runs_its_folder_memory_and_cache_stay(site, age):
    age(site, YEAR)
    with running(site, "nvflare.private.fed.app.client.worker_process", JOB):
        found = find(site, 180)
    assert not found.items
    assert {kept.reason for kept in found.kept} == {"the job runs", "a job runs with this kit"}
    assert len(find(site, 180).items) == 3


@pytest.fixture
def server(tmp_path: Path, ended: Path) -> Path:
    """The server's kit with a run, and three jobs in its store."""
    kit = tmp_path / "server"
    store = tmp_path / "store"
    startup = {"servers": [{"name": "x", "service": {"target": "h:8002"}, "admin_server": "h"}]}
    resources = {"components": [{"id": "job_manager", "args": {"uri_root": str(store)}}]}
    for name, content in (
        ("startup/fed_server.json", startup),
        ("local/resources.json", resources),
    ):
        (kit / name).parent.mkdir(parents=True, exist_ok=True)
        (kit / name).write_text(json.dumps(content))
    (kit / "fedward").mkdir()
    ended.parents[1].rename(kit / "fedward" / "runs")
    for number, meta in enumerate(
        ('{"status": "FINISHED:COMPLETED"}', '{"status": "SUBMITTED"}', "broken")
    ):
        folder = store / str(uuid.UUID(int=number))
        folder.mkdir(parents=True)
        (folder / "meta").write_text(meta)
        (folder / "workspace").write_bytes(bytes(100))
    (store / "else").mkdir()
    return kit


def test_a_server_loses_states_and_copies_of_ended_jobs(server, age, tmp_path):
    age(tmp_path, YEAR)
    found = find(server, 180)
    jobs = [item.path.name for item in found.items if item.path.parent == tmp_path / "store"]
    assert jobs == [str(uuid.UUID(int=0))]
    assert [kept.path.name for kept in found.kept] == [str(uuid.UUID(int=1)), str(uuid.UUID(int=2))]
    assert {item.path.name for item in found.items if item.run} == {"models", "rounds", "server"}
    assert main(["prune", str(server), "--delete"]) == 0
    assert len(list((tmp_path / "store").iterdir())) == 3


def test_the_copy_of_a_job_that_the_server_runs_stays(server, age, tmp_path):
    """It may have waited for readers since its last write."""
    age(tmp_path, YEAR)
    job = uuid.UUID(int=0)
    with running(server, "nvflare.private.fed.app.server.runner_process", str(job)):
        kept = {kept.path.name: kept.reason for kept in find(server, 180).kept}
    assert kept[str(job)] == "the job runs"


@pytest.mark.parametrize(
    "meta",
    [
        '{"status": "APPROVED"}',
        "{}",
        "[]",
        pytest.param("[" * 100_000, id="lists without end"),
        pytest.param(OSError(5, "Input/output error"), id="a broken disk"),
    ],
)
def test_the_copy_of_a_job_that_may_not_have_begun_stays(server, age, tmp_path, monkeypatch, meta):
    file = tmp_path / "store" / str(uuid.UUID(int=0)) / "meta"
    if isinstance(meta, str):
        file.write_text(meta)
    else:
        read = Path.read_bytes

        def read_others(path: Path) -> bytes:
            if path == file:
                raise meta
            return read(path)

        monkeypatch.setattr(Path, "read_bytes", read_others)
    age(tmp_path, YEAR)
    kept = {kept.path.name: kept.reason for kept in find(server, 180).kept}
    assert kept[file.parent.name] == "the job has not begun"


@pytest.mark.parametrize("variable", ["FEDWARD_STATE", "FEDWARD_RUNS"])
def test_a_servers_runs_are_pruned_where_they_are_kept(
    server, age, tmp_path, monkeypatch, variable
):
    runs = tmp_path / "state" / "runs"
    runs.parent.mkdir()
    (server / "fedward" / "runs").rename(runs)
    monkeypatch.setenv(variable, str(runs if variable == "FEDWARD_RUNS" else runs.parent))
    age(tmp_path, YEAR)
    found = {item.path.name for item in find(server, 180).items if item.path.is_relative_to(runs)}
    assert found == {"models", "rounds", "server"}


def test_a_users_kit_is_refused(site):
    config = {
        "admin": {"username": "lead", "host": "h", "port": 1, "scheme": "http", "project_name": "x"}
    }
    config["admin"]["server_identity"] = "h"
    (site / "startup" / "fed_client.json").unlink()
    (site / "startup" / "fed_admin.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="that of lead, who keeps no runs in it"):
        find(site, 180)


@LINKS
@pytest.mark.parametrize("step", ["sites", "sites/hospital-a", "."])
def test_a_step_on_the_way_that_became_a_link_is_not_followed(ended, age, outside, tmp_path, step):
    """After the listing, and before the removal: a folder above the one that is removed."""
    (ended / "sites" / "hospital-a" / "cache").mkdir(parents=True)
    age(tmp_path, YEAR)
    (item,) = (item for item in find(tmp_path / "runs", 180).items if item.path.name == "cache")
    copy = outside / "copy"
    (copy / "sites" / "hospital-a" / "cache").mkdir(parents=True)
    there = copy / item.path.relative_to(ended) / "patients.csv"
    there.write_text("1")
    subprocess.run(["rm", "-r", ended / step if step != "." else ended], check=True)
    (ended / step if step != "." else ended).symlink_to(copy / step, target_is_directory=True)
    with pytest.raises(OSError, match="Not a directory"):
        remove(item)
    assert there.exists()


@pytest.mark.proves(
    "files",
    "line breaks and escape sequences in a run folder's name",
    "printed on one line",
)
def test_a_name_cannot_pass_for_a_line(ended, age, tmp_path, capsys):
    named = ended.with_name("run\n    0.0 MB  removed\x1b[2J\x1b[1A")
    ended.rename(named)
    age(tmp_path, YEAR)
    assert main(["prune", str(tmp_path / "runs")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "run 0.0 MB removed\\x1b[2J" in out
    assert not [line for line in out.splitlines() if line.startswith("    0.0 MB  removed")]
    assert main(["runs", str(tmp_path / "runs")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert not [line for line in out.splitlines() if line.startswith("    0.0 MB")]
