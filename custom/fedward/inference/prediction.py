"""Predictions of a model on images, as a CSV."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedward import private
from fedward.inference.images import Asked, Block
from fedward.inference.model import TrainedModel
from fedward.inference.whole import whole
from fedward.sites.data import Images
from fedward.spreadsheet import inert
from fedward.training.batches import Pixels
from fedward.training.evaluation import predict
from fedward.training.machine import device_of


@dataclass
class Outcome:
    """What became of the files, or images of an array, by number."""

    files: int = 0
    images: int = 0
    """In the files that could be read."""
    unusable: int = 0
    """Those without a prediction."""
    to_refer: int = 0
    """Those with a prediction below the threshold."""

    @property
    def kind(self) -> str:
        """What was asked about: ``images``, or ``files`` where one of them had several images."""
        return "files" if self.images > self.files - self.unusable else "images"


def write_predictions(
    model: TrainedModel, asked: Asked, out: Path, refer_below: float | None = None
) -> Outcome:
    """Write a CSV with a row for each file, in their order, and return how many there were.

    The probabilities of a file of several images (frames, slices) are the mean of theirs. Columns:
    ``image``; ``prediction``, the class with the largest probability; ``probability/CLASS`` of each
    class; ``refer``, ``yes`` where the largest probability is below ``refer_below`` or there is
    none, empty without a threshold; ``problem``, why there is no prediction; ``images``, how many
    the file has. Of a multi-label model, ``prediction`` is the classes with a probability of 0.5 or
    more, separated by ``|``, or ``No Finding``, and ``refer/CLASS`` is ``yes`` where its answer to
    a class, yes or no, is less probable than that, and ``refer`` where one of these is. The CSV is
    its owner's alone, and takes the place of another of its name when all of it is written.
    """
    outcome = Outcome()
    device = device_of("auto", "fedward predict")
    model.to(device)
    header = [
        "image",
        "prediction",
        *(f"probability/{name}" for name in model.classes),
        "refer",
        "problem",
        "images",
    ]
    if not model.label_kind.exclusive:
        header += [f"refer/{name}" for name in model.classes]
    text: Any = {
        "newline": "",
        "encoding": "utf-8",
        "errors": "backslashreplace",
    }  # a file's name may be any bytes
    with whole(out) as partial, open(partial, "w", opener=private.opener, **text) as file:
        table = csv.writer(
            file, quoting=csv.QUOTE_ALL
        )  # as semicolons separate cells in some countries
        table.writerow(header)
        for block in asked.blocks:
            probabilities = _of_files(probabilities_of(model, block.pixels, device), block.counts)
            outcome.files += len(block.names)
            outcome.images += sum(block.counts)
            outcome.unusable += len(block.failed)
            if refer_below is not None:
                outcome.to_refer += int(
                    (model.label_kind.confidence(probabilities) < refer_below).sum()
                )
            rows = _rows(block, probabilities, model, refer_below)
            table.writerows([inert(cell) for cell in row] for row in rows)
    return outcome


def probabilities_of(
    model: TrainedModel, pixels: NDArray[np.uint8], device: torch.device
) -> NDArray[np.float32]:
    """Return (N, classes) of uint8 images (N, H, W, C); ``model`` is on ``device``."""
    labels = model.label_kind.unlabelled(len(pixels), len(model.classes))
    images = Images(("",) * len(pixels), pixels, labels)
    found: NDArray[np.float32] = predict(model.tempered, Pixels.of(images, device)).numpy()
    return found


class _YesAndNo(nn.Module):
    """A multi-label network's logits (N, K) of yes, and behind them those of no."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        return torch.cat([logits, -logits], dim=1)


def answers_of(
    model: TrainedModel, pixels: NDArray[np.uint8], device: torch.device
) -> NDArray[np.float32]:
    """Return (N, classes, 2) of a multi-label model: the probabilities of yes and of no to each
    class.

    Both are exact, however small: of a float32 of 1, one less it would be 0. Arguments as of
    :func:`probabilities_of`.
    """
    images = Images(("",) * len(pixels), pixels, np.full((len(pixels), len(model.classes)), -1))
    found: NDArray[np.float32] = predict(
        _YesAndNo(model.tempered), Pixels.of(images, device)
    ).numpy()
    return np.stack(np.split(found, 2, axis=1), axis=2)


def _of_files(probabilities: NDArray[np.float32], counts: Sequence[int]) -> NDArray[np.floating]:
    """Return the mean (F, classes) of each of the F files that have images, of (N, classes) of all
    of these.
    """
    sizes = np.array([count for count in counts if count], np.int64)
    if len(sizes) == len(probabilities):
        return probabilities
    means: NDArray[np.floating] = (
        np.add.reduceat(probabilities, np.cumsum(sizes) - sizes) / sizes[:, None]
    )
    return means


def _rows(
    block: Block,
    probabilities: NDArray[np.floating],
    model: TrainedModel,
    refer_below: float | None,
) -> Iterator[list[str]]:
    answers = zip(probabilities, model.label_kind.confidence(probabilities), strict=True)
    for place, name in enumerate(block.names):
        problem = block.failed.get(place)
        if problem:
            refer = _refer(0.0, refer_below)
            each = [_refer(0.0, refer_below)] * len(model.classes)
            row = [name, "", *("" for _ in model.classes), refer, problem, "0"]
        else:
            found, sure = next(answers)
            each = [_refer(value, refer_below) for value in np.maximum(found, 1 - found)]
            told = [
                model.label_kind.answer(found, model.classes),
                *(f"{value:.6f}" for value in found),
            ]
            row = [name, *told, _refer(sure, refer_below), "", f"{block.counts[place]}"]
        yield row if model.label_kind.exclusive else row + each


def _refer(sure: float, below: float | None) -> str:
    return "" if below is None else "yes" if sure < below else "no"
