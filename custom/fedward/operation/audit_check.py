"""Checks a run's audit log against itself, the run's files and the sites' logs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward.digests import arrays_digest, digest, file_digest
from fedward.methods import method_of
from fedward.methods.algorithm import evaluation_turn
from fedward.operation.site_check import check_against, read_site_log
from fedward.protocol import wire
from fedward.storage.audit import LOG, check_chain, fault
from fedward.storage.chain import check_end, read
from fedward.storage.checkpoint import StoredState
from fedward.storage.info import RunInfo, Status
from fedward.storage.outputs import REPORT, SHEET, outputs
from fedward.storage.run_folder import RunFolder, info_digest

Row = Mapping[str, Any]
_UNREADABLE = (KeyError, TypeError, ValueError, IndexError, OSError, OverflowError, RecursionError)
"""What comes of whole lines that are not of this version, or name what cannot be."""
_SIDECAR = ("method", "net", "pretrained", "data", "seed")
"""Of the experiment, in the sidecar of a model."""


@dataclass(frozen=True)
class Verified:
    """A run in which nothing wrong was found."""

    lines: int
    """Of the audit log."""
    last_hash: str
    files: int
    """Files that are those the log names at the end of the run."""
    answers: int
    """Lines of sites' logs, with all of which the audit log agrees."""
    later: int
    """Answers in the audit log that come after the end of their site's log."""
    status: Status
    """As run.json says."""

    def __str__(self) -> str:
        later = f", {self.later} answers after their end" if self.later else ""
        log = f"{LOG}: {self.lines} lines, last hash {self.last_hash}"
        found = f"{log}; {self.files} files; {self.answers} lines of sites' logs{later}"
        if self.status == "running":  # of a killed run too, and of one whose end somebody cut off
            found += (
                ". By run.json the run has not ended: what that file says of its end is not checked"
            )
            found += "" if self.files else ", nor are its logs and pages"
        return found


def verify(folder: Path, sites: Sequence[Path] = ()) -> Verified:
    """Check a run folder, or a copy of one without ``models/``, ``rounds/`` and ``server/``, as a
    job's results are.

    docs/audit.md says what is found, and what is not.

    Args:
        folder: the run folder; the run may be going on.
        sites: files ``answers/<run id>.jsonl`` out of sites' own folders.

    Raises:
        RunError: names the first line that is wrong, and what is wrong with it; or a file that is
            not a log.
    """
    run = RunFolder.reopen(folder)
    lines, rest = read(folder / LOG)
    rows = check_chain(lines, run.info.id)
    check_end(lines, run.info.audit, LOG, "run.json")
    if rest or not lines:
        found = (
            "half a line, as a crash leaves it; a resumed run quotes it"
            if rest
            else "no line at all"
        )
        raise fault(len(lines) + 1, "a whole line", found)
    records = [read_site_log(path, run.info.id) for path in sites]
    try:
        _check_beginning(run.info, rows)
        _check_turns(rows)
        _check_states(folder, rows)
        files = _check_end_of_run(folder, run, rows)
        for name in ("model", "best"):
            if (folder / f"{name}.safetensors").exists():
                _check_model(folder, run, rows, name)
        algorithm = method_of(run.experiment)
        later = sum(check_against(folder, rows, record, algorithm) for record in records)
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        OSError,
        OverflowError,
        RecursionError,
    ) as error:
        raise fault(
            len(rows), "lines as this version writes them", f"{type(error).__name__}: {error}"
        ) from error
    answers = sum(len(record.rows) for record in records)
    return Verified(len(rows), str(rows[-1]["hash"]), files, answers, later, run.info.status)


def _check_beginning(info: RunInfo, rows: Sequence[Row]) -> None:
    """Compare what run.json says of the run with the line that was written when it began."""
    begun = rows[0]["details"]
    if digest(info.experiment) != begun["experiment"]:
        found = f"{digest(info.experiment)}: the experiment was changed"
        raise fault(1, f"run.json with the experiment of SHA-256 {begun['experiment']}", found)
    sites = {
        *begun["sites"],
        *(site for row in rows if row["event"] == "joined" for site in row["details"]["sites"]),
    }
    for name in ("engine", "seed", "versions", "base"):
        found = getattr(info, name)
        if found != (expected := begun.get(name)):
            raise fault(1, f"run.json with {name} {expected}", f"{found}: it was changed")
    if not set(begun["sites"]) <= set(info.sites) <= sites:
        raise fault(
            1, f"run.json with the sites {', '.join(sorted(sites))}", f"{', '.join(info.sites)}"
        )


def _check_turns(rows: Sequence[Row]) -> None:
    """Raise where sites were asked for an earlier exchange, though the run was not resumed."""
    last = (0, 0)
    for row in rows:
        details = row["details"]
        if row["event"] == "resumed":
            last = (details["round"] + 1, -1)
        elif row["event"] == "asked":
            exchange = (details["round"], details["part"])
            if exchange <= last:
                raise fault(
                    row["seq"],
                    f"an exchange after round {last[0]}, part {last[1]}",
                    f"round {exchange[0]}",
                )
            last = exchange


def _check_states(folder: Path, rows: Sequence[Row]) -> None:
    """Compare the states that are there with the last lines that name them."""
    named = {
        row["details"]["round"]: row for row in rows if row["event"] in ("committed", "resumed")
    }
    for round_, row in sorted(named.items()):
        path = folder / "rounds" / f"{round_:05d}" / "state.safetensors"
        if path.exists() and row["details"]["state"]:  # only the newest are kept
            _same(
                row, path.relative_to(folder).as_posix(), row["details"]["state"], file_digest(path)
            )


def _check_end_of_run(folder: Path, run: RunFolder, rows: Sequence[Row]) -> int:
    """Compare all files with the lines of the run's end, and return how many there are; none while
    it goes on.
    """
    running = run.info.status == "running"
    end = max((int(row["seq"]) for row in rows if row["event"] == "ended"), default=0)
    if not end:
        if not running:
            cut = "the end of the log: it was cut, or run.json was changed"
            raise fault(len(rows) + 1, f"a closing line, as the run is {run.info.status}", cut)
        return 0
    reported = rows[end:]
    if any(row["event"] != "reported" for row in reported):
        if not running and any(row["event"] not in ("reported", "joined") for row in reported):
            raise fault(
                end + 1, "nothing after the end of the run but its report", "more: lines were added"
            )
        return 0
    row = rows[end - 1]
    recorded = row["details"]["files"]
    found = outputs(folder)
    for name in sorted({*recorded, *found}):
        _same(row, name, recorded.get(name), found.get(name))
    if not running and info_digest(run.info) != row["details"]["run"]:
        raise fault(
            end, "run.json as it was at the end of the run", "another: the file was changed"
        )
    if reported:
        for name, page in (("report", REPORT), ("sheet", SHEET)):
            now = file_digest(folder / page) if (folder / page).exists() else None
            _same(reported[-1], page, reported[-1]["details"].get(name), now)
    elif (folder / REPORT).exists():
        raise fault(
            end + 1,
            f"a line with the hash of {REPORT}",
            "none; `fedward report` makes it anew, and the line",
        )
    return len(recorded)


def _check_model(folder: Path, run: RunFolder, rows: Sequence[Row], name: str) -> None:
    """Compare a model with the one that sites were sent after its round, and its sidecar with the
    experiment.
    """
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    for key in _SIDECAR:
        if about[key] != run.info.experiment[key]:
            raise fault(
                1, f"{name}.json with {key} of the experiment", "others: the file was changed"
            )
    if about.get("base") != run.info.base:
        raise fault(
            1,
            f"{name}.json with base {run.info.base}",
            f"{about.get('base')}: the file was changed",
        )
    next_, part = evaluation_turn(method_of(run.experiment), about["round"])
    asked = [row for row in rows if row["event"] == "asked" and row["details"]["round"] == next_]
    later = [
        row["details"]["part"] for row in asked if row["details"]["part"] >= part
    ]  # a round may leave out a part
    sent = [row for row in asked if row["details"]["part"] == min(later, default=part)]
    file = folder / f"{name}.safetensors"
    if sent:
        state = wire.flatten("model", StoredState(file))
        _same(sent[-1], file.name, sent[-1]["details"]["model"], arrays_digest(state))
    elif not method_of(
        run.experiment
    ).requirements.tensors.untrained:  # else the model is sent to nobody
        raise fault(len(rows), f"a line that asks for round {next_} with {file.name}", "none")


def _same(row: Row, name: str, recorded: str | None, found: str | None) -> None:
    if not recorded and found:
        raise fault(row["seq"], f"no file {name}", "a file of that name")
    if recorded != found:
        changed = f"{found}: the file was changed" if found else "no such file"
        raise fault(row["seq"], f"{name} with SHA-256 {recorded}", changed)
