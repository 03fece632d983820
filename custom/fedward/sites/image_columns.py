"""Which column of a CSV holds the images, and the likeliest one where nobody has said so."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fedward.errors import ConfigError, DataError, most_like, option
from fedward.sites.any_csv import (
    missing_columns,
    no_image_column,
    read_image_list,
    well_known,
    well_known_columns,
)
from fedward.sites.decoding import BadRow
from fedward.sites.image_paths import ALL_ENDINGS, ImageFinder
from fedward.sites.table import Record

_LOOKED_AT = 50
"""Rows by which a column of images is recognised."""


def image_column(
    path: Path,
    folder: Path,
    header: Sequence[str],
    records: Sequence[Record],
    named: Mapping[str, str],
) -> str:
    """Return the column of a CSV's images.

    Args:
        path: of the CSV, for errors.
        folder: of the images.
        header: names of all columns.
        records: all rows.
        named: purpose -> column as the user named it. Without one for images, that with a
            well-known name is taken.

    Raises:
        ConfigError: as :func:`fedward.sites.any_csv.well_known_columns`, or the CSV does not have a
            named column; the text proposes the likeliest one.
        DataError: no column has such a name; the text proposes the likeliest one.
    """
    column_of = well_known_columns(header, named)
    present = {name for name in column_of.values() if name in header}
    missing = missing_columns(header, [*column_of.values()])
    if missing:
        likely = dict(named)
        for purpose, name in column_of.items():
            if name and name not in header:
                likely[purpose] = likely_column(purpose, name, folder, header, records, present)
        remedy = missing.remedy
        if all(likely[purpose] for purpose in named if named[purpose]):
            remedy = f"Write {option('columns', likely)}, or name another one of them."
        raise ConfigError(missing.problem, remedy, expected=missing.expected, found=missing.found)
    if not column_of["image"]:
        raise no_image_column(path, header, likely_image(folder, header, records, present))
    return column_of["image"]


def likely_column(
    purpose: str,
    name: str,
    folder: Path,
    header: Sequence[str],
    records: Sequence[Record],
    used: Collection[str],
) -> str:
    """Return the column that is most likely meant by a name that no column has; empty without one.

    Args:
        purpose: what the column is for.
        name: what the user called it.
        folder: of the images.
        header: names of all columns.
        records: all rows.
        used: columns of other purposes.
    """
    column = most_like(name, header) or well_known(purpose, header)
    if purpose == "image" and not _may_be_of_images(folder, records, column):
        # A name may be like another one by chance, as x and dx.
        column = likely_image(folder, header, records, used) or column
    return column


def likely_image(
    folder: Path, header: Sequence[str], records: Sequence[Record], used: Collection[str]
) -> str:
    """Return the column whose cells name most images of a folder; empty if none names any.

    Of two columns that name as many it is the one with the endings of files. Such cells may also
    name images in another folder.
    """
    finder = ImageFinder(folder)
    images: dict[str, tuple[int, int]] = {}
    for name in header:
        if not name or name in used:
            continue
        images[name] = _like_images(finder, records, name)
    best = max(images, key=images.__getitem__, default="")
    return best if best and any(images[best]) else ""


def lists_images(path: Path, folder: Path) -> bool:
    """Return whether a CSV has a column of images: most of its first cells name one of a folder."""
    try:
        records, _, header = read_image_list(path)
    except DataError:
        return False
    finder = ImageFinder(folder)
    most = len(records[:_LOOKED_AT]) / 2
    return any(_like_images(finder, records, name)[0] > most for name in header if name)


def _may_be_of_images(folder: Path, records: Sequence[Record], column: str) -> bool:
    """Return whether a cell of a column names an image, or ends as the names of images do."""
    return bool(column) and any(_like_images(ImageFinder(folder), records, column))


def _like_images(finder: ImageFinder, records: Sequence[Record], column: str) -> tuple[int, int]:
    """Return how many of a column's first cells name an image, and how many end as such names."""
    cells = [record.cells[column] for record in records[:_LOOKED_AT] if record.cells[column]]
    named = sum(_names_image(finder, cell) for cell in cells)
    return named, sum(_has_ending(cell) for cell in cells)


def _has_ending(cell: str) -> bool:
    """Return whether a cell ends as the names of images do."""
    return cell.lower().endswith(ALL_ENDINGS)


def _names_image(finder: ImageFinder, cell: str) -> bool:
    """Return whether a cell names an image."""
    with suppress(BadRow):
        return bool(finder.find(cell))
    return False
