"""Checks of readers: questions that come again, and images whose class is known.

They are mixed in between the questions of runs, unannounced. Their answers are in the audit trail
and nowhere else: no run trains on them, and no other reader's question depends on them.

What a reader sees and can do tells no image of known class from a question: it is skipped, taken
back, listed and changed as a question is, and it counts in the reader's own numbers. A question
that comes again has the id that it had, so a reader who writes ids down knows it.
"""

import hmac
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from fedward.annotation.questions import Question
from fedward.annotation.records import DECISION, Decision, Purpose, Request
from fedward.annotation.rules import Rules

REPEAT_AFTER = 20
"""The answers that a reader gives before a question comes again."""
KNOWN_EVERY = 10
"""A reader sees one image of known class in as many questions, on average."""


_Images: TypeAlias = tuple[str, ...]
"""The images of a question, as :meth:`fedward.annotation.rules.Rules.together` returns them."""


class Check(NamedTuple):
    """A check that is due for a reader."""

    sample_id: str
    purpose: Purpose
    """``repeat`` or ``known``."""
    skips: int
    """How often the reader has skipped it."""


@dataclass(frozen=True)
class ReaderChecks:
    """The checks of one reader at one moment."""

    due: Sequence[Check] = ()
    """Those to be answered now, the longest due first; skipped ones come after others."""
    to_come: int = 0
    """The number of checks without an answer, those that are due included.

    It counts the checks that come while the reader answers what waits for them at present.
    """
    repeated: Mapping[_Images, Decision] = field(default_factory=dict)
    """The reader's newest answer to each question that came again and was answered again."""
    known: Sequence[Question] = ()
    """Each image of known class that no run asks about, with the reader's own answer.

    An answer from before the present questions is left out, as those to earlier runs are.
    """

    def own(self, question: Question, annotator: str) -> Decision | None:
        """Return the reader's newest answer to a question, also if it was to a check."""
        decision = question.by(annotator)
        if decision is None:
            return None
        again = self.repeated.get(question.rules.together(decision.sample_id))
        if again is None or again.time < decision.time:
            return decision
        return again

    def answered(self, shown: Sequence[Question], annotator: str) -> int:
        """Return how many checks the reader has answered.

        Args:
            shown: the questions asked at present; a check that repeats another one is not counted.
            annotator: the reader's name.
        """
        # Who has answered in classes of an earlier job is asked again, and has said nothing yet.
        answered = [question for question in shown if question.by(annotator) is not None]
        repeated = sum(question.images in self.repeated for question in answered)
        return repeated + sum(question.by(annotator) is not None for question in self.known)


@dataclass(frozen=True)
class OwnAgreement:
    """How often a reader agrees with their own earlier answers and with known classes."""

    repeated: int = 0
    """The number of questions that came again and were answered again."""
    same: int = 0
    """Those of them with the same answer."""
    known: int = 0
    """The number of images of known class that the reader has answered."""
    right: int = 0
    """Those of them with the known answer."""

    def text(self) -> str:
        """Return the sentences for the reader; empty without a check."""
        sentences = []
        if self.repeated:
            sentences.append(
                f"Images that came twice: {self.same} of {self.repeated} got the same answer."
            )
        if self.known:
            sentences.append(f"Images of known class: {self.right} of {self.known} got that class.")
        return " ".join(sentences)


class _Given(NamedTuple):
    """An answer of a reader at the page that is not taken back."""

    answer: int
    """Its number."""
    purpose: Purpose
    decision: Decision
    """What was answered; its kind may also be ``skip``."""

    @property
    def is_skip(self) -> bool:
        """Whether the reader only put the image off."""
        return self.decision.kind == "skip"


class _Course:
    """What a reader has answered and skipped so far, in the order of the page."""

    def __init__(self, rules: Rules, given: Iterator[_Given]) -> None:
        self.places = dict[_Images, int]()
        """Images of a question -> how many questions the reader had answered, itself included."""
        self.met = set[_Images]()
        """Images of each question that the reader has answered or skipped."""
        self.checked = dict[tuple[Purpose, _Images], Decision]()
        """Purpose and images of each answered check -> the newest answer to it."""
        self.skips = Counter[tuple[Purpose, _Images]]()
        """Purpose and images of a check -> how often the reader has skipped it."""
        for row in given:
            images = rules.together(row.decision.sample_id)
            if row.purpose == "question":
                self.met.add(images)
                if not row.is_skip:
                    self.places.setdefault(images, len(self.places) + 1)
            elif row.is_skip:
                self.skips[row.purpose, images] += 1
            else:
                self.checked[row.purpose, images] = row.decision


class _Turn(NamedTuple):
    """A check, and when it comes."""

    check: Check
    after: int
    """The number of answers, or for a known class of answers and skips, after which it comes."""
    so_far: int
    """How many of them there are."""
    in_the_end: int
    """How many there will be once the reader has answered what waits for them."""

    @property
    def is_due(self) -> bool:
        """Whether it is to be answered now; one that was skipped has been shown already."""
        return self.after <= self.so_far or self.check.skips > 0

    @property
    def comes(self) -> bool:
        """Whether it is due, or will be before the reader is done."""
        return self.is_due or self.after <= self.in_the_end


def checks_of(
    database: sqlite3.Connection,
    rules: Rules,
    annotator: str,
    shown: Sequence[Question],
    waiting: Sequence[Question],
    can_show: Callable[[str], bool],
) -> ReaderChecks:
    """Return the checks of a reader.

    Which questions come again, and when an image of known class comes, depend on the reader's name,
    on the image, and on a secret of the queue, so that nobody can predict them. A page that is
    loaded again shows the same check.

    Args:
        database: in a transaction.
        rules: the rules of the queue.
        annotator: the reader's name. Adjudicators get no checks.
        shown: the questions asked at present that can be shown. Without any, there is no check.
        waiting: those of them that wait for the reader, in the order in which they come.
        can_show: whether the site has the image of an id.
    """
    if not shown or not rules.checks(annotator):
        return ReaderChecks()
    begun = min(request.time for question in shown for request in question.open)
    course = _Course(rules, _given(database, annotator))
    draw = _Draws(database, annotator)
    asked = {question.images for question in shown}
    # One image of each lesion that can be shown: an answer is about all of them.
    known_of = {
        rules.together(sample_id): sample_id for sample_id in rules.known if can_show(sample_id)
    }
    known_ids = {sample_id for images, sample_id in known_of.items() if images not in asked}
    turns = [
        *_repeats(rules, annotator, shown, waiting, course, draw, can_show),
        *_known(rules, known_ids, waiting, course, draw),
    ]
    open_turns = [
        turn
        for turn in turns
        if (turn.check.purpose, rules.together(turn.check.sample_id)) not in course.checked
    ]
    due = [turn for turn in open_turns if turn.is_due]
    return ReaderChecks(
        due=[turn.check for turn in sorted(due, key=lambda turn: (turn.check.skips, turn.after))],
        to_come=sum(turn.comes for turn in open_turns),
        repeated={
            images: decision
            for (purpose, images), decision in course.checked.items()
            if purpose == "repeat"
        },
        known=[_known_question(rules, sample_id, course, begun) for sample_id in sorted(known_ids)],
    )


def _repeats(
    rules: Rules,
    annotator: str,
    shown: Sequence[Question],
    waiting: Sequence[Question],
    course: _Course,
    draw: "_Draws",
    can_show: Callable[[str], bool],
) -> Iterator[_Turn]:
    """Yield the questions that come again, also those that the reader has yet to answer."""
    so_far = len(course.places)
    places = dict(course.places)
    for question in waiting:
        places.setdefault(question.images, len(places) + 1)
    for question in shown:
        decision = question.by(annotator)
        place = places.get(question.images)
        decides = question.adjudicated_by(annotator)
        if place is None or decides or draw.of_repeat(question.images) >= rules.repeat:
            continue
        sample_id = decision.sample_id if decision else question.open[0].sample_id
        if can_show(sample_id):
            check = Check(sample_id, "repeat", course.skips["repeat", question.images])
            yield _Turn(check, place + REPEAT_AFTER, so_far, len(places))


def _known(
    rules: Rules,
    known_ids: Container[str],
    waiting: Sequence[Question],
    course: _Course,
    draw: "_Draws",
) -> Iterator[_Turn]:
    """Yield the images of known class that no run asks about.

    Skipped questions count as answered ones do: a reader who skips all images at first would
    otherwise see all questions of runs, and afterwards nothing new but checks.
    """
    in_the_end = course.met | {question.images for question in waiting}
    for number, sample_id in enumerate(sorted(rules.known, key=draw.of_order)):
        if sample_id not in known_ids:
            continue
        within = int(draw.of_turn(sample_id) * KNOWN_EVERY)
        check = Check(sample_id, "known", course.skips["known", rules.together(sample_id)])
        after = number * KNOWN_EVERY + within + 1
        yield _Turn(check, after, len(course.met), len(in_the_end))


def _known_question(rules: Rules, sample_id: str, course: _Course, begun: str) -> Question:
    """Return an image of known class as a question, with the answer of one reader alone.

    Answers before the time ``begun`` are left out.
    """
    decision = course.checked.get(("known", rules.together(sample_id)))
    decisions = (decision,) if decision and decision.time >= begun else ()
    return Question(rules, (request_of_nobody(sample_id),), decisions)


def request_of_nobody(sample_id: str) -> Request:
    """Return the request for an image that no run asks about: all but the id is empty."""
    return Request(sample_id, run="", round=0, strategy="", score=None, time="", withdrawn=False)


def own_agreement(database: sqlite3.Connection, rules: Rules) -> dict[str, OwnAgreement]:
    """Return reader -> how often they agree with themselves and with known classes.

    A repeated answer is compared with the reader's newest one before it. The first answer to a
    check counts, whatever the reader changes later. Answers that were taken back and skipped images
    do not count. Readers without a check are left out.
    """
    first_answers = dict[tuple[str, Purpose, _Images], bool]()
    for row, expected in compared(database, rules):
        check = (row.decision.annotator, row.purpose, rules.together(row.decision.sample_id))
        first_answers.setdefault(check, row.decision.text == expected)
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (annotator, purpose, _), is_as_expected in first_answers.items():
        pair = ("repeated", "same") if purpose == "repeat" else ("known", "right")
        counts[annotator][pair[0]] += 1
        counts[annotator][pair[1]] += is_as_expected
    return {annotator: OwnAgreement(**numbers) for annotator, numbers in sorted(counts.items())}


def compared(database: sqlite3.Connection, rules: Rules) -> Iterator[tuple[_Given, str]]:
    """Yield each answer to a check, with the answer that was expected."""
    earlier = dict[tuple[str, _Images], str]()
    for row in _given(database):
        if row.is_skip:
            continue
        sample_id = row.decision.sample_id
        question = (row.decision.annotator, rules.together(sample_id))
        if row.purpose == "question":
            earlier[question] = row.decision.text
        elif row.purpose == "repeat" and question in earlier:
            yield row, earlier[question]
        elif row.purpose == "known" and sample_id in rules.known:
            yield row, rules.known[sample_id]


def _given(database: sqlite3.Connection, annotator: str | None = None) -> Iterator[_Given]:
    """Yield the answers at the page that nobody took back, in their order; None: of all readers."""
    rows = database.execute(
        f"SELECT answer, purpose, {DECISION} FROM given "
        "WHERE source = 'page' AND annotator = coalesce(?, annotator) ORDER BY answer",
        [annotator],
    )
    for answer, purpose, *fields in rows:
        yield _Given(answer, purpose, Decision(*fields))


class _Draws:
    """Numbers from 0 to 1 (exclusive) for one reader, always the same for the same image."""

    def __init__(self, database: sqlite3.Connection, annotator: str) -> None:
        (self._secret,) = database.execute("SELECT secret FROM draws").fetchone()
        self._annotator = annotator

    def of_repeat(self, images: _Images) -> float:
        """Return the number below the share of repeated questions if a question comes again."""
        return self._draw("repeat", images[0])

    def of_order(self, sample_id: str) -> float:
        """Return the number by which images of known class are ordered."""
        return self._draw("order", sample_id)

    def of_turn(self, sample_id: str) -> float:
        """Return the number that says how far into its ten questions an image comes."""
        return self._draw("turn", sample_id)

    def _draw(self, use: str, sample_id: str) -> float:
        words = "\0".join([use, self._annotator, sample_id])
        digest = hmac.digest(self._secret, words.encode(), "sha256")
        return int.from_bytes(digest[:7]) / 2**56
