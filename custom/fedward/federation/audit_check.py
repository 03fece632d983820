"""Is a run's audit log what was written? Checked against itself, the run folder, and what the sites were shown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedward.digests import file_digest
from fedward.errors import RunError
from fedward.federation.audit import LOG, check_chain, check_end, fault
from fedward.federation.chain import read
from fedward.federation.run_folder import RunFolder
from fedward.federation.witness import Entry, read_witness

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Verified:
    """An audit log in which nothing wrong was found."""

    lines: int
    head: str
    """Hash of the last line."""
    entries: int
    """Heads that witnesses hold, all of them in the log."""
    unreadable: int
    """Lines of witnesses that say nothing, as a crash leaves them."""

    def __str__(self) -> str:
        parts = [f"{LOG}: {self.lines} lines", f"head {self.head}", f"{self.entries} witnessed"]
        return ", ".join([*parts, *([f"{self.unreadable} unreadable lines in witnesses"] if self.unreadable else [])])


def verify(folder: Path, witnesses: Sequence[Path] = ()) -> Verified:
    """Check the audit log of a run folder.

    Found out without witnesses: a line that was changed, removed, inserted or moved, by someone who did not compute all
    later hashes anew; lines cut at the end, by someone who did not change run.json too; a saved state or final model
    that is not the one that was written. Found out with witnesses: any history that is not the one the sites were shown
    while it happened, up to the last request each of them got; and a reply of a site that was never asked for it.

    Not to be found out: what the server did not write truthfully in the first place, such as a reply it kept quiet
    about, or a time its own clock had wrong; lines written anew after the last request that any witness holds; a
    history agreed on with the sites that the witnesses are from; whether models were averaged as the log says; and what
    a site did with a request.

    Args:
        folder: the run folder; the run may be going on.
        witnesses: files ``witness/<run id>.jsonl`` out of sites' own folders.

    Raises:
        RunError: names the first line that is wrong, and what is wrong with it; or a file that is none.
    """
    run = RunFolder.reopen(folder)
    lines, rest = read(folder / LOG)
    rows = check_chain(lines, run.id)
    check_end(lines, run.info.get("audit"))
    if rest or not lines:
        found = "half a line, as a crash leaves it; a resumed run quotes it" if rest else "no line at all"
        raise fault(len(lines) + 1, "a whole line", found)
    if run.finished and rows[-1]["event"] != "ended":
        raise fault(_last(rows, "ended") + 1, "nothing after the end of the run", "more: lines were added")
    files = [read_witness(path, run.id) for path in witnesses]
    entries = [entry for found, _ in files for entry in found]
    try:
        _check_files(folder, rows)
        _check_witnesses(rows, entries)
    except (KeyError, TypeError, ValueError) as error:  # whole lines, but not of this package's events
        raise fault(len(rows), "lines as this version writes them", f"{type(error).__name__}: {error}") from error
    return Verified(len(rows), str(rows[-1]["hash"]), len(entries), sum(broken for _, broken in files))


def _last(rows: Sequence[Row], event: str) -> int:
    """Return the number of the last line of an event, 0 if there is none."""
    return max((int(row["seq"]) for row in rows if row["event"] == event), default=0)


def _check_files(folder: Path, rows: Iterable[Row]) -> None:
    """Compare the states and the final model that are there with the last lines that name them."""
    named: dict[Path, Row] = {}
    for row in rows:
        if row["event"] in ("committed", "resumed"):
            named[folder / "rounds" / f"{row['details']['round']:05d}" / "state.safetensors"] = row
        if row["event"] == "ended" and row["details"]["status"] == "finished":
            named[folder / "model.safetensors"] = row
    for path, row in sorted(named.items(), key=lambda item: item[1]["seq"]):
        sha256 = row["details"].get("model") or row["details"].get("state")
        if not path.exists() and path.name == "state.safetensors":
            continue  # only the newest states are kept
        found = file_digest(path) if path.exists() else "no such file"
        if sha256 and found != sha256:
            expected = f"{path.relative_to(folder)} with SHA-256 {sha256}"
            raise fault(row["seq"], expected, f"{found}: the file was changed")


def _check_witnesses(rows: Sequence[Row], entries: Sequence[Entry]) -> None:
    asked = {row["hash"]: row for row in rows if row["event"] == "asked"}
    for entry in sorted(entries, key=lambda entry: (entry.round, entry.part)):
        row = asked.get(entry.head)
        if row is None or _exchange(row) != (entry.round, entry.part):
            raise _contradicted(rows, entry)
    known: dict[str, set[int]] = {}
    for entry in entries:
        known.setdefault(entry.site, set()).add(int(asked[entry.head]["seq"]))
    for before, row in pairwise(rows):
        if row["event"] == "answered":
            _check_replies(before, row, known)


def _contradicted(rows: Sequence[Row], entry: Entry) -> RunError:
    """Return the fault of a log that lacks a line a site was shown the hash of."""
    exchange = (entry.round, entry.part)
    shown = f"the hash {entry.head}, which {entry.site} was shown ({entry.file}, line {entry.line})"
    wanted = f"{shown} in round {entry.round}, part {entry.part}"
    there = [row["seq"] for row in rows if row["event"] == "asked" and _exchange(row) == exchange]
    if there:
        return fault(there[-1], wanted, "another: this line or one before it was written anew")
    later = [row["seq"] for row in rows if row["event"] == "asked" and _exchange(row) > exchange]
    if later:
        return fault(later[0], wanted, "a later round: lines before this one were removed")
    return fault(len(rows) + 1, wanted, "the end of the log: it was cut")


def _check_replies(asked: Row, answered: Row, known: Mapping[str, set[int]]) -> None:
    """Raise where a site is said to have answered what its witness, which reaches beyond that line, does not know."""
    details = answered["details"]
    for site in sorted({*details["replied"], *details["evaluated"]} & set(known)):
        if asked["seq"] <= max(known[site]) and asked["seq"] not in known[site]:
            raise fault(
                answered["seq"],
                f"only answers to requests that {site}'s witness knows",
                f"one to line {asked['seq']}, which it does not know",
            )


def _exchange(row: Row) -> tuple[int, int]:
    return row["details"]["round"], row["details"]["part"]
