"""The site's queue: questions of the federation, and answers of clinicians."""

import math
import sqlite3
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path

from fedward.annotation import handover, times
from fedward.annotation.checks import OwnAgreement, own_agreement
from fedward.annotation.database import Database, is_there
from fedward.annotation.merge import merge
from fedward.annotation.questions import (
    Question,
    agreement,
    asked,
    decisions_by_image,
    questions,
)
from fedward.annotation.reading import read_rules
from fedward.annotation.records import NOBODY, Agreement, Decision, Imported, Request
from fedward.annotation.rules import Rules
from fedward.label_kinds import ONE_LABEL, LabelKind, kind_of_field

_INSERT_REQUEST = """
INSERT INTO requests (run, round, strategy, sample_id, score, time)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_INSERT_RUN = """
INSERT INTO runs (run, first, last, several)
VALUES (?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET last = excluded.last
"""


def queue_folder(site_file: Path) -> Path:
    """Return the folder of a site's queue: ``annotation/<name of the site file>/`` beside the file.

    ``fedward annotate SITE_FILE`` is given the file, and a FLARE site finds the same one with
    ``find_site_file``. Links are followed, so both mean the same folder.
    """
    file = site_file.resolve()
    return file.parent / "annotation" / file.stem


def has_queue(site_file: Path) -> bool:
    """Return whether a site has a queue, even a damaged one; to open one makes it."""
    return is_there(queue_folder(site_file))


def queue_of(site_file: Path, label_kind: LabelKind = ONE_LABEL) -> "Queue":
    """Return the queue of a site, with the rules in its file.

    Args:
        site_file: the file that describes the site's images.
        label_kind: what an image of the job may show.

    Raises:
        DataError: the site file, its CSV or the queue cannot be used.
    """
    return Queue(queue_folder(site_file), read_rules(site_file, label_kind))


class Queue:
    """Requests and answers in a folder.

    Processes and threads may use it at once, because each call is one transaction. Every method
    raises DataError if the folder's disk fails.

    Args:
        folder: where the queue is, and is made at first use.
        rules: which answers count; by default those of one reader.
    """

    def __init__(self, folder: Path, rules: Rules | None = None) -> None:
        self.folder = folder
        self.rules = rules or Rules()
        self.database = Database(folder)

    def request(
        self,
        run: str,
        round_: int,
        strategy: str,
        ids: Sequence[str],
        scores: Sequence[float | None] | None = None,
    ) -> int:
        """Ask for the classes of images.

        To ask for the same image again in the same run, round and strategy changes nothing, so a
        round can be resumed. A call without images is a sign of life: a run's questions are
        withdrawn once a later run has begun, until the run calls again.

        Args:
            run: the run's id.
            round_: the round in which the strategy asks.
            strategy: its name.
            ids: the site's sample ids, without repetition.
            scores: one for each id, finite or None; a higher one is asked first.

        Returns:
            The number of new requests.

        Raises:
            ValueError: an id is empty or repeated, a score is not finite, or the lengths differ.
        """
        if scores is None:
            scores = [None] * len(ids)
        if len(scores) != len(ids) or len(set(ids)) != len(ids) or not all(ids):
            raise ValueError(
                "expected different, non-empty ids with a score each, "
                f"got {len(ids)} and {len(scores)}"
            )
        if any(score is not None and not math.isfinite(score) for score in scores):
            raise ValueError("expected finite scores")
        # SQLite takes numbers of Python alone, and methods give those of NumPy or torch too.
        numbers = [None if score is None else float(score) for score in scores]
        with self.database.writing() as database:
            newest = database.execute("SELECT max(time) FROM requests").fetchone()[0]
            time = times.now_after(newest)
            rows = [
                (run, round_, strategy, sample_id, number, time)
                for sample_id, number in zip(ids, numbers, strict=True)
            ]
            _show_life(database, run, self.rules.label_kind)
            changes_before = database.total_changes
            database.executemany(_INSERT_REQUEST, rows)
            return database.total_changes - changes_before

    def kind_asked(self) -> LabelKind | None:
        """Return the kind of labels that the newest run asks for; None before any run asks."""
        with self.database.reading() as database:
            row = database.execute("SELECT several FROM runs ORDER BY last DESC LIMIT 1").fetchone()
        if row is None:
            return None
        return kind_of_field(bool(row[0]))

    def pending(self) -> list[Request]:
        """Return one request of each question that waits for an answer.

        The newest requests come first, and of these the ones with the highest scores. Questions
        that only runs which are over have asked are left out, and so are those with a decision that
        names a class of an earlier job, which the page asks again.
        """
        with self.database.reading() as database:
            return _first_requests(questions(database, self.rules))

    def verdicts(self, classes: Collection[str] | None = None) -> dict[str, Decision]:
        """Return sample id -> the decision that counts, for images that have one.

        Undone decisions do not count, and an annotator's later decision replaces the earlier one.

        Args:
            classes: the job's classes; decisions that name another class do not count. None: any.
        """
        with self.database.reading() as database:
            asked_or_answered = questions(database, self.rules, classes)
        verdicts = {}
        for question in asked_or_answered:
            standing = question.standing
            if standing is not None:
                for sample_id in question.ids:
                    verdicts[sample_id] = standing
        return verdicts

    def labels(self) -> dict[str, str]:
        """Return sample id -> class, for the images whose verdict is a class."""
        labels = {}
        for sample_id, decision in self.verdicts().items():
            if decision.label is not None:
                labels[sample_id] = decision.label
        return labels

    def cannot_tell(self) -> frozenset[str]:
        """Return the ids of the images whose verdict is not a class."""
        verdicts = self.verdicts()
        return frozenset(name for name, decision in verdicts.items() if decision.label is None)

    def decisions(self) -> list[Decision]:
        """Return the decision of each annotator on each image, by sample id, the newest first."""
        with self.database.reading() as database:
            return decisions_by_image(questions(database, self.rules))

    def agreement(self) -> Agreement:
        """Return how far annotators agree."""
        with self.database.reading() as database:
            return agreement(questions(database, self.rules))

    def own_agreement(self) -> dict[str, OwnAgreement]:
        """Return reader -> how often they agree with themselves and with known classes."""
        with self.database.reading() as database:
            return own_agreement(database, self.rules)

    def import_labels(
        self,
        path: Path,
        classes: Collection[str],
        known_ids: Container[str],
        *,
        names: Mapping[str, str] | None = None,
    ) -> Imported:
        """Import a returned file: a CSV, Label Studio's JSON or a MONAI Label datastore folder.

        To import the same file twice changes nothing. Nothing is dropped in silence: answers about
        ids that are not among ``known_ids`` are stored and listed, entries that are not answers are
        listed, and so are answers that differ, with the one that counts.

        Args:
            path: the file or folder.
            classes: the job's classes.
            known_ids: the ids of the site's images.
            names: the site's or the reader's word -> the job's class. The name of a class always
                means that class.

        Raises:
            DataError: the file cannot be read at all.
        """
        returned = handover.read(path)
        source = f"{returned.form} {path.name}"
        moment = min(times.from_seconds(handover.written(path)), times.now())
        words = dict(names or {})
        # The names of classes come last: an exported label means the same when it returns.
        words.update({name: name for name in classes})
        blank = Decision("", NOBODY, "", None, moment, source)
        with self.database.writing() as database:
            return merge(database, returned, words, known_ids, blank, self.rules)

    def export(
        self, form: str, path: Path, classes: Sequence[str], picture: Callable[[str], bytes]
    ) -> handover.Exported:
        """Write the queue to a new file or folder; see :mod:`fedward.annotation.handover`.

        Args:
            form: one of ``handover.FORMS``.
            path: the CSV or the folder, which must not exist yet.
            classes: the job's classes; decisions that name another class are left out, as an import
                would refuse them, and their questions wait again.
            picture: sample id -> PNG; raises DataError for an image that cannot be shown.

        Raises:
            ConfigError: the path exists.
            DataError: it cannot be written.
        """
        with self.database.reading() as database:
            asked_or_answered = questions(database, self.rules, classes)
            requests = asked(database)
        content = handover.Content(
            pending=_first_requests(asked_or_answered),
            decisions=decisions_by_image(asked_or_answered),
            requests=requests,
            rules=self.rules,
        )
        return handover.write(form, path, content, classes, picture)


def _first_requests(asked_or_answered: Iterable[Question]) -> list[Request]:
    """Return the most wanted request of each question that waits for an answer."""
    return [
        question.open[0]
        for question in asked_or_answered
        if question.open and not question.standing
    ]


def _show_life(database: sqlite3.Connection, run: str, label_kind: LabelKind) -> None:
    """Record that a run is at work: its number becomes higher than that of all others."""
    turn = database.execute("SELECT coalesce(max(last), 0) + 1 FROM runs").fetchone()[0]
    database.execute(_INSERT_RUN, [run, turn, turn, label_kind.multi_label])
