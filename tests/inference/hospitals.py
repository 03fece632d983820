"""Two hospitals with images of their own, and what is left of their run."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

CLASSES = ("MEL", "NV", "BCC")
SITES = ("north", "south")


class Finished(NamedTuple):
    """What is left of the run."""

    run: Path
    sites: Path
    """Folder with ``north.yaml`` and ``south.yaml``."""
    npz: Path
    """The images of both."""


def arrays(images: int, seed: int) -> dict[str, np.ndarray]:
    """Grey images, the brighter the higher their label, which is wrong for every fifth."""
    rng = np.random.default_rng(seed)
    labels = np.arange(images) % len(CLASSES)
    shown = np.where(rng.random(images) < 0.2, rng.permutation(labels), labels)
    noise = rng.integers(0, 90, (images, 20, 20))
    return {
        "images": (noise + 80 * shown[:, None, None]).astype(np.uint8),
        "labels": labels[:, None],
    }


def write_npz(path: Path, **splits: int) -> Path:
    """Write a file in the MedMNIST layout, with so many images in each split."""
    parts = {name: arrays(number, seed) for seed, (name, number) in enumerate(splits.items())}
    np.savez(
        path,
        **{
            f"{split}_{kind}": array
            for split, part in parts.items()
            for kind, array in part.items()
        },
    )
    return path


def site_file(path: Path, npz: Path, **fields: object) -> Path:
    content = {"kind": "npz", "file": str(npz), "labels": dict(enumerate(CLASSES)), **fields}
    path.write_text(yaml.safe_dump(content))
    return path
