"""Which requests a site answers: those of its job, version and run, each exchange once.

All others are refused before the policy is asked (:mod:`fedward.client.admission`) and before any
data are read. :mod:`fedward.client.site_log` keeps what these checks compare a request with.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from fedward.config import Experiment
from fedward.errors import WireError
from fedward.methods.algorithm import Algorithm
from fedward.methods.survey import Survey
from fedward.protocol.requests import DECRYPT, Request, TaskRequest, read_request, readable
from fedward.protocol.versions import versions
from fedward.protocol.wire import UNTRAINED, Message
from fedward.terminal import shown

_MOST_RUNS = 3
"""Runs that one job may name at a site, in one process. The log of each is a file."""

_Exchange: TypeAlias = tuple[Any, Any]
"""Round and part."""

_WORK = ("task", "peers")
_SAME = "Server and sites must run the same job and the same version of fedward."


def named_run(message: Message) -> str:
    """Return the run that a request names.

    Raises:
        WireError: it names none, so that there is no log that a line about it could go to.
    """
    run: str | None = readable(message.meta).get("run")
    if run is None:
        read_request(message.meta)
        raise refused("request", "the id of a run", "nothing")
    return run


def require_few_runs(run: str, named_runs: Collection[str]) -> None:
    """Raise WireError where a job names one more run than it may.

    Args:
        run: the run of a request.
        named_runs: the runs that the job's requests have named so far.
    """
    if run not in named_runs and len(named_runs) == _MOST_RUNS:
        raise refused(
            "run of this job",
            f"one of {_MOST_RUNS} that it has named",
            run,
            "Send a job for each run.",
        )


def require_this_version(fields: Mapping[str, Any]) -> None:
    """Raise WireError unless the server has this site's version of fedward.

    ``fields``: those of the request that are well-formed.
    """
    server_version = fields.get("versions", {}).get("fedward", "none")
    own_version = versions()["fedward"]
    if server_version != own_version:
        raise refused(
            "version of fedward", f"{own_version}, as here", f"{server_version} at the server"
        )


def require_this_job(
    request: Request, experiment: Experiment, algorithm: Algorithm[Any] | Survey
) -> None:
    """Raise WireError for settings, a task or an exchange that the job does not have.

    After its rounds the last model is evaluated, and an average after each round.

    Args:
        request: the request.
        experiment: the job's settings at this site.
        algorithm: the job's method, or its survey.
    """
    if request.experiment != experiment.digest:
        raise refused(
            "settings of the job",
            f"SHA-256 {experiment.digest}, as in this site's job",
            f"{request.experiment} at the server",
        )
    # A survey has no such task; the client says that both are jobs of their own.
    if isinstance(request, TaskRequest) and not isinstance(algorithm, Survey):
        _require_task(request.task, algorithm.requirements.tasks)
    rounds = algorithm.settings.rounds
    parts = algorithm.requirements.server.exchanges
    if request.task == "idle":
        rounds += 1
        if algorithm.settings.average_decay > 0:
            parts += 1
    limits = {"round": (1, rounds), "part": (0, parts - 1)}
    for name, (first, last) in limits.items():
        number = getattr(request, name)
        if not first <= number <= last:
            raise refused(
                f"{name} of a request",
                f"one from {first} to {last}, as in the job",
                f"{number}",
            )


def _require_task(task: str, tasks: Collection[str]) -> None:
    """Raise WireError for a task that the method gives to no site.

    What a site trains, and which tensors it sends, follow from the task.
    """
    allowed = [*UNTRAINED, *sorted(tasks)]
    if task not in allowed:
        raise refused(
            "task of a request", f"one of {', '.join(allowed)}, as in the job", shown(task)
        )


def require_one_run(run: str, other_run: str | None) -> None:
    """Raise WireError where the job has worked on another run: the rounds would begin again.

    Args:
        run: the run of a request.
        other_run: another run that the job has worked on, or None.
    """
    if other_run is not None:
        raise refused("run of this job", other_run, run, "Send a job of its own for each run.")


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
            raise refused(where, expected, "an earlier one")
        exchange = (asked["round"], asked["part"])
        if asked["task"] == DECRYPT:
            if exchange not in self._gave:
                raise refused(
                    where, "a sum with an update of this site", "a round in which it gave none"
                )
            return
        model = self._models.get(exchange, asked["model"])
        if model != asked["model"]:
            raise refused(
                where,
                f"the model of the request that this site has answered, SHA-256 {model}",
                f"another, {asked['model']}",
            )
        work = self._work.get(exchange)
        if work is None or asked["task"] == "idle":
            return
        if any(work[name] != asked[name] for name in _WORK):
            raise refused(
                where,
                f"the work of the request that this site has answered, {work['task']}",
                f"{asked['task']} with other peers",
            )


def refused(where: str, expected: str, found: str, remedy: str = _SAME) -> WireError:
    """Return the error by which a site refuses a request."""
    return WireError(where, remedy, expected=expected, found=found)
