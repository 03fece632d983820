"""A model as a MONAI bundle, which MONAI's tools run without fedward."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile
from typing import Any

from fedward.disk import save_json
from fedward.errors import ConfigError, listed
from fedward.inference.card import RESEARCH_ONLY, ModelCard
from fedward.inference.export import quiet, traced
from fedward.inference.model import TrainedModel
from fedward.inference.whole import appears_whole
from fedward.sites import decoding

_SCHEMA = (
    "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/"
    "meta_schema_20240725.json"
)
_BATCH = 64
_CODE = ("$", "%", "@")
"""How a text begins that MONAI's tools run, read as a file, or take for a part of the bundle."""


def write_bundle(model: TrainedModel, run: Path, folder: Path) -> None:
    """Write a bundle into a new folder, with configurations, the model, its card and a script.

    ``scripts/decoding.py`` is a copy of the file with which sites read their images, so that pixels
    are the same.

    Args:
        model: of this run.
        run: the run folder, from which the model card is made.
        folder: new or empty.

    Raises:
        ConfigError: there are files in the folder, or MONAI would run the name of a class as code.
        RunError: the network cannot be exported as TorchScript.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--bundle {folder}",
            "Name another folder.",
            expected="a new folder",
            found="files in it",
        )
    code = [name for name in model.classes if name.startswith(_CODE)]
    if code:
        raise ConfigError(
            "--bundle, data.classes",
            "MONAI may run it: use --onnx instead.",
            expected=f"names without {' '.join(_CODE)} before them",
            found=f"{code[0]!r:.80}",
        )
    # MONAI takes seconds to import.
    from monai.data import save_net_with_metadata

    card = ModelCard.of(model, run)
    script = traced(model)
    described = metadata(model, card)
    with appears_whole(folder) as partial:
        save_json(partial / "configs" / "metadata.json", described)
        save_json(partial / "configs" / "inference.json", inference(model))
        for name in ("models", "docs", "scripts"):
            (partial / name).mkdir()
        with quiet(), (partial / "models" / "model.ts").open("wb") as file:
            save_net_with_metadata(script, file, meta_values=described)
        (partial / "docs" / "README.md").write_text(card.text(), encoding="utf-8")
        (partial / "scripts" / "__init__.py").touch()
        copyfile(decoding.__file__, partial / "scripts" / "decoding.py")


def metadata(model: TrainedModel, card: ModelCard) -> dict[str, Any]:
    """Return ``metadata.json``, in the fields of MONAI's schema."""
    channels, size, _ = model.image_shape
    tensor = {"dtype": "float32", "value_range": [0, 1], "is_patch_data": False}
    image = {
        "type": "image",
        "format": "magnitude",
        "modality": "n/a",
        "num_channels": channels,
        **tensor,
    }
    colours = ["grey"] if channels == 1 else ["red", "green", "blue"]
    image |= {"spatial_shape": [size, size], "channel_def": _numbered(colours)}
    probabilities = {
        "type": "probabilities",
        "format": "classes",
        **tensor,
        "num_channels": len(model.classes),
        "spatial_shape": [],
        "channel_def": _numbered(model.classes),
    }
    return {
        "schema": _SCHEMA,
        "version": "0.1.0",
        "changelog": {"0.1.0": "exported by fedward"},
        "monai_version": version("monai"),
        "pytorch_version": version("torch"),
        "numpy_version": version("numpy"),
        "required_packages_version": {name: version(name) for name in ("pillow", "pytorch-ignite")},
        "task": f"{model.label_kind.task} of 2D images as {listed(model.classes)}",
        "description": card.summary,
        "authors": f"the sites {', '.join(card.sites)}",
        "copyright": "not stated",
        "intended_use": RESEARCH_ONLY,
        "eval_metrics": card.means,
        "network_data_format": {
            "inputs": {"image": image},
            "outputs": {"pred": probabilities},
        },
    }


def inference(model: TrainedModel) -> dict[str, Any]:
    """Return ``inference.json``, which writes a CSV of path and probabilities of each image."""
    channels, size, _ = model.image_shape
    pixels = f"torch.from_numpy(decode(Path(file), {size}, {channels}, @fit).copy())"
    return {
        "imports": [
            "$import torch",
            "$from pathlib import Path",
            "$from scripts.decoding import decode",
        ],
        "bundle_root": ".",
        "dataset_dir": "$@bundle_root + '/images'",
        "output_dir": "$@bundle_root + '/output'",
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "fit": "squash",
        "endings": sorted(decoding.ENDINGS),
        "files": "$sorted(str(file) for file in Path(@dataset_dir).rglob('*') "
        "if file.suffix.lower() in @endings)",
        "network_def": "$torch.jit.load(@bundle_root + '/models/model.ts', map_location=@device)",
        "preprocessing": {
            "_target_": "Lambdad",
            "keys": "image",
            "func": f"$lambda file: {pixels}.permute(2, 0, 1) / 255",
        },
        "dataset": {
            "_target_": "Dataset",
            "data": "$[{'image': file, 'file': file} for file in @files]",
            "transform": "@preprocessing",
        },
        "dataloader": {"_target_": "DataLoader", "dataset": "@dataset", "batch_size": _BATCH},
        "inferer": {"_target_": "SimpleInferer"},
        "handlers": [
            {
                "_target_": "ClassificationSaver",
                "output_dir": "@output_dir",
                "batch_transform": "$lambda batch: "
                "[{'filename_or_obj': image['file']} for image in batch]",
                "output_transform": "$monai.handlers.from_engine(['pred'])",
            }
        ],
        "evaluator": {
            "_target_": "SupervisedEvaluator",
            "device": "@device",
            "val_data_loader": "@dataloader",
            "network": "@network_def",
            "inferer": "@inferer",
            "val_handlers": "@handlers",
        },
        "run": ["$@evaluator.run()"],
    }


def _numbered(names: Sequence[str]) -> dict[str, str]:
    return {str(place): name for place, name in enumerate(names)}
