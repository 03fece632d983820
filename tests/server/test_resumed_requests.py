"""A resumed run may have to ask otherwise: sites that had answered sit that exchange out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedward.config import Experiment
from fedward.lab.local import LocalTransport, Sites
from fedward.operation.audit_check import verify
from fedward.protocol.wire import Message
from isolated import SITES, isolated, write_sites
from run_files import rows
from running import run_experiment

pytestmark = pytest.mark.usefixtures("without_report")

REFUSED = "expected the model of the request that this site has answered"


def run(
    experiment: Experiment,
    folder: Path,
    late: tuple[int, str] = (0, ""),
    dies: tuple[int, int] = (0, 0),
) -> Path:
    """Run or resume.

    In the round of ``late`` one site's answer comes too late. After ``dies`` the server is killed.
    """
    files = folder / "files"
    site_folders = [files if files.exists() else write_sites(files)]
    transport = LocalTransport(Sites(experiment, folder / "sites", site_folders), SITES)
    whole = transport.exchange

    def exchange(
        requests: dict[str, Message], timeout: int, deliver: Callable[[str, Message], None]
    ) -> None:
        meta = next(iter(requests.values())).meta

        def in_time(site: str, answer: Message) -> None:
            if (meta["round"], site) != late:
                deliver(site, answer)

        whole(requests, timeout, in_time)
        if (meta["round"], meta["part"]) == dies:
            raise KeyboardInterrupt

    transport.exchange = exchange  # type: ignore[method-assign]
    started = folder / "run"
    try:
        run_experiment(experiment, started, transport, resume=(started / "run.json").exists())
    except KeyboardInterrupt:
        assert dies != (0, 0)
    return started


def exchanges(folder: Path) -> dict[tuple[int, int], dict[str, Any]]:
    return {(row["round"], row["part"]): row for row in rows(folder, "rounds")}


def test_a_later_part_of_a_round_whose_model_differs_is_sat_out(tmp_path):
    """IsoFed's labelled site has trained from the mean of one unlabelled site.

    After the kill there are two.
    """
    experiment = isolated("isofed")
    run(experiment, tmp_path, late=(2, "site-2"), dies=(2, 1))
    folder = run(experiment, tmp_path)
    by_exchange = exchanges(folder)
    assert by_exchange[2, 0]["replied"] == ["site-2", "site-3"]
    assert REFUSED in by_exchange[2, 1]["failed"]["site-1"]
    for round_ in (3, 4):
        assert by_exchange[round_, 0]["replied"] == ["site-2", "site-3"]
        assert by_exchange[round_, 1]["replied"] == ["site-1"]
    assert verify(folder, sorted(tmp_path.glob("sites/*/answers/*.jsonl"))).later == 0


def test_sites_sit_out_a_repeated_round_of_another_model(tmp_path):
    experiment = isolated("mt_wfedavg")
    run(experiment, tmp_path, late=(2, "site-2"), dies=(3, 0))
    state = tmp_path / "run" / "rounds" / "00002" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"\x07")
    folder = run(experiment, tmp_path)
    by_exchange = exchanges(folder)
    assert by_exchange[2, 0]["replied"] == SITES
    assert set(by_exchange[3, 0]["failed"]) == set(SITES)
    assert all(REFUSED in reason for reason in by_exchange[3, 0]["failed"].values())
    assert by_exchange[4, 0]["replied"] == SITES
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    assert verify(folder, sorted(tmp_path.glob("sites/*/answers/*.jsonl")))
