"""The server's loop: asks what the method's workflow wants, checks and stores the answers, writes the run folder."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedward.config import Experiment
from fedward.digests import arrays_digest
from fedward.errors import ConfigError, RunError, WireError
from fedward.evaluation.selection import MetricRow, earliest_best, evaluated
from fedward.methods import method_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import ClientUpdate, Exchange, Federation, State
from fedward.protocol import wire, wire_checks
from fedward.protocol.claims import Claims
from fedward.protocol.messages import Answer, ErrorAnswer, WaitingAnswer
from fedward.protocol.transport import Transport
from fedward.protocol.versions import versions
from fedward.protocol.wire import Message
from fedward.server.consent import Consent
from fedward.server.public import PublicImages
from fedward.sites import SERVER
from fedward.storage import ByteRow, QueryRow, RoundRow, Summary
from fedward.storage.initial import Source, Weights, described, initial_model
from fedward.storage.lock import sole_writer
from fedward.storage.pictures import save_pictures
from fedward.storage.run_folder import RunFolder
from fedward.terminal import reason

if TYPE_CHECKING:
    from fedward.report.console import Console

_EMPTY_ROUNDS_IN_A_ROW = 3
"""Exchanges without a single usable reply after which a run gives up instead of burning rounds."""

_SHOWN = 6
"""Images of the server's own in a report."""

_FIX = "fix the sites (`labelled` in a site's file says how many labels it uses)"
_NOTHING_TO_DO = "took no step as {}: {} labelled, {} unlabelled images"

_log = logging.getLogger(__name__)


def run_experiment(  # noqa: PLR0913 - named choices of one run
    experiment: Experiment,
    folder: Path,
    transport: Transport,
    *,
    engine: str,
    console: "Console",
    report: Callable[[Path], object],
    resume: bool = False,
    site_folders: Sequence[Path] = (),
    init: Source | None = None,
    watch: Callable[[Path], None] | None = None,
) -> Path:
    """Run an experiment to its end and return its folder.

    Args:
        experiment: what to run.
        folder: the run folder; new, or with ``resume`` that of an interrupted run.
        transport: how messages reach the sites.
        engine: name of the engine, recorded.
        console: where progress is printed.
        report: writes the report into the folder of a run that has ended.
        resume: continue from the last finished round. Weights equal those of an undisturbed run.
        site_folders: where the server's own public images may lie, if the method uses some.
        init: a finished run's weights, which a new run starts from wherever name and shape are the same. One that is
            resumed needs them only if it was interrupted before its first commit.
        watch: called with the run folder after every commit and change of status.

    Raises:
        RunRefusedError: the policies of so many sites forbid the job that ``minimum_replies`` cannot come.
        RunError: no usable replies in three exchanges in a row; no round that changed the model; the folder does not
            fit ``experiment`` or ``init``, or another process writes it.
        ConfigError: the settings cannot work: an unknown network, fewer sites than replies needed, no images of the
            server's own where the method needs some, or ``init`` cannot be used.
    """
    # Before there is a folder: settings that do not work leave none.
    algorithm = method_of(experiment)
    images = PublicImages(experiment, folder / "server", site_folders)
    fresh = None if resume else _checked(experiment, algorithm, transport.sites(), images, init)
    first, taken = fresh or (None, None)
    with sole_writer(folder):
        if resume:
            run = RunFolder.reopen(folder, experiment, transport.sites())
            if init:
                init.check(folder, run.info)
        else:
            run = RunFolder.create(folder, experiment, transport.sites(), engine, taken)
        run.watch = watch or run.watch
        return _Driver(experiment, algorithm, run, transport, images, init, console, report).run(first)


def _checked(
    experiment: Experiment, algorithm: Algorithm[Any], sites: Sequence[str], images: PublicImages, init: Source | None
) -> tuple[State, dict[str, Any] | None]:
    """Return the model a new run starts from, and what of it is taken from ``init``.

    Raises ConfigError if the run's settings cannot work.
    """
    if len(sites) < experiment.minimum_replies:
        raise ConfigError(
            "minimum_replies",
            expected=f"at most the number of sites, {len(sites)}",
            found=str(experiment.minimum_replies),
            remedy="Lower it, or run with more sites.",
        )
    wanted = algorithm.requirements.server_images
    if not images.there and "validation" in wanted:
        images.require_validation()
    if not images.there and "training" in wanted:
        images.require()
    return initial_model(experiment, Weights.of(init.files, init.facts) if init else None)


@dataclass
class _Answers:
    """What came back from one exchange."""

    replies: list[ClientUpdate] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    updates: dict[str, str] = field(default_factory=dict)
    """Site -> SHA-256 of its update as it came, of those that are used."""
    refused: set[str] = field(default_factory=set)
    """Those of ``failed`` whose policy forbids the job."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Site -> digest of the job that its administrator has not approved yet."""
    said: dict[str, Answer] = field(default_factory=dict)
    up: dict[str, int] = field(default_factory=dict)
    mean: State | None = None
    """The model all replies carry, where the sites encrypt."""

    def forget(self, sites: Collection[str]) -> None:
        """Drop why these sites have not replied: they are asked again."""
        for site in sites:
            self.failed.pop(site, None)
            self.waiting.pop(site, None)
        self.refused -= set(sites)


class _Driver:
    def __init__(
        self,
        experiment: Experiment,
        algorithm: Algorithm[Any],
        run: RunFolder,
        transport: Transport,
        images: PublicImages,
        init: Source | None,
        console: "Console",
        report: Callable[[Path], object],
    ) -> None:
        self.experiment, self.run_folder, self.transport = experiment, run, transport
        self.console, self.report = console, report
        self.algorithm, self.images, self.init = algorithm, images, init
        self._claims = Claims(algorithm)
        self._empty = 0
        self._enough = experiment.minimum_replies
        self._consent = Consent(run, console, self._enough)
        self._failed: dict[str, str] = {}
        """Site -> why it did not work in the last exchange in which some were asked to."""
        self._labelled: dict[str, int] = {}
        """Site -> labelled images, by its last answer."""
        self._last_round = -1

    def run(self, first: State | None = None) -> Path:
        """Carry the run out, or on; ``first``: the model of a new run, made here if None."""
        run = self.run_folder
        if run.finished:
            if not run.reported:  # it was killed in between
                run.report(self.report)
            return run.path
        run.set_status("running", Summary())
        try:
            state = self._begin(first)
            self._loop(state, self.algorithm.rounds(state, self._federation()))
            self._finish(state)
        except BaseException as error:
            # Ctrl-C and an abort count too: the folder must not claim that the run still goes on.
            summary = Summary(reason=str(error) or type(error).__name__, **self._consent.refused)
            run.set_status("failed", summary)
            self._report_failure(summary)
            raise
        return run.path

    def _begin(self, first: State | None) -> Any:
        """Return the state to go on from, and say what runs."""
        run = self.run_folder
        state = run.restore(self.algorithm.state_type)
        facts = None if state else run.info.init
        state = state or self.algorithm.start(first or self._initial_model(facts))
        taken = (facts["folder"], described(facts)) if facts else None
        self.console.header(self.experiment, run.sites, resumed_after=state.round, taken=taken)
        return state

    def _record_decision(self, log: str, row: dict[str, Any]) -> None:
        if not self.experiment.secure_aggregation:  # else a method measures the mean, and would note it of each site
            self.run_folder.record(log, row)

    def _report_failure(self, summary: Summary) -> None:
        try:
            self.run_folder.report(self.report)
        except Exception:  # the run's own error must not be hidden by one of its report
            _log.exception("no report of the failed run %s", self.run_folder.path)
        self.console.closing(self.run_folder.path, summary)

    def _initial_model(self, facts: Mapping[str, Any] | None) -> State:
        if facts is None:
            return initial_model(self.experiment, None)[0]
        files = self.init.files if self.init else Path(facts["folder"])
        return initial_model(self.experiment, Weights.of(files, facts))[0]

    def _federation(self) -> Federation:
        run, images, wanted = self.run_folder, self.images, self.algorithm.requirements.server_images
        federation = Federation(run.sites, self.experiment.seed, run.models, record=self._record_decision)
        if "validation" in wanted:
            images.require_validation()
            federation = replace(federation, validate=images.accuracy)
        if "training" in wanted:
            images.require()
            federation = replace(federation, learn=partial(self._learn, images))
        if "pictures" in wanted:  # images are read now: a broken file ends a run before its first round
            federation = replace(federation, show=partial(self._show, images, images.first(_SHOWN)))
        return federation

    def _show(self, public: PublicImages, images: Tensor, model: State, facts: Mapping[str, Any]) -> None:
        save_pictures(self.run_folder.path, public.pictures(model, images) if len(images) else {}, facts)

    def _learn(
        self, images: PublicImages, model: State, round_: int, task: str, memory: MutableMapping[str, State]
    ) -> State:
        trained, means = images.learn(model, round_, task, memory)
        for name, value in means.items():
            self.run_folder.append("metrics", MetricRow(round_, SERVER, "train", name, value, images.number))
        return trained

    def _loop(self, state: Any, rounds: Any) -> None:
        if not list(self.run_folder.path.glob("rounds/?????")):
            self.run_folder.commit(state.round, state)
        exchange = next(rounds, None)
        while exchange is not None:
            before = state.round
            replies = self._exchange(exchange)
            exchange = None  # its models go before the next ones are made
            with suppress(StopIteration):
                exchange = rounds.send(replies)
            if state.round != before:
                self.run_folder.commit(state.round, state)

    def _exchange(self, exchange: Exchange) -> list[ClientUpdate]:
        """Carry out one ask; the model the round starts from is evaluated with it where its turn has come."""
        first, self._last_round = exchange.round != self._last_round, exchange.round
        evaluate = exchange.evaluate and first and (exchange.round - 1) % self.experiment.evaluate_every == 0
        started = time.perf_counter()
        result, requests = self._send(exchange, self.run_folder.sites if evaluate else [])
        self._record(exchange, requests, result, time.perf_counter() - started)
        self._consent.require(exchange.round, result.said, {site: result.failed[site] for site in result.refused})
        self._note_empty(exchange, any(reply.useful for reply in result.replies), result.failed)
        return sorted(result.replies, key=lambda reply: reply.site)

    def _note_empty(self, exchange: Exchange, any_reply: bool, failed: dict[str, str]) -> None:
        self._empty = 0 if any_reply else self._empty + 1
        self._failed = failed if exchange.tasks else self._failed
        if self._empty >= _EMPTY_ROUNDS_IN_A_ROW:
            raise RunError(
                f"round {exchange.round}",
                expected=f"at least {self.experiment.minimum_replies} usable replies",
                found=f"too few in {self._empty} exchanges in a row: {self._why_nothing()}",
                remedy=f"{_FIX.capitalize()}, then resume this run folder.",
            )

    def _why_nothing(self) -> str:
        """Return why no site trained in the last exchange in which some were asked to."""
        reasons = "; ".join(f"{site}: {reason}" for site, reason in sorted(self._failed.items()))
        everyone = set(self._labelled) == set(self.run_folder.sites)
        nobody = "no site has labels; " if everyone and not any(self._labelled.values()) else ""
        return f"{nobody}last: {reasons or 'no site could train'}"

    def _send(self, exchange: Exchange, evaluate: Sequence[str]) -> tuple[_Answers, dict[str, Message]]:
        init = self.run_folder.info.init
        weights = {"weights": init.get("model", init["sha256"])} if init else {}
        facts = {"members": len(self.run_folder.sites), **weights}
        facts |= {"experiment": self.experiment.digest, "versions": versions()}
        requests = wire.requests(exchange, evaluate, self.run_folder.id, facts)
        last_hash = self.run_folder.audit.add(
            "asked",
            round=exchange.round,
            part=exchange.part,
            tasks={site: task.name for site, task in exchange.tasks.items()},
            evaluate=list(evaluate),
            decisions=exchange.record,
            **wire.sent(requests),
        )
        for request in requests.values():
            request.meta["last_hash"] = last_hash
        result = _Answers()
        pending: set[str] = set()

        def deliver(site: str, answer: Message) -> None:
            if site not in pending:
                return  # a second or stale answer: the first one stands
            pending.discard(site)
            try:
                self._accept(exchange, requests[site], site, answer, result)
            except WireError as error:
                result.failed[site] = reason(str(error))

        def send(sites: Collection[str]) -> None:
            pending.update(sites)
            result.forget(sites)
            self.transport.exchange({site: requests[site] for site in sorted(sites)}, self.experiment.timeout, deliver)
            self._consent.tell(result.waiting)

        send(set(requests))
        while self._is_worth_waiting(exchange, result):
            self._consent.pause()
            send(set(result.waiting))
            if not result.waiting and self._lacks(result):
                send(set(exchange.tasks) - {reply.site for reply in result.replies})  # theirs was one of too few
        result.failed |= self._consent.reasons(result.waiting)
        result.failed |= dict.fromkeys(sorted(pending), f"no answer within {self.experiment.timeout} s")
        self._drop_too_few(exchange, result)
        self.run_folder.audit.add(
            "answered",
            round=exchange.round,
            part=exchange.part,
            replied=sorted(reply.site for reply in result.replies if reply.useful),
            updates=result.updates,
            evaluated=sorted(site for site, said in result.said.items() if said.metrics),
            failed=result.failed,
        )
        return result, requests

    def _is_worth_waiting(self, exchange: Exchange, result: _Answers) -> bool:
        """Return whether replies are too few, and may be enough once sites that wait for approval have it."""
        willing = set(exchange.tasks) - result.refused
        return self._lacks(result) and bool(willing & set(result.waiting)) and len(willing) >= self._enough

    def _lacks(self, result: _Answers) -> bool:
        return sum(reply.useful for reply in result.replies) < self._enough

    def _drop_too_few(self, exchange: Exchange, result: _Answers) -> None:
        """Drop replies of which there are fewer than an exchange needs: neither averages nor peers come of them."""
        useful = [reply.site for reply in result.replies if reply.useful]
        if len(useful) >= self.experiment.minimum_replies:
            return
        result.replies = [reply for reply in result.replies if not reply.useful]
        for site in useful:
            self.run_folder.models.forget(site, exchange.round)
            result.updates.pop(site, None)
            result.failed[site] = f"not used: minimum_replies is {self.experiment.minimum_replies}, came {len(useful)}"

    def _accept(self, exchange: Exchange, request: Message, site: str, answer: Message, result: _Answers) -> None:
        needs = self.algorithm.requirements
        said = wire_checks.check_answer(
            answer,
            site,
            request,
            withheld=needs.withheld(request.meta["task"]),
            classes=self.experiment.data.classes,
            scalars=needs.reported,
        )
        if isinstance(said, ErrorAnswer):
            result.failed[site] = reason(said.error)
            result.refused |= {site} if said.refused else set()
            return
        if isinstance(said, WaitingAnswer):
            result.waiting[site] = said.waiting
            return
        self._claims.check(said, request.meta)
        self._labelled[site] = said.labelled
        result.up[site] = answer.nbytes
        result.said[site] = said
        state, counts = exchange.model, (said.labelled, said.unlabelled)
        if said.steps:
            state = self._kept(exchange, site, answer, result)
        elif (task := request.meta["task"]) not in wire.UNTRAINED:
            result.failed[site] = _NOTHING_TO_DO.format(task, *counts)
        result.replies.append(ClientUpdate(site, state, *counts, said.steps, said.scores or (), said.due or 0))

    def _kept(self, exchange: Exchange, site: str, answer: Message, result: _Answers) -> State:
        """Return a site's trained model as it lies on disk, or the mean of all, once, where the sites encrypt."""
        wire_checks.check_norm(site, answer, exchange.model, self.experiment.largest_update)
        result.updates[site] = answer.received or arrays_digest(answer.arrays)
        if not self.experiment.secure_aggregation:
            return self.run_folder.models.put(site, exchange.round, wire.rebuild(exchange.model, answer))
        if result.mean is None:
            result.mean = wire.rebuild(exchange.model, answer)
        return result.mean

    def _record(self, exchange: Exchange, requests: dict[str, Message], result: _Answers, seconds: float) -> None:
        run = self.run_folder
        for site, said in sorted(result.said.items()):
            self._record_answer(exchange, site, said)
        peers = {site: len(wire.roles(request)) for site, request in requests.items()}
        for site, request in requests.items():
            run.append("bytes", ByteRow(exchange.round, site, request.nbytes, result.up.get(site, 0), peers[site]))
        for log, record in exchange.record.items():
            run.append(log, {"round": exchange.round, **record})
        values = self._judge(exchange, result)
        if not exchange.tasks:  # the evaluation after the last round is no round
            return
        row = RoundRow(
            round=exchange.round,
            part=exchange.part,
            seconds=round(seconds, 3),
            asked=tuple(sorted(exchange.tasks)),
            replied=tuple(sorted(reply.site for reply in result.replies if reply.useful)),
            failed=result.failed,
            restarts={site: said.restarts for site, said in sorted(result.said.items()) if said.restarts},
            bytes_down=sum(request.nbytes for request in requests.values()),
            bytes_up=sum(result.up.values()),
            peer_models=sum(peers.values()),
        )
        run.append("rounds", row)
        kept = [said.train["kept"] for said in result.said.values() if "kept" in said.train]
        self.console.round(row, values, fmean(kept) if kept else None)

    def _record_answer(self, exchange: Exchange, site: str, said: Answer) -> None:
        run, images = self.run_folder, said.labelled + said.unlabelled
        counts = {"labelled": said.labelled, "unlabelled": said.unlabelled}
        for metric in said.metrics:
            run.append("metrics", {"round": exchange.round - 1, "site": site, **metric.model_dump()})
        for name, value in ({**said.train, **counts} if site in exchange.tasks else {}).items():
            run.append("metrics", MetricRow(exchange.round, site, "train", name, value, images))
        if labels := said.label_counts:
            run.append("queries", QueryRow(exchange.round, site, **labels.model_dump(), **counts, minutes=said.minutes))

    def _judge(self, exchange: Exchange, result: _Answers) -> dict[str, float]:
        """Return the key metric of the evaluated model at each site, and keep the model if it is the best so far."""
        key = self.experiment.key_metric
        found = {
            site: metric.value
            for site, said in sorted(result.said.items())
            for metric in said.metrics
            if metric.split == "val" and metric.name == key
        }
        values = {site: float(value) for site, value in found.items() if value is not None}
        if evaluated(found, self.run_folder.sites):
            best, round_, mean = self.run_folder.best(), exchange.round - 1, fmean(values.values())
            if earliest_best({round_: mean, **dict([best] if best else [])}) == round_:
                sidecar = {"round": round_, "metric": f"mean over sites of val {key}", "value": mean}
                self.run_folder.save_global("best", exchange.model, sidecar)
        return values

    def _finish(self, state: Any) -> None:
        """Evaluate the last model, if it can be evaluated, and close the folder."""
        run = self.run_folder
        not_evaluated = {} if self.algorithm.requirements.untrained else self._evaluate_last(state)
        run.save_global("model", state.model, {"round": state.round})
        best = run.best()
        summary = Summary(
            rounds=state.round, best_round=best and best[0], best_value=best and best[1], not_evaluated=not_evaluated
        )
        run.models.clear()
        if wire.model_digest(wire.flatten("model", state.model)) == run.first_model:
            raise RunError(
                f"run {run.path}",
                expected="a model that some round changed",
                found=f"the one it began with: {self._why_nothing()}",
                remedy=f"See in rounds.jsonl why; {_FIX}, and start a new run in another folder.",
            )
        run.set_status("finished", summary)
        run.report(self.report)
        self.console.closing(run.path, summary, self.algorithm.requirements.untrained)

    def _evaluate_last(self, state: Any) -> dict[str, str]:
        """Evaluate the last model at all sites; return site -> reason of those that brought no usable answer.

        No round holds them: the run's summary is where they are told.
        """
        last = Exchange(state.round + 1, state.model, {})
        result, requests = self._send(last, self.run_folder.sites)
        self._record(last, requests, result, 0.0)
        return dict(sorted(result.failed.items()))
