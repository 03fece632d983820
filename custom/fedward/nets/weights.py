"""Weights of networks that were trained elsewhere, in files that each participant keeps."""

import os
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from fedward.digests import file_digest
from fedward.errors import ConfigError

FOLDER = "FEDWARD_WEIGHTS"
"""Environment variable: the folder of weights' files on this machine."""


class WeightsFile(Protocol):
    """A file of safetensors, and what is to be in it."""

    @property
    def file(self) -> str:
        """Its name, without a folder."""
        ...

    @property
    def sha256(self) -> str:
        """Of the whole file."""
        ...


def find_file(given: WeightsFile, where: str) -> Path:
    """Return where a file of weights lies on this machine.

    Raises ConfigError, whose place is ``where``: no such file here, or another SHA-256.
    """
    folder = os.environ.get(FOLDER)
    path = Path(folder or ".") / given.file
    if not folder or not path.is_file():
        expected = f"a file of that name in the folder {FOLDER}"
        remedy = f"Put it there, and set {FOLDER}."
        raise ConfigError(
            where, expected=expected, found=f"{folder or 'no such folder'}", remedy=remedy
        )
    found = file_digest(path)
    if found != given.sha256:  # before anything in it is believed
        remedy = "Get the file that the job means, or let the job name this one."
        raise ConfigError(where, expected=f"SHA-256 {given.sha256}", found=found, remedy=remedy)
    return path


@torch.no_grad()
def load_file(net: nn.Module, name: str, given: WeightsFile) -> None:
    """Give a network the weights in a file: all of its tensors but the classifier's, which stays
    fresh.

    Names are those of the network's state dict, or timm's. So a file is one of timm's, or
    ``model.safetensors`` of a run, of SelfFed's pre-training for example. Other tensors in it are
    left.

    Raises ConfigError: no such file here, another SHA-256, or a tensor that is missing, of another
    shape or not finite.
    """
    from safetensors.torch import load_file as read  # here, as few runs need it

    where = f"net {name}, weights {given.file}"
    path = find_file(given, where)
    classifier: nn.Module = net.classifier  # type: ignore[assignment]
    fresh = {id(tensor) for tensor in classifier.state_dict(keep_vars=True).values()}
    tensors = read(path)
    for key, own in net.state_dict(keep_vars=True).items():
        if id(own) in fresh or not own.is_floating_point():
            continue
        tensor = tensors.get(key, tensors.get(key.removeprefix("net.")))
        if tensor is None or tensor.shape != own.shape or not bool(tensor.isfinite().all()):
            expected = f"finite numbers of shape {tuple(own.shape)}"
            found = "none" if tensor is None else f"shape {tuple(tensor.shape)}, or others"
            remedy = "Name weights of this network, for images of as many channels."
            raise ConfigError(
                f"{where}, tensor {key}", expected=expected, found=found, remedy=remedy
            )
        own.copy_(tensor)
