"""Sending a job to a running federation, waiting for its end, and fetching its results."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from nvflare.apis.job_def import RunStatus

from fedward.errors import RunError, UnreadableJsonError, reason_of
from fedward.flare.jobs.export import SCRIPT
from fedward.flare.jobs.remote import RemoteSession
from fedward.flare.jobs.status import LOST, has_ended, meta_of, run_of, with_reason
from fedward.flare.kits.reading import reading
from fedward.flare.places import ERROR_FILE, RUN_PROPERTY
from fedward.json_text import read_json_file
from fedward.runs.standing import continuing
from fedward.storage.plain_files import require_plain_files
from fedward.terminal import one_line

if TYPE_CHECKING:
    from fedward.flare.jobs.reporter import Reporter

POLL = 2.0
"""Seconds between two looks at a job."""


@contextmanager
def session(kit: Path) -> Iterator[RemoteSession]:
    """Log in with a user's startup kit; see :class:`RemoteSession`."""
    with RemoteSession(kit) as opened:
        yield opened


def submit(flare: RemoteSession, job: Path, run: str | None = None) -> str:
    """Submit a job folder and return the job's id.

    What is sent is a copy without ``job.py``, because FLARE writes signatures into the folder.

    Args:
        flare: session of a user.
        job: the folder.
        run: name of the run that the job begins or continues; by default the job's id.

    Raises:
        ConfigError: the folder holds no job.
        RunError: the folder holds anything but files and folders, or the server does not accept the
            job.
        UnreachableError: the server does not answer.
    """
    meta = job_meta(job)
    with TemporaryDirectory() as folder:
        copy = shutil.copytree(
            job, Path(folder) / job.resolve().name, ignore=shutil.ignore_patterns(SCRIPT)
        )
        if run:
            meta["custom_props"] = {**meta.get("custom_props", {}), RUN_PROPERTY: run}
            (copy / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        try:
            return flare.submit_job(str(copy))
        except RunError:
            raise
        except Exception as error:  # FLARE's exceptions have no common base.
            raise RunError(
                f"job {job}",
                expected="a job the server takes",
                found=f"{type(error).__name__}: {error}",
                remedy="Correct the job, or submit it as a user with the role lead.",
            ) from error


def job_meta(job: Path) -> dict[str, Any]:
    """Return the content of a job's meta.json.

    Raises:
        ConfigError: it is missing, or FLARE could not use it.
        RunError: the job folder holds anything but files and folders. What a link leads to, such as
            a key, would be sent as a part of the job.
    """
    require_plain_files(job, "job")
    expected = "a folder with a meta.json that names apps and sites"
    with reading(f"job {job}", expected, "Export one with `fedward jobs`."):
        meta = read_json_file(job / "meta.json")
        if not isinstance(meta["deploy_map"], dict):
            raise TypeError("deploy_map does not map apps to sites")
        return dict(meta)


def wait(
    flare: RemoteSession, job_id: str, timeout: float = 0.0, reporter: "Reporter | None" = None
) -> dict[str, Any]:
    """Wait until a job ends, well or not, and return what FLARE says of it.

    Args:
        flare: session of a user.
        job_id: the job's.
        timeout: seconds; 0 to wait for ever.
        reporter: reports how the job goes on.

    Raises:
        RunError: it goes on after ``timeout``.
        UnreachableError: the server does not answer.
    """
    end = time.monotonic() + timeout
    started = None
    while True:
        meta = meta_of(flare, job_id)
        if has_ended(meta):
            return with_reason(flare, meta)
        system = flare.get_system_info()
        if meta["status"] == RunStatus.RUNNING.value:
            started = started or system.server_info.start_time
            if started != system.server_info.start_time:
                return {**meta, "status": LOST}
        if reporter:
            reporter.look(flare, job_id, system)
        if timeout and time.monotonic() > end:
            raise RunError(
                f"job {job_id}",
                expected=f"its end within {timeout:g} s",
                found="a job that goes on",
                remedy=(
                    f"Fetch it later with `{continuing(run_of(meta))}`, or stop it with abort_job."
                ),
            )
        time.sleep(POLL)


def fetch(
    flare: RemoteSession, meta: Mapping[str, Any], out: Path, lost: Sequence[str] = ()
) -> Path:
    """Download a job's results into ``out`` and return the run folder in them.

    The status in ``run.json`` decides whether the run has finished. FLARE calls a job complete that
    trained nothing, and abnormal one that has finished all rounds while a site was away.

    Args:
        flare: session of the job's submitter.
        meta: what FLARE says of the job at its end.
        out: folder; the results get a folder of the job's id in it.
        lost: sentences on sites that were silent at the end, which an error names first.

    Raises:
        RunError: the run has not finished, or was lost with its server.
    """
    job_id = str(meta["job_id"])
    go_on = f"`{continuing(run_of(meta))}` goes on from the last round."
    if meta["status"] == LOST:
        raise RunError(
            f"job {job_id}",
            expected="a job that its server ends",
            found="one that was lost: the server ended, and was started again",
            remedy=f"Now {go_on}",
        )
    flare.download_job_result(job_id, str(out))
    run = results(out, meta)
    state = unfinished(run)
    if state:
        flares_words = [str(meta.get("status")), *map(str, meta.get("job_deploy_detail") or [])]
        raise RunError(
            f"job {job_id}",
            expected="a finished run",
            # The server and the sites chose these words.
            found=one_line("; ".join([*lost, f"{state} (FLARE: {'; '.join(flares_words)})"])),
            remedy=(
                f"See the logs in {out / job_id}; a site's refusal is in its log.txt. "
                f"Once that is fixed, {go_on}"
            ),
        )
    return run


def unfinished(run: Path) -> str:
    """Return the status in ``run.json`` and its reason; empty if the run has finished."""
    try:
        info = read_json_file(run / "run.json")
        status = info["status"]
        reason = info["summary"].get("reason")
    except FileNotFoundError:
        return f"no run at all: {_why_no_run(run)}"
    except (OSError, UnreadableJsonError, KeyError, TypeError, AttributeError) as error:
        return f"a run.json that cannot be read, {reason_of(error)}"
    if status == "finished":
        return ""
    return f"{status}: {reason}" if reason else str(status)


def _why_no_run(run: Path) -> str:
    """Return why a run did not begin, from the file that :mod:`fedward.flare.controller` writes."""
    try:
        return one_line((run / ERROR_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "the job ended before it began one"


def results(out: Path, meta: Mapping[str, Any]) -> Path:
    """Return the run folder of a job whose results were fetched into ``out``."""
    return out / str(meta["job_id"]) / "workspace" / "fedward"
