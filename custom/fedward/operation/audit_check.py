"""Check of a run's audit log against itself, the run's files and the sites' logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedward.digests import arrays_digest, digest, file_digest
from fedward.evaluation.selection import named_mean
from fedward.json_text import read_json_file
from fedward.methods import job_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.evaluation_turn import evaluation_turn
from fedward.methods.survey import Survey
from fedward.methods.workflow import Turn
from fedward.operation.log_check import check_logs
from fedward.operation.result_check import check_results
from fedward.operation.server_record import ServerRecord, answered_sites
from fedward.operation.site_check import SiteAnswers, check_given, compared
from fedward.operation.site_record import Row, read_site_log
from fedward.protocol import wire
from fedward.storage.audit import LOG, beginning, check_chain, fault
from fedward.storage.chain import check_end, read
from fedward.storage.info import RunInfo, Status
from fedward.storage.model_files import StoredState
from fedward.storage.outputs import REPORT, SHEET, outputs
from fedward.storage.run_folder import RunFolder, beginning_digest, info_digest
from fedward.text import count

_UNREADABLE = (KeyError, TypeError, ValueError, IndexError, OSError, OverflowError)
"""Errors from whole lines that are not of this version, or hold impossible values."""

_SIDECAR_SETTINGS = ("method", "net", "pretrained", "data", "seed")
"""Settings of the experiment that a model's sidecar repeats."""


@dataclass(frozen=True)
class Verified:
    """The result of a check that found nothing wrong."""

    lines: int
    """Number of lines of the audit log."""
    last_hash: str
    """Hash of the last one."""
    files: int | None
    """Number of files that are as the log names them at the end of the run.

    None if none were compared, as the run goes on, or will go on with another site.
    """
    logs: int
    """Number of sites' logs that were given."""
    answers: int
    """Number of lines of sites' logs; the audit log agrees with all of them."""
    later: int
    """Number of answers in the audit log that come after the end of their site's log."""
    unused: int
    """Number of answers in sites' logs that the server did not use, by its audit log."""
    unknown: int
    """Number of requests after the last one that the sites' logs know, without an answer of those
    sites."""
    status: Status
    """The run's status in run.json."""
    best_of_all: bool = True
    """Whether its best model is the best of all rounds for certain; see :func:`check_results`."""

    def __str__(self) -> str:
        witnesses = "the run alone"
        if self.logs:
            logs = "log" if self.logs == 1 else "logs"
            witnesses = f"the run and the {logs} of {count(self.logs, 'site')}"
        text = f"Nothing was changed, as far as {witnesses} can tell.\n"
        text += f"{LOG}: {count(self.lines, 'line')}, last hash {self.last_hash}; "
        text += count(self.files or 0, "file")
        if self.logs:
            text += f"; {count(self.answers, 'line')} of sites' logs"
        if self.later:
            text += f", {count(self.later, 'answer')} after their end"
        if self.unknown:
            requests = count(self.unknown, "request")
            text += f", {requests} after their end that these sites have not answered"
        if self.unused:
            answers = count(self.unused, "answer")
            text += f", {answers} in them that the server did not use"
        if not self.best_of_all:
            text += ". The run was resumed, and may have lost a better model than its best"
        # A run that was killed has this status too, and one whose end somebody cut off.
        if self.status == "running":
            text += ". By run.json the run has not ended: "
            text += "what that file says of its end is not checked"
            if self.files is None:
                text += ", nor are its logs and pages"
        elif self.files is None:
            text += ". A site was added after the run had failed: until the run goes on, neither "
            text += "its models and logs nor its pages are compared with the end of the log"
        return text


def verify(folder: Path, sites: Sequence[Path] = ()) -> Verified:
    """Check a run folder.

    A copy without ``models/``, ``rounds/`` and ``server/``, as in a job's results, can be checked
    too. docs/audit.md says what the check finds, and what it does not.

    Args:
        folder: the run folder; the run may be going on.
        sites: files ``answers/<run id>.jsonl`` from sites' own folders.

    Raises:
        RunError: names the first line that is wrong, and what is wrong with it; or a file that is
            not a log.
    """
    run = RunFolder.reopen(folder)
    lines, half_line = read(folder / LOG)
    rows = check_chain(lines, run.info.id)
    check_end(lines, run.info.audit, LOG, "run.json")
    if half_line:
        problem = "half a line, as a crash leaves it; a resumed run quotes it"
        raise fault(len(lines) + 1, "a whole line", problem)
    if not lines:
        raise fault(1, "a whole line", "no line at all")
    records = [read_site_log(path, run.info.id) for path in sites]
    try:
        _check_beginning(run.info, rows)
        _check_turns(rows)
        _check_states(folder, rows)
        algorithm = job_of(run.experiment)
        if not isinstance(algorithm, Survey):
            _check_rounds(rows, algorithm.settings.rounds)
        files = _check_end_of_run(folder, run, rows)
        for name in ("model", "best"):
            # A process that is killed while it saves a model leaves it without its JSON file. In a
            # finished run :func:`check_results` wants both.
            files_of_model = [folder / f"{name}.{kind}" for kind in ("json", "safetensors")]
            if all(file.exists() for file in files_of_model):
                _check_model(folder, run, algorithm, rows, name)
        server = ServerRecord(folder, rows, algorithm)
        answers_of_logs = [compared(server, record) for record in records]
        check_logs(server)
        best_of_all = check_results(server, run.info, run.experiment.key_metric)
        for answers in answers_of_logs:
            check_given(server, answers)
    except _UNREADABLE as error:
        problem = f"{type(error).__name__}: {error}"
        raise fault(len(rows), "lines as this version writes them", problem) from error
    return Verified(
        lines=len(rows),
        last_hash=str(rows[-1]["hash"]),
        files=files,
        logs=len(records),
        answers=sum(len(record.rows) for record in records),
        later=sum(len(answers.later) for answers in answers_of_logs),
        unused=sum(answers.unused for answers in answers_of_logs),
        unknown=_unknown_requests(server, answers_of_logs),
        status=run.info.status,
        best_of_all=best_of_all,
    )


def _unknown_requests(server: ServerRecord, answers_of_logs: Sequence[SiteAnswers]) -> int:
    """Return the number of requests after all that sites' logs know, which the sites missed."""
    last_requests = [
        row["seq"] for answers in answers_of_logs for row in answers.last_requests.values()
    ]
    if not last_requests:
        return 0
    sites = {site for answers in answers_of_logs for site in answers.last_requests}
    answered = {
        request["seq"]
        for request, row in server.answers()
        if not sites.isdisjoint(answered_sites(row))
    }
    return sum(
        row["seq"] > max(last_requests) and row["seq"] not in answered for row in server.requests
    )


def _check_beginning(info: RunInfo, rows: Sequence[Row]) -> None:
    """Compare run.json with the line that was written when the run began."""
    begun = beginning(rows)
    number = begun["seq"]
    first = begun["details"]
    if digest(info.experiment) != first["experiment"]:
        expected = f"run.json with the experiment of SHA-256 {first['experiment']}"
        raise fault(number, expected, f"{digest(info.experiment)}: the experiment was changed")
    if info.method != info.experiment["method"]:
        expected = f"run.json with the method {info.experiment['method']} of the experiment"
        raise fault(number, expected, f"{info.method}: it was changed")
    if beginning_digest(info) != first["beginning"]:
        expected = "run.json with method, job, settings and first model of the run's beginning"
        raise fault(number, expected, "others: they were changed")
    init = (info.init or {}).get("sha256")
    if init != first.get("init"):
        expected = f"run.json with starting weights of SHA-256 {first.get('init')}"
        raise fault(number, expected, f"{init}: they were changed")
    for name in ("engine", "seed", "versions", "base"):
        value = getattr(info, name)
        if value != first.get(name):
            expected = f"run.json with {name} {first.get(name)}"
            raise fault(number, expected, f"{value}: it was changed")
    _check_sites(info, rows)


def _check_sites(info: RunInfo, rows: Sequence[Row]) -> None:
    """Check that run.json names all sites that were asked, and none that never joined."""
    begun = beginning(rows)
    all_sites = set(begun["details"]["sites"])
    asked_sites = set(begun["details"]["sites"])
    for row in rows:
        if row["event"] == "joined":
            all_sites |= set(row["details"]["sites"])
        elif row["event"] == "asked":
            asked_sites |= {*row["details"]["tasks"], *row["details"]["evaluate"]}
    if not asked_sites <= set(info.sites) <= all_sites:
        expected = f"run.json with the sites {', '.join(sorted(all_sites))}"
        raise fault(begun["seq"], expected, ", ".join(info.sites))


def _check_turns(rows: Sequence[Row]) -> None:
    """Check that requests, answers and commits follow each other as a server carries them out.

    Sites are asked for an earlier exchange only after the run was resumed.
    """
    last = (0, 0)
    last_round = 0
    """Round of the last exchange or commit."""
    for before, row in pairwise([rows[0], *rows]):
        details = row["details"]
        event = row["event"]
        if event == "resumed":
            last = (details["round"] + 1, -1)
            last_round = details["round"]
        elif event == "asked":
            exchange = (details["round"], details["part"])
            if exchange <= last:
                expected = f"an exchange after round {last[0]}, part {last[1]}"
                raise fault(row["seq"], expected, f"round {exchange[0]}")
            last = exchange
            last_round = exchange[0]
        elif event == "answered":
            exchange = (details["round"], details["part"])
            if before["event"] != "asked" or exchange != last:
                raise fault(row["seq"], "answers to the request before", "others")
        elif event == "committed":
            if details["round"] < last_round:
                expected = f"a commit of round {last_round} or later"
                raise fault(row["seq"], expected, f"round {details['round']}")
            last_round = details["round"]


def _check_rounds(rows: Sequence[Row], rounds: int) -> None:
    """Check that no request is for a round that the job does not have, which sites refuse.

    ``rounds``: those of the job. The last model is evaluated in one more.
    """
    for row in rows:
        if row["event"] == "asked" and row["details"]["round"] > rounds + 1:
            expected = f"a request for at most round {rounds + 1}, as the job has {rounds}"
            raise fault(row["seq"], expected, f"round {row['details']['round']}")


def _check_states(folder: Path, rows: Sequence[Row]) -> None:
    """Compare the states that are still there with the last lines that name them.

    Only the newest states of a run are kept.
    """
    last_rows = {}
    for row in rows:
        if row["event"] in ("committed", "resumed"):
            last_rows[row["details"]["round"]] = row
    for round_, row in sorted(last_rows.items()):
        name = f"rounds/{round_:05d}/state.safetensors"
        path = folder / name
        if path.exists() and row["details"]["state"]:
            _check_digest(row, name, row["details"]["state"], file_digest(path))


def _check_end_of_run(folder: Path, run: RunFolder, rows: Sequence[Row]) -> int | None:
    """Compare all files with the lines of the run's end.

    Returns:
        The number of files; None if the run goes on, or has been given another site to go on with.
    """
    status = run.info.status
    end = max((int(row["seq"]) for row in rows if row["event"] == "ended"), default=0)
    if not end:
        if status != "running":
            expected = f"a closing line, as the run is {status}"
            problem = "the end of the log: it was cut, or run.json was changed"
            raise fault(len(rows) + 1, expected, problem)
        return None
    rows_after = rows[end:]
    if _goes_on(rows_after, status):
        return None
    last_row = rows[end - 1]
    recorded = last_row["details"]["files"]
    present = outputs(folder)
    for name in sorted({*recorded, *present}):
        _check_digest(last_row, name, recorded.get(name), present.get(name))
    if status != "running" and info_digest(run.info) != last_row["details"]["run"]:
        expected = "run.json as it was at the end of the run"
        raise fault(end, expected, "another: the file was changed")
    reports = [row for row in rows_after if row["event"] == "reported"]
    if reports:
        _check_pages(folder, reports[-1])
    elif (folder / REPORT).exists():
        problem = "none; `fedward report` writes the page again, and the line"
        raise fault(end + 1, f"a line with the hash of {REPORT}", problem)
    return len(recorded)


def _goes_on(rows_after: Sequence[Row], status: Status) -> bool:
    """Return whether a run has gone on after it had ended.

    Args:
        rows_after: the lines after the one that says that it ended.
        status: the run's status in run.json.

    Raises:
        RunError: a run with this status has no such lines.
    """
    # A report that is written again has a line of its own, before which a crash may leave half one.
    further = {row["event"] for row in rows_after} - {"reported", "torn"}
    if not further:
        return False
    if status == "running":
        return True
    # A failed run is given its new sites before run.json says that it goes on.
    if status == "failed" and further == {"joined"}:
        return True
    first = next(row for row in rows_after if row["event"] in further)
    expected = "nothing after the end of the run but its report"
    raise fault(first["seq"], expected, "more: lines were added")


def _check_pages(folder: Path, row: Row) -> None:
    """Compare a run's pages with the line that was written with them."""
    for name, page in (("report", REPORT), ("sheet", SHEET)):
        path = folder / page
        present = file_digest(path) if path.exists() else None
        _check_digest(row, page, row["details"].get(name), present)


def _check_model(
    folder: Path, run: RunFolder, algorithm: Algorithm[Any] | Survey, rows: Sequence[Row], name: str
) -> None:
    """Compare a model with the one that sites were sent, and its sidecar with the experiment."""
    about = read_json_file(folder / f"{name}.json")
    for key in _SIDECAR_SETTINGS:
        if about[key] != run.info.experiment[key]:
            expected = f"{name}.json with {key} of the experiment"
            raise fault(1, expected, "others: the file was changed")
    if about.get("base") != run.info.base:
        expected = f"{name}.json with base {run.info.base}"
        raise fault(1, expected, f"{about.get('base')}: the file was changed")
    file = folder / f"{name}.safetensors"
    expected_about = {**run.described(StoredState(file)), "round": about["round"]}
    if name == "best":
        metric = named_mean(run.experiment.key_metric)
        expected_about |= {"metric": metric, "value": about["value"]}
    if about != expected_about:
        raise fault(1, f"{name}.json as this run writes it", "others: the file was changed")
    turn = evaluation_turn(algorithm, about["round"])
    request = _newest_request(rows, turn)
    if request:
        state = wire.flatten("model", StoredState(file))
        _check_digest(request, file.name, request["details"]["model"], arrays_digest(state))
    # A model that nobody trains is sent to nobody.
    elif not algorithm.requirements.tensors.untrained:
        raise fault(len(rows), f"a line that asks for round {turn.round} with {file.name}", "none")


def _newest_request(rows: Sequence[Row], turn: Turn) -> Row | None:
    """Return the newest request for an exchange in the audit log; None without one.

    A round may omit parts, so that of its parts from ``turn`` on the first that was asked counts.
    """
    candidates = []
    for row in rows:
        is_of_round = row["event"] == "asked" and row["details"]["round"] == turn.round
        if is_of_round and row["details"]["part"] >= turn.part:
            candidates.append(row)
    # Of equal parts `min` takes the first: the newest, as the rows are reversed.
    return min(reversed(candidates), key=lambda row: int(row["details"]["part"]), default=None)


def _check_digest(row: Row, name: str, recorded: str | None, present: str | None) -> None:
    """Compare a file's digest with the one in a line.

    Args:
        row: the line.
        name: the file's.
        recorded: SHA-256 in the line; None if it names no such file.
        present: SHA-256 of the file; None if there is no such file.
    """
    if not recorded and present:
        raise fault(row["seq"], f"no file {name}", "a file of that name")
    if recorded != present:
        problem = f"{present}: the file was changed" if present else "no such file"
        raise fault(row["seq"], f"{name} with SHA-256 {recorded}", problem)
