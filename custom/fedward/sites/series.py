"""Reads a folder with the DICOM files of one series, a slice each, as a volume.

Messages from here repeat no text of a header: they may reach a log.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedward.sites.decoding import BadRow
from fedward.sites.dicom import open_values
from fedward.sites.dicom_header import (
    file_window,
    first_number,
    numbers,
    read_header,
    voi_function,
)
from fedward.sites.files import is_dicom, series_files
from fedward.sites.nifti import check_size
from fedward.sites.rendering import Affine, Volume, Window

_TAGS = [
    "Rows",
    "Columns",
    "PixelSpacing",
    "SeriesInstanceUID",
    "ImageOrientationPatient",
    "ImagePositionPatient",
    "InstanceNumber",
    "WindowCenter",
    "WindowWidth",
    "VOILUTFunction",
    "VOILUTSequence",
]
_TO_RAS = np.diag([-1.0, -1.0, 1.0])
"""DICOM's axes grow to the patient's left, back and head."""
_TILT = 0.01
"""Largest difference of direction cosines among parallel slices."""
_UNEVEN = 0.1
"""Largest difference of a gap from the usual one, as a share of it."""
_SAME = 0.01
"""Slices closer than this are at one place, in millimetres."""


def read_series(folder: Path, most_voxels: int) -> Volume:
    """Read a folder with a DICOM file for each slice of one series.

    Slices are ordered by their positions along the normal of the slices. Where no file has a
    position, instance numbers order them. DICOM objects without an image, such as reports, are left
    out.

    Args:
        folder: of the files; what is below it is not read.
        most_voxels: number of voxels that a volume may have.

    Raises:
        BadRow: a link leaves the folder; a file named ``.dcm`` is not DICOM; the files are of
            several series, sizes or directions, or have several frames; there is only one slice;
            slices are missing, uneven or at one place; there are too many voxels; or
            :func:`fedward.sites.dicom.open_values` refuses a file.
        Exception: whatever pydicom makes of a damaged file.
    """
    files, headers = _headers(folder)
    order, affine = _by_position(headers) or _by_number(headers)
    rows = int(headers[0].Rows)
    columns = int(headers[0].Columns)
    check_size((columns, rows, len(files)), most_voxels)
    values = np.empty((len(files), rows, columns), np.float32)
    for place, index in enumerate(order):
        try:
            values[place] = open_values(files[index])
        except BadRow as problem:
            raise type(problem)(f"slice {files[index].name}: {problem}") from None
    return Volume(values.transpose(2, 1, 0), affine, _window(headers))


def _headers(folder: Path) -> tuple[list[Path], list[Any]]:
    """Return the files with an image, and their headers, which are of one series and size."""
    # Hidden ones are of a file manager, such as the ._IM001.dcm of macOS.
    broken = [path.name for path in folder.glob("[!.]*.[dD][cC][mM]") if not is_dicom(path)]
    if broken:
        raise BadRow(
            f"expected DICOM files, found {len(broken)} that are not, such as {broken[0]!r:.80}"
        )
    header_of = {path: read_header(path, _TAGS) for path in series_files(folder)}
    files = [path for path, header in header_of.items() if "Rows" in header and "Columns" in header]
    if any(path.resolve().parent != folder.resolve() for path in files):
        raise BadRow("expected slices in the folder itself, found a link that leaves it")
    if len(files) < 2:
        raise BadRow(
            f"expected a folder of slices, a DICOM file each, found {len(files)}: name a single "
            "image itself"
        )
    headers = [header_of[path] for path in files]
    series = {str(header.get("SeriesInstanceUID")) for header in headers}
    if len(series) > 1:
        raise BadRow(
            f"expected the slices of one series, found {len(series)} series: give each a folder of "
            "its own"
        )
    sizes = sorted({(int(header.Columns), int(header.Rows)) for header in headers})
    if len(sizes) > 1:
        first, second = (f"{width} x {height}" for width, height in sizes[:2])
        raise BadRow(f"expected slices of one size, found {first} and {second}")
    if len({tuple(numbers(header, "PixelSpacing")) for header in headers}) > 1:
        raise BadRow("expected slices of one size, found several sizes of pixels")
    return files, headers


def _by_position(headers: Sequence[Any]) -> tuple[list[int], Affine] | None:
    """Return the order of slices and the affine of the volume; None if no header has a position."""
    orientations = [numbers(header, "ImageOrientationPatient") for header in headers]
    positions = [numbers(header, "ImagePositionPatient") for header in headers]
    if not any(positions):
        return None
    if not all(orientations) or not all(positions):
        raise BadRow(
            "expected ImagePositionPatient and ImageOrientationPatient in all slices, found some "
            "without"
        )
    if {*map(len, orientations)} != {6} or {*map(len, positions)} != {3}:
        raise BadRow(
            "expected six numbers as ImageOrientationPatient and three as ImagePositionPatient, "
            "found others"
        )
    # An empty number becomes NaN.
    directions = np.array(orientations, np.float64)
    origins = np.array(positions, np.float64)
    along = directions[0, :3]
    down = directions[0, 3:]
    normal = np.cross(along, down)
    finite = np.isfinite(directions).all() and np.isfinite(origins).all()
    if not finite or abs(np.linalg.norm(normal) - 1) > _TILT:
        raise BadRow("expected headers that say where right, front and head are, found none")
    if np.ptp(directions, axis=0).max() > _TILT:
        raise BadRow("expected parallel slices, found several directions: leave localizers out")
    places = origins @ normal
    order = [int(index) for index in np.argsort(places)]
    _check_even(np.diff(places[order]))
    affine = np.eye(4)
    affine[:3, :3] = _TO_RAS @ np.stack([along, down, normal], axis=1)
    return order, affine


def _check_even(gaps: npt.NDArray[np.float64]) -> None:
    """Refuse slices at one place, and gaps that differ from the others."""
    if gaps.min() < _SAME:
        raise BadRow(
            "expected one slice at each place, found several: a series over time or of echoes is "
            "not read"
        )
    usual = float(np.median(gaps))
    worst = int(np.abs(gaps - usual).argmax())
    if abs(gaps[worst] - usual) > _UNEVEN * usual:
        raise BadRow(
            f"expected even gaps between slices, found one {gaps[worst] / usual:.2g} times the "
            f"usual one between slices {worst} and {worst + 1}: is a file missing?"
        )


def _by_number(headers: Sequence[Any]) -> tuple[list[int], None]:
    """Return the order of slices without positions, by their instance numbers."""
    places = [first_number(header, "InstanceNumber", -1) for header in headers]
    first = min(places)
    if first < 0 or sorted(places) != [first + step for step in range(len(places))]:
        raise BadRow(
            "expected ImagePositionPatient, or an InstanceNumber for each slice without gaps, "
            "found neither"
        )
    return sorted(range(len(places)), key=places.__getitem__), None


def _window(headers: Sequence[Any]) -> tuple[Window, str] | None:
    """Return the window that all slices have in common, and its function."""
    windows = {file_window(header) for header in headers}
    functions = {voi_function(header) for header in headers}
    if len(windows) > 1 or len(functions) > 1 or headers[0].get("VOILUTSequence"):
        return None
    window = windows.pop()
    return None if window is None else (window, functions.pop())
