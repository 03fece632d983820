"""Starting a run from the weights of a finished one, tensor by tensor."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from fedward.config import Experiment
from fedward.digests import file_digest
from fedward.errors import ConfigError, RunError, reason_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import State
from fedward.nets import build, require_logits
from fedward.nets.trainable import TrainablePart
from fedward.protocol import wire
from fedward.storage import audit
from fedward.storage.checkpoint import StoredState
from fedward.storage.info import FORMAT, RunInfo
from fedward.storage.run_folder import RunFolder

_REMEDY = "Name the folder of a finished run of such a network; its model.json says which it is."
_SAME_BASE = "Name a run with the same net, pretrained, trainable and, without pretrained weights, the same seed."
_AGAIN = (
    "Bring the files back as they were, or begin anew: a job is exported again, "
    "a run started in another folder or from another run."
)


@dataclass(frozen=True)
class Source:
    """Where the weights lie that a run starts from, and what is known of them before they are read."""

    files: Path
    """Folder with ``model.safetensors`` and ``model.json``: a finished run's, or one in a FLARE
    job.
    """
    facts: Mapping[str, Any] | None = None
    """``folder`` of the finished run and ``sha256`` of its model, where a job or run.json has them
    on record.
    """

    def check(self, run: Path, info: RunInfo) -> None:
        """Raise RunError where a run that is continued, with ``info`` in its run.json, began with
        other weights.
        """
        begun = (info.init or {}).get("sha256")
        if self.facts and self.facts["sha256"] != begun:
            expected = f"a run from the weights that the job names, SHA-256 {self.facts['sha256']}"
            found = begun or "one from fresh weights"
            remedy = "Continue it with its own job, or start a new run."
            raise RunError(f"run folder {run}", expected=expected, found=found, remedy=remedy)


@dataclass(frozen=True)
class Weights:
    """The last model of a finished run."""

    folder: Path
    """The run folder, which may be on another machine."""
    sha256: str
    """Of its ``model.safetensors``."""
    classes: tuple[str, ...]
    """What its classifier tells apart; nothing where the run trained none, or each site kept its
    own.
    """
    state: State
    """Its tensors, read lazily from disk."""
    base: str | None = None
    """SHA-256 of what was frozen in that run, which the tensors are no part of."""

    @classmethod
    def of(cls, files: Path, facts: Mapping[str, Any] | None = None) -> "Weights":
        """Return the weights in a folder; ``facts`` as in :class:`Source`.

        Raises:
            ConfigError: there are none, the run has not finished, or they are not those that
                ``facts`` or the run's own audit log tell of.
            RunError: without ``facts``, and the folder has no readable run.json.
        """
        model = files / "model.safetensors"
        about = files / "model.json"
        where, remedy = (
            (f"weights of {facts['folder']} in {files}", _AGAIN)
            if facts
            else (f"--init {files}", _REMEDY)
        )
        try:
            sha256 = file_digest(model)
            recorded = facts["sha256"] if facts else _recorded(files)
            if sha256 != recorded:  # before anything in the file is believed
                expected = f"SHA-256 {recorded}, on record since the run or its job was made"
                raise ConfigError(
                    f"{where}, file {model.name}", expected=expected, found=sha256, remedy=_AGAIN
                )
            content = json.loads(about.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"{about.name} of format {content['format']}")
            classes = () if "untrained" in content else tuple(content["data"]["classes"])
            folder = Path(facts["folder"]) if facts else files.resolve()
            return cls(folder, sha256, classes, StoredState(model), content.get("base"))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            expected = f"{model.name} and {about.name} of format {FORMAT}"
            found = reason_of(error)
            raise ConfigError(where, expected=expected, found=found, remedy=remedy) from error

    @property
    def facts(self) -> dict[str, Any]:
        """What run.json says of them."""
        return {"folder": str(self.folder), "sha256": self.sha256}


class FirstModel(NamedTuple):
    """The model before the first round."""

    state: State
    taken: dict[str, Any] | None
    """What run.json says of the weights it was given; ``model`` is the SHA-256 of the model itself,
    by which a site's policy may allow it."""
    base: str | None
    """SHA-256 of what is frozen."""


def initial_model(
    experiment: Experiment, algorithm: Algorithm[Any], weights: Weights | None = None
) -> FirstModel:
    """Return the model before the first round, without what is frozen.

    ``algorithm`` is the experiment's method. Raises as :func:`fedward.nets.build` and
    :func:`take_over` do.
    """
    net = network_of(experiment, algorithm)
    spec = experiment
    base = net.base if isinstance(net, TrainablePart) else None
    require_logits(net, spec.net, len(spec.data.classes), spec.data.channels, spec.data.image_size)
    taken = (
        take_over(net, weights, spec.data.classes, algorithm.requirements.tensors.per_class)
        if weights
        else {}
    )
    state = {key: value.clone() for key, value in net.state_dict().items()}
    if weights is None:
        return FirstModel(state, None, base)
    facts = {**weights.facts, **taken, "model": wire.model_digest(wire.flatten("model", state))}
    return FirstModel(state, facts, base)


def network_of(experiment: Experiment, algorithm: Algorithm[Any]) -> nn.Module:
    """Return the network of an experiment as runs begin with it; errors as
    :func:`fedward.nets.build`.
    """
    spec = experiment
    extend = algorithm.extend
    classes = len(spec.data.classes)
    channels = spec.data.channels
    return build(spec.net, classes, channels, spec.pretrained, spec.seed, extend, spec.trainable)


def first_model(experiment: Experiment, algorithm: Algorithm[Any], weights: Weights) -> str:
    """Return the SHA-256 of the model that a run on these weights begins with; errors as
    :func:`initial_model`.
    """
    first = initial_model(experiment, algorithm, weights)
    return wire.model_digest(wire.flatten("model", first.state))


def take_over(
    net: nn.Module, weights: Weights, classes: Sequence[str], per_class: tuple[str, ...] = ()
) -> dict[str, list[str]]:
    """Copy tensors into ``net`` wherever name, shape and dtype are the same; the classifier only
    for equal classes.

    The same holds for tensors whose names begin as in ``per_class``: what a method adds that
    belongs to classes.

    Returns:
        Names of floating-point tensors: those ``taken``, those ``new`` as in a fresh network, and
        those ``unused``.

    Raises:
        ConfigError: no tensor of the network fits, but for its classifier's; or one that does holds
            NaN or infinity.
    """
    own = net.state_dict()
    base = net.base if isinstance(net, TrainablePart) else None
    if base != weights.base:
        where = f"--init {weights.folder}, its frozen part"
        expected = f"{base or 'none'}, as here"
        raise ConfigError(where, expected=expected, found=weights.base or "none", remedy=_SAME_BASE)
    learned = [name for name in own if own[name].is_floating_point()]
    classifier = _classifier(net) | {name for name in own if name.startswith(per_class)}
    given = {name for name in weights.state if weights.state[name].is_floating_point()}
    same = weights.classes == tuple(classes)
    wanted = given if same else given - classifier
    taken = [name for name in learned if name in wanted and _fit(own[name], weights.state[name])]
    if not (taken if base else set(taken) - classifier):
        first = learned[0] if base else next(name for name in learned if name not in classifier)
        expected = f"tensors of the network's encoder, such as {first}"
        found = "none of that name and shape"
        raise ConfigError(
            f"--init {weights.folder}", expected=expected, found=found, remedy=_REMEDY
        )
    with torch.no_grad():
        for name in taken:
            tensor = weights.state[name]
            if not bool(tensor.isfinite().all()):
                where = f"--init {weights.folder}, tensor {name}"
                remedy = "That run diverged; name another folder."
                raise ConfigError(
                    where, expected="finite numbers", found="NaN or infinity", remedy=remedy
                )
            own[name].copy_(tensor)
    return {
        "taken": taken,
        "new": [name for name in learned if name not in taken],
        "unused": [name for name in weights.state if name in given - set(taken)],
    }


def described(facts: Mapping[str, Any]) -> str:
    """Return what was taken over, counted by first parts of names: ``taken: encoder 73; new:
    classifier 2``.
    """
    found = []
    for kind in ("taken", "new", "unused"):
        counts = Counter(name.split(".", 1)[0] for name in facts[kind])
        if counts:
            found.append(
                f"{kind}: {', '.join(f'{part} {number}' for part, number in counts.items())}"
            )
    return "; ".join(found)


def _recorded(folder: Path) -> str:
    """Return the SHA-256 that a finished run's last model had when the run ended."""
    run = RunFolder.reopen(folder)
    end = next(audit.rows(folder, "ended"), None)
    if not run.finished or not end:
        found = f"{audit.LOG} without its end" if run.finished else f"one that is {run.info.status}"
        raise ConfigError(
            f"--init {folder}", expected="a finished run", found=found, remedy=_REMEDY
        )
    return str(end["details"]["files"]["model.safetensors"])


def _fit(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _classifier(net: nn.Module) -> set[str]:
    """Return the names of the tensors that turn features into logits, wherever a network keeps
    them.
    """
    classifier: nn.Module = net.classifier  # type: ignore[assignment]
    mine = {id(parameter) for parameter in classifier.parameters()}
    return {name for name, parameter in net.named_parameters() if id(parameter) in mine}
