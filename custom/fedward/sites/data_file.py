"""The description of all sites' images in a folder of site files, for jobs that have none."""

import shlex
from pathlib import Path
from typing import Any

from fedward.errors import DataError, UnreadableJsonError, offered, option, reason_of, setting
from fedward.json_text import read_json
from fedward.sites.files import read_content

DATA_FILE = "data.json"
"""Name of the file, whose content are fields of :class:`fedward.config.DataSpec`."""


MEASURING_CUT = "measures_more.sh"
"""Name of a file beside it: the command that cuts the same data so that more is measured."""


def read_measuring_cut(folder: Path) -> str:
    """Return the command of a folder's :data:`MEASURING_CUT`.

    It is empty without such a file, or if that holds anything but one ``fedward partition``: the
    folder may come from somebody else, and people call what commands propose.
    """
    path = folder / MEASURING_CUT
    text = path.read_text("utf-8", errors="replace").strip() if path.is_file() else ""
    return text if _is_cut(text) else ""


def _is_cut(text: str) -> bool:
    """Return whether a text is one line that makes a shell call ``fedward partition`` alone."""
    try:
        words = shlex.split(text)
    except ValueError:  # a quote without its partner
        return False
    # What a shell would take for more than words is in quotes.
    is_plain = shlex.join(words) == text and text.isprintable()
    return is_plain and words[:2] == ["fedward", "partition"]


def read_data_file(folder: Path) -> dict[str, Any] | None:
    """Return the description in a folder of site files; None if there is none.

    Raises:
        DataError: the file cannot be read, is not a JSON object, or has a key twice.
    """
    path = folder / DATA_FILE
    if not path.exists():
        return None
    try:
        content = read_json(read_content(path), unique_keys=True)
    except (OSError, UnreadableJsonError) as error:
        content = reason_of(error)
    if not isinstance(content, dict):
        raise DataError(
            f"{path}",
            "Let `fedward partition` write it again, or delete it and describe the images with "
            f"{_description()}.",
            expected="a JSON object",
            found=f"{content!r:.200}",
        )
    return content


def _description() -> str:
    """Return the options by which the caller's command is told what the images are."""
    if offered("classes"):
        return f"{option('classes', 'CLASS')} and {option('image-size', 'PIXELS')}"
    return setting("data.NAME", "VALUE")
