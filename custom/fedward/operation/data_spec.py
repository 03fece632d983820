"""The images of a job, for commands that read sites' files before there is a job."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedward.config import DataSpec
from fedward.faults import explain, names_in
from fedward.sites.data_file import read_data_file


def data_spec(folder: Path, command: str, **given: Any) -> DataSpec:
    """Return the description of a job's images.

    Args:
        folder: of site files; values of a ``data.json`` in it replace the defaults.
        command: the command, which errors name.
        given: values that replace both, unless they are None.

    Raises:
        ConfigError: a value that cannot be.
        DataError: the file cannot be read.
    """
    settings = read_data_file(folder) or {}
    settings |= {name: value for name, value in given.items() if value is not None}
    try:
        return DataSpec.model_validate(settings)
    except ValidationError as error:
        raise explain(error, command, settings, names_in(DataSpec)) from error
