"""Sites whose images are drawn from their class and number, so that two may share all but a few."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def write_site(
    folder: Path,
    name: str,
    classes: Sequence[str],
    numbers: Sequence[Sequence[int]],
    seed: int | None = 0,
) -> Path:
    """Write the file of a site with these training images of each class, and return its folder.

    Args:
        folder: of the site file; made if absent.
        name: of the site.
        classes: of the job.
        numbers: of the training images, by class. Five other images of each class are for
            validation, and five for tests.
        seed: of the order, which further images do not change; None: by number, the new ones last.
    """
    arrays = {}
    held_out = {"val": [range(900, 905)], "test": [range(950, 955)]}
    splits = {split: own * len(classes) for split, own in held_out.items()}
    for split, numbers_by_class in {"train": numbers, **splits}.items():
        pairs = [
            (label, number)
            for label, class_numbers in enumerate(numbers_by_class)
            for number in class_numbers
        ]
        if seed is None:
            pairs.sort(key=lambda pair: pair[::-1])
        else:
            pairs.sort(key=lambda pair: np.random.default_rng([seed, *pair]).random())
        arrays[f"{split}_images"] = np.stack([_image(*pair) for pair in pairs])
        arrays[f"{split}_labels"] = np.array([label for label, _ in pairs])[:, None]
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", **arrays)
    labels = ", ".join(f"{number}: {label}" for number, label in enumerate(classes))
    (folder / f"{name}.yaml").write_text(
        f"{{kind: npz, file: {name}.npz, labels: {{{labels}}}, max_rejected: 0.0}}"
    )
    return folder


def _image(label: int, number: int) -> np.ndarray:
    return np.random.default_rng([label, number]).integers(0, 256, (16, 16, 3), np.uint8)
