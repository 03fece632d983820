"""The public functions: what one does with experiments, runs and models in Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn

from fedward.config import Experiment
from fedward.errors import ConfigError, RunError
from fedward.jobs import changed_experiment, simulated_sites
from fedward.local import run_local
from fedward.nets.trainable import TrainablePart
from fedward.registry import KINDS
from fedward.report.run import Run
from fedward.sites import named_sites
from fedward.sites.images import check_not_blank, decode, fit
from fedward.storage.checkpoint import StoredState
from fedward.storage.info import read_info
from fedward.storage.initial import network_of
from fedward.storage.run_folder import RunFolder


def experiment(job: str, **settings: Any) -> Experiment:
    """Return an experiment to run.

    >>> experiment("fedavg", rounds=2, seed=7, data={"image_size": 28}).options["rounds"]
    2

    Args:
        job: one of those that ship (:data:`fedward.jobs.JOBS`), any method's name, for the defaults of that method, or
            a JSON file with an experiment.
        settings: fields of :class:`~fedward.config.Experiment` or settings of the method. ``data`` and ``synthetic``
            are mappings, of which fields that are not named stay as they are.

    Raises:
        ConfigError: an unknown job, or a setting that is unknown or wrong.
    """
    changes: dict[str, Any] = {}
    for key, value in settings.items():
        nested = value if key in ("data", "synthetic") and isinstance(value, dict) else None
        changes |= {key: value} if nested is None else {f"{key}.{field}": each for field, each in nested.items()}
    return changed_experiment(job, changes)


def run(
    experiment: Experiment,
    folder: Path | str,
    *,
    sites: Sequence[str] | None = None,
    site_files: Path | str | None = None,
    init: Path | str | None = None,
    resume: bool = False,
    workers: int = 1,
) -> Run:
    """Run an experiment to its end on this machine, all its sites included, and return what it did.

    Args:
        experiment: of :func:`experiment`; a run that is resumed has its own, and this one must be equal.
        folder: the run folder; it must be new, or with ``resume`` that of an interrupted run.
        sites: their names; by default those of ``site_files``, else the experiment's synthetic ones.
        site_files: folder with a file ``SITE.yaml`` for each site, which says where its images are.
        init: folder of a finished run, from whose weights this one starts.
        resume: go on from the last finished round.
        workers: processes in which the sites of a round work at the same time; the result does not depend on it.

    Raises:
        FedwardError: what :func:`fedward.local.run_local` raises.
    """
    path, folders, start = Path(folder), [Path(site_files)] if site_files else [], Path(init) if init else None
    names = sites or (named_sites(folders[0]) if folders else simulated_sites(experiment))
    if resume:
        RunFolder.reopen(path, experiment)
    return Run.load(
        run_local(experiment, path, sites=names, resume=resume, site_folders=folders, init=start, workers=workers)
    )


class TrainedModel(nn.Module):
    """The model of a finished run, in evaluation mode; see :func:`load_model`."""

    def __init__(self, net: nn.Module, experiment: Experiment) -> None:
        super().__init__()
        self.net, self.experiment = net.eval(), experiment

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the columns."""
        return self.experiment.data.classes

    def read(self, files: Sequence[Path | str | Image.Image]) -> Tensor:
        """Return files or Pillow's images, prepared as at a site: (N, channels, size, size) float32 in [0, 1].

        Raises:
            BadRow: a file that is no image, or one that a site would reject.
        """
        data, read = self.experiment.data, list[Tensor]()
        for file in files:
            if isinstance(file, Image.Image):
                pixels = fit(file, data.image_size, data.channels)
                check_not_blank(pixels)
            else:
                pixels = decode(Path(file), data.image_size, data.channels)
            read.append(torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255)
        return torch.stack(read) if read else torch.empty(0, data.channels, data.image_size, data.image_size)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return probabilities (N, classes), float32.

        Args:
            images: (N, channels, size, size) float in [0, 1], as :meth:`read` returns them, not too many at once.

        Raises:
            ConfigError: images of another shape or type, or outside [0, 1].
        """
        data = self.experiment.data
        shape = (data.channels, data.image_size, data.image_size)
        good = images.shape[1:] == shape and images.is_floating_point()
        if not good or (len(images) and not 0 <= float(images.min()) <= float(images.max()) <= 1):
            expected = f"float (N, {', '.join(map(str, shape))}) in [0, 1]"
            found = "values outside" if good else f"{images.dtype} of shape {tuple(images.shape)}"
            remedy = "Read files with model.read(files)."
            raise ConfigError("images for a trained model", expected=expected, found=found, remedy=remedy)
        if not len(images):  # many networks cannot compute no images
            return images.new_empty(0, len(self.classes))
        return torch.softmax(self.net(images).float(), dim=1)


def load_model(folder: Path | str, which: Literal["model", "best"] = "model") -> TrainedModel:
    """Return the model of a finished run, ready for images; on the CPU.

    >>> model = load_model("runs/fedavg")               # doctest: +SKIP
    >>> model(model.read(["lesion.jpg"])).argmax(1)     # doctest: +SKIP

    Args:
        folder: of a run that has finished, or of results that FLARE downloaded.
        which: the last round's model, or that of the ``best`` single round by validation.

    Raises:
        ConfigError: the run has not finished, trained no classifier, or each site kept its own.
        RunError: it is no run folder, a file is damaged, or what was frozen in the run is another here.
    """
    where, info = Path(folder), read_info(Path(folder))
    file = where / f"{which}.safetensors"
    if info.status != "finished" or info.untrained or info.private or not file.exists():
        found = f"one that is {info.status}, without such a model or without a classifier that all sites trained"
        remedy = "Name another run, or another model of it."
        raise ConfigError(f"run {folder}", expected=f"a finished run and its {file.name}", found=found, remedy=remedy)
    spec = Experiment.parse(info.experiment, f"run folder {folder}")
    # Where all has trained, the weights that it began with may be nowhere here.
    net = network_of(spec if info.base else spec.model_copy(update={"pretrained": False}))
    if isinstance(net, TrainablePart) and net.base != info.base:
        remedy = "Use the weights, and the versions of fedward, timm and torch, that the run had."
        raise RunError(f"run {folder}, frozen part", expected=f"SHA-256 {info.base}", found=net.base, remedy=remedy)
    net.load_state_dict(StoredState(file))
    return TrainedModel(net.whole if isinstance(net, TrainablePart) else net, spec)


def register(name: str, thing: Any, kind: str = "method") -> None:
    """Give a class or function a name that experiments of this process may use; a package's entry point is for all.

    A name that was registered before is taken over, so that a notebook's cell can be run again.

    Args:
        name: one that neither fedward nor an installed package has.
        thing: what docs/extending.md says of its kind; for a method its class.
        kind: ``method``, ``network``, ``sampler``, ``view`` or ``metric``.

    Raises:
        ConfigError: another kind, a name that is taken, or a thing of another kind.
    """
    if kind not in KINDS:
        remedy = "Name one of them."
        raise ConfigError("fedward.register", expected=f"a kind of {', '.join(KINDS)}", found=repr(kind), remedy=remedy)
    KINDS[kind].register(name, thing)
