"""A search over what a job may say, for settings by which a round's update explains a few images.

    python tests/leak_search.py --seed 1 --jobs 200 | sort -r

It draws jobs, drops those that the default policy of a site refuses, and measures the rest
(:mod:`leaking`). Settings are drawn up to and beyond the policy's limits. Every other job is one of
the worst so far with some settings drawn again.
"""

import argparse
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from broken_rules import refused_by_default
from fedward.errors import ConfigError
from fedward.security.policy import Policy
from leaking import Explained, RefusedError, attacked, explained

METHODS = {
    "fedavg": "train",
    "ssfl": "train",
    "fedperl": "train",
    "fedprox": "supervised",
    "wfedavg": "supervised",
    "mt_wfedavg": "supervised",
    "isofed": "supervised",
    "fedal": "train",
}
"""Method -> the task of a site with labels.

A site without labels has ``unsupervised`` where there is such a task."""

_FIRST = 20
"""Number of jobs that are drawn before any is changed."""

_PARENTS = 8
"""Number of the worst jobs so far that may be changed."""


def draw(chance: random.Random) -> dict[str, Any]:
    """Return arguments of :func:`leaking.attacked`, and ``task`` and ``round_`` of the request."""

    def log(low: float, high: float) -> float:
        return 10 ** chance.uniform(low, high)

    method = chance.choice(list(METHODS))
    options: dict[str, Any] = {
        "optimizer": chance.choice(["sgd", "sgd", "adam"]),
        "momentum": chance.choice([0.0, 0.5, 0.9, 0.99]),
        "learning_rate": log(-6, 0),
        "weight_decay": chance.choice([0.0, log(-4, 4)]),
        "clip_gradient": log(-4, 2),
        "schedule": "constant",
        "round_warm_up": chance.choice([0.0, 0.2, 1.0]),
        "images_at_most": chance.choice([32, 33, 34, 39, 47, 64]),
        "batch": chance.choice([8, 8, 8, 9, 11]),
        "class_weighting": chance.choice(["none", "none", "median_frequency"]),
    }
    if method == "fedprox":
        options["proximal_weight"] = log(-3, 6)
    if method in ("ssfl", "fedperl"):
        options |= {
            "threshold": chance.choice([0.0, 0.13, 0.14, 0.2, 0.6]),
            "unlabelled_weight": log(-3, 0.3),
        }
    if method in ("mt_wfedavg", "isofed"):
        options |= {
            "unlabelled_weight": log(-3, 0.3),
            "temperature": log(-3, 1),
            "ema_decay": chance.random(),
        }
        options["unlabelled_learning_rate"] = log(-6, 0)
    if method == "isofed":
        options["adaptation_rate"] = log(-3, 3)
    if method == "fedal":
        options |= {"initial_fraction": 0.0, "sampler": "random", "target_fraction": 1.0}
    unlabelled_tasks = {"ssfl": "train", "mt_wfedavg": "unsupervised", "isofed": "unsupervised"}
    unlabelled_site = chance.random() < 0.3 and method in unlabelled_tasks
    return {
        "method": method,
        "options": options,
        "trainable": chance.choice(["all", "all", "head", "last:1"]),
        "unlabelled_site": unlabelled_site,
        "task": unlabelled_tasks[method] if unlabelled_site else METHODS[method],
        "round_": chance.choice([1, 2, 3]),
    }


def crossed(one: dict[str, Any], other: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return a job with some settings of another, which are those that its method has."""
    options = {}
    for name, value in one["options"].items():
        options[name] = value
        if chance.random() < 0.3:
            options[name] = other["options"].get(name, value)
    return {**one, "options": options}


def measured(job: dict[str, Any], policy: Policy) -> Explained:
    """Return how well images explain a drawn job's update; raises RefusedError, ConfigError."""
    changes = {key: value for key, value in job.items() if key not in ("task", "round_")}
    experiment = attacked(**changes)
    broken = refused_by_default(experiment)
    if broken:
        raise RefusedError("; ".join(map(str, broken)))
    with tempfile.TemporaryDirectory() as folder:
        return explained(experiment, Path(folder), policy, round_=job["round_"], task=job["task"])


def search(seed: int, jobs: int, policy: Policy) -> Iterator[tuple[Explained, dict[str, Any]]]:
    """Yield drawn jobs that a site trains, each with how well images explain its update.

    Args:
        seed: of the draws.
        jobs: number of jobs to yield.
        policy: the site's.
    """
    chance = random.Random(seed)
    measured_jobs: list[tuple[float, dict[str, Any]]] = []
    while len(measured_jobs) < jobs:
        job = draw(chance)
        if len(measured_jobs) % 2 and len(measured_jobs) > _FIRST:
            best = sorted(measured_jobs, key=lambda pair: -pair[0])[:_PARENTS]
            job = crossed(chance.choice(best)[1], job, chance)
        try:
            result = measured(job, policy)
        except (RefusedError, ConfigError):
            continue
        measured_jobs.append((result.excess, job))
        yield result, job


def main() -> None:
    """Print each job as it is measured: how far its own images stand out, and what it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=100)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for result, job in search(chosen.seed, chosen.jobs, Policy(draws="seed")):
        print(
            f"{result.excess:.3f} own {result.own:.3f} others {result.others:.3f} {job}", flush=True
        )


if __name__ == "__main__":
    main()
