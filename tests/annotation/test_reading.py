"""Which answer counts: lesions, several readers, adjudication, refused images, the audit trail."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from fedward import cli
from fedward.annotation import Queue, Rules, queue_of
from fedward.annotation.desk import Desk
from fedward.annotation.page_content import View
from fedward.annotation.questions import cohens_kappa
from fedward.annotation.reading import read_rules
from fedward.errors import DataError

Make = Callable[[Queue, str], Any]
LESIONS = {"s00": ("p1", "arm"), "s01": ("p1", "arm"), "s02": ("p1", "back"), "s03": ("p2", "arm")}


def view(queue: Queue, name: str, showing: str = "", again: bool = False) -> View:
    return Desk(queue, {f"s{index:02d}" for index in range(100)}).view(name, showing, again=again)


def shown(queue: Queue, name: str) -> str:
    image = view(queue, name).image
    return image.sample_id if image else ""


@pytest.fixture
def by(clinic: Any) -> Callable[..., Queue]:
    """The clinic's queue by other rules, with its first images asked for."""
    clinic.ask("s00", "s01", "s02", "s03")
    return lambda **rules: Queue(clinic.queue.folder, Rules(**rules))


# --- lesions


def test_a_lesion_is_one_question_whose_answer_is_of_all(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(lesions=LESIONS)
    assert [request.sample_id for request in queue.pending()] == ["s00", "s02", "s03"]
    first = view(queue, "anna")
    assert (first.together, first.waiting, first.tally.total) == (("s00", "s01"), 3, 3)
    make_clinician(queue, "anna").say("s00", "MEL")
    assert queue.labels() == {"s00": "MEL", "s01": "MEL"}
    after = view(queue, "anna")
    assert (after.mine, after.tally.decided, after.waiting) == (1, 1, 2)
    assert make_clinician(queue, "anna").take_back() == "s00"
    assert queue.labels() == {}


def test_an_image_of_a_lesion_asked_for_later_is_answered(
    by: Callable[..., Queue], clinic: Any, make_clinician: Make
) -> None:
    queue = by(lesions={**LESIONS, "s04": ("p1", "arm"), "s05": ("p1", "arm")})
    make_clinician(queue, "anna").say("s01", "NV")
    assert "s04" not in queue.labels(), "nobody has asked for it"
    clinic.ask("s04", round_=2)
    assert queue.labels() == {"s00": "NV", "s01": "NV", "s04": "NV"}
    assert [request.sample_id for request in queue.pending()] == ["s02", "s03"]


def test_an_answer_changed_at_another_image_is_the_lesions(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(lesions=LESIONS)
    anna = make_clinician(queue, "anna")
    anna.say("s00", "MEL")
    seen = view(queue, "anna", "s01", again=True)
    assert (seen.own, seen.seen) == ("MEL", 1)
    Desk(queue, {"s01"}).answer(
        type(anna.say("s03", "NV"))("anna", "s01", "label", "NV", anna.key(), seen.seen)
    )
    assert queue.labels() == {"s00": "NV", "s01": "NV", "s03": "NV"}
    assert {decision.sample_id: decision.text for decision in queue.decisions()} == queue.labels()


def test_lesions_come_from_the_column_that_the_site_names(clinic: Any) -> None:
    rows = ["sample_id,image,label,patient,lesion"]
    for sample_id, patient, lesion in [
        ("s00", "p1", "1"),
        ("s01", "p1", "1"),
        ("s02", "p2", "1"),
        ("s03", "p1", ""),
    ]:
        rows.append(f"{sample_id},images/{sample_id}.png,,{patient},{lesion}")
    (clinic.site_file.parent / "manifest.csv").write_text("\n".join(rows))
    start = "kind: manifest\nfolder: .\ncolumns: {group: patient}\nreading: "
    clinic.site_file.write_text(
        start + "{lesion: lesion, readers: 2, adjudicators: [Dr. Senior]}\n"
    )
    rules = read_rules(clinic.site_file)
    assert (rules.readers, rules.adjudicators) == (2, {"Dr. Senior"})
    assert [rules.together(name) for name in ("s00", "s02", "s03")] == [
        ("s00", "s01"),
        ("s02",),
        ("s03",),
    ]
    for reading, found in [
        ("{lesion: mole}", "missing: mole"),
        ("{adjudicators: [x]}", "readers: 2 or more"),
    ]:
        clinic.site_file.write_text(start + reading)
        with pytest.raises(DataError, match=found):
            queue_of(clinic.site_file)


# --- readers who differ


def test_where_two_readers_differ_a_third_decides(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(readers=2)
    anna, ben, clara = (make_clinician(queue, name) for name in ("anna", "ben", "clara"))
    anna.say("s00", "MEL")
    assert queue.labels() == {}, "one reader is not enough"
    ben.say("s00", "NV")
    assert queue.labels() == {}
    assert (shown(queue, "anna"), shown(queue, "ben"), shown(queue, "clara")) == (
        "s01",
        "s01",
        "s00",
    )
    assert (
        view(queue, "clara").adjudicates,
        view(queue, "clara").tally.disputed,
        view(queue, "anna").tally.decided,
    ) == (
        True,
        1,
        0,
    )
    clara.say("s00", "BCC")
    assert queue.labels() == {"s00": "BCC"}
    anna.say("s00", "NV")
    assert queue.labels() == {"s00": "BCC"}, "who is decided about does not overrule"
    clara.say("s00", None)
    assert queue.labels() == {}
    assert queue.cannot_tell() == {"s00"}
    assert clara.take_back() == "s00"
    assert queue.labels() == {"s00": "BCC"}


def test_named_adjudicators_are_asked_about_disputes_alone(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(readers=2, adjudicators=frozenset({"senior"}))
    assert shown(queue, "senior") == ""
    for name, label in (("anna", "MEL"), ("ben", "NV")):
        make_clinician(queue, name).say("s00", label)
    assert (shown(queue, "senior"), shown(queue, "clara")) == ("s00", "s01")
    make_clinician(queue, "clara").say("s00", "NV")
    assert queue.labels() == {}
    make_clinician(queue, "senior").say("s00", "MEL")
    assert queue.labels() == {"s00": "MEL"}


def test_an_adjudicator_who_has_answered_before_is_asked_and_decides(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    """Readers agreed by the time the answer came, or it came in a file; nobody else may decide."""
    queue = by(readers=2, adjudicators=frozenset({"senior"}))
    make_clinician(queue, "anna").say("s00", "MEL")
    senior = make_clinician(queue, "senior")
    senior.say("s00", "NV")
    assert queue.labels() == {}
    assert (shown(queue, "senior"), shown(queue, "ben")) == ("s00", "s01")
    assert view(queue, "senior").adjudicates
    senior.say("s00", "BCC")
    assert queue.labels() == {"s00": "BCC"}
    assert shown(queue, "senior") == ""


def test_who_abstains_makes_no_dispute(by: Callable[..., Queue], make_clinician: Make) -> None:
    queue = by(readers=2)
    for name, label in (("anna", "MEL"), ("ben", None)):
        make_clinician(queue, name).say("s00", label)
        make_clinician(queue, name).say("s01", None)
    assert queue.labels() == {"s00": "MEL"}
    assert queue.cannot_tell() == {"s01"}


def test_agreement_is_before_adjudication(by: Callable[..., Queue], make_clinician: Make) -> None:
    queue = by(readers=2)
    readings = [
        ("s00", "MEL", "NV"),
        ("s01", "MEL", "MEL"),
        ("s02", "NV", "NV"),
        ("s03", "NV", "NV"),
    ]
    for sample_id, *labels in readings:
        for name, label in zip(("anna", "ben"), labels, strict=True):
            make_clinician(queue, name).say(sample_id, label)
    make_clinician(queue, "clara").say("s00", "NV")
    agreement = queue.agreement()
    assert (agreement.read_twice, agreement.unanimous) == (4, 3)
    assert agreement.kappa == pytest.approx(0.5)
    assert agreement.disputed[0].kept.annotator == "clara"


def test_cohens_kappa_is_that_of_scikit_learn() -> None:
    draw = np.random.default_rng(3)
    for _ in range(20):
        pairs = [
            tuple(pair)
            for pair in draw.choice(["MEL", "NV", "unusable"], (int(draw.integers(2, 30)), 2))
        ]
        if len({answer for pair in pairs for answer in pair}) > 1:
            assert cohens_kappa(pairs) == pytest.approx(
                cohen_kappa_score(*zip(*pairs, strict=True))
            )
    assert cohens_kappa([("MEL", "NV"), ("NV", "MEL")]) == -1
    assert cohens_kappa([("MEL", "MEL")]) is None
    assert cohens_kappa([]) is None


# --- images that are refused


@pytest.mark.parametrize("kind", ["unusable", "none of these"])
def test_a_refused_image_is_not_asked_again_and_stays_known(
    by: Callable[..., Queue], clinic: Any, make_clinician: Make, kind: str
) -> None:
    queue = by()
    make_clinician(queue, "anna").say("s00", None, kind)
    clinic.ask("s00", round_=2)
    assert "s00" not in [request.sample_id for request in queue.pending()]
    assert (queue.labels(), queue.verdicts()["s00"].kind) == ({}, kind)
    assert view(queue, "anna").tally.undecidable == 1
    make_clinician(queue, "ben").say("s00", "MEL")
    assert queue.labels() == {"s00": "MEL"}, "with one reader the newest counts"


def test_a_refusal_and_a_class_are_a_dispute(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(readers=2)
    make_clinician(queue, "anna").say("s00", None, "unusable")
    make_clinician(queue, "ben").say("s00", "MEL")
    assert view(queue, "clara").adjudicates
    make_clinician(queue, "clara").say("s00", None, "unusable")
    assert queue.verdicts()["s00"].kind == "unusable"


# --- own answers


def test_each_reader_sees_their_own_answers_alone(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(lesions=LESIONS)
    make_clinician(queue, "anna").say("s00", "MEL")
    make_clinician(queue, "ben").say("s02", "NV")
    make_clinician(queue, "anna").say("s03", None)
    desk = Desk(queue, set(LESIONS))
    assert [(given.sample_id, given.text) for given in desk.given("anna")] == [
        ("s03", "cannot tell"),
        ("s00", "MEL"),
    ]
    assert desk.view("anna", "s00").own is None, "without `again` the next one is shown"
    assert desk.view("anna", "s00", again=True).own == "MEL"


@pytest.mark.proves(
    "files",
    "a second reader who watches the number of disputes and changes an answer by it",
    "**not covered**: the number says whether the first reader agrees. The audit "
    "trail shows the change",
)
def test_the_number_of_disputes_tells_a_reader_of_another(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(readers=2)
    make_clinician(queue, "anna").say("s00", "MEL")
    ben = make_clinician(queue, "ben")
    seen = list[int]()
    for label in ("NV", "MEL"):
        ben.say("s00", label)
        seen.append(view(queue, "ben").tally.disputed)
    assert seen == [1, 0]
    assert queue.labels() == {"s00": "MEL"}
    with queue.database.reading() as database:
        assert (
            database.execute("SELECT count(*) FROM answers WHERE annotator = 'ben'").fetchone()[0]
            == 2
        )


# --- the trail


@pytest.mark.proves(
    "files", "a spreadsheet formula as an image's id", "inert text in the exported CSV"
)
def test_the_trail_has_every_answer_and_no_formula(
    by: Callable[..., Queue],
    clinic: Any,
    make_clinician: Make,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue = by()
    anna = make_clinician(queue, "anna")
    message = anna.say("s00", "MEL")
    Desk(queue, {"s01"}).answer(
        type(message)("anna", "s01", "unusable", None, anna.key(), 0, seconds=2.5)
    )
    anna.take_back()
    anna.say("=cmd()", "NV")
    words = [
        "annotate",
        str(clinic.site_file),
        "--classes",
        "MEL",
        "NV",
        "--audit",
        str(tmp_path / "trail.csv"),
    ]
    assert cli.main(words) == 0
    assert "4 answers" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "trail.csv").read_text("utf-8-sig").splitlines()))
    assert [(row["sample_id"], row["answer"], row["takes_back"]) for row in rows] == [
        ("s00", "MEL", ""),
        ("s01", "unusable", ""),
        ("s01", "undo", "2"),
        ("'=cmd()", "NV", ""),
    ]
    assert [row["seconds"] for row in rows] == ["", "2.5", "", ""]
    assert {row["annotator"] for row in rows} == {"anna"}
    assert all(row["time"] and row["source"] == "page" for row in rows)


def test_the_trail_says_for_which_images_an_answer_counts(
    by: Callable[..., Queue], make_clinician: Make, tmp_path: Path
) -> None:
    from fedward.annotation.audit import write_audit

    queue = by(lesions=LESIONS)
    make_clinician(queue, "anna").say("s01", "MEL")
    assert write_audit(queue, tmp_path / "trail.csv") == 1
    (row,) = csv.DictReader((tmp_path / "trail.csv").read_text("utf-8-sig").splitlines())
    assert (row["sample_id"], row["counts_for"], row["adjudicates"]) == ("s01", "s00", "0")
