"""DICOM series as scanners send them: a folder with a file for each slice, in no order."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dicom_files import save
from nifti_files import nibabel


def series(
    folder: Path,
    values: np.ndarray,
    axes: str = "LPS",
    gap: float = 5,
    slices: Mapping[int, Mapping[str, Any] | None] | None = None,
    **tags: Any,
) -> Path:
    """Write whole values (x, y, z) in RAS as a series of slices across the last of these axes.

    ``slices``: number of a slice -> its own tags, of which None are left out; None: it is missing.
    """
    turn = nibabel.orientations.axcodes2ornt(axes)
    turned = nibabel.orientations.ornt_transform(nibabel.orientations.axcodes2ornt("RAS"), turn)
    affine = nibabel.orientations.inv_ornt_aff(turned, values.shape)
    stack = nibabel.orientations.apply_orientation(values, turned).astype(np.int32) + 1024
    affine = np.diag([-1, -1, 1, 1]) @ affine @ np.diag([1, 1, gap, 1])
    along, down, across = (affine[:3, axis] for axis in range(3))
    names = np.random.default_rng(0).permutation(stack.shape[2])
    for index in range(stack.shape[2]):
        own = (slices or {}).get(index, {})
        if own is None:
            continue
        usual = {
            "SeriesInstanceUID": "1.2.3.4",
            "ImageOrientationPatient": [*along, *down],
            "ImagePositionPatient": [*(affine[:3, 3] + index * across)],
            "InstanceNumber": stack.shape[2] - index,
            "RescaleSlope": 1,
            "RescaleIntercept": -1024,
        }
        pixels = np.ascontiguousarray(stack[:, :, index].T.astype(np.uint16))
        save(folder / f"IM{names[index]:03}", pixels, **{**usual, **tags, **own})
    return folder
