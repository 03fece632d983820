"""A model in formats that other programs run, ONNX and TorchScript, with its probabilities."""

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

from fedward.code_version import code_version
from fedward.errors import ConfigError, RunError, interruption
from fedward.inference.model import TrainedModel
from fedward.inference.whole import appears_whole
from fedward.seeds import torch_generator
from fedward.text import count

INPUT = "image"
"""Name of an ONNX file's input, (N, channels, size, size) float32 in [0, 1]."""
OUTPUT = "probabilities"
"""Name of an ONNX file's output, (N, classes) float32."""
TOLERANCE = 1e-5
"""By how much the probabilities of an exported model may differ."""
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""Packages that write and check ONNX files."""


def require_onnx() -> None:
    """Raise ConfigError unless the packages that write and check ONNX files are installed."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            "--onnx",
            'Run: pip install "fedward[export]"',
            expected=f"the packages {', '.join(_PACKAGES)}",
            found=f"no {' and no '.join(missing)}",
        )


def facts(model: TrainedModel) -> dict[str, str]:
    """Return the description that an exported file carries, name -> text or JSON."""
    channels, size, _ = model.image_shape
    return {
        "fedward": code_version(),
        "model_sha256": model.sha256,
        "method": model.experiment.method,
        "image_size": json.dumps(size),
        "channels": json.dumps(channels),
        "classes": json.dumps(list(model.classes)),
        "multi_label": json.dumps(model.label_kind.multi_label),
        "temperature": json.dumps(model.temperature),
    }


def write_torchscript(model: TrainedModel, out: Path) -> None:
    """Write a TorchScript file for any number of images.

    It holds :func:`facts` as ``metadata.json``.

    Raises:
        RunError: the file gives other probabilities.
    """
    script = traced(model)
    with appears_whole(out) as partial, partial.open("wb") as file, quiet():
        torch.jit.save(script, file, _extra_files={"metadata.json": json.dumps(facts(model))})


def traced(model: TrainedModel) -> torch.jit.ScriptModule:
    """Return a model as TorchScript; RunError if that gives other probabilities."""
    net = _whole(model)
    with quiet(), torch.no_grad():
        script: torch.jit.ScriptModule = torch.jit.trace(net, _images(model, 2), check_trace=False)
    _require_agreement(model, net, script, "TorchScript")
    return script


def write_onnx(model: TrainedModel, out: Path) -> None:
    """Write an ONNX file for any number of images, with :func:`facts` as its metadata.

    Raises:
        ConfigError: the packages for it are missing.
        RunError: torch cannot export the network, or the file gives other probabilities in ONNX
            Runtime.
    """
    require_onnx()
    net = _whole(model)
    batch = torch.export.Dim("N")
    with appears_whole(out) as partial:
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
        except Exception as error:  # torch fails in many ways at a network it cannot export
            stop = interruption(error)
            if stop:
                raise type(stop) from error
            # The text of torch's own error is advice for developers, in colours.
            cause = error.__cause__ or error
            reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
            raise RunError(
                f"ONNX of net {model.experiment.net}",
                "Export TorchScript or a bundle, or train another network.",
                expected="what torch exports",
                found=f"{reason:.300}",
            ) from error
        program.model.metadata_props.update(facts(model))
        program.save(partial, external_data=False)
        _require_agreement(model, net, _session(partial), "ONNX")


def _session(file: Path) -> Callable[[Tensor], Tensor]:
    """Return a function that runs an ONNX file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run([OUTPUT], {INPUT: images.numpy()})[0])


def _whole(model: TrainedModel) -> nn.Module:
    """Return the network with the layer that makes probabilities."""
    logits = copy.deepcopy(model.tempered).cpu()
    probabilities = model.label_kind.outputs.layer()
    return nn.Sequential(logits, probabilities).eval().requires_grad_(False)


def _images(model: TrainedModel, number: int) -> Tensor:
    """Return random images of the model's shape."""
    return torch.rand(number, *model.image_shape, generator=torch_generator(0, "export", number))


def _require_agreement(
    model: TrainedModel, net: nn.Module, other: Callable[[Tensor], Tensor], kind: str
) -> None:
    """Raise RunError if an exported model gives other probabilities.

    A network may compute differently with another number of images, so two numbers are tried.
    """
    for number in (1, 3):
        images = _images(model, number)
        with torch.no_grad():
            probabilities = net(images)
            try:
                largest = float((other(images) - probabilities).abs().max())
                found = f"a difference of {largest:.2g}"
            except Exception as error:  # another program fails in many ways at a file
                largest = float("inf")
                found = f"{type(error).__name__}: {error}"
        if not largest <= TOLERANCE:
            raise RunError(
                f"{kind} of net {model.experiment.net}",
                "Use another format: this network computes what this one cannot hold.",
                expected=f"its probabilities of {count(number, 'image')}",
                found=f"{found:.300}",
            )


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress what torch logs and warns for developers while it exports."""
    log = logging.getLogger("torch")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
