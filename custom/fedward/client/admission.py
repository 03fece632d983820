"""What a site checks before it works: its policy and its administrator's approval, at every
request.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.methods.algorithm import Algorithm
from fedward.methods.local import Measurement, Phase
from fedward.methods.settings import StepSize
from fedward.methods.steps import phase_images, step_count
from fedward.protocol import wire
from fedward.protocol.requests import DecryptRequest, Request, SurveyRequest, TaskRequest
from fedward.protocol.wire import Message
from fedward.registry import extensions
from fedward.security import sums
from fedward.security.approvals import FOLDER, Approvals
from fedward.security.policy import (
    OPEN,
    Circumstances,
    Finding,
    JobRefusedError,
    Policy,
    at_most,
    extension_finding,
    findings,
    refuse_unless,
    step_findings,
)
from fedward.security.questions import Query, grant, questions_file
from fedward.security.secret import site_secret
from fedward.seeds import Draws
from fedward.sites import SiteData
from fedward.starting_model import initial_model
from fedward.text import count

_RELATIVE = 1e-5
_ABSOLUTE = 1e-6
"""How far a first model may differ from the one this site makes of the same seed: processors round
differently.
"""

_log = logging.getLogger(__name__)


class Admission:
    """Decides whether a site answers a request.

    The policy is read anew for each request, so that a change or an approval counts from the next
    one on.

    ``folder``: the site's own, where approvals and the ledgers of questions and sums lie. ``read``
    returns the policy, by default one that forbids nothing. ``noise``: whether the job's privacy
    scope adds noise to updates here.
    """

    def __init__(
        self,
        site: str,
        experiment: Experiment,
        algorithm: Algorithm[Any],
        folder: Path,
        read: Callable[[], Policy] = lambda: OPEN,
        noise: bool = False,
    ) -> None:
        self._site = site
        self._experiment = experiment
        self._algorithm = algorithm
        self._read = read
        self._noise = noise
        self._approvals = Approvals(folder / FOLDER)
        self._folder = folder
        self._questions = questions_file(folder, site)
        self._sums = sums.sums_file(folder, site)

    def waiting(self, request: Request, arrays: Mapping[str, np.ndarray]) -> Message | None:
        """Return the answer of a site whose administrator has not approved the job yet; None if the
        work may begin.

        ``request`` is of the site's own job and one of its rounds: its log has checked that.

        Raises:
            JobRefusedError: the policy forbids the job, or cannot be read.
            PolicyError: the policy forbids this request.
        """
        policy = _policy(self._site, self._read)
        known = Circumstances(
            # The request to decrypt a sum follows one that was checked by the number of members.
            sites=None if isinstance(request, DecryptRequest) else request.members,
            noise=self._noise,
            weights=None if isinstance(request, SurveyRequest) else request.weights,
        )
        refuse_unless(
            self._site, findings(policy, self._experiment, self._algorithm, known), JobRefusedError
        )
        if isinstance(request, TaskRequest):
            self.draws()
            self._check_peers(arrays)
            self._check_first_model(policy, request, arrays)
        if policy.approval == "none":
            return None
        with _closed_by_errors(self._site, "a folder with approvals", "one that cannot be trusted"):
            if self._approvals.ask(self._experiment):
                return None
        return Message(
            {"site": self._site, "round": request.round, "waiting": self._experiment.digest}
        )

    def check_training(self, phases: Sequence[Phase], data: SiteData) -> None:
        """Raise PolicyError where a round would learn from too few or too many of this site's
        images, or in few steps.

        How many is computed and nothing is listed: a job may say billions of epochs.
        """
        policy = _policy(self._site, self._read)
        settings = self._algorithm.settings
        batch = settings.batch * data.processes
        steps = 0
        seen = 0
        checked = []
        for phase in phases:
            labelled, unlabelled = _held(phase, data)
            paced = (
                [labelled] if phase.objective.uses.pace == "labelled" else [labelled, unlabelled]
            )
            images = phase_images(settings, [number for number in paced if number])
            steps_here = step_count(images, batch)
            steps += steps_here
            seen += images * (bool(labelled) + bool(unlabelled))
            trains = steps_here and not isinstance(phase.objective, Measurement)
            if trains:
                rate = StepSize("phase", phase.learning_rate, settings.optimizer)
                checked += step_findings(policy, settings, [rate])
            for kind, number in (("labelled", labelled), ("unlabelled", unlabelled)):
                different = min(number, images)
                kept = not different or different >= policy.minimum_images
                allowed = f"at least {policy.minimum_images} different {kind} images"
                checked.append(
                    Finding(
                        "minimum_images", allowed, "the round would use fewer of this site's", kept
                    )
                )
                if trains and different:
                    kept = min(different, images // steps_here) >= policy.minimum_batch
                    allowed = f"at least {policy.minimum_batch} different {kind} images in a step"
                    checked.append(
                        Finding(
                            "minimum_batch",
                            allowed,
                            "the round would take some on fewer here",
                            kept,
                        )
                    )
        checked.append(_enough_steps(policy, steps, "the round would take fewer here"))
        allowed, _, kept = at_most(
            policy.maximum_images, seen * self._algorithm.requirements.server.exchanges
        )
        checked.append(
            Finding("maximum_images", allowed, "the round would go through more here", kept)
        )
        refuse_unless(self._site, checked)

    def draws(self) -> Draws:
        """Return what draws at random at this site: by the job's seed and, if the policy says so,
        the site's secret.

        Raises JobRefusedError where the secret is no file of its owner alone, or damaged.
        """
        seed = self._experiment.seed
        if _policy(self._site, self._read).draws == "seed":
            return Draws(seed)
        with _closed_by_errors(self._site, "a secret to draw images by", "one that cannot be used"):
            return Draws(seed, site_secret(self._folder))

    def smallest_batch(self) -> int:
        """Return how many images a step must be of."""
        return _policy(self._site, self._read).minimum_batch

    def check_steps(self, taken: int) -> None:
        """Raise PolicyError where a round took fewer steps than the policy asks for, as nothing was
        to be learned.

        A round without any step has no update, and is fine.
        """
        refuse_unless(
            self._site,
            [_enough_steps(_policy(self._site, self._read), taken, "the round took fewer here")],
        )

    def check_questions(self, number: int) -> None:
        """Raise PolicyError where a run would ask for so many labels here and the policy allows
        fewer.
        """
        allowed, _, kept = at_most(_policy(self._site, self._read).maximum_questions, number)
        asked = "the run would ask for more here"  # how many follows from the number of images
        refuse_unless(self._site, [Finding("maximum_questions", allowed, asked, kept)])

    def grant_questions(self, query: Query, labels: int) -> int:
        """Return for how many of its labels a query may ask here, as the policy limits all runs
        together; count them.

        Raises DataError where the site's ledger of questions is not what was written.
        """
        most = _policy(self._site, self._read).maximum_questions_in_all
        return grant(self._questions, query, labels, most) if labels else 0

    def grant_sums(self, run: str, kind: sums.Kind, images: sums.ImageSet) -> None:
        """Note that a run is told sums of a set of images here.

        Raises:
            PolicyError: sums of nearly the same images were told before, or as many runs as may be.
            DataError: the site's ledger of sums is not what was written.
        """
        policy = _policy(self._site, self._read)
        broken = sums.grant(
            self._sums, run, kind, images, policy.minimum_images, policy.maximum_sums
        )
        if broken:
            refuse_unless(self._site, [broken])

    def _check_peers(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Raise PolicyError where a request brings other peers than the job's method sends."""
        roles = wire.roles(arrays)
        peers = [f"peer{index}" for index in range(self._algorithm.requirements.server.peers)]
        asked = f"the request brings {len(roles)}"
        allowed = f"at most {count(len(peers), 'peer')} in this job"
        kept = roles == peers[: len(roles)]
        refuse_unless(self._site, [Finding("lone_peers", allowed, asked, kept)])

    def _check_first_model(
        self, policy: Policy, request: TaskRequest, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Compare the model of the first exchange with the one it has to be: a fresh one, or the
        weights allowed.
        """
        if policy.starting_weights == "any" or (request.round, request.part) != (1, 0):
            return
        if request.weights:
            allowed = "those that the request names"
            same = wire.model_digest(arrays) == request.weights
        else:
            allowed = "fresh ones of the job's seed"
            same = self._is_fresh(arrays)
        refuse_unless(self._site, [Finding("starting_weights", allowed, "others were sent", same)])

    def _is_fresh(self, arrays: Mapping[str, np.ndarray]) -> bool:
        fresh = wire.flatten("model", initial_model(self._experiment, self._algorithm).state)
        sent = {name: array for name, array in arrays.items() if name.startswith("model/")}
        return set(sent) == set(fresh) and all(
            array.shape == fresh[name].shape
            and np.allclose(array, fresh[name], _RELATIVE, _ABSOLUTE)
            for name, array in sent.items()
        )


def admit_extensions(site: str, read: Callable[[], Policy], experiment: Mapping[str, Any]) -> None:
    """Raise JobRefusedError where the policy does not let in what a job takes from other packages.

    ``experiment``: plain JSON values, as an :class:`Experiment` would import those packages.
    """
    refuse_unless(
        site, [extension_finding(_policy(site, read), extensions(experiment))], JobRefusedError
    )


def _policy(site: str, read: Callable[[], Policy]) -> Policy:
    with _closed_by_errors(site, "a file with the site's rules", "one that cannot be used"):
        return read()


@contextmanager
def _closed_by_errors(site: str, expected: str, found: str) -> Iterator[None]:
    """Refuse every job where the site's own rules cannot be read; only its log tells why."""
    try:
        yield
    except ConfigError as error:
        _log.error("site %s: %s", site, error)
        remedy = "It refuses every job; its administrator finds the reason in the site's own log."
        raise JobRefusedError(
            f"policy of {site}", expected=expected, found=found, remedy=remedy
        ) from error


def _enough_steps(policy: Policy, steps: int, asked: str) -> Finding:
    kept = not steps or steps >= policy.minimum_steps
    return Finding("minimum_steps", f"at least {policy.minimum_steps}", asked, kept)


def _held(phase: Phase, data: SiteData) -> tuple[int, int]:
    """Return how many labelled and unlabelled images a phase may draw from."""
    uses = phase.objective.uses
    labelled = len(data.labelled)
    unlabelled = sum(name not in data.refused for name in data.unlabelled.ids)
    others = {"none": 0, "unlabelled": unlabelled, "all": labelled + unlabelled}[uses.unlabelled]
    return labelled if uses.labelled else 0, others
