"""What a site keeps of the server's audit log: each head it was shown, in a file that the server cannot touch.

A server that later writes another history needs other hashes, and the sites hold the old ones.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward.digests import canonical
from fedward.errors import RunError, WireError
from fedward.federation.audit import now
from fedward.federation.chain import ends_whole
from fedward.federation.disk import append


@dataclass(frozen=True)
class Entry:
    """One line of a witness file: the log's head when a site was asked."""

    site: str
    round: int
    part: int
    head: str
    file: Path
    line: int
    """Line in the file, from 1."""


def keep_head(folder: Path, site: str, request: Mapping[str, Any]) -> None:
    """Append the head a request's meta carries to ``<folder>/<run id>.jsonl``; on the disk when this returns.

    Raises:
        WireError: a run id or a head that is none; the id could lead out of the folder.
    """
    run, head = _hexadecimal("run id", request["run"], 32), _hexadecimal("head of the audit log", request["head"], 64)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run}.jsonl"
    if not ends_whole(path):  # the next line stands alone
        with path.open("ab") as file:
            file.write(b"\n")
    exchange = {"run": run, "site": site, "round": request["round"], "part": request["part"]}
    append(path, f"{canonical(exchange | {'head': head, 'time': now()})}\n".encode())


def read_witness(path: Path, run: str) -> tuple[list[Entry], int]:
    """Return a witness file's entries, in its order, and the number of lines that are none, as a crash leaves them.

    Raises:
        RunError: the file cannot be read, holds no entry, or one of another run.
    """
    entries, broken = [], 0
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise _no_witness(path, str(error)) from error
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            entry = Entry(str(row["site"]), int(row["round"]), int(row["part"]), str(row["head"]), path, number)
            other = row["run"] != run
        except (ValueError, KeyError, TypeError):
            broken += 1
            continue
        if other:
            raise _no_witness(path, f"one of run {row['run']} in line {number}")
        entries.append(entry)
    if not entries:
        raise _no_witness(path, "none")
    return entries, broken


def _no_witness(path: Path, found: str) -> RunError:
    return RunError(
        f"witness {path}",
        expected="entries of this run",
        found=found,
        remedy="Ask a site for witness/<run id>.jsonl of its own folder; the id is in run.json.",
    )


def _hexadecimal(what: str, text: Any, digits: int) -> str:
    if not re.fullmatch(rf"[0-9a-f]{{{digits}}}", str(text)):
        raise WireError(
            what,
            expected=f"{digits} hexadecimal digits",
            found=repr(text),
            remedy="Server and sites must run the same version of fedward.",
        )
    return str(text)
