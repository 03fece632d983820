"""The content of run.json: what a run is, and how it stands."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedward.errors import RunError, reason_of
from fedward.json_text import read_json_file
from fedward.methods.requirements import EVERY_TENSOR
from fedward.storage.plain_files import require_plain, require_plain_files

FORMAT = 3
"""Version of the format of a run folder; any other is refused."""

INTERRUPTED = "interrupted"
"""Reason of a run that a person stopped."""
SIMULATED_JOB = "simulate_job"
"""Folder of the results of FLARE's simulator, which it deletes when it starts."""
Names: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]
Status: TypeAlias = Literal["running", "finished", "failed"]
"""A run that was killed is still ``running``."""


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Summary(_Closed):
    """Status of a run. Unknown fields are omitted."""

    rounds: int | None = None
    """Finished rounds."""
    best_round: int | None = None
    """The round whose model has the best validation value."""
    best_value: float | None = None
    """Mean of the key metric over sites, after the best round."""
    not_evaluated: dict[str, str] = {}
    """Site -> why it did not evaluate the last model."""
    enough_labels: dict[str, str] = {}
    """Site -> number of its labels, for sites that have as many labels as the job wants."""
    without_head: Names = ()
    """Classes that a head in one round never predicts, as no site sends sums over their images."""
    reason: str | None = None
    """Why the run failed."""
    refused: Names = ()
    """Sites whose policy forbids the job, if the run failed for that reason."""
    waiting: dict[str, str] = {}
    """Site -> digest of the job, which the site's administrator has not approved yet."""


class CardOfSite(_Closed):
    """What a site states about its images."""

    texts: dict[str, str] = {}
    """Field of :data:`fedward.cards.SITE_ITEMS` -> text."""
    unusable: int = 0
    """Rows of its files that it cannot use, in fives: 0 stands for fewer than five."""


class Leaks(_Closed):
    """How many pictures, or patients, are in several of training, validation and test."""

    in_several_splits: int
    in_training_and_test: int
    """Those among them that are in training and in test, perhaps in validation too."""


class RunInfo(_Closed):
    """The content of run.json."""

    format: int
    """:data:`FORMAT` of the version that wrote it."""
    id: str
    """32 hexadecimal digits by which sites recognise the run."""
    method: str
    engine: str
    """``local``, ``simulator`` or ``flare``: what carried out the run."""
    seed: int
    sites: Names
    """Sites the run was started with, and those that joined it later."""
    started: str
    """Time of the start, ISO 8601 in UTC."""
    status: Status
    versions: dict[str, str]
    """Package -> the version that the server uses."""
    experiment: dict[str, Any]
    """All settings of the run; see :class:`fedward.config.Experiment`.

    What pages read without a default must be there: the name and classes of ``data``, and
    ``key_metric``.
    """
    job: str = ""
    """Name of the job that was run, if it has one; several jobs may be of one method."""
    settings: dict[str, Any] = {}
    """All settings of the method, defaults included; empty in a survey."""
    summary: Summary = Summary()
    init: dict[str, Any] | None = None
    """The weights it started from, unless these were fresh; see :mod:`fedward.starting_model`."""
    base: str | None = None
    """SHA-256 of the frozen part of the network, which its models leave out; None without one."""
    private: Names = ()
    """Beginnings of the names of tensors that each site trained and kept.

    They are untrained in the run's models.
    """
    untrained: Names = ()
    """Beginnings of the names of tensors that no round trains, though the logits depend on them."""
    synthetic: dict[str, bool] = {}
    """Site -> whether fedward drew its images, as the site says; only sites that answered."""
    cards: dict[str, CardOfSite] = {}
    """Site -> what it states about its images; only sites whose policies let it out."""
    leaks: dict[str, Leaks] = {}
    """``picture`` or ``patient`` -> what a simulation found in several splits of its images."""
    ended: str | None = None
    """Time of the end, ISO 8601 in UTC."""
    audit: dict[str, Any] | None = None
    """Number of lines and last hash of the audit log."""

    @field_validator("experiment")
    @classmethod
    def _with_what_pages_read(cls, experiment: dict[str, Any]) -> dict[str, Any]:
        data = experiment.get("data")
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            raise ValueError("data with a name")
        classes = data.get("classes")
        if not isinstance(classes, list | tuple) or not all(isinstance(c, str) for c in classes):
            raise ValueError("data with names of classes")
        if not isinstance(experiment.get("key_metric"), str):
            raise ValueError("a key_metric")
        return experiment

    @property
    def simulated(self) -> bool:
        """Whether one machine had the images of all sites."""
        return self.engine != "flare"

    @property
    def models_stay_at_sites(self) -> bool:
        """Whether each site kept all that it trained, so that the run has the first model alone."""
        return EVERY_TENSOR in self.private

    def dumped(self) -> dict[str, Any]:
        """Return the fields that were set for this run, as JSON values."""
        return self.model_dump(mode="json", exclude_unset=True)


def read_info(folder: Path, *, is_own: bool = False) -> RunInfo:
    """Return the content of a run folder's run.json.

    Args:
        folder: the run folder.
        is_own: whether this process writes the run. The folder of another one is first searched for
            links, pipes and devices, at whatever depth, since the reader goes on to other files.

    Raises:
        RunError: run.json is missing, broken, or of another format; or the folder holds anything
            but files and folders.
    """
    file = folder / "run.json"
    require_plain(folder, file)
    try:
        content = read_json_file(file)
        if not isinstance(content, dict):
            raise ValueError(f"a {type(content).__name__}, not what a run is")
        file_format = content.get("format", FORMAT)
        # True equals 1 in Python, and is no number of a format.
        if file_format != FORMAT or isinstance(file_format, bool):
            raise RunError(
                str(file),
                "Open this run with the fedward version that wrote it.",
                expected=f"format {FORMAT}",
                found=f"format {file_format!r}"[:100],
            )
        info = RunInfo.model_validate(content)
    except (OSError, ValueError) as error:
        raise RunError(
            f"run folder {folder}",
            _where_it_is(folder),
            expected="a readable run.json",
            found=_reason(error),
        ) from error
    # Only now: a folder that is no run's, such as a person's home, would take minutes.
    if not is_own:
        require_plain_files(folder)
    return info


def _where_it_is(folder: Path) -> str:
    """Return what to do about a folder that is no run's: FLARE's simulator puts its run deeper."""
    run = f"server/{SIMULATED_JOB}/fedward/run.json"
    inside = sorted([*folder.glob(run), *folder.glob(f"*/{run}")])
    if inside:
        return f"The run of FLARE's simulator is {inside[0].parent}."
    return "Name the folder of a run that has begun."


def _reason(error: Exception) -> str:
    """Return why run.json cannot be used: of missing and wrong fields their names alone."""
    if not isinstance(error, ValidationError):
        return reason_of(error)
    faults = error.errors(include_url=False, include_input=False)
    fields = dict.fromkeys(str(fault["loc"][0]) for fault in faults)
    return f"no or a broken {', '.join(fields)}"
