"""The actions of a clinician at the page.

They see the images that wait for them, answer, skip, take an answer back, and look at their
answers.
"""

import sqlite3
from collections.abc import Collection, Container, Sequence
from dataclasses import asdict, replace

from fedward.annotation import checks, times
from fedward.annotation.database import add_answer, places
from fedward.annotation.page_content import Given, Last, SentAnswer, Stale, Tally, View
from fedward.annotation.questions import Question, agreement, names_only, questions
from fedward.annotation.queue import Queue
from fedward.annotation.reader import Reader
from fedward.annotation.records import DECISION, Decision, Purpose, Remark

_OTHER_MESSAGE = (
    "This was sent under the key of another message. Nothing was changed. Please reload the page."
)
_ALREADY_ANSWERED = (
    "You have already answered this image, perhaps in another tab. Nothing was changed."
)
_NOT_NEWEST = (
    "That answer is no longer your newest, perhaps because of another tab. Nothing was undone."
)


class Desk:
    """The page's access to the queue, limited to images that can be shown.

    Args:
        queue: where answers go, and whose rules count.
        known_ids: the ids of the site's images. Other images that are asked for are not shown.
        classes: the classes that an answer may name; an image with another class, of an earlier
            job, waits again. None: any.
    """

    def __init__(
        self, queue: Queue, known_ids: Container[str], classes: Collection[str] | None = None
    ) -> None:
        self._queue = queue
        self._database = queue.database
        self._known_ids = known_ids
        self.rules = queue.rules
        self._classes = classes

    def is_closed(self) -> bool:
        """Return whether the newest run asks for another kind of answer than the rules take."""
        return self._queue.kind_asked() not in (None, self.rules.label_kind)

    def view(self, annotator: str, showing: str = "", *, again: bool = False) -> View:
        """Return the view of an annotator.

        Args:
            annotator: the reader's name.
            showing: the image that they look at, which stays if they have not answered it.
            again: whether it stays even if they have.
        """
        own_agreement = None
        with self._database.reading() as database:
            reader = self._reader(database, annotator, self._questions(database))
            choice = reader.choice(showing, again=again)
            last = self._last(database, annotator, reader.answerable)
            seen = 0
            if choice is not None:
                seen = self._newest(database, annotator, choice.image.sample_id)
            else:
                own_agreement = checks.own_agreement(database, self.rules).get(annotator)
        own = None
        adjudicates = False
        if choice is not None and not choice.comes_again:
            own = reader.checks.own(choice.question, annotator)
            adjudicates = choice.question.adjudicated_by(annotator)
        tells_tally = choice is None or not self.rules.checks(annotator)
        return View(
            image=None if choice is None else choice.image,
            together=() if choice is None else choice.together,
            own=None if own is None else own.text,
            remark=Remark() if own is None else own.remark,
            adjudicates=adjudicates,
            seen=seen,
            waiting=reader.number_waiting,
            skipped=reader.number_skipped,
            mine=reader.number_answered,
            tally=_tally(reader.shown) if tells_tally else None,
            last=last,
            own_agreement=own_agreement,
        )

    def given(self, annotator: str) -> list[Given]:
        """Return an annotator's answers to the questions asked at present, the newest first.

        Answers to checks are among them. While a question waits to be answered again, its answer is
        left out, so that nobody looks up what they said.
        """
        with self._database.reading() as database:
            reader = self._reader(database, annotator, self._questions(database))
        coming_again = {self.rules.together(check.sample_id) for check in reader.checks.due}
        answers = []
        for question in reader.answerable:
            decision = reader.checks.own(question, annotator)
            if decision is not None and question.images not in coming_again:
                given = Given(
                    decision.sample_id,
                    decision.text,
                    decision.time,
                    bool(decision.adjudicates),
                    decision.remark,
                    decision.seconds,
                )
                answers.append(given)
        return sorted(answers, key=lambda answer: answer.time, reverse=True)

    def _questions(self, database: sqlite3.Connection) -> list[Question]:
        """Return all questions that were asked or answered, with answers in the job's classes."""
        return questions(database, self.rules, self._classes)

    def _reader(
        self, database: sqlite3.Connection, annotator: str, every_question: Sequence[Question]
    ) -> Reader:
        """Return what is asked of an annotator at present."""
        shown = self._shown(every_question)
        can_show = self._known_ids.__contains__
        return Reader.of(database, self.rules, annotator, shown, can_show)

    def _shown(self, every_question: Sequence[Question]) -> list[Question]:
        """Return the questions asked at present that can be shown, in the order given."""
        shown = []
        for question in every_question:
            requests = tuple(
                request for request in question.open if request.sample_id in self._known_ids
            )
            if requests:
                shown.append(replace(question, requests=requests))
        return shown

    def foreign_ids(self) -> list[str]:
        """Return the ids that are asked for and are not among the site's images."""
        asked_ids: set[str] = set()
        with self._database.reading() as database:
            for question in questions(database, self.rules):
                asked_ids.update(request.sample_id for request in question.open)
        return sorted(name for name in asked_ids if name not in self._known_ids)

    def asked(self) -> frozenset[str]:
        """Return the ids of all images that were ever asked for, and of those of known class.

        The other images of their lesions are among them: the answer is about all of these.
        """
        with self._database.reading() as database:
            rows = database.execute("SELECT DISTINCT sample_id FROM requests").fetchall()
        asked_ids = {row["sample_id"] for row in rows} | self.rules.known.keys()
        return frozenset(name for asked in asked_ids for name in self.rules.together(asked))

    def answer(self, message: SentAnswer) -> None:
        """Write an answer; it is on the disk when this returns.

        Raises:
            Stale: the annotator has answered about the image since the page showed it, or the key
                is that of another message.
        """
        with self._database.writing() as database:
            earlier = _row_of_key(database, message.key)
            if earlier is not None:
                if not _is_same(earlier, message):
                    raise Stale(message.annotator, _OTHER_MESSAGE)
                return
            if self._newest(database, message.annotator, message.sample_id) != message.seen:
                raise Stale(message.annotator, _ALREADY_ANSWERED)
            purpose = self._purpose(database, message)
            adjudicates = (
                purpose == "question"
                and message.kind != "skip"
                and self._adjudicates(database, message)
            )
            add_answer(
                database,
                annotator=message.annotator,
                sample_id=message.sample_id,
                kind=message.kind,
                label=message.label,
                key=message.key,
                seconds=message.seconds,
                adjudicates=adjudicates,
                purpose=purpose,
                **asdict(message.remark),
                time=_moment(database, self.rules.together(message.sample_id)),
                source="page",
            )

    def undo(self, annotator: str, answer: int, key: str) -> str:
        """Take back the annotator's newest answer at the page.

        Args:
            annotator: the reader's name.
            answer: the number of that answer.
            key: a name that the page gives to this message alone.

        Returns:
            The id of the answer's image.

        Raises:
            Stale: another answer is the newest, or the key is that of another message.
        """
        with self._database.writing() as database:
            earlier = _row_of_key(database, key)
            if earlier is not None:
                if earlier["annotator"] != annotator or earlier["undoes"] != answer:
                    raise Stale(annotator, _OTHER_MESSAGE)
                return str(earlier["sample_id"])
            newest = _newest_given(database, annotator)
            if newest is None or newest["answer"] != answer:
                raise Stale(annotator, _NOT_NEWEST)
            sample_id = str(newest["sample_id"])
            add_answer(
                database,
                annotator=annotator,
                sample_id=sample_id,
                kind="undo",
                key=key,
                undoes=answer,
                time=_moment(database, self.rules.together(sample_id)),
                source="page",
            )
            return sample_id

    def _last(
        self, database: sqlite3.Connection, annotator: str, answerable: Sequence[Question]
    ) -> Last | None:
        """Return the answer that Undo takes back; None if there is none.

        Args:
            database: in a transaction.
            annotator: the reader's name.
            answerable: the questions and images of known class that can be shown at present.
        """
        newest = _newest_given(database, annotator)
        if newest is None:
            return None
        before = self._before(database, newest)
        images = self.rules.together(newest["sample_id"])
        is_answerable = any(question.images == images for question in answerable)
        return Last(
            answer=newest["answer"],
            sample_id=newest["sample_id"],
            kind=newest["kind"],
            text=newest["label"] or newest["kind"],
            before=before,
            shown_again=before is None and is_answerable,
        )

    def _before(self, database: sqlite3.Connection, row: sqlite3.Row) -> str | None:
        """Return the annotator's answer that counts without the one of a row; None without one."""
        ids = self.rules.together(row["sample_id"])
        query = (
            f"SELECT {DECISION} FROM given WHERE annotator = ? AND sample_id IN ({places(ids)}) "
            "AND purpose = ? AND kind != 'skip' AND answer != ? "
            "ORDER BY time DESC, answer DESC LIMIT 1"
        )
        values = [row["annotator"], *ids, row["purpose"], row["answer"]]
        before = database.execute(query, values).fetchone()
        if before is None:
            return None
        decision = Decision(*before)
        return decision.text if names_only(decision, self._classes, self.rules) else None

    def _purpose(self, database: sqlite3.Connection, message: SentAnswer) -> Purpose:
        """Return whether an answer is to a question of a run, or to a check of the reader.

        Raises:
            Stale: the annotator has answered it, the page did not show that answer, and the
                question is not one that comes again at present.
        """
        if not self.rules.has_checks:
            return "question"
        # A question may have been withdrawn, or its image may have vanished, while it came again.
        every_question = self._questions(database)
        reader = self._reader(database, message.annotator, every_question)
        images = self.rules.together(message.sample_id)
        asked_images = {question.images for question in reader.shown}
        is_known = images not in asked_images and not self.rules.known.keys().isdisjoint(images)
        is_answered = any(
            question.by(message.annotator) is not None
            for question in (reader.checks.known if is_known else every_question)
            if question.images == images
        )
        # The page's word alone would turn the answer to a check into a label.
        if message.again or not is_answered:
            return "known" if is_known else "question"
        for check in reader.checks.due:
            if check.purpose == "repeat" and check.sample_id in images:
                return "repeat"
        raise Stale(message.annotator, _ALREADY_ANSWERED)

    def _adjudicates(self, database: sqlite3.Connection, message: SentAnswer) -> bool:
        """Return whether an answer is one that decides between readers who differ."""
        if self.rules.readers <= 1:
            return False
        return any(
            question.adjudicated_by(message.annotator)
            for question in self._questions(database)
            if message.sample_id in question.ids
        )

    def _newest(self, database: sqlite3.Connection, annotator: str, sample_id: str) -> int:
        """Return the number of an annotator's newest answer about an image; 0 without one."""
        ids = self.rules.together(sample_id)
        query = (
            "SELECT coalesce(max(answer), 0) FROM answers "
            f"WHERE annotator = ? AND sample_id IN ({places(ids)})"
        )
        return int(database.execute(query, [annotator, *ids]).fetchone()[0])


def _tally(shown: Sequence[Question]) -> Tally:
    """Return what all readers have decided of the questions asked at present."""
    standing = [question.standing for question in shown]
    verdicts = [decision for decision in standing if decision is not None]
    agreed = agreement(shown)
    return Tally(
        decided=len(verdicts),
        total=len(shown),
        undecidable=sum(decision.label is None for decision in verdicts),
        disputed=sum(question.disputed and not question.standing for question in shown),
        read_twice=agreed.read_twice,
        unanimous=agreed.unanimous,
        kappa=agreed.kappa,
        kappas=agreed.kappas,
    )


def _row_of_key(database: sqlite3.Connection, key: str) -> sqlite3.Row | None:
    """Return the stored answer of a message that came before; None for a new message."""
    query = "SELECT * FROM answers WHERE key = ?"
    row: sqlite3.Row | None = database.execute(query, [key]).fetchone()
    return row


def _is_same(row: sqlite3.Row, message: SentAnswer) -> bool:
    """Return whether a stored answer is that of a message."""
    stored = (row["annotator"], row["sample_id"], row["kind"], row["label"])
    return stored == (message.annotator, message.sample_id, message.kind, message.label)


def _newest_given(database: sqlite3.Connection, annotator: str) -> sqlite3.Row | None:
    """Return the annotator's newest answer at the page that is not taken back."""
    query = (
        "SELECT * FROM given WHERE annotator = ? AND source = 'page' ORDER BY answer DESC LIMIT 1"
    )
    row: sqlite3.Row | None = database.execute(query, [annotator]).fetchone()
    return row


def _moment(database: sqlite3.Connection, ids: Sequence[str]) -> str:
    """Return the time of a new answer about these images, after that of all others about them."""
    query = f"SELECT max(time) FROM answers WHERE sample_id IN ({places(ids)})"
    return times.now_after(database.execute(query, ids).fetchone()[0])
