"""What a lead can compute from jobs that every default policy allows: known and named gaps."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from torch import Tensor

from broken_rules import refused_by_default
from fedward.config import Experiment
from fedward.methods.weight_limits import effective_number
from fedward.storage.model_files import StoredState
from hospital import hospital
from run_files import rows
from running import run_local
from starting import initial_model

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ("site-1", "site-2", "site-3", "site-4")


def result(experiment: Experiment, folder: Path, sites: Sequence[str]) -> Mapping[str, Tensor]:
    """Return what the lead gets: the last model of a run."""
    run_local(experiment, folder / "-".join(sites), sites=sites)
    return StoredState(folder / "-".join(sites) / "model.safetensors")


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    return math.sqrt(
        sum(float((one[key].double() - other[key].double()).square().sum()) for key in one)
    )


@pytest.mark.proves(
    "lead",
    "one job twice, the second time without one hospital",
    "**not covered**: the difference is that hospital's update; only noise limits it",
)
def test_two_jobs_differing_in_one_hospital_reveal_its_model(tmp_path):
    experiment = hospital(options={"rounds": 1})
    assert refused_by_default(experiment, SITES[:3]) == refused_by_default(experiment, SITES) == []
    all_ = result(experiment, tmp_path, SITES)
    others = result(experiment, tmp_path, SITES[:3])
    computed = {key: 4 * all_[key].double() - 3 * others[key].double() for key in all_}
    alone = result(experiment.model_copy(update={"minimum_replies": 1}), tmp_path, SITES[3:])
    update = distance(alone, initial_model(experiment)[0])
    assert distance(computed, alone) < 1e-4 * update


@pytest.mark.proves(
    "lead",
    "sizes, distances or participations by which one or two sites are the average",
    "levelled: no site has more than half of a mean of three, which is worth two and "
    "a half equal ones; fewer replies are refused",
)
def test_a_huge_distance_scale_gives_back_no_hospitals_model(tmp_path):
    experiment = hospital("wfedavg", options={"rounds": 1, "distance_scale": 1e9})
    single = experiment.model_copy(update={"minimum_replies": 1})
    models = [result(single, tmp_path / "single", [site]) for site in SITES[:3]]
    capped = result(experiment, tmp_path / "capped", SITES[:3])
    assert min(distance(capped, model) for model in models) > 0.1 * distance(models[0], models[1])
    lone = hospital("wfedavg", options={"rounds": 1, "distance_scale": 1e9, "largest_share": 1})
    mean = result(lone.model_copy(update={"minimum_replies": 1}), tmp_path / "lone", SITES[:3])
    assert min(distance(mean, model) for model in models) < 1e-5
    (broken,) = refused_by_default(lone, SITES)
    assert str(broken) == "maximum_share: at most 0.5, the job says 1.0"


def subtracted(
    mean: Mapping[str, Tensor], own_model: Mapping[str, Tensor], weight: float
) -> dict[str, Tensor]:
    """What one site's hospital knows of the others: the mean without its own part."""
    return {
        key: (mean[key].double() - weight * own_model[key].double()) / (1 - weight) for key in mean
    }


@pytest.mark.proves(
    "lead",
    "sizes, distances or participations by which one or two sites are the average",
    "levelled: no site has more than half of a mean of three, which is worth two and "
    "a half equal ones; fewer replies are refused",
)
def test_a_distance_scale_empties_no_average(tmp_path):
    """Without levelled weights, 2e-5 of the third model separate the result from the victim's."""
    scaled = {"rounds": 1, "distance_scale": 4e5}
    attack = hospital("wfedavg", options=scaled)
    unlimited = attack.model_copy(update={"minimum_replies": 1})
    models = [result(unlimited, tmp_path / "single", [site]) for site in SITES[:3]]
    between = distance(models[1], models[2])

    def result_of(experiment: Experiment, name: str) -> tuple[list[float], float]:
        """Return the weights, and the third model's share of the result without the lead's."""
        mean = result(experiment, tmp_path / name, SITES[:3])
        (row,) = rows(tmp_path / name / "-".join(SITES[:3]), "groups")
        lead, third, victim = row["weights"]
        assert third < min(lead, victim)
        return row["weights"], distance(subtracted(mean, models[0], lead), models[2]) / between

    weights, error = result_of(unlimited, "unlimited")
    assert weights == pytest.approx([0.5, 0.0, 0.5], abs=1e-5)
    assert error < 1e-4
    weights, error = result_of(attack, "levelled")
    assert weights == pytest.approx([0.4387, 0.1225, 0.4387], abs=1e-3)
    assert effective_number(weights) == pytest.approx(2.5, rel=1e-9)
    assert error == pytest.approx(weights[1] / (weights[1] + weights[2]), rel=1e-3)
    assert error > 0.21
    assert [str(finding) for finding in refused_by_default(unlimited, SITES)] == [
        "minimum_replies: at least 3, the job says 1",
    ]
