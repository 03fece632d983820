"""What a data set lists and no site gets: one count that adds up, the reasons, and a table."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedward.lab.partition.pool import LeftOutImage, Pool
from fedward.sites.job_checks import kind_of_reason
from fedward.spreadsheet import write_rows
from fedward.text import count

LEFT_OUT_FILE = "left_out.csv"
"""Name of the table, beside the site files."""
_HEADER = ("line", "image", "reason")
_MOST_NAMED = 3
"""Images of one kind of reason that are named."""
_NUMBER = re.compile(r"-?\d+")


class OfOneKind(NamedTuple):
    """The images that are left out for reasons of one kind."""

    images: int
    """Their number."""
    text: str
    """The reason of the first of them, and where some of them are listed."""


def left_out_table(pool: Pool) -> str:
    """Return a CSV for people with each image that is left out: line, image and reason.

    It is sorted by line, which is empty where the data set is no CSV. The text is empty if nothing
    is left out.
    """
    if not pool.left_out:
        return ""
    table = io.StringIO(newline="")
    # The mark of spreadsheet.ENCODING.
    table.write("\ufeff")
    by_line = sorted(pool.left_out, key=lambda image: image.origin.line or 0)
    rows = [
        (image.origin.line or "", _printable(image.origin.image), image.reason) for image in by_line
    ]
    write_rows(table, [_HEADER, *rows])
    return table.getvalue()


def is_left_out_table(path: Path) -> bool:
    """Return whether a file is a :func:`left_out_table`, and not a person's own of its name."""
    if not path.is_file():
        return False
    header = io.StringIO(newline="")
    write_rows(header, [_HEADER])
    with path.open("rb") as file:
        start = f"\ufeff{header.getvalue()}".encode()
        return file.read(len(start)) == start


def left_out_lines(pool: Pool, used: int, out: Path) -> tuple[str, list[str]]:
    """Return how many images are listed, used and left out, and an item for each reason.

    Args:
        pool: what was cut.
        used: number of its images that are at a site or the server.
        out: folder of the site files.
    """
    left_out = pool.left_out
    listed = f"Listed: {count(used + len(left_out), pool.listed_as)}. Used: {used}."
    if not left_out:
        return listed, []
    items = [f"{kind.images}: {kind.text}" for kind in by_kind(left_out)]
    where = out / LEFT_OUT_FILE
    return f"{listed} Left out: {len(left_out)}, each with its reason in {where}:", items


def by_kind(left_out: Sequence[LeftOutImage]) -> list[OfOneKind]:
    """Return images by the kinds of their reasons, the commonest first.

    Reasons of one kind differ in what they quote and in numbers alone, such as those of lines.
    """
    images_of: dict[str, list[LeftOutImage]] = {}
    for image in left_out:
        kind = _NUMBER.sub("", kind_of_reason(image.reason))
        images_of.setdefault(kind, []).append(image)
    kinds = []
    for images in sorted(images_of.values(), key=len, reverse=True):
        places = [_words(image) for image in images[:_MOST_NAMED]]
        if len(images) > _MOST_NAMED:
            places[-1] += f" and {len(images) - _MOST_NAMED} more"
        text = f"{images[0].reason}: {', '.join(places)}"
        if len({image.reason for image in images}) > 1:
            text = f"{places[0]}: {images[0].reason}; likewise {', '.join(places[1:])}"
        kinds.append(OfOneKind(len(images), text))
    return kinds


def _words(image: LeftOutImage) -> str:
    """Return where an image is listed, in words."""
    name = _printable(image.origin.image)
    if image.origin.line is None:
        return name
    return f"line {image.origin.line} ({name})" if name else f"line {image.origin.line}"


def _printable(name: str) -> str:
    """Return the name of a file in letters that a terminal and UTF-8 have."""
    return name if name.isprintable() else repr(name)
