"""What one clinician at the page may do: see what waits for them, answer, skip, take back, look at
their answers.
"""

import sqlite3
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from fedward.annotation import times
from fedward.annotation.database import add_answer, places
from fedward.annotation.questions import Question, agreement, questions
from fedward.annotation.queue import Queue
from fedward.annotation.records import Request

_OTHER_MESSAGE = (
    "This was sent under the key of another message. Nothing was changed. Please reload the page."
)


class Stale(Exception):  # noqa: N818 - not an error of the program: the page reloads its view
    """The page answered for an annotator from a view that is no longer true; nothing was written."""

    def __init__(self, annotator: str, text: str) -> None:
        super().__init__(text)
        self.annotator = annotator


@dataclass(frozen=True)
class Message:
    """An answer as the page sends it.

    ``key`` is the page's own name for the message: one that arrives twice is one answer. ``seen``
    is the number of the annotator's newest answer about the image when the page showed it, 0 for
    none: another tab may have been faster.
    """

    annotator: str
    sample_id: str
    kind: str
    """``label``, one of ``records.NO_CLASS``, or ``skip``."""
    label: str | None
    key: str
    seen: int
    seconds: float | None = None
    """That the image was looked at."""


@dataclass(frozen=True)
class Last:
    """The annotator's newest answer at the page that is not taken back."""

    answer: int
    sample_id: str
    text: str


@dataclass(frozen=True)
class Given:
    """What an annotator says of a question at present."""

    sample_id: str
    """The image they answered for."""
    text: str
    time: str
    adjudicates: bool


@dataclass(frozen=True)
class View:
    """What the page shows one annotator; numbers are of questions."""

    image: Request | None
    together: tuple[str, ...]
    """The images that an answer counts for."""
    own: str | None
    """What the annotator says of it at present."""
    adjudicates: bool
    """Whether readers differ here, and this annotator's answer is to decide."""
    seen: int
    waiting: int
    """What waits for this annotator."""
    skipped: int
    """Of these, what they have skipped."""
    mine: int
    decided: int
    """What has an answer that counts."""
    total: int
    undecidable: int
    """What has one that is no class."""
    disputed: int
    """What readers differ in, and nobody has adjudicated."""
    read_twice: int
    unanimous: int
    kappa: float | None
    kappas: Mapping[str, float | None]
    """Finding -> kappa, where an answer may name several."""
    last: Last | None


class Desk:
    """The page's way to the queue, over the images that can be shown.

    Args:
        queue: where answers go, and whose rules count.
        known_ids: the ids of the site's images; the others that are asked for are left out of the
            page.
        classes: what may be said; an image with another class, of an earlier job, waits again.
            None: anything.
    """

    def __init__(
        self, queue: Queue, known_ids: Container[str], classes: Collection[str] | None = None
    ) -> None:
        self._queue = queue
        self._database = queue.database
        self._known = known_ids
        self.rules = queue.rules
        self._classes = classes

    def asks_otherwise(self) -> bool:
        """Return whether the newest run asks for another kind of answer than the rules take."""
        return self._queue.kind_asked() not in (None, self.rules.label_kind)

    def view(self, annotator: str, showing: str = "", *, again: bool = False) -> View:
        """Return what waits for an annotator; ``showing``, the image they look at, stays if they
        may answer it.

        They may if they have not decided it; with ``again``, also if they have.
        """
        with self._database.reading() as database:
            shown = self._shown(database)
            skipped = _skipped(database, annotator)
            waiting = [(each, each.open[0]) for each in shown if each.waits_for(annotator)]
            waiting.sort(key=lambda pair: sum(skipped.count(name) for name in pair[0].ids))
            # A question that someone else has decided meanwhile may stay: a second opinion is
            # welcome.
            staying = [
                (each, one) for each in shown for one in each.open if one.sample_id == showing
            ]
            staying = [(each, one) for each, one in staying if again or not each.by(annotator)]
            question, image = next(iter([*staying, *waiting]), (None, None))
            agreed = agreement(shown)
            own = question.by(annotator) if question else None
            verdicts = [standing for each in shown if (standing := each.standing)]
            return View(
                image=image,
                together=tuple(sorted(one.sample_id for one in question.open)) if question else (),
                own=own.text if own else None,
                adjudicates=bool(question and question.adjudicated_by(annotator)),
                seen=self._newest(database, annotator, image.sample_id) if image else 0,
                waiting=len(waiting),
                skipped=sum(bool({*each.ids} & {*skipped}) for each, _ in waiting),
                mine=sum(each.by(annotator) is not None for each in shown),
                decided=len(verdicts),
                total=len(shown),
                undecidable=sum(each.label is None for each in verdicts),
                disputed=sum(each.disputed and each.standing is None for each in shown),
                read_twice=agreed.read_twice,
                unanimous=agreed.unanimous,
                kappa=agreed.kappa,
                kappas=agreed.kappas,
                last=_last(database, annotator),
            )

    def given(self, annotator: str) -> list[Given]:
        """Return what an annotator has answered of what is asked at present, the newest first."""
        with self._database.reading() as database:
            own = [decision for each in self._shown(database) if (decision := each.by(annotator))]
        own.sort(key=lambda decision: decision.time, reverse=True)
        return [Given(each.sample_id, each.text, each.time, bool(each.adjudicates)) for each in own]

    def _shown(self, database: sqlite3.Connection) -> list[Question]:
        """Return what is asked at present and can be shown, the most wanted first."""
        found = questions(database, self.rules, self._classes)
        known = [
            replace(each, requests=tuple(one for one in each.open if one.sample_id in self._known))
            for each in found
        ]
        return [each for each in known if each.requests]

    def unseen(self) -> list[str]:
        """Return the ids that are asked for and are not among the site's images."""
        with self._database.reading() as database:
            asked = {one.sample_id for each in questions(database, self.rules) for one in each.open}
            return sorted(name for name in asked if name not in self._known)

    def asked(self) -> frozenset[str]:
        """Return the ids of all images that were ever asked for."""
        with self._database.reading() as database:
            return frozenset(
                row[0] for row in database.execute("SELECT DISTINCT sample_id FROM requests")
            )

    def answer(self, message: Message) -> None:
        """Write an answer; it is on the disk when this returns.

        Raises:
            Stale: the annotator has answered about the image since the page showed it, or the key
                is that of another message.
        """
        with self._database.writing() as database:
            known = _of_key(database, message.key)
            if known:
                if all(
                    known[name] == getattr(message, name)
                    for name in ("annotator", "sample_id", "kind", "label")
                ):
                    return
                raise Stale(message.annotator, _OTHER_MESSAGE)
            if self._newest(database, message.annotator, message.sample_id) != message.seen:
                text = "You have already answered this image, perhaps in another tab. Nothing was changed."
                raise Stale(message.annotator, text)
            given = asdict(message)
            del given["seen"]
            judges = message.kind != "skip" and self._adjudicates(database, message)
            moment = _moment(database, self.rules.together(message.sample_id))
            add_answer(database, **given, adjudicates=judges, time=moment, source="page")

    def undo(self, annotator: str, answer: int, key: str) -> str:
        """Take back the annotator's newest answer at the page; return the id of its image.

        Raises:
            Stale: ``answer`` is not that one, or the key is that of another message.
        """
        with self._database.writing() as database:
            done = _of_key(database, key)
            if done:
                if (done["annotator"], done["undoes"]) != (annotator, answer):
                    raise Stale(annotator, _OTHER_MESSAGE)
                return str(done["sample_id"])
            last = _last(database, annotator)
            if last is None or last.answer != answer:
                text = "That answer is no longer your newest, perhaps because of another tab. Nothing was undone."
                raise Stale(annotator, text)
            own = {
                "sample_id": last.sample_id,
                "annotator": annotator,
                "key": key,
                "source": "page",
            }
            moment = _moment(database, self.rules.together(last.sample_id))
            add_answer(database, **own, kind="undo", undoes=answer, time=moment)
            return last.sample_id

    def _adjudicates(self, database: sqlite3.Connection, message: Message) -> bool:
        found = questions(database, self.rules, self._classes) if self.rules.readers > 1 else []
        return any(
            each.adjudicated_by(message.annotator)
            for each in found
            if message.sample_id in each.ids
        )

    def _newest(self, database: sqlite3.Connection, annotator: str, sample_id: str) -> int:
        ids = self.rules.together(sample_id)
        query = f"SELECT coalesce(max(answer), 0) FROM answers WHERE annotator = ? AND sample_id IN ({places(ids)})"
        return int(database.execute(query, [annotator, *ids]).fetchone()[0])


def _of_key(database: sqlite3.Connection, key: str) -> sqlite3.Row | None:
    """Return what a message has become, if it came before."""
    row: sqlite3.Row | None = database.execute(
        "SELECT * FROM answers WHERE key = ?", [key]
    ).fetchone()
    return row


def _skipped(database: sqlite3.Connection, annotator: str) -> list[str]:
    """Return the images that an annotator skipped, one as often as they did."""
    rows = database.execute(
        "SELECT sample_id FROM standing WHERE kind = 'skip' AND annotator = ?", [annotator]
    )
    return [row["sample_id"] for row in rows]


def _last(database: sqlite3.Connection, annotator: str) -> Last | None:
    row = database.execute(
        "SELECT * FROM standing WHERE annotator = ? AND source = 'page' ORDER BY answer DESC LIMIT 1",
        [annotator],
    ).fetchone()
    if row is None:
        return None
    text = {"skip": "skipped", "label": row["label"]}.get(row["kind"], row["kind"])
    return Last(row["answer"], row["sample_id"], text)


def _moment(database: sqlite3.Connection, ids: Sequence[str]) -> str:
    """Return now, or just after the newest answer to a question, lest a clock set back make a new
    one the older.
    """
    newest = database.execute(
        f"SELECT max(time) FROM answers WHERE sample_id IN ({places(ids)})", ids
    ).fetchone()[0]
    now = times.now()
    return now if newest is None or newest < now else times.after(newest)
