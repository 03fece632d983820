"""Reads a NIfTI file as a volume, within limits of its size.

Messages from here repeat no text of a header: they may reach a log.
"""

import logging
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedward.sites.decoding import BadRow, Unreadable
from fedward.sites.rendering import Volume

_LONGEST_SIDE = 2**14
"""Voxels along one axis at most: each slice takes time, however small it is.

The longest CT scans have about 2,000 slices.
"""
_LONGEST_HEADER = 2**24
"""Bytes of a NIfTI file before its voxels at most, which are unpacked to be passed over.

They hold extensions, such as a copy of the DICOM headers.
"""
_SLICES_AT_ONCE = 32
"""Slices of a file that are read at once."""
_LABEL_INTENT = 1002
"""NIfTI's code for a volume of labels."""
MASK = "expected a scan, found a mask: a few whole numbers alone"
"""Why a volume of labels is refused."""
NO_PLACE = "expected a header that says where right, front and head are, found none"
"""Why a volume without an orientation is refused."""


@cache
def nibabel() -> Any:
    """Return nibabel, kept from repeating parts of a header in logs.

    Raises:
        Unreadable: it is not installed.
    """
    try:
        import nibabel as library
    except ImportError:
        raise Unreadable("found a volume, and no nibabel: pip install 'fedward[volumes]'") from None
    # Above the highest level, so that nothing is logged.
    logging.getLogger("nibabel.global").setLevel(logging.CRITICAL + 1)
    return library


def read_nifti(path: Path, most_voxels: int) -> Volume:
    """Read a NIfTI file.

    Args:
        path: of the file.
        most_voxels: number of voxels that a volume may have.

    Raises:
        Unreadable: nibabel is not installed.
        BadRow: the volume is damaged, too large, not of three dimensions, has colours or no
            orientation, or is marked as labels.
        Exception: whatever nibabel raises for a damaged file.
    """
    try:
        header, _ = nifti_header(path)
        shape = header.get_data_shape()
        # If the file stays open, a compressed file is not unpacked from its start for each part.
        stored = nibabel().arrayproxy.ArrayProxy(path, header, keep_file_open=True)
    except nibabel().spatialimages.HeaderDataError:
        raise BadRow(
            "expected a NIfTI header that is whole, found a field that cannot be, such as an "
            "scl_inter that is not finite"
        ) from None
    if len(shape) < 3 or math.prod(shape[3:]) > 1:
        remedy = "convert it to PNG"
        if len(shape) > 3:
            remedy = (
                "a series over time or of directions is not read. Save one of its volumes as a "
                "file of its own"
            )
        raise BadRow(f"expected a volume of three dimensions, found {_as_text(shape)}: {remedy}")
    check_size(shape[:3], most_voxels)
    if not header.get_data_offset() <= _LONGEST_HEADER:
        raise BadRow(
            f"expected voxels within the first {_LONGEST_HEADER} bytes, found vox_offset "
            f"{header.get_data_offset()}: save it again without header extensions"
        )
    if header.get_data_dtype().kind not in "biuf":
        raise BadRow(
            "expected one real number a voxel, found colours or complex numbers: convert slices in "
            "colour to PNG"
        )
    if int(header.get("intent_code", 0)) == _LABEL_INTENT:
        raise BadRow(MASK)
    # Of a header without a place nibabel would make one up.
    has_place = header["sform_code"] != 0 or header["qform_code"] != 0
    affine = header.get_best_affine()
    if not has_place or not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-12:
        raise BadRow(NO_PLACE)
    # NIfTI stores x as the fastest axis; in the same order a part is copied as it lies in the file.
    values = np.empty(shape[:3], np.float32, order="F")
    # nibabel scales in double precision, so all slices at once would need three times the memory.
    for start in range(0, shape[2], _SLICES_AT_ONCE):
        part = slice(start, start + _SLICES_AT_ONCE)
        # Further axes have length 1: reshape drops them.
        values[:, :, part] = stored[:, :, part].reshape(values[:, :, part].shape)
    if not np.isfinite(values).all():
        # Tools that cut out the brain write such a background.
        values[~np.isfinite(values)] = np.nan
    return Volume(values, affine)


def nifti_header(path: Path) -> tuple[Any, bool]:
    """Return the header of a NIfTI file, and whether extensions follow it.

    The extensions are not read: they may be of any length.

    Raises:
        BadRow: the file does not begin as NIfTI does.
        Exception: whatever nibabel raises for a damaged file.
    """
    kinds = (nibabel().Nifti1Header, nibabel().Nifti2Header)
    with nibabel().openers.ImageOpener(path) as file:
        content = file.read(max(kind.single_vox_offset for kind in kinds))
    for kind in kinds:
        block = content[: kind.sizeof_hdr]
        if kind.may_contain_header(block):
            header = kind(block)
            mark = content[kind.sizeof_hdr : kind.sizeof_hdr + 1]
            has_room = header.get_data_offset() > kind.single_vox_offset
            return header, has_room and mark not in (b"", b"\0")
    raise BadRow("expected a NIfTI file, found one that begins otherwise: convert it to .nii.gz")


def check_size(shape: tuple[int, ...], most_voxels: int) -> None:
    """Refuse a volume of too many voxels, in all or along one axis.

    Args:
        shape: number of voxels along each axis.
        most_voxels: number of voxels that a volume may have.

    Raises:
        BadRow: it has more, or none.
    """
    if not 0 < math.prod(shape) <= most_voxels:
        raise BadRow(f"expected at most {most_voxels} voxels, found {_as_text(shape)}")
    if max(shape) > _LONGEST_SIDE:
        raise BadRow(
            f"expected at most {_LONGEST_SIDE} voxels along an axis, found {_as_text(shape)}: cut "
            "it into parts"
        )


def _as_text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
