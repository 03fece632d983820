"""What the images of a job are, for commands that look at sites' files before there is a job."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedward.config import DataSpec
from fedward.faults import explain, names_in
from fedward.sites.data_file import read_data_file


def data_spec(folder: Path, command: str, **given: Any) -> DataSpec:
    """Return what ``data.json`` in a folder of site files says, else the defaults, with what is
    given and not None.

    Raises:
        ConfigError: a value that cannot be; ``command`` begins the place in its text.
        DataError: the file cannot be read.
    """
    known = read_data_file(folder) or {}
    known |= {name: value for name, value in given.items() if value is not None}
    try:
        return DataSpec.model_validate(known)
    except ValidationError as error:
        raise explain(error, command, known, names_in(DataSpec)) from error
