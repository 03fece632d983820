"""Whether a site's policy and approvals let it work on a request, and on how much of its data.

The request is of the site's job, version and run: :mod:`fedward.client.request_check` has said so.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedward.config import Experiment
from fedward.errors import ConfigError, WireError
from fedward.methods.algorithm import Algorithm
from fedward.methods.local import Measurement, Phase
from fedward.methods.settings import Settings, StepSize
from fedward.methods.steps import DrawnFrom, fewest_different, phase_images, step_count
from fedward.methods.survey import Survey
from fedward.protocol import wire
from fedward.protocol.requests import DecryptRequest, Request, SurveyRequest, TaskRequest
from fedward.protocol.wire import Message
from fedward.registry import extensions
from fedward.security import sums
from fedward.security.approvals import APPROVALS_FOLDER, Approvals
from fedward.security.policy import OPEN, JobRefusedError, Policy
from fedward.security.policy_rules import (
    AppliedRule,
    Circumstances,
    applied_extension_rule,
    applied_rules,
    applied_step_rules,
    at_most,
    refuse_unless,
)
from fedward.security.questions import QUESTIONS, Query
from fedward.security.questions import grant as grant_questions
from fedward.security.secret import site_secret
from fedward.seeds import Draws
from fedward.sites import SiteData
from fedward.starting_model import initial_model
from fedward.terminal import shown
from fedward.text import count

_RELATIVE_TOLERANCE = 1e-5
_ABSOLUTE_TOLERANCE = 1e-6
"""How far a first model may differ from the one that this site makes from the same seed.

They are not equal bit for bit, because processors round differently.
"""

_log = logging.getLogger(__name__)


class Admission:
    """Decides whether a site answers a request.

    The policy is read for each request, so that a change or an approval takes effect with the next
    request.

    Args:
        site: the site's name.
        experiment: the job's settings.
        algorithm: the job's method, or its survey.
        folder: the site's own folder, with approvals and the ledgers of questions and sums.
        read: returns the policy; by default one that forbids nothing.
        noise: whether the job's privacy scope adds noise to updates here.
        scope: name of that scope; empty for none.
    """

    def __init__(
        self,
        site: str,
        experiment: Experiment,
        algorithm: Algorithm[Any] | Survey,
        folder: Path,
        read: Callable[[], Policy] = lambda: OPEN,
        noise: bool = False,
        scope: str = "",
    ) -> None:
        self._site = site
        self._experiment = experiment
        self._algorithm = algorithm
        self._read = read
        self._noise = noise
        self._scope = scope
        self._approvals = Approvals(folder / APPROVALS_FOLDER)
        self._folder = folder
        self._questions = QUESTIONS.file(folder, site)
        self._sums = sums.SUMS.file(folder, site)

    def waiting_answer(self, request: Request, arrays: Mapping[str, np.ndarray]) -> Message | None:
        """Return an answer that the job waits for approval; None if the site may begin to work.

        Args:
            request: a request that the site's log has admitted, so it is of this job and of one of
                its rounds.
            arrays: the arrays of the request.

        Raises:
            JobRefusedError: the policy forbids the job, or cannot be read.
            PolicyError: the policy forbids this request.
            WireError: the request brings other peers than the job's method sends.
        """
        policy = self._policy()
        circumstances = Circumstances(
            # A request to decrypt a sum follows a request whose number of sites was checked.
            sites=None if isinstance(request, DecryptRequest) else request.members,
            noise=self._noise,
            weights=None if isinstance(request, SurveyRequest) else request.weights,
        )
        checked = applied_rules(policy, self._experiment, self._algorithm, circumstances)
        refuse_unless(self._site, checked, JobRefusedError)
        if isinstance(request, TaskRequest):
            self.draws()  # A secret that cannot be used refuses the job before any work.
            self._check_peers(arrays)
            self._check_first_model(policy, request, arrays)
        if policy.approval == "none":
            return None
        with _closed_by_errors(self._site, "a folder with approvals", "one that cannot be trusted"):
            if self._approvals.ask(self._experiment, self._scope):
                return None
        return Message(
            {"site": self._site, "round": request.round, "waiting": self._experiment.digest}
        )

    def _policy(self) -> Policy:
        """Return the policy as it is now; raise JobRefusedError if it cannot be read."""
        return _read_policy(self._site, self._read)

    def check_training(self, phases: Sequence[Phase], data: SiteData) -> None:
        """Raise PolicyError if a round would take too few or too many images or steps.

        The numbers are computed without listing batches, because a job may ask for billions of
        epochs.
        """
        policy = self._policy()
        settings = self._algorithm.settings
        training_steps = 0
        measured_batches = 0
        images_seen = 0
        checked = list[AppliedRule]()
        for phase in phases:
            work = _PhaseWork.of(phase, settings, data)
            images_seen += work.images_seen
            if work.trains:
                training_steps += work.steps
                rate = StepSize("phase", phase.learning_rate, settings.optimizer)
                checked += applied_step_rules(policy, settings, [rate])
            else:
                measured_batches += work.steps
            checked += _enough_of_each_kind(policy, work)
        # A round that trains does not reach the number by what it measures afterwards.
        steps = training_steps or measured_batches
        checked.append(_enough_steps(policy, steps, "the round would take fewer here"))
        checked.append(
            at_most(
                "maximum_images",
                policy.maximum_images,
                images_seen * self._algorithm.requirements.server.exchanges,
                # The number is not named: it follows from the number of this site's images.
                asked="the round would go through more here",
            )
        )
        refuse_unless(self._site, checked)

    def draws(self) -> Draws:
        """Return the random draws of this site.

        They depend on the job's seed and, if the policy does not say ``draws: seed``, on the site's
        secret.

        Raises:
            JobRefusedError: the secret's file is damaged, or others than its owner may read it.
        """
        seed = self._experiment.seed
        if self._policy().draws == "seed":
            return Draws(seed)
        with _closed_by_errors(self._site, "a secret to draw images by", "one that cannot be used"):
            return Draws(seed, site_secret(self._folder))

    def smallest_batch(self) -> int:
        """Return the fewest images that a step must use."""
        return self._policy().minimum_batch

    def lets_card_out(self) -> bool:
        """Return whether what the site's card says may leave it."""
        return self._policy().card

    def lets_subgroups_out(self) -> bool:
        """Return whether counts by the columns that the site's file names may leave it."""
        return self._policy().subgroups

    def check_steps(self, taken: int) -> None:
        """Raise PolicyError if a round took fewer steps than the policy asks for.

        A round without any step is allowed: there was nothing to learn, so there is no update.
        """
        policy = self._policy()
        refuse_unless(self._site, [_enough_steps(policy, taken, "the round took fewer here")])

    def check_questions(self, number: int) -> None:
        """Raise PolicyError if the policy allows fewer labels than a run would ask for here."""
        rule = at_most(
            "maximum_questions",
            self._policy().maximum_questions,
            number,
            # The number is not named: it follows from the number of this site's images.
            asked="the run would ask for more here",
        )
        refuse_unless(self._site, [rule])

    def grant_questions(self, query: Query, images: Sequence[str]) -> int:
        """Return how many of the images a query may ask about, and enter these in the ledger.

        The policy limits the questions of all runs together. The most wanted images come first.

        Raises:
            DataError: the site's ledger of questions is not what was written.
        """
        if not images:
            return 0
        most = self._policy().maximum_questions_in_all
        return grant_questions(self._questions, query, images, most)

    def grant_sums(self, run: str, kind: sums.Kind, images: sums.ImageSet) -> None:
        """Enter in the ledger that a run receives sums of a set of images.

        Raises:
            PolicyError: sums of nearly the same images were reported before, or to as many runs as
                the policy allows.
            DataError: the site's ledger of sums is not what was written.
        """
        policy = self._policy()
        broken_rule = sums.grant(
            self._sums, run, kind, images, policy.minimum_images, policy.maximum_sums
        )
        if broken_rule:
            refuse_unless(self._site, [broken_rule])

    def _check_peers(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Raise WireError if a request brings other peers than the job's method sends."""
        roles = wire.roles(arrays)
        most_peers = self._algorithm.requirements.server.peers
        # By the roles that came: a job may ask for more peers than there is memory for names.
        expected_roles = {f"peer{index}" for index in range(len(roles))}
        if len(roles) > most_peers or set(roles) != expected_roles:
            raise WireError(
                "peers of the request",
                "Server and sites must run the same job and the same version of fedward.",
                expected=f"at most {count(most_peers, 'peer')} in this job, numbered from 0",
                found=shown(roles),
            )

    def _check_first_model(
        self, policy: Policy, request: TaskRequest, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Raise PolicyError if the first model is neither fresh nor has the weights named.

        Where the labels are at the server, it has trained the fresh model before it sends it, on
        images that no site has.
        """
        # Later models are means that no site can compute again.
        is_first = (request.round, request.part) == (1, 0)
        if policy.starting_weights == "any" or not is_first:
            return
        server_has_trained = "labels" in self._algorithm.requirements.server.images
        if request.weights:
            allowed = "those that the request names"
            kept = wire.model_digest(arrays) == request.weights
        elif server_has_trained:
            return
        else:
            allowed = "fresh ones of the job's seed"
            kept = self._is_fresh(arrays)
        refuse_unless(
            self._site, [AppliedRule("starting_weights", allowed, "others were sent", kept)]
        )

    def _is_fresh(self, arrays: Mapping[str, np.ndarray]) -> bool:
        """Return whether the model sent is the one that this site makes from the job's seed."""
        assert not isinstance(self._algorithm, Survey), "a survey sends no model"
        first = initial_model(self._experiment, self._algorithm)
        fresh = wire.flatten("model", first.state)
        sent = {name: array for name, array in arrays.items() if name.startswith("model/")}
        if sent.keys() != fresh.keys():
            return False
        for name, array in sent.items():
            if array.shape != fresh[name].shape:
                return False
            if not np.allclose(array, fresh[name], _RELATIVE_TOLERANCE, _ABSOLUTE_TOLERANCE):
                return False
        return True


def admit_extensions(site: str, read: Callable[[], Policy], experiment: Mapping[str, Any]) -> None:
    """Raise JobRefusedError if the policy refuses what a job takes from other packages.

    Args:
        site: the site's name.
        read: returns the policy.
        experiment: the job's settings as plain JSON values: an :class:`Experiment` would import
            those packages.
    """
    rule = applied_extension_rule(_read_policy(site, read), extensions(experiment))
    refuse_unless(site, [rule], JobRefusedError)


def _read_policy(site: str, read: Callable[[], Policy]) -> Policy:
    """Return the policy as it is now; raise JobRefusedError if it cannot be read."""
    with _closed_by_errors(site, "a file with the site's rules", "one that cannot be used"):
        return read()


@contextmanager
def _closed_by_errors(site: str, expected: str, found: str) -> Iterator[None]:
    """Turn an error in the site's own files into a refusal of the job; only its log says why."""
    try:
        yield
    except ConfigError as error:
        _log.error("site %s: %s", site, error)
        raise JobRefusedError(
            f"policy of {site}",
            "It refuses every job; its administrator finds the reason in the site's own log.",
            expected=expected,
            found=found,
        ) from error


@dataclass(frozen=True)
class _PhaseWork:
    """What a phase of a round goes through at this site."""

    drawn_from: DrawnFrom
    """Number of images that it draws from, without those that it must not train on."""
    images: int
    """Images that it takes of each kind, repetitions included."""
    batch: int
    """Images that all processes of the site take at a time."""
    steps: int
    """Number of batches."""
    trains: bool
    """Whether its batches are optimiser steps.

    It is false if something is only measured on them, or if there are no batches.
    """

    @classmethod
    def of(cls, phase: Phase, settings: Settings, data: SiteData) -> "_PhaseWork":
        """Return what a phase goes through with a site's data."""
        uses = phase.objective.uses
        unlabelled = sum(name not in data.refused for name in data.unlabelled.ids)
        drawn_from = DrawnFrom.of(uses, len(data.labelled), unlabelled)
        images = phase_images(settings, uses, drawn_from)
        batch = settings.batch * data.processes
        steps = step_count(images, batch)
        trains = steps > 0 and not isinstance(phase.objective, Measurement)
        return cls(drawn_from, images, batch, steps, trains)

    @property
    def images_seen(self) -> int:
        """Images of both kinds that it takes, repetitions included."""
        kinds_present = sum(number > 0 for number in self.drawn_from)
        return self.images * kinds_present


def _enough_of_each_kind(policy: Policy, work: _PhaseWork) -> list[AppliedRule]:
    """Apply the rules on different images in a phase, and in each of its steps if it trains."""
    checked = []
    for kind, number in work.drawn_from._asdict().items():
        different = min(number, work.images)
        if not different:
            continue
        checked.append(_enough_images(policy, kind, different))
        if work.trains:
            different_in_a_step = fewest_different(number, work.images, work.batch)
            checked.append(_enough_in_a_step(policy, kind, different_in_a_step))
    return checked


def _enough_images(policy: Policy, kind: str, different: int) -> AppliedRule:
    allowed = f"at least {count(policy.minimum_images, f'different {kind} image')}"
    asked = "the round would use fewer of this site's"
    return AppliedRule("minimum_images", allowed, asked, different >= policy.minimum_images)


def _enough_in_a_step(policy: Policy, kind: str, different: int) -> AppliedRule:
    allowed = f"at least {count(policy.minimum_batch, f'different {kind} image')} in a step"
    asked = "the round would take some on fewer here"
    return AppliedRule("minimum_batch", allowed, asked, different >= policy.minimum_batch)


def _enough_steps(policy: Policy, steps: int, asked: str) -> AppliedRule:
    kept = steps == 0 or steps >= policy.minimum_steps
    return AppliedRule("minimum_steps", f"at least {policy.minimum_steps}", asked, kept)
