"""The run folder: everything that a run leaves behind, in files with a fixed format."""

import errno
import json
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from uuid import uuid4

from fedward.config import Experiment
from fedward.digests import digest, file_digest
from fedward.disk import append, save_json
from fedward.errors import ConfigError, RunError, option, reason_of
from fedward.json_text import read_json_file
from fedward.methods import settings_of
from fedward.methods.requirements import COMMON_RECORDS, Requirements
from fedward.model_state import State
from fedward.protocol.versions import versions
from fedward.storage import audit
from fedward.storage.audit import AuditLog, now
from fedward.storage.info import FORMAT, CardOfSite, RunInfo, Status, Summary, read_info
from fedward.storage.model_files import (
    SiteModels,
    StateT,
    load_state,
    save_model,
    save_state,
)
from fedward.storage.outputs import REPORT, SHEET, outputs
from fedward.storage.rows import LOGS, Row, row_of, written
from fedward.storage.saved_states import SavedStates

_BEGINNING = ("method", "job", "settings", "init", "leaks", "private", "untrained")
"""Fields of run.json that are set when a run begins, do not change, and have one digest together.

The first line of the audit log has this digest (:func:`beginning_digest`). The other fields that do
not change, such as ``engine`` and ``seed``, are in that line with their values.
"""
_KEPT_STATES = 2
"""States that are kept: a run goes on from the older one if the newest cannot be read."""

_DAMAGED = (OSError, ValueError, KeyError, TypeError, OverflowError)
"""Errors from a JSON file that holds something else than what was written."""

_LEAST_ROOM = 1 << 20
"""Bytes that every run needs on its disk."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewRun:
    """What a run folder records of a run's beginning, beside its job and its first model."""

    engine: str
    """``local`` or ``flare``."""
    id: str | None = None
    """32 hexadecimal digits that no other run has; drawn by default."""
    job: str = ""
    """Name of the job; empty for none."""
    leaks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What is in several splits, where all sites' images are known; see :class:`RunInfo`."""


class RunFolder:
    """Writer of one run's folder; docs/federation_jobs.md lists the files.

    ``append`` buffers until ``commit``: a round's rows reach the logs only together with the state
    after it, so a resumed run neither loses nor repeats a row. Only the audit log is written at
    once and never cut.
    """

    def __init__(
        self, path: Path, info: RunInfo, records: Collection[str], reopened: bool = False
    ) -> None:
        self.path = path
        self.info = info
        self._reopened = reopened
        self._logs = sorted(COMMON_RECORDS.union(records))
        self.models = SiteModels(path / "models")
        self._states = SavedStates(path)
        self._lines: dict[str, list[str]] = {}
        """Log -> its buffered lines, which :meth:`flush` writes."""
        self._best: tuple[State, dict[str, Any]] | None = None
        """The best model of an exchange that is not committed, and what its JSON file says."""
        self.watch: Callable[[Path], None] = lambda path: None
        """Is called with the folder after every commit and change of status."""

    @classmethod
    def create(
        cls,
        path: Path,
        experiment: Experiment,
        needs: Requirements,
        sites: list[str],
        new: NewRun,
        *,
        init: Mapping[str, Any] | None = None,
        base: str | None = None,
    ) -> "RunFolder":
        """Start a new run.

        Args:
            path: the folder, which is new or empty.
            experiment: all settings of the run.
            needs: requirements of the experiment's algorithm.
            sites: the sites it starts with.
            new: what else it records of its beginning.
            init: the weights it starts from, unless these are fresh; see
                :mod:`fedward.starting_model`.
            base: SHA-256 of the frozen part of its network.

        Raises:
            RunError: the folder holds files: results are never overwritten.
        """
        refuse_results(path)
        path.mkdir(parents=True, exist_ok=True)
        optional: dict[str, Any] = {
            "settings": settings_of(experiment.method, experiment.options).model_dump(mode="json"),
            "init": init,
            "base": base,
            "job": new.job,
            "leaks": dict(new.leaks),
            "private": needs.tensors.private,
            "untrained": needs.tensors.untrained,
        }
        info = RunInfo(
            format=FORMAT,
            id=new.id or uuid4().hex,
            method=experiment.method,
            engine=new.engine,
            seed=experiment.seed,
            sites=tuple(sites),
            started=now(),
            status="running",
            versions=versions(),
            experiment=experiment.model_dump(mode="json"),
            summary=Summary(),
            **{name: value for name, value in optional.items() if value},
        )
        run = cls(path, info, needs.sends.records)
        # Without this file the folder would be no run's, and a process that is killed before the
        # first line of the audit log would leave one that cannot be used again.
        save_json(path / "run.json", info.dumped())
        run._save_info()
        return run

    @classmethod
    def reopen(
        cls,
        path: Path,
        experiment: Experiment | None = None,
        records: Collection[str] = (),
        sites: Sequence[str] = (),
    ) -> "RunFolder":
        """Open the folder of a run that was interrupted, or that is only read.

        Args:
            path: the folder.
            experiment: settings that the run must have; None: any.
            records: logs that its algorithm requires; a run that is only read needs none.
            sites: sites that take part from now on. New ones join the run.

        Raises:
            RunError: there is no run, or it belongs to another experiment.
        """
        run = cls(path, read_info(path), records, reopened=True)
        if experiment is not None and run.experiment != experiment:
            raise RunError(
                f"run folder {path}",
                "Resume with the same job, or start a new run in another folder.",
                expected="the experiment it was started with",
                found="other settings",
            )
        joined = sorted(set(sites) - set(run.sites))
        if joined and not run.finished:
            run.audit.add("joined", sites=joined)
            run._update(sites=tuple(sorted([*run.sites, *joined])))
        return run

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment the run was started with."""
        return Experiment.parse(self.info.experiment, f"run folder {self.path}")

    @property
    def sites(self) -> list[str]:
        """The sites the run was started with, and those that joined it later."""
        return list(self.info.sites)

    @property
    def finished(self) -> bool:
        """Whether the run ended well."""
        return self.info.status == "finished"

    @cached_property
    def audit(self) -> AuditLog:
        """The audit log, opened for writing at first use.

        It gets its first line then, unless it has one.
        """
        log = AuditLog(self.path / audit.LOG, self.info.id, self.info.audit)
        if not log.is_begun:
            log.add("begun", experiment=self.experiment.digest, **_beginning(self.info))
        return log

    @property
    def first_model(self) -> str | None:
        """SHA-256 of the model that the first exchange sent, by the audit log; None before it."""
        asked = audit.oldest(self.path, "asked")
        return asked["details"]["model"] if asked else None

    @property
    def has_state(self) -> bool:
        """Whether a state was committed, from which the run can be resumed."""
        return bool(self._states.rounds())

    def record(self, log: str, row: dict[str, Any]) -> None:
        """Buffer a row as :meth:`append` does, and write it to the audit log at once."""
        self.append(log, row)
        self.audit.add("recorded", log=log, row=row)

    def append(self, log: str, row: Row | Mapping[str, Any]) -> None:
        """Buffer one row for ``<log>.jsonl``, which the next :meth:`commit` writes.

        Raises:
            ConfigError: the run's algorithm has not declared the log.
            ValueError: readers of the log would refuse the row.
        """
        if log not in self._logs:
            raise ConfigError(
                f"log {log!r} of the run folder",
                "Add it to the records of the algorithm's requirements.",
                expected=f"one of {', '.join(self._logs)}",
                found=f"a record that {self.info.method} has not declared",
            )
        if isinstance(row, Mapping) and log in LOGS:
            row = row_of(LOGS[log], json.dumps(row))
        line = json.dumps(row) + "\n" if isinstance(row, Mapping) else written(row)
        self._lines.setdefault(log, []).append(line)

    def commit(self, round_: int, state: Any) -> None:
        """Write the buffered rows and the state after ``round_`` rounds.

        The audit log calls the round committed once all of it is on the disk. The lengths of the
        logs are kept with the state: rows after them come from a round that never ended, and are
        cut when the run is resumed.
        """
        self.flush()
        self._save_best()
        self._states.keep_lengths(round_, self._logs)
        save_state(self._states.folder(round_), state)
        self.audit.add("committed", round=round_, state=self._states.digest(round_))
        self.models.prune(self._states.drop_all_but(_KEPT_STATES))
        self._save_info()

    def restore(self, kind: type[StateT]) -> StateT | None:
        """Return the newest saved state that is whole, and remove what later rounds have left.

        A newer state that is damaged is put aside; the log and the audit log say so.

        Returns:
            None if no state was saved.

        Raises:
            RunError: states were saved but none is whole, or the newest whole one is of another
                method or version.
        """
        newest, damages = self._states.newest_whole()
        for round_, damage in damages.items():
            _log.warning(
                "the state after round %d is not used, but that after %d: %s",
                round_,
                newest,
                damage,
            )
            self.audit.add("unusable", round=round_, found=damage)
            self._states.mark_damaged(round_)
        if self._reopened:
            state = None if newest is None else self._states.digest(newest)
            self.audit.add("resumed", round=newest or 0, state=state)
        if newest is None:
            self._require_no_round()
            return None
        self._remove_best_of_later_round(newest)
        for log, length in self._states.lengths(newest).items():
            os.truncate(self._states.log(log), length)
        self.models.forget_after(newest)
        return load_state(self._states.folder(newest), kind)

    def _remove_best_of_later_round(self, newest: int) -> None:
        """Remove the best model if its round was given up, or its JSON file is not there.

        The process was killed at the moment at which it saved the model, or soon after.

        Args:
            newest: the round after which the run goes on.
        """
        best = self.best()
        if best and best[0] > newest:
            reason = f"its round {best[0]} is after"
        elif best is None and (self.path / "best.safetensors").exists():
            reason = "its round is not known, but may be after"
        else:
            return
        _log.warning(
            "the best model is removed, as %s the state of round %d that the run goes on from",
            reason,
            newest,
        )
        for name in ("best.json", "best.safetensors"):
            (self.path / name).unlink(missing_ok=True)

    def _require_no_round(self) -> None:
        """Raise RunError if rounds were committed, though no saved state is there.

        Sites refuse a run whose rounds begin again.
        """
        committed = next(audit.rows(self.path, "committed"), None)
        if committed and committed["details"]["round"]:
            raise RunError(
                f"run folder {self.path}",
                "Start a new run in another folder.",
                expected="a saved state to go on from",
                found="none: they were removed, as by `fedward prune`",
            )

    def keep_best(self, state: State, sidecar: dict[str, Any]) -> None:
        """Keep the best global model so far, which the next :meth:`commit` saves.

        Until then a process that is killed leaves the best model of the committed rounds.
        """
        self._best = (state, sidecar)

    def _save_best(self) -> None:
        if self._best:
            state, sidecar = self._best
            self.save_global("best", state, sidecar)
            self._best = None

    def best(self) -> tuple[int, float] | None:
        """Return round and validation value of the best global model so far; None without one.

        Raises:
            RunError: its JSON file is damaged.
        """
        if self._best:
            _, sidecar = self._best
            return sidecar["round"], sidecar["value"]
        path = self.path / "best.json"
        try:
            content = read_json_file(path)
            return int(content["round"]), float(content["value"])
        except FileNotFoundError:
            # A run that goes on removes it for as long as it saves a better model.
            return None
        except _DAMAGED as error:
            raise RunError(
                str(path),
                "Restore it from a copy, or remove it and best.safetensors.",
                expected="the round of the best model, and its validation value",
                found=reason_of(error),
            ) from error

    def save_global(self, name: str, state: State, sidecar: dict[str, Any]) -> None:
        """Save ``<name>.safetensors`` with a JSON file beside it.

        The JSON file says how to use the model, and which of its tensors are untrained.

        Args:
            name: of the files, without their endings.
            state: the model.
            sidecar: further JSON values for the JSON file.
        """
        about = self.described(state)
        json_path = self.path / f"{name}.json"
        # The JSON file of an earlier model must not stand beside the new one, whenever the process
        # is killed.
        json_path.unlink(missing_ok=True)
        save_model(self.path / f"{name}.safetensors", state)
        save_json(json_path, {**about, **sidecar})

    def described(self, tensors: Collection[str]) -> dict[str, Any]:
        """Return what the JSON file beside each model of the run says.

        ``tensors``: names of the model's tensors.
        """
        experiment = self.info.experiment
        about = {key: experiment[key] for key in ("method", "net", "pretrained", "data", "seed")}
        if self.info.base:
            about |= {"trainable": experiment["trainable"], "base": self.info.base}
        untrained_beginnings = self.info.untrained + self.info.private
        untrained = [key for key in tensors if key.startswith(untrained_beginnings)]
        if untrained:
            about["untrained"] = untrained
            if self.info.untrained:
                about["note"] = "No round trained these tensors."
            else:
                about["note"] = "Each site trained its own of these, and kept it."
        return {"format": FORMAT, **about}

    def set_status(self, status: Status, summary: Summary) -> None:
        """Record that the run is ``running`` again, ``finished`` or ``failed``.

        The buffered rows of a finished run are written. When a run ends, the audit log records the
        hashes of all files that it leaves.
        """
        if status == "finished":
            self.flush()
            self._save_best()
        has_ended = status != "running"
        self._update(status=status, ended=now() if has_ended else None, summary=summary)
        if has_ended:
            self.audit.add(
                "ended",
                status=status,
                reason=summary.reason,
                run=info_digest(self.info),
                files=outputs(self.path),
            )
        self._save_info()

    @property
    def reported(self) -> bool:
        """Whether the last line of the audit log names the report."""
        return next(audit.rows(self.path), {}).get("event") == "reported"

    def report(self, write: Callable[[Path], object]) -> None:
        """Write the report of a run that has ended; the audit log records its pages' hashes.

        ``write``: writes the pages of a run folder.
        """
        write(self.path)
        report = self.path / REPORT
        sheet = self.path / SHEET
        if not report.exists():
            return
        hashes = {"report": file_digest(report)}
        if sheet.exists():
            hashes["sheet"] = file_digest(sheet)
        self.audit.add("reported", **hashes)
        self._save_info()

    def note_origins(self, synthetic: Mapping[str, bool]) -> None:
        """Record whether fedward drew the images of sites, to be written with the next commit."""
        self._update(synthetic=dict(sorted({**self.info.synthetic, **synthetic}.items())))

    def note_cards(self, cards: Mapping[str, CardOfSite]) -> None:
        """Record what sites state about their images, to be written with the next commit."""
        if cards:
            self._update(cards=dict(sorted({**self.info.cards, **cards}.items())))

    def flush(self) -> None:
        """Write the buffered rows.

        Rows of a round that never ends are cut when the run is resumed.
        """
        for log in self._logs:
            lines = self._lines.pop(log, [])
            # An empty log is made, too, as the lengths of all are kept.
            if lines or not self._states.log(log).exists():
                append(self._states.log(log), "".join(lines).encode())

    def _update(self, **changes: Any) -> None:
        self.info = self.info.model_copy(update=changes)

    def _save_info(self) -> None:
        self._update(audit=self.audit.end)
        save_json(self.path / "run.json", self.info.dumped())
        self.watch(self.path)


def refuse_results(path: Path) -> None:
    """Refuse a folder for a new run that holds files, because results are never overwritten.

    Two kinds of files are no results: what a process left that died before its first file was
    whole, and images that were decoded before the run.

    Raises:
        RunError: the folder holds other files, or is a file itself.
    """
    if not path.exists():
        return
    another = f"Name another folder with {option('out')}."
    expected = "a new or empty folder"
    if not path.is_dir():
        raise RunError(f"run folder {path}", another, expected=expected, found="a file")
    for entry in path.iterdir():
        if not entry.name.endswith(".partial") and not _holds_caches_alone(entry):
            raise RunError(
                f"run folder {path}",
                f"{another} {option('resume', True)} continues a run that has not finished.",
                expected=expected,
                found="files in it",
            )


def is_unbegun(path: Path) -> bool:
    """Return whether a folder holds what a run leaves that ends before it has a run.json."""
    if not path.is_dir() or not any(path.iterdir()):
        return False
    try:
        refuse_results(path)
    except RunError:
        return False
    return True


def require_room(path: Path) -> None:
    """Refuse a place for a new run where nothing can be written, and leave no trace.

    Raises:
        RunError: says why.
    """
    # Path.exists raises where a name is too long, and passes over a link to nothing.
    folder = next(part for part in (path, *path.parents) if os.path.lexists(part))
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(_LEAST_ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        no_room = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise RunError(
            f"run folder {path}",
            f"Name another folder with {option('out')}.",
            expected="a place that can be written",
            found="no room on the disk" if no_room else reason_of(error),
        ) from error


def _holds_caches_alone(folder: Path) -> bool:
    """Return whether this is the folder of the sites, none of which has more than its cache."""
    if folder.name != "sites" or not folder.is_dir():
        return False
    for site in folder.iterdir():
        # A file, such as a site file, is no site's folder.
        if not site.is_dir() or any(path.name != "cache" for path in site.iterdir()):
            return False
    return True


def info_digest(info: RunInfo) -> str:
    """Return the SHA-256 of run.json's content, without the end of the audit log."""
    content = info.dumped()
    content.pop("audit", None)
    return digest(content)


def _beginning(info: RunInfo) -> dict[str, Any]:
    """Return what the first line of the audit log says of a run, besides its experiment."""
    facts = {key: info.dumped()[key] for key in ("engine", "sites", "seed", "versions")}
    if info.init:
        facts["init"] = info.init["sha256"]
    if info.base:
        facts["base"] = info.base
    return {**facts, "beginning": beginning_digest(info)}


def beginning_digest(info: RunInfo) -> str:
    """Return the SHA-256 of those fields of run.json that only the run's beginning sets."""
    content = info.dumped()
    return digest({name: content[name] for name in _BEGINNING if name in content})
