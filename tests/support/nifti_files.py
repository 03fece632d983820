"""NIfTI volumes as converters write them: a body in air, in any orientation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel", reason="pip install fedward[volumes]")


def body(
    seed: int = 0, shape: tuple[int, int, int] = (20, 24, 12), organ: float = 60
) -> np.ndarray:
    """Return int16 Hounsfield units (x, y, z) in RAS: air, and a noisy body off the edges."""
    rng = np.random.default_rng(seed)
    values = np.full(shape, -1000, np.int16)
    values[3:-3, 3:-3, 2:-2] = rng.integers(-100, 100, (shape[0] - 6, shape[1] - 6, shape[2] - 4))
    values[5:9, 5:9, 2:-2] = organ
    return values


def write(
    path: Path,
    values: np.ndarray,
    axes: str = "RAS",
    affine: np.ndarray | None = None,
    **header: Any,
) -> Path:
    """Write values given in RAS as a file with other axes, such as LPS, or with this affine."""
    if affine is None:
        turn = nibabel.orientations.axcodes2ornt(axes)
        turned = nibabel.orientations.ornt_transform(nibabel.orientations.axcodes2ornt("RAS"), turn)
        back = nibabel.orientations.inv_ornt_aff(turned, values.shape[:3])
        values = nibabel.orientations.apply_orientation(values, turned)
        affine = np.diag([2, 3, 5, 1]) @ back
    image = nibabel.Nifti1Image(values, affine)
    for name, value in header.items():
        image.header[name] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(image, path)
    return path
