"""What is asked of one reader at one moment, and which image they see next."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedward.annotation.checks import Check, ReaderChecks, checks_of, request_of_nobody
from fedward.annotation.questions import Question
from fedward.annotation.records import Request
from fedward.annotation.rules import Rules


@dataclass(frozen=True)
class Choice:
    """A question to show, and the image that stands for it."""

    question: Question
    image: Request
    comes_again: bool = False
    """Whether the reader has answered it, and is to answer it once more without their answer."""

    @property
    def together(self) -> tuple[str, ...]:
        """The images that an answer counts for."""
        return tuple(sorted(request.sample_id for request in self.question.open))


@dataclass(frozen=True)
class Reader:
    """What is asked of one reader at one moment."""

    name: str
    shown: Sequence[Question]
    """The questions asked at present that can be shown, the most wanted first."""
    waiting: Sequence[Question]
    """Those of them that wait for this reader; the ones skipped most often come last."""
    skips: Counter[str]
    """Image -> how often the reader has skipped it."""
    checks: ReaderChecks

    @classmethod
    def of(
        cls,
        database: sqlite3.Connection,
        rules: Rules,
        name: str,
        shown: Sequence[Question],
        can_show: Callable[[str], bool],
    ) -> "Reader":
        """Read what is asked of a reader.

        Args:
            database: in a transaction.
            rules: the rules of the queue.
            name: the reader's.
            shown: the questions asked at present that can be shown, the most wanted first.
            can_show: whether the site has the image of an id.
        """
        skips = _skips(database, name)
        waiting = sorted(
            (question for question in shown if question.waits_for(name)),
            key=lambda question: _times_skipped(question, skips),
        )
        checks = checks_of(database, rules, name, shown, waiting, can_show)
        return cls(name, shown, waiting, skips, checks)

    @property
    def answerable(self) -> Sequence[Question]:
        """The questions and images of known class that can be shown at present."""
        return [*self.shown, *self.checks.known]

    @property
    def number_waiting(self) -> int:
        """The number of questions and checks that wait for the reader."""
        return len(self.waiting) + self.checks.to_come

    @property
    def number_skipped(self) -> int:
        """The number of those that the reader has skipped."""
        skipped_questions = sum(self._times_skipped(question) > 0 for question in self.waiting)
        return skipped_questions + sum(check.skips > 0 for check in self.checks.due)

    @property
    def number_answered(self) -> int:
        """The number of questions and checks that the reader has answered."""
        answered_questions = sum(question.by(self.name) is not None for question in self.shown)
        return answered_questions + self.checks.answered(self.shown, self.name)

    def choice(self, showing: str, *, again: bool) -> Choice | None:
        """Return what the reader sees; None if nothing waits for them.

        Args:
            showing: the image that they look at, which stays if they may still answer it.
            again: whether it stays even if they have answered it.
        """
        return self._staying(showing, again=again) or self._next(showing)

    def _staying(self, showing: str, *, again: bool) -> Choice | None:
        """Return the image that the reader looks at, if they may still answer it.

        They may if another reader has decided it meanwhile: a second opinion is welcome.
        """
        for question in self.answerable:
            if question.by(self.name) and not again:
                continue
            for request in question.open:
                if request.sample_id == showing:
                    return Choice(question, request)
        return None

    def _next(self, showing: str) -> Choice | None:
        """Return what the reader is to answer next; None if nothing waits for them.

        A check on show stays. Otherwise a check that is due comes before the questions, unless it
        was skipped more often than the first of them.
        """
        for check in self.checks.due:
            if check.sample_id == showing:
                return self._choice_of_check(check)
        for check in self.checks.due[:1]:
            if not self.waiting or check.skips <= self._times_skipped(self.waiting[0]):
                return self._choice_of_check(check)
        return Choice(self.waiting[0], self.waiting[0].open[0]) if self.waiting else None

    def _choice_of_check(self, check: Check) -> Choice:
        """Return the question of a check, to be shown as any other."""
        question = next(
            question for question in self.answerable if check.sample_id in question.images
        )
        image = request_of_nobody(check.sample_id)
        return Choice(question, image, comes_again=check.purpose == "repeat")

    def _times_skipped(self, question: Question) -> int:
        return _times_skipped(question, self.skips)


def _times_skipped(question: Question, skips: Counter[str]) -> int:
    """Return how often the images of a question were skipped."""
    return sum(skips[name] for name in question.ids)


def _skips(database: sqlite3.Connection, annotator: str) -> Counter[str]:
    """Return image -> how often an annotator has skipped it."""
    rows = database.execute(
        "SELECT sample_id FROM standing WHERE kind = 'skip' AND annotator = ?", [annotator]
    )
    return Counter(row["sample_id"] for row in rows)
