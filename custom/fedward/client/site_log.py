"""A site's own log: what it was asked, and what it gave. The server cannot touch it, and its log
must agree with it.

``answers/<run id>.jsonl`` in the site's folder is a :mod:`chain <fedward.storage.chain>` that
starts from the run's id. An answer is in it, and on the disk, before it leaves. A line holds
nothing but what the server was sent, and hashes of that: it may be given away.

===========================  =========================================================================================
field                        content
===========================  =========================================================================================
``time``, ``site``, ``job``  when, who, and FLARE's id of the job
``event``                    ``answered``; ``failed``: an error in place of an answer; ``refused``: nothing was read;
``round``, ``part``          the exchange; with ``task``, ``labels``, ``model`` and ``peers`` what was asked, the models
                             by their SHA-256
``last_hash``                of the server's audit log, when it asked
``experiment``               SHA-256 of the job's settings, by the server's word
``versions``                 of the server and of this site
``gave``                     SHA-256 of the update that left, as it left
``dtype``, ``norm``          float32 or float16, and its L2 norm as the server reads it, unless it was encrypted
``labelled`` ...             counts that left, and the SHA-256 of the metrics and of a survey
``error``                    the text that left in place of an answer
``ledger``, ``questions``    last hashes of the site's privacy ledger and of its ledger of questions, where it has them
===========================  =========================================================================================

A site answers each exchange for one request only (:func:`check_turn`). What the server asks beyond
that is refused before any data are read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedward.config import Experiment
from fedward.digests import arrays_digest, canonical, digest
from fedward.errors import WireError
from fedward.methods.algorithm import Algorithm
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
"""In a site's folder."""

_MOST_ERRORS = 1000
"""Lines of one run that tell of no answer. More are not written: nobody fills a site's disk by
asking wrongly.
"""

_MOST_RUNS = 3
"""Runs that one job may name at a site, in one process. The log of each is a file."""

_ANSWERED = '"event":"answered"'
_WORK = ("task", "labels", "peers")
_COUNTS = ("labelled", "unlabelled", "steps")
_SAME = "Server and sites must run the same job and the same version of fedward."


class SiteLog:
    """Admits requests and writes down the answers to them, one at a time, in the site's own
    ``folder``.

    ``job``: FLARE's id of the job; empty in one process. A job works on one run.
    """

    def __init__(
        self,
        folder: Path,
        site: str,
        experiment: Experiment,
        algorithm: Algorithm[Any],
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
        """Of the request that is being answered; None where it names none, or the log is broken."""
        self._asked: dict[str, Any] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        """Of the update that the request asks for."""
        self._admitted = False
        self._logs: dict[str, chain.Checked] = {}
        """Of the runs that requests have named so far."""

    def admit(self, message: Message) -> Request:
        """Record a request and return what it asks; refuse one that must not be answered.

        Raises:
            WireError: the request is malformed, not of this job, version or run, or not this
                exchange's turn.
            RunError: the log was changed by somebody.
        """
        self._run = None
        self._admitted = False
        said = readable(message.meta)
        run = said.get("run")
        if run is None:  # no log that a line could go to
            read_request(message.meta)
            raise _refused("request", "the id of a run", "nothing")
        if self._job and run not in self._logs and len(self._logs) == _MOST_RUNS:
            raise _refused(
                "run of this job",
                f"one of {_MOST_RUNS} that it has named",
                run,
                "Send a job for each run.",
            )
        given = self._given(run)
        self._run = run
        self._asked = _recorded(said, message.arrays)
        found = said.get("versions", {}).get("fedward", "none")
        if found != (ours := versions()["fedward"]):
            raise _refused("version of fedward", f"{ours}, as here", f"{found} at the server")
        request = read_request(message.meta)
        self._shapes = wire.shapes(
            message, self._algorithm.requirements.tensors.withheld(request.task)
        )
        if request.experiment != (ours := self._experiment.digest):
            expected = f"SHA-256 {ours}, as in this site's job"
            found = f"{request.experiment} at the server"
            raise _refused("settings of the job", expected, found)
        self._check_exchange(request)
        self._check_job(run, given)
        check_turn(given, self._asked)
        self._admitted = True
        return request

    def weight(self, request: DecryptRequest) -> int:
        """Return the weight of the update that this site gave in the exchange of a request for
        decryption.
        """
        for row in self._given(request.run):
            if (row["round"], row["part"], row["task"]) == (
                request.round,
                request.part,
                request.trained,
            ) and row["gave"]:
                return self._algorithm.weight(row["task"], *(row[name] for name in _COUNTS))
        where = f"round {request.round}, part {request.part}"
        raise _refused(where, f"a sum with an update of this site for {request.trained}", "none")

    def add(self, answer: Message) -> None:
        """Write down the answer, as it leaves, to the request that was admitted or refused last; on
        the disk then.

        Raises:
            WireError: in another job, the site has answered another request for this exchange in
                the meantime.
        """
        run = self._run
        self._run = None
        if (
            run is None or "waiting" in answer.meta
        ):  # for the job's approval: nothing was read, and it is asked again
            return
        event = (
            "refused" if not self._admitted else "failed" if "error" in answer.meta else "answered"
        )
        path = self._path(run)
        row = {
            "time": now(),
            "site": self._site,
            "job": self._job,
            "event": event,
            **self._asked,
            **self._given_away(answer),
        }
        with locked(path):
            if event == "answered":
                check_turn(self._given(run), self._asked)
            rows = map(chain.parse, chain.read(path)[0])
            if (
                event == "answered"
                or sum(row.get("event") != "answered" for row in rows if row) < _MOST_ERRORS
            ):
                row["ledger"] = last_hash(self._ledger) or None
                row["questions"] = last_hash(self._questions) or None
                chain.Chain(path, run).add(row)

    def _given_away(self, answer: Message) -> dict[str, Any]:
        """Return what an answer gives away, fit for a line."""
        meta = answer.meta
        arrays = answer.arrays
        halved = wire.UPDATE in arrays
        update = wire.decode_update(answer, self._shapes).arrays if halved else arrays
        plain = bool(update) and all(array.dtype == np.float32 for array in update.values())
        return {
            "gave": arrays_digest(arrays) if arrays else None,
            "dtype": ("float16" if halved else "float32") if plain else None,
            "norm": wire.norm(update) if plain else None,
            **{name: meta.get(name) for name in _COUNTS},
            **{
                name: digest(meta[name]) if meta.get(name) else None
                for name in ("metrics", "binned", "survey")
            },
            "error": meta.get("error"),
        }

    def _given(self, run: str) -> list[dict[str, Any]]:
        """Return the lines of this site's answers in a run; RunError if somebody changed the log."""
        log = self._logs.setdefault(
            run, chain.Checked(self._path(run), run, f"{FOLDER}/{run}.jsonl")
        )
        return [
            row
            for row in log.rows()
            if (row.get("site"), row.get("event")) == (self._site, "answered")
        ]

    def _path(self, run: str) -> Path:
        return self._folder / f"{run}.jsonl"

    def _check_exchange(self, request: Request) -> None:
        """Raise WireError for an exchange that the job does not have.

        After its rounds the last model is evaluated, and an average after each round.
        """
        settings = self._algorithm.settings
        idle = request.task == "idle"
        parts = self._algorithm.requirements.server.exchanges + (
            idle and settings.average_decay > 0
        )
        limits = {"round": (1, settings.rounds + idle), "part": (0, parts - 1)}
        for name, (first, most) in limits.items():
            if not first <= (found := getattr(request, name)) <= most:
                raise _refused(
                    f"{name} of a request", f"one from {first} to {most}, as in the job", f"{found}"
                )

    def _check_job(self, run: str, given: Sequence[Mapping[str, Any]]) -> None:
        """Raise WireError where the job has worked on another run: in a new one the rounds would
        begin anew.
        """
        if not self._job or any(row["job"] == self._job for row in given):
            return
        mine = f'"job":{canonical(self._job)}'
        for path in self._folder.glob("*.jsonl"):
            with path.open(encoding="utf-8") as file:
                if path.stem != run and any(_ANSWERED in line and mine in line for line in file):
                    raise _refused(
                        "run of this job", path.stem, run, "Send a job of its own for each run."
                    )


def check_turn(given: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> None:
    """Raise WireError unless an exchange may be answered: each is for one request only, and rounds
    go forward.

    A resumed run asks for its last exchange again, or goes back one round where its newest state is
    damaged. It has the same model then, and the same work for the site, and is answered again.
    Where other sites have answered in the meantime, the model of what follows differs: the site
    sits that exchange out.

    ``given``: lines of the answers that the site has given in the run. ``asked``: :func:`_recorded`
    of the request.
    """
    where = f"round {asked['round']}, part {asked['part']}"
    newest = max((row["round"] for row in given), default=0)
    if asked["round"] < newest - 1:
        raise _refused(
            where, f"round {newest - 1} or later: round {newest} is answered", "an earlier one"
        )
    before = [
        row for row in given if (row["round"], row["part"]) == (asked["round"], asked["part"])
    ]
    if asked["task"] == DECRYPT:
        if not any(row["gave"] for row in before if row["task"] != DECRYPT):
            raise _refused(
                where, "a sum with an update of this site", "a round in which it gave none"
            )
        return
    for row in before:
        if row["task"] == DECRYPT:
            continue
        if row["model"] != asked["model"]:
            expected = (
                f"the model of the request that this site has answered, SHA-256 {row['model']}"
            )
            raise _refused(where, expected, f"another, {asked['model']}")
        if "idle" not in (row["task"], asked["task"]) and any(
            row[name] != asked[name] for name in _WORK
        ):
            expected = f"the work of the request that this site has answered, {row['task']}"
            raise _refused(where, expected, f"{asked['task']} with other peers or labels")


def _recorded(said: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return what a line holds of a request; nothing in place of a field that is malformed."""
    model = None if said.get("task") == DECRYPT else wire.model_digest(arrays)
    theirs = (
        {name: said.get("versions", {}).get(name, "none") for name in versions()}
        if "versions" in said
        else {}
    )
    return {
        **{
            name: said.get(name)
            for name in ("round", "part", "labels", "task", "last_hash", "experiment")
        },
        "model": model,
        "peers": wire.peers_digest(arrays),
        "versions": {"server": theirs, "site": versions()},
    }


def _refused(where: str, expected: str, found: str, remedy: str = _SAME) -> WireError:
    return WireError(where, expected=expected, found=found, remedy=remedy)
