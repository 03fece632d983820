"""Loads the model of a finished run, checks it, and applies it to images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fedward.config import Experiment
from fedward.digests import file_digest
from fedward.errors import ConfigError, DataError, RunError
from fedward.inference.calibration import temperature_of
from fedward.label_kinds import LabelKind
from fedward.methods import method_of
from fedward.nets.trainable import TrainablePart
from fedward.runs.standing import unfinished
from fedward.sites.decoding import BadRow, Fit, Pixels, check_not_blank, fit
from fedward.sites.images import decode_file
from fedward.sites.rendering import Rendering
from fedward.starting_model import network_of
from fedward.storage import audit
from fedward.storage.info import RunInfo, read_info
from fedward.storage.model_files import StoredState


class Tempered(nn.Module):
    """A network whose logits are divided by a temperature, or by one for each class.

    Shape: (N, C, H, W) in [0, 1] to (N, classes), float32.
    """

    def __init__(self, net: nn.Module, temperature: float | tuple[float, ...]) -> None:
        super().__init__()
        self.net = net
        self.temperature = temperature

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits divided by the temperature."""
        logits: Tensor = self.net(images).float()
        if isinstance(self.temperature, tuple):
            return logits / logits.new_tensor(self.temperature)
        return logits / self.temperature


class TrainedModel(nn.Module):
    """The model of a finished run, in evaluation mode; see :func:`load_model`."""

    def __init__(
        self,
        net: nn.Module,
        experiment: Experiment,
        sha256: str,
        temperature: float | tuple[float, ...] = 1.0,
    ) -> None:
        super().__init__()
        self.net = net.eval()
        """The network, from images to logits."""
        self.experiment = experiment
        """The experiment that the model was trained by."""
        self.sha256 = sha256
        """SHA-256 of the model's file."""
        self.temperature = temperature
        """Divides the logits: one number, or for a multi-label model one for each class."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the columns."""
        return self.experiment.data.classes

    @property
    def label_kind(self) -> LabelKind:
        """Whether an image shows exactly one class or any of them; it decides the outputs."""
        return self.experiment.data.label_kind

    @property
    def tempered(self) -> Tempered:
        """The network with its temperature; softmax or sigmoid makes its outputs probabilities."""
        return Tempered(self.net, self.temperature).eval()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        data = self.experiment.data
        return data.channels, data.image_size, data.image_size

    def read(self, files: Sequence[Path | str | Image.Image], fit: Fit = "squash") -> Tensor:
        """Return images prepared as at a site: (N, channels, size, size) float32 in [0, 1].

        Args:
            files: paths of image files, or Pillow's images.
            fit: how pictures become squares; choose what the site's file says.

        Raises:
            ConfigError: a single file instead of a list.
            DataError: a file is not an image, or a site would reject it; the text names it.
        """
        if isinstance(files, str | Path | Image.Image):
            raise ConfigError(
                "model.read",
                "Write model.read([file]).",
                expected="a list of files",
                found=f"{files}",
            )
        images = [
            torch.from_numpy(self._pixels(file, fit)).permute(2, 0, 1) / 255 for file in files
        ]
        return torch.stack(images) if images else torch.empty(0, *self.image_shape)

    def _pixels(self, file: Path | str | Image.Image, how: Fit) -> Pixels:
        size = self.experiment.data.image_size
        channels = self.experiment.data.channels
        try:
            if not isinstance(file, Image.Image):
                # A file of several frames or slices is refused, so the only suffix is the empty
                # one. The copy is writable, as torch requires.
                return decode_file(Path(file), size, channels, Rendering(fit=how))[""].copy()
            pixels = fit(file, size, channels, how).copy()
            check_not_blank(pixels)
        except BadRow as problem:
            raise DataError(
                f"image {file}: {problem}",
                "Leave it out: `fedward predict` goes on without such images.",
            ) from problem
        return pixels

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return probabilities (N, classes), float32.

        Without a temperature they are the same that the run's metrics were computed from.

        Args:
            images: (N, channels, size, size) float in [0, 1], as :meth:`read` returns them. All
                go through the network at once, so memory limits their number.

        Raises:
            ConfigError: images of another shape or type, or outside [0, 1]; a list of images.
        """
        self._check(images)
        # Many networks fail without any image.
        if not len(images):
            return images.new_empty(0, len(self.classes))
        logits = self.tempered(images)
        return self.label_kind.outputs.probabilities(logits)

    def _check(self, images: object) -> None:
        """Raise ConfigError for images that :meth:`forward` does not accept."""
        found = ""
        if isinstance(images, np.ndarray):
            found = f"ndarray {images.dtype} of {images.shape}"
        elif not isinstance(images, Tensor):
            found = f"a {type(images).__name__}"
        elif images.shape[1:] != self.image_shape or not images.is_floating_point():
            found = f"{type(images).__name__} {images.dtype} of {tuple(images.shape)}"
        elif len(images) and not 0 <= float(images.min()) <= float(images.max()) <= 1:
            found = "values outside"
        if found:
            raise ConfigError(
                "images for a trained model",
                "Read files with model.read(files), or stack tensors with torch.stack(images).",
                expected=f"float (N, {', '.join(map(str, self.image_shape))}) in [0, 1]",
                found=found,
            )


def load_model(
    folder: Path | str,
    which: Literal["best", "last"] = "best",
    calibration: Path | str | None = None,
) -> TrainedModel:
    """Return the model of a finished run, ready for images, on the CPU.

    Args:
        folder: of a finished run, or of results that FLARE downloaded.
        which: the model of the ``best`` single round by validation, which report.html describes, or
            of the ``last`` round. A run without validation has only the last one.
        calibration: the file that ``fedward evaluate`` wrote about this model. Its temperature is
            used, or for a multi-label model one for each class. By default it is 1.

    Raises:
        ConfigError: the run has not finished, trained no classifier, or each site kept its own; or
            the calibration is of another model, or without a temperature.
        RunError: the folder is not a run folder; a file is damaged, not of this network, or not the
            one that the audit log names; or the network's frozen part differs on this machine.

    Examples:
        >>> model = load_model("runs/fedavg")  # doctest: +SKIP
        >>> model(model.read(["lesion.jpg"])).argmax(1)  # doctest: +SKIP
    """
    if not isinstance(folder, str | Path):
        raise ConfigError(
            "folder=", "Name a run folder.", expected="a path", found=f"{folder!r:.100}"
        )
    if which not in ("best", "last"):
        raise ConfigError(
            "which=", "Name one of them.", expected="best or last", found=f"{which!r:.100}"
        )
    run = Path(folder)
    info = read_info(run)
    best = which == "best" and info.summary.best_round is not None
    file = run / ("best.safetensors" if best else "model.safetensors")
    _require_usable(run, file, info)
    sha256 = _checked_digest(file)
    spec = Experiment.parse(info.experiment, f"run folder {folder}")
    temperature: float | tuple[float, ...] = 1.0
    if calibration:
        temperature = temperature_of(
            Path(calibration), sha256, spec.data.classes, spec.data.label_kind
        )
    net_spec = spec
    if not info.base:
        # The whole network was trained and is in the file. So the weights that it started from are
        # not needed, and this machine may not have them.
        net_spec = spec.model_copy(update={"pretrained": False})
    net = network_of(net_spec, method_of(spec))
    if isinstance(net, TrainablePart) and net.base != info.base:
        raise RunError(
            f"run {folder}, frozen part",
            "Use the weights, and the versions of fedward, timm and torch, that the run had.",
            expected=f"SHA-256 {info.base}",
            found=net.base,
        )
    _load(net, file)
    whole = net.whole if isinstance(net, TrainablePart) else net
    return TrainedModel(whole, spec, sha256, temperature)


def _load(net: nn.Module, file: Path) -> None:
    """Load a network's tensors; RunError unless they are the network's own, and finite."""
    problem = _load_problem(net, StoredState(file))
    if problem:
        raise RunError(
            f"model {file}",
            "Restore the run folder.",
            expected="finite numbers for all tensors of the run's network",
            found=problem,
        )


def _load_problem(net: nn.Module, state: StoredState) -> str:
    """Load tensors into a network and return what is wrong with them; empty if nothing is."""
    types = {name: tensor.dtype for name, tensor in net.state_dict().items()}
    for name in types.keys() & set(state):
        # torch would cast a tensor of another type without a word.
        if state.dtype(name) != types[name]:
            return f"{name} of type {state.dtype(name)}, not {types[name]}"
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        # torch reports names and shapes in several indented lines.
        return " ".join(f"{error}".split())[:300]
    for name, tensor in net.state_dict().items():
        if not bool(tensor.isfinite().all()):
            return f"numbers in {name} that are not finite"
    return ""


def _require_usable(folder: Path, file: Path, info: RunInfo) -> None:
    """Raise ConfigError unless a run has finished and ``file`` is a whole model of it."""
    if info.status != "finished":
        found, remedy = unfinished(folder, info)
    elif info.untrained:
        found = "one that only pre-trained: no round trained its classifier"
        remedy = "Fine-tune it: start a run from it."
    elif info.models_stay_at_sites:
        found = "one in which each site trained alone and kept its model"
        remedy = "Name another run."
    elif info.private:
        found = "one in which each site kept its own classifier, so that no model is whole"
        remedy = "Let classifiers travel (SelfFed: upload=model), or name another run."
    elif not file.exists():
        found = f"no {file.name}"
        remedy = "Name another run, or another model of it."
    else:
        return
    raise ConfigError(f"run {folder}", remedy, expected="a finished run with a model", found=found)


def _checked_digest(file: Path) -> str:
    """Return a model's SHA-256; RunError unless the audit log's row on the run's end has it."""
    end_row = next(audit.rows(file.parent, "ended"), None)
    recorded = end_row["details"]["files"].get(file.name) if end_row else None
    digest = file_digest(file)
    if digest != recorded:
        expected = f"an {audit.LOG} that names it"
        if recorded:
            expected = f"SHA-256 {recorded}, by {audit.LOG}"
        raise RunError(
            f"model {file}",
            "Restore the run folder; `fedward audit verify` checks all of it.",
            expected=expected,
            found=digest,
        )
    return digest
