"""A site's own log: what it was asked, and what it gave.

The server cannot touch it, and the server's log must agree with it.

``answers/<run id>.jsonl`` in the site's folder is a :mod:`chain <fedward.storage.chain>` that
starts from the run's id. An answer is in it, and on the disk, before it leaves. A line holds
nothing but what the server was sent, and hashes of that: it may be given away. Its fields are:

- ``time``, ``site``, ``job``: when, who, and FLARE's id of the job.
- ``event``: ``answered``; ``failed``, an error in place of an answer; or ``refused``, where nothing
  was read.
- ``round``, ``part``: the exchange. ``task``, ``labels``, ``model`` and ``peers``: what was asked,
  the models by their SHA-256.
- ``last_hash``: of the server's audit log, when it asked.
- ``experiment``: SHA-256 of the job's settings, by the server's word.
- ``versions``: of the server and of this site.
- ``gave``: SHA-256 of the update that left, as it left.
- ``dtype``, ``norm``: float32 or float16, and the update's L2 norm as the server reads it; empty
  for an encrypted update.
- ``labelled``, ``unlabelled``, ``steps``: counts that left. ``metrics``, ``binned``, ``survey``:
  SHA-256 of what left.
- ``error``: the text that left in place of an answer.
- ``ledger``, ``questions``: last hashes of the site's privacy ledger and of its ledger of
  questions, where it has them.

A site answers each exchange for one request only (:class:`Turns`). What the server asks beyond
that is refused before any data are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedward.config import Experiment
from fedward.digests import arrays_digest, canonical, digest
from fedward.errors import WireError
from fedward.methods.algorithm import Algorithm, Weight
from fedward.methods.survey import Survey
from fedward.protocol import wire
from fedward.protocol.requests import DECRYPT, DecryptRequest, Request, read_request, readable
from fedward.protocol.versions import versions
from fedward.protocol.wire import Message
from fedward.security.kept_chain import last_hash
from fedward.security.ledger import ledger_file
from fedward.security.questions import questions_file
from fedward.storage import chain
from fedward.storage.audit import now
from fedward.storage.lock import locked

FOLDER = "answers"
"""Folder of the logs, in a site's folder."""

_MOST_ERRORS = 1000
"""Lines of one run without an answer at most, so that wrong requests do not fill a site's disk."""

_MOST_RUNS = 3
"""Runs that one job may name at a site, in one process. The log of each is a file."""

_Exchange: TypeAlias = tuple[Any, Any]
"""Round and part."""

_ANSWERED = '"event":"answered"'
_WORK = ("task", "labels", "peers")
_COUNTS = ("labelled", "unlabelled", "steps")
_SAME = "Server and sites must run the same job and the same version of fedward."


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
        self._folder = folder / FOLDER
        self._site = site
        self._job = job
        self._experiment = experiment
        self._algorithm = algorithm
        self._ledger = ledger_file(folder, site)
        self._questions = questions_file(folder, site)
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
        fields = readable(message.meta)
        run = fields.get("run")
        if run is None:  # there is no log that a line could go to
            read_request(message.meta)
            raise _refused("request", "the id of a run", "nothing")
        if self._job and run not in self._logs and len(self._logs) == _MOST_RUNS:
            raise _refused(
                "run of this job",
                f"one of {_MOST_RUNS} that it has named",
                run,
                "Send a job for each run.",
            )
        answered = self._answered(run)
        self._run = run
        self._asked = _recorded(fields, message.arrays)
        server_version = fields.get("versions", {}).get("fedward", "none")
        own_version = versions()["fedward"]
        if server_version != own_version:
            raise _refused(
                "version of fedward", f"{own_version}, as here", f"{server_version} at the server"
            )
        request = read_request(message.meta)
        withheld = self._algorithm.requirements.tensors.withheld(request.task)
        self._shapes = wire.shapes(message, withheld)
        own_digest = self._experiment.digest
        if request.experiment != own_digest:
            raise _refused(
                "settings of the job",
                f"SHA-256 {own_digest}, as in this site's job",
                f"{request.experiment} at the server",
            )
        self._check_exchange(request)
        self._check_job(run, answered)
        Turns(answered).check(self._asked)
        self._admitted = True
        return request

    def weight(self, request: DecryptRequest, weight: Weight) -> int:
        """Return what this site's update counts for in the sum that a request wants decrypted.

        Args:
            request: the request.
            weight: the method's rule for what a site counts for.
        """
        exchange = (request.round, request.part, request.trained)
        for row in self._answered(request.run):
            if (row["round"], row["part"], row["task"]) == exchange and row["gave"]:
                counts = (row[name] for name in _COUNTS)
                return weight(row["task"], *counts)
        raise _refused(
            f"round {request.round}, part {request.part}",
            f"a sum with an update of this site for {request.trained}",
            "none",
        )

    def add(self, answer: Message) -> None:
        """Write down the answer, as it leaves, to the request that was admitted or refused last.

        The line is on the disk when this returns.

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
            elif _errors_in(path) >= _MOST_ERRORS:
                return
            row["ledger"] = last_hash(self._ledger) or None
            row["questions"] = last_hash(self._questions) or None
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
            row["norm"] = wire.norm(update)
        for name in _COUNTS:
            row[name] = meta.get(name)
        for name in ("metrics", "binned", "survey"):
            row[name] = digest(meta[name]) if meta.get(name) else None
        row["error"] = meta.get("error")
        return row

    def _answered(self, run: str) -> list[dict[str, Any]]:
        """Return the lines of this site's answers in a run; RunError if the log was changed."""
        if run not in self._logs:
            self._logs[run] = chain.Checked(self._path(run), run, f"{FOLDER}/{run}.jsonl")
        rows = self._logs[run].rows()
        return [
            row for row in rows if row.get("site") == self._site and row.get("event") == "answered"
        ]

    def _path(self, run: str) -> Path:
        return self._folder / f"{run}.jsonl"

    def _check_exchange(self, request: Request) -> None:
        """Raise WireError for an exchange that the job does not have.

        After its rounds the last model is evaluated, and an average after each round.
        """
        settings = self._algorithm.settings
        rounds = settings.rounds
        parts = self._algorithm.requirements.server.exchanges
        if request.task == "idle":
            rounds += 1
            if settings.average_decay > 0:
                parts += 1
        limits = {"round": (1, rounds), "part": (0, parts - 1)}
        for name, (first, last) in limits.items():
            number = getattr(request, name)
            if not first <= number <= last:
                raise _refused(
                    f"{name} of a request",
                    f"one from {first} to {last}, as in the job",
                    f"{number}",
                )

    def _check_job(self, run: str, answered: Sequence[Mapping[str, Any]]) -> None:
        """Raise WireError where the job has worked on another run.

        In a new run the rounds would begin again.
        """
        if not self._job or any(row["job"] == self._job for row in answered):
            return
        this_job = f'"job":{canonical(self._job)}'
        for path in self._folder.glob("*.jsonl"):
            if path.stem == run:
                continue
            with path.open(encoding="utf-8") as file:
                if any(_ANSWERED in line and this_job in line for line in file):
                    raise _refused(
                        "run of this job", path.stem, run, "Send a job of its own for each run."
                    )


def _errors_in(path: Path) -> int:
    """Return how many lines of a log are about requests that were not answered."""
    lines, *_ = chain.read(path)
    errors = 0
    for line in lines:
        row = chain.parse(line)
        if row and row.get("event") != "answered":
            errors += 1
    return errors


class Turns:
    """Whether a site may answer an exchange, after those that it has answered in a run.

    Each exchange is answered for one request only, and rounds go forward.

    A resumed run asks for its last exchange again, or goes back one round where its newest state is
    damaged. It has the same model then, and the same work for the site, and is answered again.
    Where other sites have answered in the meantime, the model of what follows differs: the site
    sits that exchange out.

    Args:
        answered: lines of the answers that the site has given in the run.
    """

    def __init__(self, answered: Iterable[Mapping[str, Any]] = ()) -> None:
        self._newest_round = 0
        self._gave: set[_Exchange] = set()
        """Exchanges in which the site gave an update."""
        self._models: dict[_Exchange, Any] = {}
        """Exchange -> SHA-256 of the model that it was answered for."""
        self._work: dict[_Exchange, Mapping[str, Any]] = {}
        """Exchange -> the line of the first answer that did more than evaluate."""
        for row in answered:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        """Note the line of an answer, which :meth:`check` has admitted."""
        self._newest_round = max(self._newest_round, row["round"])
        if row["task"] == DECRYPT:
            return
        exchange = (row["round"], row["part"])
        self._models.setdefault(exchange, row["model"])
        if row["task"] != "idle":
            self._work.setdefault(exchange, row)
        if row["gave"]:
            self._gave.add(exchange)

    def check(self, asked: Mapping[str, Any]) -> None:
        """Raise WireError unless the exchange of a request may be answered.

        Args:
            asked: what a line says of the request.
        """
        where = f"round {asked['round']}, part {asked['part']}"
        newest = self._newest_round
        if asked["round"] < newest - 1:
            expected = f"round {newest - 1} or later: round {newest} is answered"
            raise _refused(where, expected, "an earlier one")
        exchange = (asked["round"], asked["part"])
        if asked["task"] == DECRYPT:
            if exchange not in self._gave:
                found = "a round in which it gave none"
                raise _refused(where, "a sum with an update of this site", found)
            return
        model = self._models.get(exchange, asked["model"])
        if model != asked["model"]:
            raise _refused(
                where,
                f"the model of the request that this site has answered, SHA-256 {model}",
                f"another, {asked['model']}",
            )
        work = self._work.get(exchange)
        if work is None or asked["task"] == "idle":
            return
        if any(work[name] != asked[name] for name in _WORK):
            raise _refused(
                where,
                f"the work of the request that this site has answered, {work['task']}",
                f"{asked['task']} with other peers or labels",
            )


def _recorded(fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return what a line says of a request; None in place of a malformed field.

    ``fields``: those that are well-formed.
    """
    server_versions = {}
    if "versions" in fields:
        for name in versions():
            server_versions[name] = fields["versions"].get(name, "none")
    names = ("round", "part", "labels", "task", "last_hash", "experiment")
    row: dict[str, Any] = {name: fields.get(name) for name in names}
    row["model"] = None if fields.get("task") == DECRYPT else wire.model_digest(arrays)
    row["peers"] = wire.peers_digest(arrays)
    row["versions"] = {"server": server_versions, "site": versions()}
    return row


def _refused(where: str, expected: str, found: str, remedy: str = _SAME) -> WireError:
    return WireError(where, remedy, expected=expected, found=found)
