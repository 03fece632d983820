"""What a folder of site files says about the images of all sites, for jobs that say nothing of
their own.
"""

import json
from pathlib import Path
from typing import Any

from fedward.errors import DataError, reason_of

DATA_FILE = "data.json"
"""Its name; its content are fields of :class:`fedward.config.DataSpec`, which a job checks."""


def read_data_file(folder: Path) -> dict[str, Any] | None:
    """Return what the file in a folder of site files says; None where there is none.

    Raises:
        DataError: it cannot be read, or is no JSON object.
    """
    path = folder / DATA_FILE
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        content = reason_of(error)
    if not isinstance(content, dict):
        remedy = "Let `fedward partition` write it again, or delete it and name all with --set data.NAME=VALUE."
        raise DataError(
            f"{path}", expected="a JSON object", found=f"{content!r:.200}", remedy=remedy
        )
    return content
