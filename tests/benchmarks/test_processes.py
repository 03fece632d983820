"""Many runs at once: none stops another, what ends one process is told, and Ctrl-C ends them all."""

import os
import pickle
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest

import paper
from fedward.errors import ConfigError, DataError, FedwardError, RunError, WireError, WorkError
from papers.processes import run_all


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
    said = sorted(line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines())
    assert said == [f"number 2: {caught.value}", "number 3: three", "number 4: 16", "number 5: 25"]


def kill_itself() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_a_process_that_is_killed_ends_them_all_in_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunError, match="one was killed") as caught:
        run_all({f"number {n}": partial(kill_itself) for n in range(20)}, workers=2)
    assert "fewer --workers" in caught.value.remedy
    assert capsys.readouterr().out == ""


def test_a_failing_run_is_the_error_after_all_stages_ran(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(DataError, match="number 2"):
        run_all({"first": partial(square, 2)}, {"second": partial(square, 3), "third": partial(square, 4)}, workers=1)
    assert capsys.readouterr().out.splitlines()[1:] == ["1/2 second: three", "2/2 third: 16"]


def interrupt(folder: Path, number: int) -> str:
    (folder / str(number)).touch()
    if number == 0:
        os.kill(os.getppid(), signal.SIGINT)
        Event().wait(20)  # a run that goes on: only its end by others is in time
        (folder / "ended").touch()
    return "done"


@pytest.fixture
def listening() -> Iterator[None]:
    """A process that hears Ctrl-C, as at a terminal; one that a script begins in the background does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_ends_the_runs_at_work_and_begins_no_other(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_all({f"number {n}": partial(interrupt, tmp_path, n) for n in range(4)}, workers=1)
    assert [file.name for file in tmp_path.iterdir()] == ["0"]


@pytest.mark.parametrize("kind", [FedwardError, ConfigError, DataError, WireError, RunError, WorkError])
def test_an_error_stays_whole_on_its_way_from_another_process(kind: type[FedwardError]) -> None:
    error = kind("here", expected="a", found="b", remedy="Fix it.")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), vars(copy)) == (str(error), vars(error))


@pytest.mark.parametrize("workers", ["0", "-1", "two"])
def test_no_workers_are_refused(workers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        paper.main(["fedperl", "--workers", workers])
    assert f"expected a whole number of at least 1, found {workers}" in capsys.readouterr().err
