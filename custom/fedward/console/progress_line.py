"""How far a run is within a round, in one line."""

import time
from collections import deque
from collections.abc import Callable, Collection
from threading import Lock

_BAR = 10
"""Characters."""
_ROUNDS = 5
"""So many of the last rounds say how long the others will take."""


class ProgressLine:
    """The line below the rows of a run that goes on.

    Args:
        workers: how many sites work at the same time.
        clock: seconds.
    """

    def __init__(self, workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = workers
        self._clock = clock
        self._lock = Lock()
        self._rounds = self._round = self._part = 0
        self._parts = 1
        """Exchanges that a round has, as far as one has seen."""
        self._asked: list[str] = []
        self._pending: list[str] = []
        self._newest = (0.0, 0.0)
        """When the last answer came, and how many rounds were done then."""
        self._begun: deque[tuple[float, float]] = deque(maxlen=_ROUNDS)
        """The same, when each of the last rounds began."""

    def begin(self, rounds: int) -> None:
        """Note how many rounds there will be."""
        self._rounds = rounds

    def asked(self, round_: int, part: int, sites: Collection[str]) -> None:
        """Note that an exchange of a round begins."""
        with self._lock:
            self._parts = max(self._parts, part + 1)
            first = round_ != self._round
            self._round = round_
            self._part = part
            self._asked = list(sites)
            self._pending = sorted(sites)
            self._newest = self._clock(), self._done()
            if first:
                self._begun.append(self._newest)

    def answered(self, site: str) -> None:
        """Note that a site is done."""
        with self._lock:
            if site in self._pending:
                self._pending.remove(site)
            self._newest = self._clock(), self._done()

    def end(self) -> None:
        """Note that there is nothing more to show."""
        with self._lock:
            self._round = 0

    def text(self) -> str:
        """Return the line, from any thread; nothing before the first round and after the end."""
        with self._lock:
            return self._text() if self._round else ""

    def _text(self) -> str:
        done = len(self._asked) - len(self._pending)
        work = f"{done}/{len(self._asked)} sites"
        if self._pending:
            work += (
                f", {self._pending[0]} works"
                if self._workers == 1
                else f", waiting for {self._pending[0]}"
            )
        if self._round > self._rounds:  # the last model's evaluation, then the report
            return f"evaluation of the last model  {work}" if self._pending else "writes the report"
        share = self._done() / self._rounds
        bar = f"[{'#' * int(share * _BAR):-<{_BAR}}] {share:>4.0%}  round {self._round}/{self._rounds}"
        return "  ".join(filter(None, [bar, self._left(), work]))

    def _done(self) -> float:
        """Return how many rounds are done, the newest in part."""
        answers = 1 - len(self._pending) / max(1, len(self._asked))
        return min(self._round - 1 + (self._part + answers) / self._parts, self._rounds)

    def _left(self) -> str:
        """Return how long the rounds that are left will take; nothing as long as nobody knows."""
        (at, done) = self._newest
        (since, before) = self._begun[0]
        if done <= before:
            return ""
        seconds = max(
            0.0, (at - since) / (done - before) * (self._rounds - done) - (self._clock() - at)
        )
        return f"{in_words(seconds)} left"


def in_words(seconds: float) -> str:
    """Return a duration as people say it: ``40 s``, ``12 min``, ``3 h 20 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
