"""Which round's model a run keeps as its best, and that its report describes that one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedward.config import SyntheticData
from fedward.evaluation.selection import best_global
from fedward.lab import simulation
from fedward.lab.local import LocalTransport, Sites
from fedward.protocol.wire import Message
from fedward.runs.choices import Choices
from fedward.runs.run import Run
from fedward.storage.info import Summary
from running import run_experiment
from tiny import tiny

SITES = ["site-1", "site-2", "site-6", "site-9"]
Find = Callable[[str, int], float | str | None]
"""Site, round -> the value it finds; None where it evaluates nothing; "not heard" where its answer
is lost.
"""


class Judging(LocalTransport):
    """Lets a test say what a site finds in a round."""

    def __init__(self, experiment: Any, folder: Path, find: Find) -> None:
        super().__init__(Sites(experiment, folder), SITES)
        self._find = find

    def exchange(self, requests: Any, timeout: int, deliver: Any) -> None:
        def change(site: str, answer: Message) -> None:
            accuracy = self._find(site, requests[site].meta["round"] - 1)
            if accuracy == "not heard":
                return
            for row in answer.meta["metrics"]:
                if row["name"] == "accuracy":
                    row["value"] = accuracy
            deliver(site, answer)

        super().exchange(requests, timeout, change)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, find: Find) -> Run:
    monkeypatch.setattr(simulation, "write_report", lambda path: None)
    labels = SyntheticData(images=40, labelled=1.0, isolated=True)
    experiment = tiny("isofed", key_metric="accuracy", synthetic=labels)
    run_experiment(experiment, folder / "run", Judging(experiment, folder / "cache", find))
    return Run.load(folder / "run")


def half_unlabelled(site: str, round_: int) -> float | None:
    """Two sites of four have no labelled validation images."""
    return None if site in ("site-2", "site-6") else 0.2 + 0.1 * (round_ == 2)


def one_hears_late(site: str, round_: int) -> float | str | None:
    """The best round is evaluated by two sites of four."""
    if site in ("site-2", "site-6") and round_ == 1:
        return "not heard"
    return 0.9 if round_ == 1 else 0.3 + 0.1 * round_


def nobody(site: str, round_: int) -> None:
    return None


def equal_but_for_rounding(site: str, round_: int) -> float:
    return 0.3 if round_ else 0.1 + 0.2


@pytest.mark.parametrize(
    ("find", "expected"),
    [(half_unlabelled, 2), (one_hears_late, 3), (equal_but_for_rounding, 3), (nobody, None)],
)
def test_the_report_describes_the_round_whose_model_is_kept(
    find: Find,
    expected: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finished = run(tmp_path, monkeypatch, find)
    assert (finished.folder / "best.safetensors").exists() is (expected is not None)
    assert finished.info.summary.best_round == expected
    assert Choices.of(finished, "accuracy").shared.round == expected
    assert best_global(finished.metrics, "accuracy", finished.info.sites).round == expected, (
        "one rule, of rows or while it runs"
    )
    if expected is not None:
        assert json.loads((finished.folder / "best.json").read_text())["round"] == expected


@pytest.mark.proves(
    "site",
    "false metrics from one of four sites, to choose the best round",
    "**not covered**: one of few sites can. metrics.jsonl has every site's values, "
    "and the last model does not depend on them",
)
def test_one_of_few_sites_can_choose_the_best_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(site: str, round_: int) -> float:
        return float(round_ == 1) if site == "site-6" else 0.5 + 0.1 * round_

    finished = run(tmp_path, monkeypatch, find)
    assert finished.info.summary.best_round == 1
    honest = best_global([row for row in finished.metrics if row.site != "site-6"], "accuracy")
    assert honest.round == 3


def test_a_finished_runs_report_believes_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows may point elsewhere afterwards, e.g. where a site joined late.

    The file still holds the model that was chosen.
    """
    finished = run(tmp_path, monkeypatch, half_unlabelled)
    summary = finished.info.summary.model_copy(update={"best_round": 1})
    moved = replace(finished, info=finished.info.model_copy(update={"summary": summary}))
    untold = replace(finished, info=finished.info.model_copy(update={"summary": Summary()}))
    assert Choices.of(moved, "accuracy").shared.round == 1
    assert Choices.of(untold, "accuracy").shared.round == 2
    assert (
        Choices.of(moved, "f1_macro").shared.round
        == best_global(finished.metrics, "f1_macro", SITES).round
    )
