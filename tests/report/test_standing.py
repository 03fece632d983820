"""What is printed to continue a run, whatever stands in a run folder of somebody else's."""

import json
import os
import shlex
from pathlib import Path

import pytest
from run_folders import write_run

from fedward.runs.standing import resuming, site_files_of, unfinished
from fedward.storage.info import RunInfo, read_info

ID = "0" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "a run's $(folder)", rounds=1, status="failed")


def info_of(folder: Path, **changes: str) -> RunInfo:
    return read_info(folder).model_copy(update={"id": ID, **changes})


def noted(folder: Path, content: object, run: str = ID) -> Path:
    """Write what a simulated site notes of its file."""
    note = folder / "sites" / "north" / "sources" / f"{run}.json"
    note.parent.mkdir(parents=True)
    note.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return note


def test_a_shell_reads_the_command_as_its_words(folder: Path) -> None:
    noted(folder, {"site_file": "/data of '$(us)'/north.yaml"})
    words = ["fedward", "run", "--resume", str(folder), "--site-files", "/data of '$(us)'"]
    assert shlex.split(resuming(folder, info_of(folder, engine="local"))) == words


def test_a_run_of_the_simulator_goes_on_only_where_it_lies_outside_the_results(
    folder: Path,
) -> None:
    """The simulator deletes its results when it starts."""
    words = shlex.split(resuming(folder, info_of(folder, engine="simulator")))
    assert words == [f"FEDWARD_RUNS={folder.parent}", "nvflare", "simulator", "JOB"]
    inside = Path("simulator_workspace/fedperl/server/simulate_job/fedward")
    info = info_of(folder, engine="simulator", status="failed")
    assert resuming(inside, info) == ""
    found, remedy = unfinished(inside, info)
    assert found.startswith("one that has failed")
    assert remedy == "Mend that and start its job again, or name another run."


def test_the_folder_is_no_option(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    command = shlex.split(resuming(Path(folder.name), info_of(folder, engine="local")))
    assert command == ["fedward", "run", "--resume", str(folder)]


@pytest.mark.proves(
    "files",
    "a run folder whose id is a command, a path or a pattern, or whose sites' notes are no JSON",
    "no command that is printed runs it, and nothing outside the folder is read",
)
@pytest.mark.parametrize(
    "run", ["x; touch /tmp/x", "$(id)", "a**b", "../../../../**/x", "x\n#`id`"]
)
def test_an_id_is_neither_a_command_nor_a_pattern(folder: Path, run: str) -> None:
    words = shlex.split(resuming(folder, info_of(folder, id=run, engine="flare")))
    assert words == ["fedward", "submit", "KIT", "JOB", "--continue", run]
    assert site_files_of(folder, info_of(folder, id=run)) is None


@pytest.mark.proves(
    "files",
    "a run folder whose id is a command, a path or a pattern, or whose sites' notes are no JSON",
    "no command that is printed runs it, and nothing outside the folder is read",
)
@pytest.mark.parametrize("content", ["", "no JSON", "[" * 200_000, [], {}, 7, {"site_file": False}])
def test_a_broken_note_names_no_place(folder: Path, content: object) -> None:
    noted(folder, content)
    assert site_files_of(folder, info_of(folder)) is None


def test_a_folder_in_the_place_of_a_note_names_no_place(folder: Path) -> None:
    note = noted(folder, {})
    os.replace(note, note.with_suffix(".txt"))
    note.mkdir()
    assert site_files_of(folder, info_of(folder)) is None
