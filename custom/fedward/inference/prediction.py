"""Predictions of a model on images, as a CSV."""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedward import private
from fedward.inference.images import Asked, Block
from fedward.inference.model import TrainedModel
from fedward.inference.whole import appears_whole
from fedward.sites.data import Images
from fedward.spreadsheet import ENCODING, write_rows
from fedward.training.batches import Pixels
from fedward.training.evaluation import predict
from fedward.training.machine import device_of


@dataclass
class Outcome:
    """How many files, or images of an array, got a prediction."""

    files: int = 0
    """Number of files that were asked about."""
    images: int = 0
    """Images in the files that could be read."""
    unusable: int = 0
    """Files without a prediction."""
    to_refer: int = 0
    """Files that the column ``refer`` marks: of an unsure prediction, or of none."""

    @property
    def kind(self) -> str:
        """What was asked about: ``images``, or ``files`` where one of them had several images."""
        return "files" if self.images > self.files - self.unusable else "images"


_BEGINNING = ("image", "prediction")
"""The first columns of each CSV of predictions."""


def are_predictions(file: Path) -> bool:
    """Return whether a file is a CSV of predictions, as :func:`write_predictions` writes it."""
    beginning = ",".join(f'"{name}"' for name in _BEGINNING).encode()
    with file.open("rb") as stream:
        return stream.read(100).removeprefix(codecs.BOM_UTF8).startswith(beginning)


def write_predictions(
    model: TrainedModel, asked: Asked, out: Path, refer_below: float | None = None
) -> Outcome:
    """Write a CSV with a row for each file, in their order, and return how many there were.

    The probabilities of a file of several images (frames, slices) are the mean of theirs. Columns:

    - ``image``: the name
    - ``prediction``: the class with the largest probability; for a multi-label model the classes
      with a probability of 0.5 or more, separated by ``|``, or ``No Finding``
    - ``probability/CLASS`` for each class
    - ``refer``: ``yes`` if the largest probability is below ``refer_below`` or there is none; for a
      multi-label model, if one of ``refer/CLASS`` is; empty without a threshold
    - ``problem``: why there is no prediction
    - ``images``: how many the file has
    - ``refer/CLASS`` for each class of a multi-label model: ``yes`` if the answer to it, yes or no,
      is less probable than ``refer_below``

    Only its owner may read the CSV. It replaces another of its name when it is written completely.
    """
    outcome = Outcome()
    device = device_of("auto", "fedward predict")
    model.to(device)
    header = [
        *_BEGINNING,
        *(f"probability/{name}" for name in model.classes),
        "refer",
        "problem",
        "images",
    ]
    if not model.label_kind.exclusive:
        header += [f"refer/{name}" for name in model.classes]
    with (
        appears_whole(out) as partial,
        open(
            partial,
            "w",
            newline="",
            encoding=ENCODING,
            errors="backslashreplace",  # the name of a file may be any bytes
            opener=private.opener,
        ) as file,
    ):
        write_rows(file, [header])
        for block in asked.blocks:
            probabilities = _of_files(probabilities_of(model, block.pixels, device), block.counts)
            outcome.files += len(block.names)
            outcome.images += sum(block.counts)
            outcome.unusable += len(block.failed)
            if refer_below is not None:
                confidence = model.label_kind.confidence(probabilities)
                outcome.to_refer += int((~(confidence >= refer_below)).sum()) + len(block.failed)
            write_rows(file, _rows(block, probabilities, model, refer_below))
    return outcome


def probabilities_of(
    model: TrainedModel, pixels: NDArray[np.uint8], device: torch.device
) -> NDArray[np.float32]:
    """Return the probabilities (N, classes) of images.

    Args:
        model: on the device.
        pixels: uint8 (N, H, W, C).
        device: where to compute.
    """
    labels = model.label_kind.unlabelled(len(pixels), len(model.classes))
    images = Images(("",) * len(pixels), pixels, labels)
    probabilities: NDArray[np.float32] = predict(model.tempered, Pixels.of(images, device)).numpy()
    return probabilities


class _YesAndNo(nn.Module):
    """A multi-label network's logits of yes (N, K), followed by those of no: (N, 2 K)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        return torch.cat([logits, -logits], dim=1)


def answers_of(
    model: TrainedModel, pixels: NDArray[np.uint8], device: torch.device
) -> NDArray[np.float32]:
    """Return the probabilities of yes and of no to each class: (N, classes, 2).

    Both are computed, because 1 - p of a float32 p that is nearly 1 would be 0.

    Args:
        model: a multi-label model, on the device.
        pixels: uint8 (N, H, W, C).
        device: where to compute.
    """
    labels = np.full((len(pixels), len(model.classes)), -1)
    images = Images(("",) * len(pixels), pixels, labels)
    net = _YesAndNo(model.tempered)
    probabilities: NDArray[np.float32] = predict(net, Pixels.of(images, device)).numpy()
    yes, no = np.split(probabilities, 2, axis=1)
    return np.stack([yes, no], axis=2)


def _of_files(probabilities: NDArray[np.float32], counts: Sequence[int]) -> NDArray[np.floating]:
    """Return the mean probabilities of each file.

    Args:
        probabilities: (N, classes) of all images.
        counts: number of images of each file.

    Returns:
        (F, classes) for the F files that have images.
    """
    sizes = np.array([count for count in counts if count], np.int64)
    if len(sizes) == len(probabilities):
        return probabilities
    starts = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(probabilities, starts)
    return np.asarray(sums / sizes[:, None])


def _rows(
    block: Block,
    probabilities: NDArray[np.floating],
    model: TrainedModel,
    refer_below: float | None,
) -> Iterator[list[str]]:
    """Yield a row of the CSV for each file of a block."""
    kind = model.label_kind
    classes = model.classes
    answers = zip(probabilities, kind.confidence(probabilities), strict=True)
    for place, name in enumerate(block.names):
        if place in block.failed:
            refer = _refer(0.0, refer_below)
            row = [name, "", *([""] * len(classes)), refer, block.failed[place], "0"]
            refer_by_class = [refer] * len(classes)
        else:
            values, confidence = next(answers)
            row = [
                name,
                kind.answer(values, classes),
                *(f"{value:.6f}" for value in values),
                _refer(confidence, refer_below),
                "",
                f"{block.counts[place]}",
            ]
            refer_by_class = [
                _refer(value, refer_below) for value in np.maximum(values, 1 - values)
            ]
        yield row if kind.exclusive else row + refer_by_class


def _refer(confidence: float, below: float | None) -> str:
    """Return whether to refer an answer to a person; empty without a threshold.

    An answer whose confidence is no number, by a model that has diverged, is referred.
    """
    if below is None:
        return ""
    return "no" if confidence >= below else "yes"
