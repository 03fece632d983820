"""Jobs that wait for a site's administrator, and jobs that have been approved.

A job is identified by the digest of its experiment (:attr:`fedward.config.Experiment.digest`): a
job that differs in one setting is another job. An approval is of a job under one of the site's
privacy scopes, whose filters may add noise. Under another scope the job waits again. Each job has
one file per scope in the site's own folder.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter

from fedward import private
from fedward.config import Experiment
from fedward.disk import PRIVATE, make_folder, sync
from fedward.errors import ConfigError, UnreadableJsonError, reason_of
from fedward.json_text import read_json
from fedward.storage.audit import now
from fedward.storage.lock import locked

APPROVALS_FOLDER = "approvals"
"""Name of the folder with these files, in the site's own folder."""

_NO_ENTRY = "something other than the entry of a job"

_FILE_NAME = re.compile(r"[0-9a-f]{64}(-[0-9a-f]{16})?\.json")


@dataclass(frozen=True)
class Entry:
    """What a site knows about one job under one privacy scope."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    digest: str
    """Digest of the job's experiment: 64 hexadecimal digits."""
    asked: str | None = None
    """Time of the job's first request (ISO 8601); None if it has not sent one yet."""
    approved: str | None = None
    """Time of the approval (ISO 8601); None while the job waits."""
    experiment: dict[str, Any] | None = None
    """The job's settings as JSON values; None until its first request."""
    scope: str = ""
    """Name of the privacy scope; empty for none."""

    @property
    def file(self) -> str:
        """Name of the entry's file."""
        if not self.scope:
            return f"{self.digest}.json"
        # The name of a scope may have characters that the name of a file may not have.
        return f"{self.digest}-{hashlib.sha256(self.scope.encode()).hexdigest()[:16]}.json"


_ENTRY = TypeAdapter(Entry)


class Approvals:
    """The files with the entries, which their owner alone may read.

    A file that does not meet :data:`fedward.private.RECORD` is not trusted, nor is any file in a
    folder that does not: whoever may write there could put a withdrawn approval back. Reading one
    raises ConfigError.

    Args:
        folder: the folder with the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entries(self) -> tuple[list[Entry], list[ConfigError]]:
        """Return the entries in trusted files, and an error for each other file.

        Both are sorted by the files' names.

        Raises:
            ConfigError: the folder is not trusted, and so no file in it is.
        """
        try:
            self._require_trusted_folder()
        except FileNotFoundError:
            return [], []
        except OSError as error:
            raise _untrusted(self._folder, reason_of(error)) from error
        paths = [path for path in self._folder.glob("*.json") if _FILE_NAME.fullmatch(path.name)]
        entries: list[Entry] = []
        untrusted: list[ConfigError] = []
        for path in sorted(paths):
            try:
                entry = self._read(path)
            except ConfigError as error:
                untrusted.append(error)
                continue
            if entry is not None:
                entries.append(entry)
        return entries, untrusted

    def entry(self, digest: str, scope: str = "") -> Entry:
        """Return a job's entry; an empty one for a job that has neither asked nor been approved.

        Args:
            digest: the job's.
            scope: name of the privacy scope under which the job runs; empty for none.
        """
        return self._read(self._path(digest, scope)) or Entry(digest, scope=scope)

    def _read(self, path: Path) -> Entry | None:
        """Return the entry in a file; None if there is no such file."""
        try:
            self._require_trusted_folder()
            content = read_json(private.read(path, private.RECORD))
        except FileNotFoundError:
            return None
        except (OSError, UnreadableJsonError) as error:
            raise _untrusted(path, reason_of(error)) from error
        try:
            entry = _ENTRY.validate_python(content)
        except ValueError as error:
            raise _untrusted(path, _NO_ENTRY) from error
        if entry.file != path.name:
            raise _untrusted(path, "the entry of another job")
        return entry

    def _require_trusted_folder(self) -> None:
        """Raise ConfigError if others may write to the folder, and OSError if it is not there."""
        problem = private.fault(self._folder.lstat(), private.RECORD)
        if problem:
            raise _untrusted(self._folder, problem)

    def ask(self, experiment: Experiment, scope: str = "") -> bool:
        """Return whether a job is approved; record a job that asks for the first time.

        Args:
            experiment: the job's settings.
            scope: as in :meth:`entry`.
        """
        digest = experiment.digest
        if self.entry(digest, scope).experiment is None:
            with self._locked(digest, scope):
                settings = experiment.model_dump(mode="json")
                entry = self.entry(digest, scope)
                self._write(replace(entry, asked=now(), experiment=settings))
        return self.entry(digest, scope).approved is not None

    def approve(self, digest: str, scope: str = "") -> Entry:
        """Let a job run from its next request on. A job may be approved before it asks."""
        with self._locked(digest, scope):
            approved = replace(self.entry(digest, scope), approved=now())
            self._write(approved)
        return approved

    def withdraw(self, digest: str, scope: str = "") -> None:
        """Let a job wait again from its next request on. It is listed again once it asks.

        Raises:
            ConfigError: the job is not approved under this scope.
        """
        self._require_approved(digest, scope)  # Before a folder is made for the lock.
        with self._locked(digest, scope):
            self._require_approved(digest, scope)
            self._path(digest, scope).unlink()
            # A power cut would bring the approval back.
            sync(self._folder)

    def _require_approved(self, digest: str, scope: str) -> None:
        if self.entry(digest, scope).approved is None:
            under = f" under the privacy scope {scope!r}" if scope else ""
            raise ConfigError(f"job {digest} is not approved{under}", "Nothing was changed.")

    @contextmanager
    def _locked(self, digest: str, scope: str) -> Iterator[None]:
        """Hold a job's entry, so that no approval is lost while its site writes that it asks."""
        path = self._path(digest, scope)
        make_folder(self._folder, PRIVATE)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(path))
            except OSError as error:
                lock = path.with_name(f".{path.name}.lock")
                raise _untrusted(lock, reason_of(error)) from error
            yield

    def _write(self, entry: Entry) -> None:
        text = json.dumps(vars(entry), indent=1) + "\n"
        with private.replacing(self._folder / entry.file) as file:
            file.write(text.encode())

    def _path(self, digest: str, scope: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ConfigError(
                f"job {digest[:100]!r}",
                "Copy it whole from `fedward approve KIT`.",
                expected="the digest of a job, all 64 hexadecimal digits",
                found=f"{len(digest)} characters",
            )
        return self._folder / Entry(digest, scope=scope).file


def _untrusted(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"approval {path}",
        "Remove it, and approve the job again, with the account of the site's service.",
        expected=private.RECORD.expected,
        found=found,
    )
