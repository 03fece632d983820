"""The jobs that this package ships, one row each. ``fedward jobs`` exports them to ``jobs/``."""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.errors import (
    ConfigError,
    UnreadableJsonError,
    did_you_mean,
    option,
    reason_of,
    setting,
)
from fedward.json_text import read_json_file
from fedward.label_kinds import SEVERAL_LABELS
from fedward.methods import settings_of
from fedward.methods.settings import changed as changed_setting
from fedward.paper_jobs import PAPER_JOBS, SUFFIX, PaperJob
from fedward.registry import METHODS
from fedward.yaml_text import read_yaml

SETTING_HELP = (
    "change a setting, such as rounds=5 or data.image_size=64; may be repeated."
    " `fedward settings` lists all"
)
"""Help text of the commands' option ``--set``."""

_SYNTHETIC = {
    "rounds": 8,
    "participants": None,
    "images_per_round": 640,
    "batch": 16,
    "learning_rate": 2e-3,
}
"""Few rounds of much local work with a large step.

The papers' values are the methods' defaults."""

_TWO_COMMUNITIES: Mapping[str, Any] = {"sites": 5, "places": (1, 2, 3, 6, 7)}
"""Three sites of FedPerl's first community, and two of its second."""

_FIVE_ROUNDS = {**_SYNTHETIC, "rounds": 5, "images_per_round": 800}
"""With one thread, as by default, FLARE's simulator starts a process for each site and exchange.

These are 30: five sites in five rounds, and at the end the evaluation of the last model."""


def _job(
    method: str,
    options: dict[str, Any],
    evaluate_every: int,
    labelled: float,
    net: str = "small_cnn_gn",
    trainable: str = "all",
    **synthetic: Any,
) -> Experiment:
    """Return a job on synthetic images. ``synthetic``: more fields of :class:`SyntheticData`."""
    return Experiment(
        method=method,
        options=options,
        data=DataSpec(image_size=32),
        net=net,
        trainable=trainable,
        synthetic=SyntheticData(labelled=labelled, images=400, **synthetic),
        evaluate_every=evaluate_every,
        key_metric="f1_weighted",
    )


def _synthetic(method: str, labelled: float = 0.05, **options: Any) -> Experiment:
    """Return a job on two communities with few labels, which is evaluated in every round."""
    return _job(method, {**_FIVE_ROUNDS, **options}, 1, labelled, **_TWO_COMMUNITIES)


def _server_labels(method: str, **options: Any) -> Experiment:
    """Return a job on two communities without labels and a server that has some.

    Sites take smaller steps than the server, and only from pseudo-labels that are nearly sure. With
    the server's rate, and the threshold of the other jobs, their mean unlearned what it knew.
    """
    learning = {"learning_rate": 2e-4, "server_learning_rate": 2e-3}
    if method != "fedavg":
        learning["threshold"] = 0.9
    settings = {**_SYNTHETIC, "rounds": 5, "images_per_round": 1024, "server_labels": True}
    return _job(method, {**settings, **learning, **options}, 1, 0.0, **_TWO_COMMUNITIES)


def _few_sites(**options: Any) -> Experiment:
    """Return a job of FedPerl on two communities, in each of which one site has all its labels.

    Small steps, and pseudo-labels that are nearly sure, only delay that the sites without labels
    unlearn what the others teach (docs/methods/fedperl.md).
    """
    learning = {"learning_rate": 2e-4, "threshold": 0.98}
    settings = {**_SYNTHETIC, **learning, "warm_up": 3, **options}
    return _job("fedperl", settings, 1, 1.0, labelled_sites=(2, 5), **_TWO_COMMUNITIES)


def _isolated(method: str, **options: Any) -> Experiment:
    """Return a job on four sites that all take part: two have all their labels, two have none."""
    settings = {
        **_SYNTHETIC,
        "rounds": 6,
        "images_per_round": 832,
        "optimizer": "adam",
        "weight_decay": 0.0,
        "warm_up": 2,
    }
    return _job(method, {**settings, **options}, 3, 1.0, sites=4, isolated=True)


def _active(sampler: str) -> Experiment:
    """Return a job on four sites that buy labels in four queries.

    They begin with labels of a tenth of their images, and end with labels of half of them. A round
    is ten epochs, so that ten epochs lie between two queries, as in the paper, with half of the
    process starts.
    """
    schedule = {"rounds": 6, "query_every": 1, "steps": 4}
    training = {"local_epochs": 10, "batch": 16, "learning_rate": 2e-3}
    return _job("fedal", {**schedule, "sampler": sampler, **training}, 1, 1.0, sites=4)


def _self_supervised(pretraining_rounds: int, **options: Any) -> Experiment:
    """Return a job on four sites with few labels, whose encoder may learn from all images first."""
    rounds = {"rounds": pretraining_rounds + 8, "pretraining_rounds": pretraining_rounds}
    rates = {
        "pretraining_rate": 1e-3,
        "pretraining_warm_up": 1,
        "learning_rate": 1e-3,
        "warm_up": 1,
    }
    training = {"local_epochs": 6, "batch": 16, "queue": 256, **options}
    return _job("selffed", {**rounds, **rates, **training}, 4, 0.2, "masked_swin_32", sites=4)


_LABELS_ALONE = {"contrastive": "off", "beta": 1.0}
"""Settings with which SelfFed's second phase is federated averaging, by labels alone."""

_CLINICAL_REPLIES = 3
"""Least replies of a clinical job.

With one reply a round's mean is that hospital's model. With two, each of the hospitals could
compute the other's model from the mean."""

_CLINICAL_CLIP = 100.0
"""Gradient norm at which clinical jobs clip, because sites' policies ask for some limit.

It is above the gradients of the shipped jobs, whose training it does not change."""

_TEACHER = {"unlabelled_learning_rate": 1.4e-3, "unlabelled_weight": 1.0}
"""Settings of sites without labels in the jobs with a mean teacher."""

_PROXIMAL: dict[str, Any] = {"proximal_weight": 0.01}
"""FedProx's term beside FixMatch, with the weight of FedPerl's code."""

_UDA: dict[str, Any] = {
    "pseudo_labels": "soft",
    "threshold": 0.8,
    "temperature": 0.4,
    "unlabelled_weight": 1.0,
    "pseudo_label_mean": "all",
}
"""UDA as its paper has it for CIFAR-10. FedPerl quotes results of UDA and names no value."""

_FEDMATCH: dict[str, Any] = {
    "optimizer": "adam",
    "threshold": 0.6,
    "unlabelled_weight": 0.5,
    "consistency_weight": 0.1,
    "l1_weight": 1e-6,
    "l2_weight": 5e-4,
    "helper_every": 2,
    "anonymise": True,
}
"""Settings of FedMatch for few rounds and Adam.

Adam's steps do not depend on the size of the gradient, so that a strong L2 term alone would decide
where ψ goes."""

JOBS: dict[str, Callable[[], Experiment]] = {
    # FedPerl.
    "fedperl": partial(_synthetic, "fedperl", warm_up=3),
    # As in fedperl, a site trains 50 steps a round, each of 16 labelled images, and of a weak and a
    # strong view of 16 others.
    "ssfl": partial(_synthetic, "ssfl"),
    # The lower bound of both: it learns from the labelled images alone.
    "fedavg": partial(_synthetic, "fedavg"),
    # The upper bound of both: it learns from all labels, in 100 steps of 32 images a round.
    "fedavg_full": partial(_synthetic, "fedavg", labelled=1.0, batch=32, images_per_round=3200),
    # FedMatch as FedPerl's paper compares it, without and with anonymous peers; and by itself.
    "fedmatch_peers": partial(
        _synthetic, "fedperl", warm_up=3, similarity="answers", anonymise=False
    ),
    "fedmatch_plus": partial(_synthetic, "fedperl", warm_up=3, similarity="answers"),
    "fedmatch": partial(_synthetic, "fedmatch", **_FEDMATCH),
    # Baselines of FedPerl's Table 1 besides ssfl: UDA at the sites, and FedProx's term with either.
    "uda": partial(_synthetic, "ssfl", **_UDA),
    "fedprox_uda": partial(_synthetic, "ssfl", **_UDA, **_PROXIMAL),
    "fedprox_fixmatch": partial(_synthetic, "ssfl", **_PROXIMAL),
    # Each site alone, and nothing but metrics leaves it.
    "local_lower": partial(_synthetic, "alone"),
    "local_upper": partial(_synthetic, "alone", labelled=1.0, batch=32, images_per_round=3200),
    "local_fixmatch": partial(_synthetic, "alone", learns_from="all_images"),
    # Labels at the server alone. It trains as long as each site, on 320 labelled images.
    "fedperl_server": partial(_server_labels, "fedperl", warm_up=3),
    "ssfl_server": partial(_server_labels, "ssfl"),
    # The lower bound of both: the server learns, and the sites have nothing to learn from.
    "server_alone": partial(_server_labels, "fedavg"),
    # Labels at two of five sites. Three sites take part in a round, as in the paper, or all do.
    "fedperl_few_sites": partial(_few_sites, participants=3, rounds=6),
    "fedperl_few_sites_all": partial(_few_sites, participants=None, rounds=5),
    # IsoFed.
    "isofed": partial(_isolated, "isofed", **_TEACHER),
    "rscfed": partial(_isolated, "rscfed", **_TEACHER),
    "mt_wfedavg": partial(_isolated, "mt_wfedavg", **_TEACHER),
    "fedirm": partial(_isolated, "fedirm", **_TEACHER, relation_weight=1.0, ramp_up=4),
    # The lower bound of the four above: sites without labels do nothing.
    "wfedavg": partial(_isolated, "wfedavg"),
    "fedprox": partial(_isolated, "fedprox"),
    # FedAL, and its baseline: the same number of labels, for images chosen at random.
    "fedal": partial(_active, "fedal"),
    "fedal_random": partial(_active, "random"),
    # SelfFed, and its baseline: the same network from random weights, trained by labels alone.
    "selffed": partial(_self_supervised, pretraining_rounds=8),
    "selffed_scratch": partial(_self_supervised, pretraining_rounds=0, **_LABELS_ALONE),
    # With three of the four sites in a round, sites differ in how often they took part, so that the
    # gain recession changes the weights.
    "selffed_partial": partial(_self_supervised, pretraining_rounds=8, participants=3),
    # The encoder is a random one here; on images of your own, choose a pretrained one.
    "oneshot": partial(_job, "oneshot", {}, 1, 0.2, trainable="head"),
    "survey": partial(_job, "survey", {}, 1, 0.2),
}
"""Name of a job -> what makes its experiment, which imports the method and torch."""


def site_names(count: int) -> list[str]:
    """Return site-1 ... site-N, FLARE's own default names; ConfigError for fewer than one site."""
    if count < 1:
        raise ConfigError(
            option("sites"), "Name a number above 0.", expected="at least 1 site", found=f"{count}"
        )
    return [f"site-{index}" for index in range(1, count + 1)]


def simulated_sites(experiment: Experiment) -> list[str]:
    """Return the names of a simulation's sites, where none are given."""
    synthetic = experiment.synthetic or SyntheticData()
    return site_names(synthetic.sites)


def paper_job(job: str) -> PaperJob | None:
    """Return the paper's settings that a job such as ``fedperl_paper`` names; None otherwise."""
    if not job.endswith(SUFFIX):
        return None
    return PAPER_JOBS.get(job.removesuffix(SUFFIX))


def is_shipped(job: str) -> bool:
    """Return whether ``job`` names a shipped or a paper's job or a method, not a JSON file."""
    return job in JOBS or job in METHODS or paper_job(job) is not None


def load_experiment(
    job: str,
    changes: Sequence[str] = (),
    clinical: bool = False,
    data: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return the experiment of a job, with changes.

    Classes that differ from a shipped job's belong to another data set, which is called ``images``
    unless a change names it. Where images have several labels, a shipped job chooses the best round
    by another metric, unless a change names one.

    Args:
        job: a shipped job, a paper's, a method, which has its defaults, or a JSON file with an
            experiment.
        changes: texts ``KEY=VALUE``, whose value is YAML. A key is a field of the experiment
            (``net``, ``data.image_size``, ``synthetic.labelled``) or else one of the method's
            settings (``rounds``).
        clinical: whether a shipped job needs at least three replies and clips gradients, unless a
            change says otherwise.
        data: fields of the experiment's ``data``, as changes that come before the others. Those
            that a paper's job sets itself are ignored.

    Raises ConfigError: there is no such job, or a change cannot be made.
    """
    changed = {f"data.{key}": value for key, value in (data or {}).items()}
    of_paper = paper_job(job)
    if of_paper is not None:
        # The size that a paper prints is not that of the files, and its views are not proposed.
        for key in of_paper.all_changes:
            changed.pop(key, None)
    named: dict[str, Any] = {}
    for key, value in map(key_and_value, changes):
        # Later changes win, also where one is of a part of another, so the last place counts.
        named.pop(key, None)
        named[key] = value
        changed.pop(key, None)
    changed |= named
    experiment = changed_experiment(job, with_defaults_of_images(job, changed), clinical)
    refuse_without_effect(experiment, named)
    return experiment


def refuse_without_effect(experiment: Experiment, named: Mapping[str, Any]) -> None:
    """Raise ConfigError if a person changes a setting that changes nothing in an experiment.

    ``named``: key -> value. A setting is named alone, as ``options.NAME``, or in ``options``.
    """
    settings = settings_of(experiment.method, experiment.options)
    named_settings = {**named, **_changed_fields("options", named)}
    for name, needed in settings.without_effect.items():
        if name not in named_settings or not changed_setting(settings, name):
            continue
        if needed is None:
            remedy = f"Leave {name} out."
            found = f"one without effect in every job of {experiment.method}"
        else:
            written = needed.value if isinstance(needed.value, str) else json.dumps(needed.value)
            remedy = f"Add {setting(needed.name, needed.value, written)}, or leave {name} out."
            beside = f"{needed.name}={getattr(settings, needed.name)}"
            found = f"{beside}, beside which it has no effect"
        raise ConfigError(
            setting(name, named_settings[name]),
            remedy,
            expected="a setting that changes something in this job",
            found=found,
        )


def with_defaults_of_images(job: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes of a job, with those that follow from other images than a shipped job's."""
    changed = dict(changes)
    of_images = _changed_fields("data", changes)
    if is_shipped(job) and "name" not in of_images and _has_other_classes(job, of_images):
        # A name from before a change of ``data`` as a whole would hold its place.
        changed.pop("data.name", None)
        changed["data.name"] = "images"
    if is_shipped(job) and of_images.get("multi_label") is True:
        changed.setdefault("key_metric", SEVERAL_LABELS.key_metric)
    return changed


def _has_other_classes(job: str, of_images: Mapping[str, Any]) -> bool:
    """Return whether changed fields of ``data`` name other classes than a job's, in any order."""
    if "classes" not in of_images:
        return False
    classes = of_images["classes"]
    if not isinstance(classes, list | tuple):
        return True  # It is refused later, by its name.
    return set(map(str, classes)) != set(_base(job).data.classes)


def _changed_fields(part: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return field -> value of a part such as ``data``, by the changes that hold.

    A change may be of the part as a whole.
    """
    fields: dict[str, Any] = {}
    for key, value in changes.items():
        if key == part and isinstance(value, Mapping):
            # It replaces all that was changed before.
            fields = dict(value)
        elif key.startswith(f"{part}."):
            fields[key.removeprefix(f"{part}.")] = value
    return fields


def changed_experiment(job: str, changes: Mapping[str, Any], clinical: bool = False) -> Experiment:
    """Return the experiment of a job, with changes as key -> value; see :func:`load_experiment`."""
    raw = _base(job).model_dump(mode="json")
    if clinical and is_shipped(job):
        raw["minimum_replies"] = _CLINICAL_REPLIES
        raw["options"] = _clipped(raw["method"], raw["options"])
    for key, value in changes.items():
        # A later change may be of a part of this value, which is the caller's.
        _set(raw, key, deepcopy(value))
    return Experiment.parse(raw, f"job {job}")


def _clipped(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return a method's options with clipped gradients, if it takes steps and allows it.

    A method of a package may not: SCAFFOLD computes gradients from the steps. By default sites
    refuse a job without clipping, which an export says.
    """
    settings = settings_of(method, options)
    if not settings.step_sizes or settings.clip_gradient is not None:
        return options
    clipped = options | {"clip_gradient": _CLINICAL_CLIP}
    try:
        settings_of(method, clipped)
    except ValidationError:
        return options
    return clipped


def written_out(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment as plain values, with every setting of its method.

    As a JSON file they are a job, of the same weights. Its digest is another one, because the
    digest is of the settings as they are written.
    """
    raw = experiment.model_dump(mode="json")
    settings = settings_of(experiment.method, experiment.options)
    return {**raw, "options": settings.model_dump(mode="json")}


def _base(job: str) -> Experiment:
    if job in JOBS:
        return JOBS[job]()
    if job in METHODS:
        return Experiment(method=job)
    of_paper = paper_job(job)
    if of_paper is not None:
        raw = Experiment(method=of_paper.method).model_dump(mode="json")
        for key, value in of_paper.all_changes.items():
            _set(raw, key, value)
        return Experiment.parse(raw, f"job {job}")
    try:
        raw = read_json_file(Path(job), unique_keys=True)
    except (OSError, UnreadableJsonError) as error:
        suggestion = did_you_mean(job, [*JOBS, *METHODS.names()])
        if suggestion and not Path(job).exists():
            raise ConfigError(f"There is no job {job}{suggestion}", "Correct the name.") from error
        raise ConfigError(
            f"job {job}",
            "Name one of them.",
            expected=f"{', '.join(JOBS)}, one of these with {SUFFIX}, a method or a JSON file",
            found=reason_of(error),
        ) from error
    return Experiment.parse(raw, f"job {job}")


def key_and_value(change: str) -> tuple[str, Any]:
    """Return key and value of a text ``KEY=VALUE``, whose value is YAML; ConfigError otherwise."""
    key, equals, value = change.partition("=")
    if not (key and equals):
        raise ConfigError(
            "--set", "Write for example --set rounds=5.", expected="KEY=VALUE", found=change
        )
    try:
        return key, read_yaml(value)
    except ValueError as error:
        raise ConfigError(
            f"--set {key}", "Quote it.", expected="a value in YAML", found=str(error)
        ) from error


def _set(raw: dict[str, Any], key: str, value: Any) -> None:
    """Set a field of an experiment's JSON values, named with dots; mappings on the way are made."""
    path = key.split(".")
    if path[0] not in Experiment.model_fields:
        path = ["options", *path]
    *parents, last = path
    target = raw
    for parent in parents:
        if target.get(parent) is None:
            target[parent] = {}
        target = target[parent]
        if not isinstance(target, dict):
            raise ConfigError(
                f"setting {key}",
                "Name its parent.",
                expected="a field",
                found=f"{key}: {parent} has none",
            )
    target[last] = value
