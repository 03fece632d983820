"""The site's queue of questions and answers: what the federation asks, what clinicians say."""

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from fedward.annotation import handover, times
from fedward.annotation.database import Database
from fedward.annotation.merge import merge
from fedward.annotation.records import DECISION, NOBODY, Agreement, Conflict, Decision, Imported, Request

_USABLE = "(:classes IS NULL OR label IS NULL OR label IN (SELECT value FROM json_each(:classes)))"
"""Whether a decision is "cannot tell" or one of the classes, where these are given as JSON."""


def queue_folder(site_file: Path) -> Path:
    """Return where the queue of a site lies: ``annotation/<name of the site file>/`` beside the file itself.

    ``fedward annotate SITE_FILE`` is given the file, and a FLARE site finds the same one with ``find_site_file``; links
    are followed, so both mean the same folder.
    """
    file = site_file.resolve()
    return file.parent / "annotation" / file.stem


class Queue:
    """Requests and answers in a folder; made there at first use.

    Processes and threads may use it at once: each call is one transaction. Raises DataError where the folder's disk
    does not let it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = Database(folder)

    def request(
        self, run: str, round_: int, strategy: str, ids: Sequence[str], scores: Sequence[float | None] | None = None
    ) -> int:
        """Ask for the classes of images; return how many requests are new.

        The same image asked for again by the same run, round and strategy changes nothing, so a round can be resumed.
        No images at all are a sign of life: a run's questions are withdrawn once a later run has begun, until it comes
        again.

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
            raise ValueError(f"expected different, non-empty ids with a score each, got {len(ids)} and {len(given)}")
        known = [None if score is None else float(score) for score in given]
        if not all(score is None or math.isfinite(score) for score in known):
            raise ValueError("expected finite scores")
        time = times.now()
        rows = [(run, round_, strategy, *image, time) for image in zip(ids, known, strict=True)]
        insert = "INSERT INTO requests (run, round, strategy, sample_id, score, time) VALUES (?, ?, ?, ?, ?, ?)"
        with self.database.writing() as database:
            _show_life(database, run)
            before = database.total_changes
            database.executemany(f"{insert} ON CONFLICT DO NOTHING", rows)
            return database.total_changes - before

    def pending(self) -> list[Request]:
        """Return the images asked for that nobody has decided: newest requests first, then by falling score.

        Those that only runs which are over have asked about are left out.
        """
        with self.database.reading() as database:
            return pending(database)

    def labels(self) -> dict[str, str]:
        """Return sample id -> class: the newest decision of any annotator, whoever asked for it.

        Undone decisions do not count. An annotator's own later "cannot tell" withdraws their class; another's does not.
        """
        with self.database.reading() as database:
            return {row["sample_id"]: row["label"] for row in database.execute("SELECT sample_id, label FROM labels")}

    def cannot_tell(self) -> frozenset[str]:
        """Return the ids of images that were looked at, and that nobody could give a class."""
        with self.database.reading() as database:
            rows = database.execute("SELECT sample_id FROM decisions EXCEPT SELECT sample_id FROM labels")
            return frozenset(row["sample_id"] for row in rows)

    def decisions(self) -> list[Decision]:
        """Return what each annotator says of each image at present, by sample id, the newest first."""
        with self.database.reading() as database:
            return decisions(database)

    def agreement(self) -> Agreement:
        """Return how far annotators agree; of a dispute, ``kept`` is the newest decision."""
        return agreement(self.decisions())

    def import_labels(
        self,
        path: Path,
        classes: Collection[str],
        known_ids: Collection[str],
        *,
        names: Mapping[str, str] | None = None,
    ) -> Imported:
        """Take in a file that came back: CSV, Label Studio JSON or a MONAI Label datastore folder.

        The same file twice changes nothing. Nothing is dropped in silence: answers about ids that are not among
        ``known_ids`` are kept and listed, entries that are no answer are listed, and of answers that differ the one
        with the newest time stands.

        Args:
            path: the file or folder.
            classes: the job's classes.
            known_ids: the ids of the site's images.
            names: the site's or the reader's word -> the job's class; a class's own name means that class.

        Raises:
            DataError: the file cannot be read at all.
        """
        returned = handover.read(path)
        source = f"{returned.form} {path.name}"
        moment = min(times.from_seconds(handover.written(path)), times.now())
        # A class's own name comes last: what was exported means the same when it returns.
        words = {**(names or {}), **{name: name for name in classes}}
        with self.database.writing() as database:
            return merge(database, returned, words, known_ids, Decision("", NOBODY, None, moment, source))

    def export(
        self, form: str, path: Path, classes: Sequence[str], picture: Callable[[str], bytes]
    ) -> handover.Exported:
        """Hand the queue over as a file or folder that must not exist yet; see :mod:`fedward.annotation.handover`.

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
            content = handover.Content(pending(database), decisions(database), asked(database))
        return handover.write(form, path, content, classes, picture)


def pending(
    database: sqlite3.Connection, annotator: str = "", readers: int = 1, classes: Collection[str] | None = None
) -> list[Request]:
    """Return the images that fewer than ``readers`` people have decided, this annotator not among them.

    What the annotator skipped comes last; else newest requests first, then by falling score. With ``classes``, another
    class is no decision.
    """
    rows = database.execute(
        f"""
        WITH made AS (
            SELECT sample_id, count(*) AS readings, max(annotator = :annotator) AS mine
            FROM decisions WHERE {_USABLE} GROUP BY sample_id
        ), skipped AS (
            SELECT sample_id, count(*) AS skips
            FROM standing WHERE kind = 'skip' AND annotator = :annotator GROUP BY sample_id
        )
        SELECT asked.* FROM asked LEFT JOIN made USING (sample_id) LEFT JOIN skipped USING (sample_id)
        WHERE NOT withdrawn AND coalesce(readings, 0) < :readers AND NOT coalesce(mine, 0)
        ORDER BY coalesce(skips, 0), time DESC, score DESC NULLS LAST, sample_id
        """,
        {"annotator": annotator, "readers": readers, "classes": _listed(classes)},
    )
    return [_request(row) for row in rows]


def asked(database: sqlite3.Connection) -> dict[str, Request]:
    """Return the newest request of each image asked for, withdrawn ones too."""
    return {row["sample_id"]: _request(row) for row in database.execute("SELECT * FROM asked ORDER BY sample_id")}


def decisions(database: sqlite3.Connection, classes: Collection[str] | None = None) -> list[Decision]:
    """Return what each annotator says of each image at present, by sample id, the newest first.

    With ``classes``, those that name another class are left out.
    """
    query = f"SELECT {DECISION} FROM decisions WHERE {_USABLE} ORDER BY sample_id, time DESC, answer DESC"
    return [Decision(*row) for row in database.execute(query, {"classes": _listed(classes)})]


def agreement(made: Sequence[Decision]) -> Agreement:
    """Return how far annotators agree over the images that two or more gave a class."""
    by_image: dict[str, list[Decision]] = defaultdict(list)
    for decision in made:
        if decision.label is not None:
            by_image[decision.sample_id].append(decision)
    twice = {sample_id: said for sample_id, said in by_image.items() if len(said) > 1}
    disputed = [
        Conflict(sample_id, said[0], tuple(other for other in said if other.label != said[0].label))
        for sample_id, said in twice.items()
        if len({decision.label for decision in said}) > 1
    ]
    return Agreement(len(twice), len(twice) - len(disputed), tuple(disputed))


def _listed(classes: Collection[str] | None) -> str | None:
    return None if classes is None else json.dumps(sorted(classes))


def _show_life(database: sqlite3.Connection, run: str) -> None:
    turn = database.execute("SELECT coalesce(max(last), 0) + 1 FROM runs").fetchone()[0]
    insert = "INSERT INTO runs VALUES (?, ?, ?) ON CONFLICT (run) DO UPDATE SET last = excluded.last"
    database.execute(insert, [run, turn, turn])


def _request(row: sqlite3.Row) -> Request:
    fields = {name: row[name] for name in ("sample_id", "run", "round", "strategy", "score", "time")}
    return Request(**fields, withdrawn=bool(row["withdrawn"]))
