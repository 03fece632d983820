"""How far a federation's running jobs are, asked by any of its users; each job's controller answers
from its folder.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nvflare.apis.job_def import RunStatus
from nvflare.fuel.flare_api.api_spec import JobNotFound, JobNotRunning, TargetType

from fedward.errors import RunError
from fedward.flare.jobs.remote import RemoteSession
from fedward.flare.places import RUN
from fedward.server import progress
from fedward.terminal import one_line

LOST = RunStatus.ABANDONED.value
"""What a server that starts calls a job that ran when the server ended; FLARE itself gives no job
this status.
"""

_HOW_LOST = "lost: the server ended while it ran"
_STARTING = "starting"

_BEFORE = (RunStatus.SUBMITTED.value, RunStatus.APPROVED.value, RunStatus.DISPATCHED.value)
"""What FLARE says of a job that does not run yet."""

STATS = "fedward"
"""The group of FLARE's job statistics (`show_stats JOB_ID server`) in which the controller puts the
progress.
"""


def job_progress(flare: RemoteSession, job_id: str) -> dict[str, Any] | None:
    """Return the progress of a running job (see :func:`fedward.server.progress.progress`), None
    before it begins.

    Raises:
        RunError: no such job, one that does not run, one that is not of this package, or a run
            folder that is broken.
    """
    where = f"job {job_id}"
    try:
        found = (flare.show_stats(job_id, TargetType.SERVER).get("server") or {}).get(STATS) or {}
    except (JobNotRunning, JobNotFound) as error:  # FLARE says both of a job that is about to run
        raise _not_running(flare, job_id) from error
    if "error" in found:
        expected = "a run folder at the server that can be read"
        remedy = "Look at the folder on the server."
        raise RunError(where, expected=expected, found=found["error"], remedy=remedy)
    return found or None


def _not_running(flare: RemoteSession, job_id: str) -> RunError:
    """Return the error about a job without a process that could answer."""
    meta = _meta(flare, job_id)
    where = f"job {job_id}"
    expected = "a running job"
    status = str(meta["status"])
    if status in _BEFORE:
        return RunError(
            where, expected=expected, found=_STARTING, remedy="Ask again in some seconds."
        )
    if status == RunStatus.RUNNING.value:
        server = flare.get_system_info()
        if _began(meta) >= float(server.server_info.start_time or 0):
            found = _STARTING if any(job.job_id == job_id for job in server.job_info) else "ending"
            return RunError(
                where, expected=expected, found=found, remedy="Ask again in some seconds."
            )
    if status in (LOST, RunStatus.RUNNING.value):
        status = _HOW_LOST
    remedy = f"Its sender fetches what it has done, or continues it, with `fedward submit --continue {run_of(meta)}`."
    return RunError(where, expected=expected, found=status, remedy=remedy)


def _began(meta: Mapping[str, Any]) -> float:
    """Return when a job that runs was started, in seconds since 1970, by the server's clock."""
    return datetime.fromisoformat(str(meta["start_time"])).timestamp()


def _meta(flare: RemoteSession, job_id: str) -> dict[str, Any]:
    try:
        return flare.get_job_meta(job_id)
    except JobNotFound as error:
        remedy = "`fedward status KIT` lists those that run."
        raise RunError(
            f"job {job_id}", expected="a job of this federation", found="none", remedy=remedy
        ) from error


def has_ended(meta: Mapping[str, Any]) -> bool:
    """Return whether FLARE says that a job has ended."""
    return str(meta["status"]).startswith("FINISHED")


def run_of(meta: Mapping[str, Any]) -> str:
    """Return the name of the run that a job belongs to: that of its sender, else the job's id."""
    return str((meta.get("custom_props") or {}).get(RUN) or meta.get("job_id"))


def describe(flare: RemoteSession, job_id: str | None = None) -> list[str]:
    """Return the progress of one job, or of all that wait, run or were lost, as text of at most 80
    columns.

    Raises:
        RunError: as :func:`job_progress`, about the one job. If it is all of them, an error is a
            line of the text.
    """
    if job_id:
        return [f"job {job_id}", *_lines(flare, job_id)]
    jobs = flare.list_jobs()
    found: list[str] = []
    for job in jobs:
        if job["status"] in (*_BEFORE, RunStatus.RUNNING.value):
            found.append(_headline(job))
            try:
                found += _lines(flare, job["job_id"])
            except RunError as error:  # it may have ended since, or be no job of this package
                found.append(f"  {one_line(error.found)}")
        elif job["status"] == LOST and not any(_sent_after(other, job) for other in jobs):
            found += [_headline(job), f"  {_HOW_LOST}"]
    return found or ["no job runs"]


def _headline(job: Mapping[str, Any]) -> str:
    return (
        f"job {job['job_id']}  {one_line(job['job_name'])}".rstrip()
    )  # the name is its lead's choice


def _sent_after(other: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Return whether the other job has the same name and was sent later: it probably takes this
    one's place.
    """
    return bool(other["job_name"] == job["job_name"] and other["submit_time"] > job["submit_time"])


def _lines(flare: RemoteSession, job_id: str) -> list[str]:
    meta = _meta(flare, job_id)
    run = [f"  run {one_line(run_of(meta))}"] if run_of(meta) != job_id else []
    if meta["status"] in _BEFORE:
        return [*run, f"  {_STARTING}"]
    state = job_progress(flare, job_id)
    return [*run, *(progress.lines(state) if state else [f"  {_STARTING}"])]
