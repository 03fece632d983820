"""A site's labels in a run: what is asked, when answers count, and that a kill changes nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from fedward.annotation import Queue, Rules
from fedward.annotation.desk import Desk, SentAnswer
from fedward.client import labels as module
from fedward.client import memory
from fedward.client.labels import (
    SiteLabels,
    annotators_of,
    oracle_of,
    people_of,
    warn_of_nobody,
)
from fedward.errors import RunError
from fedward.security import questions
from fedward.sites import Images, SiteData
from fedward.storage.lock import locked

RUN = "0123456789abcdef" * 2
CLASSES = ("MEL", "NV")
IDS = [f"s{number}" for number in range(8)]
_KEYS = count()


def images(ids: Sequence[str], labels: Sequence[int]) -> Images:
    return Images(tuple(ids), np.zeros((len(ids), 4, 4, 3), np.uint8), np.array(labels, np.int64))


def data(labelled: int = 0, **changes) -> SiteData:
    """Return eight training images, of which the first are labelled as both classes in turn."""
    no_images = images([], [])
    labelled_ids = IDS[:labelled]
    rest = IDS[labelled:]
    return SiteData(
        "clinic",
        CLASSES,
        images(labelled_ids, [index % 2 for index in range(labelled)]),
        images(rest, [-1] * len(rest)),
        no_images,
        no_images,
        **changes,
    )


def say(queue: Queue, sample_id: str, label: str | None) -> None:
    """Answer as a clinician: a class, or None for "cannot tell"."""
    kind = "cannot tell" if label is None else "label"
    Desk(queue, set(IDS)).answer(SentAnswer("ab", sample_id, kind, label, f"{next(_KEYS):032x}", 0))


@pytest.fixture
def queue(tmp_path) -> Queue:
    return Queue(tmp_path / "queue")


@pytest.fixture
def clinic(tmp_path, queue) -> SiteLabels:
    return SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN)


def first(ids: Sequence[str], number: int) -> Sequence[str]:
    return ids[:number]


def never(ids: Sequence[str], number: int) -> Sequence[str]:
    raise AssertionError(f"chose among {ids}")


def renew(labels: SiteLabels, round_: int, wanted: int, choose=first):
    """Return the labels that a round uses, and its counts."""
    return labels.renew(round_, 0, wanted, "fedal", choose, lambda: False)[:2]


def waiting(queue: Queue) -> list[str]:
    return sorted(request.sample_id for request in queue.pending())


# --- an oracle


def test_an_oracle_reveals_what_is_asked_for_and_nothing_else(tmp_path):
    oracle = SiteLabels("a", oracle_of(data(labelled=6)), tmp_path, RUN)
    assert oracle.annotators.labels_at_start == {}
    assert list(oracle.annotators.pool) == IDS[:6]
    assert oracle.before(1, 0) == {}
    used, counts = renew(oracle, 1, 2)
    assert used == {"s0": 0, "s1": 1}
    assert counts == {"asked": 2, "bought": 2, "waiting": 0, "cannot_tell": 0, "unusable": 0}
    used, counts = renew(oracle, 2, 5, lambda ids, number: list(reversed(ids))[:number])
    assert used == {"s0": 0, "s1": 1, "s5": 1, "s4": 0, "s3": 1}
    assert counts == {"asked": 3, "bought": 5, "waiting": 0, "cannot_tell": 0, "unusable": 0}
    assert oracle.before(3, 0) == used


def test_no_more_is_asked_than_there_is(tmp_path):
    oracle = SiteLabels("a", oracle_of(data(labelled=3)), tmp_path, RUN)
    assert renew(oracle, 1, 99)[1]["asked"] == 3
    assert renew(oracle, 2, 99, never)[1]["asked"] == 0


def test_a_round_that_wants_nothing_asks_nothing(tmp_path):
    oracle = SiteLabels("a", oracle_of(data(labelled=3)), tmp_path, RUN)
    assert renew(oracle, 1, 0, never)[0] == {}


def test_a_query_missed_is_caught_up(tmp_path):
    """Wanted counts from the start of the run."""
    oracle = SiteLabels("a", oracle_of(data(labelled=8)), tmp_path, RUN)
    renew(oracle, 1, 1)
    assert renew(oracle, 9, 5)[1]["asked"] == 4


def test_an_oracle_goes_on_without_an_image_that_is_gone_from_the_site(tmp_path, caplog):
    renew(SiteLabels("clinic", oracle_of(data(labelled=6)), tmp_path, RUN), 1, 4)
    later = SiteLabels("clinic", oracle_of(data(labelled=3)), tmp_path, RUN)
    used, counts = renew(later, 2, 4, never)
    assert used == {"s0": 0, "s1": 1, "s2": 0}
    assert counts == {"asked": 0, "bought": 3, "waiting": 1, "cannot_tell": 0, "unusable": 0}
    assert "site clinic, round 2: the site no longer has 1 label that the run" in caplog.text


# --- nobody


def test_a_site_without_annotators_trains_and_says_so(tmp_path, caplog):
    nobody = annotators_of(data(labelled=3), None)
    warn_of_nobody(data(labelled=3))
    assert len(nobody.labels_at_start) == 3
    assert list(nobody.pool) == IDS[:3]
    assert "nobody is asked for the 5 labels it lacks. Set `annotation: queue`" in caplog.text
    labels = SiteLabels("clinic", nobody, tmp_path, RUN)
    assert labels.before(1, 0) == {"s0": 0, "s1": 1, "s2": 0}
    used, counts = renew(labels, 1, 8, never)
    assert used == {"s0": 0, "s1": 1, "s2": 0}
    assert set(counts.values()) == {0}


def test_a_site_file_decides_who_is_asked(tmp_path):
    file = tmp_path / "clinic.yaml"
    kinds = ("oracle", "queue", "none")
    file.write_text("kind: manifest\nfolder: .\n")
    annotators = [annotators_of(data(labelled=3, annotation=kind), file) for kind in kinds]
    assert [len(annotator.labels_at_start) for annotator in annotators] == [0, 3, 3]
    assert [len(annotator.pool) for annotator in annotators] == [3, 8, 3]


# --- people


def test_who_has_labels_already_is_asked_for_the_others(tmp_path, queue):
    clinic = SiteLabels("clinic", people_of(data(labelled=2), queue), tmp_path / "memory", RUN)
    used, counts = renew(clinic, 1, 4)
    assert used == {"s0": 0, "s1": 1}
    assert counts["asked"] == 2
    assert counts["bought"] == 0
    assert counts["waiting"] == 2
    assert waiting(queue) == ["s2", "s3"]


def test_a_site_that_answers_half_goes_on_with_half(clinic, queue):
    assert renew(clinic, 1, 4)[0] == {}
    say(queue, "s0", "NV")
    say(queue, "s2", "MEL")
    used, counts = renew(clinic, 2, 0, never)
    assert used == {"s0": 1, "s2": 0}
    assert counts == {"asked": 0, "bought": 2, "waiting": 2, "cannot_tell": 0, "unusable": 0}


def test_late_answers_are_not_asked_for_twice(clinic, queue):
    renew(clinic, 1, 2)
    assert renew(clinic, 2, 4)[1] == {
        "asked": 2,
        "bought": 0,
        "waiting": 4,
        "cannot_tell": 0,
        "unusable": 0,
    }
    for name in IDS[:4]:
        say(queue, name, "MEL")
    used, counts = renew(clinic, 3, 6)
    assert used == dict.fromkeys(IDS[:4], 0)
    assert counts == {"asked": 2, "bought": 4, "waiting": 2, "cannot_tell": 0, "unusable": 0}
    assert waiting(queue) == ["s4", "s5"]


def test_nonsense_is_counted_and_told_and_trains_nothing(clinic, queue, caplog):
    renew(clinic, 1, 3)
    say(queue, "s0", "banana")
    say(queue, "s1", "NV")
    say(queue, "of another site", "NV")
    used, counts = renew(clinic, 2, 0, never)
    assert used == {"s1": 1}
    assert counts == {"asked": 0, "bought": 1, "waiting": 2, "cannot_tell": 0, "unusable": 2}
    assert (
        "1 answer cannot be used: 'banana', where the job's classes are MEL, NV. "
        "Answer with these instead." in caplog.text
    )
    assert "1 answer cannot be used: the site file names no such training image" in caplog.text


def test_who_cannot_tell_has_answered(clinic, queue):
    renew(clinic, 1, 2)
    say(queue, "s0", None)
    assert renew(clinic, 2, 0, never)[1] == {
        "asked": 0,
        "bought": 0,
        "waiting": 1,
        "cannot_tell": 1,
        "unusable": 0,
    }


def test_refused_images_are_told_as_undecided_and_kept_out(clinic, queue):
    """No further number leaves the site: who refuses an image has looked, and given no class."""
    renew(clinic, 1, 3)
    for sample_id, kind in (("s0", "unusable"), ("s1", "none of these"), ("s2", "cannot tell")):
        Desk(queue, set(IDS)).answer(
            SentAnswer("ab", sample_id, kind, None, f"{next(_KEYS):032x}", 0)
        )
    renewed = clinic.renew(2, 0, 0, "fedal", never, lambda: False)
    assert renewed.labels == {}
    assert renewed.counts == {
        "asked": 0,
        "bought": 0,
        "waiting": 0,
        "cannot_tell": 3,
        "unusable": 0,
    }
    assert renewed.refused == ("s0", "s1")
    assert clinic.refused_before(3, 0) == ("s0", "s1")
    assert waiting(queue) == []


def test_one_answer_for_a_lesion_is_paid_once(tmp_path, queue):
    lesions = dict.fromkeys(("s0", "s1", "s5"), ("p1", "back"))
    queue = Queue(queue.folder, Rules(lesions=lesions))
    clinic = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN)
    renew(clinic, 1, 3)
    assert waiting(queue) == ["s0", "s2"]
    say(queue, "s0", "NV")
    say(queue, "s2", None)
    renewed = clinic.renew(2, 0, 3, "fedal", never, lambda: False)
    assert renewed.labels == {"s0": 1, "s1": 1}
    assert renewed.counts["bought"] == 2
    assert renewed.answers == 2
    later = clinic.renew(3, 0, 4, "fedal", lambda ids, number: ["s5"], lambda: False)
    assert later.labels["s5"] == 1
    assert later.answers == 2, "the lesion was known"
    assert waiting(queue) == []


def test_a_label_waits_for_its_second_reader(tmp_path, queue):
    queue = Queue(queue.folder, Rules(readers=2))
    clinic = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN)
    renew(clinic, 1, 2)
    for reader, sample_id, label in [("a", "s0", "NV"), ("a", "s1", "NV"), ("b", "s1", "MEL")]:
        Desk(queue, set(IDS)).answer(
            SentAnswer(reader, sample_id, "label", label, f"{next(_KEYS):032x}", 0)
        )
    assert renew(clinic, 2, 0, never)[0] == {}
    for reader, sample_id in [("b", "s0"), ("c", "s1")]:
        Desk(queue, set(IDS)).answer(
            SentAnswer(reader, sample_id, "label", "NV", f"{next(_KEYS):032x}", 0)
        )
    assert renew(clinic, 3, 0, never)[0] == {"s0": 1, "s1": 1}


def test_answers_given_during_a_run_count_only_for_images_it_asked_about(clinic, queue):
    """An answer to another run costs nothing when this one asks for the image."""
    say(queue, "s7", "NV")
    assert renew(clinic, 1, 1)[0] == {}
    assert renew(clinic, 2, 2, lambda ids, number: ["s7"])[0] == {"s7": 1}


def test_new_answers_to_other_runs_are_reported(tmp_path, queue, caplog):
    caplog.set_level("INFO")
    for sample_id in ("s0", "s6", "s7"):
        say(queue, sample_id, "NV")
    clinic = SiteLabels("clinic", people_of(data(labelled=1), queue), tmp_path / "memory", RUN)
    renew(clinic, 1, 2)
    renew(clinic, 2, 3, lambda ids, number: ["s7"])
    messages = [record.getMessage() for record in caplog.records]
    assert [text.partition(", to")[0] for text in messages if "had begun" in text] == [
        "site clinic, round 1: 2 answers came after this run had begun",
        "site clinic, round 2: 1 answer came after this run had begun",
    ]


def test_questions_of_a_finished_run_are_withdrawn(tmp_path, queue):
    former, later = (
        SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", run)
        for run in (RUN, "f" * 32)
    )
    renew(former, 1, 2)
    renew(later, 1, 2, lambda ids, number: ["s4", "s5"])
    assert waiting(queue) == ["s4", "s5"]
    renew(later, 2, 0)
    assert waiting(queue) == ["s4", "s5"]
    renew(former, 2, 0, never)
    assert waiting(queue) == ["s0", "s1", "s4", "s5"]


def test_labels_that_vanish_from_the_queue_are_reported(tmp_path, queue, clinic, caplog):
    renew(clinic, 1, 3)
    for sample_id, label in (("s0", "NV"), ("s1", "NV"), ("s2", "NV")):
        say(queue, sample_id, label)
    renew(clinic, 2, 0)
    assert "gone" not in caplog.text
    other = Queue(tmp_path / "another")
    say(other, "s1", None)
    say(other, "s2", "MEL")
    moved = SiteLabels("clinic", people_of(data(), other), tmp_path / "memory", RUN)
    assert renew(moved, 3, 0)[0] == {"s2": 0}
    assert (
        "site clinic, round 3: the site no longer has 1 label that the run used before"
        in caplog.text
    )


def test_a_class_that_was_corrected_replaces_the_first(clinic, queue):
    renew(clinic, 1, 1)
    say(queue, "s0", "NV")
    assert renew(clinic, 2, 0)[0] == {"s0": 1}
    Desk(queue, set(IDS)).answer(SentAnswer("cd", "s0", "label", "MEL", "f" * 32, 0))
    assert renew(clinic, 3, 0)[0] == {"s0": 0}


# --- waiting


def test_a_round_waits_until_all_that_is_new_is_answered(tmp_path, queue, monkeypatch):
    clinic = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN, wait=3600.0)
    slept = []

    def pause(seconds: float) -> None:
        slept.append(seconds)
        say(queue, IDS[len(slept) - 1], "NV" if len(slept) == 1 else None)

    monkeypatch.setattr(module, "sleep", pause)
    used, counts = renew(clinic, 1, 2)
    assert len(slept) == 2
    assert used == {"s0": 1}
    assert counts["cannot_tell"] == 1
    assert counts["waiting"] == 0


def test_waiting_ends_in_time(tmp_path, queue, monkeypatch):
    clock = count(0.0, 40.0)
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))
    monkeypatch.setattr(module, "sleep", lambda seconds: None)
    clinic = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN, wait=100.0)
    assert renew(clinic, 1, 2)[1]["waiting"] == 2
    assert next(clock) == 160.0


def test_waiting_tells_once_of_what_it_cannot_use(tmp_path, queue, monkeypatch, caplog):
    clock = count(0.0, 1.0)
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))
    monkeypatch.setattr(module, "sleep", lambda seconds: None)
    say(queue, "of another site", "NV")
    clinic = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN, wait=100.0)
    assert renew(clinic, 1, 2)[1]["unusable"] == 1
    assert caplog.text.count("1 answer cannot be used") == 1


def test_an_abort_ends_the_waiting_and_keeps_the_question(tmp_path, queue):
    clinic = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN, wait=3600.0)
    with pytest.raises(RunError, match="site clinic: the run was aborted while waiting for labels"):
        clinic.renew(1, 0, 2, "fedal", first, lambda: True)
    assert waiting(queue) == ["s0", "s1"]


# --- again, and after a kill


def test_a_round_asked_for_again_has_the_labels_it_had(clinic, queue, tmp_path):
    """Answers that came in between wait for the round after it, as in an undisturbed run."""
    renew(clinic, 1, 2)
    say(queue, "s0", "NV")
    before = renew(clinic, 2, 4)
    say(queue, "s1", "NV")
    again = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN)
    assert renew(again, 2, 4, never) == before
    assert renew(again, 3, 4, never)[0] == {"s0": 1, "s1": 1}


def test_a_site_that_begins_in_the_middle_of_a_run_says_so(clinic, queue, tmp_path, caplog):
    """It joins late, or has lost its memory: its questions are then not known."""
    renew(clinic, 1, 2)
    renew(clinic, 2, 3)
    assert "no record of earlier questions" not in caplog.text
    renew(SiteLabels("clinic", people_of(data(), queue), tmp_path / "lost", RUN), 3, 3)
    assert "site clinic, round 3: no record of earlier questions of this run" in caplog.text


def test_another_run_starts_without_labels(clinic, queue, tmp_path):
    renew(clinic, 1, 2)
    other = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", "f" * 32)
    assert other.taken_before(2, 0) == 0
    assert renew(other, 2, 3)[1]["asked"] == 3


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/client"]
from test_labels import people_of, Queue, RUN, SiteLabels, data, first
folder = Path(sys.argv[2])
people = people_of(data(), Queue(folder / "queue"))
labels = SiteLabels("clinic", people, folder / "memory", RUN, wait=3600.0)
labels.renew(1, 0, 3, "fedal", first, lambda: bool((folder / "waits").touch()))
"""


def test_a_kill_between_question_and_answer_loses_nothing(tmp_path, queue):
    process = subprocess.Popen([sys.executable, "-c", KILLED, Path(__file__).parent, tmp_path])
    while not (tmp_path / "waits").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert waiting(queue) == IDS[:3]
    say(queue, "s1", "NV")
    clinic = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN)
    assert clinic.taken_before(2, 0) == 3, "also if the federation has gone on without it"
    used, counts = renew(clinic, 1, 3, never)
    assert used == {"s1": 1}
    assert counts["asked"] == 3
    assert counts["waiting"] == 2
    assert waiting(queue) == ["s0", "s2"]


# --- several jobs of one run


@pytest.fixture
def arrived(monkeypatch) -> list[Path]:
    """Return the list of the locks that a process or thread of this site has asked for so far."""
    asked_for = list[Path]()

    @contextmanager
    def noted(path: Path) -> Iterator[None]:
        asked_for.append(path)
        with locked(path):
            yield

    monkeypatch.setattr(memory, "locked", noted)
    return asked_for


@pytest.mark.proves(
    "lead",
    "several jobs that name one run ask for labels at the same time",
    "people are asked about the images of one of them, within the limit of all runs",
)
def test_jobs_of_one_run_at_once_ask_about_the_same_images(tmp_path, queue, arrived):
    ledger = questions.QUESTIONS.file(tmp_path, "clinic")
    counts = {}
    chose = []
    second_chose = threading.Event()

    def grant(query: questions.Query, images: Sequence[str]) -> int:
        return questions.grant(ledger, query, images, 3)

    def job(name: str, choose) -> None:
        people = people_of(data(), queue)
        here = SiteLabels("clinic", people, tmp_path / "memory", RUN, grant=grant)
        counts[name] = here.renew(1, 0, 3, "fedal", choose, lambda: False).counts

    def last(ids: Sequence[str], number: int) -> Sequence[str]:
        chose.append("second")
        second_chose.set()
        return ids[-number:]

    second = threading.Thread(target=job, args=("second", last))

    def first_while_the_second_begins(ids: Sequence[str], number: int) -> Sequence[str]:
        chose.append("first")
        second.start()
        # The second job waits at the lock, or it chooses, too.
        while len(arrived) < 2 and not second_chose.is_set():
            assert second.is_alive()
        return ids[:number]

    job("first", first_while_the_second_begins)
    second.join()
    assert chose == ["first"]
    assert waiting(queue) == IDS[:3]
    assert counts["second"] == counts["first"]
    assert sum(questions.granted(ledger).values()) == 3


def test_nobody_waits_for_another_jobs_answers(tmp_path, queue, monkeypatch):
    """While a job waits for people, another one of its run may ask them, and answers first."""
    clinic = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN, wait=3600.0)
    other = SiteLabels("clinic", people_of(data(), queue), tmp_path / "memory", RUN)
    of_other_job = []

    def pause(seconds: float) -> None:
        say(queue, "s0", "NV")
        of_other_job.append(renew(other, 1, 2, never))
        say(queue, "s1", "MEL")

    monkeypatch.setattr(module, "sleep", pause)
    assert renew(clinic, 1, 2) == of_other_job[0]
    assert of_other_job[0][0] == {"s0": 1}, "what was saved first stands"


@pytest.mark.proves(
    "lead",
    "the rounds of a run are asked for backwards, each by a job that fails afterwards",
    "nobody is asked about more images than the run may have labels",
)
def test_an_exchange_before_one_that_asked_asks_nothing_new(clinic, queue):
    renew(clinic, 4, 3)
    for round_ in (3, 2, 1):
        assert renew(clinic, round_, 3, never)[1]["asked"] == 0
    assert waiting(queue) == IDS[:3]
    assert renew(clinic, 5, 4)[1]["asked"] == 1


def test_an_exchange_whose_record_was_deleted_asks_nothing_new(clinic, queue):
    for round_ in range(1, 5):
        renew(clinic, round_, round_)
    assert renew(clinic, 1, 4, never)[1]["asked"] == 0
    assert waiting(queue) == IDS[:4]
