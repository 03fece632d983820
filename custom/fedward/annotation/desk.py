"""What one clinician at the page may do: see what waits for them, answer, skip, take back."""

import sqlite3
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass

from fedward.annotation import times
from fedward.annotation.database import add_answer
from fedward.annotation.queue import Queue, agreement, asked, decisions, pending
from fedward.annotation.records import CANNOT_TELL, Request


class Stale(Exception):  # noqa: N818 - not an error of the program: the page reloads its view
    """The page answered for an annotator from a view that is no longer true; nothing was written."""

    def __init__(self, annotator: str, text: str) -> None:
        super().__init__(text)
        self.annotator = annotator


@dataclass(frozen=True)
class Message:
    """An answer as the page sends it.

    ``key`` is the page's own name for the message: one that arrives twice is one answer. ``seen`` is the number of the
    annotator's newest answer about the image when the page showed it, 0 for none: another tab may have been faster.
    """

    annotator: str
    sample_id: str
    kind: str
    """``label``, ``cannot tell`` or ``skip``."""
    label: str | None
    key: str
    seen: int


@dataclass(frozen=True)
class Last:
    """The annotator's newest answer at the page that is not taken back."""

    answer: int
    sample_id: str
    text: str


@dataclass(frozen=True)
class View:
    """What the page shows one annotator."""

    image: Request | None
    seen: int
    waiting: int
    """Images that wait for this annotator."""
    skipped: int
    """Of these, the ones they have skipped."""
    mine: int
    decided: int
    """Images that have as many decisions as are wanted."""
    total: int
    undecidable: int
    """Images asked for that were decided, and that nobody could give a class."""
    read_twice: int
    unanimous: int
    last: Last | None


class Desk:
    """The page's way to the queue, over the images that can be shown.

    Args:
        queue: where answers go.
        known_ids: the ids of the site's images; the others that are asked for are left out of the page.
        readers: how many people are to decide each image, at least 1.
        classes: what they may say; an image with another class, of an earlier job, waits again. None: anything.
    """

    def __init__(
        self, queue: Queue, known_ids: Collection[str], readers: int = 1, classes: Collection[str] | None = None
    ) -> None:
        self._database, self._known, self.readers = queue.database, frozenset(known_ids), readers
        self._classes = classes

    def view(self, annotator: str, showing: str = "") -> View:
        """Return what waits for an annotator; ``showing``, the image they look at, stays if it still waits."""
        with self._database.reading() as database:
            open_ = pending(database, annotator, self.readers, self._classes)
            waiting = [each for each in open_ if each.sample_id in self._known]
            requests = {
                name: each for name, each in asked(database).items() if name in self._known and not each.withdrawn
            }
            made = [each for each in decisions(database, self._classes) if each.sample_id in requests]
            mine = {each.sample_id for each in made if each.annotator == annotator}
            image = next((each for each in waiting if each.sample_id == showing), waiting[0] if waiting else None)
            if showing in requests and showing not in mine:
                image = requests[showing]  # someone else has decided it meanwhile; a second opinion is welcome
            agreed, readings = agreement(made), Counter(each.sample_id for each in made)
            return View(
                image=image,
                seen=_newest(database, annotator, image.sample_id) if image else 0,
                waiting=len(waiting),
                skipped=len(_skipped(database, annotator) & {each.sample_id for each in waiting}),
                mine=len(mine),
                decided=sum(count >= self.readers for count in readings.values()),
                total=len(requests),
                undecidable=len(set(readings) - {each.sample_id for each in made if each.label is not None}),
                read_twice=agreed.read_twice,
                unanimous=agreed.unanimous,
                last=_last(database, annotator),
            )

    def unseen(self) -> list[str]:
        """Return the ids that are asked for and are not among the site's images."""
        with self._database.reading() as database:
            return sorted({name for name, each in asked(database).items() if not each.withdrawn} - self._known)

    def answer(self, message: Message) -> None:
        """Write an answer; it is on the disk when this returns.

        Raises:
            Stale: the annotator has answered about the image since the page showed it.
        """
        with self._database.writing() as database:
            if database.execute("SELECT 1 FROM answers WHERE key = ?", [message.key]).fetchone():
                return
            if _newest(database, message.annotator, message.sample_id) != message.seen:
                text = "You have already answered this image, perhaps in another tab. Nothing was changed."
                raise Stale(message.annotator, text)
            given = asdict(message)
            del given["seen"]
            add_answer(database, **given, time=_moment(database, message.sample_id), source="page")

    def undo(self, annotator: str, answer: int, key: str) -> str:
        """Take back the annotator's newest answer at the page; return the id of its image.

        Raises:
            Stale: ``answer`` is not that one.
        """
        with self._database.writing() as database:
            done = database.execute("SELECT sample_id FROM answers WHERE key = ? AND kind = 'undo'", [key]).fetchone()
            if done is not None:
                return str(done["sample_id"])
            last = _last(database, annotator)
            if last is None or last.answer != answer:
                text = "That answer is no longer your newest, perhaps because of another tab. Nothing was undone."
                raise Stale(annotator, text)
            own = {"sample_id": last.sample_id, "annotator": annotator, "key": key, "source": "page"}
            add_answer(database, **own, kind="undo", undoes=answer, time=_moment(database, last.sample_id))
            return last.sample_id


def _newest(database: sqlite3.Connection, annotator: str, sample_id: str) -> int:
    query = "SELECT coalesce(max(answer), 0) FROM answers WHERE annotator = ? AND sample_id = ?"
    return int(database.execute(query, [annotator, sample_id]).fetchone()[0])


def _skipped(database: sqlite3.Connection, annotator: str) -> set[str]:
    rows = database.execute("SELECT sample_id FROM standing WHERE kind = 'skip' AND annotator = ?", [annotator])
    return {row["sample_id"] for row in rows}


def _last(database: sqlite3.Connection, annotator: str) -> Last | None:
    row = database.execute(
        "SELECT * FROM standing WHERE annotator = ? AND source = 'page' ORDER BY answer DESC LIMIT 1", [annotator]
    ).fetchone()
    if row is None:
        return None
    texts = {"skip": "skipped", CANNOT_TELL: CANNOT_TELL}
    return Last(row["answer"], row["sample_id"], texts.get(row["kind"], row["label"]))


def _moment(database: sqlite3.Connection, sample_id: str) -> str:
    """Return now, or just after the image's newest answer, lest a clock set back make a new answer the older one."""
    newest = database.execute("SELECT max(time) FROM answers WHERE sample_id = ?", [sample_id]).fetchone()[0]
    now = times.now()
    return now if newest is None or newest < now else times.after(newest)
