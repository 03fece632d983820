"""The server's half of secure aggregation: a transport whose answers carry the mean of all updates,
and no single one.

The server's loop and the methods notice nothing: the mean of equal models is that model.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedward.config import Experiment
from fedward.digests import arrays_digest
from fedward.errors import RunError, WireError
from fedward.methods.aggregation import effective_number
from fedward.methods.algorithm import Algorithm, Requirements
from fedward.protocol import wire, wire_checks
from fedward.protocol.messages import Answer, ErrorAnswer
from fedward.protocol.requests import DECRYPT, DecryptRequest
from fedward.protocol.transport import Deliver, Transport
from fedward.protocol.wire import Message
from fedward.security.encryption import SAME_CONTEXT, Adder
from fedward.security.encryption_site import mean_digest
from fedward.server.claims import Claims
from fedward.storage.checkpoint import save_json

_WITNESSES = 2
"""Sites that must tell the same mean: one alone could tell any."""


_STAYS = "The round counts as failed and the model stays as it was."
_EQUAL = f"{_STAYS} Let all sites take equally many steps (images_per_round), or go without secure_aggregation."


class _NoMeanError(RunError):
    """An exchange has no mean, though its updates came; the run goes on without it."""


@dataclass
class _Sum:
    """The updates that were encrypted with one key, added up."""

    total: list[Any] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    """Of the updates."""
    answers: dict[str, Message] = field(default_factory=dict)
    """The sites' answers, their ciphertexts dropped."""

    @property
    def sites(self) -> list[str]:
        return sorted(self.answers)

    @property
    def weight(self) -> int:
        return sum(self.weights)


class EncryptedTransport:
    """Adds the encrypted updates as they arrive, has the sites decrypt the sum, and delivers its
    mean for each of them.

    ====================================  ==========================================================================
    fewer updates than ``smallest_sum``   nothing is decrypted, and each of them counts as failed
    weights that are too unequal          the same: nobody can level weights that sites have multiplied already
    a damaged ciphertext                  its site counts as failed, if it shows; else no site decrypts the sum
    sites with different keys             those of the key most sites have count; none do if there are several such
    a site does not decrypt               the others do; two equal answers are needed
    the decryptions differ                all count as failed
    asked again after an interruption     only for the sum of the same sites; a difference would be one site's update
    second answer of a site               not used
    ====================================  ==========================================================================

    ``inner`` carries the messages. ``sums/`` in the run folder notes whose updates were in each
    decrypted sum.
    """

    def __init__(
        self,
        inner: Transport,
        experiment: Experiment,
        algorithm: Algorithm[Any],
        adder: Adder,
        folder: Path,
    ) -> None:
        self._inner = inner
        self._experiment = experiment
        self._adder = adder
        self._folder = folder
        self._weight = algorithm.weight
        self._requirements = algorithm.requirements
        self._claims = Claims(algorithm)

    def sites(self) -> list[str]:
        """Return the connected sites, sorted by name."""
        return self._inner.sites()

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Send every request and deliver the answers: those without update at once, the others
        after decryption.

        Raises:
            RunError: tasks that withhold different tensors: their updates do not add up. What
                ``inner`` raises.
        """
        _check_tasks({request.meta["task"] for request in requests.values()}, self._requirements)
        sums = dict[str, _Sum]()
        pending = set(requests)
        spec = self._experiment

        def collect(site: str, answer: Message) -> None:
            if site not in pending:
                return
            pending.discard(site)
            if not answer.arrays:
                deliver(site, answer)  # checked by the server's loop
                return
            request = requests[site]
            listed = (self._requirements, spec.data.classes, spec.metrics)
            try:
                said = wire_checks.check_answer(answer, site, request, *listed, encrypted=True)
                assert isinstance(said, Answer), "no other carries arrays"
                self._claims.check(said, request.meta)
                self._add(
                    sums.setdefault(str(said.key), _Sum()), said, answer, request.meta["task"]
                )
            except WireError as error:
                deliver(site, _failed(site, request, str(error)))

        self._inner.exchange(requests, timeout, collect)
        chosen, left_out = _of_most_sites(list(sums.values()))
        for site in left_out:
            deliver(site, _failed(site, requests[site], _other_key(chosen)))
        if chosen is not None:
            self._finish(chosen, requests, timeout, deliver)

    def _add(self, total: _Sum, said: Answer, answer: Message, task: str) -> None:
        ciphers = self._adder.read(said.site, answer.arrays)
        total.total = self._adder.add(total.total, ciphers) if total.total else ciphers
        meta = {name: value for name, value in answer.meta.items() if name != wire.KEY}
        total.weights.append(self._weight(task, said.labelled, said.unlabelled, said.steps))
        total.answers[said.site] = Message(
            meta, further=answer.nbytes, received=arrays_digest(answer.arrays)
        )

    def _finish(
        self, total: _Sum, requests: dict[str, Message], timeout: int, deliver: Deliver
    ) -> None:
        try:
            mean = self._decrypt(total, requests, timeout)
        except (WireError, _NoMeanError) as error:
            for site in total.sites:
                deliver(site, _failed(site, requests[site], str(error)))
            return
        size = sum(array.nbytes for array in mean.values())
        for site, answer in total.answers.items():
            deliver(site, Message(answer.meta, mean, answer.further - size, answer.received))

    def _decrypt(
        self, total: _Sum, requests: dict[str, Message], timeout: int
    ) -> dict[str, np.ndarray]:
        """Return the mean as ``diff/<tensor>``, in which all sites agree."""
        if len(total.sites) < (smallest := self._experiment.smallest_sum):
            raise _no_mean(f"{smallest} or more encrypted updates", f"{len(total.sites)}")
        effective = effective_number(total.weights)
        least = self._experiment.effective_replies
        if effective < least:
            expected = f"updates that are worth {least:.3g} equally weighted ones: minimum_replies is {smallest}"
            raise _no_mean(expected, f"{effective:.3g} (weights {total.weights})", _EQUAL)
        first = requests[total.sites[0]]
        task = first.meta["task"]
        model = wire.shapes(first, self._requirements.withheld(task))
        meta = {name: value for name, value in first.meta.items() if name != "labels"}
        meta |= {"task": DECRYPT, "evaluate": False}
        asked = DecryptRequest(
            **meta, sites=len(total.sites), weight=total.weight, effective=effective, trained=task
        )
        self._keep(asked.round, asked.part, total)
        request = Message(asked.model_dump(exclude_unset=True), self._adder.write(total.total))
        means: dict[str, dict[str, np.ndarray]] = {}
        witnesses: dict[str, list[str]] = {}
        """Digest of a mean -> sites that have sent it."""
        failed: dict[str, str] = {}

        def collect(site: str, answer: Message) -> None:
            if site in failed or any(site in sites for sites in witnesses.values()):
                return
            try:
                said = wire_checks.check_mean(answer, site, asked.round, model)
            except WireError as error:
                failed[site] = str(error)
                return
            if isinstance(said, ErrorAnswer):
                failed[site] = said.error
                return
            total.answers[site].further += answer.nbytes
            mean = {name: answer.arrays[f"mean/{name}"] for name in model}
            digest = mean_digest(mean)
            means.setdefault(digest, mean)
            witnesses.setdefault(digest, []).append(site)

        self._inner.exchange(dict.fromkeys(total.sites, request), timeout, collect)
        for site in total.sites:
            requests[site].further += request.nbytes
        if len(witnesses) > 1:
            groups = " against ".join(", ".join(sorted(sites)) for sites in witnesses.values())
            raise _no_mean("one mean from all sites", f"different ones: {groups}")
        if sum(map(len, witnesses.values())) < _WITNESSES:
            reasons = (
                "; ".join(f"{site}: {reason}" for site, reason in sorted(failed.items()))
                or "no answer in time"
            )
            raise _no_mean(f"the mean from {_WITNESSES} sites or more", reasons)
        ((_, mean),) = means.items()
        return {f"diff/{name}": array for name, array in mean.items()}

    def _keep(self, round_: int, part: int, total: _Sum) -> None:
        """Note which sites' updates are in a sum before it is sent, or refuse another sum for the
        same exchange.
        """
        path = self._folder / "sums" / f"{round_:05d}-{part:03d}.json"
        terms = {"sites": total.sites, "weight": total.weight}
        if not path.exists():
            save_json(path, terms)
        elif (before := json.loads(path.read_text(encoding="utf-8"))) != terms:
            raise _no_mean(
                f"the updates that were decrypted before an interruption, {before}",
                f"others, {terms}",
            )


def _of_most_sites(sums: Sequence[_Sum]) -> tuple[_Sum | None, list[str]]:
    """Return the sum that most sites are in, None if that is not one only, and the sites that are
    not in it.
    """
    ordered = sorted(sums, key=lambda total: len(total.sites), reverse=True)
    if not ordered or (len(ordered) > 1 and len(ordered[0].sites) == len(ordered[1].sites)):
        return None, sorted(site for total in sums for site in total.sites)
    return ordered[0], sorted(site for total in ordered[1:] for site in total.sites)


def _other_key(chosen: _Sum | None) -> str:
    expected = (
        f"an update encrypted with the key of {', '.join(chosen.sites)}"
        if chosen
        else "one key at most sites"
    )
    return str(
        RunError("encrypted update", expected=expected, found="another key", remedy=SAME_CONTEXT)
    )


def _check_tasks(tasks: Collection[str], requirements: Requirements) -> None:
    """Raise RunError where the updates of an exchange are of different tensors: a sum would mix
    them up.
    """
    kept = {
        task: requirements.withheld(task) for task in sorted(tasks) if task not in wire.UNTRAINED
    }
    if len(set(kept.values())) > 1:
        found = ", ".join(f"{task}: {' '.join(names) or 'none'}" for task, names in kept.items())
        remedy = "Let the method ask for them in different parts of the round, or turn secure_aggregation off."
        expected = "tasks of one exchange that withhold the same tensors"
        raise RunError("secure aggregation", expected=expected, found=found, remedy=remedy)


def _no_mean(expected: str, found: str, remedy: str = _STAYS) -> _NoMeanError:
    return _NoMeanError("secure aggregation", expected=expected, found=found, remedy=remedy)


def _failed(site: str, request: Message, reason: str) -> Message:
    return Message({"site": site, "round": request.meta["round"], "error": reason})
