"""The server's own public images. They are no site's images, and no site is tested on them."""

from collections.abc import Collection, MutableMapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedward.client.site_data import DataSource, SyntheticSource
from fedward.config import Experiment
from fedward.errors import ConfigError, WorkError
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import State
from fedward.seeds import Draws
from fedward.sites import SERVER, find_site_file, site_files
from fedward.training.device_data import DeviceData
from fedward.training.features import stored_features
from fedward.training.learner import Learner
from fedward.training.machine import device_of, threads_limited
from fedward.training.networks import Networks


def refuse_sites_file(sites: Sequence[str], site_folders: Sequence[Path]) -> None:
    """Raise ConfigError where the server's file is also that of a site: its images would be called
    public.
    """
    own = find_site_file(SERVER, site_folders)
    if own is None:
        return
    for site in sites:
        file = find_site_file(site, site_folders)
        if file and file.samefile(own):
            where = f"the server's own images, {own}"
            remedy = f"Let {SERVER}.yaml name public images, or remove it."
            raise ConfigError(
                where,
                expected="a file that is no site's",
                found=f"that of {site}, {file}",
                remedy=remedy,
            )


class PublicImages:
    """Images on which the server evaluates models, from which it learns without labels, or which a
    report shows.

    They are read at first use, from ``server.yaml`` in one of ``site_folders`` or, in a simulation,
    from ``synthetic``; ``folder`` is for decoded images.
    """

    def __init__(
        self,
        experiment: Experiment,
        algorithm: Algorithm[Any],
        folder: Path,
        site_folders: Sequence[Path],
        synthetic: SyntheticSource | None = None,
    ) -> None:
        self._experiment = experiment
        self._algorithm = algorithm
        self._source = DataSource(SERVER, experiment, folder, site_folders, synthetic=synthetic)

    @cached_property
    def learner(self) -> Learner:
        """Trains on training and validation images, as labels are not looked at, and evaluates on
        the latter.
        """
        data = self._source.read(class_totals=False)
        networks = Networks(self._experiment, self._algorithm, device_of(data.device, SERVER))
        features = stored_features(networks.on_images, self._experiment, self._source.features)
        images = DeviceData(
            data, networks.device, ("labelled", "unlabelled", "val"), features=features
        )
        draws = Draws(self._experiment.seed)
        return Learner(SERVER, self._experiment, self._algorithm, networks, images, draws)

    @property
    def there(self) -> bool:
        """Whether the server has a file of its own, or synthetic images among sites that have
        nothing else either.
        """
        if self._source.file is not None:
            return True
        has_synthetic = (
            self._source.synthetic is not None and self._experiment.synthetic is not None
        )
        return has_synthetic and not site_files(self._source.site_folders)

    @property
    def number(self) -> int:
        """How many images there are to learn from."""
        return len(self.learner.images["all"]) if self.there else 0

    def accuracy(self, state: State) -> float:
        """Return a model's accuracy on the validation images, in [0, 1]."""
        with threads_limited(self.learner.images.data.threads):
            rows = self.learner.evaluate(dict(state), ("val",)).metrics
        return float(next(row["value"] for row in rows if row["name"] == "accuracy"))

    def require(self, uses: Collection[str]) -> None:
        """Raise ConfigError if there are no images for one of these uses: before the first round."""
        if "validation" in uses and not (self.there and len(self.learner.images.data.val)):
            wanted = "labelled validation images at the server to evaluate models on"
            raise self._lacks(wanted, "policy=static or policy=gated_similarity")
        if "training" in uses and not self.number:
            wanted = "public images at the server to learn from without labels"
            raise self._lacks(wanted, "contrastive=client or contrastive=off")

    def learn(
        self, model: State, round_: int, task: str, memory: MutableMapping[str, State]
    ) -> tuple[State, dict[str, float]]:
        """Train a model as a site does for a task; return it with the mean losses. ``memory`` is
        changed.

        Raises WorkError if the loss is no longer finite.
        """
        try:
            with threads_limited(self.learner.images.data.threads):
                trained, _, means = self.learner.train(model, [], round_, task=task, memory=memory)
        except WorkError as error:
            raise WorkError(
                f"{SERVER}, {task}, round {round_}: {error.problem}",
                "Lower contrastive_rate or set clip_gradient.",
                expected=error.expected,
                found=error.found,
            ) from error
        return trained, means

    def first(self, count: int) -> Tensor:
        """Return float32 (N, C, H, W) in [0, 1] on the CPU: the first validation images, then
        others; N <= count.
        """
        data = self._experiment.data
        parts = (
            [self.learner.images[name] for name in ("val", "labelled", "unlabelled")]
            if self.there
            else []
        )
        taken = [part.take(torch.arange(min(len(part), count))).cpu() for part in parts]
        return torch.cat([torch.empty(0, data.channels, data.image_size, data.image_size), *taken])[
            :count
        ]

    def pictures(self, model: State, images: Tensor) -> dict[str, Tensor]:
        """Return the method's pictures of a model's work on images, by name: each (N, C, H, W) on
        the CPU.
        """
        if self._algorithm.pictures is None:
            return {}
        networks = self.learner.networks
        made = self._algorithm.pictures(networks.load(model).eval(), images.to(networks.device))
        return {name: picture.cpu() for name, picture in made.items()}

    def _lacks(self, wanted: str, instead: str) -> ConfigError:
        found = (
            f"{SERVER}.yaml names none"
            if self.there
            else f"no file {SERVER}.yaml and no synthetic images"
        )
        where = f"method {self._experiment.method}"
        remedy = f"Give the server such a file, or set {instead}."
        return ConfigError(where, expected=wanted, found=found, remedy=remedy)
