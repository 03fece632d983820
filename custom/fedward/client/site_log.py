"""A site's own log: what it was asked, and what it gave.

The server cannot touch it, and the server's log must agree with it.

``answers/<run id>.jsonl`` in the site's folder is a :mod:`chain <fedward.storage.chain>` that
starts from the run's id. An answer is in it, and on the disk, before it leaves. A line holds
nothing but what the server was sent, and hashes of that: it may be given away. Its fields are:

- ``time``, ``site``, ``job``: when, who, and FLARE's id of the job.
- ``event``: ``answered``; ``failed``, an error in place of an answer; or ``refused``, where nothing
  was read.
- ``round``, ``part``: the exchange. ``task``, ``model`` and ``peers``: what was asked, the models
  by their SHA-256.
- ``last_hash``: of the server's audit log, when it asked.
- ``experiment``: SHA-256 of the job's settings, by the server's word.
- ``versions``: of the server and of this site.
- ``gave``: SHA-256 of the update that left, as it left.
- ``dtype``, ``norm``: float32 or float16, and the update's L2 norm as the server reads it; empty
  for an encrypted update.
- ``labelled``, ``unlabelled``, ``steps``: counts that left. ``metrics``, ``binned``, ``survey``,
  ``card``: SHA-256 of what left.
- ``synthetic``: true where the answer said that fedward drew the site's images.
- ``error``: the text that left in place of an answer.
- ``note``: only in the last line about a request without an answer that a run may have.
- ``ledger``, ``questions``, ``sums``: last hashes of the site's privacy ledger, and of its ledgers
  of questions and of sums, where it has them and they are what was written.

:mod:`fedward.client.request_check` says which requests are answered at all.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedward.client.request_check import (
    Turns,
    named_run,
    refused,
    require_few_runs,
    require_one_run,
    require_this_job,
    require_this_version,
)
from fedward.config import Experiment
from fedward.digests import arrays_digest, canonical, digest
from fedward.methods.algorithm import Algorithm
from fedward.methods.site_weights import SiteWeight
from fedward.methods.survey import Survey
from fedward.protocol import wire
from fedward.protocol.fields import RUN_ID
from fedward.protocol.norms import norm
from fedward.protocol.requests import DECRYPT, DecryptRequest, Request, read_request, readable
from fedward.protocol.versions import versions
from fedward.protocol.wire import Message
from fedward.security.kept_chain import last_hashes
from fedward.security.privacy_ledger import PRIVACY
from fedward.security.questions import QUESTIONS
from fedward.security.sums import SUMS
from fedward.storage import chain
from fedward.storage.audit import now
from fedward.storage.lock import locked

ANSWERS_FOLDER = "answers"
"""Folder of the logs, in a site's folder."""

_MOST_ERRORS = 1000
"""Lines of one run without an answer at most, so that wrong requests do not fill a site's disk."""
_NO_FURTHER = "further requests without an answer are not written"
"""The note in the last of these lines."""

_LEDGERS = (PRIVACY, QUESTIONS, SUMS)
_ANSWERED = b'"event":"answered"'
_COUNTS = ("labelled", "unlabelled", "steps")


class SiteLog:
    """Admits requests and writes down the answers to them, one at a time.

    Args:
        folder: the site's own.
        site: its name.
        experiment: the job's.
        algorithm: its method, or its survey.
        job: FLARE's id of the job, which works on one run; empty in one process.
    """

    def __init__(
        self,
        folder: Path,
        site: str,
        experiment: Experiment,
        algorithm: Algorithm[Any] | Survey,
        job: str = "",
    ) -> None:
        self._folder = folder / ANSWERS_FOLDER
        self._site = site
        self._job = job
        self._experiment = experiment
        self._algorithm = algorithm
        self._ledgers = {kind: kind.file(folder, site) for kind in _LEDGERS}
        """Kind -> the ledger whose last hash a line holds."""
        self._run: str | None = None
        """Run of the request that is being answered; None where it names none."""
        self._asked: dict[str, Any] = {}
        """What the line about this request will say of it."""
        self._shapes: dict[str, tuple[int, ...]] = {}
        """Shapes of the tensors of the update that the request asks for."""
        self._admitted = False
        """Whether this request may be answered."""
        self._logs: dict[str, chain.Checked] = {}
        """Logs of the runs that requests have named so far, by run id."""

    def admit(self, message: Message) -> Request:
        """Record a request and return what it asks; refuse one that must not be answered.

        Raises:
            WireError: the request is malformed, not of this job, version or run, or not this
                exchange's turn.
            RunError: the log was changed by somebody.
        """
        self._run = None
        self._admitted = False
        run = named_run(message)
        if self._job:
            require_few_runs(run, self._logs)
        answered = self._answered(run)
        self._run = run
        fields = readable(message.meta)
        self._asked = _recorded(fields, message.arrays)
        require_this_version(fields)
        request = read_request(message.meta)
        withheld = self._algorithm.requirements.tensors.withheld(request.task)
        self._shapes = wire.shapes(message, withheld)
        require_this_job(request, self._experiment, self._algorithm)
        require_one_run(run, self._other_run(run, answered))
        Turns(answered).check(self._asked)
        self._admitted = True
        return request

    def weight(self, request: DecryptRequest, weight: SiteWeight) -> int:
        """Return what this site's update counts for in the sum that a request wants decrypted.

        Args:
            request: the request.
            weight: the method's rule for what a site counts for.
        """
        exchange = (request.round, request.part, request.trained)
        for row in self._answered(request.run):
            if (row["round"], row["part"], row["task"]) == exchange and row["gave"]:
                counts = {name: row[name] for name in _COUNTS}
                return weight(row["task"], **counts)
        raise refused(
            f"round {request.round}, part {request.part}",
            f"a sum with an update of this site for {request.trained}",
            "none",
        )

    def add(self, answer: Message) -> None:
        """Write down the answer, as it leaves, to the request that was admitted or refused last.

        The line is on the disk when this returns. Not written are answers that give nothing away:
        those that wait for approval, and errors once the run has many of them. The last error that
        is written says so.

        Raises:
            WireError: in another job, the site has answered another request for this exchange in
                the meantime.
        """
        run = self._run
        self._run = None
        # A site that waits for the job's approval has read nothing, and is asked again.
        if run is None or "waiting" in answer.meta:
            return
        event = "answered"
        if not self._admitted:
            event = "refused"
        elif "error" in answer.meta:
            event = "failed"
        row = {
            "time": now(),
            "site": self._site,
            "job": self._job,
            "event": event,
            **self._asked,
            **self._given_away(answer),
        }
        path = self._path(run)
        with locked(path):
            if event == "answered":
                Turns(self._answered(run)).check(self._asked)
            else:
                errors = _errors_in(path)
                if errors >= _MOST_ERRORS:
                    return
                if errors == _MOST_ERRORS - 1:
                    row["note"] = _NO_FURTHER
            for kind, ledger_hash in last_hashes(self._ledgers).items():
                row[kind.field] = ledger_hash
            chain.Chain(path, run).add(row)

    def _given_away(self, answer: Message) -> dict[str, Any]:
        """Return the fields of a line about what an answer gives away."""
        meta = answer.meta
        arrays = answer.arrays
        is_float16 = wire.UPDATE in arrays
        update = wire.decode_update(answer, self._shapes).arrays if is_float16 else arrays
        is_plain = bool(update) and all(array.dtype == np.float32 for array in update.values())
        row: dict[str, Any] = {
            "gave": arrays_digest(arrays) if arrays else None,
            "dtype": None,
            "norm": None,
        }
        if is_plain:
            row["dtype"] = "float16" if is_float16 else "float32"
            row["norm"] = norm(update)
        for name in _COUNTS:
            row[name] = meta.get(name)
        for name in ("metrics", "binned", "survey", "card"):
            row[name] = digest(meta[name]) if meta.get(name) else None
        row["synthetic"] = meta.get("synthetic")
        row["error"] = meta.get("error")
        return row

    def _answered(self, run: str) -> list[dict[str, Any]]:
        """Return the lines of this site's answers in a run; RunError if the log was changed."""
        if run not in self._logs:
            self._logs[run] = chain.Checked(self._path(run), run, f"{ANSWERS_FOLDER}/{run}.jsonl")
        rows = self._logs[run].rows()
        return [
            row for row in rows if row.get("site") == self._site and row.get("event") == "answered"
        ]

    def _path(self, run: str) -> Path:
        return self._folder / f"{run}.jsonl"

    def _other_run(self, run: str, answered: Sequence[Mapping[str, Any]]) -> str | None:
        """Return another run that the job has worked on, or None.

        A job that has worked on this run is taken to have no other.
        """
        if not self._job or any(row["job"] == self._job for row in answered):
            return None
        this_job = f'"job":{canonical(self._job)}'.encode()
        for path in self._folder.glob("*.jsonl"):
            # Other files may lie there too, such as those that macOS adds to a copy.
            if path.stem == run or not RUN_ID.fullmatch(path.stem):
                continue
            # Bytes, because a damaged line of another run must not cost this one.
            with path.open("rb") as file:
                if any(_ANSWERED in line and this_job in line for line in file):
                    return path.stem
        return None


def _errors_in(path: Path) -> int:
    """Return how many lines of a log are about requests that were not answered."""
    lines, _ = chain.read(path)
    errors = 0
    for line in lines:
        row = chain.parse(line)
        if row and row.get("event") != "answered":
            errors += 1
    return errors


def _recorded(fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return what a line says of a request; None in place of a malformed field.

    ``fields``: those that are well-formed.
    """
    server_versions = {}
    if "versions" in fields:
        for name in versions():
            server_versions[name] = fields["versions"].get(name, "none")
    names = ("round", "part", "task", "last_hash", "experiment")
    row: dict[str, Any] = {name: fields.get(name) for name in names}
    row["model"] = None if fields.get("task") == DECRYPT else wire.model_digest(arrays)
    row["peers"] = wire.peers_digest(arrays)
    row["versions"] = {"server": server_versions, "site": versions()}
    return row
