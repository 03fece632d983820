"""The server's own public images. They are no site's images, and no site is tested on them."""

import logging
from collections.abc import Collection, MutableMapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedward.client.site_data import DataSource, SyntheticSource
from fedward.config import Experiment
from fedward.errors import ConfigError, DivergedTrainingError, WorkError
from fedward.methods.algorithm import Algorithm
from fedward.model_state import State
from fedward.seeds import Draws
from fedward.sites import SERVER, find_site_file, site_files
from fedward.training.device_data import DeviceData
from fedward.training.features import encoder_of
from fedward.training.learner import Learner
from fedward.training.machine import device_of, threads_limited
from fedward.training.networks import Networks

_log = logging.getLogger(__name__)


def refuse_sites_file(sites: Sequence[str], site_folders: Sequence[Path]) -> None:
    """Raise ConfigError if the server's file is also a site's, whose images are not public."""
    server_file = find_site_file(SERVER, site_folders)
    if server_file is None:
        return
    for site in sites:
        file = find_site_file(site, site_folders)
        if file and file.samefile(server_file):
            raise ConfigError(
                f"the server's own images, {server_file}",
                f"Let {SERVER}.yaml name public images, or remove it.",
                expected="a file that is no site's",
                found=f"that of {site}, {file}",
            )


def are_drawn(
    experiment: Experiment, site_folders: Sequence[Path], synthetic: SyntheticSource | None
) -> bool:
    """Return whether the images of all sites are synthetic.

    They are in a simulation, which alone has what draws them, if no site has a file.
    """
    has_synthetic = synthetic is not None and experiment.synthetic is not None
    return has_synthetic and not site_files(site_folders)


class PublicImages:
    """Images that the server evaluates models on, learns from, or shows in a report.

    It learns from them without their labels (SelfFed's contrast), or from the labelled training
    images alone (:mod:`fedward.methods.server_labels`). They are read at first use.

    Args:
        experiment: the run's experiment.
        algorithm: its method.
        folder: for decoded images.
        site_folders: where ``server.yaml`` may lie.
        synthetic: in a simulation, what makes the images of a server without a file.
    """

    def __init__(
        self,
        experiment: Experiment,
        algorithm: Algorithm[Any],
        folder: Path,
        site_folders: Sequence[Path],
        synthetic: SyntheticSource | None,
    ) -> None:
        self._experiment = experiment
        self._algorithm = algorithm
        self._source = DataSource(SERVER, experiment, folder, site_folders, synthetic=synthetic)

    @cached_property
    def learner(self) -> Learner:
        """Trains and evaluates.

        It trains on labelled training images, or on training and validation images without their
        labels. It evaluates on the validation images.
        """
        data = self._source.read(class_totals=False)
        networks = Networks(self._experiment, self._algorithm, device_of(data.device, SERVER))
        encoder = encoder_of(networks.on_images, self._experiment, self._source.features)
        images = DeviceData(
            data, networks.device, ("labelled", "unlabelled", "val"), encoder=encoder
        )
        draws = Draws(self._experiment.seed)
        return Learner(SERVER, self._experiment, self._algorithm, networks, images, draws)

    @property
    def there(self) -> bool:
        """Whether the server has a file, or synthetic images as all sites have them."""
        source = self._source
        return source.file is not None or are_drawn(
            self._experiment, source.site_folders, source.synthetic
        )

    @property
    def number(self) -> int:
        """Number of images to learn from: the labelled ones where their labels are used."""
        if not self.there:
            return 0
        return len(self.learner.images["labelled" if self._uses_labels else "all"])

    @property
    def _uses_labels(self) -> bool:
        return "labels" in self._algorithm.requirements.server.images

    def accuracy(self, state: State) -> float:
        """Return a model's accuracy on the validation images, in [0, 1]."""
        with threads_limited(self.learner.images.data.threads):
            rows = self.learner.evaluate(dict(state), ("val",)).metrics
        values = {row["name"]: row["value"] for row in rows}
        return float(values["accuracy"])

    def require(self, uses: Collection[str]) -> None:
        """Raise ConfigError if there are no images for one of these uses.

        It is called before the first round. The log names classes of which the server has no
        label, if it learns from labels: nobody else has any.
        """
        if "validation" in uses and not (self.there and len(self.learner.images.data.val)):
            raise self._missing(
                "labelled validation images at the server to evaluate models on",
                instead="policy=static or policy=gated_similarity",
            )
        if "training" in uses and self.number == 0:
            raise self._missing(
                "public images at the server to learn from without labels",
                instead="contrastive=client or contrastive=off",
            )
        if "labels" in uses:
            if self.number == 0:
                raise self._missing(
                    "labelled training images at the server, which alone has labels",
                    instead="server_labels=false",
                )
            self._warn_of_missing_classes()

    def learn(
        self, model: State, round_: int, task: str, memory: MutableMapping[str, State]
    ) -> tuple[State, dict[str, float]]:
        """Train a model as a site does for a task, and return it with the mean losses.

        Args:
            model: the one to start from.
            round_: from 1; 0 before the first round.
            task: a task of the method.
            memory: models kept between rounds, by role. It is changed.

        Raises:
            WorkError: the loss is no longer finite, or BatchNorm cannot normalise a batch.
        """
        try:
            with threads_limited(self.learner.images.data.threads):
                update = self.learner.train(model, [], round_, task=task, memory=memory)
        except WorkError as error:
            remedy = error.remedy
            if isinstance(error, DivergedTrainingError):
                rate = "server_learning_rate" if self._uses_labels else "contrastive_rate"
                remedy = f"Lower {rate} or set clip_gradient."
            raise WorkError(
                f"{SERVER}, {task}, round {round_}: {error.problem}",
                remedy,
                expected=error.expected,
                found=error.found,
            ) from error
        return update.model, update.means

    def first(self, count: int) -> Tensor:
        """Return the first images, the validation images before others.

        Returns:
            float32 (N, C, H, W) in [0, 1] on the CPU, with N <= ``count``; N is 0 without images.
        """
        data = self._experiment.data
        taken = [torch.empty(0, data.channels, data.image_size, data.image_size)]
        if self.there:
            for name in ("val", "labelled", "unlabelled"):
                images = self.learner.images[name]
                taken.append(images.take(torch.arange(min(len(images), count))).cpu())
        return torch.cat(taken)[:count]

    def pictures(self, model: State, images: Tensor) -> dict[str, Tensor]:
        """Return the method's pictures of a model's work on images.

        Returns:
            Name -> (N, C, H, W) on the CPU; none if the method draws none.
        """
        if self._algorithm.pictures is None:
            return {}
        networks = self.learner.networks
        net = networks.load(model).eval()
        pictures = self._algorithm.pictures(net, images.to(networks.device))
        return {name: picture.cpu() for name, picture in pictures.items()}

    def _warn_of_missing_classes(self) -> None:
        """Log the classes of which the server has no labelled training image."""
        counts = self.learner.images.class_counts.tolist()
        classes = self.learner.images.data.classes
        missing = [name for name, count in zip(classes, counts, strict=True) if not count]
        if missing:
            _log.warning(
                "%s has no labelled training image of %s, which this run cannot teach",
                SERVER,
                ", ".join(missing),
            )

    def _missing(self, wanted: str, instead: str) -> ConfigError:
        """Return the error that the server lacks images; ``instead``: settings that need none."""
        found = f"no file {SERVER}.yaml and no synthetic images"
        if self.there:
            found = f"{SERVER}.yaml names none"
        return ConfigError(
            f"method {self._experiment.method}",
            f"Give the server such a file, or set {instead}.",
            expected=wanted,
            found=found,
        )
