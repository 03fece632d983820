"""The model of a finished run, loaded and checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

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
from fedward.sites.decoding import BadRow, Pixels, check_not_blank, fit
from fedward.sites.images import decode_file
from fedward.starting_model import network_of
from fedward.storage import audit
from fedward.storage.checkpoint import StoredState
from fedward.storage.info import RunInfo, read_info


class Tempered(nn.Module):
    """A network whose logits are divided by a temperature.

    Shape: (N, C, H, W) in [0, 1] to (N, classes), float32.
    """

    def __init__(self, net: nn.Module, temperature: float | tuple[float, ...]) -> None:
        super().__init__()
        self.net = net
        self.temperature = temperature

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits over the temperature."""
        logits: Tensor = self.net(images).float()
        return logits / (
            logits.new_tensor(each) if isinstance(each := self.temperature, tuple) else each
        )


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
        """From images to logits."""
        self.experiment = experiment
        self.sha256 = sha256
        self.temperature = temperature

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the columns."""
        return self.experiment.data.classes

    @property
    def label_kind(self) -> LabelKind:
        """What an image may show, and so what the probabilities are of."""
        return self.experiment.data.label_kind

    @property
    def tempered(self) -> Tempered:
        """The network with its temperature, whose softmax, or sigmoid, the probabilities are."""
        return Tempered(self.net, self.temperature).eval()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        data = self.experiment.data
        return data.channels, data.image_size, data.image_size

    def read(self, files: Sequence[Path | str | Image.Image]) -> Tensor:
        """Return files or Pillow's images, prepared as at a site: (N, channels, size, size) float32
        in [0, 1].

        Raises:
            ConfigError: one file in place of a list of files.
            DataError: a file that is no image, or an image that a site would reject. It names the
                file.
        """
        if isinstance(files, str | Path | Image.Image):
            remedy = "Write model.read([file])."
            raise ConfigError(
                "model.read", expected="a list of files", found=f"{files}", remedy=remedy
            )
        read = [torch.from_numpy(self._pixels(file)).permute(2, 0, 1) / 255 for file in files]
        return torch.stack(read) if read else torch.empty(0, *self.image_shape)

    def _pixels(self, file: Path | str | Image.Image) -> Pixels:
        size = self.experiment.data.image_size
        channels = self.experiment.data.channels
        try:
            if not isinstance(file, Image.Image):
                return decode_file(Path(file), size, channels)[""].copy()
            pixels = fit(file, size, channels).copy()
            check_not_blank(pixels)
        except BadRow as bad:
            remedy = "Leave it out: `fedward predict` goes on without such images."
            expected, _, found = f"{bad}".removeprefix("expected ").rpartition(", found ")
            where = f"image {file}"
            expected = expected or "one that a site can use"
            raise DataError(
                where, expected=expected, found=found.removeprefix("found "), remedy=remedy
            ) from bad
        return pixels

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return probabilities (N, classes), float32, as the metrics of the run are of, but for the
        temperature.

        Args:
            images: (N, channels, size, size) float in [0, 1], as :meth:`read` returns them, not too
                many at once.

        Raises:
            ConfigError: images of another shape or type, or outside [0, 1].
        """
        good = (
            isinstance(images, Tensor)
            and images.shape[1:] == self.image_shape
            and images.is_floating_point()
        )
        if not good or (len(images) and not 0 <= float(images.min()) <= float(images.max()) <= 1):
            expected = f"float (N, {', '.join(map(str, self.image_shape))}) in [0, 1]"
            found = (
                "values outside"
                if good
                else f"{type(images).__name__} {images.dtype} of {tuple(images.shape)}"
            )
            remedy = "Read files with model.read(files)."
            raise ConfigError(
                "images for a trained model", expected=expected, found=found, remedy=remedy
            )
        if not len(images):  # many networks cannot compute no images
            return images.new_empty(0, len(self.classes))
        logits = self.tempered(images)
        return self.label_kind.outputs.probabilities(logits)


def load_model(
    folder: Path | str,
    which: Literal["best", "last"] = "best",
    calibration: Path | str | None = None,
) -> TrainedModel:
    """Return the model of a finished run, ready for images; on the CPU.

    Args:
        folder: of a run that has finished, or of results that FLARE downloaded.
        which: the model of the ``best`` single round by validation, which report.html describes, or
            that of the ``last``. A run without validation has the last one only.
        calibration: what ``fedward evaluate`` wrote about this model: its temperature is used, of a
            multi-label model one for each class. By default it is 1.

    Raises:
        ConfigError: the run has not finished, trained no classifier, or each site kept its own; a
            calibration of another model, or without a temperature.
        RunError: it is no run folder, a file is damaged, not one of this network, or not the one
            that the audit log names; or what was frozen in the run is another here.

    Examples:
        >>> model = load_model("runs/fedavg")  # doctest: +SKIP
        >>> model(model.read(["lesion.jpg"])).argmax(1)  # doctest: +SKIP
    """
    where = Path(folder)
    info = read_info(Path(folder))
    best = which == "best" and info.summary.best_round is not None
    file = where / ("best.safetensors" if best else "model.safetensors")
    _require_usable(where, file, info)
    sha256 = _checked_digest(file)
    spec = Experiment.parse(info.experiment, f"run folder {folder}")
    told = (sha256, spec.data.classes, spec.data.label_kind)
    temperature = temperature_of(Path(calibration), *told) if calibration else 1.0
    # Where all of the network was trained, the weights it began with may be missing here.
    built = spec if info.base else spec.model_copy(update={"pretrained": False})
    net = network_of(built, method_of(spec))
    if isinstance(net, TrainablePart) and net.base != info.base:
        remedy = "Use the weights, and the versions of fedward, timm and torch, that the run had."
        raise RunError(
            f"run {folder}, frozen part",
            expected=f"SHA-256 {info.base}",
            found=net.base,
            remedy=remedy,
        )
    _load(net, file)
    return TrainedModel(
        net.whole if isinstance(net, TrainablePart) else net, spec, sha256, temperature
    )


def _load(net: nn.Module, file: Path) -> None:
    state = StoredState(file)
    types = {name: tensor.dtype for name, tensor in net.state_dict().items()}
    try:
        for name in types.keys() & set(state):
            if state.dtype(name) != types[name]:  # else it would be cast
                raise RuntimeError(f"{name} of type {state.dtype(name)}, not {types[name]}")
        net.load_state_dict(state)
        found = "others" * any(
            not bool(tensor.isfinite().all()) for tensor in net.state_dict().values()
        )
    except RuntimeError as error:
        found = " ".join(f"{error}".split())[:300]
    if found:
        expected = "finite numbers for all tensors of the run's network"
        remedy = "Restore the run folder."
        raise RunError(f"model {file}", expected=expected, found=found, remedy=remedy)


def _require_usable(folder: Path, file: Path, info: RunInfo) -> None:
    """Raise ConfigError unless a run has a whole model."""
    if info.status != "finished":
        found = f"one that is {info.status}"
        remedy = "Let it finish: `fedward run --resume FOLDER` continues it."
    elif info.untrained:
        found = "one that only pre-trained: no round trained its classifier"
        remedy = "Fine-tune it with --init."
    elif info.private:
        found = "one in which each site kept its own classifier, so that no model is whole"
        remedy = "Let classifiers travel (SelfFed: upload=model), or name another run."
    elif not file.exists():
        found = f"no {file.name}"
        remedy = "Name another run, or another model of it."
    else:
        return
    raise ConfigError(
        f"run {folder}", expected="a finished run with a model", found=found, remedy=remedy
    )


def _checked_digest(file: Path) -> str:
    """Return a model's SHA-256; RunError unless the run's audit log ends with it."""
    end = next(audit.rows(file.parent, "ended"), None)
    found = file_digest(file)
    recorded = end["details"]["files"].get(file.name) if end else None
    if found != recorded:
        expected = (
            f"SHA-256 {recorded}, by {audit.LOG}" if recorded else f"an {audit.LOG} that names it"
        )
        remedy = "Restore the run folder; `fedward audit verify` checks all of it."
        raise RunError(f"model {file}", expected=expected, found=found, remedy=remedy)
    return found
