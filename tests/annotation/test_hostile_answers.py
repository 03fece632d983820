"""Hostile files beside the queue: returned files, a token that others know, names of classes."""

import itertools
import json
import os
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fedward import cli
from fedward.annotation import database
from fedward.annotation.handover import returned
from fedward.annotation.page.server import Token
from fedward.errors import DataError

CLASSES = ("MEL", "NV", "BCC")
_HEADER = "sample_id,label,annotator,time\n"


def bring_back(clinic: Any, path: Path) -> Any:
    return clinic.queue.import_labels(path, CLASSES, clinic.ids)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.proves(
    "files",
    "an import that is a pipe, a device, an archive, a spreadsheet, growing XML or "
    "larger than any queue",
    "refused; nothing is unpacked or expanded",
)
@pytest.mark.parametrize("name", ["back.csv", "back.json", "back/datastore_v2.json"])
@pytest.mark.parametrize("kind", ["pipe", "device", "huge"])
def test_what_has_no_end_is_not_read(clinic: Any, tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, returned.LARGEST + 1)
    with pytest.raises(DataError, match=r"no file, but a pipe|are the most"):
        bring_back(clinic, tmp_path / "back" if path.parent.name == "back" else path)


@pytest.mark.proves(
    "files", "a pipe or a device as a label of a MONAI Label datastore", "listed as no label"
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_label_without_end_is_not_read(clinic: Any, tmp_path: Path, kind: str) -> None:
    label = tmp_path / "labels" / "final" / "s00.json"
    label.parent.mkdir(parents=True)
    os.mkfifo(label) if kind == "pipe" else label.symlink_to("/dev/zero")
    entry = {
        "image": {"info": {"sample_id": "s00"}},
        "labels": {"final": {"ext": ".json", "info": {}}},
    }
    write(tmp_path / "datastore_v2.json", json.dumps({"objects": {"s00": entry}}))
    imported = bring_back(clinic, tmp_path)
    assert (imported.added, [each.sample_id for each in imported.refused]) == (0, ["s00"])


@pytest.mark.proves(
    "files",
    "an import that is a pipe, a device, an archive, a spreadsheet, growing XML or "
    "larger than any queue",
    "refused; nothing is unpacked or expanded",
)
@pytest.mark.parametrize("kind", ["zip", "xml"])
@pytest.mark.parametrize("ending", ["csv", "json", "zip", "xlsx"])
def test_nothing_is_unpacked(clinic: Any, tmp_path: Path, kind: str, ending: str) -> None:
    path = tmp_path / "back" / f"back.{ending}"
    path.parent.mkdir()
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("../escaped.csv", _HEADER + "s00,MEL,,\n" * 100_000)
    else:
        entities = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(9))
        path.write_text(
            f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a0 "ha">{entities}]><a>&a9;</a>'
        )
    with pytest.raises(DataError, match="returned file"):
        bring_back(clinic, path)
    assert clinic.queue.decisions() == []
    assert [each.name for each in tmp_path.glob("*.csv")] == []


@pytest.mark.proves(
    "files",
    "an import of tens of thousands of answers for one image",
    "each answer is looked up once; the queue is not locked for minutes",
)
def test_many_answers_for_one_image_are_no_load(
    clinic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = itertools.count()
    connect = sqlite3.connect

    def counted(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        connection.set_progress_handler(lambda: next(steps) and None, 100)
        return connection

    monkeypatch.setattr(database.sqlite3, "connect", counted)
    costs = []
    for number, annotator in [(1000, "anna"), (2000, "ben"), (4000, "carl")]:
        rows = (f"s00,MEL,{annotator},2026-01-01T00:00:00.{place:06d}Z" for place in range(number))
        before = next(steps)
        assert (
            bring_back(clinic, write(tmp_path / f"{number}.csv", _HEADER + "\n".join(rows))).added
            == number
        )
        costs.append(next(steps) - before)
    assert costs[2] < 8 * costs[0]


@pytest.mark.proves(
    "files",
    "hidden letters in a reader's name, or ids that look like lines of the console",
    "not taken as answers; each is listed on one line",
)
@pytest.mark.parametrize(
    ("sample_id", "annotator"),
    [
        ("s00", "an\u200bna"),
        ("s00", "\u202eanna"),
        ("s00", "x" * 81),
        ("s00", "an\x1b[2Jna"),
        ("s99\n\nother.csv: 500 new answers", "anna"),
        ("s99\u202e", "anna"),
        ("x" * 501, "anna"),
    ],
)
def test_hidden_letters_are_no_names(
    clinic: Any, tmp_path: Path, sample_id: str, annotator: str
) -> None:
    task = {
        "data": {"sample_id": sample_id},
        "annotations": [{"result": [{"value": {"choices": ["MEL"]}}]}],
    }
    task["annotations"][0]["completed_by"] = {"email": annotator}  # type: ignore[index]
    imported = bring_back(clinic, write(tmp_path / "back.json", json.dumps([task])))
    assert (imported.added, len(imported.refused)) == (0, 1)
    assert len(imported.text().splitlines()) == 4
    assert clinic.queue.decisions() == []


@pytest.mark.proves(
    "files",
    "one reader under two spellings of a name that look the same",
    "counts as one reader",
)
def test_a_name_in_two_spellings_is_one_reader(clinic: Any, tmp_path: Path) -> None:
    rows = "s00,MEL,Zo\u00eb  M,2026-01-01T00:00:00Z\ns00,NV,Zoe\u0308 M,2026-01-02T00:00:00Z\n"
    bring_back(clinic, write(tmp_path / "back.csv", _HEADER + rows))
    assert [(each.annotator, each.label) for each in clinic.queue.decisions()] == [
        ("Zo\u00eb M", "NV")
    ]


@pytest.mark.proves(
    "files",
    "a token that a crash left readable by others, as a link or as a pipe",
    "replaced by a new one",
)
@pytest.mark.parametrize("how", ["0640", "0604", "link", "pipe"])
def test_a_token_that_others_may_know_is_replaced(tmp_path: Path, how: str) -> None:
    old = Token(tmp_path / "..").value if how == "link" else Token(tmp_path).value
    path = tmp_path / "token"
    if how == "link":
        path.symlink_to(tmp_path / ".." / "token")
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path, 0o600)
    else:
        path.chmod(int(how, 8))
    assert Token(tmp_path).value != old
    assert path.stat().st_mode & 0o777 == 0o600
    assert not path.is_symlink()
    (tmp_path / ".." / "token").unlink(missing_ok=True)


@pytest.mark.proves(
    "lead",
    "names of classes that hide letters or mean another answer",
    "the annotation page does not open, and names them",
)
@pytest.mark.parametrize(
    "name",
    [
        "cannot tell",
        "Unusable",
        "skip",
        "\u202eLEM",
        "ME\u200bL",
        "MEL\n",
        "",
        " MEL",
        "x" * 201,
        "a\x1b[2Jb",
    ],
)
def test_classes_are_seen_as_what_they_are(
    clinic: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["annotate", str(clinic.site_file), "--classes", "MEL", "NV", name]) == 2
    assert "visible words that mean no other answer" in capsys.readouterr().err
