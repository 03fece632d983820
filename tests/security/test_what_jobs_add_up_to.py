"""What a lead can compute from jobs that every site's default policy allows: gaps that are known and named."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from torch import Tensor

from fedward.config import Experiment
from fedward.local import run_local
from fedward.security.policy import refused_by_default
from fedward.storage.checkpoint import StoredState
from fedward.storage.initial import initial_model
from hospital import hospital

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ("site-1", "site-2", "site-3", "site-4")


def result(experiment: Experiment, folder: Path, sites: Sequence[str]) -> Mapping[str, Tensor]:
    """Return what the lead gets: the last model of a run."""
    run_local(experiment, folder / "-".join(sites), sites=sites)
    return StoredState(folder / "-".join(sites) / "model.safetensors")


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float((one[key].double() - other[key].double()).square().sum()) for key in one))


@pytest.mark.proves(
    "lead",
    "a lead sends one job twice, the second time without one hospital, and subtracts the results",
    "**not covered**: equal runs give equal updates, so the difference is that hospital's update; "
    "only noise bounds what it tells",
)
def test_two_jobs_differing_in_one_hospital_reveal_its_model(tmp_path):
    experiment = hospital(options={"rounds": 1})
    assert refused_by_default(experiment, SITES[:3]) == refused_by_default(experiment, SITES) == []
    all_, others = result(experiment, tmp_path, SITES), result(experiment, tmp_path, SITES[:3])
    computed = {key: 4 * all_[key].double() - 3 * others[key].double() for key in all_}
    alone = result(experiment.model_copy(update={"minimum_replies": 1}), tmp_path, SITES[3:])
    update = distance(alone, initial_model(experiment, None)[0])
    assert distance(computed, alone) < 1e-4 * update


@pytest.mark.proves(
    "lead",
    "a lead's job weights sites by distance so that the mean is one hospital's model",
    "no site counts for more than half of a mean of three, and each site refuses a larger `largest_share`",
)
def test_a_huge_distance_scale_gives_back_no_hospitals_model(tmp_path):
    experiment = hospital("wfedavg", options={"rounds": 1, "distance_scale": 1e9})
    single = experiment.model_copy(update={"minimum_replies": 1})
    models = [result(single, tmp_path / "single", [site]) for site in SITES[:3]]
    capped = result(experiment, tmp_path / "capped", SITES[:3])
    assert min(distance(capped, model) for model in models) > 0.1 * distance(models[0], models[1])
    lone = hospital("wfedavg", options={"rounds": 1, "distance_scale": 1e9, "largest_share": 1})
    mean = result(lone, tmp_path / "lone", SITES[:3])
    assert min(distance(mean, model) for model in models) < 1e-5
    (broken,) = refused_by_default(lone, SITES)
    assert str(broken) == "maximum_share: at most 0.5, the job says 1.0"
