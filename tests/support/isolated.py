"""Three sites of few images, of which only the first has labels, and the methods made for them."""

from pathlib import Path
from typing import Any

import numpy as np

from deciding import read_npz
from fedward.config import DataSpec, Experiment
from fedward.lab.partition.divide import divide
from fedward.lab.partition.write import site_texts, write_files

SITES = ["site-1", "site-2", "site-3"]
CLASSES = ("A", "B", "C")


def write_sites(folder: Path, labelled_sites: int = 1, seed: int = 0) -> Path:
    """Write 96 random images with labels, and sites that share them; return the site files' folder.

    No site has test images.
    """
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 60), ("val", 12), ("test", 24)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (count, 16, 16, 3), np.uint8)
        arrays[f"{split}_labels"] = (np.arange(count) % len(CLASSES))[:, None]
    folder.mkdir(parents=True)
    np.savez(folder / "images.npz", **arrays)
    pool = read_npz(folder / "images.npz", CLASSES)
    cut = divide(pool, len(SITES), gamma=2.0, seed=seed)
    without_test = {
        site: {"train": mine["train"], "val": mine["val"]} for site, mine in cut.items()
    }
    shares = [float(index < labelled_sites) for index in range(len(SITES))]
    write_files(site_texts(pool, without_test, shares, folder))
    return folder


def isolated(method: str, **changes: Any) -> Experiment:
    """Four rounds, of which the first is the warm-up; in each a site takes one or two steps."""
    options: dict[str, Any] = {"rounds": 4, "warm_up": 1, "images_at_most": 12, "batch": 8}
    base: dict[str, Any] = {
        "method": method,
        "data": DataSpec(classes=CLASSES, image_size=16),
        "synthetic": None,
        "seed": 3,
    }
    return Experiment(**{**base, **changes, "options": {**options, **changes.get("options", {})}})
