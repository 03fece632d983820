"""Checks of readers: questions that come again, images of known class; no run is affected."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedward.annotation import OwnAgreement, Queue, Remark, Rules
from fedward.annotation.audit import write_audit
from fedward.annotation.checks import checks_of
from fedward.annotation.desk import Desk
from fedward.annotation.page.app import Page
from fedward.annotation.page.guard import Guard
from fedward.annotation.page_content import SentAnswer, Stale
from fedward.annotation.pictures import Pictures
from fedward.annotation.questions import questions
from fedward.annotation.queue import queue_of
from fedward.errors import DataError
from visiting import come_in

Make = Callable[[Queue, str], Any]
IDS = [f"s{index:02d}" for index in range(12)]
KNOWN = {"s60": "MEL", "s61": "NV", "s62": "NV"}
REPEAT_AFTER = 4
KNOWN_EVERY = 3


@pytest.fixture
def by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Queue]:
    """A queue by these rules, with frequent checks; twelve images are asked for."""
    monkeypatch.setattr("fedward.annotation.checks.REPEAT_AFTER", REPEAT_AFTER)
    monkeypatch.setattr("fedward.annotation.checks.KNOWN_EVERY", KNOWN_EVERY)

    def make(**rules: Any) -> Queue:
        queue = Queue(tmp_path / "queue", Rules(**rules))
        with queue.database.writing() as database:
            database.execute("UPDATE draws SET secret = zeroblob(32)")  # the same in each run
        queue.request("run", 1, "fedal", IDS, [-float(index) for index in range(12)])
        return queue

    return make


def until_the_first_repeat(reader: Any) -> Any:
    """Answer so many images that the first one comes again next, and return the reader."""
    for sample_id in IDS[: REPEAT_AFTER + 1]:
        reader.say(sample_id, "NV")
    return reader


def answer_all(queue: Queue, reader: Any, label: Callable[[str], str]) -> list[str]:
    """Answer what is shown until nothing waits, and return the images in their order."""
    shown = []
    while True:
        image = reader.desk.view(reader.name).image
        if image is None:
            return shown
        shown.append(image.sample_id)
        reader.say(image.sample_id, label(image.sample_id))


def test_checks_are_mixed_in_once_each_and_no_run_gets_their_answers(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(repeat=1.0, known=KNOWN)
    anna = make_clinician(queue, "Anna")
    shown = answer_all(queue, anna, lambda sample_id: "NV")
    assert sorted(set(shown)) == sorted([*IDS, *KNOWN])
    for number, name in enumerate(sorted(KNOWN, key=shown.index)):
        answered_before = [
            each for each in dict.fromkeys(shown[: shown.index(name)]) if each in IDS
        ]
        earliest = number * KNOWN_EVERY + 1
        assert earliest <= len(answered_before) <= earliest + KNOWN_EVERY - 1
        assert shown.count(name) == 1
    again = [name for name in IDS if shown.count(name) == 2]
    assert again == IDS[: 12 - REPEAT_AFTER], "the last ones would come after the end"
    for name in again:
        first = shown.index(name)
        between = set(shown[first + 1 : shown.index(name, first + 1)])
        assert len(between & set(IDS)) >= REPEAT_AFTER - 1
    assert queue.labels() == dict.fromkeys(IDS, "NV")
    assert len(queue.decisions()) == 12
    assert queue.own_agreement() == {"Anna": OwnAgreement(len(again), len(again), 3, 2)}
    view = anna.desk.view("Anna")
    assert (view.mine, view.waiting) == (12 + len(again) + 3, 0)
    assert (view.tally.total, view.tally.decided) == (12, 12)
    assert view.own_agreement == queue.own_agreement()["Anna"]


def test_labels_are_those_of_the_first_answers_whatever_is_said_to_checks(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    """Two readers who differ have the labels, disputes and agreement of their first answers."""
    queue = by(readers=2, adjudicators=frozenset({"Weiss"}), repeat=0.6, known=KNOWN)
    for name, label in (("Anna", "NV"), ("Ben", "MEL")):
        heard = set[str]()

        def say(sample_id: str, label: str = label, heard: set[str] = heard) -> str:
            is_check = sample_id in heard or sample_id in KNOWN
            heard.add(sample_id)
            if is_check:
                return "BCC"
            return label if sample_id > "s07" else "NV"

        shown = answer_all(queue, make_clinician(queue, name), say)
        assert len(shown) > len(IDS) + len(KNOWN), "some come again"
    assert queue.labels() == dict.fromkeys(IDS[:8], "NV")
    assert (queue.agreement().read_twice, queue.agreement().unanimous) == (12, 8)
    weiss = answer_all(queue, make_clinician(queue, "Weiss"), lambda sample_id: "SCC")
    assert weiss == IDS[8:], "adjudicators decide, and are not checked"


def test_a_skipped_check_comes_again_at_the_end_as_any_question(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(repeat=1.0)
    anna = make_clinician(queue, "Anna")
    shown = []
    while (image := anna.desk.view("Anna").image) is not None:
        sample_id = image.sample_id
        is_skipped = shown.count(sample_id) == 1 and sample_id == "s00"
        is_skipped |= sample_id == "s07" and "s07" not in shown
        shown.append(sample_id)
        before = anna.desk.view("Anna")
        anna.say(sample_id, None if is_skipped else "NV", "skip" if is_skipped else "")
        after = anna.desk.view("Anna")
        assert after.waiting == before.waiting - (not is_skipped)
    all_met = max(shown.index(name) for name in IDS)
    assert [shown.count(name) for name in ("s00", "s01", "s07")] == [3, 2, 2]
    assert all(name in shown[all_met + 1 :] for name in ("s00", "s07")), "after all others"
    assert queue.labels() == dict.fromkeys(IDS, "NV")
    agreement = queue.own_agreement()["Anna"]
    assert agreement.repeated == agreement.same == sum(shown.count(name) > 1 for name in IDS) - 1


def test_who_skips_all_questions_first_meets_the_known_images_among_them(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(known=KNOWN)
    anna = make_clinician(queue, "Anna")
    shown: list[str] = []
    while (sample_id := anna.desk.view("Anna").image.sample_id) not in shown:
        shown.append(sample_id)
        anna.say(sample_id, None, "skip")
    assert sorted(shown) == sorted([*IDS, *KNOWN]), "nothing new comes later"
    assert anna.desk.view("Anna").skipped == len(shown)


def test_a_list_of_answers_keeps_no_check_of_an_earlier_run(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    """The answers to questions of that run have left it too."""
    queue = by(known=KNOWN)
    anna = make_clinician(queue, "Anna")
    shown = answer_all(queue, anna, lambda sample_id: "NV")
    assert {given.sample_id for given in anna.desk.given("Anna")} == {*shown} == {*IDS, *KNOWN}
    queue.request("next run", 1, "fedal", ["s30"])
    assert anna.desk.given("Anna") == []
    view = anna.desk.view("Anna")
    assert (view.image.sample_id, view.mine, view.waiting) == ("s30", 0, 1)


def test_only_the_secret_of_a_queue_says_which_questions_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedward.annotation.checks.REPEAT_AFTER", 0)
    ids = [f"s{number:02d}" for number in range(40)]
    rules = Rules(repeat=0.5)

    def drawn(folder: Path) -> list[str]:
        queue = Queue(folder, rules)
        with queue.database.reading() as database:
            asked = questions(database, rules)
            due = checks_of(database, rules, "Anna", asked, [], ids.__contains__).due
        return [check.sample_id for check in due]

    for name in ("one", "other"):
        queue = Queue(tmp_path / name, rules)
        queue.request("run", 1, "fedal", ids)
        desk = Desk(queue, ids)
        for number, sample_id in enumerate(ids):
            desk.answer(SentAnswer("Anna", sample_id, "label", "NV", f"{number}", 0))
    assert drawn(tmp_path / "one") == drawn(tmp_path / "one")
    assert drawn(tmp_path / "one") != drawn(tmp_path / "other")


def test_a_check_is_taken_back_and_is_in_the_trail(
    by: Callable[..., Queue], make_clinician: Make, tmp_path: Path
) -> None:
    queue = by(repeat=1.0)
    anna = until_the_first_repeat(make_clinician(queue, "Anna"))
    desk = anna.desk
    assert desk.view("Anna").image.sample_id == "s00"
    assert desk.view("Anna").own is None
    assert "s00" not in [given.sample_id for given in desk.given("Anna")], "nobody looks it up"
    assert desk.view("Anna", "s10").image.sample_id == "s10", "what is on show stays"
    changed = desk.view("Anna", "s00", again=True)
    assert changed.own == "NV"
    anna.say("s00", "MEL")
    assert desk.view("Anna").image.sample_id == IDS[REPEAT_AFTER + 1]
    assert anna.take_back() == "s00"
    assert desk.view("Anna", "s00").image.sample_id == "s00", "it can be answered again"
    anna.say("s00", "BCC")
    assert [each.text for each in desk.given("Anna") if each.sample_id == "s00"] == ["BCC"]
    assert desk.view("Anna", "s00", again=True).own == "BCC", "the list says so too"
    with pytest.raises(Stale):
        anna.say("s00", "BCC")
    seen = desk.view("Anna", "s00", again=True).seen
    remark = Remark(unsure=True, discuss=True, comment="=cmd()")
    desk.answer(
        SentAnswer("Anna", "s00", "label", "SCC", anna.key(), seen, remark=remark, again=True)
    )
    assert desk.view("Anna", "s00", again=True).remark == remark
    assert desk.view("Ben", "s00").remark == Remark()
    assert queue.labels()["s00"] == "SCC", "an own answer can be changed all the same"
    write_audit(queue, tmp_path / "trail.csv")
    rows = list(csv.DictReader((tmp_path / "trail.csv").read_text("utf-8-sig").splitlines()))
    trail = [(row["answer"], row["purpose"], row["expected"]) for row in rows[REPEAT_AFTER + 1 :]]
    assert trail == [
        ("MEL", "repeat", ""),
        ("undo", "question", ""),
        ("BCC", "repeat", "NV"),
        ("SCC", "question", ""),
    ]
    remarks = [(row["unsure"], row["discuss"], row["comment"]) for row in rows[-2:]]
    assert remarks == [("0", "0", ""), ("1", "1", "'=cmd()")]
    assert queue.own_agreement() == {"Anna": OwnAgreement(repeated=1, same=0)}
    queue.export("csv", tmp_path / "work.csv", ("SCC",), lambda sample_id: b"")
    assert "cmd" not in (tmp_path / "work.csv").read_text(), "remarks are not for other programs"


def test_a_repeated_answer_is_compared_with_the_newest_before_it(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(repeat=1.0)
    anna = until_the_first_repeat(make_clinician(queue, "Anna"))
    seen = anna.desk.view("Anna", "s00", again=True).seen
    anna.desk.answer(SentAnswer("Anna", "s00", "label", "MEL", anna.key(), seen, again=True))
    anna.say("s00", "MEL")
    assert queue.own_agreement() == {"Anna": OwnAgreement(repeated=1, same=1)}


def page_with_checks(clinic: Any, readers: int = 1) -> tuple[Queue, Any]:
    """Return a queue whose readers are checked by two known images, and a client of its page."""
    known = f"reading: {{readers: {readers}, known: {{s04: NV, s05: MEL}}}}\n"
    clinic.site_file.write_text(clinic.site_file.read_text() + known)
    clinic.ask(*clinic.ids[:4])
    queue = queue_of(clinic.site_file)
    pictures = Pictures(clinic.site_file, ("MEL", "NV"))
    desk = Desk(queue, pictures.ids, ("MEL", "NV"))
    client = come_in(Page(desk, pictures, Guard("t" * 43, "::1")), "t" * 43)
    return queue, client


def test_a_page_shows_a_check_as_any_question(clinic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the browser gets names the model, its score, or the purpose."""
    monkeypatch.setattr("fedward.annotation.checks.KNOWN_EVERY", 1)
    queue, client = page_with_checks(clinic)
    views = {}
    for turn in range(6):
        view = client.get("/state?annotator=Anna").get_json()
        sample_id = view["image"]["sample_id"]
        views[sample_id] = view
        assert (view["image"], view["together"]) == ({"sample_id": sample_id}, [sample_id])
        assert (view["own"], view["seen"], view["own_agreement"]) == (None, 0, "")
        assert (view["mine"], view["waiting"], view["tally"]) == (turn, 6 - turn, None)
        assert "fedal" not in str(view)
        assert client.get(f"/image?id={sample_id}").status_code == 200
        body = {"annotator": "Anna", "key": f"{turn:032x}", "sample_id": sample_id, "seen": 0}
        assert client.post("/answer", json=body | {"kind": "label", "label": "NV"}).is_json
    assert [*views][1] in ("s04", "s05"), "after the first answer"
    assert sorted(views) == clinic.ids
    assert {frozenset(view) for view in views.values()} == {frozenset(views["s00"])}
    assert queue.labels() == dict.fromkeys(clinic.ids[:4], "NV")


class Prober:
    """Somebody who tries all routes of the page on one image, under a name of their own."""

    def __init__(self, client: Any, sample_id: str) -> None:
        self._client = client
        self._sample_id = sample_id
        self._name = f"reader of {sample_id}"
        self._seen = 0
        self._messages = 0

    def view(self, again: bool = False) -> Any:
        """Look at the image, whether or not it is its turn."""
        how = {"annotator": self._name, "showing": self._sample_id}
        view = self._client.get("/state", query_string=how | {"again": f"{again}".lower()})
        view = view.get_json()
        self._seen = view["seen"]
        return view

    def send(self, kind: str, label: str | None = None, again: bool = False) -> Any:
        answer = {"sample_id": self._sample_id, "kind": kind, "label": label}
        return self._post("/answer", answer | {"seen": self._seen, "again": again})

    def undo(self, last: dict[str, Any]) -> Any:
        return self._post("/undo", {"answer": last["answer"]})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        self._messages += 1
        key = f"{self._sample_id[1:]}{self._messages:030x}"
        return self._client.post(path, json=body | {"annotator": self._name, "key": key})

    def given(self) -> list[str]:
        answers = self._client.get("/given", query_string={"annotator": self._name}).get_json()
        return [self._plain(answer) for answer in answers]

    def picture(self) -> list[Any]:
        """Return all that comes with the image and its levels but their content."""
        found = []
        for path in ("/image", "/levels"):
            answer = self._client.get(path, query_string={"id": self._sample_id})
            headers = [(name, value) for name, value in answer.headers if name != "Content-Length"]
            found.append((answer.status_code, headers))
        return found

    def course(self) -> list[Any]:
        """Look at the image, skip, answer, list, change and undo; return all that is said."""
        found = [*self.picture(), self._plain(self.view())]
        skipped = self.send("skip").get_json()
        found += [self._plain(skipped), self._plain(self.undo(skipped["last"]).get_json())]
        self.view()
        found += [self._plain(self.send("label", "NV").get_json()), self.given()]
        found.append(self._plain(self.view(again=True)))
        changed = self.send("label", "MEL", again=True).get_json()
        found += [self._plain(changed), self.given()]
        self.view(again=True)
        stale = self.send("cannot tell")
        found += [stale.status_code, stale.get_json()["message"]]
        found += [self._plain(self.undo(changed["last"]).get_json()), self.given()]
        return found

    def _plain(self, said: dict[str, Any]) -> str:
        """Return what is said without the image's id, numbers of rows, times, and other images."""
        is_shown = (said.get("image") or {}).get("sample_id") == self._sample_id
        left_out = {"seen", "time"} if is_shown or "time" in said else {"seen", *_OF_THE_NEXT}
        kept = {name: value for name, value in said.items() if name not in left_out}
        if kept.get("last"):
            kept["last"] = kept["last"] | {"answer": None}
        return str(kept).replace(self._sample_id, "the image")


_OF_THE_NEXT = ("image", "together", "group", "own", "remark")


def test_no_route_tells_an_image_of_known_class_from_a_question(
    clinic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of six images are checks, whatever anybody does with them at the page."""
    monkeypatch.setattr("fedward.annotation.checks.KNOWN_EVERY", 1)
    queue, client = page_with_checks(clinic, readers=9)
    courses = {sample_id: Prober(client, sample_id).course() for sample_id in clinic.ids}
    for sample_id in clinic.ids:
        assert courses[sample_id] == courses["s00"], sample_id
    assert "the image" in str(courses["s00"])
    assert {each.sample_id for each in queue.decisions()} == {*clinic.ids[:4]}
    assert sorted(queue.own_agreement()) == ["reader of s04", "reader of s05"]


@pytest.mark.parametrize(
    ("reading", "found"),
    [
        ("known: {s99: NV}", "reading.known: .*s99"),
        ("known: {s00: HEART}", "reading.known.s00: .*HEART"),
        ("classes: {NV: {examples: [s98]}}", "reading.classes: .*s98"),
        ("known: {s01: NV}, classes: {NV: {examples: [s01]}}", "among the examples"),
        ("repeat: 2", "repeat"),
    ],
)
def test_checks_and_examples_that_cannot_be_are_refused(
    clinic: Any, reading: str, found: str
) -> None:
    clinic.site_file.write_text(clinic.site_file.read_text() + f"reading: {{{reading}}}\n")
    with pytest.raises(DataError, match=found):
        Pictures(clinic.site_file, ("MEL", "NV"))


def test_an_example_is_left_out_once_its_group_is_asked_about(clinic: Any) -> None:
    clinic.site_file.write_text(
        clinic.site_file.read_text() + "reading: {classes: {NV: {examples: [s04, s05]}}}\n"
    )
    pictures = Pictures(clinic.site_file, ("MEL", "NV"))
    desk = Desk(queue_of(clinic.site_file), pictures.ids, ("MEL", "NV"))
    client = come_in(Page(desk, pictures, Guard("t" * 43, "::1")), "t" * 43)
    clinic.ask("s00")
    assert client.get("/examples").get_json() == {"NV": ["s04", "s05"]}
    assert client.get("/image?id=s05").status_code == 200
    assert client.get("/image?id=s03").status_code == 404, "nobody asks, and it is no example"
    clinic.ask("s05")
    assert client.get("/examples").get_json() == {"NV": ["s04"]}


def site_of_a_lesion(clinic: Any, reading: str) -> None:
    """Two images, s00 and s01, show one lesion and are in groups of their own."""
    rows = ["sample_id,image,label,lesion"]
    for sample_id in clinic.ids:
        lesion = "L1" if sample_id in ("s00", "s01") else ""
        rows.append(f"{sample_id},images/{sample_id}.png,,{lesion}")
    (clinic.site_file.parent / "manifest.csv").write_text("\n".join(rows))
    clinic.site_file.write_text(
        f"{clinic.site_file.read_text()}reading: {{lesion: lesion, {reading}}}\n"
    )


def test_an_example_is_left_out_once_its_lesion_is_asked_about(clinic: Any) -> None:
    site_of_a_lesion(clinic, "classes: {MEL: {examples: [s00, s02]}}")
    pictures = Pictures(clinic.site_file, ("MEL", "NV"))
    desk = Desk(queue_of(clinic.site_file), pictures.ids, ("MEL", "NV"))
    assert pictures.examples_beside(desk.asked()) == {"MEL": ["s00", "s02"]}
    clinic.ask("s01")
    assert desk.asked() == {"s00", "s01"}
    assert pictures.examples_beside(desk.asked()) == {"MEL": ["s02"]}


def test_an_image_of_known_class_shares_no_lesion_with_an_example(clinic: Any) -> None:
    site_of_a_lesion(clinic, "known: {s01: MEL}, classes: {MEL: {examples: [s00, s02]}}")
    with pytest.raises(DataError, match=r"known\.s01: expected .* lesion .*, found s00\. "):
        Pictures(clinic.site_file, ("MEL", "NV"))


CHECK = pytest.mark.proves(
    "files",
    "a reader's message that calls the answer to a check a change of an own answer",
    "refused, or stored as the answer to the check; no label comes of it",
)


@CHECK
def test_an_image_of_known_class_gets_no_label_as_an_own_answer(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    """Nobody asked about it, whatever the page claims to have shown, and whoever answers."""
    queue = by(readers=2, adjudicators=frozenset({"Weiss"}), known=KNOWN)
    for name in ("Anna", "Weiss"):
        reader = make_clinician(queue, name)
        reader.desk.answer(SentAnswer(name, "s60", "label", "BCC", reader.key(), 0, again=True))
        seen = reader.desk.view(name, "s60", again=True).seen
        if name == "Anna":
            reader.desk.answer(
                SentAnswer(name, "s60", "label", "MEL", reader.key(), seen, again=True)
            )
    assert queue.labels() == {}
    assert queue.decisions() == []
    first = OwnAgreement(known=1, right=0)
    assert queue.own_agreement()["Anna"] == first, "a change does not make it right"


@CHECK
def test_a_page_that_claims_an_own_answer_makes_no_label(clinic: Any) -> None:
    queue, client = page_with_checks(clinic)
    body = {"annotator": "Anna", "sample_id": "s04", "seen": 0, "kind": "label", "label": "MEL"}
    response = client.post("/answer", json=body | {"key": f"{1:032x}", "again": True})
    assert response.status_code == 200, "as for a question"
    assert queue.labels() == {}
    assert queue.decisions() == []


@CHECK
@pytest.mark.parametrize("meanwhile", ["withdrawn", "vanished"])
def test_a_question_that_is_gone_while_it_comes_again_keeps_its_label(
    by: Callable[..., Queue], make_clinician: Make, meanwhile: str
) -> None:
    """The page shows it without the first answer, so the second corrects nothing."""
    queue = by(repeat=1.0)
    anna = until_the_first_repeat(make_clinician(queue, "Anna"))
    assert anna.desk.view("Anna").image.sample_id == "s00"
    if meanwhile == "withdrawn":
        queue.request("next run", 1, "fedal", ["s30"])
    else:
        anna.desk = Desk(queue, IDS[1:])
    with pytest.raises(Stale, match="already answered"):
        anna.say("s00", "MEL")
    assert queue.labels() == dict.fromkeys(IDS[: REPEAT_AFTER + 1], "NV")
    assert queue.own_agreement() == {}
    first = anna.desk.view("Anna", "s01", again=True)
    if meanwhile == "vanished":
        message = SentAnswer("Anna", "s01", "label", "MEL", anna.key(), first.seen, again=True)
        anna.desk.answer(message)
        assert queue.labels()["s01"] == "MEL", "who sees the own answer corrects it"


def test_a_check_of_an_earlier_job_is_not_counted_as_answered(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    """Its question is asked again, because the answer names a class that the job does not have."""
    queue = by(repeat=1.0)
    anna = until_the_first_repeat(make_clinician(queue, "Anna"))
    anna.say("s00", "MEL")
    assert Desk(queue, IDS, ("MEL", "NV")).view("Anna").mine == REPEAT_AFTER + 2
    assert Desk(queue, IDS, ("BCC", "MEL")).view("Anna").mine == 0


def test_a_lesion_of_known_class_is_shown_by_an_image_that_the_site_has(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    lesion = {"s60": ("P", "L"), "s61": ("P", "L")}
    queue = by(readers=2, known={"s60": "MEL", "s61": "MEL"}, lesions=lesion)
    for gone, left in (("s60", "s61"), ("s61", "s60")):
        anna = make_clinician(queue, f"reader without {gone}")
        anna.desk = Desk(queue, {*IDS, left})
        assert answer_all(queue, anna, lambda sample_id: "NV").count(left) == 1


def test_an_honest_second_answer_corrects_the_first_beside_checks(
    by: Callable[..., Queue], make_clinician: Make
) -> None:
    queue = by(repeat=1.0, known={**KNOWN, "s00": "NV"})
    anna = make_clinician(queue, "Anna")
    anna.say("s00", "NV")
    view = anna.desk.view("Anna", "s00", again=True)
    assert view.own == "NV"
    anna.desk.answer(SentAnswer("Anna", "s00", "label", "MEL", anna.key(), view.seen, again=True))
    assert queue.labels() == {"s00": "MEL"}, "a run asks about it: it is no check"
    ben = make_clinician(queue, "Ben")
    ben.desk.answer(SentAnswer("Ben", "s01", "label", "MEL", ben.key(), 0, again=True))
    assert queue.labels()["s01"] == "MEL", (
        "a first answer to a question is one, whatever is claimed"
    )
