"""How far a run is within its rounds, from who was asked and who has answered."""

import time
from collections import deque
from collections.abc import Callable, Collection
from threading import Lock
from typing import NamedTuple

_ROUNDS_TIMED = 5
"""Number of latest rounds whose pace gives the time that the remaining ones will take."""


class State(NamedTuple):
    """How far a run is."""

    words: str
    """One line of text; empty before the first round and after the end."""
    share: float | None = None
    """Share of the rounds that is done, from 0 to 1; None outside the rounds."""


class _Moment(NamedTuple):
    """When how much of the run was done."""

    seconds: float
    """By the clock."""
    rounds_done: float
    """The newest round counts in part."""


class Progress:
    """Follows a run's exchanges; safe to read from another thread.

    Args:
        workers: how many sites work at the same time.
        clock: returns seconds.
    """

    def __init__(self, workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = workers
        self._clock = clock
        self._lock = Lock()
        self._rounds = 0
        """Rounds that the run will have."""
        self._round = 0
        """The current round; 0 before the first and after the end."""
        self._part = 0
        """The current exchange of the round, from 0."""
        self._parts = 1
        """Exchanges of a round, as many as were seen in one."""
        self._asked: list[str] = []
        self._pending: list[str] = []
        """Sites that were asked and have not answered, sorted."""
        self._newest = _Moment(0.0, 0.0)
        """The latest request or answer."""
        self._round_starts: deque[_Moment] = deque(maxlen=_ROUNDS_TIMED)
        """The starts of the latest rounds, the oldest first."""
        self._after_exchanges = ""
        """What is done when no exchange follows; empty before."""

    def begin(self, rounds: int) -> None:
        """Note how many rounds there will be."""
        self._rounds = rounds

    def asked(self, round_: int, part: int, sites: Collection[str]) -> None:
        """Note that an exchange of a round begins."""
        with self._lock:
            new_round = round_ != self._round
            self._round = round_
            self._part = part
            self._parts = max(self._parts, part + 1)
            self._asked = list(sites)
            self._pending = sorted(sites)
            self._newest = self._now()
            if new_round:
                self._round_starts.append(self._newest)

    def answered(self, site: str) -> None:
        """Note that a site has answered."""
        with self._lock:
            if site in self._pending:
                self._pending.remove(site)
            self._newest = self._now()

    def reporting(self, after: str = "") -> None:
        """Note that no exchange follows, and that the report is written.

        Args:
            after: what ended the exchanges early, in a word.
        """
        with self._lock:
            self._after_exchanges = f"{after}, writes the report" if after else "writes the report"

    def end(self) -> None:
        """Note that there is nothing more to show."""
        with self._lock:
            self._round = 0
            self._after_exchanges = ""

    def state(self) -> State:
        """Return how far the run is now."""
        with self._lock:
            if self._after_exchanges:
                return State(self._after_exchanges)
            if self._round == 0:
                return State("")
            if self._round <= self._rounds:
                return self._state_in_rounds()
            return State(f"evaluation of the last model  {self._work()}")

    def _state_in_rounds(self) -> State:
        share = self._rounds_done() / self._rounds
        parts = [f"{share:>4.0%}", f"round {self._round}/{self._rounds}"]
        remaining = self._remaining_seconds()
        if remaining is not None:
            parts.append(f"{duration(remaining)} left")
        parts.append(self._work())
        return State("  ".join(parts), share)

    def _work(self) -> str:
        """Return how many sites have answered, and one that has not."""
        answers = len(self._asked) - len(self._pending)
        work = f"{answers}/{len(self._asked)} sites"
        if not self._pending:
            return work
        if self._workers == 1:
            return f"{work}, {self._pending[0]} works"
        return f"{work}, waiting for {self._pending[0]}"

    def _now(self) -> _Moment:
        return _Moment(self._clock(), self._rounds_done())

    def _rounds_done(self) -> float:
        answered = 1 - len(self._pending) / max(1, len(self._asked))
        before = self._round - 1
        return min(before + (self._part + answered) / self._parts, self._rounds)

    def _remaining_seconds(self) -> float | None:
        """Return how long the remaining rounds will take; None as long as none has been timed."""
        since = self._round_starts[0]
        done = self._newest.rounds_done - since.rounds_done
        if done <= 0:
            return None
        seconds_per_round = (self._newest.seconds - since.seconds) / done
        estimate = seconds_per_round * (self._rounds - self._newest.rounds_done)
        # The estimate was right when the latest answer came, and runs down until the next one.
        return max(0.0, estimate - (self._clock() - self._newest.seconds))


def duration(seconds: float) -> str:
    """Return a duration as people say it: ``40 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
