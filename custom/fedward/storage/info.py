"""What run.json says of a run."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedward.errors import RunError, reason_of

FORMAT = 3
"""Of all that a run folder holds; any other is refused."""

Names: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]
Status: TypeAlias = Literal["running", "finished", "failed"]
"""``running`` also of a run that was killed."""


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Summary(_Closed):
    """How a run stands, or ended; what is not known is not said."""

    rounds: int | None = None
    best_round: int | None = None
    best_value: float | None = None
    """Mean over sites of the key metric, in the best round."""
    not_evaluated: dict[str, str] = {}
    """Site -> why it brought no value of the last model."""
    enough_labels: dict[str, str] = {}
    """Site -> how many labels it has, of those where nobody was asked, as the job wants no more."""
    reason: str | None = None
    """Of a failure."""
    refused: Names = ()
    """Sites whose policy forbids the job, where the run failed over that."""
    waiting: dict[str, str] = {}
    """Site -> digest of the job that its administrator has not approved yet."""


class RunInfo(_Closed):
    """What run.json says of a run."""

    format: int
    id: str
    """By which sites know the run again."""
    method: str
    engine: str
    seed: int
    sites: Names
    started: str
    status: Status
    versions: dict[str, str]
    experiment: dict[str, Any]
    summary: Summary = Summary()
    init: dict[str, Any] | None = None
    """The weights it started from, where these were not fresh; see :mod:`fedward.starting_model`.
    """
    base: str | None = None
    """SHA-256 of what is frozen in the network, which its models leave out; none where all of it
    trains.
    """
    private: Names = ()
    """How the names of tensors begin that each site trained and kept; untrained in the run's
    models.
    """
    untrained: Names = ()
    """How the names of tensors begin that no round of the run trains, though its results hang on
    them.
    """
    synthetic: dict[str, bool] = {}
    """Site -> whether its images were drawn by fedward, as the site said. A site that never
    answered is not in it.
    """
    ended: str | None = None
    audit: dict[str, Any] | None = None
    """Where the audit log ends."""

    def dumped(self) -> dict[str, Any]:
        """Return what the file says: nothing that was not said of this run."""
        return self.model_dump(mode="json", exclude_unset=True)


def read_info(folder: Path) -> RunInfo:
    """Return what a run folder's run.json says.

    Raises:
        RunError: there is none, it is broken, or of another format; or a pipe or a device lies in
            the folder: whoever reads it would never come to its end.
    """
    file = folder / "run.json"
    _check_kinds(folder)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"a {type(content).__name__}, not what a run is")
        found = content.get("format", FORMAT)
        if found != FORMAT or isinstance(found, bool):
            quoted = f"format {found!r}"[:100]
            remedy = "Open this run with the fedward version that wrote it."
            raise RunError(str(file), expected=f"format {FORMAT}", found=quoted, remedy=remedy)
        return RunInfo.model_validate(content)
    except (OSError, ValueError, RecursionError) as error:
        quoted = reason_of(error)
        if isinstance(error, ValidationError):
            faults = error.errors(include_url=False, include_input=False)
            quoted = f"no or a broken {', '.join(dict.fromkeys(str(fault['loc'][0]) for fault in faults))}"
        where = f"run folder {folder}"
        remedy = "Name the folder of a run that has begun."
        raise RunError(
            where, expected="a readable run.json", found=quoted, remedy=remedy
        ) from error


def _check_kinds(folder: Path) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.exists() and not (path.is_file() or path.is_dir()):
            where = f"run folder {folder}"
            remedy = "Remove it, or fetch the run again."
            raise RunError(
                where,
                expected="files and folders",
                found=f"{path.name}, which is neither",
                remedy=remedy,
            )
