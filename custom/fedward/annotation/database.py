"""The file of a queue: an SQLite database that processes share, and that survives their crashes.

Write-ahead logging lets the site's job read and add requests while the page writes answers. With
``synchronous=FULL`` each transaction is on the disk before it is acknowledged. The database needs a
local disk: write-ahead logging shares memory between processes, which network file systems do not
offer.
"""

import os
import sqlite3
from collections.abc import Iterator, Sized
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from fedward import private
from fedward.annotation import times
from fedward.disk import replacing
from fedward.errors import DataError, reason_of_system

NAME = "queue.sqlite"
"""Name of the file."""
_WAIT = 30.0
"""Seconds that another process has to finish its transaction."""

_FORMAT = 2
"""Format of the file; a database without one has format 0."""
_SCHEMA = """
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

-- The first and the last sign of life of a run, by a count that grows with every one.
CREATE TABLE runs (
    run TEXT PRIMARY KEY,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    several INTEGER NOT NULL   -- 1: its job takes several findings of an image; 0: one class
);

CREATE TABLE answers (
    answer INTEGER PRIMARY KEY AUTOINCREMENT,
    sample_id TEXT NOT NULL,
    annotator TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (
        kind IN ('label', 'cannot tell', 'unusable', 'none of these', 'skip', 'undo')
    ),
    label TEXT CHECK ((kind = 'label') = (label IS NOT NULL)),
    time TEXT NOT NULL,        -- of the decision
    recorded TEXT NOT NULL,    -- of this row
    source TEXT NOT NULL,      -- 'page', or the file it came in
    undoes INTEGER UNIQUE REFERENCES answers (answer)
        CHECK ((kind = 'undo') = (undoes IS NOT NULL)),
    -- of the page's message, which may arrive twice
    key TEXT UNIQUE,
    seconds REAL,              -- how long the image was looked at; NULL without the page
    adjudicates INTEGER NOT NULL DEFAULT 0,  -- 1: decides between readers who differed
    unsure INTEGER NOT NULL DEFAULT 0,
    discuss INTEGER NOT NULL DEFAULT 0,
    comment TEXT NOT NULL DEFAULT '',
    -- 'question': a run asks; 'repeat' and 'known' check the reader, and no run gets them
    purpose TEXT NOT NULL DEFAULT 'question' CHECK (purpose IN ('question', 'repeat', 'known'))
);
CREATE INDEX answers_by_sample ON answers (sample_id, annotator);

-- One row. The secret draws the checks of readers: without it, names and ids would tell them.
CREATE TABLE draws (secret BLOB NOT NULL);
INSERT INTO draws VALUES (randomblob(32));

CREATE TRIGGER answers_are_never_changed BEFORE UPDATE ON answers
BEGIN SELECT RAISE(ABORT, 'answers are append-only'); END;
CREATE TRIGGER answers_are_never_deleted BEFORE DELETE ON answers
BEGIN SELECT RAISE(ABORT, 'answers are append-only'); END;

-- Answers that nobody took back, also those to checks of the reader.
CREATE VIEW given AS
SELECT a.* FROM answers AS a LEFT JOIN answers AS u ON u.undoes = a.answer
WHERE a.kind != 'undo' AND u.answer IS NULL;

-- Those to questions of runs.
CREATE VIEW standing AS SELECT * FROM given WHERE purpose = 'question';

-- The present answer of each annotator about each image.
CREATE VIEW decisions AS
SELECT * FROM (
    SELECT *, row_number() OVER (
        PARTITION BY sample_id, annotator ORDER BY time DESC, answer DESC
    ) AS nth
    FROM standing WHERE kind != 'skip'
) WHERE nth = 1;

-- The newest request of each image, preferably of a run that goes on. The requests of a run are
-- withdrawn once a later run has begun, unless the run gives a sign of life after that.
CREATE VIEW asked AS
SELECT * FROM (
    SELECT *, row_number() OVER (
        PARTITION BY sample_id ORDER BY withdrawn, request DESC
    ) AS nth
    FROM (
        SELECT requests.*, last < (SELECT max(first) FROM runs) AS withdrawn
        FROM requests JOIN runs USING (run)
    )
) WHERE nth = 1;

-- For people with a database browser. It takes no account of lesions and numbers of readers.
CREATE VIEW queue AS
SELECT asked.sample_id, request, strategy, score, round, run,
       CASE WHEN decisions.kind = 'label' THEN 'labelled'
            WHEN decisions.kind IS NOT NULL THEN decisions.kind
            WHEN withdrawn THEN 'withdrawn'
            ELSE 'pending' END AS status,
       decisions.label, decisions.annotator, decisions.time
FROM asked LEFT JOIN decisions USING (sample_id);
"""

_FOREIGN = (
    "It is not a queue: move it elsewhere, with its -wal and -shm, and a new one is made in its "
    "place."
)
_RESTORE = "It was removed or replaced: put back a backup, and start the program again."
_RECOVER = (
    f"Put back a backup, or what `sqlite3 {NAME} .recover` still reads of it. "
    "Keep the damaged file."
)
_LOST = (
    "If it was a queue, put back a backup, and keep the damaged files. Otherwise move it "
    "elsewhere, with its -wal and -shm, and a new one is made in its place."
)
_REMEDIES = {
    "not a database": _LOST,
    "malformed": _RECOVER,
    "not decode": _RECOVER,
    "locked": (
        "Another process holds it, perhaps a database browser. End that one, and try again. "
        "Leave the file."
    ),
    "no such table": _RESTORE,
    "full": "Make room on its disk, and try again. Leave the file: it holds the answers.",
}
"""A part of SQLite's message -> the remedy."""
_ALLOW = (
    "Give this account the folder and its files, on a disk that works. "
    "Leave them there: they hold the answers."
)


class Database:
    """The database in a folder.

    Both are made at first use, and only their owner may read them. Every transaction has a
    connection of its own, so threads and processes may use the file at once.

    Args:
        folder: the queue's folder.

    Raises:
        DataError: the folder or file cannot be used, or the file has another format.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # SQLite does not wait for a process that changes the mode of the journal.
            with private.locked(folder):
                if not is_there(folder):
                    self._make()
                self._open()
        except OSError as error:
            raise self._unusable(reason_of_system(error), _ALLOW) from None

    def _make(self) -> None:
        """Write a queue without a question, whole or not at all.

        A process that is killed meanwhile leaves no file of this name, so that one without content
        is always a damaged queue. Many builds of Python lack ``Connection.serialize``, so SQLite
        writes the file itself.
        """
        with replacing(self.path) as partial:
            with open(partial, "xb", opener=private.opener):
                pass
            with self._connected(partial) as database:
                # A journal on the disk would outlive a process that is killed.
                database.execute("PRAGMA journal_mode = MEMORY")
                database.executescript(
                    f"BEGIN; {_SCHEMA}; PRAGMA user_version = {_FORMAT}; COMMIT;"
                )

    def _open(self) -> None:
        """Let processes share the file; a file of another format is refused as it is."""
        with self._connection() as database:
            self._check_format(database)
            # Where SQLite cannot change the mode it does not fail, but answers with the old one.
            (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise self._unusable(f"a disk whose files keep a journal in mode {mode}", _ALLOW)

    def _check_format(self, database: sqlite3.Connection) -> None:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and tables:
            raise self._unusable("a database of another program", _FOREIGN)
        if version == 0:
            raise self._unusable("a database without tables", _LOST)
        if version != _FORMAT:
            raise self._unusable(
                f"format {version}, where this version of fedward writes {_FORMAT}",
                "Use the version that made it: it holds the answers.",
            )

    def _require_content(self) -> None:
        """Raise DataError for a file without content.

        SQLite would take it for a new database, and remove the -wal, which may hold answers.
        """
        try:
            is_empty = self.path.stat().st_size == 0
        except FileNotFoundError:
            remedy = _LOST if is_there(self.path.parent) else _RESTORE
            raise self._unusable("no such file", remedy) from None
        except OSError as error:
            raise self._unusable(reason_of_system(error), _ALLOW) from None
        if is_empty:
            raise self._unusable("a file without content", _LOST)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a context with a connection for reading.

        It sees one state of the queue, whatever other processes write meanwhile.
        """
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a context with a connection for writing.

        Its changes are on the disk when the block ends, and undone if it raises.
        """
        return self._transaction("BEGIN IMMEDIATE")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._connection() as database:
            database.execute(begin)
            try:
                yield database
            except BaseException:
                # A full disk has ended the transaction already.
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        self._require_content()
        with self._connected(self.path) as database:
            yield database

    @contextmanager
    def _connected(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Yield a connection to a file that is there; errors of SQLite are raised as DataError."""
        # With mode=rw a queue that was removed meanwhile is an error, instead of an empty new one.
        address = f"{path.absolute().as_uri()}?mode=rw"
        try:
            connection = sqlite3.connect(address, timeout=_WAIT, isolation_level=None, uri=True)
            with closing(connection) as database:
                database.row_factory = sqlite3.Row
                database.execute("PRAGMA synchronous = FULL")
                yield database
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # A fault of the calling code: file permissions have nothing to do with it.
        except UnicodeDecodeError:
            # SQLite quotes a damaged table in its message, and Python cannot read the quotation.
            raise self._unusable("a malformed table", _RECOVER) from None
        except sqlite3.Error as error:
            raise self._unusable(str(error), self._remedy(str(error), path)) from error

    def _remedy(self, message: str, path: Path) -> str:
        """Return what to do after an error of SQLite at a file."""
        try:
            was_removed = not path.exists()
        except OSError:  # The account has lost its right to the folder.
            return _ALLOW
        if was_removed:
            return _RESTORE
        for part, remedy in _REMEDIES.items():
            if part in message:
                return remedy
        return _ALLOW

    def _unusable(self, found: str, remedy: str) -> DataError:
        return DataError(
            f"annotation queue {self.path}",
            remedy,
            expected="a queue on a local disk that this account can read and write",
            found=found,
        )


def add_answer(database: sqlite3.Connection, **values: str | float | None) -> None:
    """Add a row to ``answers``.

    Args:
        database: in a writing transaction.
        values: the row, by column.
    """
    values["recorded"] = times.now()
    columns = ", ".join(values)
    parameters = ", ".join(f":{column}" for column in values)
    database.execute(f"INSERT INTO answers ({columns}) VALUES ({parameters})", values)


def places(values: Sized) -> str:
    """Return the placeholders of values in SQL, such as ``?, ?``."""
    return ", ".join("?" * len(values))


def is_there(folder: Path) -> bool:
    """Return whether a folder has a queue, or what is left of one.

    A -wal without its file may hold answers. A link that leads nowhere may lead to a disk that is
    not there at the moment.

    Raises:
        OSError: the folder cannot be read, and so may have one.
    """
    return any(_is_name_of_a_file(folder / name) for name in (NAME, f"{NAME}-wal"))


def _is_name_of_a_file(path: Path) -> bool:
    # os.path.lexists calls a file missing on a disk that fails.
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
