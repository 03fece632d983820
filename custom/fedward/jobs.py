"""The jobs this package ships: one row each. ``fedward jobs`` exports them to ``jobs/``."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.errors import ConfigError, did_you_mean, reason_of
from fedward.label_kinds import SEVERAL_LABELS
from fedward.registry import METHODS
from fedward.yaml_text import read_yaml

SETTING_HELP = "change a setting, such as rounds=5 or data.image_size=64; may be repeated. docs/api.md lists all"
"""Help of the commands' ``--set``."""

_SYNTHETIC = {
    "rounds": 8,
    "participants": None,
    "images_per_round": 640,
    "batch": 16,
    "learning_rate": 2e-3,
}
"""Few rounds of much local work with a large step: in the simulator a round costs ten process
starts, so that more rounds would make a laptop wait, not learn. The papers' values are the methods'
defaults."""


def _job(
    method: str,
    options: dict[str, Any],
    every: int,
    labelled: float,
    net: str = "small_cnn_gn",
    trainable: str = "all",
    **images: Any,
) -> Experiment:
    return Experiment(
        method=method,
        options=options,
        data=DataSpec(image_size=32),
        net=net,
        trainable=trainable,
        synthetic=SyntheticData(labelled=labelled, images=400, **images),
        evaluate_every=every,
        key_metric="f1_weighted",
    )


def _synthetic(method: str, labelled: float = 0.05, **options: Any) -> Experiment:
    return _job(method, {**_SYNTHETIC, **options}, 1, labelled)


def _isolated(method: str, **options: Any) -> Experiment:
    """Return a job on four sites, of which two have all their labels and two have none, with full
    participation.
    """
    shared = {
        **_SYNTHETIC,
        "rounds": 6,
        "images_per_round": 832,
        "optimizer": "adam",
        "weight_decay": 0.0,
        "warm_up": 2,
    }
    return _job(method, {**shared, **options}, 3, 1.0, sites=4, isolated=True)


def _active(sampler: str) -> Experiment:
    """Return a job on four sites that buy labels in four queries, from a tenth of their images to
    half of them.

    A round is ten epochs, so that a query comes after every ten, as in the paper, with half the
    process starts.
    """
    schedule = {"rounds": 6, "query_every": 1, "steps": 4}
    training = {"local_epochs": 10, "batch": 16, "learning_rate": 2e-3}
    return _job("fedal", {**schedule, "sampler": sampler, **training}, 1, 1.0, sites=4)


def _self_supervised(pretraining_rounds: int) -> Experiment:
    """Return a job on four sites with few labels, whose encoder learns from all images first, or
    not at all.
    """
    rounds = {"rounds": pretraining_rounds + 8, "pretraining_rounds": pretraining_rounds}
    rates = {
        "pretraining_rate": 1e-3,
        "pretraining_warm_up": 1,
        "learning_rate": 1e-3,
        "warm_up": 1,
    }
    training = {"local_epochs": 6, "batch": 16, "queue": 256}
    return _job("selffed", {**rounds, **rates, **training}, 4, 0.2, "masked_swin_32", sites=4)


_CLINICAL_REPLIES = 3
"""With fewer, the mean of a round is one hospital's model, or two of which each knows its own."""

_CLINICAL_CLIP = 100.0
"""Above the gradients of the shipped jobs, whose training it leaves as it is; sites' policies want
some limit.
"""

_TEACHER = {"unlabelled_learning_rate": 1.4e-3, "unlabelled_weight": 1.0}

JOBS: dict[str, Callable[[], Experiment]] = {
    "fedperl": partial(_synthetic, "fedperl", warm_up=3),
    "ssfl": partial(_synthetic, "ssfl"),
    "fedavg": partial(_synthetic, "fedavg"),
    "fedavg_full": partial(
        _synthetic, "fedavg", rounds=16, labelled=1.0, batch=32, images_per_round=1280
    ),
    "isofed": partial(_isolated, "isofed", **_TEACHER),
    "rscfed": partial(_isolated, "rscfed", **_TEACHER),
    "mt_wfedavg": partial(_isolated, "mt_wfedavg", **_TEACHER),
    "wfedavg": partial(_isolated, "wfedavg"),
    "fedprox": partial(_isolated, "fedprox"),
    "fedal": partial(_active, "fedal"),
    "fedal_random": partial(_active, "random"),
    "selffed": partial(_self_supervised, pretraining_rounds=8),
    "selffed_scratch": partial(_self_supervised, pretraining_rounds=0),
    "oneshot": partial(_job, "oneshot", {}, 1, 0.2, trainable="head"),
    "survey": partial(_job, "survey", {}, 1, 0.2),
}
"""What makes each job's experiment, which imports its method and torch.

``fedavg`` learns from the labelled images only, ``fedavg_full`` from all labels: the two bounds of
the others. In a round of ``ssfl`` and ``fedperl`` a site trains 40 steps of 16 labelled images, and
of a weak and a strong view of 16 others; in ``fedavg_full`` 40 steps of 32 labelled images.
``fedavg_full`` has twice their rounds: with eight, of 60 or of 80 steps, it was not shown to be
more accurate than ``ssfl``, and so was no upper bound. ``wfedavg`` is the lower bound of
``isofed``, ``rscfed`` and ``mt_wfedavg``: the sites without labels do nothing. ``fedal_random`` is
the baseline of ``fedal``: the same budget, spent by chance. ``selffed_scratch`` is that of
``selffed``: the same fine-tuning, from random weights. ``oneshot`` makes a head for a random
encoder: on images of your own, choose a pretrained one. ``survey`` trains nothing."""


def site_names(count: int) -> list[str]:
    """Return site-1 ... site-N, FLARE's own default names; raise :class:`ConfigError` for none."""
    if count < 1:
        raise ConfigError(
            "--sites", expected="at least 1 site", found=f"{count}", remedy="Name a number above 0."
        )
    return [f"site-{index}" for index in range(1, count + 1)]


def simulated_sites(experiment: Experiment) -> list[str]:
    """Return the sites a simulation has where nobody says otherwise."""
    return site_names((experiment.synthetic or SyntheticData()).sites)


def is_shipped(job: str) -> bool:
    """Return whether a job is one of the package's, whose data are not the user's, and no JSON
    file.
    """
    return job in JOBS or job in METHODS


def load_experiment(
    job: str,
    changes: Sequence[str] = (),
    clinical: bool = False,
    data: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return a shipped job's experiment, any method's with its defaults, or one from a JSON file,
    changed.

    One that is ``clinical``, and from no file, uses no fewer than three replies and clips
    gradients, unless a change says otherwise.

    A key is a field of the experiment (``net``, ``data.image_size``, ``synthetic.labelled``) or,
    failing that, one of the method's settings (``rounds``). Each change is ``KEY=VALUE``, its value
    YAML. ``data`` has fields of its ``data``, as changes that come before the others. Other classes
    than those of a shipped job are of another data set: without a name of its own it is called
    ``images``. Where images have several labels, a shipped job chooses the best round by another
    metric, unless a change says otherwise.
    """
    known = {f"data.{key}": value for key, value in (data or {}).items()}
    changed = known | dict(map(key_and_value, changes))
    if is_shipped(job) and "data.classes" in changed:
        changed.setdefault("data.name", "images")
    if is_shipped(job) and changed.get("data.multi_label") is True:
        changed.setdefault("key_metric", SEVERAL_LABELS.key_metric)
    return changed_experiment(job, changed, clinical)


def changed_experiment(job: str, changes: Mapping[str, Any], clinical: bool = False) -> Experiment:
    """Return the same, with changes as key -> value."""
    raw = _base(job).model_dump(mode="json")
    if clinical and is_shipped(job):
        raw["minimum_replies"] = _CLINICAL_REPLIES
        settings = METHODS[raw["method"]].settings_type(**raw["options"])
        if settings.step_sizes and settings.clip_gradient is None:
            raw["options"]["clip_gradient"] = _CLINICAL_CLIP
    for key, value in changes.items():
        _set(raw, key, value)
    return Experiment.parse(raw, f"job {job}")


def _base(job: str) -> Experiment:
    if job in JOBS:
        return JOBS[job]()
    if job in METHODS:
        return Experiment(method=job)
    try:
        raw = json.loads(Path(job).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        expected = f"{', '.join(JOBS)}, a method or a JSON file"
        remedy = "Name one of them."
        found = f"{reason_of(error)}{did_you_mean(job, [*JOBS, *METHODS.names()])}"
        raise ConfigError(f"job {job}", expected=expected, found=found, remedy=remedy) from error
    return Experiment.parse(raw, f"job {job}")


def key_and_value(change: str) -> tuple[str, Any]:
    """Return the key and the value of ``KEY=VALUE``; raise ConfigError where it is none."""
    key, equals, value = change.partition("=")
    if not (key and equals):
        raise ConfigError(
            "--set", expected="KEY=VALUE", found=change, remedy="Write for example --set rounds=5."
        )
    try:
        return key, read_yaml(value)
    except ValueError as error:
        raise ConfigError(
            f"--set {key}", expected="a value in YAML", found=str(error), remedy="Quote it."
        ) from error


def _set(raw: dict[str, Any], key: str, value: Any) -> None:
    path = key.split(".")
    *parents, last = path if path[0] in Experiment.model_fields else ["options", *path]
    target = raw
    for parent in parents:
        if target.get(parent) is None:
            target[parent] = {}
        target = target[parent]
        if not isinstance(target, dict):
            raise ConfigError(
                "--set",
                expected="a field",
                found=f"{key}: {parent} has none",
                remedy="Name its parent.",
            )
    target[last] = value
