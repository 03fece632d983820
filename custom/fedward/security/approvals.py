"""Jobs that wait for a site's administrator, and those that are approved: a file for each, in the
site's own folder.

A job is known by the digest of its experiment (:attr:`fedward.config.Experiment.digest`): another
value of one setting is another job.
"""

import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward import private
from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.storage.audit import now
from fedward.storage.disk import PRIVATE, make_folder, replacing

FOLDER = "approvals"
"""In the site's own folder."""


@dataclass(frozen=True)
class Entry:
    """What is known of one job."""

    digest: str
    asked: str | None = None
    """When it first asked to run here; None: not yet."""
    approved: str | None = None
    """When it was approved; None: it waits."""
    experiment: dict[str, Any] | None = None
    """Its settings, once it has asked."""


class Approvals:
    """The files ``<folder>/<digest>.json``, for their owner's eyes alone.

    A file that others may write to, or that is a link, is believed by nobody: reading it raises
    ConfigError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entries(self) -> list[Entry]:
        """Return all jobs that are known, by digest."""
        return [self.entry(path.stem) for path in sorted(self._folder.glob("?" * 64 + ".json"))]

    def entry(self, digest: str) -> Entry:
        """Return what is known of a job: nothing of one that has neither asked nor been approved."""
        path = self._path(digest)
        try:
            _require_own(self._folder, self._folder.lstat())
            with open(path, encoding="utf-8", opener=_no_link) as file:
                _require_own(path, os.fstat(file.fileno()))
                found = Entry(**json.load(file))
        except FileNotFoundError:
            return Entry(digest)
        except (OSError, ValueError, TypeError) as error:
            raise _untrusted(path, f"{type(error).__name__}: {error}") from error
        if found.digest != digest:
            raise _untrusted(path, "the entry of another job")
        return found

    def ask(self, experiment: Experiment) -> bool:
        """Return whether a job is approved; one that is not is noted, with its settings."""
        known = self.entry(experiment.digest)
        if known.experiment is None:
            self._write(
                Entry(known.digest, now(), known.approved, experiment.model_dump(mode="json"))
            )
        return known.approved is not None

    def approve(self, digest: str) -> Entry:
        """Let a job run from its next request on; one that has not asked yet is approved in
        advance.
        """
        known = self.entry(digest)
        self._write(approved := Entry(digest, known.asked, now(), known.experiment))
        return approved

    def withdraw(self, digest: str) -> None:
        """Let a job wait again from its next request on, or forget it if it has not asked.

        Raises:
            ConfigError: it is not approved.
        """
        known = self.entry(digest)
        if known.approved is None:
            raise ConfigError(
                f"job {digest}",
                expected="an approved one",
                found="none",
                remedy="Nothing was changed.",
            )
        self._path(digest).unlink()

    def _write(self, entry: Entry) -> None:
        make_folder(self._folder, PRIVATE)
        with (
            replacing(self._path(entry.digest)) as partial,
            open(partial, "x", encoding="utf-8", opener=private.opener) as file,
        ):
            file.write(json.dumps(vars(entry), indent=1) + "\n")

    def _path(self, digest: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            expected = "the digest of a job, all 64 hexadecimal digits"
            found = f"{len(digest)} characters"
            remedy = "Copy it whole from `fedward approve KIT`."
            raise ConfigError(
                f"job {digest[:100]!r}", expected=expected, found=found, remedy=remedy
            )
        return self._folder / f"{digest}.json"


def _no_link(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would hold the site up


def _require_own(path: Path, status: os.stat_result) -> None:
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    if (
        not kind
        or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        or status.st_uid not in (0, os.geteuid())
    ):
        raise _untrusted(path, "one that others may write to, or a link")


def _untrusted(path: Path, found: str) -> ConfigError:
    expected = "a file of this account, which nobody else may write to"
    remedy = "Remove it, and approve the job again."
    return ConfigError(f"approval {path}", expected=expected, found=found, remedy=remedy)
