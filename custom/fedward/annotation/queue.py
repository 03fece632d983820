"""The site's queue of questions and answers: what the federation asks, what clinicians say."""

import math
import sqlite3
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from pathlib import Path

from fedward.annotation import handover, times
from fedward.annotation.database import Database
from fedward.annotation.merge import merge
from fedward.annotation.questions import agreement, asked, decisions_by_image, questions
from fedward.annotation.reading import read_rules
from fedward.annotation.records import NOBODY, Agreement, Decision, Imported, Request
from fedward.annotation.rules import Rules
from fedward.label_kinds import ONE_LABEL, LabelKind, kind_of_field


def queue_folder(site_file: Path) -> Path:
    """Return where the queue of a site lies: ``annotation/<name of the site file>/`` beside the
    file itself.

    ``fedward annotate SITE_FILE`` is given the file, and a FLARE site finds the same one with
    ``find_site_file``; links are followed, so both mean the same folder.
    """
    file = site_file.resolve()
    return file.parent / "annotation" / file.stem


def queue_of(site_file: Path, label_kind: LabelKind = ONE_LABEL) -> "Queue":
    """Return the queue of a site, read by the rules in its file.

    ``label_kind``: what an image of the job may show.

    Raises:
        DataError: the site file, its CSV or the queue cannot be used.
    """
    return Queue(queue_folder(site_file), read_rules(site_file, label_kind))


class Queue:
    """Requests and answers in a folder; made there at first use.

    Processes and threads may use it at once: each call is one transaction. Raises DataError where
    the folder's disk does not let it. ``rules`` say which answers count.
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
        """Ask for the classes of images; return how many requests are new.

        The same image asked for again by the same run, round and strategy changes nothing, so a
        round can be resumed. No images at all are a sign of life: a run's questions are withdrawn
        once a later run has begun, until it comes again.

        Args:
            run: the run's id.
            round_: the round in which the strategy asks.
            strategy: its name.
            ids: the site's sample ids, without repetition.
            scores: one for each id, finite or None; higher is asked first.

        Raises:
            ValueError: an empty or repeated id, a score that is not finite, or lengths that differ.
        """
        given: Sequence[float | None] = [None] * len(ids) if scores is None else scores
        if len(given) != len(ids) or len(set(ids)) != len(ids) or not all(ids):
            raise ValueError(
                f"expected different, non-empty ids with a score each, got {len(ids)} and {len(given)}"
            )
        known = [None if score is None else float(score) for score in given]
        if not all(score is None or math.isfinite(score) for score in known):
            raise ValueError("expected finite scores")
        time = times.now()
        rows = [(run, round_, strategy, *image, time) for image in zip(ids, known, strict=True)]
        insert = "INSERT INTO requests (run, round, strategy, sample_id, score, time) VALUES (?, ?, ?, ?, ?, ?)"
        with self.database.writing() as database:
            _show_life(database, run, self.rules.label_kind)
            before = database.total_changes
            database.executemany(f"{insert} ON CONFLICT DO NOTHING", rows)
            return database.total_changes - before

    def kind_asked(self) -> LabelKind | None:
        """Return the kind of labels that the newest run asks for; None where no run says so."""
        with self.database.reading() as database:
            row = database.execute("SELECT several FROM runs ORDER BY last DESC LIMIT 1").fetchone()
        if row is None or row[0] is None:
            return None
        return kind_of_field(bool(row[0]))

    def pending(self) -> list[Request]:
        """Return what waits for an answer, one image of each question: newest requests first, then
        by falling score.

        Those that only runs which are over have asked about are left out.
        """
        with self.database.reading() as database:
            return [
                each.open[0]
                for each in questions(database, self.rules)
                if each.open and not each.standing
            ]

    def verdicts(self, classes: Collection[str] | None = None) -> dict[str, Decision]:
        """Return sample id -> the decision that counts, of all images asked for or answered that
        have one.

        Undone decisions do not count. An annotator's own later decision replaces the earlier one.
        With ``classes``, a decision that names another class is none.
        """
        with self.database.reading() as database:
            found = [(each.ids, each.standing) for each in questions(database, self.rules, classes)]
        return {name: standing for ids, standing in found if standing for name in ids}

    def labels(self) -> dict[str, str]:
        """Return sample id -> class, of the images whose verdict is a class."""
        return {
            name: each.label for name, each in self.verdicts().items() if each.label is not None
        }

    def cannot_tell(self) -> frozenset[str]:
        """Return the ids of images that were looked at, and whose verdict is no class."""
        return frozenset(name for name, each in self.verdicts().items() if each.label is None)

    def decisions(self) -> list[Decision]:
        """Return what each annotator says of each image at present, by sample id, the newest first."""
        with self.database.reading() as database:
            return decisions_by_image(questions(database, self.rules))

    def agreement(self) -> Agreement:
        """Return how far annotators agree."""
        with self.database.reading() as database:
            return agreement(questions(database, self.rules))

    def import_labels(
        self,
        path: Path,
        classes: Collection[str],
        known_ids: Container[str],
        *,
        names: Mapping[str, str] | None = None,
    ) -> Imported:
        """Take in a file that came back: CSV, Label Studio JSON or a MONAI Label datastore folder.

        The same file twice changes nothing. Nothing is dropped in silence: answers about ids that
        are not among ``known_ids`` are kept and listed, entries that are no answer are listed, and
        of answers that differ the one with the newest time stands.

        Args:
            path: the file or folder.
            classes: the job's classes.
            known_ids: the ids of the site's images.
            names: the site's or the reader's word -> the job's class; a class's own name means that
                class.

        Raises:
            DataError: the file cannot be read at all.
        """
        returned = handover.read(path)
        source = f"{returned.form} {path.name}"
        moment = min(times.from_seconds(handover.written(path)), times.now())
        # A class's own name comes last: what was exported means the same when it returns.
        words = {**(names or {}), **{name: name for name in classes}}
        with self.database.writing() as database:
            blank = Decision("", NOBODY, "", None, moment, source)
            return merge(database, returned, words, known_ids, blank, self.rules)

    def export(
        self, form: str, path: Path, classes: Sequence[str], picture: Callable[[str], bytes]
    ) -> handover.Exported:
        """Hand the queue over as a file or folder that must not exist yet; see
        :mod:`fedward.annotation.handover`.

        Args:
            form: one of ``handover.FORMS``.
            path: of the CSV, or of the folder.
            classes: the job's classes.
            picture: sample id -> PNG; raises DataError for an image that cannot be shown.

        Raises:
            ConfigError: the path exists.
            DataError: it cannot be written.
        """
        with self.database.reading() as database:
            known = questions(database, self.rules)
            requests = asked(database)
        waiting = [each.open[0] for each in known if each.open and not each.standing]
        content = handover.Content(waiting, decisions_by_image(known), requests, self.rules)
        return handover.write(form, path, content, classes, picture)


def _show_life(database: sqlite3.Connection, run: str, label_kind: LabelKind) -> None:
    turn = database.execute("SELECT coalesce(max(last), 0) + 1 FROM runs").fetchone()[0]
    insert = "INSERT INTO runs (run, first, last, several) VALUES (?, ?, ?, ?)"
    database.execute(
        f"{insert} ON CONFLICT (run) DO UPDATE SET last = excluded.last",
        [run, turn, turn, label_kind.multi_label],
    )
