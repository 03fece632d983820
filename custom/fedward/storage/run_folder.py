"""The run folder: everything a run leaves behind, in files that readers never have to guess from
logs.
"""

import json
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedward.config import Experiment
from fedward.digests import digest, file_digest
from fedward.errors import ConfigError, RunError
from fedward.methods.algorithm import COMMON_RECORDS, Requirements
from fedward.methods.workflow import State
from fedward.protocol.versions import versions
from fedward.storage import audit
from fedward.storage.audit import AuditLog, now
from fedward.storage.checkpoint import (
    SiteModels,
    StateT,
    load_state,
    save_json,
    save_model,
    save_state,
)
from fedward.storage.disk import append
from fedward.storage.info import FORMAT, RunInfo, Status, Summary, read_info
from fedward.storage.outputs import REPORT, SHEET, outputs
from fedward.storage.rows import LOGS, Row, row_of, written
from fedward.storage.saved_states import SavedStates, recorded_states

_KEPT_STATES = 2

_log = logging.getLogger(__name__)


class RunFolder:
    """Writer of one run's folder; see docs/architecture.md for the files.

    ``append`` buffers until ``commit``: a round's rows reach the logs only together with the state
    that follows it, so a resumed run neither loses nor repeats a row. The audit log alone is
    written at once and never cut.
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
        """Of each log, as :meth:`flush` writes them."""
        self.watch: Callable[[Path], None] = lambda path: None
        """Called with the folder after every commit and change of status."""

    @classmethod
    def create(
        cls,
        path: Path,
        experiment: Experiment,
        needs: Requirements,
        sites: list[str],
        engine: str,
        init: Mapping[str, Any] | None = None,
        base: str | None = None,
        run_id: str | None = None,
    ) -> "RunFolder":
        """Start a new run; refuse a folder that holds anything, since results are never
        overwritten.

        ``needs``: of the experiment's algorithm. ``init``: the weights it starts from, where these
        are not fresh; see :mod:`fedward.starting_model`. ``base``: SHA-256 of what is frozen in
        its network. ``run_id``: 32 hexadecimal digits that no other run has; drawn by default.
        """
        # A process that died before the first file was whole has left nothing that could be lost.
        if path.exists() and any(not entry.name.endswith(".partial") for entry in path.iterdir()):
            where = f"run folder {path}"
            remedy = (
                "Name another folder with --out. --resume continues a run that has not finished."
            )
            raise RunError(
                where, expected="a new or empty folder", found="files in it", remedy=remedy
            )
        path.mkdir(parents=True, exist_ok=True)
        optional: dict[str, Any] = {
            "init": init,
            "base": base,
            "private": needs.private,
            "untrained": needs.untrained,
        }
        info = RunInfo(
            format=FORMAT,
            id=run_id or uuid4().hex,
            method=experiment.method,
            engine=engine,
            seed=experiment.seed,
            sites=tuple(sites),
            started=now(),
            status="running",
            versions=versions(),
            experiment=experiment.model_dump(mode="json"),
            summary=Summary(),
            **{name: value for name, value in optional.items() if value},
        )
        run = cls(path, info, needs.records)
        run._save_info()
        facts = {key: info.dumped()[key] for key in ("engine", "sites", "seed", "versions")}
        facts |= {"init": init["sha256"]} if init else {}
        facts |= {"base": base} if base else {}
        run.audit.add("begun", experiment=experiment.digest, **facts)
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
        """Open an interrupted run; refuse when it belongs to another experiment.

        ``records``: logs that its algorithm requires; a run that is only read needs none. ``sites``
        that are new join it, from the round on in which it continues.
        """
        run = cls(path, read_info(path), records, reopened=True)
        if experiment is not None and run.experiment != experiment:
            where = f"run folder {path}"
            expected = "the experiment it was started with"
            remedy = "Resume with the same job, or start a new run in another folder."
            raise RunError(where, expected=expected, found="other settings", remedy=remedy)
        joined = sorted(set(sites) - set(run.sites))
        if joined and not run.finished:
            run._update(sites=tuple(sorted([*run.sites, *joined])))
            run.audit.add("joined", sites=joined)
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
        """The audit log, opened for writing at first use."""
        return AuditLog(self.path / audit.LOG, self.info.id, self.info.audit)

    @property
    def first_model(self) -> str | None:
        """SHA-256 of the model that the first exchange sent, by the audit log; None before it."""
        asked = audit.oldest(self.path, "asked")
        return asked["details"]["model"] if asked else None

    def record(self, log: str, row: dict[str, Any]) -> None:
        """Remember a row as :meth:`append` does, of a decision that the audit log holds from now
        on.
        """
        self.append(log, row)
        self.audit.add("recorded", log=log, row=row)

    def append(self, log: str, row: Row | Mapping[str, Any]) -> None:
        """Remember one row for ``<log>.jsonl``; written by the next :meth:`commit`.

        Raises:
            ConfigError: a log that the run's algorithm has not declared.
            ValueError: a row that the readers of its log would refuse.
        """
        if log not in self._logs:
            expected = f"one of {', '.join(self._logs)}"
            found = f"a record that {self.info.method} has not declared"
            remedy = "Add it to the records of the algorithm's requirements."
            raise ConfigError(
                f"log {log!r} of the run folder", expected=expected, found=found, remedy=remedy
            )
        if isinstance(row, Mapping) and log in LOGS:
            row = row_of(LOGS[log], json.dumps(row))
        line = json.dumps(row) + "\n" if isinstance(row, Mapping) else written(row)
        self._lines.setdefault(log, []).append(line)

    def commit(self, round_: int, state: Any) -> None:
        """Write the buffered rows and the state after ``round_`` rounds; the audit log says so once
        all is on the disk.

        The state names the logs' lengths: rows behind them come from a round that never ended and
        are cut on resume.
        """
        self.flush()
        self._states.keep_lengths(round_, self._logs)
        save_state(self._states.folder(round_), state)
        self.audit.add("committed", round=round_, state=self._states.digest(round_))
        self.models.prune(self._states.drop_all_but(_KEPT_STATES))
        self._save_info()

    def restore(self, kind: type[StateT]) -> StateT | None:
        """Return the newest saved state that is whole, or None; cut what later rounds have left in
        logs and models.

        A newer one that is damaged is put aside, and both the log and the audit log say so.

        Raises:
            RunError: states were saved and none is whole, or the newest whole one is of another
                method or version.
        """
        newest = self._newest_whole()
        if self._reopened:
            state = None if newest is None else self._states.digest(newest)
            self.audit.add("resumed", round=newest or 0, state=state)
        if newest is None:
            return None
        for log, length in self._states.lengths(newest).items():
            os.truncate(self._states.log(log), length)
        self.models.forget_after(newest)
        return load_state(self._states.folder(newest), kind)

    def _newest_whole(self) -> int | None:
        recorded = recorded_states(self.path)
        faults = dict[int, str]()
        for round_ in reversed(self._states.rounds()):
            fault = self._states.fault(round_, recorded.get(round_))
            if fault:
                faults[round_] = fault
                continue
            for damaged, found in faults.items():
                _log.warning(
                    "the state after round %d is not used, but that after %d: %s",
                    damaged,
                    round_,
                    found,
                )
                self.audit.add("unusable", round=damaged, found=found)
                self._states.mark_damaged(damaged)
            return round_
        if faults:
            found = "; ".join(f"round {round_}: {fault}" for round_, fault in faults.items())
            remedy = "Restore the folder from a copy, or start a new run in another folder."
            where = f"states in {self.path / 'rounds'}"
            expected = "one that is whole"
            raise RunError(where, expected=expected, found=found, remedy=remedy)
        return None

    def best(self) -> tuple[int, float] | None:
        """Return (round, value) of the best global round so far, or None."""
        path = self.path / "best.json"
        if not path.exists():
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        return int(content["round"]), float(content["value"])

    def save_global(self, name: str, state: State, sidecar: dict[str, Any]) -> None:
        """Save ``<name>.safetensors`` with a JSON sidecar that says how to use it, and which
        tensors are untrained.
        """
        experiment = self.info.experiment
        about = {key: experiment[key] for key in ("method", "net", "pretrained", "data", "seed")}
        if self.info.base:
            about |= {"trainable": experiment["trainable"], "base": self.info.base}
        never = self.info.untrained
        kept = self.info.private
        untrained = [key for key in state if key.startswith(never + kept)]
        if untrained:
            note = (
                "No round trained these tensors."
                if never
                else "Each site trained its own of these, and kept it."
            )
            about |= {"untrained": untrained, "note": note}
        save_model(self.path / f"{name}.safetensors", state)
        save_json(self.path / f"{name}.json", {"format": FORMAT, **about, **sidecar})

    def set_status(self, status: Status, summary: Summary) -> None:
        """Record that the run is ``running`` again, ``finished`` or ``failed``; rows still buffered
        are written.

        At an end the audit log names the hashes of all that the run leaves.
        """
        if status == "finished":
            self.flush()
        self._update(status=status, ended=None if status == "running" else now(), summary=summary)
        if status != "running":
            facts = {"status": status, "reason": summary.reason, "run": info_digest(self.info)}
            self.audit.add("ended", **facts, files=outputs(self.path))
        self._save_info()

    @property
    def reported(self) -> bool:
        """Whether the last line of the audit log names the report."""
        return next(audit.rows(self.path), {}).get("event") == "reported"

    def report(self, write: Callable[[Path], object]) -> None:
        """Let the report of a run that has ended be written, and the audit log name its pages'
        hashes.
        """
        write(self.path)
        pages = {"report": self.path / REPORT, "sheet": self.path / SHEET}
        if pages["report"].exists():
            self.audit.add(
                "reported",
                **{name: file_digest(page) for name, page in pages.items() if page.exists()},
            )
            self._save_info()

    def note_origins(self, synthetic: Mapping[str, bool]) -> None:
        """Record of sites whether their images were drawn by fedward; run.json says so from the
        next commit on.
        """
        self._update(synthetic=dict(sorted({**self.info.synthetic, **synthetic}.items())))

    def flush(self) -> None:
        """Write the buffered rows; those of a round that never ends are cut on resume."""
        for log in self._logs:
            lines = self._lines.pop(log, [])
            if lines or not self._states.log(log).exists():
                append(self._states.log(log), "".join(lines).encode())

    def _update(self, **changes: Any) -> None:
        self.info = self.info.model_copy(update=changes)

    def _save_info(self) -> None:
        self._update(audit=self.audit.end)
        save_json(self.path / "run.json", self.info.dumped())
        self.watch(self.path)


def info_digest(info: RunInfo) -> str:
    """Return the SHA-256 of what run.json says of a run; where the audit log ends is left out."""
    return digest({name: value for name, value in info.dumped().items() if name != "audit"})
