"""Sites whose images show several classes, or none."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fedward.config import DataSpec, Experiment
from tiny import tiny

FINDINGS = ("Mass", "Edema", "Hernia")
SPEC = DataSpec(
    name="chest", classes=FINDINGS, multi_label=True, image_size=16, channels=1, views="upright"
)
SHARES = (0.5, 0.3, 0.05)
"""Share of the images that show each finding. The last one is too rare to be evaluated."""


def drawn_images(images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return grey images (N, 16, 16) with a square per class, and labels (N, 3) of 0 and 1."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((images, len(FINDINGS))) < SHARES).astype(np.uint8)
    pixels = rng.integers(0, 100, (images, 16, 16))
    for place, corner in enumerate((slice(0, 5), slice(5, 10), slice(10, 15))):
        pixels[:, corner, corner] += 140 * labels[:, place, None, None]
    return pixels.astype(np.uint8), labels


def write_findings(folder: Path, sites: int = 2, **fields: Any) -> Path:
    """Write ``chest.npz`` as ChestMNIST has it, and site files; return the folder."""
    arrays = {}
    sizes = {"train": 90, "val": 60, "test": 80}
    for seed, (split, images) in enumerate(sizes.items()):
        pixels, labels = drawn_images(images, seed)
        arrays[f"{split}_images"] = pixels
        arrays[f"{split}_labels"] = labels
    out = folder / "sites"
    out.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "chest.npz", **arrays)
    for number in range(sites):
        content = {
            "kind": "npz",
            "file": "../chest.npz",
            "labels": dict(enumerate(FINDINGS)),
            "indices": {split: list(range(number, n, sites)) for split, n in sizes.items()},
        }
        text = yaml.safe_dump({**content, "labelled": 0.5, **fields})
        (out / f"site-{number + 1}.yaml").write_text(text)
    return out


def chest(method: str = "fedavg", **changes: Any) -> Experiment:
    """Return a tiny job on these images."""
    return tiny(method, **{"data": SPEC, "synthetic": None, **changes})
