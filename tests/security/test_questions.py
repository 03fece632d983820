"""The ledger of questions: the labels that all jobs together may ask a site for."""

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from clients import new_client
from fedward.annotation import queue_of
from fedward.client.admission import Admission
from fedward.client.client import Client
from fedward.client.memory import Memory
from fedward.config import DataSpec, Experiment
from fedward.digests import canonical, digest
from fedward.errors import DataError
from fedward.methods import method_of
from fedward.security import questions
from fedward.security.kept_chain import last_hashes
from fedward.security.policy import OPEN, Policy
from fedward.security.questions import QUESTIONS, Query, granted
from fedward.storage.chain import Chain
from hospital import HERE, hospital, request
from isolated import CLASSES, write_sites

RUNS = ["a" * 32, "b" * 32]


def limit(most: int) -> Policy:
    """Return a policy whose only rule limits the questions."""
    return OPEN.model_copy(update={"maximum_questions_in_all": most})


LIMIT = limit(50)
"""A run of :data:`JOBS` asks for 7 labels in its first round, and for 29 in its second."""
JOBS = [hospital("fedal", seed=seed, options={"rounds": 4}) for seed in (3, 4)]


IMAGES = [f"s{number}" for number in range(99)]


def grant(path: Path, query: Query, labels: int, most: int | None) -> int:
    """Grant a query labels of the first images of a site."""
    return questions.grant(path, query, IMAGES[:labels], most)


def site(folder: Path, experiment: Experiment, policy: Policy = LIMIT) -> Client:
    admission = Admission(HERE, experiment, method_of(experiment), folder, lambda: policy)
    return new_client(HERE, experiment, folder, admission=admission)


def ask(folder: Path, job: int, round_: int, policy: Policy = LIMIT) -> int:
    """Return how many labels a new process of the site asks for in a round of a job."""
    task = "train" if round_ == 1 else "query"
    message = request(JOBS[job], round_=round_, run=RUNS[job], task=task)
    answer = site(folder, JOBS[job], policy).handle(message).meta
    assert answer.get("error") is None
    assert answer["steps"] > 0
    return int(answer["label_counts"]["asked"])


def in_all(folder: Path) -> int:
    """Return how many labels the site has asked for in all jobs together."""
    return sum(granted(QUESTIONS.file(folder, HERE)).values())


# --- the ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return QUESTIONS.file(tmp_path, HERE)


def test_queries_add_up_and_count_once(path):
    first = Query(RUNS[0], 1, 0)
    second = Query(RUNS[0], 2, 1)
    other = Query(RUNS[1], 1, 0)
    assert grant(path, first, 3, 10) == 3
    assert grant(path, first, 3, 10) == 3
    assert grant(path, second, 5, 10) == 5
    assert granted(path) == {first: 3, second: 5}
    assert grant(path, other, 3, 10) == 2
    assert grant(path, other, 3, 10) == 2
    assert grant(path, first, 3, 10) == 3, "it is asked again, with nothing left"
    assert grant(path, first, 4, 10) == 3
    assert grant(path, other, 3, 0) == 2
    assert grant(path, other, 3, None) == 3
    assert sum(granted(path).values()) == 11
    assert grant(path, second, 1, 10) == 1
    assert len(path.read_text().splitlines()) == 4, "a query that is granted nothing new adds none"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.proves(
    "lead",
    "a query that was granted comes again, and its site no longer knows what it asked about",
    "other images count as further questions, the same ones do not",
)
def test_a_query_for_other_images_counts_again(path):
    query = Query(RUNS[0], 1, 0)
    assert questions.grant(path, query, ["a", "b", "c"], 7) == 3
    assert questions.grant(path, query, ["c", "b", "a"], 7) == 3, "the same images, in any order"
    assert questions.grant(path, query, ["d", "e", "f"], 7) == 3
    assert questions.grant(path, query, ["a", "b", "g", "d", "h", "f"], 7) == 4
    assert questions.grant(path, query, ["h", "a"], 7) == 0, "nothing is left"
    assert questions.grant(path, query, ["e", "g", "a"], 7) == 3
    assert granted(path) == {query: 7}


def test_a_line_does_not_tell_which_images_it_is_of(path):
    """The line's hash leaves the site, and somebody may know the ids of some images."""
    other = QUESTIONS.file(path.parent, "hospital-z")
    for ledger in (path, other):
        grant(ledger, Query(RUNS[0], 1, 0), 3, 10)
    one, another = (json.loads(ledger.read_text()) for ledger in (path, other))
    assert one["salt"] != another["salt"]
    assert not {*one["images"]} & {*another["images"]}


def _grant(path: Path, number: int) -> int:
    return grant(path, Query(RUNS[number % 2], number, 0), 3, 10)


def test_jobs_at_once_share_the_limit(path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        numbers_granted = pool.starmap(_grant, [(path, number) for number in range(8)], chunksize=1)
    assert sorted(numbers_granted) == [0, 0, 0, 0, 1, 3, 3, 3]
    assert sum(granted(path).values()) == 10


def test_half_a_line_counts_for_nothing(path):
    grant(path, Query(RUNS[0], 1, 0), 3, None)
    with path.open("ab") as file:
        file.write(b'{"labels":99,"part":0,')
    assert sum(granted(path).values()) == 3
    assert grant(path, Query(RUNS[0], 2, 0), 7, 10) == 7
    assert grant(path, Query(RUNS[0], 3, 0), 1, 10) == 0


def test_a_changed_ledger_lets_nobody_ask(path):
    for round_ in (1, 2):
        grant(path, Query(RUNS[0], round_, 0), 3, 10)
    before = path.read_text()
    first, second = before.splitlines(keepends=True)
    row = json.loads(first) | {"labels": 0}
    del row["hash"]
    forged = canonical(row | {"hash": digest(row)}) + "\n"
    for content in (
        before.replace('"labels":3', '"labels":0'),
        second,
        second + first,
        forged + second,
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=r"ledger of questions .*Nobody is asked"):
            grant(path, Query(RUNS[0], 3, 0), 1, None)


def end_of(path: Path) -> Path:
    return path.with_name(f"questions-{HERE}.end.json")


def answer(path: Path) -> None:
    """Write into the site's log of answers what the ledger's last hash is."""
    log = path.parent / "answers" / f"{RUNS[0]}.jsonl"
    log.parent.mkdir(exist_ok=True)
    Chain(log, RUNS[0]).add(
        {"site": HERE, "event": "answered", "questions": last_hashes({QUESTIONS: path})[QUESTIONS]}
    )


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def cut_in_mid_line(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def delete(path: Path) -> None:
    path.unlink()


def delete_its_end(path: Path) -> None:
    end_of(path).unlink()


def delete_with_its_end(path: Path) -> None:
    path.unlink()
    end_of(path).unlink()


def cut_without_its_end(path: Path) -> None:
    cut(path)
    end_of(path).unlink()


def put_back_an_older_copy(path: Path) -> None:
    """Put back an older copy of the file together with the end that fits it."""
    cut(path)
    end_of(path).write_text(canonical(Chain(path, path.name).end))


def fork(path: Path) -> None:
    """Replace the second line and those after it by other queries, with hashes and end that fit."""
    put_back_an_older_copy(path)
    for round_ in (7, 8):
        Chain(path, path.name).add({**Query(RUNS[1], round_, 0)._asdict(), "labels": 0})
    end_of(path).write_text(canonical(Chain(path, path.name).end))


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def link_its_end(path: Path) -> None:
    link(end_of(path))


def another_sites(path: Path) -> None:
    """Replace the ledger by that of another site, as a hard link: one file under two names."""
    other = QUESTIONS.file(path.parent, "hospital-z")
    grant(other, Query(RUNS[0], 1, 0), 1, None)
    path.unlink()
    path.hardlink_to(other)
    end_of(path).write_bytes(other.with_name("questions-hospital-z.end.json").read_bytes())


@pytest.mark.proves(
    "files",
    "a ledger of questions is deleted, cut, forked or replaced by an older copy",
    "nobody is asked",
)
@pytest.mark.parametrize(
    "harm",
    [
        cut,
        cut_in_mid_line,
        empty,
        delete,
        delete_its_end,
        delete_with_its_end,
        cut_without_its_end,
        put_back_an_older_copy,
        fork,
        link,
        link_its_end,
        another_sites,
    ],
)
def test_a_ledger_that_was_rolled_back_lets_nobody_ask(
    path: Path, harm: Callable[[Path], None]
) -> None:
    for round_ in (1, 2, 3):
        grant(path, Query(RUNS[0], round_, 0), 3, 10)
    answer(path)
    harm(path)
    for _ in range(2):
        with pytest.raises(DataError, match=r"ledger of questions .*Nobody is asked"):
            grant(path, Query(RUNS[1], 1, 0), 3, 10)
        with pytest.raises(DataError, match="Nobody is asked"):
            granted(path)


def test_a_query_whose_end_was_not_written_counts(path: Path) -> None:
    """A crash after the line, before the end: people may have been asked or not."""
    grant(path, Query(RUNS[0], 1, 0), 3, 10)
    earlier = end_of(path).read_bytes()
    grant(path, Query(RUNS[0], 2, 0), 3, 10)
    end_of(path).write_bytes(earlier)
    assert grant(path, Query(RUNS[0], 3, 0), 9, 10) == 4


# --- a site


def test_the_answers_of_a_site_know_its_ledger_of_questions(tmp_path: Path) -> None:
    assert ask(tmp_path, 0, 1) == 7
    (log,) = (tmp_path / "answers").glob("*.jsonl")
    path = QUESTIONS.file(tmp_path, HERE)
    newest = json.loads(log.read_text().splitlines()[-1])["questions"]
    assert newest == json.loads(path.read_text())["hash"]
    delete_with_its_end(path)
    answer = site(tmp_path, JOBS[1]).handle(request(JOBS[1], run=RUNS[1])).meta
    assert "error" in answer
    assert not path.exists()


@pytest.mark.proves(
    "files",
    "a ledger of questions is deleted, cut, forked or replaced by an older copy",
    "nobody is asked",
)
def test_an_answer_in_between_does_not_vouch_for_an_older_ledger(tmp_path: Path) -> None:
    """A job that asks nothing more is answered, and logs no hash of the ledger."""
    assert ask(tmp_path, 0, 1) == 7
    path = QUESTIONS.file(tmp_path, HERE)
    older = {file: file.read_bytes() for file in (path, end_of(path))}
    assert ask(tmp_path, 0, 2) == 29
    for file, content in older.items():
        file.write_bytes(content)
    assert ask(tmp_path, 0, 3) == 0
    for _ in range(2):
        answer = site(tmp_path, JOBS[1]).handle(request(JOBS[1], run=RUNS[1])).meta
        assert "error" in answer
    assert path.read_bytes() == older[path]


def test_all_jobs_together_stay_within_the_limit(tmp_path, caplog):
    """Each job stays within the limit, and so do both in turns; each round is another process."""
    assert ask(tmp_path, 0, 1) == 7
    assert ask(tmp_path, 1, 1) == 7
    assert ask(tmp_path, 0, 2) == 29
    assert ask(tmp_path, 1, 2) == 7
    assert (
        f"site {HERE}, round 2: the run wants 29 labels, and people are asked for 7" in caplog.text
    )
    assert ask(tmp_path, 0, 2) == 29, "the same query is answered again"
    assert ask(tmp_path, 1, 2) == 7, "the same query is answered again"
    assert ask(tmp_path, 1, 3) == 0
    assert in_all(tmp_path) == 50
    assert ask(tmp_path, 1, 4, limit(60)) == 10, "the site's administrator allows more"
    assert in_all(tmp_path) == 60


def test_a_lower_limit_takes_back_nothing(tmp_path):
    assert ask(tmp_path, 0, 1) == 7
    assert ask(tmp_path, 0, 2) == 29
    assert ask(tmp_path, 0, 2, limit(0)) == 29
    assert in_all(tmp_path) == 36


def test_what_was_asked_before_there_was_a_limit_counts(tmp_path):
    assert ask(tmp_path, 0, 1, OPEN) == 7
    assert ask(tmp_path, 0, 2, OPEN) == 29
    assert ask(tmp_path, 1, 1, limit(42)) == 6


def test_a_process_that_dies_before_it_asks_is_counted_once(tmp_path, monkeypatch):
    def power_cut(*arguments: object) -> None:
        raise OSError("power cut")

    message = request(JOBS[0], run=RUNS[0])
    with monkeypatch.context() as patch:
        patch.setattr(Memory, "save", power_cut)
        assert site(tmp_path, JOBS[0]).handle(message).meta["error"].startswith("OSError")
    assert in_all(tmp_path) == 7
    assert ask(tmp_path, 0, 1) == 7
    assert in_all(tmp_path) == 7


def test_a_site_that_may_ask_for_nothing_goes_on(tmp_path):
    """Without any label it takes no step."""
    here = site(tmp_path, JOBS[0], limit(0))
    answer = here.handle(request(JOBS[0])).meta
    assert answer["steps"] == 0
    assert answer["label_counts"]["asked"] == 0
    assert answer["label_counts"]["waiting"] == 0


# --- labels that a site has of its own


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """Return the folder of a hospital that labels 36 of 60 images and asks about the others."""
    folder = write_sites(tmp_path / "files")
    lines = "labelled: 0.6\nannotation: queue\n"
    (folder / f"{HERE}.yaml").write_text(
        f"kind: npz\nfile: images.npz\nlabels: {{0: A, 1: B, 2: C}}\n{lines}"
    )
    return folder


@pytest.mark.parametrize(("target", "asked"), [(0.5, 0), (0.9, 18)])
def test_labels_that_a_site_has_of_its_own_are_no_questions(tmp_path, clinic, target, asked):
    options = {"target_fraction": target, "participants": None, "images_at_most": None}
    job = hospital("fedal", options=options).model_copy(
        update={"data": DataSpec(classes=CLASSES, image_size=16), "synthetic": None}
    )
    for most in {asked, max(asked - 1, 0)}:
        policy = Policy(maximum_questions=most, minimum_steps=1, minimum_images=1, minimum_batch=1)
        admission = Admission(
            HERE, job, method_of(job), tmp_path / str(most), lambda policy=policy: policy
        )
        here = new_client(HERE, job, tmp_path / str(most), [clinic], admission=admission)
        answer = here.handle(request(job, round_=2, task="query")).meta
        if most < asked:
            assert f"maximum_questions: at most {most}" in answer["error"]
        else:
            assert answer["label_counts"]["waiting"] == answer["label_counts"]["asked"] == asked


def test_people_are_asked_about_the_most_wanted_images_alone(tmp_path, clinic):
    """What is not granted is never in the queue, whatever the server asks."""
    job = hospital(
        "fedal", options={"target_fraction": 0.9, "participants": None, "images_at_most": None}
    )
    job = job.model_copy(
        update={"data": DataSpec(classes=CLASSES, image_size=16), "synthetic": None}
    )
    admission = Admission(HERE, job, method_of(job), tmp_path / "site", lambda: limit(5))
    here = new_client(HERE, job, tmp_path / "site", [clinic], admission=admission)
    assert here.handle(request(job, round_=2, task="query")).meta["label_counts"]["asked"] == 5
    waiting = queue_of(clinic / f"{HERE}.yaml").pending()
    assert [question.score for question in waiting] == [5.0, 4.0, 3.0, 2.0, 1.0]
    assert here.handle(request(job, round_=3, task="query")).meta["label_counts"]["asked"] == 0
    assert len(queue_of(clinic / f"{HERE}.yaml").pending()) == 5
