"""A model in formats that other programs run: ONNX and TorchScript, from images in [0, 1] to
probabilities.
"""

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedward import __version__
from fedward.errors import ConfigError, RunError
from fedward.inference.model import TrainedModel
from fedward.inference.whole import whole
from fedward.seeds import torch_generator

INPUT = "image"
OUTPUT = "probabilities"
"""Names of an ONNX file's input (N, channels, size, size) and output (N, classes), both float32."""
TOLERANCE = 1e-5
"""By which probabilities of an exported model may differ."""
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def require_onnx() -> None:
    """Raise ConfigError unless what writes and checks ONNX files is installed."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        expected = f"the packages {', '.join(_PACKAGES)}"
        found = f"no {' and no '.join(missing)}"
        raise ConfigError(
            "--onnx", expected=expected, found=found, remedy='Run: pip install "fedward[export]"'
        )


def facts(model: TrainedModel) -> dict[str, str]:
    """Return what an exported file says of itself, name -> text or JSON."""
    channels, size, _ = model.image_shape
    about = {
        "fedward": __version__,
        "model_sha256": model.sha256,
        "method": model.experiment.method,
    }
    shape = {
        "image_size": size,
        "channels": channels,
        "classes": list(model.classes),
        "multi_label": model.label_kind.multi_label,
    }
    return about | {
        name: json.dumps(value)
        for name, value in (shape | {"temperature": model.temperature}).items()
    }


def write_torchscript(model: TrainedModel, out: Path) -> None:
    """Write a TorchScript file for any number of images, with :func:`facts` as ``metadata.json``
    inside.

    Raises RunError: what was written answers differently.
    """
    script = traced(model)
    with whole(out) as partial, partial.open("wb") as file, quiet():
        torch.jit.save(script, file, _extra_files={"metadata.json": json.dumps(facts(model))})


def traced(model: TrainedModel) -> torch.jit.ScriptModule:
    """Return a model as TorchScript, to its probabilities; RunError where that answers differently."""
    net = _whole(model)
    with quiet(), torch.no_grad():
        script: torch.jit.ScriptModule = torch.jit.trace(net, _images(model, 2), check_trace=False)
    _require_agreement(model, net, script, "TorchScript")
    return script


def write_onnx(model: TrainedModel, out: Path) -> None:
    """Write an ONNX file for any number of images, with :func:`facts` as its metadata.

    Raises:
        ConfigError: the packages for it are missing.
        RunError: torch cannot export the network, or what was written answers differently in ONNX
            Runtime.
    """
    require_onnx()
    net = _whole(model)
    batch = torch.export.Dim("N")
    with whole(out) as partial:
        try:
            with quiet(), torch.no_grad():
                program: Any = torch.onnx.export(
                    net,
                    (_images(model, 2),),
                    input_names=[INPUT],
                    output_names=[OUTPUT],
                    dynamic_shapes=({0: batch},),
                    dynamo=True,
                    verbose=False,
                )
        except Exception as error:  # whatever torch makes of a network that it cannot export
            if _interrupted(error):
                raise KeyboardInterrupt from error
            cause = error.__cause__ or error  # torch's own words are advice in colours
            where = f"ONNX of net {model.experiment.net}"
            found = f"{type(cause).__name__}: {cause}".splitlines()[0]
            remedy = "Export TorchScript or a bundle, or train another network."
            raise RunError(
                where, expected="what torch exports", found=f"{found:.300}", remedy=remedy
            ) from error
        program.model.metadata_props.update(facts(model))
        program.save(partial, external_data=False)
        _require_agreement(model, net, _session(partial), "ONNX")


def _interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C led to an error: torch takes it for a fault of the network."""
    while error and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _session(file: Path) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run([OUTPUT], {INPUT: images.numpy()})[0])


def _whole(model: TrainedModel) -> nn.Module:
    own = copy.deepcopy(model.tempered).cpu()
    return nn.Sequential(own, model.label_kind.outputs.layer()).eval().requires_grad_(False)


def _images(model: TrainedModel, number: int) -> Tensor:
    return torch.rand(number, *model.image_shape, generator=torch_generator(0, "export", number))


def _require_agreement(
    model: TrainedModel, net: nn.Module, other: Callable[[Tensor], Tensor], kind: str
) -> None:
    """Raise RunError where an exported model answers differently; a network may compute by the
    number of images.
    """
    for number in (1, 3):
        images = _images(model, number)
        with torch.no_grad():
            expected = net(images)
            try:
                largest = float((other(images) - expected).abs().max())
                found = f"a difference of {largest:.2g}"
            except (
                Exception
            ) as error:  # whatever another program makes of a file that it cannot run
                largest = float("inf")
                found = f"{type(error).__name__}: {error}"
        if not largest <= TOLERANCE:
            where = f"{kind} of net {model.experiment.net}"
            wanted = f"its probabilities of {number} images"
            remedy = "Use another format: this network computes what this one cannot hold."
            raise RunError(where, expected=wanted, found=f"{found:.300}", remedy=remedy)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what torch says to developers while it exports."""
    log = logging.getLogger("torch")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
