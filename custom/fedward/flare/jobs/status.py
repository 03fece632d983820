"""The progress of a federation's jobs, for any of its users.

Each running job's controller answers from its run folder.
"""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nvflare.apis.job_def import RunStatus
from nvflare.fuel.flare_api.api_spec import JobNotFound, JobNotRunning, TargetType

from fedward.errors import RunError
from fedward.flare.jobs.remote import RemoteSession
from fedward.flare.places import RUN_PROPERTY
from fedward.runs.standing import continuing
from fedward.server import run_status
from fedward.terminal import one_line

LOST = RunStatus.ABANDONED.value
"""Status that a server, when it starts, gives to a job that ran when the server ended.

FLARE itself gives no job this status."""

STATS = "fedward"
"""Group of FLARE's job statistics (`show_stats JOB_ID server`) with the controller's progress."""

_HOW_LOST = "lost: the server ended while it ran"
_STARTING = "starting"
_ASK_AGAIN = "Ask again in some seconds."

_LOOKS_FOR_REASON = 5
_SECONDS_BETWEEN_LOOKS = 1.0

NOT_RUNNING_YET = (
    RunStatus.SUBMITTED.value,
    RunStatus.APPROVED.value,
    RunStatus.DISPATCHED.value,
)
"""Status of a job that does not run yet."""


def job_progress(flare: RemoteSession, job_id: str) -> dict[str, Any] | None:
    """Return the progress of a running job, None before it begins.

    See :func:`fedward.server.run_status.progress` for the content.

    Raises:
        RunError: no such job, one that does not run, one that is not of this package, or a run
            folder that is broken.
    """
    try:
        stats = flare.show_stats(job_id, TargetType.SERVER)
    except (JobNotRunning, JobNotFound) as error:  # FLARE says both of a job that is about to run.
        raise _not_running(flare, job_id) from error
    state = (stats.get("server") or {}).get(STATS) or {}
    if "error" in state:
        raise RunError(
            f"job {job_id}",
            expected="a run folder at the server that can be read",
            found=state["error"],
            remedy="Look at the folder on the server.",
        )
    return state or None


def _not_running(flare: RemoteSession, job_id: str) -> RunError:
    """Return the error about a job without a process that could answer."""
    meta = meta_of(flare, job_id)
    state = str(meta["status"])
    remedy = (
        f"Its sender fetches what it has done, or continues it, with `{continuing(run_of(meta))}`."
    )
    if state in NOT_RUNNING_YET:
        state = _STARTING
        remedy = _ASK_AGAIN
    elif state == RunStatus.RUNNING.value:
        server = flare.get_system_info()
        if _start_time(meta) < float(server.server_info.start_time or 0):
            state = _HOW_LOST
        else:
            has_process = any(job.job_id == job_id for job in server.job_info)
            state = _STARTING if has_process else "ending"
            remedy = _ASK_AGAIN
    elif state == LOST:
        state = _HOW_LOST
    return RunError(f"job {job_id}", expected="a running job", found=state, remedy=remedy)


def _start_time(meta: Mapping[str, Any]) -> float:
    """Return when a running job was started, in seconds since 1970, by the server's clock."""
    return datetime.fromisoformat(str(meta["start_time"])).timestamp()


def meta_of(flare: RemoteSession, job_id: str) -> dict[str, Any]:
    """Return what FLARE says of a job; RunError if the server knows none of that id.

    It may have been deleted.
    """
    try:
        return flare.get_job_meta(job_id)
    except JobNotFound as error:
        raise RunError(
            f"job {job_id}",
            expected="a job of this federation",
            found="none",
            remedy="`fedward status KIT` lists those that run.",
        ) from error


def has_ended(meta: Mapping[str, Any]) -> bool:
    """Return whether FLARE says that a job has ended."""
    return str(meta["status"]).startswith("FINISHED")


def with_reason(flare: RemoteSession, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what FLARE says of a job that has ended, with who refused it if nobody could run it.

    FLARE's server writes that a job failed to run, and only then who refused it. So a job without a
    reason is looked at again, for some seconds, as it may have none.

    Args:
        flare: session of a user.
        meta: what FLARE says of the job.
    """
    looked_at = dict(meta)
    for _ in range(_LOOKS_FOR_REASON):
        is_written = bool(looked_at.get("job_deploy_detail"))
        if looked_at["status"] != RunStatus.FAILED_TO_RUN.value or is_written:
            break
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        looked_at = meta_of(flare, str(looked_at["job_id"]))
    return looked_at


def run_of(meta: Mapping[str, Any]) -> str:
    """Return the name of a job's run: the one that the sender gave, else the job's id."""
    return str((meta.get("custom_props") or {}).get(RUN_PROPERTY) or meta.get("job_id"))


def describe(flare: RemoteSession, job_id: str | None = None) -> list[str]:
    """Return the progress of one job, or of all that wait, run or were lost.

    Args:
        flare: session of a user.
        job_id: the one job; None for all. An error about one of them is a line of the text.

    Returns:
        Lines of at most 80 columns.

    Raises:
        RunError: as :func:`job_progress`, about the one job.
    """
    if job_id:
        return [f"job {job_id}", *_progress_lines(flare, job_id)]
    jobs = flare.list_jobs()
    lines: list[str] = []
    for job in jobs:
        if job["status"] in (*NOT_RUNNING_YET, RunStatus.RUNNING.value):
            lines.append(_headline(job))
            try:
                lines += _progress_lines(flare, job["job_id"])
            except RunError as error:  # It may have ended, or be a job of another package.
                lines.append(f"  {one_line(error.found)}")
        elif job["status"] == LOST and not any(_replaces(other, job) for other in jobs):
            lines += [_headline(job), f"  {_HOW_LOST}"]
    return lines or ["no job runs"]


def _headline(job: Mapping[str, Any]) -> str:
    name = one_line(job["job_name"])  # The lead chose it, so it may hold control characters.
    return f"job {job['job_id']}  {name}".rstrip()


def _replaces(other: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Return whether the other job probably replaces this one: same name, sent later."""
    return bool(other["job_name"] == job["job_name"] and other["submit_time"] > job["submit_time"])


def _progress_lines(flare: RemoteSession, job_id: str) -> list[str]:
    meta = meta_of(flare, job_id)
    lines = []
    run = run_of(meta)
    if run != job_id:
        lines.append(f"  run {one_line(run)}")
    state = None
    if meta["status"] not in NOT_RUNNING_YET:
        state = job_progress(flare, job_id)
    lines += run_status.lines(state) if state else [f"  {_STARTING}"]
    return lines
