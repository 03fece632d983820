"""The queue: what is asked, what is answered, and that nothing acknowledged is ever lost."""

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedward.annotation import Queue, Rules, queue_folder, times
from fedward.annotation import database as module
from fedward.annotation.database import NAME, is_there
from fedward.annotation.desk import Desk
from fedward.annotation.page_content import SentAnswer, Stale
from fedward.errors import DataError
from fedward.sites import find_site_file

Make = Callable[[str], Any]


def waiting(queue: Queue) -> list[str]:
    return [request.sample_id for request in queue.pending()]


# --- requests


def test_a_request_says_who_asked_when_and_why(clinic: Any) -> None:
    before = times.now()
    assert clinic.queue.request("run", 3, "entropy", ["s01"], [0.5]) == 1
    (request,) = clinic.queue.pending()
    stored_fields = (request.sample_id, request.run, request.round, request.strategy, request.score)
    assert stored_fields == ("s01", "run", 3, "entropy", 0.5)
    assert before <= request.time <= times.now()


def test_the_same_request_again_changes_nothing(clinic: Any) -> None:
    """A resumed round asks again, perhaps for more."""
    assert clinic.queue.request("run", 1, "fedal", ["s01", "s02"], [1.0, 2.0]) == 2
    before = clinic.queue.pending()
    assert clinic.queue.request("run", 1, "fedal", ["s01", "s02"], [9.0, 9.0]) == 0
    assert clinic.queue.pending() == before
    assert clinic.queue.request("run", 1, "fedal", ["s02", "s03"], [2.0, 3.0]) == 1


def test_the_newest_round_is_asked_first_then_the_highest_score(clinic: Any) -> None:
    clinic.queue.request("run", 1, "fedal", ["s00", "s01", "s02", "s03"], [0.1, None, 0.9, 0.1])
    clinic.queue.request("run", 2, "fedal", ["s04"])
    assert waiting(clinic.queue) == ["s04", "s02", "s00", "s03", "s01"]


def test_an_image_asked_for_twice_waits_once(clinic: Any) -> None:
    clinic.ask("s00", "s01", round_=1)
    clinic.ask("s01", round_=2)
    assert [(request.sample_id, request.round) for request in clinic.queue.pending()] == [
        ("s01", 2),
        ("s00", 1),
    ]


@pytest.mark.parametrize(
    ("ids", "scores"),
    [
        (["a", "a"], None),
        ([""], None),
        (["a"], [0.1, 0.2]),
        (["a"], [float("nan")]),
        (["a"], [float("inf")]),
    ],
)
def test_a_request_that_cannot_be_is_refused_whole(
    clinic: Any, ids: list[str], scores: Any
) -> None:
    with pytest.raises(ValueError, match="expected"):
        clinic.queue.request("run", 1, "fedal", ids, scores)
    assert clinic.queue.pending() == []


def test_asking_for_nothing_is_fine(clinic: Any) -> None:
    assert clinic.queue.request("run", 1, "fedal", []) == 0


# --- runs


def test_what_a_run_asked_is_withdrawn_once_a_later_one_begins(
    clinic: Any, clinician: Make
) -> None:
    clinic.queue.request("old", 1, "fedal", ["s00", "s01", "s02"])
    clinic.queue.request("new", 1, "fedal", ["s02", "s03"])
    anna = clinician("anna")
    assert waiting(clinic.queue) == ["s02", "s03"]
    assert (anna.desk.view("anna").waiting, anna.desk.view("anna").tally.total) == (2, 2)
    with sqlite3.connect(clinic.queue.folder / NAME) as database:
        stored_fields = database.execute(
            "SELECT sample_id, run, status FROM queue ORDER BY sample_id"
        ).fetchall()
    assert stored_fields == [
        ("s00", "old", "withdrawn"),
        ("s01", "old", "withdrawn"),
        ("s02", "new", "pending"),
        ("s03", "new", "pending"),
    ]


def test_an_answer_to_a_question_withdrawn_meanwhile_is_kept(
    clinic: Any, clinician: Make, tmp_path: Path
) -> None:
    clinic.queue.request("old", 1, "fedal", ["s00"])
    clinic.queue.request("new", 1, "fedal", ["s01"])
    clinician("anna").say("s00", "MEL")
    assert clinic.queue.labels() == {"s00": "MEL"}
    clinic.queue.export("csv", tmp_path / "out.csv", ["MEL", "NV"], lambda sample_id: b"")
    assert '"s00","MEL","anna"' in (tmp_path / "out.csv").read_text()
    assert '"decided","fedal","1","","old"' in (tmp_path / "out.csv").read_text()


def test_runs_that_go_on_ask_and_those_that_are_over_do_not(clinic: Any) -> None:
    clinic.queue.request("a", 1, "fedal", ["s00"])
    clinic.queue.request("b", 1, "fedal", ["s01"])
    assert waiting(clinic.queue) == ["s01"]
    clinic.queue.request("a", 2, "fedal", [])
    assert waiting(clinic.queue) == ["s01", "s00"]
    clinic.queue.request("a", 2, "fedal", ["s02"])
    clinic.queue.request("b", 2, "fedal", [])
    assert waiting(clinic.queue) == ["s02", "s01", "s00"]
    clinic.queue.request("c", 1, "fedal", [])
    assert waiting(clinic.queue) == []


# --- answers


def test_a_label_ends_the_waiting(clinic: Any, clinician: Make) -> None:
    clinic.ask("s00", "s01")
    clinician("anna").say("s00", "MEL")
    assert waiting(clinic.queue) == ["s01"]
    assert clinic.queue.labels() == {"s00": "MEL"}
    (decision,) = clinic.queue.decisions()
    assert (decision.annotator, decision.label, decision.source) == ("anna", "MEL", "page")


def test_cannot_tell_is_a_decision_and_no_label(clinic: Any, clinician: Make) -> None:
    clinic.ask("s00")
    clinician("anna").say("s00", None)
    assert waiting(clinic.queue) == []
    assert clinic.queue.labels() == {}
    assert clinic.queue.cannot_tell() == {"s00"}


def test_the_newest_decision_counts(clinic: Any, clinician: Make) -> None:
    clinician("anna").say("s00", "MEL")
    clinician("ben").say("s00", "NV")
    assert clinic.queue.labels() == {"s00": "NV"}


def test_who_cannot_tell_abstains_but_withdraws_the_own_class(clinic: Any, clinician: Make) -> None:
    anna = clinician("anna")
    ben = clinician("ben")
    anna.say("s00", "MEL")
    ben.say("s00", None)
    assert clinic.queue.labels() == {"s00": "MEL"}
    assert clinic.queue.cannot_tell() == frozenset()
    anna.say("s00", None)
    assert clinic.queue.labels() == {}
    assert clinic.queue.cannot_tell() == {"s00"}


def test_undo_brings_back_what_was_before(clinic: Any, clinician: Make) -> None:
    clinic.ask("s00", "s01")
    anna = clinician("anna")
    anna.say("s00", "MEL")
    anna.say("s00", "NV")
    anna.say("s01", "BCC")
    assert anna.take_back() == "s01"
    assert clinic.queue.labels() == {"s00": "NV"}
    assert anna.take_back() == "s00"
    assert clinic.queue.labels() == {"s00": "MEL"}
    assert anna.take_back() == "s00"
    assert clinic.queue.labels() == {}
    assert waiting(clinic.queue) == ["s00", "s01"]
    assert anna.desk.view("anna").last is None


def test_nobody_takes_back_another_ones_answer(clinic: Any, clinician: Make) -> None:
    anna = clinician("anna")
    ben = clinician("ben")
    anna.say("s00", "MEL")
    last = anna.desk.view("anna").last
    with pytest.raises(Stale):
        ben.desk.undo("ben", last.answer, "key")
    assert clinic.queue.labels() == {"s00": "MEL"}


def test_what_is_skipped_comes_last_and_for_others_at_its_place(
    clinic: Any, clinician: Make
) -> None:
    clinic.ask("s00", "s01")
    anna = clinician("anna")
    ben = clinician("ben")
    anna.say("s00", None, "skip")
    assert (anna.desk.view("anna").image.sample_id, anna.desk.view("anna").skipped) == ("s01", 1)
    assert ben.desk.view("ben").image.sample_id == "s00"
    assert waiting(clinic.queue) == ["s00", "s01"]
    anna.say("s01", None, "skip")
    assert anna.desk.view("anna").image.sample_id == "s00"
    anna.take_back()
    assert anna.desk.view("anna").image.sample_id == "s01"


def test_a_message_that_arrives_twice_is_one_answer(clinic: Any, clinician: Make) -> None:
    clinic.ask("s00")
    anna = clinician("anna")
    message = anna.say("s00", "MEL")
    anna.desk.answer(message)
    last = anna.desk.view("anna").last
    assert (
        anna.desk.undo("anna", last.answer, "undo")
        == anna.desk.undo("anna", last.answer, "undo")
        == "s00"
    )
    with sqlite3.connect(clinic.queue.folder / NAME) as database:
        assert database.execute("SELECT kind FROM answers").fetchall() == [("label",), ("undo",)]


def test_an_answer_from_a_view_that_is_past_changes_nothing(clinic: Any, clinician: Make) -> None:
    """Two tabs show the same image; the second answers after the first."""
    clinic.ask("s00")
    anna = clinician("anna")
    seen = anna.desk.view("anna").seen
    anna.say("s00", "MEL")
    with pytest.raises(Stale):
        anna.desk.answer(SentAnswer("anna", "s00", "label", "NV", "key", seen))
    assert clinic.queue.labels() == {"s00": "MEL"}


def test_a_clock_set_back_leaves_the_new_answer_the_newest(
    clinic: Any, clinician: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna = clinician("anna")
    anna.say("s00", "MEL")
    monkeypatch.setattr(times, "now", lambda: "2001-01-01T00:00:00.000000Z")
    anna.say("s00", "NV")
    assert clinic.queue.labels() == {"s00": "NV"}


def test_a_clock_set_back_leaves_the_new_questions_the_most_wanted(
    clinic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic.ask("s00")
    monkeypatch.setattr(times, "now", lambda: "2001-01-01T00:00:00.000000Z")
    clinic.ask("s01", round_=2)
    assert waiting(clinic.queue) == ["s01", "s00"]


def test_undo_is_told_with_the_answer_that_counts_after_it(clinic: Any, clinician: Make) -> None:
    clinic.ask("s00")
    anna = clinician("anna")
    desk = Desk(clinic.queue, clinic.ids, classes=("MEL", "NV"))

    def after_undo() -> tuple[str, str | None, bool]:
        last = desk.view("anna").last
        return last.text, last.before, last.shown_again

    anna.say("s00", "AK")
    anna.say("s00", "MEL")
    assert after_undo() == ("MEL", None, True), "a class of an earlier job does not count"
    anna.say("s00", "NV")
    assert after_undo() == ("NV", "MEL", False)
    anna.say("s00", None, "skip")
    assert after_undo() == ("skip", "NV", False)
    anna.say("s05", "MEL")
    assert after_undo() == ("MEL", None, False), "no run asks about it"


def test_several_readers_see_each_image_once_each(clinic: Any) -> None:
    clinic.ask("s00")
    desk = Desk(Queue(clinic.queue.folder, Rules(readers=2)), clinic.ids)
    assert desk.view("anna").tally.total == 1
    desk.answer(SentAnswer("anna", "s00", "label", "MEL", "1", 0))
    assert (desk.view("anna").waiting, desk.view("ben").waiting) == (0, 1)
    assert desk.view("ben").tally.decided == 0
    desk.answer(SentAnswer("ben", "s00", "label", "NV", "2", 0))
    assert (desk.view("anna").waiting, desk.view("ben").waiting) == (0, 0)
    view = desk.view("clara")
    tally = view.tally
    assert (view.waiting, tally.decided, tally.read_twice, tally.unanimous) == (1, 0, 1, 0)


def test_an_image_with_a_class_of_another_job_waits_again(clinic: Any, clinician: Make) -> None:
    clinic.ask("s00", "s01", "s02")
    clinician("anna").say("s00", "AK")
    clinician("anna").say("s01", "MEL")
    clinician("anna").say("s02", None)
    desk = Desk(clinic.queue, clinic.ids, classes=("MEL", "NV"))
    view = desk.view("anna")
    assert view.image is not None
    assert (view.image.sample_id, view.waiting, view.tally.decided, view.mine) == ("s00", 1, 2, 2)
    desk.answer(SentAnswer("anna", "s00", "label", "NV", "again", view.seen))
    assert (desk.view("anna").waiting, desk.view("anna").tally.decided) == (0, 3)
    assert clinic.queue.labels() == {"s00": "NV", "s01": "MEL"}
    assert Desk(clinic.queue, clinic.ids).view("ben").waiting == 0, (
        "without classes any answer is one"
    )


def test_agreement_is_over_images_that_two_gave_a_class(clinic: Any, clinician: Make) -> None:
    anna = clinician("anna")
    ben = clinician("ben")
    for sample_id, first, second in [
        ("s00", "MEL", "MEL"),
        ("s01", "MEL", "NV"),
        ("s02", "NV", None),
    ]:
        anna.say(sample_id, first)
        ben.say(sample_id, second)
    anna.say("s03", "NV")
    agreement = clinic.queue.agreement()
    assert (agreement.read_twice, agreement.unanimous) == (2, 1)
    (dispute,) = agreement.disputed
    assert (dispute.sample_id, dispute.kept.label, dispute.kept.annotator) == ("s01", "NV", "ben")
    assert [other.annotator for other in dispute.others] == ["anna"]


def test_an_image_the_site_does_not_have_is_named_and_not_shown(clinic: Any) -> None:
    clinic.ask("s00", "gone")
    desk = Desk(clinic.queue, clinic.ids)
    assert desk.foreign_ids() == ["gone"]
    assert (desk.view("anna").tally.total, desk.view("anna").waiting) == (1, 1)
    assert waiting(clinic.queue) == ["s00", "gone"]


# --- the file


def test_answers_cannot_be_changed_or_deleted(clinic: Any, clinician: Make) -> None:
    clinician("anna").say("s00", "MEL")
    with sqlite3.connect(clinic.queue.folder / NAME) as database:
        for statement in ("UPDATE answers SET label = 'NV'", "DELETE FROM answers"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                database.execute(statement)
    assert clinic.queue.labels() == {"s00": "MEL"}


def test_the_queue_can_be_read_with_a_database_browser(clinic: Any, clinician: Make) -> None:
    clinic.ask("s00", "s01", "s02")
    clinician("anna").say("s00", "MEL")
    clinician("anna").say("s01", None)
    with sqlite3.connect(clinic.queue.folder / NAME) as database:
        rows = database.execute(
            "SELECT sample_id, strategy, round, score, status, label, annotator FROM queue ORDER "
            "BY sample_id"
        ).fetchall()
    assert rows == [
        ("s00", "fedal", 1, 0.0, "labelled", "MEL", "anna"),
        ("s01", "fedal", 1, -1.0, "cannot tell", None, "anna"),
        ("s02", "fedal", 1, -2.0, "pending", None, None),
    ]


def test_transactions_are_on_disk_before_they_are_acknowledged(clinic: Any) -> None:
    with clinic.queue.database.writing() as database:
        assert database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert database.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL


def test_a_transaction_that_fails_leaves_nothing(clinic: Any) -> None:
    with pytest.raises(RuntimeError), clinic.queue.database.writing() as database:  # noqa: PT012
        database.execute("INSERT INTO requests VALUES (1, 'r', 1, 'x', 's00', NULL, 't')")
        raise RuntimeError
    assert clinic.queue.pending() == []


def test_only_the_owner_may_read_the_queue(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue")
    assert (queue.folder.stat().st_mode & 0o777, (queue.folder / NAME).stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )


def test_command_and_site_find_the_queue_by_the_site_file(tmp_path: Path) -> None:
    (tmp_path / "site-1.yaml").write_text("")
    (tmp_path / "site-2.yaml").write_text("")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "site-1.yaml")
    site_file = find_site_file("site-1", [tmp_path])
    assert site_file is not None
    assert (
        queue_folder(site_file)
        == tmp_path / "annotation" / "site-1"
        == queue_folder(tmp_path / "link.yaml")
    )
    assert queue_folder(tmp_path / "site-2.yaml") != queue_folder(site_file)


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, b"\0" * 4096])
def test_a_file_that_is_no_queue_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DataError, match=rf"{NAME}.*a new one is made in its place"):
        Queue(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


@pytest.mark.proves(
    "files",
    "the queue's file is emptied, or is lost without its -wal, which holds answers",
    "refused and named, with what to do; what is left stays as it is",
)
@pytest.mark.parametrize("lose", [lambda file: file.write_bytes(b""), Path.unlink])
def test_what_is_left_of_a_lost_queue_is_kept(
    clinic: Any, clinician: Make, tmp_path: Path, lose: Callable[[Path], Any]
) -> None:
    """A process that is killed leaves its last answers in the -wal."""
    left = tmp_path / "left"
    with clinic.queue.database.reading():
        clinician("anna").say("s00", "MEL")
        shutil.copytree(clinic.queue.folder, left)
    lose(left / NAME)
    before = {path.name: path.read_bytes() for path in left.iterdir()}
    assert before[f"{NAME}-wal"]
    with pytest.raises(DataError, match=rf"{NAME}.*put back a backup, and keep the damaged files"):
        Queue(left)
    assert {path.name: path.read_bytes() for path in left.iterdir()} == before


def test_a_queue_on_a_disk_that_is_not_there_is_not_begun_anew(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to(tmp_path / "disk" / NAME)
    with pytest.raises(DataError, match=rf"{NAME}.*found no such file.*put back a backup"):
        Queue(tmp_path)
    assert (tmp_path / NAME).is_symlink()


def test_a_queue_on_a_disk_that_fails_is_not_replaced(
    clinic: Any, clinician: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the disk does not say that the file is absent."""
    clinician("anna").say("s00", "MEL")
    lstat = os.lstat

    def failing(path: Any, **options: Any) -> os.stat_result:
        if Path(path).name == NAME:
            raise OSError(errno.EIO, "Input/output error", path)
        return lstat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr("os.lstat", failing)
        with pytest.raises(DataError, match=rf"{NAME}.*found input/output error"):
            Queue(clinic.queue.folder)
    assert Queue(clinic.queue.folder).labels() == {"s00": "MEL"}


def test_a_process_killed_while_it_makes_a_queue_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(partial: Path, path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fedward.disk.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            Queue(tmp_path)
    assert not is_there(tmp_path)
    assert Queue(tmp_path).pending() == []


@pytest.mark.proves(
    "files",
    "bytes of the queue's file are damaged: within its tables' descriptions, or within a time",
    "refused and named, with what to do; nothing is stored",
)
@pytest.mark.parametrize(
    ("whole", "damaged", "found"),
    [
        (b"annotator TEXT NOT NULL", b"annotator TEXT NOT N\x90LL", "a malformed table"),
        (b"CREATE TABLE answers", b"CREATE RABLE answers", "malformed database schema"),
        (b"2998-12-31T", b"29\xff8-12-31T", "Could not decode to UTF-8"),
        (b"2998-12-31T", b"299X-12-31T", "'299X-12-31T"),
        (b"2998-12-31T", b"9999-12-31T", "'9999-12-31T"),
    ],
)
def test_a_damaged_queue_is_said_to_be_damaged(
    clinic: Any, whole: bytes, damaged: bytes, found: str
) -> None:
    file = clinic.queue.folder / NAME
    with clinic.queue.database.writing() as database:
        database.execute(
            "INSERT INTO requests (run, round, strategy, sample_id, score, time) "
            "VALUES ('run', 1, 'fedal', 's00', 1, '2998-12-31T23:59:59.999999Z')"
        )
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = file.read_bytes()
    assert whole in content
    file.write_bytes(content.replace(whole, damaged))
    with pytest.raises(DataError, match=rf"annotation queue.*found {found}.*ut back a backup"):
        Queue(clinic.queue.folder).request("run", 2, "fedal", ["s01"], [1.0])
    assert file.read_bytes() == content.replace(whole, damaged)


def test_a_full_disk_is_called_so_and_leaves_what_was_there(clinic: Any, clinician: Make) -> None:
    """SQLite ends the transaction by itself."""
    clinician("anna").say("s00", "MEL")
    insert = (
        "INSERT INTO requests (run, round, strategy, sample_id, score, time) "
        "VALUES (?, 1, 'fedal', 's01', 1, ?)"
    )

    def fill() -> None:
        with clinic.queue.database.writing() as database:
            pages = database.execute("PRAGMA page_count").fetchone()[0]
            database.execute(f"PRAGMA max_page_count = {pages}")
            database.executemany(insert, [(f"run {number}", times.now()) for number in range(9999)])

    with pytest.raises(DataError, match="Make room"):
        fill()
    assert clinic.queue.labels() == {"s00": "MEL"}
    assert clinic.queue.pending() == []


def test_a_full_disk_is_called_so_where_a_queue_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def without_room(address: str, **options: Any) -> sqlite3.Connection:
        database = connect(address, **options)
        database.execute("PRAGMA max_page_count = 1")
        return database

    with monkeypatch.context() as patch:
        patch.setattr("sqlite3.connect", without_room)
        with pytest.raises(DataError, match=r"disk is full.*Make room"):
            Queue(tmp_path)
    assert not is_there(tmp_path)
    assert Queue(tmp_path).pending() == []


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (sqlite3.OperationalError("database or disk is full"), "Make room"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "Give this account"),
        (sqlite3.OperationalError("unable to open database file"), "Give this account"),
        (sqlite3.DatabaseError("database disk image is malformed"), "Put back a backup"),
    ],
)
def test_no_other_trouble_is_said_to_be_mended_by_a_new_file(
    clinic: Any, error: sqlite3.Error, remedy: str
) -> None:
    with pytest.raises(DataError, match=remedy) as raised, clinic.queue.database.reading():
        raise error
    assert "new one" not in raised.value.remedy


def test_a_queue_that_another_process_holds_is_said_to_be_held(
    clinic: Any, clinician: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT", 0.0)
    with (
        clinic.queue.database.writing(),
        pytest.raises(DataError, match=r"locked.*Another process holds it.*Leave the file"),
    ):
        clinician("anna").say("s00", "MEL")


def test_a_queue_is_opened_and_read_while_another_process_writes(
    clinic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic.ask("s00")
    monkeypatch.setattr(module, "_WAIT", 0.0)
    with clinic.queue.database.writing():
        assert waiting(Queue(clinic.queue.folder)) == ["s00"]


@pytest.mark.parametrize("version", [-1, 1, 3])
def test_a_queue_of_another_format_is_refused(tmp_path: Path, version: int) -> None:
    Queue(tmp_path)
    with sqlite3.connect(tmp_path / NAME) as database:
        database.execute(f"PRAGMA user_version = {version}")
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(DataError, match=rf"format {version},.*Use the version that made it"):
        Queue(tmp_path)
    assert (tmp_path / NAME).read_bytes() == before


def test_a_database_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / NAME)) as database:
        database.execute("CREATE TABLE answers (question TEXT)")
        database.commit()
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(DataError, match=r"of another program.*a new one is made in its place"):
        Queue(tmp_path)
    assert (tmp_path / NAME).read_bytes() == before


def test_a_database_without_tables_is_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / NAME)) as database:
        database.execute("VACUUM")
    before = (tmp_path / NAME).read_bytes()
    assert before
    with pytest.raises(DataError, match=r"without tables.*put back a backup"):
        Queue(tmp_path)
    assert (tmp_path / NAME).read_bytes() == before


def test_a_disk_without_shared_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite raises no error there: it keeps the mode of the journal."""
    connect = sqlite3.connect

    def without_shared_memory(address: str, **options: Any) -> sqlite3.Connection:
        return connect(f"{address}&vfs=unix-none", **options)

    monkeypatch.setattr("sqlite3.connect", without_shared_memory)
    with pytest.raises(DataError, match="keep a journal in mode delete"):
        Queue(tmp_path)


def test_a_mistake_of_the_caller_is_not_blamed_on_the_disk(clinic: Any) -> None:
    with pytest.raises(sqlite3.IntegrityError), clinic.queue.database.writing() as database:
        database.execute("INSERT INTO answers (key) VALUES (NULL)")


def test_a_folder_that_became_unreadable_is_named(
    clinic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)
    clinic.queue.database.path.write_bytes(b"no database" * 100)
    with pytest.raises(DataError, match="annotation queue"), clinic.queue.database.reading():
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="annotation queue"):
        Queue(tmp_path / "file" / "queue")


# --- moments


def test_moments_are_utc_and_sort_as_text() -> None:
    assert times.parse("2024-01-01T01:30:00+01:00") == "2024-01-01T00:30:00.000000Z"
    assert times.parse("2024-01-01 00:30:00.5Z") == "2024-01-01T00:30:00.500000Z"
    assert times.from_seconds(0.25) == "1970-01-01T00:00:00.250000Z"
    assert times.parse("0001-01-02T00:00:00Z") < times.from_seconds(0) < times.now()
    assert times.now() < times.now_after("2001-01-01T00:00:00.000000Z") < times.now_after(None)
    assert times.now_after("2998-12-31T23:59:59.999999Z") == "2999-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "1700000000",
        "20240101",
        "31.01.2024",
        "2024-13-01",
        "0001-01-01T00:00:00+23:00",
        "9999-12-31",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time"):
        times.parse(text)


# --- several processes, and their deaths

_OPEN = (
    "import sys\n"
    "from pathlib import Path\n"
    "from fedward.annotation import Queue\n"
    "queue = Queue(Path(sys.argv[1]))\n"
)
_ANSWER = (
    _OPEN + "from itertools import count\n"
    "from fedward.annotation.desk import Desk\n"
    "from fedward.annotation.page_content import SentAnswer\n"
    "desk = Desk(queue, [])\n"
    "for number in count():\n"
    "    name = sys.argv[2] + str(number)\n"
    "    desk.answer(SentAnswer(sys.argv[2], name, 'label', 'MEL', name, 0))\n"
    "    print(name, flush=True)\n"
)


def process(code: str, folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), *arguments], stdout=subprocess.PIPE, text=True
    )


def test_processes_may_make_the_same_queue_at_once(tmp_path: Path) -> None:
    code = _OPEN + "print(queue.request('run', 1, sys.argv[2], ['a']))"
    started = [process(code, tmp_path / "queue", str(number)) for number in range(4)]
    assert [each.communicate()[0].strip() for each in started] == ["1"] * 4
    assert len(Queue(tmp_path / "queue").pending()) == 1


def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue")
    writer = process(_ANSWER, queue.folder, "w")
    assert writer.stdout is not None
    acknowledged = []
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(queue.request, "run", round_, "fedal", [f"x{round_}"])
            for round_ in range(30)
        ]
        reads = [pool.submit(queue.labels) for _ in range(30)]
        acknowledged = [writer.stdout.readline().strip() for _ in range(40)]
        assert [job.result() for job in jobs] == [1] * 30
        assert all(set(read.result().values()) <= {"MEL"} for read in reads)
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += writer.communicate()[0].split()
    assert set(acknowledged) <= set(Queue(queue.folder).labels())
    assert len(queue.pending()) == 30
