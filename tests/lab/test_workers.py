"""Sites that work in several processes: the run is that of one process, whatever happens to a
process.
"""

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from fedward.cli import main
from fedward.config import DERMOSCOPY, SyntheticData
from fedward.digests import file_digest
from fedward.errors import ConfigError
from fedward.lab.local import LocalTransport, Sites
from fedward.lab.workers import Workers
from fedward.nets.small_cnn import SmallCNN
from fedward.protocol.wire import Message
from fedward.registry import NETWORKS
from fedward.storage import audit
from interrupted import interrupted
from run_files import rows
from running import resume_local, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")
SITES = ["site-1", "site-2", "site-6", "site-9"]
LOGS = ("metrics", "rounds", "peers", "groups", "queries", "bytes")
OF_THE_RUN = {"salt", "time", "hash", "previous", "last_hash", "ledger", "questions"}
"""Fields of audit log and sites' logs in which equal runs differ: times, chance, and hashes of
these.
"""


def left_by(folder: Path) -> dict[str, Any]:
    """Return what a run has left, without times and what hangs on them."""
    info = json.loads((folder / "run.json").read_text())
    memories = {
        str(path.relative_to(folder)).replace(info["id"], "run"): file_digest(path)
        for path in sorted((folder / "sites").rglob("memory/**/*.safetensors"))
    }
    return {
        "model": file_digest(folder / "model.safetensors"),
        "status": (info["status"], info["summary"]),
        "logs": {
            log: [steady(row) for row in rows(folder, log) if row.get("name") != "seconds"]
            for log in LOGS
        },
        "audit": [
            (row["event"], without_runs(row["details"]))
            for row in reversed(list(audit.rows(folder)))
            if row["event"] not in ("ended", "reported")
        ],
        "answers": {
            site: [without_runs(row) for row in answers_of(folder, site, info["id"])]
            for site in info["sites"]
        },
        "memories": memories,
    }


def answers_of(folder: Path, site: str, run: str) -> list[dict[str, Any]]:
    lines = (folder / "sites" / site / "answers" / f"{run}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def steady(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "seconds"}


def without_runs(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OF_THE_RUN}


EXPERIMENTS = {
    "fedperl": tiny(options={"participants": 3}),
    "soft": tiny("ssfl", options={"participants": 3, "pseudo_labels": "soft"}),
    "fedal": tiny("fedal"),
    "rscfed": tiny("rscfed", synthetic=SyntheticData(images=40, labelled=1.0, isolated=True)),
    "selffed": tiny("selffed"),
    "secure": tiny("fedavg", secure_aggregation=True, options={"participants": 3}),
}


@pytest.fixture(scope="module")
def by_one(
    tmp_path_factory: pytest.TempPathFactory, without_report: None
) -> Callable[[str], dict[str, Any]]:
    """Name of an experiment -> what its run in one process leaves; each is run once."""
    folder = tmp_path_factory.mktemp("one")
    return lru_cache(lambda name: left_by(run_local(EXPERIMENTS[name], folder / name, sites=SITES)))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_two_processes_leave_what_one_leaves(
    name: str,
    by_one: Callable[[str], dict[str, Any]],
    tmp_path: Path,
) -> None:
    if name == "secure":
        pytest.importorskip("tenseal")
    one = by_one(name)
    two = left_by(run_local(EXPERIMENTS[name], tmp_path / "run", sites=SITES, workers=2))
    if name == "secure":  # ciphertexts are made with chance, and their sums round differently
        one, two = (
            {"status": run["status"][0], "rounds": len(run["logs"]["rounds"])} for run in (one, two)
        )
    assert two == one


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "secure"])
def test_sites_that_leave_memory_change_nothing(
    name: str,
    by_one: Callable[[str], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = by_one(name)
    monkeypatch.setattr("fedward.lab.local.MOST_HELD_BYTES", 1)
    assert left_by(run_local(EXPERIMENTS[name], tmp_path / "left", sites=SITES)) == kept


def test_the_sites_that_worked_last_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = LocalTransport(Sites(EXPERIMENTS["fedal"], tmp_path), SITES)
    sizes = [transport.client(name).data.bytes_in_memory for name in SITES]  # type: ignore[attr-defined]
    assert [transport.client(name).image_bytes for name in SITES] == sizes
    transport._drop_some()
    assert list(transport._held) == SITES
    first = transport.client(SITES[0])
    monkeypatch.setattr("fedward.lab.local.MOST_HELD_BYTES", sizes[-1] + sizes[0])
    transport._drop_some()
    assert list(transport._held) == [SITES[-1], SITES[0]]
    assert transport.client(SITES[0]) is first
    monkeypatch.setattr("fedward.lab.local.MOST_HELD", 1)
    transport._drop_some()
    assert list(transport._held) == [SITES[0]]


def test_a_run_is_resumed_with_any_number_of_processes(
    by_one: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    experiment = EXPERIMENTS["fedal"]
    whole = by_one("fedal")
    interrupted(experiment, tmp_path / "run", SITES, round_=2, answered=2)
    resumed = left_by(resume_local(tmp_path / "run", workers=2))
    for part in ("model", "logs", "memories"):
        assert resumed[part] == whole[part]


LABELS = f"labels: {json.dumps(dict(enumerate(DERMOSCOPY)))}"


def files_with_a_fault(folder: Path) -> Path:
    """Return a folder with the sites' files, of which one names images that are not there."""
    folder.mkdir()
    draw = np.random.default_rng(1)
    arrays = dict[str, np.ndarray]()
    sizes = {"train": 64, "val": 24, "test": 24}
    for split, count in sizes.items():
        arrays[f"{split}_images"] = draw.integers(0, 256, (count, 16, 16, 3), np.uint8)
        arrays[f"{split}_labels"] = np.arange(count) % 8
    np.savez(folder / "images.npz", **arrays)
    for place, site in enumerate(SITES):
        indices = {split: list(range(place, count, 4)) for split, count in sizes.items()}
        name = "nothing.npz" if site == "site-2" else "images.npz"
        (folder / f"{site}.yaml").write_text(
            f"kind: npz\nfile: {name}\n{LABELS}\nindices: {json.dumps(indices)}\n"
        )
    return folder


def test_an_error_at_a_site_is_told_as_in_one_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = files_with_a_fault(tmp_path / "files")
    said = []
    experiment = tiny("fedavg", options={"rounds": 1, "participants": 4}, synthetic=None)
    for workers in (1, 2):
        run = run_local(
            experiment, tmp_path / str(workers), sites=SITES, site_folders=[folder], workers=workers
        )
        logged = [
            record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR
        ]
        said.append((rows(run, "rounds")[0]["failed"], logged))
        caplog.clear()
    assert said[0] == said[1]
    failed, logged = said[0]
    assert list(failed) == ["site-2"]
    assert "nothing.npz" not in failed["site-2"]
    assert any("nothing.npz" in text for text in logged)


def fork_server_of(process: psutil.Process) -> psutil.Process:
    (server,) = (child for child in process.children() if "forkserver" in " ".join(child.cmdline()))
    return server


@pytest.mark.parametrize("server_dies_too", [False, True])
def test_a_killed_process_costs_its_site_a_round(
    server_dies_too: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the fork server dies: further processes are then forked from a new one."""
    exchange = Workers.exchange

    def kill_one_in_round_two(self: Workers, requests: dict[str, Message], *others: Any) -> None:
        if next(iter(requests.values())).meta["round"] == 2:
            server = fork_server_of(psutil.Process())
            assert server.num_threads() == 1, "else a fork would leave locks and no owner"
            first = self._workers[0]._process.pid
            assert first in [child.pid for child in server.children()]
            if server_dies_too:
                server.kill()
            psutil.Process(first).kill()
        exchange(self, requests, *others)

    monkeypatch.setattr(Workers, "exchange", kill_one_in_round_two)
    run = run_local(EXPERIMENTS["fedperl"], tmp_path / "run", sites=SITES, workers=2)
    first, second, third = rows(run, "rounds")
    assert (first["failed"], third["failed"]) == ({}, {})
    ((site, why),) = second["failed"].items()
    end = "ended with exit code unknown" if server_dies_too else "killed by SIGKILL"
    assert f"site {site}: expected its process to finish the work, found {end}" in why
    assert "fewer workers" in why
    assert len(second["replied"]) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_command(number: signal.Signals, tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(tiny("fedavg", options={"rounds": 1000}).model_dump_json())
    # A shell may have started the tests with SIGINT ignored.
    code = (
        "import signal, sys\n"
        "from fedward.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.exit(main())\n"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "run",
        str(job),
        "--out",
        str(tmp_path / "run"),
        "--sites",
        "3",
    ]
    process = subprocess.Popen(
        [*command, "--workers", "2"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not rows(tmp_path / "run", "rounds"):
        assert process.poll() is None
        time.sleep(0.2)
    command = psutil.Process(process.pid)
    workers = fork_server_of(command).children()
    assert len(workers) == 2
    processes = command.children(recursive=True)
    process.send_signal(number)
    _, said = process.communicate()
    assert psutil.wait_procs(processes, timeout=60)[1] == []
    if number == signal.SIGINT:
        assert process.returncode == 130, said
        assert "--resume" in said
        assert "--workers 2" in said


@pytest.mark.parametrize("workers", [0, -1])
def test_no_process_at_all_is_refused(workers: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="workers: expected 1 or more"):
        run_local(tiny(), tmp_path / "run", sites=SITES, workers=workers)


def test_names_of_this_process_alone_need_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NETWORKS.registered, "of_a_notebook", SmallCNN)
    with pytest.raises(
        ConfigError, match="expected 1, as only this process knows network of_a_notebook, found 2"
    ):
        run_local(tiny(net="of_a_notebook"), tmp_path / "run", sites=SITES, workers=2)
    assert not (tmp_path / "run").exists()


def test_a_site_goes_where_it_is_held_and_no_process_holds_all() -> None:
    workers = Workers.__new__(Workers)
    workers._workers = [SimpleNamespace(held=held) for held in (["a", "b"], ["c"], [])]
    assert [workers._choose(["a", "c", "d"], place) for place in range(3)] == ["a", "c", "d"]
    assert workers._choose(["b", "c"], 2) == "b"


@pytest.mark.parametrize(
    ("device", "code", "said"), [("cpu", 0, "Works on: cpu"), ("cuda:99", 1, "field device")]
)
def test_the_doctor_says_where_a_site_works(
    device: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files_with_a_fault(tmp_path / "files")
    file = folder / "site-1.yaml"
    file.write_text(f"kind: npz\nfile: images.npz\n{LABELS}\ndevice: {device}\n")
    assert main(["doctor", str(file), "--image-size", "16", "--out", str(tmp_path)]) == code
    assert said in capsys.readouterr().out
