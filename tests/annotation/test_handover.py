"""Files that go out and come back: nothing twice, nothing dropped, every difference said."""

import codecs
import csv
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fedward import cli
from fedward.annotation import Imported, Queue, Rules, times
from fedward.annotation.audit import write_audit
from fedward.annotation.handover import FORMS
from fedward.annotation.handover.content import stem
from fedward.annotation.page_content import Stale
from fedward.annotation.pictures import Pictures
from fedward.errors import ConfigError, DataError
from file_modes import modes

CLASSES = ("MEL", "NV", "BCC")
EARLY = "2024-01-01T00:00:00Z"
LATE = "2024-06-01T00:00:00Z"
Make = Callable[[str], Any]


def write_csv(
    path: Path, rows: Sequence[Sequence[str]], header: str = "sample_id,label,annotator,time"
) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


def take(clinic: Any, path: Path) -> Imported:
    imported: Imported = clinic.queue.import_labels(
        path, CLASSES, clinic.ids, names={"naevus": "NV"}
    )
    return imported


def export(clinic: Any, form: str, path: Path) -> Any:
    return clinic.queue.export(form, path, CLASSES, Pictures(clinic.site_file, CLASSES).png)


def tried(folder: Path, form: str) -> Path:
    """Return the part of an export that comes back."""
    return {"csv": folder, "label-studio": folder / "results.json", "monai-label": folder}[form]


def test_a_spreadsheet_formula_as_name_is_refused_with_its_line(
    clinic: Any, tmp_path: Path
) -> None:
    names = ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\x01a", "a=b"]
    rows = [
        [sample_id, "MEL", name, EARLY] for sample_id, name in zip(clinic.ids, names, strict=True)
    ]
    imported = take(clinic, write_csv(tmp_path / "back.csv", rows))
    assert (imported.added, [each.where for each in imported.refused]) == (
        1,
        [f"line {line}" for line in range(2, 7)],
    )
    assert (
        "line 2 (s00): expected a reader's name that does not begin with = + - @" in imported.text()
    )
    assert [each.annotator for each in clinic.queue.decisions()] == ["a=b"]


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def test_excel_shows_the_letters_of_a_name_as_they_are(
    clinic: Any, clinician: Make, tmp_path: Path
) -> None:
    clinic.ask("s00")
    clinician("Jürgen").say("s00", "MEL")
    work, trail = tmp_path / "work.csv", tmp_path / "trail.csv"
    export(clinic, "csv", work)
    write_audit(clinic.queue, trail)
    for file in (work, trail):
        assert file.read_bytes().startswith(codecs.BOM_UTF8), "Excel guesses a code page"
        assert [row["annotator"] for row in cells(file)] == ["Jürgen"]


FORMULAS = [
    "=HYPERLINK(1)",
    "+1",
    "-1",
    "@SUM(1)",
    "\uff1d1+1",
    "'=1",
    "''=1",
    "'quoted",
    "a;=1+1",
    "a=b",
]


@pytest.mark.proves(
    "files", "a spreadsheet formula as an image's id", "inert text in the exported CSV"
)
def test_formulas_leave_as_text_and_come_back_as_they_were(
    clinic: Any, clinician: Make, tmp_path: Path
) -> None:
    clinic.ask(*FORMULAS)
    clinician("anna").say("=HYPERLINK(1)", "MEL")
    export(clinic, "csv", tmp_path / "out.csv")
    rows = cells(tmp_path / "out.csv")
    assert not [row for row in rows if row["sample_id"][0] in "=+-@\uff1d"]
    assert len({row["sample_id"] for row in rows}) == len(FORMULAS)
    assert {row["score"] for row in rows} >= {"0.0", "-1.0"}  # numbers stay numbers
    assert (
        '"a;=1+1"' in (tmp_path / "out.csv").read_text()
    )  # no cell of its own for who splits at semicolons
    answered = [[row["sample_id"], "NV", "ben", EARLY] for row in rows]
    imported = Queue(tmp_path / "other").import_labels(
        write_csv(tmp_path / "back.csv", answered), CLASSES, frozenset(FORMULAS)
    )
    assert (imported.unknown_ids, imported.refused) == ((), ())


@pytest.mark.proves(
    "files",
    "line breaks in ids, labels or names of a returned file",
    "each stays on one line of the console",
)
@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_what_comes_back_fakes_no_line(clinic: Any, tmp_path: Path, ending: str) -> None:
    evil = "x\n\nConflicts: 0\n  - all is well"
    answers = [[evil, "NV", "ben", EARLY], ["s00", evil, "ben", EARLY], ["s01", "NV", "ben", evil]]
    if ending == ".csv":
        path = write_csv(tmp_path / "back.csv", answers)
    else:
        path = tmp_path / "back.json"
        choices = [
            {"from_name": "class", "type": "choices", "value": {"choices": [row[1]]}}
            for row in answers
        ]
        by = [
            {"completed_by": {"email": row[2]}, "created_at": row[3], "was_cancelled": False}
            for row in answers
        ]
        tasks = [
            {"data": {"sample_id": row[0]}, "annotations": [{**who, "result": [choice]}]}
            for row, who, choice in zip(answers, by, choices, strict=True)
        ]
        path.write_text(json.dumps(tasks))
    imported = Queue(tmp_path / "other").import_labels(path, CLASSES, frozenset(clinic.ids))
    text = imported.text()
    assert imported.refused or imported.unknown_ids
    assert "all is well" in text
    assert not [
        line for line in text.splitlines() if line.startswith(("Conflicts", "  - all is well"))
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("open_umask")
def test_exports_are_their_owners_alone(
    clinic: Any, clinician: Make, tmp_path: Path, form: str
) -> None:
    clinic.ask(*clinic.ids)
    clinician("anna").say("s00", "MEL")
    export(clinic, form, tmp_path / "out")
    assert modes(tmp_path / "out") <= {0o600, 0o700}
    assert modes(clinic.queue.folder) <= {0o600, 0o700}


# --- all formats


@pytest.mark.parametrize("form", FORMS)
def test_what_was_handed_out_comes_back_and_changes_nothing(
    clinic: Any, clinician: Make, tmp_path: Path, form: str
) -> None:
    clinic.ask(*clinic.ids)
    clinician("anna").say("s00", "MEL")
    clinician("anna").say("s01", None)
    clinician("ben").say("s02", "NV")
    before = clinic.queue.decisions()
    exported = export(clinic, form, tmp_path / "out")
    assert (exported.images, exported.unseen) == (6, ())
    imported = take(clinic, tried(tmp_path / "out", form))
    assert (imported.added, imported.known, imported.refused, imported.conflicts) == (0, 3, (), ())
    assert clinic.queue.decisions() == before


@pytest.mark.parametrize("form", FORMS)
def test_a_class_that_is_also_a_word_of_the_site_stays_itself(
    clinic: Any, clinician: Make, tmp_path: Path, form: str
) -> None:
    """This site writes ``NV`` for melanoma, and exports are written in the job's words."""
    clinic.ask(*clinic.ids)
    clinician("anna").say("s00", "NV")
    export(clinic, form, tmp_path / "out")
    names = {"NV": "MEL"}
    imported = clinic.queue.import_labels(
        tried(tmp_path / "out", form), CLASSES, clinic.ids, names=names
    )
    assert (imported.added, imported.known, imported.conflicts) == (0, 1, ())
    assert clinic.queue.labels() == {"s00": "NV"}


@pytest.mark.parametrize("form", FORMS)
def test_answers_reach_an_empty_queue_with_who_and_when(
    clinic: Any, clinician: Make, tmp_path: Path, form: str
) -> None:
    clinic.ask("s00", "s01")
    clinician("anna").say("s00", "MEL")
    clinician("anna").say("s01", None)
    export(clinic, form, tmp_path / "out")
    other = Queue(tmp_path / "other")
    imported = other.import_labels(tried(tmp_path / "out", form), CLASSES, clinic.ids)
    assert imported.added == 2
    assert [
        (each.sample_id, each.annotator, each.label, each.time) for each in other.decisions()
    ] == [
        (each.sample_id, each.annotator, each.label, each.time) for each in clinic.queue.decisions()
    ]
    assert {each.source for each in other.decisions()} == {imported.source}


@pytest.mark.parametrize("form", FORMS)
def test_an_export_never_overwrites(clinic: Any, tmp_path: Path, form: str) -> None:
    (tmp_path / "out").write_text("precious")
    with pytest.raises(ConfigError, match="a new file or folder"):
        export(clinic, form, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "precious"
    assert list(tmp_path.glob(".exporting-*")) == []


@pytest.mark.parametrize("form", ["label-studio", "monai-label"])
def test_an_image_without_a_picture_is_listed(clinic: Any, tmp_path: Path, form: str) -> None:
    clinic.ask("s00", "s01", "gone")
    (clinic.site_file.parent / "images" / "s01.png").write_bytes(b"no image")
    exported = export(clinic, form, tmp_path / "out")
    assert exported.images == 1
    assert [sample_id for sample_id, _ in exported.unseen] == ["s01", "gone"]
    assert exported.text().startswith(f"{tmp_path / 'out'}: 1 image\n")
    assert "gone" in exported.text()
    assert [path.name for path in (tmp_path / "out" / "images").iterdir()] == ["s00.png"]


def test_names_of_files_are_safe_and_different() -> None:
    ids = ["a", "../a", "a/b", "a.png", "ä b", "a%2Fb", "x" * 300, "x" * 301, ".", "a\0b"]
    names = [stem(sample_id) for sample_id in ids]
    assert len(set(names)) == len(ids)
    assert all(len(name) <= 200 and not set(name) & set("/\0. ") for name in names)


@pytest.mark.parametrize("name", ["none.csv", "none.json", "none"])
def test_a_file_that_is_not_there_is_named(clinic: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=name):
        take(clinic, tmp_path / name)


@pytest.mark.parametrize("name", ["back.csv", "back.json", "back/datastore_v2.json"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(
        st.binary(max_size=80),
        st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace")),
    )
)
def test_no_bytes_are_an_unexpected_error(
    clinic: Any, tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    refused_or_read(clinic, path.parent if path.name == "datastore_v2.json" else path)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_OF_LABEL_STUDIO = [
    "data",
    "sample_id",
    "annotations",
    "result",
    "value",
    "choices",
    "updated_at",
    "completed_by",
    "email",
]
_OF_MONAI_LABEL = ["objects", "image", "info", "labels", "final", "label", "ext", "ts", "time"]
_KEYS = st.sampled_from([*_OF_LABEL_STUDIO, *_OF_MONAI_LABEL])
_JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4)
)


@pytest.mark.parametrize("name", ["back.json", "back/datastore_v2.json"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=_JSON)
def test_no_json_is_an_unexpected_error(
    clinic: Any, tmp_path: Path, name: str, content: Any
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    whole = {"objects": {"s00": content}} if path.name == "datastore_v2.json" else [content]
    path.write_text(json.dumps(whole))
    refused_or_read(clinic, path.parent if path.name == "datastore_v2.json" else path)


def refused_or_read(clinic: Any, path: Path) -> None:
    try:
        text = take(clinic, path).text()
    except DataError as error:
        text = str(error)
    assert path.name in text


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_with_a_class_of_another_job_is_asked_again(
    clinic: Any, clinician: Make, tmp_path: Path, form: str
) -> None:
    """The export asks what the page asks, and comes back without a refusal."""
    clinic.ask("s00", "s01")
    clinician("anna").say("s00", "AK")
    clinician("anna").say("s01", "MEL")
    out = tmp_path / "out"
    assert export(clinic, form, out).images == 2
    if form == "csv":
        answers = [(row["sample_id"], row["status"], row["label"]) for row in cells(out)]
        assert answers == [("s00", "pending", ""), ("s01", "decided", "MEL")]
    imported = take(clinic, tried(out, form))
    assert (imported.added, imported.known, imported.refused) == (0, 1, ())


# --- the rules, said once with CSV


def test_part_of_the_answers_may_come_now_and_the_rest_late(clinic: Any, tmp_path: Path) -> None:
    clinic.ask("s00", "s01", "s02")
    first = take(
        clinic, write_csv(tmp_path / "a.csv", [["s00", "MEL", "anna", EARLY], ["s01", "", "", ""]])
    )
    assert (first.added, first.open) == (1, 1)
    rows = [["s00", "MEL", "anna", EARLY], ["s01", "NV", "anna", LATE]]
    late = take(clinic, write_csv(tmp_path / "a.csv", rows))
    assert (late.added, late.known, late.open) == (1, 1, 0)
    assert clinic.queue.labels() == {"s00": "MEL", "s01": "NV"}
    assert [request.sample_id for request in clinic.queue.pending()] == ["s02"]


def test_unknown_ids_are_kept_and_listed(clinic: Any, tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "a.csv", [["s99", "MEL", "anna", EARLY], ["s00", "NV", "anna", EARLY]]
    )
    imported = take(clinic, path)
    assert (imported.added, imported.unknown_ids) == (2, ("s99",))
    assert "s99" in imported.text()
    assert clinic.queue.labels() == {"s99": "MEL", "s00": "NV"}
    assert take(clinic, path).unknown_ids == ("s99",)


def test_what_is_no_answer_is_listed_with_its_place(clinic: Any, tmp_path: Path) -> None:
    rows = [
        ["s00", "melanoma", "anna", EARLY],
        ["", "MEL", "anna", EARLY],
        ["s01", "MEL", "anna", "yesterday"],
        ["s02", "MEL", "anna", "2999-01-01T00:00:00Z"],
        ["s03", "MEL"],
        ["s04", "Cannot tell", "anna", EARLY],
        ["s05", "naevus", "anna", EARLY],
    ]
    imported = take(clinic, write_csv(tmp_path / "a.csv", rows))
    assert sorted(item.where for item in imported.refused) == [
        "line 2",
        "line 3",
        "line 4",
        "line 5",
        "line 6",
    ]
    assert all(item.where in imported.text() for item in imported.refused)
    assert clinic.queue.labels() == {"s05": "NV"}
    assert clinic.queue.cannot_tell() == {"s04"}


@pytest.mark.parametrize(("first", "second", "winner"), [(EARLY, LATE, "NV"), (LATE, EARLY, "MEL")])
@pytest.mark.parametrize("annotator", ["anna", "ben"])
def test_the_newest_answer_stands_in_any_order_of_arrival(
    clinic: Any, tmp_path: Path, first: str, second: str, winner: str, annotator: str
) -> None:
    take(clinic, write_csv(tmp_path / "a.csv", [["s00", "MEL", "anna", first]]))
    imported = take(clinic, write_csv(tmp_path / "b.csv", [["s00", "NV", annotator, second]]))
    assert clinic.queue.labels() == {"s00": winner}
    (conflict,) = imported.conflicts
    assert conflict.kept.label == winner
    assert [other.label for other in conflict.others] == [{"NV": "MEL", "MEL": "NV"}[winner]]
    assert "s00: " + winner in imported.text()


def test_the_own_later_doubt_is_a_conflict_that_leaves_no_class(
    clinic: Any, tmp_path: Path
) -> None:
    take(clinic, write_csv(tmp_path / "a.csv", [["s00", "MEL", "anna", EARLY]]))
    (conflict,) = take(
        clinic, write_csv(tmp_path / "b.csv", [["s00", "cannot tell", "anna", LATE]])
    ).conflicts
    assert (conflict.kept.text, [other.text for other in conflict.others]) == (
        "cannot tell",
        ["MEL"],
    )
    assert clinic.queue.labels() == {}


def test_a_conflict_says_whether_an_answer_counts(
    clinic: Any, make_clinician: Callable[..., Any], tmp_path: Path
) -> None:
    """Two readers must agree, and the newest answer decides nothing."""
    clinic.ask("s00")
    queue = Queue(clinic.queue.folder, Rules(readers=2))

    def imported(reader: str, label: str) -> Imported:
        rows = [["s00", label, reader, times.now()]]
        return queue.import_labels(write_csv(tmp_path / "a.csv", rows), CLASSES, clinic.ids)

    assert imported("anna", "MEL").conflicts == ()
    account = imported("ben", "NV")
    (conflict,) = account.conflicts
    assert (conflict.kept, [other.text for other in conflict.others]) == (None, ["NV", "MEL"])
    assert "  - s00: no answer counts yet of NV (ben, " in account.text()
    assert queue.labels() == {}
    make_clinician(queue, "clara").say("s00", "BCC")
    account = imported("dora", "MEL")
    (conflict,) = account.conflicts
    assert (conflict.kept.text, conflict.kept.annotator) == ("BCC", "clara")
    assert "  - s00: BCC (clara, " in account.text()
    assert "counts; not MEL (dora, " in account.text()
    assert queue.labels() == {"s00": "BCC"}


def test_a_file_that_contradicts_itself_says_so(clinic: Any, tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "a.csv", [["s00", "MEL", "anna", EARLY], ["s00", "NV", "anna", LATE]]
    )
    assert len(take(clinic, path).conflicts) == 1
    assert clinic.queue.labels() == {"s00": "NV"}


def test_an_answer_that_a_file_has_twice_is_added_once(clinic: Any, tmp_path: Path) -> None:
    """So is one about a lesion that the file gives for each of its images."""
    rules = Rules(lesions=dict.fromkeys(("s02", "s03"), ("p1", "arm")))
    queue = Queue(tmp_path / "other", rules)
    timed = [["s00", "MEL", "anna", EARLY]] * 2
    untimed = [["s01", "NV", "ben", ""]] * 2
    of_lesion = [[sample_id, "NV", "ben", LATE] for sample_id in ("s02", "s03")]
    path = write_csv(tmp_path / "a.csv", [*timed, *untimed, *of_lesion])
    imported = queue.import_labels(path, CLASSES, clinic.ids)
    assert (imported.added, imported.known) == (3, 3)


def test_an_undone_answer_does_not_return_with_an_old_file(
    clinic: Any, clinician: Make, tmp_path: Path
) -> None:
    anna = clinician("anna")
    anna.say("s00", "MEL")
    export(clinic, "csv", tmp_path / "out.csv")
    anna.take_back()
    assert take(clinic, tmp_path / "out.csv").known == 1
    assert clinic.queue.labels() == {}


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_to_a_lesion_comes_back_as_known(
    clinic: Any, make_clinician: Callable[..., Any], tmp_path: Path, form: str
) -> None:
    """It leaves once for each of its images."""
    clinic.ask("s00", "s01", "s02")
    rules = Rules(lesions=dict.fromkeys(("s00", "s01"), ("p1", "arm")))
    queue = Queue(clinic.queue.folder, rules)
    make_clinician(queue, "anna").say("s01", "MEL")
    make_clinician(queue, "anna").say("s02", None, "unusable")
    path = tmp_path / ("out.csv" if form == "csv" else "out")
    exported = queue.export(form, path, CLASSES, lambda sample_id: b"png")
    assert exported.images == 3
    back = path / "results.json" if form == "label-studio" else path
    imported = queue.import_labels(back, CLASSES, clinic.ids)
    assert (imported.added, imported.known, imported.refused) == (0, 3, ())
    assert queue.labels() == {"s00": "MEL", "s01": "MEL"}


def test_an_answer_without_a_time_has_the_time_of_its_file(clinic: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [["s00", "MEL"]], header="sample_id,label")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert take(clinic, path).added == 1
    (decision,) = clinic.queue.decisions()
    assert (decision.annotator, decision.time) == ("unknown", times.from_seconds(1_700_000_000))
    path.touch()
    assert take(clinic, path).known == 1


def test_a_file_dated_ahead_outdates_no_later_answer(clinic: Any, tmp_path: Path) -> None:
    """The clock of the machine that wrote it may be wrong."""
    path = write_csv(tmp_path / "a.csv", [["s00", "MEL"]], header="sample_id,label")
    next_year = time.time() + 365 * 24 * 3600
    os.utime(path, (next_year, next_year))
    assert take(clinic, path).added == 1
    assert clinic.queue.decisions()[0].time <= times.now()
    take(clinic, write_csv(tmp_path / "b.csv", [["s00", "NV", "anna", times.now()]]))
    assert clinic.queue.labels() == {"s00": "NV"}


def test_an_imported_answer_is_not_taken_back_at_the_page(
    clinic: Any, clinician: Make, tmp_path: Path
) -> None:
    """Its reader did not give it there, and *Undo* names the newest answer at the page."""
    clinic.ask("s00", "s01")
    anna = clinician("anna")
    anna.say("s00", "MEL")
    take(clinic, write_csv(tmp_path / "a.csv", [["s01", "NV", "anna", EARLY]]))
    assert anna.desk.view("anna").last.sample_id == "s00"
    with pytest.raises(Stale):
        anna.desk.undo("anna", 2, anna.key())
    assert anna.take_back() == "s00"
    assert anna.desk.view("anna").last is None
    assert clinic.queue.labels() == {"s01": "NV"}


def test_an_old_answer_without_time_is_remembered(clinic: Any, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [["s00", "MEL"]], header="sample_id,label")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    take(clinic, path)
    take(clinic, write_csv(tmp_path / "b.csv", [["s00", "NV", "", LATE]]))
    assert take(clinic, path).known == 1
    assert clinic.queue.labels() == {"s00": "NV"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16"])
def test_what_a_spreadsheet_makes_of_the_file_is_understood(
    clinic: Any, tmp_path: Path, encoding: str
) -> None:
    (tmp_path / "a.csv").write_text(
        "sample_id;label;annotator;time\ns00;MEL;Jürgen;2024-01-01 10:00\n", encoding
    )
    assert take(clinic, tmp_path / "a.csv").added == 1
    assert clinic.queue.decisions()[0].annotator == "Jürgen"


_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["s00", "s01", "s99"]),
        st.sampled_from([*CLASSES, "cannot tell", "", "strange"]),
        st.sampled_from(["anna", "ben"]),
        st.sampled_from([EARLY, LATE, "2024-03-01T00:00:00Z"]),
    ),
    max_size=8,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=_ROWS)
def test_every_row_counts_and_a_second_import_changes_nothing(
    clinic: Any, tmp_path: Path, rows: list[tuple[str, ...]]
) -> None:
    path = write_csv(tmp_path / "a.csv", rows)
    first = take(clinic, path)
    assert first.added + first.known + first.open + len(first.refused) == len(rows)
    before = clinic.queue.decisions()
    again = take(clinic, path)
    assert (again.added, again.conflicts) == (0, ())
    assert clinic.queue.decisions() == before


# --- Label Studio


def test_tasks_carry_ids_scores_and_reachable_pictures(
    clinic: Any, clinician: Make, tmp_path: Path
) -> None:
    clinic.queue.request("run", 2, "entropy", ["s00", "s01", "s02", "s03"], [1.7, 0.3, 1.0, None])
    clinician("anna").say("s02", "NV")
    export(clinic, "label-studio", tmp_path / "work order")
    folder = tmp_path / "work order"
    tasks = json.loads((folder / "tasks.json").read_text())
    assert [task["data"]["sample_id"] for task in tasks] == ["s00", "s01", "s03"]
    assert [task["data"]["score"] for task in tasks] == [1.7, 0.3, None]
    # Label Studio refuses scores outside 0..1.
    assert [task["predictions"][0]["score"] for task in tasks[:2]] == [1.0, 0.0]
    assert tasks[0]["predictions"][0] == {
        "model_version": "entropy, round 2",
        "score": 1.0,
        "result": [],
    }
    assert "predictions" not in tasks[2]
    assert tasks[0]["data"]["image"] == "/data/local-files/?d=work%20order/images/s00.png"
    with Image.open(folder / "images" / "s00.png") as image:
        assert image.size == (40, 30)
    (result,) = json.loads((folder / "results.json").read_text())
    assert result["data"]["sample_id"] == "s02"
    assert result["annotations"][0]["result"][0]["value"] == {"choices": ["NV"]}
    assert '<Choice value="MEL"/>' in (folder / "label_config.xml").read_text()


def annotation(*choices: str, **more: Any) -> dict[str, Any]:
    result = [
        {
            "from_name": "class",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": list(choices)},
        }
    ]
    return {
        "result": result,
        "completed_by": 7,
        "updated_at": EARLY,
        "was_cancelled": False,
        **more,
    }


def test_results_of_label_studio_are_understood(clinic: Any, tmp_path: Path) -> None:
    tasks = [
        {
            "data": {"sample_id": "s00"},
            "annotations": [annotation("MEL"), annotation("NV", completed_by={"email": "b@c"})],
        },
        {
            "data": {"sample_id": "s01"},
            "annotations": [annotation("cannot tell", completed_by={"id": 7})],
        },
        {"data": {"sample_id": "s02"}, "annotations": []},
        {"data": {"sample_id": "s03"}, "annotations": [annotation(was_cancelled=True)]},
        {"data": {"sample_id": "s04"}, "annotations": [annotation("MEL", "NV")]},
        {"data": {"image": "x.png"}, "annotations": [annotation("MEL")]},
    ]
    (tmp_path / "a.json").write_text(json.dumps(tasks))
    imported = take(clinic, tmp_path / "a.json")
    assert (imported.added, imported.open) == (3, 2)
    assert [(item.where, item.sample_id) for item in imported.refused] == [
        ("task 5", "s04"),
        ("task 6", ""),
    ]
    assert [each.annotator for each in clinic.queue.decisions()] == [
        "b@c",
        "Label Studio user 7",
        "Label Studio user 7",
    ]
    assert len(imported.conflicts) == 1
    assert take(clinic, tmp_path / "a.json").added == 0


def test_a_corrected_annotation_has_the_time_of_its_correction(clinic: Any, tmp_path: Path) -> None:
    take(clinic, write_csv(tmp_path / "a.csv", [["s00", "MEL", "anna", "2024-03-01T00:00:00Z"]]))
    corrected = annotation("NV", created_at=EARLY, updated_at=LATE)
    tasks = [{"data": {"sample_id": "s00"}, "annotations": [corrected]}]
    (tmp_path / "a.json").write_text(json.dumps(tasks))
    take(clinic, tmp_path / "a.json")
    assert clinic.queue.labels() == {"s00": "NV"}


# --- MONAI Label


def test_a_datastore_holds_the_decision_of_the_adjudicator(
    clinic: Any, make_clinician: Callable[..., Any], tmp_path: Path
) -> None:
    clinic.ask("s00")
    queue = Queue(clinic.queue.folder, Rules(readers=2))
    for name, label in (("anna", "MEL"), ("ben", "NV"), ("clara", "BCC"), ("anna", "NV")):
        make_clinician(queue, name).say("s00", label)
    queue.export("monai-label", tmp_path / "store", CLASSES, lambda sample_id: b"png")
    index = json.loads((tmp_path / "store" / "datastore_v2.json").read_text())
    answer = index["objects"]["s00"]["labels"]["final"]["info"]
    assert (answer["label"], answer["annotator"]) == ("BCC", "clara")


def test_the_datastore_is_as_monai_label_keeps_it(
    clinic: Any, clinician: Make, tmp_path: Path
) -> None:
    clinic.ask("s00", "s01")
    clinician("anna").say("s00", "MEL")
    clinician("ben").say("s00", None)
    export(clinic, "monai-label", tmp_path / "store")
    index = json.loads((tmp_path / "store" / "datastore_v2.json").read_text())
    assert (index["images_dir"], index["labels_dir"]) == ("images", "labels")
    done = index["objects"]["s00"]
    waiting = index["objects"]["s01"]
    assert (done["image"]["ext"], done["image"]["info"]["strategy"], waiting["labels"]) == (
        ".png",
        "fedal",
        {},
    )
    assert done["labels"]["final"]["info"]["label"] == "MEL"
    assert (
        json.loads((tmp_path / "store" / "labels" / "final" / "s00.json").read_text())["annotator"]
        == "anna"
    )
    assert (tmp_path / "store" / "images" / "s01.png").is_file()


def test_labels_that_a_viewer_wrote_are_understood(clinic: Any, tmp_path: Path) -> None:
    """MONAI Label writes seconds in ``ts``, and the class in the info or the label's file."""
    objects = {
        "s00": {
            "labels": {"final": {"ext": ".json", "info": {"label": "MEL", "ts": 1_700_000_000}}}
        },
        "s01": {"labels": {"final": {"ext": ".json", "info": {"ts": 1_700_000_000}}}},
        "s02": {"labels": {"final": {"ext": ".nii.gz", "info": {}}}},
        "s03": {"labels": {"original": {"ext": ".json", "info": {"label": "NV"}}}},
        "x": {
            "image": {"info": {"sample_id": "s04"}},
            "labels": {"final": {"info": {"label": "NV", "time": EARLY}}},
        },
    }
    (tmp_path / "labels" / "final").mkdir(parents=True)
    (tmp_path / "labels" / "final" / "s01.json").write_text('{"label": "BCC", "annotator": "anna"}')
    (tmp_path / "datastore_v2.json").write_text(json.dumps({"objects": objects}))
    imported = take(clinic, tmp_path)
    assert clinic.queue.labels() == {"s00": "MEL", "s01": "BCC", "s04": "NV"}
    assert (imported.open, [item.sample_id for item in imported.refused]) == (1, ["s02"])
    assert clinic.queue.decisions()[0].time == times.from_seconds(1_700_000_000)
    assert take(clinic, tmp_path).added == 0


@pytest.mark.parametrize(
    ("labels_dir", "name"), [("..", "secret"), ("labels", "../../../secret"), ("/", "secret")]
)
def test_a_datastore_cannot_point_out_of_its_folder(
    clinic: Any, tmp_path: Path, labels_dir: str, name: str
) -> None:
    (tmp_path / "final").mkdir()
    for folder in (tmp_path, tmp_path / "final"):
        (folder / "secret.json").write_text('{"label": "MEL"}')
    store = tmp_path / "store"
    (store / "labels" / "final").mkdir(parents=True)
    objects = {name: {"labels": {"final": {"ext": ".json", "info": {}}}}}
    (store / "datastore_v2.json").write_text(
        json.dumps({"labels_dir": labels_dir, "objects": objects})
    )
    assert len(take(clinic, store).refused) == 1
    assert clinic.queue.labels() == {}


@pytest.mark.proves(
    "files",
    "a label of a MONAI Label datastore whose name no file can have",
    "listed as not understood; all other answers are taken",
)
@pytest.mark.parametrize(
    ("labels_dir", "name", "ending"),
    [
        ("labels", "a\0b", ".json"),
        ("labels", "\ud800", ".json"),
        ("labels", "a" * 5000, ".json"),
        ("labels", "s01", "\0.json"),
        ("la\0bels", "s01", ".json"),
    ],
)
def test_a_name_that_no_file_can_have_costs_its_answer_alone(
    clinic: Any, tmp_path: Path, labels_dir: str, name: str, ending: str
) -> None:
    objects = {
        name: {"labels": {"final": {"ext": ending, "info": {}}}},
        "s00": {"labels": {"final": {"ext": ".json", "info": {"label": "MEL"}}}},
    }
    (tmp_path / "datastore_v2.json").write_text(
        json.dumps({"labels_dir": labels_dir, "objects": objects})
    )
    assert [item.where for item in take(clinic, tmp_path).refused] == [name]
    assert clinic.queue.labels() == {"s00": "MEL"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("sample_id,label,label\ns00,MEL,NV\n", "line 1, has columns of the same name: label"),
        ('sample_id,label\ns00,"MEL\n', "line 2, is not a row of a CSV: unexpected end of data"),
        ("sample_id\ns00\n", r"line 1: expected columns sample_id, label, found sample_id"),
        ("", "expected columns sample_id, label, found nothing"),
    ],
)
def test_why_a_csv_cannot_be_read_is_said(
    clinic: Any, tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "back.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"^returned file {path}.*{words}.*Send back the exported"):
        take(clinic, path)


# --- the command


def run(*arguments: object) -> int:
    return cli.main(["annotate", *map(str, arguments)])


def test_the_command_hands_out_and_takes_in(
    clinic: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clinic.ask("s00")
    assert run(clinic.site_file, "--classes", *CLASSES, "--export", "csv", tmp_path / "a.csv") == 0
    text = (tmp_path / "a.csv").read_text().replace('"s00","",', '"s00","naevus",')
    (tmp_path / "b.csv").write_text(text)
    assert run(clinic.site_file, "--classes", *CLASSES, "--import", tmp_path / "b.csv") == 0
    assert clinic.queue.labels() == {"s00": "NV"}
    (tmp_path / "b.csv").write_text(text.replace("s00", "s99").replace("naevus", "strange"))
    capsys.readouterr()
    assert run(clinic.site_file, "--classes", *CLASSES, "--import", tmp_path / "b.csv") == 1
    assert "s99" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--export", "xml", "out"], 2, "csv, label-studio, monai-label"),
        (["--classes", "MEL"], 2, "--classes"),
        (["--classes", "MEL", "MEL"], 2, "--classes"),
        (["--classes", *CLASSES, "--host", "192.0.2.1"], 2, "192.0.2.1"),
        (["--classes", *CLASSES, "--port", "70000"], 2, "70000"),
        (["--classes", *CLASSES, "--import", "none.csv"], 1, "none.csv"),
        (["--classes", "A", "B"], 1, "field labels"),
    ],
)
def test_wrong_use_is_a_sentence(
    clinic: Any, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, named: str
) -> None:
    assert run(clinic.site_file, *arguments) == code
    text = capsys.readouterr().err
    assert text.startswith("fedward: ")
    assert named in text


@pytest.mark.parametrize(
    "content", ["kind: manifest\nfolder: nowhere\n", "kind: invented\n", "[", None]
)
def test_a_wrong_site_file_is_refused_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    if content is not None:
        (tmp_path / "site.yaml").write_text(content)
    assert run(tmp_path / "site.yaml") == 1
    assert "site.yaml" in (text := capsys.readouterr().err) or "nowhere" in text
    assert not (tmp_path / "annotation").exists()
