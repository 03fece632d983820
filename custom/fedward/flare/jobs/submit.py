"""A job sent to a running federation, awaited, and fetched."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import AuthenticationError, InternalError, JobTimeout, NoConnection, SessionClosed
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fedward.errors import RunError
from fedward.flare.jobs.export import SCRIPT
from fedward.flare.kits.kit import open_kit, reading
from fedward.flare.places import RUN

_CONNECT, _POLL = 10.0, 2.0
"""Seconds to reach the server, and between two looks at a job."""

CONNECTION_ERRORS = (NoConnection, SessionClosed, InternalError, FLCommunicationError)
"""What FLARE raises where the server cannot be reached, or has been started anew."""


class UnreachableError(RunError):
    """The server does not answer; its jobs may go on."""


@contextmanager
def session(kit: Path) -> Iterator[Session]:
    """Log in with an admin's startup kit, as the user it was made for."""
    user = open_kit(kit, "user").name
    try:
        opened = new_secure_session(user, str(kit), timeout=_CONNECT)
    except (*CONNECTION_ERRORS, AuthenticationError) as error:
        where, remedy = f"startup kit {kit}", "Check that the server runs, and the kit with `fedward doctor KIT`."
        raise UnreachableError(where, expected="a server that accepts it", found=str(error), remedy=remedy) from error
    with closing(opened):  # its threads would keep this process alive
        yield opened


def submit(flare: Session, job: Path, run: str | None = None) -> str:
    """Submit a job folder and return the job's id.

    ``run`` names the run that the job begins or continues. What is sent is a copy without ``job.py``, since FLARE
    writes signatures into the folder.
    """
    meta = job_meta(job)
    with TemporaryDirectory() as folder:
        copy = shutil.copytree(job, Path(folder) / job.resolve().name, ignore=shutil.ignore_patterns(SCRIPT))
        if run:
            meta["custom_props"] = {**meta.get("custom_props", {}), RUN: run}
            (copy / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        try:
            return str(flare.submit_job(str(copy)))
        except CONNECTION_ERRORS as error:
            raise lost(f"job {job}", error) from error
        except Exception as error:  # FLARE's have no common base
            found = f"{type(error).__name__}: {error}"
            remedy = "Correct the job, or submit it as a user with the role lead."
            raise RunError(f"job {job}", expected="a job the server takes", found=found, remedy=remedy) from error


def job_meta(job: Path) -> dict[str, Any]:
    """Return what a job's meta.json says; ConfigError: it is missing, or FLARE could not use it."""
    expected = "a folder with a meta.json that names apps and sites"
    with reading(f"job {job}", expected, "Export one with `fedward jobs`."):
        meta = json.loads((job / "meta.json").read_text(encoding="utf-8"))
        if not isinstance(meta["deploy_map"], dict):
            raise TypeError("deploy_map does not map apps to sites")
        return dict(meta)


def wait(flare: Session, job_id: str, timeout: float = 0.0) -> dict[str, Any]:
    """Wait until a job ends, well or not, and return what FLARE says of it; 0 waits for ever."""
    try:
        return dict(flare.wait_for_job(job_id, timeout=timeout, poll_interval=_POLL))
    except JobTimeout as error:
        expected, found = f"its end within {timeout:g} s", "a job that goes on"
        remedy = "Stop it with abort_job in the admin console, or fetch it later with download_job."
        raise RunError(f"job {job_id}", expected=expected, found=found, remedy=remedy) from error
    except CONNECTION_ERRORS as error:
        raise lost(f"job {job_id}", error) from error


def lost(where: str, error: Exception) -> UnreachableError:
    """Return the error to raise where one of ``CONNECTION_ERRORS`` came up."""
    found = f"{type(error).__name__}: {error}"
    remedy = "If the server still runs, so does the job: see list_jobs in the admin console."
    return UnreachableError(where, expected="an answer from the server", found=found, remedy=remedy)


def fetch(flare: Session, meta: dict[str, Any], out: Path) -> Path:
    """Download a job's results into ``out`` and return the run folder in them.

    What counts is the status in ``run.json``: FLARE calls a job complete that trained nothing, and abnormal one that
    has finished all rounds while a site was away.
    """
    job_id = str(meta["job_id"])
    try:
        flare.download_job_result(job_id, str(out))
    except CONNECTION_ERRORS as error:
        raise lost(f"results of job {job_id}", error) from error
    run = results(out, meta)
    if found := unfinished(run):
        reported = "; ".join([str(meta.get("status")), *map(str, meta.get("job_deploy_detail") or [])])
        remedy = f"See the logs in {out / job_id}; a site's refusal is in its log.txt."
        found += f" (FLARE: {reported})"
        raise RunError(f"job {job_id}", expected="a finished run", found=found, remedy=remedy)
    return run


def unfinished(run: Path) -> str:
    """Return what ``run.json`` says instead of finished; empty if the run has finished."""
    try:
        info = json.loads((run / "run.json").read_text(encoding="utf-8"))
        status, reason = info["status"], info["summary"].get("reason")
        return "" if status == "finished" else f"{status}: {reason}" if reason else str(status)
    except FileNotFoundError:
        return "no run at all"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"a run.json that cannot be read, {type(error).__name__}: {error}"


def results(out: Path, meta: dict[str, Any]) -> Path:
    """Return where the run of a job lies that was fetched into ``out``."""
    return out / str(meta["job_id"]) / "workspace" / "fedward"
