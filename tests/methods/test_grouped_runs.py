"""Whole runs of the methods with two groups: weights, interruptions, and a broken site."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from grouped import assert_same
from torch import Tensor

from fedward.client.client import Client
from fedward.config import Experiment, SyntheticData
from fedward.errors import RunError
from fedward.lab.local import LocalTransport
from fedward.nets import build
from fedward.storage.model_files import SiteModels, StoredState
from running import resume_local, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-6", "site-9"]
"""1 and 9 have all their labels, 2 and 6 have none."""
METHODS = ["isofed", "rscfed", "mt_wfedavg"]


def grouped(method: str, **changes: Any) -> Experiment:
    """Three rounds, the first of them the warm-up."""
    return tiny(
        method,
        **{
            "synthetic": SyntheticData(images=40, labelled=1.0, isolated=True),
            "evaluate_every": 3,
            **changes,
        },
    )


def run(folder: Path, method: str, **changes: Any) -> Path:
    return run_local(grouped(method, **changes), folder, sites=SITES)


def rows(folder: Path, log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{log}.jsonl").read_text().splitlines()]


def weights(folder: Path) -> dict[str, Tensor]:
    return dict(StoredState(folder / "model.safetensors"))


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One undisturbed run of each method."""
    return {method: run(tmp_path_factory.mktemp(method) / "run", method) for method in METHODS}


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let the server die in the exchange whose number, from 1, is put in the list, after so many
    answers.
    """
    plan: list[int] = []
    seen = 0
    whole = LocalTransport.exchange

    def exchange(self: LocalTransport, requests: Any, timeout: int, deliver: Any) -> None:
        nonlocal seen
        seen += 1
        if plan and seen == plan[0]:
            whole(
                self,
                {name: requests[name] for name in sorted(requests)[: plan[1]]},
                timeout,
                deliver,
            )
            raise KeyboardInterrupt
        whole(self, requests, timeout, deliver)

    monkeypatch.setattr(LocalTransport, "exchange", exchange)
    return plan


@pytest.mark.parametrize("method", METHODS)
def test_a_run_ends_and_says_who_did_what(method: str, straight: dict[str, Path]) -> None:
    folder = straight[method]
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    rounds = rows(folder, "rounds")
    parts = {"isofed": 2, "rscfed": 3, "mt_wfedavg": 1}[method]
    assert [(row["round"], row["part"]) for row in rounds] == [
        (1, 0),
        *((round_, part) for round_ in (2, 3) for part in range(parts)),
    ]
    assert set(rounds[0]["failed"]) == {"site-2", "site-6"}
    assert "0 labelled" in rounds[0]["failed"]["site-2"]
    assert all(row["replied"] == row["asked"] and not row["failed"] for row in rounds[1:])
    assert all(torch.isfinite(value).all() for value in weights(folder).values())


@pytest.mark.parametrize("method", METHODS)
def test_a_group_is_trained_by_its_own_losses_alone(method: str, straight: dict[str, Path]) -> None:
    names = {
        (row["round"], row["site"], row["name"])
        for row in rows(straight[method], "metrics")
        if row["split"] == "train" and row["name"].startswith("loss_")
    }
    adapted = {"loss_information"} if method == "isofed" else set()
    for site in SITES:
        own = "loss_supervised" if site in ("site-1", "site-9") else "loss_consistency"
        for round_ in (2, 3):
            seen = {name for when, where, name in names if (when, where) == (round_, site)}
            assert seen == {own} | adapted or (method == "rscfed" and not seen)
        assert {name for when, where, name in names if (when, where) == (1, site)} == {own} - {
            "loss_consistency"
        }


@pytest.mark.parametrize("method", METHODS)
def test_equal_seeds_give_equal_weights_and_other_seeds_others(
    method: str, straight: dict[str, Path], tmp_path: Path
) -> None:
    again = run(tmp_path / "again", method)
    other = run(tmp_path / "other", method, seed=4)
    assert_same(weights(again), weights(straight[method]))
    assert any(not torch.equal(value, weights(again)[key]) for key, value in weights(other).items())


def test_methods_end_with_models_of_their_own(straight: dict[str, Path]) -> None:
    first, *others = (weights(folder) for folder in straight.values())
    for other in others:
        assert any(not torch.equal(first[key], other[key]) for key in first)


def test_only_rscfeds_unlabelled_sites_remember(straight: dict[str, Path]) -> None:
    for method, folder in straight.items():
        remembering_sites = {
            path.parents[2].name for path in (folder / "sites").glob("*/memory/*/*.safetensors")
        }
        assert remembering_sites == ({"site-2", "site-6"} if method == "rscfed" else set())


def test_the_log_of_groups_makes_the_last_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's model is the sum of its sites' last models by the weights it logged."""
    monkeypatch.setattr(SiteModels, "clear", lambda self: None)
    folder = run_local(grouped("isofed"), tmp_path / "run", sites=SITES)
    last = rows(folder, "groups")[-1]
    assert (last["round"], last["part"], last["group"], last["sites"]) == (
        3,
        1,
        "labelled",
        ["site-1", "site-9"],
    )
    states = [StoredState(folder / "models" / site / "00003.safetensors") for site in last["sites"]]
    for key, value in weights(folder).items():
        mean = sum(
            weight * state[key].double()
            for weight, state in zip(last["weights"], states, strict=True)
        )
        torch.testing.assert_close(value, torch.as_tensor(mean).float(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("answered", [1, 2])
@pytest.mark.parametrize("number", [2, 3])
def test_isofed_killed_in_half_a_round_resumes_bit_identically(
    number: int, answered: int, straight: dict[str, Path], exchanges: list[int], tmp_path: Path
) -> None:
    """Exchange 2 asks the unlabelled sites, 3 the labelled ones, both of round 2."""
    exchanges += [number, answered]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", "isofed")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    assert [row["round"] for row in rows(tmp_path / "run", "rounds")] == [1]
    resumed = resume_local(tmp_path / "run")
    assert_same(weights(resumed), weights(straight["isofed"]))
    for log in ("rounds", "groups", "bytes"):
        kept = [
            [{**row, "seconds": 0} for row in rows(folder, log)]
            for folder in (resumed, straight["isofed"])
        ]
        assert kept[0] == kept[1]


@pytest.mark.parametrize(("method", "number"), [("mt_wfedavg", 3), ("rscfed", 4), ("rscfed", 6)])
def test_baselines_killed_in_a_round_resume_bit_identically(
    method: str, number: int, straight: dict[str, Path], exchanges: list[int], tmp_path: Path
) -> None:
    """RSCFed in the third pass of round 2 and in the second of round 3, after all answers."""
    exchanges += [number, 4]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", method)
    assert_same(weights(resume_local(tmp_path / "run")), weights(straight[method]))


@pytest.mark.parametrize(
    ("task", "broken", "part"), [("unsupervised", "site-6", 0), ("supervised", "site-9", 1)]
)
def test_a_run_ends_naming_the_site_that_broke_in_one_half(
    task: str,
    broken: str,
    part: int,
    straight: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    whole = Client._work

    def work(self: Client, asked: Any, request: Any, aborted: Any) -> Any:
        if self.name == broken and asked.task == task and asked.round == 2:
            raise MemoryError("no room")
        return whole(self, asked, request, aborted)

    monkeypatch.setattr(Client, "_work", work)
    folder = run(tmp_path / "run", "isofed")
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    for row in rows(folder, "rounds")[1:]:
        if (row["round"], row["part"]) == (2, part):
            assert broken not in row["replied"]
            assert len(row["replied"]) == 1
            assert "MemoryError" in row["failed"][broken]
            assert "no room" not in row["failed"][broken], "what a site's error says stays there"
        else:
            assert not row["failed"]
            assert len(row["replied"]) == 2
    (alone,) = (row for row in rows(folder, "groups") if (row["round"], row["part"]) == (2, part))
    assert alone["weights"] == [1.0]
    changed = any(
        not torch.equal(value, weights(straight["isofed"])[key])
        for key, value in weights(folder).items()
    )
    assert changed


def test_below_the_minimum_of_labelled_replies_the_model_stays(tmp_path: Path) -> None:
    """One labelled site, and two replies needed: the two unlabelled ones never make a model."""
    experiment = grouped("isofed", minimum_replies=2, options={"rounds": 2})
    folder = tmp_path / "run"
    with pytest.raises(
        RunError, match="a model that some round changed, found the one it began with"
    ):
        run_local(experiment, folder, sites=["site-1", "site-2", "site-6"])
    found = {
        (row["round"], row["part"]): (row["replied"], row["failed"])
        for row in rows(folder, "rounds")
    }
    assert found[2, 0][0] == ["site-2", "site-6"]
    assert found[2, 1] == ([], {"site-1": "not used: minimum_replies is 2, came 1"})
    assert_same(weights(folder), build("small_cnn", 8, 3, seed=3).state_dict())


def test_too_few_unlabelled_replies_leave_the_global_start(tmp_path: Path) -> None:
    """With one unlabelled site and two replies needed, that site's model changes nothing."""
    sites = ["site-1", "site-2", "site-9"]
    folders = []
    for name, weight in (("one", 0.02), ("other", 5.0)):
        experiment = grouped("isofed", minimum_replies=2, options={"unlabelled_weight": weight})
        folders.append(run_local(experiment, tmp_path / name, sites=sites))
    assert_same(weights(folders[0]), weights(folders[1]))
    assert [row["group"] for row in rows(folders[0], "groups")] == ["labelled"] * 3


def test_a_federation_without_labels_fails_and_names_its_sites(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"sites site-2, site-6: .*no site has labels"):
        run_local(grouped("isofed"), tmp_path / "run", sites=["site-2", "site-6"])
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["status"] == "failed"
    assert "site-2, site-6" in info["summary"]["reason"]
