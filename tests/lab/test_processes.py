"""Many calls at once: none stops another, a killed process is reported, Ctrl-C ends them all."""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from threading import Event

import psutil
import pytest

from fedward.errors import ConfigError, DataError, FedwardError, RunError, WireError, WorkError
from fedward.lab import processes
from fedward.lab.processes import PRELOADED, fork_server, run_all
from waiting import appears


def square(number: int) -> str:
    if number == 2:
        raise DataError("number 2", expected="another", found="two", remedy="Take 3.")
    if number == 3:
        raise ValueError("three")
    return str(number**2)


def test_a_failing_run_stops_no_other_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="number 2: expected another, found two") as caught:
        run_all({f"number {n}": partial(square, n) for n in (2, 3, 4, 5)}, workers=1)
    assert caught.value.remedy == "Take 3."
    results = sorted(line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines())
    assert results == [
        f"number 2: {caught.value}",
        "number 3: three",
        "number 4: 16",
        "number 5: 25",
    ]


def kill_itself() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_a_process_that_is_killed_ends_them_all_in_one_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(RunError, match="one was killed") as caught:
        run_all({f"number {n}": partial(kill_itself) for n in range(20)}, workers=2)
    assert "fewer workers" in caught.value.remedy
    assert capsys.readouterr().out == ""


def test_only_processes_of_the_calls_are_ended(tmp_path: Path) -> None:
    """A process that the command started otherwise goes on."""
    other = fork_server(processes.PRELOADED).Process(target=wait, args=(tmp_path, 0), daemon=True)
    other.start()
    try:
        with pytest.raises(RunError, match="one was killed"):
            run_all({f"number {n}": partial(kill_itself) for n in range(20)}, workers=2)
        other.join(1)
        assert other.exitcode is None
    finally:
        other.kill()
        other.join()


def test_no_calls_import_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(modules: Sequence[str]) -> None:
        raise AssertionError("the fork server is started")

    monkeypatch.setattr("fedward.lab.processes.fork_server", started)
    run_all({}, workers=2)


def test_a_failing_run_is_the_error_after_those_that_wait_for_it_ran(
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls = {"second": partial(square, 3), "first": partial(square, 2), "third": partial(square, 4)}
    with pytest.raises(DataError, match="number 2"):
        run_all(calls, 1, {"second": ["first", "of another study"], "third": ["second"]})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1/3 first: number 2: expected another")
    assert lines[1:] == ["2/3 second: three", "3/3 third: 16"]


def begin_and_wait_for(folder: Path, own: str, other: str) -> str:
    """End once another call has begun: both run at the same time, or this one never ends."""
    (folder / own).touch()
    assert appears((folder / other).exists)
    return "met"


def test_a_free_process_takes_a_later_call_whose_turn_has_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = {
        "long": partial(begin_and_wait_for, tmp_path, "long", "free"),
        "waits": partial(square, 4),
        "free": partial(begin_and_wait_for, tmp_path, "free", "long"),
    }
    run_all(calls, 2, {"waits": ["long", "free"]})
    assert capsys.readouterr().out.splitlines()[-1] == "3/3 waits: 16"


def test_calls_that_wait_for_each_other_are_an_error() -> None:
    calls = {"one": partial(square, 4), "two": partial(square, 5)}
    with pytest.raises(ValueError, match="wait for each other: one, two"):
        run_all(calls, 1, {"one": ["two"], "two": ["one"]})


def interrupt(folder: Path, number: int) -> str:
    (folder / str(number)).touch()
    if number == 0:
        command = parent_process()
        assert command
        assert command.pid
        os.kill(command.pid, signal.SIGINT)
        Event().wait(20)  # A call that goes on: only another process can end it in time.
        (folder / "ended").touch()
    return "done"


@pytest.fixture
def listening() -> Iterator[None]:
    """React to Ctrl-C as at a terminal; a process in the background of a script ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_ends_the_runs_at_work_and_begins_no_other(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_all({f"number {n}": partial(interrupt, tmp_path, n) for n in range(4)}, workers=1)
    assert [file.name for file in tmp_path.iterdir()] == ["0"]


IMPORTS = (
    "import sys\n"
    "sys.path[:] = eval(sys.argv[1])\n"
    "import test_processes as tests\n"
    "from functools import partial\n"
    "from pathlib import Path\n"
    "from fedward.lab import processes\n"
)
"""Head of a script that has the path of this process as its first argument."""


def describe_process(folder: Path) -> str:
    fork_server = psutil.Process(os.getppid())
    description = {
        "imported": [name for name in PRELOADED if name in sys.modules],
        "threads": fork_server.num_threads(),
        # One further thread waits for the end of the command.
        "own threads": psutil.Process().num_threads() - 1,
        "cuda": sys.modules["torch"].cuda.is_initialized(),
        "fork server": fork_server.pid,
    }
    (folder / f"{os.getpid()}.json").write_text(json.dumps(description))
    return "described"


def test_processes_are_forked_from_one_that_only_imported(tmp_path: Path) -> None:
    """It has no second thread, whose locks a fork would leave without owner, and no CUDA state.

    The calls are made in a new process: this one may have a fork server with fewer imports.
    """
    code = (
        f"{IMPORTS}"
        "for _ in range(2):\n"
        "    call = partial(tests.describe_process, Path(sys.argv[2]))\n"
        "    processes.run_all({'described': call}, workers=1)\n"
    )
    command = subprocess.Popen([sys.executable, "-c", code, repr([*sys.path]), str(tmp_path)])
    assert command.wait() == 0
    first, second = (json.loads(file.read_text()) for file in tmp_path.iterdir())
    assert first == second
    assert first.pop("fork server") not in (os.getpid(), command.pid)
    assert first == {
        "imported": list(PRELOADED),
        "threads": 1,
        "own threads": 1,
        "cuda": False,
    }


def test_nothing_is_imported_from_the_working_folder(tmp_path: Path) -> None:
    """Neither a module of Python nor fedward."""
    work = tmp_path / "work"
    work.mkdir()
    for name in ("cmd", "signal", "fedward"):
        (work / f"{name}.py").write_text(f"open('{name} was run', 'w')")
    command = tmp_path / "command.py"
    command.write_text(
        "import sys; sys.path += eval(sys.argv[1])\nfrom functools import partial\n"
        "from fedward.lab import processes\n"
        "processes.PRELOADED = ('fedward.errors',)\n"
        "if __name__ == '__main__':\n    processes.run_all({'one': partial(str, 1)}, workers=1)\n"
    )
    arguments = [sys.executable, str(command), repr([entry for entry in sys.path if entry])]
    found = subprocess.run(arguments, cwd=work, capture_output=True, check=False)
    assert sorted(file.name for file in work.iterdir()) == ["cmd.py", "fedward.py", "signal.py"]
    assert found.stdout.splitlines()[-1:] == [b"1/1 one: 1"], found.stderr


def wait(folder: Path, number: int) -> str:
    (folder / str(number)).touch()
    Event().wait(600)
    return "waited"


def test_no_process_outlives_a_killed_command(tmp_path: Path) -> None:
    """Neither the busy ones, nor an idle one, nor the fork server."""
    code = (
        f"{IMPORTS}"
        "processes.PRELOADED = ()\n"
        "runs = {str(n): partial(tests.wait, Path(sys.argv[2]), n) for n in range(2)}\n"
        "processes.run_all({'short': partial(str, 1), **runs}, workers=3)\n"
    )
    command = subprocess.Popen([sys.executable, "-c", code, repr([*sys.path]), str(tmp_path)])
    while len(list(tmp_path.iterdir())) < 2:
        assert command.poll() is None
        Event().wait(0.1)
    processes = psutil.Process(command.pid).children(recursive=True)
    assert sum("forkserver" in " ".join(process.cmdline()) for process in processes) == 4
    command.kill()
    command.wait()
    assert psutil.wait_procs(processes, timeout=60)[1] == []


@pytest.mark.parametrize(
    "kind", [FedwardError, ConfigError, DataError, WireError, RunError, WorkError]
)
def test_an_error_stays_whole_on_its_way_from_another_process(kind: type[FedwardError]) -> None:
    error = kind("here", expected="a", found="b", remedy="Fix it.")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), vars(copy)) == (str(error), vars(error))
