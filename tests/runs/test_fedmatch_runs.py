"""Whole runs of FedMatch, and what a site's policy says about its helpers."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fedward
from broken_rules import refused_by_default
from fedward.config import Experiment
from interrupted import interrupted
from run_files import assert_equal, rows, weights
from running import resume_local, run_local
from tiny import clinical, tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-6", "site-9"]
OPTIONS = {"participants": None, "optimizer": "adam", "unlabelled_weight": 0.5, "l2_weight": 0.02}


def fedmatch(**options: Any) -> Experiment:
    """Three rounds, of which the second and the third have helpers."""
    return tiny("fedmatch", options={**OPTIONS, **options})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run with anonymous helpers."""
    folder = tmp_path_factory.mktemp("fedmatch") / "run"
    return run_local(fedmatch(anonymise=True), folder, sites=SITES)


def test_sites_have_helpers_once_they_have_trained(run: Path) -> None:
    assert [row["round"] for row in rows(run, "peers")] == [2, 3]
    for row in rows(run, "peers"):
        assert all(len(chosen) == 2 for chosen in row["chosen"].values())
    losses = {
        (row["round"], row["name"])
        for row in rows(run, "metrics")
        if row["split"] == "train" and row["site"] == "site-1"
    }
    assert (1, "loss_consistency") not in losses
    assert {(2, "loss_consistency"), (1, "loss_disjoint"), (1, "loss_supervised")} <= losses


def test_the_model_is_an_ordinary_one_with_psi_beside_it(run: Path) -> None:
    state = weights(run)
    psi = [name for name in state if name.startswith("psi.")]
    assert {name.removeprefix("psi.") for name in psi} == set(state) - set(psi)
    model = fedward.load_model(run)
    torch.testing.assert_close(model(torch.rand(4, 3, 16, 16)).sum(dim=1), torch.ones(4))


def test_a_killed_run_resumes_with_the_same_bits(run: Path, tmp_path: Path) -> None:
    """In a round with helpers, whose answers and models are those of before."""
    interrupted(fedmatch(anonymise=True), tmp_path / "run", SITES, 3, 1)
    resumed = resume_local(tmp_path / "run")
    assert_equal(weights(resumed), weights(run))
    assert rows(resumed, "peers") == rows(run, "peers")


@pytest.mark.proves(
    "lead",
    "a fedmatch job that sends one hospital's own ψ to another",
    "refused by each site's default policy: lone_peers; with anonymise=true two sites or more are "
    "averaged",
)
def test_single_helpers_need_a_policy_that_allows_them() -> None:
    allowed = {"learning_rate": 2e-3, "optimizer": "adam", "l2_weight": 0.02}
    lone = clinical("fedmatch", options=allowed)
    assert [row.name for row in refused_by_default(lone)] == ["lone_peers"]
    anonymous = clinical("fedmatch", options={**allowed, "anonymise": True})
    assert refused_by_default(anonymous) == []
