"""A job sent to a running federation, awaited, and fetched."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import AuthenticationError, InternalError, JobTimeout, NoConnection, SessionClosed
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fedward.errors import ConfigError, RunError
from fedward.flare.jobs.export import SCRIPT
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
    user = user_of(kit)
    try:
        opened = new_secure_session(user, str(kit), timeout=_CONNECT)
    except (*CONNECTION_ERRORS, AuthenticationError) as error:
        raise UnreachableError(
            f"startup kit {kit}",
            expected="a server that accepts it",
            found=str(error),
            remedy="Check that the server runs, and the kit with `nvflare preflight-check -p KIT`.",
        ) from error
    try:
        yield opened
    finally:
        opened.close()  # its threads would keep this process alive


def submit(flare: Session, job: Path, run: str | None = None) -> str:
    """Submit a job folder and return the job's id.

    ``run`` names the run that the job begins or continues. What is sent is a copy, without
    ``job.py``: FLARE's signatures would stay in the folder.
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
            raise RunError(
                f"job {job}",
                expected="a job the server takes",
                found=f"{type(error).__name__}: {error}",
                remedy="Correct the job, or submit it as a user with the role lead.",
            ) from error


def job_meta(job: Path) -> dict[str, Any]:
    """Return what a job's meta.json says; raise ConfigError where it is missing, or none that FLARE could use."""
    try:
        meta = json.loads((job / "meta.json").read_text(encoding="utf-8"))
        if not isinstance(meta["deploy_map"], dict):
            raise TypeError("deploy_map is no mapping of apps to sites")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"job {job}",
            expected="a folder with a meta.json that names apps and sites",
            found=f"{type(error).__name__}: {error}",
            remedy="Export one with `fedward jobs`.",
        ) from error
    return dict(meta)


def wait(flare: Session, job_id: str, timeout: float = 0.0) -> dict[str, Any]:
    """Wait until a job ends, well or not, and return what FLARE says of it; 0 waits for ever."""
    try:
        return dict(flare.wait_for_job(job_id, timeout=timeout, poll_interval=_POLL))
    except JobTimeout as error:
        raise RunError(
            f"job {job_id}",
            expected=f"its end within {timeout:g} s",
            found="a job that goes on",
            remedy="Stop it with abort_job in the admin console, or fetch it later with download_job.",
        ) from error
    except CONNECTION_ERRORS as error:
        raise lost(f"job {job_id}", error) from error


def lost(where: str, error: Exception) -> UnreachableError:
    """Return the error to raise where one of ``CONNECTION_ERRORS`` came up."""
    return UnreachableError(
        where,
        expected="word from the server",
        found=f"{type(error).__name__}: {error}",
        remedy="If the server still runs, so does the job: see list_jobs in the admin console.",
    )


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
    found = unfinished(run)
    if not found:
        return run
    said = "; ".join([str(meta.get("status")), *map(str, meta.get("job_deploy_detail") or [])])
    raise RunError(
        f"job {job_id}",
        expected="a finished run",
        found=f"{found} (FLARE: {said})",
        remedy=f"Read the logs in {out / job_id}; why a site refused a job is in that site's own log.txt.",
    )


def unfinished(run: Path) -> str:
    """Return what is in the place of a finished run, by its ``run.json``; empty if it has finished."""
    try:
        info = json.loads((run / "run.json").read_text(encoding="utf-8"))
        if info["status"] == "finished":
            return ""
        return ": ".join([info["status"], *filter(None, [info["summary"].get("reason")])])
    except FileNotFoundError:
        return "no run at all"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"a run.json that cannot be read, {type(error).__name__}: {error}"


def results(out: Path, meta: dict[str, Any]) -> Path:
    """Return where the run of a job lies that was fetched into ``out``."""
    return out / str(meta["job_id"]) / "workspace" / "fedward"


def user_of(kit: Path) -> str:
    """Return the name a user's startup kit was made for; raise ConfigError where it is no such kit."""
    try:
        content = json.loads((kit / "startup" / "fed_admin.json").read_text(encoding="utf-8"))
        return str(content["admin"]["username"])
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"startup kit {kit}",
            expected="a user's kit, with startup/fed_admin.json",
            found=f"{type(error).__name__}: {error}",
            remedy="Name the folder of a lead's or project admin's kit, not of a site's.",
        ) from error
