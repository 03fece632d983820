"""Answers that name several findings, or none: storage, agreement, files and training."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sklearn.metrics import cohen_kappa_score

from fedward import cli
from fedward.annotation import Queue, Rules, queue_of
from fedward.annotation.audit import write_audit
from fedward.annotation.desk import Desk
from fedward.annotation.page.app import Page
from fedward.annotation.page.guard import Guard
from fedward.annotation.pictures import Pictures
from fedward.annotation.reading import read_rules
from fedward.errors import DataError
from fedward.label_kinds import SEVERAL_LABELS, kind_of_field
from visiting import come_in

FINDINGS = ("Mass", "Edema", "Hernia")
RULES = Rules(label_kind=SEVERAL_LABELS)
WORDS = {name: name for name in FINDINGS} | {"normal": "No Finding", "Rib": ""}
TOKEN = "t" * 43


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Mass", "Mass"),
        ("Mass|Edema", "Edema|Mass"),
        (" Edema | Mass ", "Edema|Mass"),
        ("Mass|Mass", "Mass"),
        ("No Finding", "No Finding"),
        ("none of these", "No Finding"),
        ("normal", "No Finding"),
        ("Rib|Mass", "Mass"),
    ],
)
def test_a_text_is_its_findings_in_one_order(text: str, label: str) -> None:
    assert RULES.label(text, WORDS) == label
    assert RULES.findings(label) == {*label.split("|")} - {"No Finding"}


@pytest.mark.parametrize(
    "text",
    ["", "|", "Rib", "mass", "Mass|", "Mass|No Finding", "none of these|Mass", "Nodule|Mass"],
)
def test_a_text_that_says_two_things_or_nothing_is_none(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"Mass, Edema, Hernia.*with \| between several\), No Finding \(alone\)"
    ):
        RULES.label(text, WORDS)


def test_one_class_may_have_a_bar_in_its_name() -> None:
    assert Rules().label("A|B", {"A|B": "A|B"}) == "A|B"
    assert Rules().findings("A|B") == {"A|B"}


@pytest.fixture
def twice(clinic: Any) -> Queue:
    clinic.ask(*clinic.ids)
    return Queue(clinic.queue.folder, replace(RULES, readers=2))


def read(queue: Queue, make: Callable[..., Any], said: dict[str, list[str]]) -> None:
    for name, labels in said.items():
        for number, label in enumerate(labels):
            make(queue, name).say(f"s{number:02d}", label)


def test_readers_agree_on_sets_and_kappa_is_of_each_finding(
    twice: Queue, make_clinician: Callable[..., Any]
) -> None:
    anna = ["Edema|Mass", "Mass", "No Finding", "Edema"]
    ben = ["Edema|Mass", "Edema|Mass", "No Finding", "No Finding"]
    read(twice, make_clinician, {"anna": anna, "ben": ben})
    agreed = twice.agreement()
    assert (agreed.read_twice, agreed.unanimous) == (4, 2)
    for name in ("Edema", "Mass"):
        given = [[name in label.split("|") for label in reader] for reader in (anna, ben)]
        assert agreed.kappas[name] == pytest.approx(cohen_kappa_score(*given))
    assert agreed.kappas.keys() == {"Edema", "Mass"}, "nobody named another"
    assert twice.labels() == {"s00": "Edema|Mass", "s02": "No Finding"}


def test_an_adjudicator_decides_on_findings(
    twice: Queue, make_clinician: Callable[..., Any]
) -> None:
    read(twice, make_clinician, {"anna": ["Mass"], "ben": ["Edema|Mass"]})
    assert Desk(twice, {"s00"}, FINDINGS).view("clara").adjudicates
    make_clinician(twice, "clara").say("s00", "Edema")
    assert twice.labels() == {"s00": "Edema"}
    assert twice.agreement().kappas == {"Edema": 0, "Mass": None}, "before the adjudication"


def test_findings_of_another_job_wait_again(
    clinic: Any, make_clinician: Callable[..., Any]
) -> None:
    clinic.ask("s00", "s01")
    queue = Queue(clinic.queue.folder, RULES)
    read(queue, make_clinician, {"anna": ["Mass|Nodule", "Mass|Edema"]})
    assert queue.verdicts(FINDINGS).keys() == {"s01"}


def test_a_known_answer_may_have_blanks_at_its_separator(clinic: Any) -> None:
    clinic.site_file.write_text(
        "kind: manifest\nfolder: .\ncolumns: {group: null}\nreading: {known: {s04: Mass | Edema}}\n"
    )
    assert read_rules(clinic.site_file, SEVERAL_LABELS).known == {"s04": "Edema|Mass"}


# --- the page's addresses


@pytest.fixture
def page(clinic: Any) -> Any:
    clinic.ask(*clinic.ids, several=True)
    queue = Queue(clinic.queue.folder, RULES)
    clinic.site_file.write_text("kind: manifest\nfolder: .\ncolumns: {group: null}\n")
    pictures = Pictures(clinic.site_file, FINDINGS, SEVERAL_LABELS)
    guard = Guard(TOKEN, "127.0.0.1")
    client = come_in(Page(Desk(queue, pictures.ids, FINDINGS), pictures, guard), TOKEN)

    def post(**body: Any) -> int:
        body = {
            "annotator": "anna",
            "key": uuid4().hex,
            "sample_id": "s00",
            "kind": "label",
            "seen": 0,
            **body,
        }
        return int(client.post("/answer", data=json.dumps(body)).status_code)

    return post


def test_the_page_stores_findings_in_one_order(page: Callable[..., int], clinic: Any) -> None:
    assert page(label="Mass|Edema") == 200
    assert page(sample_id="s01", label="No Finding") == 200
    assert clinic.queue.labels() == {"s00": "Edema|Mass", "s01": "No Finding"}


@pytest.mark.parametrize(
    "label", ["", "Mass|No Finding", "Mass|Nodule", "Mass|", "unusable", 3, ["Mass"]]
)
def test_the_page_refuses_what_is_no_answer(
    page: Callable[..., int], clinic: Any, label: object
) -> None:
    assert page(label=label) == 400
    assert page(kind="none of these", label=None) == 400, "here this is a label"
    assert clinic.queue.verdicts() == {}


# --- files


def test_files_go_out_and_come_back(
    clinic: Any, tmp_path: Path, make_clinician: Callable[..., Any]
) -> None:
    clinic.site_file.write_text("kind: manifest\nfolder: .\ncolumns: {group: null}\n")
    clinic.ask(*clinic.ids)
    queue = Queue(clinic.queue.folder, RULES)
    read(queue, make_clinician, {"anna": ["Edema|Mass", "No Finding"]})
    make_clinician(queue, "anna").say("s02", None, "unusable")
    verdicts = queue.verdicts()
    for number, form in enumerate(("csv", "label-studio", "monai-label")):
        out = tmp_path / f"out-{form}"
        queue.export(form, out, FINDINGS, Pictures(clinic.site_file, FINDINGS, SEVERAL_LABELS).png)
        back = Queue(tmp_path / f"other-{number}", RULES)
        imported = back.import_labels(
            out / "results.json" if form == "label-studio" else out, FINDINGS, clinic.ids
        )
        assert (imported.added, imported.refused) == (3, ())
        assert {name: each.text for name, each in back.verdicts().items()} == {
            name: each.text for name, each in verdicts.items()
        }
    text = (tmp_path / "out-label-studio" / "label_config.xml").read_text()
    assert 'choice="multiple"' in text
    assert "No Finding" in text
    assert "none of these" not in text


def test_a_csv_that_says_two_things_is_listed(clinic: Any, tmp_path: Path) -> None:
    rows = [
        "sample_id,label",
        "s00,Mass|No Finding",
        "s01,Edema|Mass",
        "s02,Mass|Nodule",
        "s03,none of these",
    ]
    (tmp_path / "back.csv").write_text("\n".join(rows))
    queue = Queue(clinic.queue.folder, RULES)
    imported = queue.import_labels(tmp_path / "back.csv", FINDINGS, clinic.ids)
    assert [each.sample_id for each in imported.refused] == ["s00", "s02"]
    assert queue.labels() == {"s01": "Edema|Mass", "s03": "No Finding"}


def test_the_trail_has_findings(
    clinic: Any, tmp_path: Path, make_clinician: Callable[..., Any]
) -> None:
    queue = Queue(clinic.queue.folder, RULES)
    read(queue, make_clinician, {"anna": ["Edema|Mass"]})
    write_audit(queue, tmp_path / "trail.csv")
    (row,) = csv.DictReader((tmp_path / "trail.csv").read_text("utf-8-sig").splitlines())
    assert row["answer"] == "Edema|Mass"


# --- the site's file and the command


def test_columns_of_findings_are_never_shown(clinic: Any) -> None:
    folder = clinic.site_file.parent
    (folder / "manifest.csv").write_text("sample_id,image,Mass,Edema\ns00,images/s00.png,1,0")
    clinic.site_file.write_text(
        "kind: manifest\n"
        "folder: .\n"
        "columns: {group: null, label: [Mass, Edema]}\n"
        "reading: {columns: [Edema]}\n"
    )
    with pytest.raises(DataError, match=r"columns that do not hold the label.*found Edema"):
        Pictures(clinic.site_file, ("Mass", "Edema"), SEVERAL_LABELS)


def test_data_json_says_what_the_job_asks(
    clinic: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clinic.site_file.write_text("kind: manifest\nfolder: .\ncolumns: {group: null}\n")
    data_file = {"name": "chest", "classes": FINDINGS, "multi_label": True}
    (clinic.site_file.parent / "data.json").write_text(json.dumps(data_file))
    (tmp_path / "back.csv").write_text("sample_id,label\ns00,Hernia|Mass\n")
    assert (
        cli.main(["annotate", str(clinic.site_file), "--import", str(tmp_path / "back.csv")]) == 0
    )
    assert queue_of(clinic.site_file, SEVERAL_LABELS).labels() == {"s00": "Hernia|Mass"}
    assert "1 new answer," in capsys.readouterr().out


@pytest.mark.parametrize("several", [True, False])
def test_a_page_of_another_kind_than_the_newest_run(
    clinic: Any, several: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who ticks one class for a job of findings would deny all others."""
    clinic.site_file.write_text("kind: manifest\nfolder: .\ncolumns: {group: null}\n")
    former = Queue(clinic.queue.folder, replace(RULES, label_kind=kind_of_field(not several)))
    former.request("former", 1, "fedal", clinic.ids)
    queue_of(clinic.site_file, kind_of_field(several)).request("newest", 1, "fedal", clinic.ids)
    command = [
        "annotate",
        str(clinic.site_file),
        "--classes",
        *FINDINGS,
        "--audit",
        str(clinic.queue.folder / "a.csv"),
    ]
    assert cli.main([*command, *([] if several else ["--multi-label"])]) == 2
    assert "as the newest run asks" in capsys.readouterr().err
    assert cli.main([*command, *(["--multi-label"] if several else [])]) == 0


def test_a_resumed_run_says_again_what_kind_is_asked(clinic: Any) -> None:
    """Its questions are back, and one class would deny all other findings."""
    clinic.ask("s00", several=True, run="older")
    clinic.ask("s01", run="newer")
    desk = Desk(Queue(clinic.queue.folder, RULES), {*clinic.ids})
    assert desk.is_closed()
    clinic.ask(several=True, run="older")
    assert not desk.is_closed()
