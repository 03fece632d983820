"""The server's half of secure aggregation: a transport whose answers carry the mean of all updates.

No single update reaches the server's loop and the methods, and they need not know: each answer has
the mean, and the mean of equal models is that model.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedward.config import Experiment
from fedward.digests import arrays_digest
from fedward.disk import save_json
from fedward.errors import RunError, UnreadableJsonError, WireError, listed
from fedward.json_text import read_json_file
from fedward.methods.algorithm import Algorithm
from fedward.methods.requirements import Requirements
from fedward.methods.weight_limits import effective_number
from fedward.protocol import answer_checks, wire
from fedward.protocol.messages import Answer, ErrorAnswer, WaitingAnswer
from fedward.protocol.requests import DECRYPT, DecryptRequest
from fedward.protocol.transport import Deliver, Transport, failed
from fedward.protocol.wire import Message
from fedward.security.encryption import SAME_CONTEXT, Adder, mean_digest
from fedward.server.claims import Claims

_WITNESSES = 2
"""Sites that must report the same mean: one alone could report any."""

_STAYS = "The round counts as failed and the model stays as it was."
_EQUAL = (
    f"{_STAYS} Let all sites take equally many steps (images_per_round), "
    "or go without secure_aggregation."
)


class _NoMeanError(RunError):
    """An exchange has no mean, although its updates arrived; the run goes on without it."""


@dataclass
class _Sum:
    """The sum of the updates that were encrypted with one key."""

    ciphers: list[Any] = field(default_factory=list)
    """Ciphertexts of the sum; empty before the first update."""
    weights: list[int] = field(default_factory=list)
    """Weight of each update."""
    answers: dict[str, Message] = field(default_factory=dict)
    """Site -> its answer without ciphertexts."""

    @property
    def sites(self) -> list[str]:
        return sorted(self.answers)

    @property
    def weight(self) -> int:
        return sum(self.weights)


class EncryptedTransport:
    """Adds encrypted updates as they arrive, lets the sites decrypt the sum, and delivers its mean.

    - Fewer updates than ``smallest_sum``: nothing is decrypted, and each counts as failed.
    - Weights that are too unequal: the same. Nobody can level weights that sites have multiplied
      already.
    - A damaged ciphertext: its site counts as failed if the damage shows. If not, no site can
      decrypt the sum.
    - Sites with different keys: the updates with the key of most sites count, or none if several
      keys have equally many.
    - A site does not decrypt: the others do; two equal answers are needed.
    - The decryptions differ: all updates count as failed, and the reason names who differs.
    - Asked again after an interruption: only for the sum of the same sites. The difference of two
      sums would be one site's update.
    - A second answer of a site is not used.

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
        """Send every request and deliver the answers.

        Answers without an update are delivered at once, the others after decryption.

        Raises:
            RunError: the tasks withhold different tensors, so that their updates do not add up.
            Exception: what ``inner`` raises.
        """
        _check_tasks({request.meta["task"] for request in requests.values()}, self._requirements)
        sums: dict[str, _Sum] = {}
        """Fingerprint of a key -> sum of the updates encrypted with it."""
        pending = set(requests)
        rules = self._experiment.answer_rules(self._requirements)

        def collect(site: str, answer: Message) -> None:
            if site not in pending:
                return
            pending.discard(site)
            if not answer.arrays:
                deliver(site, answer)  # The server's loop checks it.
                return
            request = requests[site]
            try:
                with answer_checks.only_refusals(f"answer of {site}"):
                    content = answer_checks.check_answer(
                        answer, site, request, rules, encrypted=True
                    )
                    assert isinstance(content, Answer), "no other kind of answer carries arrays"
                    self._claims.check(content, request.meta)
                    total = sums.setdefault(str(content.key), _Sum())
                    self._add(total, content, answer, request.meta["task"])
            except WireError as error:
                deliver(site, _unusable(site, request, str(error), answer.nbytes))

        self._inner.exchange(requests, timeout, collect)
        chosen, others = _of_most_sites(list(sums.values()))
        for other in others:
            _deliver_unusable(other, requests, _other_key(chosen), deliver)
        if chosen is not None:
            self._finish(chosen, requests, timeout, deliver)

    def _add(self, total: _Sum, content: Answer, answer: Message, task: str) -> None:
        """Add an answer's update to a sum, and keep the answer without it.

        If that fails, the sum stays as it was.
        """
        weight = self._weight(task, content.labelled, content.unlabelled, content.steps)
        ciphers = self._adder.read(content.site, answer.arrays)
        total.ciphers = self._adder.add(total.ciphers, ciphers) if total.ciphers else ciphers
        total.weights.append(weight)
        meta = {name: value for name, value in answer.meta.items() if name != wire.KEY}
        received = arrays_digest(answer.arrays)
        total.answers[content.site] = Message(meta, further=answer.nbytes, received=received)

    def _finish(
        self, total: _Sum, requests: dict[str, Message], timeout: int, deliver: Deliver
    ) -> None:
        """Deliver the mean of a sum for each of its sites, or why there is none."""
        try:
            mean = self._decrypt(total, requests, timeout)
        except (WireError, _NoMeanError) as error:
            _deliver_unusable(total, requests, str(error), deliver)
            return
        # A site's answer carries the mean from here on, but what travelled were its ciphertexts.
        bytes_of_mean = sum(array.nbytes for array in mean.values())
        for site, answer in total.answers.items():
            further = answer.further - bytes_of_mean
            deliver(site, Message(answer.meta, mean, further, answer.received))

    def _decrypt(
        self, total: _Sum, requests: dict[str, Message], timeout: int
    ) -> dict[str, np.ndarray]:
        """Return the mean as ``diff/<tensor>``, in which all sites agree.

        What the sites are sent to decrypt is added to the bytes of their ``requests``.
        """
        self._check_worth(total)
        first = requests[total.sites[0]]
        task = first.meta["task"]
        model = wire.shapes(first, self._requirements.tensors.withheld(task))
        asked = DecryptRequest(
            **{**first.meta, "task": DECRYPT, "evaluate": False},
            sites=len(total.sites),
            weight=total.weight,
            effective=effective_number(total.weights),
            trained=task,
        )
        self._keep(asked.round, asked.part, total)
        request = Message(asked.model_dump(exclude_unset=True), self._adder.write(total.ciphers))
        decryptions = self._decryptions(request, asked, total, model, timeout)
        for site in total.sites:
            requests[site].further += request.nbytes
        mean = decryptions.agreed_mean()
        return {f"diff/{name}": array for name, array in mean.items()}

    def _check_worth(self, total: _Sum) -> None:
        """Raise _NoMeanError for a sum of too few updates, or of too unequal weights."""
        smallest = self._experiment.smallest_sum
        if len(total.sites) < smallest:
            raise _no_mean(f"{smallest} or more encrypted updates", f"{len(total.sites)}")
        effective = effective_number(total.weights)
        least = self._experiment.effective_replies
        if effective < least:
            expected = (
                f"updates that are worth {least:.3g} equally weighted ones: "
                f"minimum_replies is {smallest}"
            )
            raise _no_mean(expected, f"{effective:.3g} (weights {total.weights})", _EQUAL)

    def _decryptions(
        self,
        request: Message,
        asked: DecryptRequest,
        total: _Sum,
        model: Mapping[str, tuple[int, ...]],
        timeout: int,
    ) -> "_Decryptions":
        """Ask the sites of a sum to decrypt it, and return what they answer."""
        decryptions = _Decryptions()

        def collect(site: str, answer: Message) -> None:
            if decryptions.has(site):
                return
            try:
                content = answer_checks.check_mean(answer, site, asked.round, model)
            except WireError as error:
                decryptions.failed[site] = str(error)
                return
            if isinstance(content, ErrorAnswer):
                decryptions.failed[site] = content.error
                return
            if isinstance(content, WaitingAnswer):
                decryptions.failed[site] = "waiting for approval of the job"
                return
            total.answers[site].further += answer.nbytes
            decryptions.add(site, {name: answer.arrays[f"mean/{name}"] for name in model})

        self._inner.exchange(dict.fromkeys(total.sites, request), timeout, collect)
        return decryptions

    def _keep(self, round_: int, part: int, total: _Sum) -> None:
        """Record whose updates are in a sum, before the sum is sent to be decrypted.

        Raises:
            _NoMeanError: a sum of other updates was recorded for the same exchange.
        """
        path = self._folder / "sums" / f"{round_:05d}-{part:03d}.json"
        terms = {"sites": total.sites, "weight": total.weight}
        if not path.exists():
            save_json(path, terms)
            return
        try:
            recorded_terms = read_json_file(path)
        except UnreadableJsonError as error:
            expected = "a record of the updates that were decrypted before an interruption"
            raise _no_mean(expected, f"{error} in {path.name}") from error
        if recorded_terms != terms:
            raise _no_mean(
                f"the updates that were decrypted before an interruption, {recorded_terms}",
                f"others, {terms}",
            )


@dataclass
class _Decryptions:
    """What the sites made of one sum."""

    means: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    """Digest -> the mean."""
    witnesses: dict[str, list[str]] = field(default_factory=dict)
    """Digest of a mean -> sites that sent it."""
    failed: dict[str, str] = field(default_factory=dict)
    """Site -> why its answer cannot be used."""

    def has(self, site: str) -> bool:
        """Return whether a site has answered."""
        return site in self.failed or any(site in sites for sites in self.witnesses.values())

    def add(self, site: str, mean: dict[str, np.ndarray]) -> None:
        """Add the mean that a site sent."""
        digest = mean_digest(mean)
        self.means.setdefault(digest, mean)
        self.witnesses.setdefault(digest, []).append(site)

    def agreed_mean(self) -> dict[str, np.ndarray]:
        """Return the mean; raise _NoMeanError if the sites differ, or too few have sent one.

        The mean of most sites is not taken: those who cooperate could outvote an honest site.
        """
        if len(self.means) > 1:
            raise self._disagreement()
        if sum(len(sites) for sites in self.witnesses.values()) < _WITNESSES:
            reasons = [f"{site}: {reason}" for site, reason in sorted(self.failed.items())]
            found = "; ".join(reasons) or "no answer in time"
            raise _no_mean(f"the mean from {_WITNESSES} sites or more", found)
        (mean,) = self.means.values()
        return mean

    def _disagreement(self) -> _NoMeanError:
        """Return the error about different means, which names the sites that differ from most."""
        groups = sorted(
            map(sorted, self.witnesses.values()), key=lambda sites: (-len(sites), sites)
        )
        largest, *others = groups
        expected = "one mean from all sites"
        odd_sites = sorted(site for group in others for site in group)
        if len(largest) > len(odd_sites):
            return _no_mean(
                expected,
                f"another one from {listed(odd_sites)} than from {listed(largest)}",
                f"{_STAYS} If this happens again, start a new run without {listed(odd_sites)}.",
            )
        return _no_mean(expected, f"different ones: {' against '.join(map(listed, groups))}")


def _unusable(site: str, request: Message, reason: str, size: int) -> Message:
    """Return what stands for an answer of ``size`` bytes that cannot be used."""
    answer = failed(site, request, reason)
    answer.further = size
    return answer


def _deliver_unusable(
    total: _Sum, requests: Mapping[str, Message], reason: str, deliver: Deliver
) -> None:
    """Deliver for each site of a sum why its update is not used."""
    for site in total.sites:
        size = total.answers[site].nbytes
        deliver(site, _unusable(site, requests[site], reason, size))


def _of_most_sites(sums: Sequence[_Sum]) -> tuple[_Sum | None, Sequence[_Sum]]:
    """Return the sum with the most sites, and all other sums.

    If several sums have the most sites, there is no such sum, and all are among the others.
    """
    largest_first = sorted(sums, key=lambda total: len(total.sites), reverse=True)
    if not largest_first:
        return None, []
    largest, *others = largest_first
    if others and len(largest.sites) == len(others[0].sites):
        return None, sums
    return largest, others


def _other_key(chosen: _Sum | None) -> str:
    """Return why an update that was encrypted with another key is not used."""
    expected = "one key at most sites"
    if chosen:
        expected = f"an update encrypted with the key of {', '.join(chosen.sites)}"
    return str(RunError("encrypted update", SAME_CONTEXT, expected=expected, found="another key"))


def _check_tasks(tasks: Collection[str], requirements: Requirements) -> None:
    """Raise RunError if the updates of an exchange are of different tensors: they do not add up."""
    withheld = {
        task: requirements.tensors.withheld(task)
        for task in sorted(tasks)
        if task not in wire.UNTRAINED
    }
    if len(set(withheld.values())) > 1:
        found = [f"{task}: {' '.join(names) or 'none'}" for task, names in withheld.items()]
        raise RunError(
            "secure aggregation",
            "Let the method ask for them in different parts of the round, "
            "or turn secure_aggregation off.",
            expected="tasks of one exchange that withhold the same tensors",
            found=", ".join(found),
        )


def _no_mean(expected: str, found: str, remedy: str = _STAYS) -> _NoMeanError:
    return _NoMeanError("secure aggregation", remedy, expected=expected, found=found)
