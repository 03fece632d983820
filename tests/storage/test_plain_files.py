"""A run folder that comes from somebody else: files and folders alone, at whatever depth."""

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from fedward.cli import main
from fedward.errors import FedwardError, RunError
from fedward.inference.model import load_model
from fedward.operation.audit_check import verify
from fedward.report import write_report
from fedward.starting_model import Weights
from fedward.storage import plain_files
from fedward.storage.audit import LOG
from fedward.storage.info import read_info
from finished_run import finished_run
from starting import initial_model
from tiny import tiny

DEEP = (
    "reconstructions/about.json",
    "reconstructions/1-original.png",
    "rounds/00001/state.safetensors",
    "sites/site-1/pseudo_labels/0.jsonl",
)
HANDED_OVER = pytest.mark.proves(
    "server",
    "a link in a run folder that somebody handed over",
    "refused and named; nothing is read or written through it",
)
ENDLESS = pytest.mark.proves(
    "server",
    "a pipe or a device in a run folder",
    "refused and named",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment = tiny("fedavg")
    state = initial_model(experiment).state
    return finished_run(tmp_path_factory.mktemp("whole") / "run", experiment, state)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """Return a copy of a finished run, which a test may change."""
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_text("mine")
    return file


def place(run: Path, name: str, kind: str) -> None:
    """Put what is neither a file nor a folder into a run folder."""
    path = run / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        # A socket's path has at most 107 bytes.
        before = Path.cwd()
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
        os.chdir(before)
    else:
        targets = {"device": "/dev/zero", "file": "/etc/hostname", "folder": "/", "nothing": "gone"}
        path.symlink_to(targets[kind])


@ENDLESS
@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_what_never_ends_is_found_at_any_depth(run: Path, name: str, kind: str) -> None:
    place(run, name, kind)
    with pytest.raises(RunError, match=f"found {name}, which is neither"):
        read_info(run)


@HANDED_OVER
@pytest.mark.parametrize("kind", ["file", "folder", "nothing"])
@pytest.mark.parametrize("name", ["metrics.jsonl", "run.json", "sites", "models/site-1"])
def test_a_link_is_refused(run: Path, name: str, kind: str) -> None:
    place(run, name, kind)
    with pytest.raises(RunError, match=f"found {name}, which is neither: it is a link"):
        read_info(run)


@ENDLESS
@pytest.mark.parametrize(
    "command",
    [
        ["report", "RUN"],
        ["report", "GOOD", "--compare", "RUN"],
        ["status", "RUN"],
        ["audit", "verify", "RUN"],
        ["evaluate", "RUN", "site.yaml"],
        ["predict", "RUN", "images", "--out", "answers.csv"],
        ["export", "RUN", "--torchscript", "model.ts"],
        ["run", "fedavg", "--init", "RUN", "--out", "new"],
        ["run", "--resume", "RUN"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_every_command_that_reads_a_run_refuses_it(
    run: Path,
    whole: Path,
    tmp_path: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    good = shutil.copytree(whole, tmp_path / "good")
    place(run, DEEP[0], "pipe")
    words = [{"RUN": str(run), "GOOD": str(good)}.get(word, word) for word in command]
    assert main(words) != 0
    assert f"found {DEEP[0]}, which is neither" in " ".join(capsys.readouterr().err.split())


@ENDLESS
@pytest.mark.parametrize("read", [load_model, verify, write_report, Weights.of])
def test_a_pipe_in_place_of_a_model_is_not_opened(run: Path, read: Any) -> None:
    place(run, "model.safetensors", "pipe")
    with pytest.raises(FedwardError, match=r"found model\.safetensors, which is neither"):
        read(run)


def test_a_run_folder_may_itself_be_reached_through_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").symlink_to(tmp_path)
    (tmp_path / "latest").symlink_to(run)
    for folder in (tmp_path / "latest", tmp_path / "disk" / "run"):
        assert read_info(folder).status == "finished"
        assert write_report(folder).is_file()


def test_a_folder_of_something_else_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(RunError, match=r"expected a readable run\.json"):
        read_info(tmp_path)


def test_a_file_is_no_run_folder(precious: Path) -> None:
    with pytest.raises(RunError, match=r"expected a readable run\.json"):
        read_info(precious)


def test_the_runs_own_process_does_not_search_its_folder(run: Path) -> None:
    place(run, "sites/site-1/cache", "folder")
    assert read_info(run, is_own=True).status == "finished"


@pytest.mark.parametrize("is_entered", [True, False])
def test_a_folder_that_can_be_entered_and_not_listed_is_refused(
    run: Path, is_entered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files could be opened by their names; those of a closed folder could not."""
    (run / "rounds").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("rounds"):
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: is_entered)
    if is_entered:
        with pytest.raises(RunError, match="found rounds, which cannot be listed"):
            read_info(run)
    else:
        assert read_info(run)


def test_what_a_running_run_removes_meanwhile_is_passed_over(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "rounds").mkdir()
    place(run, "tb_events", "nothing")
    scandir = os.scandir
    lstat = os.lstat

    def vanish(path: str) -> Any:
        if path.endswith("rounds"):
            raise FileNotFoundError(path)
        return scandir(path)

    def vanished(path: str) -> Any:
        if path.endswith("tb_events"):
            raise FileNotFoundError(path)
        return lstat(path)

    monkeypatch.setattr(os, "scandir", vanish)
    monkeypatch.setattr(os, "lstat", vanished)
    assert read_info(run)


@HANDED_OVER
@pytest.mark.parametrize("name", ["clinician.html.PROCESS.partial", LOG, "report.html"])
def test_a_report_refuses_a_link_that_it_would_write_through(
    run: Path, precious: Path, name: str
) -> None:
    path = run / name.replace("PROCESS", str(os.getpid()))
    path.unlink(missing_ok=True)
    path.symlink_to(precious)
    assert main(["report", str(run)]) == 1
    assert precious.read_text() == "mine"


@pytest.fixture
def unsearched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links appear after the folder was searched."""
    monkeypatch.setattr("fedward.storage.info.require_plain_files", lambda folder: None)


@HANDED_OVER
@pytest.mark.usefixtures("unsearched")
@pytest.mark.parametrize("page", ["report.html", "clinician.html"])
def test_a_page_is_written_to_a_file_of_its_own(run: Path, precious: Path, page: str) -> None:
    (run / f"{page}.{os.getpid()}.partial").symlink_to(precious)
    write_report(run)
    assert precious.read_text() == "mine"
    assert (run / page).is_file()
    assert not (run / page).is_symlink()


@HANDED_OVER
@pytest.mark.usefixtures("unsearched")
def test_no_line_is_added_through_a_link(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = (run / LOG).rename(tmp_path / "elsewhere")
    before = elsewhere.read_bytes()
    (run / LOG).symlink_to(elsewhere)
    assert main(["report", str(run)]) == 1
    assert "it is a link, a pipe or a device, and not a file" in capsys.readouterr().err
    assert elsewhere.read_bytes() == before


def test_a_large_folder_is_listed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the status of each file besides, 20,000 of them would take three times as long."""
    for number in range(20):
        (run / "sites" / f"site-{number}").mkdir(parents=True)
        (run / "sites" / f"site-{number}" / "memory.json").touch()
    asked: list[str] = []
    monkeypatch.setattr(plain_files, "_is_strange", asked.append)
    plain_files.require_plain_files(run)
    assert asked == []
