"""A MedMNIST file of random images, as a server might have of its own."""

from pathlib import Path
from typing import Any

import numpy as np

from isolated import CLASSES


def write_public_npz(file: Path, **counts: int) -> dict[str, Any]:
    """Write colour images of 28 pixels, ``counts`` of each split; return the file's arrays."""
    rng = np.random.default_rng(0)
    images = {
        f"{split}_images": rng.integers(0, 256, (n, 28, 28, 3), np.uint8)
        for split, n in counts.items()
    }
    labels = {f"{split}_labels": np.arange(n) % len(CLASSES) for split, n in counts.items()}
    np.savez(file, **images, **labels)
    return {**images, **labels}
