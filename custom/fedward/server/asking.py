"""Asking sites and waiting for them: what trainings and surveys have in common."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedward.errors import DivergedError, WireError
from fedward.methods.workflow import Turn
from fedward.protocol.messages import ErrorAnswer, WaitingAnswer
from fedward.protocol.transport import Transport
from fedward.protocol.versions import versions
from fedward.protocol.wire import Message
from fedward.server.consent import Consent
from fedward.storage.run_folder import RunFolder
from fedward.terminal import reason

if TYPE_CHECKING:
    from fedward.console.listener import Listener

_WAITING = "waiting for approval of job {} by the site's administrator"


@dataclass
class Replies:
    """What became of the requests of one exchange, by site."""

    requests: dict[str, Message]
    """The requests as they were sent."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why a site has not done what it was asked for."""
    refused: set[str] = field(default_factory=set)
    """Those of ``failed`` whose policy forbids the job."""
    diverged: set[str] = field(default_factory=set)
    """Those of ``failed`` whose training diverged."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Digest of the job that the site's administrator has not approved yet."""
    _asked: set[str] = field(default_factory=set, init=False)
    """Sites that have been asked at least once."""

    @property
    def wanted(self) -> set[str]:
        """Sites that an answer is needed of; others are only asked to evaluate a model."""
        return set(self.requests)

    @property
    def given(self) -> set[str]:
        """Sites whose answer can be used."""
        raise NotImplementedError

    @property
    def refusals(self) -> dict[str, str]:
        """Site whose policy forbids the job -> the rule."""
        return {site: self.failed[site] for site in self.refused}

    def requests_to(self, sites: Collection[str]) -> dict[str, Message]:
        """Return the requests to sites that are asked now.

        The bytes of a request that was sent before are counted once more.
        """
        requests = {site: self.requests[site] for site in sorted(sites)}
        for site in self._asked.intersection(sites):
            array_bytes = requests[site].nbytes - requests[site].further
            requests[site].further += array_bytes
        self._asked.update(sites)
        return requests

    def drop(self, sites: Collection[str], needed: int, came: int) -> None:
        """Note that answers are not used, because fewer came than are needed."""
        for site in sites:
            self.failed[site] = f"not used: minimum_replies is {needed}, came {came}"

    def forget(self, sites: Collection[str]) -> None:
        """Drop why these sites have not answered: they are asked again."""
        for site in sites:
            self.failed.pop(site, None)
            self.waiting.pop(site, None)
        self.refused -= set(sites)
        self.diverged -= set(sites)

    def note_unwilling(self, site: str, answer: ErrorAnswer | WaitingAnswer) -> None:
        """Note why a site has not done what it was asked for."""
        if isinstance(answer, WaitingAnswer):
            self.waiting[site] = answer.waiting
            return
        self.failed[site] = reason(answer.error)
        if answer.refused:
            self.refused.add(site)
        if answer.diverged:
            self.diverged.add(site)

    def note_unusable(self, site: str, error: WireError) -> None:
        """Note why the answer of a site cannot be used."""
        self.failed[site] = reason(str(error))
        if isinstance(error, DivergedError):
            self.diverged.add(site)


class Inquiry:
    """Sends requests to the sites of a run, again to those that had not approved its job yet.

    Args:
        run: the run; its job says how many replies are needed and how long a site has.
        transport: how messages reach the sites.
        consent: keeps account of who waits for approval.
        listener: is told who was asked and who has answered.
    """

    def __init__(
        self, run: RunFolder, transport: Transport, consent: Consent, listener: "Listener"
    ) -> None:
        self._experiment = run.experiment
        self._transport = transport
        self._consent = consent
        self._listener = listener

    def ask(
        self,
        turn: Turn,
        replies: Replies,
        accept: Callable[[str, Message], None],
        too_few: Callable[[], bool],
    ) -> None:
        """Send the requests of ``replies`` and wait for the answers.

        Sites that wait for approval are asked again as long as their answers are needed.

        Args:
            turn: the exchange.
            replies: with the requests; what becomes of them is noted there.
            accept: takes the first answer of a site, and raises WireError if it cannot be used.
            too_few: whether fewer answers than an exchange needs have come.
        """
        pending = set[str]()

        def deliver(site: str, answer: Message) -> None:
            if site not in pending:
                return  # a second or stale answer: the first one stands
            pending.discard(site)
            self._listener.answered(site)
            try:
                accept(site, answer)
            except WireError as error:
                replies.note_unusable(site, error)

        def send(sites: Collection[str]) -> None:
            pending.update(sites)
            replies.forget(sites)
            requests = replies.requests_to(sites)
            self._listener.asked(*turn, requests)
            self._transport.exchange(requests, self._experiment.timeout, deliver)
            self._consent.report(sites, replies.waiting)

        send(set(replies.requests))
        while self._is_worth_waiting(replies, too_few):
            self._consent.pause()
            waited = set(replies.waiting)
            send(waited)
            if too_few() and waited - replies.waiting.keys():
                # Some site has approval now. Encrypted updates of too few sites were discarded, so
                # that all sites are needed again that can answer.
                unwilling = replies.refused | replies.waiting.keys()
                again = replies.wanted - replies.given - unwilling
                if again:
                    send(again)
        for site, digest in replies.waiting.items():
            replies.failed[site] = _WAITING.format(digest)
        for site in sorted(pending):
            replies.failed[site] = f"no answer within {self._experiment.timeout} s"

    def _is_worth_waiting(self, replies: Replies, too_few: Callable[[], bool]) -> bool:
        """Return whether too few have answered, and enough may once they have approval."""
        willing = replies.wanted - replies.refused
        if len(willing) < self._experiment.minimum_replies:
            return False
        return too_few() and not willing.isdisjoint(replies.waiting)


def common_fields(run: RunFolder, last_hash: str) -> dict[str, Any]:
    """Return the fields that all requests of a run have.

    ``last_hash``: of the line of the audit log that was written about the request.
    """
    return {
        "run": run.info.id,
        "members": len(run.sites),
        "experiment": run.experiment.digest,
        "versions": versions(),
        "last_hash": last_hash,
    }
