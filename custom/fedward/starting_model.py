"""The model before the first round: fresh, or with the weights of a finished run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from fedward.config import Experiment
from fedward.digests import file_digest
from fedward.errors import ConfigError, RunError, option, reason_of
from fedward.json_text import read_json_file
from fedward.methods.algorithm import Algorithm
from fedward.model_state import State
from fedward.nets import build, classifier_tensors, require_logits
from fedward.nets.trainable import TrainablePart
from fedward.protocol import wire
from fedward.runs.standing import unfinished
from fedward.storage import audit
from fedward.storage.info import FORMAT, RunInfo
from fedward.storage.model_files import StoredState
from fedward.storage.plain_files import require_plain
from fedward.storage.run_folder import RunFolder

_NAME_A_RUN = (
    "Name the folder of a finished run of such a network; its model.json says which it is."
)
_SAME_BASE = (
    "Name a run with the same net, pretrained, trainable and, without pretrained weights, "
    "the same seed."
)
_RESTORE = (
    "Bring the files back as they were, or begin again: a job is exported again, "
    "a run started in another folder or from another run."
)


@dataclass(frozen=True)
class Source:
    """The folder with the weights that a run starts from, and what is on record about them."""

    files: Path
    """Folder with ``model.safetensors`` and ``model.json``, of a finished run or in a FLARE job."""
    facts: Mapping[str, Any] | None = None
    """``folder`` of the finished run and ``sha256`` of its model, as the job or run.json has it.

    None: the finished run's own audit log is asked.
    """

    def check(self, run: Path, info: RunInfo) -> None:
        """Raise RunError if a run that is continued began with other weights.

        Args:
            run: its folder.
            info: its run.json.
        """
        began_with = (info.init or {}).get("sha256")
        if self.facts and self.facts["sha256"] != began_with:
            raise RunError(
                f"run folder {run}",
                "Continue it with its own job, or start a new run.",
                expected=(
                    f"a run from the weights that the job names, SHA-256 {self.facts['sha256']}"
                ),
                found=began_with or "one from fresh weights",
            )


@dataclass(frozen=True)
class Weights:
    """The last model of a finished run."""

    folder: Path
    """The run folder, which may be on another machine."""
    sha256: str
    """SHA-256 of its ``model.safetensors``."""
    classes: tuple[str, ...]
    """Classes of its classifier; empty if no round trained one, or each site kept its own."""
    state: State
    """Its tensors, read lazily from disk."""
    base: str | None = None
    """SHA-256 of the part of the network that was frozen in that run, which is not in the file."""

    @classmethod
    def of(cls, files: Path, facts: Mapping[str, Any] | None = None) -> "Weights":
        """Return the weights in a folder.

        Args:
            files: the folder, as in :class:`Source`.
            facts: as in :class:`Source`.

        Raises:
            ConfigError: there are no weights, the run has not finished, or they are not those that
                ``facts`` or the run's own audit log record.
            RunError: there are no ``facts``, and the folder has no readable run.json, or holds a
                pipe or a link.
        """
        model = files / "model.safetensors"
        sidecar = files / "model.json"
        where = f"weights of {facts['folder']} in {files}" if facts else option("init", files)
        try:
            if not facts:
                require_plain(files, model)
            sha256 = file_digest(model)
            recorded = facts["sha256"] if facts else _recorded_digest(files)
            # Nothing in the file is read before its hash is known to be right.
            if sha256 != recorded:
                raise ConfigError(
                    f"{where}, file {model.name}",
                    _RESTORE,
                    expected=f"SHA-256 {recorded}, on record since the run or its job was made",
                    found=sha256,
                )
            content = read_json_file(sidecar)
            if content["format"] != FORMAT:
                raise ValueError(f"{sidecar.name} of format {content['format']}")
            classes = () if "untrained" in content else tuple(content["data"]["classes"])
            folder = Path(facts["folder"]) if facts else files.resolve()
            return cls(folder, sha256, classes, StoredState(model), content.get("base"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                where,
                _RESTORE if facts else _NAME_A_RUN,
                expected=f"{model.name} and {sidecar.name} of format {FORMAT}",
                found=reason_of(error),
            ) from error

    @property
    def facts(self) -> dict[str, Any]:
        """What run.json records about them."""
        return {"folder": str(self.folder), "sha256": self.sha256}


class FirstModel(NamedTuple):
    """The model before the first round."""

    state: State
    """Its tensors, without the frozen part."""
    taken: dict[str, Any] | None
    """What run.json records about the weights it was given; None for fresh ones.

    ``model`` is the SHA-256 of the model itself, by which a site's policy may allow it.
    """
    base: str | None
    """SHA-256 of the frozen part; None without one."""


def initial_model(
    experiment: Experiment, algorithm: Algorithm[Any], weights: Weights | None = None
) -> FirstModel:
    """Return the model before the first round, without the frozen part of the network.

    Args:
        experiment: the experiment.
        algorithm: its method.
        weights: those of a finished run; None: fresh ones.

    Raises:
        ConfigError: as :func:`fedward.nets.build` and :func:`take_over` raise it.
    """
    net = network_of(experiment, algorithm)
    data = experiment.data
    base = net.base if isinstance(net, TrainablePart) else None
    require_logits(net, experiment.net, len(data.classes), data.channels, data.image_size)
    if weights is None:
        return FirstModel(_copied(net), None, base)
    tensors = take_over(net, weights, data.classes, algorithm.requirements.tensors.per_class)
    algorithm.complete(net, tensors["taken"])
    state = _copied(net)
    digest = wire.model_digest(wire.flatten("model", state))
    return FirstModel(state, {**weights.facts, **tensors, "model": digest}, base)


def _copied(net: nn.Module) -> State:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def network_of(experiment: Experiment, algorithm: Algorithm[Any]) -> nn.Module:
    """Return an experiment's network as its runs begin with it.

    Args:
        experiment: the experiment.
        algorithm: its method, which may extend the network.

    Raises:
        ConfigError: as :func:`fedward.nets.build` raises it.
    """
    return build(
        experiment.net,
        len(experiment.data.classes),
        experiment.data.channels,
        experiment.pretrained,
        experiment.seed,
        algorithm.extend,
        experiment.trainable,
    )


def first_model(experiment: Experiment, algorithm: Algorithm[Any], weights: Weights) -> str:
    """Return the SHA-256 of the model that a run on these weights begins with.

    Raises:
        ConfigError: as :func:`initial_model` raises it.
    """
    first = initial_model(experiment, algorithm, weights)
    return wire.model_digest(wire.flatten("model", first.state))


def take_over(
    net: nn.Module, weights: Weights, classes: Sequence[str], per_class: tuple[str, ...] = ()
) -> dict[str, list[str]]:
    """Copy tensors into a network wherever name, shape and dtype are the same.

    The classifier is copied only if the classes are equal.

    Args:
        net: the network, which is changed.
        weights: the weights of a finished run.
        classes: the classes of the new run.
        per_class: prefixes of tensors that a method adds and that belong to classes, as those of a
            classifier do.

    Returns:
        Names of floating-point tensors: those ``taken``, those ``new`` as in a fresh network, and
        those ``unused``.

    Raises:
        ConfigError: another part of the network was frozen; no tensor besides the classifier's
            fits; or one that fits holds NaN or infinity.
    """
    tensors = net.state_dict()
    base = net.base if isinstance(net, TrainablePart) else None
    if base != weights.base:
        raise ConfigError(
            f"{option('init', weights.folder)}, its frozen part",
            _SAME_BASE,
            expected=f"{base or 'none'}, as here",
            found=weights.base or "none",
        )
    learned = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
    of_classes = classifier_tensors(net)
    of_classes |= {name for name in tensors if name.startswith(per_class)}
    offered = {name for name, tensor in weights.state.items() if tensor.is_floating_point()}
    usable = offered if weights.classes == tuple(classes) else offered - of_classes
    taken = []
    for name in learned:
        if name in usable and _has_form_of(tensors[name], weights.state[name]):
            taken.append(name)
    # With a frozen base the classifier alone may be what trains.
    expected_names = learned if base else [name for name in learned if name not in of_classes]
    if not set(taken) & set(expected_names):
        raise ConfigError(
            option("init", weights.folder),
            _NAME_A_RUN,
            expected=f"tensors of the network's encoder, such as {expected_names[0]}",
            found="none of that name and shape",
        )
    with torch.no_grad():
        for name in taken:
            tensor = weights.state[name]
            if not bool(tensor.isfinite().all()):
                raise ConfigError(
                    f"{option('init', weights.folder)}, tensor {name} holds NaN or infinity",
                    "That run diverged; name another folder.",
                )
            tensors[name].copy_(tensor)
    return {
        "taken": taken,
        "new": [name for name in learned if name not in taken],
        "unused": [name for name in weights.state if name in offered - set(taken)],
    }


def described(facts: Mapping[str, Any]) -> str:
    """Return what was taken over, by the first parts of names.

    An example is ``taken: encoder 73; new: classifier 2``.
    """
    parts = []
    for kind in ("taken", "new", "unused"):
        counts = Counter(name.split(".", 1)[0] for name in facts[kind])
        if counts:
            numbers = ", ".join(f"{part} {number}" for part, number in counts.items())
            parts.append(f"{kind}: {numbers}")
    return "; ".join(parts)


def _recorded_digest(folder: Path) -> str:
    """Return the SHA-256 that a finished run's last model had when the run ended."""
    run = RunFolder.reopen(folder)
    end = next(audit.rows(folder, "ended"), None)
    remedy = _NAME_A_RUN
    if not run.finished:
        found, remedy = unfinished(folder, run.info)
    elif run.info.models_stay_at_sites:
        found = "one in which each site trained alone and kept its model"
    elif end is None:
        found = f"{audit.LOG} without its end"
    else:
        return str(end["details"]["files"]["model.safetensors"])
    raise ConfigError(option("init", folder), remedy, expected="a finished run", found=found)


def _has_form_of(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor.shape == other.shape and tensor.dtype == other.dtype
