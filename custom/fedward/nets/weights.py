"""Weights of networks that were trained elsewhere, in files that each participant keeps."""

import os
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from fedward.digests import file_digest
from fedward.errors import ConfigError

WEIGHTS_VARIABLE = "FEDWARD_WEIGHTS"
"""Environment variable that names the folder with files of weights on this machine."""


class WeightsFile(Protocol):
    """A file of safetensors, as a job names it."""

    @property
    def file(self) -> str:
        """The file's name, without a folder."""
        ...

    @property
    def sha256(self) -> str:
        """SHA-256 of the whole file."""
        ...


def find_file(given: WeightsFile, where: str) -> Path:
    """Return the path of a file of weights on this machine.

    Args:
        given: the file.
        where: who needs it, for errors.

    Raises:
        ConfigError: there is no such file on this machine, or it has another SHA-256.
    """
    folder = os.environ.get(WEIGHTS_VARIABLE)
    path = Path(folder or ".") / given.file
    if not folder or not path.is_file():
        raise ConfigError(
            where,
            f"Put it there, and set {WEIGHTS_VARIABLE}.",
            expected=f"a file of that name in the folder {WEIGHTS_VARIABLE}",
            found=folder or "no such folder",
        )
    # Checked before anything in the file is read.
    digest = file_digest(path)
    if digest != given.sha256:
        raise ConfigError(
            where,
            "Get the file that the job means, or let the job name this one.",
            expected=f"SHA-256 {given.sha256}",
            found=digest,
        )
    return path


@torch.no_grad()
def load_file(net: nn.Module, name: str, given: WeightsFile) -> None:
    """Give a network the weights in a file, all but those of its classifier.

    The file has the names of the network's state dict, or timm's. So it is one of timm's files, or
    a run's ``model.safetensors``, for example of SelfFed's pre-training. Further tensors in it are
    ignored.

    Args:
        net: the network, which is changed.
        name: its name, for errors.
        given: the file.

    Raises:
        ConfigError: there is no such file on this machine, it has another SHA-256, or a tensor in
            it is missing, has another shape or is not finite.
    """
    # Imported here, because few runs need it.
    from safetensors.torch import load_file as read

    where = f"net {name}, weights {given.file}"
    path = find_file(given, where)
    classifier: nn.Module = net.classifier  # type: ignore[assignment]
    of_classifier = {id(tensor) for tensor in classifier.state_dict(keep_vars=True).values()}
    tensors = read(path)
    for key, parameter in net.state_dict(keep_vars=True).items():
        if id(parameter) in of_classifier or not parameter.is_floating_point():
            continue
        tensor = tensors.get(key, tensors.get(key.removeprefix("net.")))
        problem = _problem(tensor, parameter)
        if tensor is None or problem:
            raise ConfigError(
                f"{where}, tensor {key}",
                "Name weights of this network, for images of as many channels.",
                expected=f"finite numbers of shape {tuple(parameter.shape)}",
                found=problem,
            )
        parameter.copy_(tensor)


def _problem(tensor: torch.Tensor | None, parameter: torch.Tensor) -> str:
    """Return why a tensor of a file cannot be a network's parameter; empty if it can."""
    if tensor is None:
        return "none"
    if tensor.shape != parameter.shape:
        return f"shape {tuple(tensor.shape)}"
    if not bool(tensor.isfinite().all()):
        return "NaN or infinity"
    return ""
