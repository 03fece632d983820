"""What all benchmarks ask of their runs: that none stops another, the settings asked for, and every site at work."""

import json
import os
import pickle
import signal
from functools import partial
from pathlib import Path

import pytest

from fedward import cli
from fedward.bench.runs import require_all, run_all, run_or_resume, without_result
from fedward.config import Experiment
from fedward.errors import ConfigError, DataError, FedwardError, RunError, WireError, WorkError
from fedward.federation.local import run_local
from fedward.report.run import Run
from tiny import tiny

SITES = ["site-1", "site-2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cell's folder with a finished run, and a result."""
    folder = tmp_path_factory.mktemp("cell")
    run_local(tiny("fedavg", options={"rounds": 1}), folder / "run", sites=SITES)
    (folder / "result.json").write_text("{}")
    return folder


def experiment_of(rate: float, name: str) -> Experiment:
    return tiny("fedavg", options={"rounds": 1, "learning_rate": rate})


def test_a_cell_with_a_result_is_left_out_and_one_of_other_settings_is_refused(whole: Path, tmp_path: Path) -> None:
    def file(name: str) -> Path:
        return (whole if name == "done" else tmp_path) / "result.json"

    assert without_result(["done", "open"], file, partial(experiment_of, 1e-3)) == ["open"]
    with pytest.raises(ConfigError, match="one with others"):
        without_result(["done"], file, partial(experiment_of, 2e-3))


def test_a_run_is_not_continued_with_other_settings(whole: Path, tmp_path: Path) -> None:
    before = (whole / "run" / "run.json").read_bytes()
    with pytest.raises(ConfigError, match="--out"):
        run_or_resume(experiment_of(2e-3, ""), whole / "run", SITES, None, tmp_path)
    assert (whole / "run" / "run.json").read_bytes() == before


def test_a_site_that_did_not_train_is_named(whole: Path, tmp_path: Path) -> None:
    require_all(Run.load(whole / "run"), SITES)
    broken = tmp_path / "run"
    broken.mkdir()
    for file in whole.joinpath("run").glob("*.json*"):
        (broken / file.name).write_bytes(file.read_bytes())
    row = json.loads((broken / "rounds.jsonl").read_text().splitlines()[0])
    (broken / "rounds.jsonl").write_text(json.dumps({**row, "failed": {"site-2": "no finite loss"}}) + "\n")
    with pytest.raises(RunError, match="site-2: no finite loss"):
        require_all(Run.load(broken), SITES)
    require_all(Run.load(broken), ["site-1"])


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


@pytest.mark.parametrize("kind", [FedwardError, ConfigError, DataError, WireError, RunError, WorkError])
def test_an_error_stays_whole_on_its_way_from_another_process(kind: type[FedwardError]) -> None:
    error = kind("here", expected="a", found="b", remedy="Mend it.")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), vars(copy)) == (str(error), vars(error))


@pytest.mark.parametrize("workers", ["0", "-1", "two"])
def test_no_workers_are_refused(workers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "fedperl", "--workers", workers])
    assert f"expected a whole number of at least 1, found {workers}" in capsys.readouterr().err
