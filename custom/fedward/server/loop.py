"""The server's half of a run that trains a model: it goes through the rounds.

In each round it carries out the exchanges that the method's workflow asks for, records what came
back, and commits the new state.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from fedward.config import Experiment
from fedward.console.listener import Listener, Start, StartingWeights
from fedward.errors import RunError, listed
from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.averages import moving_average
from fedward.methods.evaluation_turn import (
    evaluates_average,
    evaluation_turn,
    rounds_of_model,
)
from fedward.methods.workflow import EMPTY_ROUNDS_IN_A_ROW, ClientUpdate, Exchange, Rounds
from fedward.model_state import State
from fedward.protocol import wire
from fedward.protocol.transport import Transport
from fedward.server.consent import Consent
from fedward.server.exchange import Communicator, Result
from fedward.server.federation import federation_of
from fedward.server.heads import classes_without_head
from fedward.server.public import PublicImages
from fedward.server.questions import enough_labels
from fedward.server.record import keep_best, key_values, record_round, record_sites
from fedward.starting_model import FirstModel, Source, Weights, described, initial_model
from fedward.storage.info import Summary
from fedward.storage.run_folder import RunFolder

_GIVE_LABELS = "let a site use labels (`labelled` in its file says how many)"
"""What to do if no site has anything to learn from."""
_log = logging.getLogger(__name__)


class TrainingCourse:
    """The course of a run that trains a model."""

    def __init__(
        self,
        experiment: Experiment,
        algorithm: Algorithm[Any],
        images: PublicImages,
        init: Source | None,
        synthetic: bool,
    ) -> None:
        self._experiment = experiment
        self._algorithm = algorithm
        self._images = images
        self._init = init
        self._synthetic = synthetic
        """Whether the images of all sites are."""
        self._first: State | None = None
        """The first model of a new run; None in a resumed run."""

    def prepare(self) -> FirstModel:
        """Return the model that a new run starts from."""
        # Only whether there are any: reading them would fill the run folder, which is still to be
        # made. :func:`federation_of` checks what they are.
        if not self._images.there:
            self._images.require(self._algorithm.requirements.server.images)
        weights = Weights.of(self._init.files, self._init.facts) if self._init else None
        first = initial_model(self._experiment, self._algorithm, weights)
        self._first = first.state
        return first

    def check_resumed(self, run: RunFolder) -> None:
        """Raise RunError if the frozen part of the network is not the one the run began with."""
        if not run.info.base:
            return
        base = initial_model(run.experiment, self._algorithm).base
        if base != run.info.base:
            raise RunError(
                f"run folder {run.path}, frozen part",
                "Continue it with the weights and packages it began with, or start a new run.",
                expected=f"SHA-256 {run.info.base}",
                found=f"{base}",
            )

    def carry_out(
        self, run: RunFolder, transport: Transport, consent: Consent, listener: Listener
    ) -> Summary:
        """Go through the rounds that are left, and save the last model."""
        loop = _Loop(self._algorithm, run, transport, consent, listener)
        state = loop.first_state(self._first, self._init)
        self._first = None  # The state has it, or a newer one.
        loop.announce(state.round, self._synthetic)
        federation = federation_of(self._algorithm, run, self._images)
        loop.go_through(state, self._algorithm.rounds(state, federation))
        return loop.finish(state)


class _Loop:
    """Goes through the rounds of one run."""

    def __init__(
        self,
        algorithm: Algorithm[Any],
        run: RunFolder,
        transport: Transport,
        consent: Consent,
        listener: Listener,
    ) -> None:
        self._experiment = run.experiment
        self._algorithm = algorithm
        self._run = run
        self._listener = listener
        self._consent = consent
        self._communicator = Communicator(algorithm, run, transport, consent, listener)
        self._newest_round = -1
        """Round of the newest exchange."""
        self._empty_exchanges = 0
        """Number of exchanges in a row without a usable update, up to the newest one."""
        self._reasons_not_trained: Mapping[str, str] = {}
        """Site -> why it did not train in the last exchange with tasks."""
        self._diverged: Sequence[str] = ()
        """Sites whose training diverged in the last exchange with tasks, sorted."""
        self._labelled_images: dict[str, int] = {}
        """Site -> number of its labelled images in its last answer."""

    def first_state(self, first: State | None, init: Source | None) -> ServerState:
        """Return the state that the run starts or continues from.

        Args:
            first: the first model of a new run; None for a resumed run.
            init: the weights that the run starts from, if any.
        """
        algorithm = self._algorithm
        state: ServerState | None = self._run.restore(algorithm.state_type)
        if state is None:
            if first is None:  # The run was interrupted before its first commit.
                first = self._first_model(self._run.info.init, init)
            state = algorithm.start(first)
        return state

    def announce(self, resumed_after: int, synthetic: bool) -> None:
        """Tell the listener what runs; ``resumed_after`` is 0 or the last finished round.

        ``synthetic``: whether the images of all sites are.
        """
        run = self._run
        init = run.info.init
        start = Start(
            self._experiment,
            run.sites,
            rounds=self._algorithm.settings.rounds,
            resumed_after=resumed_after,
            weights=StartingWeights(init["folder"], described(init)) if init else None,
            job=run.info.job,
            synthetic=synthetic,
        )
        self._listener.header(start)

    def _first_model(self, facts: Mapping[str, Any] | None, init: Source | None) -> State:
        """Return the model that the run began with; ``facts`` are those of its starting weights."""
        weights = None
        if facts:
            folder = init.files if init else Path(facts["folder"])
            weights = Weights.of(folder, facts)
        return initial_model(self._experiment, self._algorithm, weights).state

    def go_through(self, state: ServerState, rounds: Rounds) -> None:
        """Carry out the exchanges that the workflow yields; commit whenever a round has ended."""
        if not self._run.has_state:
            # The first model is committed, so that a run can be resumed from it.
            self._run.commit(state.round, state)
        exchange = next(rounds, None)
        while exchange is not None:
            round_before = state.round
            updates = self._updates(exchange)
            exchange = None  # This frees its models before the next ones are made.
            with suppress(StopIteration):
                exchange = rounds.send(updates)
            # Workflows change the state in place, and count its round up when a round is over.
            if state.round != round_before:
                self._end_round(state, following=exchange)

    def _end_round(self, state: ServerState, following: Exchange | None) -> None:
        """Update the moving average, if the job has one, let it be evaluated, and commit the round.

        Args:
            state: the state after the round.
            following: the exchange that the workflow wants next, which says whether the model that
                the round has made may be evaluated; None after the last round.
        """
        decay = self._algorithm.settings.average_decay
        if decay:
            state.average = moving_average(state.average, state.model, decay, state.round)
            # The last average is evaluated by :meth:`finish`.
            if following is not None and following.evaluate and self._is_due(state.round):
                self._evaluate_average(state)
        self._run.commit(state.round, state)

    def _evaluate_average(self, state: ServerState) -> None:
        """Let all sites evaluate the moving average after a round, in an exchange of its own."""
        turn = evaluation_turn(self._algorithm, state.round)
        evaluation = Exchange(turn.round, state.average, {}, part=turn.part)
        self._carry_out(evaluation, evaluating=self._run.sites)

    def _is_due(self, round_: int) -> bool:
        """Return whether the model after a round is to be evaluated."""
        return round_ % self._experiment.evaluate_every == 0

    def finish(self, state: ServerState) -> Summary:
        """Evaluate the last model, save it, and return the summary of the run.

        Raises:
            RunError: no round changed the model.
        """
        run = self._run
        not_evaluated: dict[str, str] = {}
        """Site -> why it did not evaluate the last model."""
        if not self._algorithm.requirements.tensors.untrained:
            evaluation = Exchange(state.round + 1, state.evaluated, {})
            not_evaluated = self._carry_out(evaluation, evaluating=run.sites).failed
        run.save_global("model", state.evaluated, {"round": state.round})
        run.models.clear()
        self._require_change(state.evaluated)
        summary = self._summary(state.round, not_evaluated)
        run.set_status("finished", summary)
        return summary

    def _require_change(self, last_model: State) -> None:
        """Raise RunError if the last model is the one that the run began with."""
        if self._algorithm.requirements.tensors.none_travels:
            # The sites train models of their own, so the server's stays as it is.
            return
        if wire.model_digest(wire.flatten("model", last_model)) != self._run.first_model:
            return
        raise RunError(
            f"run {self._run.path}",
            f"See in rounds.jsonl why; {self._remedy()}, and start a new run in another folder.",
            expected="a model that some round changed",
            found=f"the one it began with: {self._why_none_trained()}",
        )

    def _summary(self, rounds: int, not_evaluated: Mapping[str, str]) -> Summary:
        """Return what a finished run says of itself.

        Args:
            rounds: number of rounds that it has gone through.
            not_evaluated: site -> why it did not evaluate the last model.
        """
        run = self._run
        best_round, best_value = run.best() or (None, None)
        summary = Summary(
            rounds=rounds,
            best_round=best_round,
            best_value=best_value,
            not_evaluated=dict(sorted(not_evaluated.items())),
        )
        # Fields that were set are written into the folder. These two are for runs that buy labels,
        # and for runs that make a head in one round.
        enough = enough_labels(run.path, self._experiment)
        if enough:
            summary = summary.model_copy(update={"enough_labels": enough})
        without_head = classes_without_head(run.path, self._experiment)
        if without_head:
            summary = summary.model_copy(update={"without_head": without_head})
        return summary

    def _updates(self, exchange: Exchange) -> list[ClientUpdate]:
        """Carry out an exchange of the workflow and return the updates in the order of site names.

        If the model that the round starts from is due for evaluation, it is evaluated with it.

        Raises:
            RunRefusedError: too many sites' policies refuse the job.
            RunError: this exchange and several before it had no usable update.
        """
        evaluating = self._run.sites if self._evaluates(exchange) else ()
        self._newest_round = exchange.round
        result = self._carry_out(exchange, evaluating)
        self._consent.require(exchange.round, result.answers, result.refusals)
        self._count_empty(result)
        # One failure of many sites may spoil all exchanges of a round.
        most = EMPTY_ROUNDS_IN_A_ROW * self._algorithm.requirements.server.exchanges
        if self._empty_exchanges >= most:
            remedy = self._remedy()
            then = "start a new run" if self._diverged else "resume this run folder"
            raise RunError(
                f"round {exchange.round}",
                f"{remedy[0].upper()}{remedy[1:]}, then {then}.",
                expected=f"at least {self._experiment.minimum_replies} usable replies",
                found=f"too few in {self._empty_exchanges} exchanges in a row: "
                f"{self._why_none_trained()}",
            )
        return [update for _, update in sorted(result.updates.items())]

    def _evaluates(self, exchange: Exchange) -> bool:
        """Return whether the model that an exchange sends is evaluated with it."""
        begins_round = exchange.round != self._newest_round
        rounds_before = exchange.round - 1
        # A moving average was evaluated before this round began.
        is_its_turn = evaluation_turn(self._algorithm, rounds_before).round == exchange.round
        is_due = self._is_due(rounds_before)
        return exchange.evaluate and begins_round and is_its_turn and is_due

    def _count_empty(self, result: Result) -> None:
        """Count an exchange without a usable update; any other one begins the count again.

        Where the server learns from labels of its own, enough answers are enough: sites may have
        nothing to learn from. An exchange does not count either way if all sites asked were well
        but have no labels, and some other site has labels or was not heard of yet.
        """
        learns_alone = self._algorithm.requirements.server.learns_alone
        enough_answers = len(result.answers) >= self._experiment.minimum_replies
        if result.trained or (learns_alone and enough_answers):
            self._empty_exchanges = 0
        elif not self._waits_for_labels(result):
            self._empty_exchanges += 1

    def _waits_for_labels(self, result: Result) -> bool:
        """Return whether only sites without labels were asked, and other sites may have some."""
        for site in result.tasks:
            if self._may_have_labels(site) or site not in result.answers:
                return False
        return any(map(self._may_have_labels, self._run.sites))

    def _may_have_labels(self, site: str) -> bool:
        """Return whether a site has labels by its last answer, or has never answered."""
        return self._labelled_images.get(site) != 0

    def _carry_out(self, exchange: Exchange, evaluating: Sequence[str]) -> Result:
        """Carry out an exchange, record it, and tell the listener of it.

        Args:
            exchange: what is asked for.
            evaluating: the sites that also evaluate its model.
        """
        started = time.perf_counter()
        result = self._communicator.exchange(exchange, evaluating)
        seconds = time.perf_counter() - started
        self._note_labels(result)
        rounds = rounds_of_model(self._algorithm, exchange.turn)
        record_sites(self._run, exchange, result, rounds)
        self._keep_if_best(exchange.model, rounds, result)
        if exchange.tasks:
            self._record_training(exchange, result, seconds)
        elif evaluates_average(self._algorithm, exchange.turn):
            # Its row belongs to the round, but is not shown: nobody has trained. The evaluation of
            # the last model belongs to no round, and has no row.
            record_round(self._run, exchange, result, seconds)
        return result

    def _note_labels(self, result: Result) -> None:
        """Note how many labelled images each site has by its answer."""
        for site, answer in result.answers.items():
            self._labelled_images[site] = answer.labelled

    def _keep_if_best(self, model: State, rounds: int, result: Result) -> None:
        """Keep a model that sites have evaluated if it is the best so far, and tell the listener.

        Args:
            model: the model that the exchange has sent, evaluated or not.
            rounds: how many have made it.
            result: what the sites have answered.
        """
        key_metric = self._experiment.key_metric
        values = key_values(result.answers, key_metric)
        keep_best(self._run, model, rounds, values, key_metric)
        if values:
            defined = {site: float(value) for site, value in values.items() if value is not None}
            self._listener.evaluated(rounds, defined)

    def _record_training(self, exchange: Exchange, result: Result, seconds: float) -> None:
        """Record an exchange in which sites were to train, and tell the listener of it."""
        row = record_round(self._run, exchange, result, seconds)
        self._reasons_not_trained = result.failed
        self._diverged = sorted(result.diverged)
        self._listener.round(row, _share_kept(result))

    def _why_none_trained(self) -> str:
        """Return why no site trained in the last exchange with tasks."""
        reasons = "; ".join(
            f"{site}: {reason}" for site, reason in sorted(self._reasons_not_trained.items())
        )
        text = f"in the last exchange, {reasons or 'no site could train'}"
        return f"no site has labels; {text}" if self._no_site_has_labels else text

    def _remedy(self) -> str:
        """Return what to do about sites that did not train in the last exchange with tasks."""
        if self._no_site_has_labels:
            return _GIVE_LABELS
        if self._diverged:
            return f"lower the learning rate: training diverged at {listed(self._diverged)}"
        return "mend what the sites report"

    @property
    def _no_site_has_labels(self) -> bool:
        """Whether all sites have answered that they have no labels, in a job that needs some."""
        all_answered = set(self._labelled_images) == set(self._run.sites)
        needs_labels = not self._algorithm.requirements.hidden_labels
        return needs_labels and all_answered and not any(self._labelled_images.values())


def _share_kept(result: Result) -> float | None:
    """Return the mean share of pseudo-labels that sites kept; None without pseudo-labels."""
    shares = [answer.train["kept"] for answer in result.answers.values() if "kept" in answer.train]
    return fmean(shares) if shares else None
