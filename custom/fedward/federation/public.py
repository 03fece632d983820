"""The server's own public images: no site's, and none that a site is tested on."""

from collections.abc import MutableMapping, Sequence
from pathlib import Path

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.federation.site import Site
from fedward.methods.workflow import State
from fedward.sites import find_site_file
from fedward.training.batches import Pixels

SERVER = "server"
"""The name under which they are found: as a site's, in ``server.yaml``, or among the stand-in data."""


class PublicImages(Site):
    """Images on which the server judges models, or from which it learns without labels.

    Args:
        experiment: what the job says.
        folder: for the cache of decoded images.
        site_folders: where ``server.yaml`` may lie.
    """

    def __init__(self, experiment: Experiment, folder: Path, site_folders: Sequence[Path]) -> None:
        super().__init__(SERVER, experiment, folder, site_folders)

    @property
    def number(self) -> int:
        """How many images there are to learn from: training and validation images, as labels are not looked at."""
        return len(self._pixels("all"))

    def accuracy(self, state: State) -> float:
        """Return a model's accuracy on the validation images, in [0, 1]."""
        rows = self.evaluate(dict(state), ("val",))
        return float(next(row["value"] for row in rows if row["name"] == "accuracy"))

    def require(self) -> None:
        """Raise ConfigError if there is nothing to learn from, before the first round rather than in a late one."""
        there = self.experiment.stand_in is not None or find_site_file(SERVER, self.site_folders) is not None
        if not there or not self.number:
            raise ConfigError(
                f"method {self.experiment.method}",
                expected="public images at the server to learn from without labels",
                found=f"{SERVER}.yaml names none" if there else f"no file {SERVER}.yaml and no stand-in data",
                remedy="Give the server such a file, or set contrastive=client or contrastive=off.",
            )

    def learn(
        self, model: State, round_: int, task: str, memory: MutableMapping[str, State]
    ) -> tuple[State, dict[str, float]]:
        """Train a model as a site does for a task; return it with the mean losses. ``memory`` is changed."""
        trained, _, means = self.train(model, [], round_, task=task, memory=memory)
        return trained, means

    def _pixels(self, part: str) -> Pixels:
        if part == "all" and part not in self._parts:
            self._parts[part] = Pixels.together([self._pixels(name) for name in ("labelled", "unlabelled", "val")])
        return super()._pixels(part)
