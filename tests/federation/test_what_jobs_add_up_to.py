"""What a lead can compute from jobs that every site's default policy allows: gaps that are known and named."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hospital import hospital
from torch import Tensor

from fedward.config import Experiment
from fedward.federation.initial import initial_model
from fedward.federation.local import run_local
from fedward.federation.policy import refused_by_default
from fedward.federation.store import StoredState
from tiny import clinical

SITES = ("site-1", "site-2", "site-3", "site-4")


def result(experiment: Experiment, folder: Path, sites: Sequence[str]) -> Mapping[str, Tensor]:
    """Return what the lead gets: the last model of a run."""
    run_local(experiment, folder / "-".join(sites), sites=sites)
    return StoredState(folder / "-".join(sites) / "model.safetensors")


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float((one[key].double() - other[key].double()).square().sum()) for key in one))


@pytest.mark.proves(
    "attacks",
    "a lead sends one job twice, the second time without one hospital, and subtracts the results",
    "**not covered**: equal runs give equal updates, so the difference is that hospital's update; "
    "only noise bounds what it tells",
)
def test_two_jobs_that_differ_in_one_hospital_give_away_its_model(tmp_path):
    experiment = hospital(options={"rounds": 1})
    assert refused_by_default(experiment, SITES[:3]) == refused_by_default(experiment, SITES) == []
    all_, others = result(experiment, tmp_path, SITES), result(experiment, tmp_path, SITES[:3])
    computed = {key: 4 * all_[key].double() - 3 * others[key].double() for key in all_}
    alone = result(experiment.model_copy(update={"minimum_replies": 1}), tmp_path, SITES[3:])
    update = distance(alone, initial_model(experiment, None)[0])
    assert distance(computed, alone) < 1e-4 * update


@pytest.mark.proves(
    "attacks",
    "a lead's job weighs sites so that the mean is one hospital's model: a huge distance_scale, a beta near 0",
    "refused by each site: lone_peers. **Not covered**: published weights, where few and small hospitals differ much, "
    "and a hospital that joins selffed late",
)
@pytest.mark.parametrize(
    ("method", "options", "told"),
    [
        ("wfedavg", {"distance_scale": 1e9}, "distance_scale = 1e+09"),
        ("isofed", {"distance_scale": 101}, "distance_scale = 101"),
        ("rscfed", {"unlabelled_distance_scale": 1e9}, "unlabelled_distance_scale = 1e+09"),
        ("rscfed", {"labelled_factor": 1e9}, "labelled_factor = 1e+09"),
        ("selffed", {"beta": 1e-9}, "beta = 1e-09"),
    ],
)
def test_weights_by_which_one_hospital_counts_alone_are_refused(method, options, told):
    (broken,) = refused_by_default(clinical(method, options=options), SITES)
    assert (broken.rule, broken.asked) == ("lone_peers", f"the job says {told}")
    assert refused_by_default(clinical(method), SITES) == []


def test_a_huge_distance_scale_gives_back_one_hospitals_model(tmp_path):
    """What the rule is for."""
    experiment = hospital("wfedavg", options={"rounds": 1, "distance_scale": 1e9})
    mean = result(experiment, tmp_path, SITES[:3])
    single = experiment.model_copy(update={"minimum_replies": 1})
    assert min(distance(mean, result(single, tmp_path, [site])) for site in SITES[:3]) < 1e-5
