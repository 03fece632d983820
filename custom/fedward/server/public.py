"""The server's own public images: no site's, and none that a site is tested on."""

from collections.abc import MutableMapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedward.client.site import Site
from fedward.client.site_data import site_files
from fedward.config import Experiment
from fedward.errors import ConfigError, WorkError
from fedward.methods.workflow import State
from fedward.sites import SERVER, find_site_file
from fedward.training.batches import Pixels


def refuse_sites_file(sites: Sequence[str], site_folders: Sequence[Path]) -> None:
    """Raise ConfigError where the server's file is also that of a site: its images would be called public."""
    own = find_site_file(SERVER, site_folders)
    if own is None:
        return
    for site in sites:
        file = find_site_file(site, site_folders)
        if file is not None and file.samefile(own):
            raise ConfigError(
                f"the server's own images, {own}",
                expected="a file that is no site's",
                found=f"that of {site}, {file}",
                remedy=f"Let {SERVER}.yaml name public images, or remove it.",
            )


class PublicImages(Site):
    """Images on which the server judges models, from which it learns without labels, or that a report shows.

    Args:
        experiment: what the job says.
        folder: for the cache of decoded images.
        site_folders: where ``server.yaml`` may lie.
    """

    def __init__(self, experiment: Experiment, folder: Path, site_folders: Sequence[Path]) -> None:
        super().__init__(SERVER, experiment, folder, site_folders)

    @property
    def there(self) -> bool:
        """Whether the server has a file of its own, or synthetic images among sites that have nothing else either."""
        synthetic = self.experiment.synthetic is not None and not site_files(self.site_folders)
        return synthetic or find_site_file(SERVER, self.site_folders) is not None

    @property
    def number(self) -> int:
        """How many images there are to learn from: training and validation images, as labels are not looked at."""
        return len(self._pixels("all")) if self.there else 0

    def accuracy(self, state: State) -> float:
        """Return a model's accuracy on the validation images, in [0, 1]."""
        rows = self.evaluate(dict(state), ("val",))
        return float(next(row["value"] for row in rows if row["name"] == "accuracy"))

    def require_validation(self) -> None:
        """Raise ConfigError if there is nothing to judge models by, before the first round rather than after it."""
        if not (self.there and len(self.data.val)):
            raise ConfigError(
                f"method {self.experiment.method}",
                expected="labelled validation images at the server to judge models by",
                found=self._nothing,
                remedy="Give the server such a file, or set policy=static or policy=gated_similarity.",
            )

    def require(self) -> None:
        """Raise ConfigError if there is nothing to learn from, before the first round rather than in a late one."""
        if not self.number:
            raise ConfigError(
                f"method {self.experiment.method}",
                expected="public images at the server to learn from without labels",
                found=self._nothing,
                remedy="Give the server such a file, or set contrastive=client or contrastive=off.",
            )

    def learn(
        self, model: State, round_: int, task: str, memory: MutableMapping[str, State]
    ) -> tuple[State, dict[str, float]]:
        """Train a model as a site does for a task; return it with the mean losses. ``memory`` is changed.

        Raises WorkError if the loss is no longer finite.
        """
        try:
            trained, _, means = self.train(model, [], round_, task=task, memory=memory)
        except WorkError as error:
            raise WorkError(
                f"{SERVER}, {task}, round {round_}",
                expected=error.expected,
                found=error.found,
                remedy="Lower contrastive_rate or set clip_gradient.",
            ) from error
        return trained, means

    def first(self, count: int) -> Tensor:
        """Return (N, C, H, W) float32 in [0, 1]: so many validation images, else others; fewer where there are."""
        data = self.experiment.data
        names = ("val", "labelled", "unlabelled") if self.there else ()
        parts = [part.take(torch.arange(min(len(part), count))).cpu() for part in map(self._pixels, names)]
        return torch.cat([torch.empty(0, data.channels, data.image_size, data.image_size), *parts])[:count]

    def pictures(self, model: State, images: Tensor) -> dict[str, Tensor]:
        """Return the method's pictures of a model's work on images, by name: each (N, C, H, W) on the CPU."""
        net = self._load(self._net, model).eval()
        show = self._method.pictures
        return {name: shown.cpu() for name, shown in show(net, images.to(self.device)).items()} if show else {}

    @property
    def _nothing(self) -> str:
        return f"{SERVER}.yaml names none" if self.there else f"no file {SERVER}.yaml and no synthetic images"

    def _pixels(self, part: str) -> Pixels:
        if part == "all" and part not in self._parts:
            self._parts[part] = Pixels.together([self._pixels(name) for name in ("labelled", "unlabelled", "val")])
        return super()._pixels(part)
