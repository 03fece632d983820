"""The DICOM files of one series, a slice each in one folder, to a volume.

Messages from here repeat no text of a header: they may reach a log.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedward.sites.decoding import BadRow
from fedward.sites.dicom import file_window, open_values, read_header
from fedward.sites.files import is_dicom, series_files
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
_UNEVEN = 0.1
_SAME = 0.01
"""Largest difference of direction cosines; of a gap from the usual one, as a share; millimetres
between two places.
"""


def read_series(folder: Path, largest: int) -> Volume:
    """Read a folder with a DICOM file for each slice of one series.

    Slices are ordered by their positions along the normal of the slices. Where no file has a
    position, instance numbers order them. DICOM objects without an image, such as reports, are left
    out.

    Args:
        folder: of the files; what is below it is not read.
        largest: number of voxels of a volume.

    Raises:
        BadRow: a link leaves the folder; a file named ``.dcm`` is none; the files are of several
            series, sizes or directions, or several frames each; there is one slice alone; slices
            are missing, uneven or at one place; or there are more voxels; or as
            :func:`fedward.sites.dicom.open_values`.
        Exception: whatever pydicom makes of a damaged file.
    """
    files, headers = _headers(folder)
    order, affine = _by_position(headers) or _by_number(headers)
    rows = int(headers[0].Rows)
    columns = int(headers[0].Columns)
    if not 0 < rows * columns * len(files) <= largest:
        raise BadRow(f"expected at most {largest} voxels, found {columns} x {rows} x {len(files)}")
    values = np.empty((len(files), rows, columns), np.float32)
    for place, index in enumerate(order):
        try:
            values[place] = open_values(files[index])
        except BadRow as problem:
            raise type(problem)(f"slice {files[index].name}: {problem}") from None
    return Volume(values.transpose(2, 1, 0), affine, _window(headers))


def _headers(folder: Path) -> tuple[list[Path], list[Any]]:
    """Return the files with an image, and their headers, which are of one series and size."""
    broken = [path.name for path in folder.glob("*.[dD][cC][mM]") if not is_dicom(path)]
    if broken:
        raise BadRow(
            f"expected DICOM files, found {len(broken)} that are not, such as {broken[0]!r:.80}"
        )
    found = {path: read_header(path, _TAGS) for path in series_files(folder)}
    files = [path for path, header in found.items() if "Rows" in header and "Columns" in header]
    if any(path.resolve().parent != folder.resolve() for path in files):
        raise BadRow("expected slices in the folder itself, found a link that leaves it")
    if len(files) < 2:
        raise BadRow(
            f"expected a folder of slices, a DICOM file each, found {len(files)}: name a single image itself"
        )
    headers = [found[path] for path in files]
    count = len({str(header.get("SeriesInstanceUID")) for header in headers})
    if count > 1:
        raise BadRow(
            f"expected the slices of one series, found {count} series: give each a folder of its own"
        )
    sizes = sorted({(int(header.Columns), int(header.Rows)) for header in headers})
    if len(sizes) > 1 or len({str(header.get("PixelSpacing")) for header in headers}) > 1:
        told = " and ".join(f"{width} x {height}" for width, height in sizes[:2])
        raise BadRow(
            f"expected slices of one size, found {told if len(sizes) > 1 else 'several sizes of pixels'}"
        )
    return files, headers


def _by_position(headers: Sequence[Any]) -> tuple[list[int], Affine] | None:
    """Return the order of slices and where they lie; None where no header says it."""
    said = [
        (header.get("ImageOrientationPatient"), header.get("ImagePositionPatient"))
        for header in headers
    ]
    if not any(position for _, position in said):
        return None
    if not all(orientation and position for orientation, position in said):
        raise BadRow(
            "expected ImagePositionPatient and ImageOrientationPatient in all slices, found some without"
        )
    directions, positions = (np.array(column, np.float64) for column in zip(*said, strict=True))
    along = directions[0, :3]
    down = directions[0, 3:]
    normal = np.cross(along, down)
    if (
        not np.isfinite([*directions.flat, *positions.flat]).all()
        or abs(np.linalg.norm(normal) - 1) > _TILT
    ):
        raise BadRow("expected headers that say where right, front and head are, found none")
    if np.ptp(directions, axis=0).max() > _TILT:
        raise BadRow("expected parallel slices, found several directions: leave localizers out")
    places = positions @ normal
    order = [int(index) for index in np.argsort(places)]
    _check_even(np.diff(places[order]))
    affine = np.eye(4)
    affine[:3, :3] = _TO_RAS @ np.stack([along, down, normal], axis=1)
    return order, affine


def _check_even(gaps: npt.NDArray[np.float64]) -> None:
    if gaps.min() < _SAME:
        raise BadRow(
            "expected one slice at each place, found several: a series over time or of echoes is not read"
        )
    usual = float(np.median(gaps))
    worst = int(np.abs(gaps - usual).argmax())
    if abs(gaps[worst] - usual) > _UNEVEN * usual:
        where = (
            f"{gaps[worst] / usual:.2g} times the usual one between slices {worst} and {worst + 1}"
        )
        raise BadRow(f"expected even gaps between slices, found one {where}: is a file missing?")


def _by_number(headers: Sequence[Any]) -> tuple[list[int], None]:
    """Return the order of slices whose position nobody knows."""
    numbers = [int(header.get("InstanceNumber") or -1) for header in headers]
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    if min(numbers) < 0 or [numbers[index] - numbers[order[0]] for index in order] != list(
        range(len(numbers))
    ):
        raise BadRow(
            "expected ImagePositionPatient, or an InstanceNumber for each slice without gaps, found neither"
        )
    return order, None


def _window(headers: Sequence[Any]) -> tuple[Window, str] | None:
    found = {
        (file_window(header), str(header.get("VOILUTFunction") or "LINEAR")) for header in headers
    }
    (window, function), *others = found
    return (
        None if window is None or others or headers[0].get("VOILUTSequence") else (window, function)
    )
