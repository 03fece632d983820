"""Jobs that wait for a site's administrator, and jobs that have been approved.

Each job has one file in the site's own folder. A job is identified by the digest of its experiment
(:attr:`fedward.config.Experiment.digest`): a job that differs in one setting is another job.
"""

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward import private
from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.storage.audit import now
from fedward.storage.disk import PRIVATE, make_folder, replacing
from fedward.storage.lock import locked

FOLDER = "approvals"
"""Name of the folder with these files, in the site's own folder."""


@dataclass(frozen=True)
class Entry:
    """What a site knows about one job."""

    digest: str
    """Digest of the job's experiment: 64 hexadecimal digits."""
    asked: str | None = None
    """Time of the job's first request (ISO 8601); None if it has not sent one yet."""
    approved: str | None = None
    """Time of the approval (ISO 8601); None while the job waits."""
    experiment: dict[str, Any] | None = None
    """The job's settings as JSON values; None until its first request."""


class Approvals:
    """The files ``<folder>/<digest>.json``, which their owner alone may read.

    A file that other accounts may write to, or a link, is not trusted: reading it raises
    ConfigError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entries(self) -> list[Entry]:
        """Return the entries of all known jobs, sorted by digest."""
        return [self.entry(path.stem) for path in sorted(self._folder.glob("?" * 64 + ".json"))]

    def entry(self, digest: str) -> Entry:
        """Return a job's entry; an empty one for a job that has neither asked nor been approved."""
        path = self._path(digest)
        try:
            _require_own(self._folder, self._folder.lstat())
            with open(path, encoding="utf-8", opener=_open_without_links) as file:
                _require_own(path, os.fstat(file.fileno()))
                entry = Entry(**json.load(file))
        except FileNotFoundError:
            return Entry(digest)
        except (OSError, ValueError, TypeError) as error:
            raise _untrusted(path, f"{type(error).__name__}: {error}") from error
        if entry.digest != digest:
            raise _untrusted(path, "the entry of another job")
        return entry

    def ask(self, experiment: Experiment) -> bool:
        """Return whether a job is approved; record a job that asks for the first time."""
        entry = self.entry(experiment.digest)
        if entry.experiment is None:
            with self._locked(experiment.digest):
                entry = self.entry(experiment.digest)
                settings = experiment.model_dump(mode="json")
                self._write(Entry(entry.digest, now(), entry.approved, settings))
        return entry.approved is not None

    def approve(self, digest: str) -> Entry:
        """Let a job run from its next request on. A job may be approved before it asks."""
        with self._locked(digest):
            entry = self.entry(digest)
            approved = Entry(digest, entry.asked, now(), entry.experiment)
            self._write(approved)
        return approved

    def withdraw(self, digest: str) -> None:
        """Let a job wait again from its next request on; forget a job that has never asked.

        Raises:
            ConfigError: the job is not approved.
        """
        self._require_approved(digest)  # Before a folder is made for the lock.
        with self._locked(digest):
            self._require_approved(digest)
            self._path(digest).unlink()

    def _require_approved(self, digest: str) -> None:
        if self.entry(digest).approved is None:
            raise ConfigError(f"job {digest} is not approved", "Nothing was changed.")

    @contextmanager
    def _locked(self, digest: str) -> Iterator[None]:
        """Hold a job's entry, so that no approval is lost while its site writes that it asks."""
        path = self._path(digest)
        make_folder(self._folder, PRIVATE)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(path))
            except OSError as error:
                lock = path.with_name(f".{path.name}.lock")
                raise _untrusted(lock, f"{type(error).__name__}: {error}") from error
            yield

    def _write(self, entry: Entry) -> None:
        with (
            replacing(self._path(entry.digest)) as partial,
            open(partial, "x", encoding="utf-8", opener=private.opener) as file,
        ):
            file.write(json.dumps(vars(entry), indent=1) + "\n")

    def _path(self, digest: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ConfigError(
                f"job {digest[:100]!r}",
                "Copy it whole from `fedward approve KIT`.",
                expected="the digest of a job, all 64 hexadecimal digits",
                found=f"{len(digest)} characters",
            )
        return self._folder / f"{digest}.json"


def _open_without_links(name: str, flags: int) -> int:
    # A named pipe in the place of the file would block the site for ever without O_NONBLOCK.
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _require_own(path: Path, status: os.stat_result) -> None:
    """Raise ConfigError unless a file or folder belongs to this account or to root, and to no link.

    ``status``: what the operating system says of the opened file, so that it cannot be exchanged
    between the check and the reading.
    """
    is_file_or_folder = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    others_may_write = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    owner_is_trusted = status.st_uid in (0, os.geteuid())
    if not is_file_or_folder or others_may_write or not owner_is_trusted:
        raise _untrusted(path, "one that others may write to, or a link")


def _untrusted(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"approval {path}",
        "Remove it, and approve the job again.",
        expected="a file of this account, which nobody else may write to",
        found=found,
    )
