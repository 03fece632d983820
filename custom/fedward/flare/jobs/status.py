"""How far a federation's running jobs are, asked by any of its users; each job's controller answers from its folder."""

from typing import Any

from nvflare.apis.job_def import RunStatus
from nvflare.fuel.flare_api.api_spec import JobNotFound, JobNotRunning, TargetType
from nvflare.fuel.flare_api.flare_api import Session

from fedward.errors import RunError
from fedward.server import progress
from fedward.terminal import one_line

STATS = "fedward"
"""The group of FLARE's job statistics (`show_stats JOB_ID server`) in which the controller puts the progress."""


def job_progress(flare: Session, job_id: str) -> dict[str, Any] | None:
    """Return the progress of a running job (see :func:`fedward.server.progress.progress`), None before it begins.

    Raises:
        RunError: no such job, one that does not run, one that is not of this package, or a run folder that is broken.
    """
    where = f"job {job_id}"
    try:
        found = (flare.show_stats(job_id, TargetType.SERVER).get("server") or {}).get(STATS) or {}
    except JobNotRunning as error:
        status = str(flare.get_job_meta(job_id).get("status"))
        remedy = "Fetch what it left behind with download_job in the admin console."
        raise RunError(where, expected="a running job", found=status, remedy=remedy) from error
    except JobNotFound as error:
        remedy = "`fedward status KIT` lists those that run."
        raise RunError(where, expected="a job of this federation", found="none", remedy=remedy) from error
    if "error" in found:
        expected, remedy = "a run folder at the server that can be read", "Look at the folder on the server."
        raise RunError(where, expected=expected, found=found["error"], remedy=remedy)
    return found or None


def describe(flare: Session, job_id: str | None = None) -> list[str]:
    """Return the progress of one job, or of all that run, as text of at most 80 columns; errors as lines if of all."""
    if job_id:
        return [f"job {job_id}", *_lines(flare, job_id)]
    found: list[str] = []
    for job in flare.list_jobs():
        if job["status"] == RunStatus.RUNNING.value:
            found.append(f"job {job['job_id']}  {one_line(job['job_name'])}".rstrip())  # the name is its lead's choice
            try:
                found += _lines(flare, job["job_id"])
            except RunError as error:  # it may have ended since, or be no job of this package
                found.append(f"  {one_line(error.found)}")
    return found or ["no job runs"]


def _lines(flare: Session, job_id: str) -> list[str]:
    state = job_progress(flare, job_id)
    return progress.lines(state) if state else ["  not begun"]
