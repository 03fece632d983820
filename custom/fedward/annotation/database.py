"""The queue's file: one SQLite database that processes share, and that survives the death of any of
them.

Write-ahead logging lets the site's job read and add requests while the page writes answers;
``synchronous=FULL`` puts each transaction on the disk before it is acknowledged. It needs a local
disk: write-ahead logging shares memory between processes, which network file systems do not offer.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sized
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from fedward.annotation import times
from fedward.errors import DataError

NAME = "queue.sqlite"
_WAIT = 30.0  # seconds for another process to finish its transaction

_ANSWERS = """
CREATE TABLE answers (
    answer INTEGER PRIMARY KEY AUTOINCREMENT,
    sample_id TEXT NOT NULL,
    annotator TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('label', {kinds}, 'skip', 'undo')),
    label TEXT CHECK ((kind = 'label') = (label IS NOT NULL)),
    time TEXT NOT NULL,        -- of the decision
    recorded TEXT NOT NULL,    -- of this row
    source TEXT NOT NULL,      -- 'page', or the file it came in
    undoes INTEGER UNIQUE REFERENCES answers (answer) CHECK ((kind = 'undo') = (undoes IS NOT NULL)),
    -- of the page's message, which may arrive twice
    key TEXT UNIQUE{more}
);
CREATE INDEX answers_by_sample ON answers (sample_id, annotator);

CREATE TRIGGER answers_are_never_changed BEFORE UPDATE ON answers
BEGIN SELECT RAISE(ABORT, 'answers are append-only'); END;
CREATE TRIGGER answers_are_never_deleted BEFORE DELETE ON answers
BEGIN SELECT RAISE(ABORT, 'answers are append-only'); END;

-- Answers that nobody took back.
CREATE VIEW standing AS
SELECT a.* FROM answers AS a LEFT JOIN answers AS u ON u.undoes = a.answer
WHERE a.kind != 'undo' AND u.answer IS NULL;

-- What each annotator says of each image at present.
CREATE VIEW decisions AS
SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY sample_id, annotator ORDER BY time DESC, answer DESC) AS nth
    FROM standing WHERE kind != 'skip'
) WHERE nth = 1;
"""
_FIRST = (
    """
CREATE TABLE requests (
    request INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    strategy TEXT NOT NULL,
    sample_id TEXT NOT NULL,
    score REAL,
    time TEXT NOT NULL,
    UNIQUE (run, round, strategy, sample_id)
);
CREATE INDEX requests_by_sample ON requests (sample_id);
"""
    + _ANSWERS.format(kinds="'cannot tell'", more="")
    + """
-- The newest class of each image; who cannot tell, abstains.
CREATE VIEW labels AS
SELECT sample_id, label, annotator, time FROM (
    SELECT *, row_number() OVER (PARTITION BY sample_id ORDER BY time DESC, answer DESC) AS newest
    FROM decisions WHERE kind = 'label'
) WHERE newest = 1;
"""
)
_SECOND = """
-- When a run was first here and when last, by a count that goes on with every sign of life.
CREATE TABLE runs (run TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL);
INSERT INTO runs SELECT run, min(request), max(request) FROM requests GROUP BY run;

DROP VIEW IF EXISTS asked;
DROP VIEW IF EXISTS queue;

-- Each image asked for, by its newest request; by one of a run that goes on, if there is any. What a run asked is
-- withdrawn once a later run has begun, unless it is here again after that.
CREATE VIEW asked AS
SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY sample_id ORDER BY withdrawn, request DESC) AS nth FROM (
        SELECT requests.*, last < (SELECT max(first) FROM runs) AS withdrawn FROM requests JOIN runs USING (run)
    )
) WHERE nth = 1;

-- For people with a database browser.
CREATE VIEW queue AS
SELECT asked.sample_id, request, strategy, score, round, run,
       CASE WHEN labels.label IS NOT NULL THEN 'labelled'
            WHEN decisions.kind IS NOT NULL THEN decisions.kind
            WHEN withdrawn THEN 'withdrawn'
            ELSE 'pending' END AS status,
       decisions.label, decisions.annotator, decisions.time
FROM asked LEFT JOIN decisions USING (sample_id) LEFT JOIN labels USING (sample_id);
"""
_THIRD = (
    """
DROP VIEW queue;
DROP VIEW labels;
DROP VIEW decisions;
DROP VIEW standing;
DROP TRIGGER answers_are_never_changed;
DROP TRIGGER answers_are_never_deleted;
DROP INDEX answers_by_sample;
ALTER TABLE answers RENAME TO former;
"""
    + _ANSWERS.format(
        kinds="'cannot tell', 'unusable', 'none of these'",
        more=""",
    seconds REAL,              -- that the image was looked at, where the page knows
    adjudicates INTEGER NOT NULL DEFAULT 0  -- 1: readers differed, and this was to decide between them""",
    )
    + """
INSERT INTO answers SELECT *, NULL, 0 FROM former;
DROP TABLE former;

-- For people with a database browser. It knows nothing of lesions and of how many readers are wanted.
CREATE VIEW queue AS
SELECT asked.sample_id, request, strategy, score, round, run,
       CASE WHEN decisions.kind = 'label' THEN 'labelled'
            WHEN decisions.kind IS NOT NULL THEN decisions.kind
            WHEN withdrawn THEN 'withdrawn'
            ELSE 'pending' END AS status,
       decisions.label, decisions.annotator, decisions.time
FROM asked LEFT JOIN decisions USING (sample_id);
"""
)
_FOURTH = """
-- 1: the run's job takes several findings of an image, 0: one class; NULL: not known, from an older format.
ALTER TABLE runs ADD COLUMN several INTEGER;
"""
_SCHEMAS = (_FIRST, _SECOND, _THIRD, _FOURTH)
"""What each format adds to the one before; an older file is brought up to date when it is opened.
"""

_FOREIGN = (
    "It is no queue: move it elsewhere, with its -wal and -shm, and a new one is made in its place."
)
_RESTORE = "It was removed or emptied meanwhile: put back a backup, and start the program again."
_REMEDIES = {
    "not a database": _FOREIGN,
    "already exists": _FOREIGN,
    "malformed": f"Put back a backup, or what `sqlite3 {NAME} .recover` still reads of it. Keep the damaged file.",
    "locked": "Another process holds it, perhaps a database browser. End that one, and try again. Leave the file.",
    "no such table": _RESTORE,
    "full": "Make room on its disk, and try again. Leave the file: it holds the answers.",
}
"""What SQLite's message says -> what to do."""
_ALLOW = "Give this account the folder and its files, on a disk that works. Leave them there: they hold the answers."


class Database:
    """The database in a folder, both made at first use and readable by their owner alone.

    Every transaction has a connection of its own, so threads and processes may share the object's
    file freely.

    Raises:
        DataError: the folder or file cannot be used, or a later version of this package made the
            file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.touch(mode=0o600)
            with _alone(folder):
                self._make()
        except OSError as error:
            raise self._unusable(error.strerror or str(error), _ALLOW) from None

    def _make(self) -> None:
        with self._connection() as database:
            database.execute("PRAGMA journal_mode = WAL")
        with self.writing() as database:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            newest = len(_SCHEMAS)
            if not 0 <= version <= newest:
                found = f"format {version}, where this version of fedward writes {newest}"
                raise self._unusable(found, "Use the version that made it: it holds the answers.")
            for number, schema in enumerate(_SCHEMAS[version:], version + 1):
                for statement in _statements(schema):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {number}")

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a context with a connection that sees one state of the queue, whatever others
        write meanwhile.
        """
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return one with a connection whose changes are on the disk when the block ends, or gone
        if it raises.
        """
        return self._transaction("BEGIN IMMEDIATE")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._connection() as database:
            database.execute(begin)
            try:
                yield database
            except BaseException:
                if database.in_transaction:  # a full disk has ended it already
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            # mode=rw: a queue that was removed meanwhile is said to be missing, and no empty one
            # takes its place.
            address = f"{self.path.absolute().as_uri()}?mode=rw"
            with closing(
                sqlite3.connect(address, timeout=_WAIT, isolation_level=None, uri=True)
            ) as database:
                database.row_factory = sqlite3.Row
                database.execute("PRAGMA synchronous = FULL")
                yield database
        except sqlite3.Error as error:
            text = str(error)
            remedy = next((_REMEDIES[key] for key in _REMEDIES if key in text), _ALLOW)
            raise self._unusable(text, remedy if self.path.exists() else _RESTORE) from error

    def _unusable(self, found: str, remedy: str) -> DataError:
        expected = "a queue on a local disk that this account can read and write"
        return DataError(
            f"annotation queue {self.path}", expected=expected, found=found, remedy=remedy
        )


def add_answer(database: sqlite3.Connection, **values: str | float | None) -> None:
    """Add a row to ``answers``, by columns; in a writing transaction."""
    values["recorded"] = times.now()
    places = ", ".join(f":{column}" for column in values)
    database.execute(f"INSERT INTO answers ({', '.join(values)}) VALUES ({places})", values)


def places(values: Sized) -> str:
    """Return the places of so many values in SQL."""
    return ", ".join("?" * len(values))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process after the other open the queue: SQLite does not wait for who changes the
    journal's mode.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _statements(schema: str) -> Iterator[str]:
    """Yield a schema's statements; a trigger holds semicolons, so SQLite says where a statement
    ends.
    """
    statement = ""
    for line in schema.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
