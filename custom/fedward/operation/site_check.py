"""Sites' own logs, read to check them: each by itself, and against what the server's audit log
tells.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

from fedward.client.site_log import check_turn
from fedward.digests import digest
from fedward.errors import RunError, WireError
from fedward.methods.algorithm import Algorithm, evaluation_turn
from fedward.protocol.messages import Split
from fedward.protocol.requests import DECRYPT
from fedward.storage import chain
from fedward.storage.audit import fault

Row = Mapping[str, Any]


@dataclass(frozen=True)
class SiteRecord:
    """A site's log of one run, in which nothing wrong was found."""

    file: Path
    run: str
    rows: Sequence[Row]
    """Its lines but those that quote half a line."""

    @property
    def sites(self) -> list[str]:
        """Whose log it is; a folder that several sites share holds those of all."""
        return sorted({str(row["site"]) for row in self.rows})

    def __str__(self) -> str:
        events = [row["event"] for row in self.rows]
        counts = ", ".join(
            f"{events.count(event)} {event}" for event in ("answered", "failed", "refused")
        )
        return f"{self.file}: {', '.join(self.sites)}, run {self.run}: {counts}; last hash {self.rows[-1]['hash']}"


def read_site_log(file: Path, run: str | None = None) -> SiteRecord:
    """Return a site's log; its chain is whole, and the exchanges that the site answered go forward.

    Args:
        file: ``answers/<run id>.jsonl`` of a site's own folder, or a copy.
        run: the run it must be of; None: any.

    Raises:
        RunError: names the first line that is wrong; or the file is none, or of another run.
    """
    lines, _ = chain.read(file)
    first = chain.parse(lines[0]) if lines else None
    start = str(first.get("previous")) if first else run or ""
    if not lines or (first and not re.fullmatch(r"[0-9a-f]{32}", start)):
        raise _no_log(file, "something else in line 1" if lines else "nothing")
    if run and start != run:
        raise _no_log(file, f"one of run {start}")
    rows: list[Row] = []
    for row in chain.checked(lines, start, str(file)):
        if "torn" in row:
            continue
        try:
            if row["event"] == "answered":
                given = [
                    each
                    for each in rows
                    if (each["event"], each["site"]) == ("answered", row.get("site"))
                ]
                check_turn(given, row)
        except WireError as error:
            raise chain.fault(
                str(file), row["seq"], f"answers in turn: {error.expected}", error.found
            ) from error
        except (KeyError, TypeError) as error:
            expected = "a line as this version of fedward writes it"
            found = f"{type(error).__name__}: {error}"
            raise chain.fault(str(file), row["seq"], expected, found) from error
        rows.append(row)
    return SiteRecord(file, start, rows)


def check_against(
    folder: Path, rows: Sequence[Row], record: SiteRecord, algorithm: Algorithm[Any]
) -> int:
    """Compare a site's log with the run of a server, and return how many answers it tells of that
    come after its end.

    Args:
        folder: the run folder.
        rows: the lines of its audit log.
        record: the site's log; it may end earlier than the run.
        algorithm: that of the run, which says when models are evaluated.

    Raises:
        RunError: names the first line of the audit log that the site's log contradicts.
    """
    asked = {row["hash"]: row for row in rows if row["event"] == "asked"}
    reached: dict[str, Row] = {}
    for row in record.rows:
        _check_request(rows, asked, record, row)
        line = asked[row["last_hash"]]
        site = row["site"]
        reached[site] = max(line, reached.get(site, line), key=itemgetter("seq"))
    later = 0
    for before, row in pairwise(rows):
        if row["event"] == "answered":
            for site in sorted(
                {*row["details"]["replied"], *row["details"]["evaluated"]} & set(reached)
            ):
                if before["seq"] > reached[site]["seq"]:
                    later += 1
                else:
                    _check_reply(before, row, record, site)
    _check_numbers(
        folder, rows, record, algorithm, {site: _exchange(line) for site, line in reached.items()}
    )
    _check_surveys(folder, rows, record, reached)
    return later


def _check_request(
    rows: Sequence[Row], asked: Mapping[str, Row], record: SiteRecord, row: Row
) -> None:
    """Raise unless the server's log holds the request of a site's line, as the site got it."""
    line = asked.get(row["last_hash"])
    if line is None or _exchange(line) != (row["round"], row["part"]):
        raise _contradicted(rows, record, row)
    if row["task"] == DECRYPT:
        return
    details = line["details"]
    site = row["site"]
    sent = {
        "task": details["tasks"].get(site, "idle"),
        "model": details["model"],
        "peers": details["peers"].get(site),
    }
    for name, value in {**sent, "experiment": rows[0]["details"]["experiment"]}.items():
        if row[name] != value:
            where = (
                f"the {name} that {site} was sent, {row[name]} ({record.file}, line {row['seq']})"
            )
            raise fault(line["seq"], where, str(value))


def _check_reply(asked: Row, answered: Row, record: SiteRecord, site: str) -> None:
    """Raise where the server names an answer that the site's log, which reaches beyond it, does not
    know.
    """
    to_it = [row for row in record.rows if (row["site"], row["last_hash"]) == (site, asked["hash"])]
    given = [row for row in to_it if row["event"] == "answered" and row["task"] != DECRYPT]
    if not given:
        expected = f"only answers to requests that {site}'s log knows"
        raise fault(
            answered["seq"], expected, f"one to line {asked['seq']}, which it does not know"
        )
    update = answered["details"]["updates"].get(site)
    if update and update not in [row["gave"] for row in given]:
        gave = ", ".join(str(row["gave"]) for row in given)
        where = (
            f"the update that {site} gave, SHA-256 {gave} ({record.file}, line {given[-1]['seq']})"
        )
        raise fault(answered["seq"], where, update)


def _check_numbers(
    folder: Path,
    rows: Sequence[Row],
    record: SiteRecord,
    algorithm: Algorithm[Any],
    reached: Mapping[str, tuple[int, int]],
) -> None:
    """Raise where metrics.jsonl or binned.jsonl has other numbers of a site than it gave, or lacks
    some.

    ``reached``: site -> the last exchange, by round and part, that its log knows of.
    """
    kept = _evaluations(rows, algorithm)
    for log, reported in (("metrics", _metrics(folder)), ("binned", _binned(folder))):
        for site, last in reached.items():
            told = {round_ for name, round_ in reported if name == site}
            due = {round_ for name, round_ in kept if name == site}
            for round_ in sorted(told | due):
                turn = evaluation_turn(algorithm, round_)
                if turn > last:
                    continue
                answers = [
                    row for row in record.rows if row["site"] == site and row["round"] == turn[0]
                ]
                given = {row.get(log) for row in answers if (row["part"] or 0) >= turn[1]} - {None}
                where = f"{log}.jsonl, round {round_}, {site}"
                if round_ in told and digest(reported[site, round_]) not in given:
                    raise _other_numbers(where, record, "others")
                if round_ in due - told and given:
                    raise _other_numbers(where, record, "none")


def _evaluations(rows: Sequence[Row], algorithm: Algorithm[Any]) -> set[tuple[str, int]]:
    """Return (site, round) of each evaluation whose numbers the run must have kept, by the server's
    own log.

    They are in the logs from the next commit on. A run that is resumed drops those of later rounds.
    """
    kept = dict[tuple[str, int], int]()
    open_ = dict[tuple[str, int], int]()
    for before, row in pairwise(rows):
        details = row["details"]
        if row["event"] == "answered":
            asked, part = _exchange(before)
            for site in details["evaluated"]:
                open_[site, _model_round(algorithm, asked, part)] = asked
        elif row["event"] == "committed" or (
            row["event"] == "ended" and details["status"] == "finished"
        ):
            kept = {**kept, **open_}
            open_ = {}
        elif row["event"] == "resumed":
            kept = {
                evaluation: asked for evaluation, asked in kept.items() if asked <= details["round"]
            }
            open_ = {}
    return set(kept)


def _model_round(algorithm: Algorithm[Any], asked: int, part: int) -> int:
    """Return after how many rounds the model was that is evaluated in an exchange."""
    after = evaluation_turn(algorithm, asked)
    return asked if after[0] == asked and after[1] <= part else asked - 1


def _check_surveys(
    folder: Path, rows: Sequence[Row], record: SiteRecord, reached: Collection[str]
) -> None:
    """Raise where surveys.jsonl tells of a site what it did not give, or lacks what the server's
    log says it gave.
    """
    log = folder / "surveys.jsonl"
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines() if log.exists() else ())
    told = {
        row.pop("site"): digest({key: value for key, value in row.items() if key != "round"})
        for row in lines
    }
    replied = {
        site for row in rows if row["event"] == "answered" for site in row["details"]["replied"]
    }
    for site in sorted(reached):
        given = {row["survey"] for row in record.rows if row["site"] == site and row.get("survey")}
        found = told.get(site)
        if found not in given and (found or (given and site in replied)):
            raise _other_numbers(f"surveys.jsonl, {site}", record, "others" if found else "none")


def _other_numbers(where: str, record: SiteRecord, found: str) -> RunError:
    remedy = "Do not rely on them; ask the site for its own."
    return RunError(
        where,
        expected=f"the numbers that the site gave, by {record.file}",
        found=found,
        remedy=remedy,
    )


def _metrics(folder: Path) -> dict[tuple[str, int], list[Any]]:
    """Return (site, round) -> metric rows as the site gave them."""
    reported: dict[tuple[str, int], list[Any]] = {}
    classes: dict[tuple[str, int, str], Any] = {}
    """As the first row of a site, round and split says for all."""
    for (site, round_), row in _rows(folder / "metrics.jsonl"):
        if row["split"] in get_args(Split):
            row["classes"] = classes.setdefault(
                (site, round_, row["split"]), row.get("classes", [])
            )
            reported.setdefault((site, round_), []).append(row)
    return reported


def _binned(folder: Path) -> dict[tuple[str, int], Any]:
    """Return (site, round) -> counts as the site gave them; of two rows the last."""
    return dict(_rows(folder / "binned.jsonl"))


def _rows(log: Path) -> Iterator[tuple[tuple[str, int], Any]]:
    """Yield (site, round) and the rest of each row."""
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        row = json.loads(line)
        yield (row.pop("site"), row.pop("round")), row


def _contradicted(rows: Sequence[Row], record: SiteRecord, row: Row) -> RunError:
    """Return the fault of a log that lacks a line a site was shown the hash of."""
    exchange = (row["round"], row["part"])
    shown = f"the hash {row['last_hash']}, which {row['site']} was shown ({record.file}, line {row['seq']})"
    wanted = f"{shown} in round {row['round']}, part {row['part']}"
    asked = [line for line in rows if line["event"] == "asked"]
    there = [line["seq"] for line in asked if _exchange(line) == exchange]
    if there:
        return fault(
            there[-1],
            wanted,
            "another: this line or one before it was written anew, or some are missing",
        )
    if None not in exchange and (
        later := [line["seq"] for line in asked if _exchange(line) > exchange]
    ):
        return fault(
            later[0], wanted, "a later round: lines before this one were removed, or never written"
        )
    return fault(len(rows) + 1, wanted, "the end of the log: it was cut, or the request is missing")


def _exchange(row: Row) -> tuple[int, int]:
    return row["details"]["round"], row["details"]["part"]


def _no_log(file: Path, found: str) -> RunError:
    remedy = "Ask a site for answers/<run id>.jsonl of its own folder; the id is in run.json."
    return RunError(
        f"site's log {file}", expected="a site's answers in this run", found=found, remedy=remedy
    )
