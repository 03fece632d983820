"""Image files of one's own in one command: a CSV with any columns, or a folder for each class."""

import csv
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
import yaml
from PIL import Image

from deciding import read_csv, read_folder
from fedward import cli
from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError, naming_arguments
from fedward.lab.partition.csv_groups import row_groups
from fedward.lab.partition.csv_pool import CsvOptions
from fedward.lab.partition.cut import partition
from fedward.lab.partition.pool import ClassesError, take_classes
from fedward.lab.partition.wanted import Wanted
from fedward.sites import load_site
from fedward.sites.table import Record

DIAGNOSES = ("nevus", "melanoma", "")


def picture(path, seed=0, size=(30, 24), grey=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(np.repeat(pixels[..., :1], 3, axis=2) if grey else pixels).save(path)


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """A CSV of 120 images of 40 patients, whose ids are their names without ending, in two folders
    beside it.
    """
    folder = tmp_path_factory.mktemp("clinic")
    rows = [["image_id", "dx", "Patient ID", "hospital"]]
    for index in range(120):
        picture(folder / f"part_{index % 2}" / f"IMG_{index}.jpg", index)
        patient = index // 3
        rows.append(
            [f"IMG_{index}", DIAGNOSES[patient % 3], f"P{patient}", ("Bern", "Köln")[patient % 2]]
        )
    table(folder / "meta.csv", rows, delimiter=";")
    return folder


def table(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def loaded(folder):
    spec = DataSpec.model_validate(json.loads((folder / "data.json").read_text()))
    return {path.stem: load_site(path, spec) for path in sorted(folder.glob("*.yaml"))}


def sets(data):
    return {
        name: set(getattr(data, name).ids) for name in ("labelled", "unlabelled", "val", "test")
    }


def folders(root, counts, splits=("",)):
    """Write a PNG for each count of each class, in each split."""
    for split in splits:
        for place, (name, count) in enumerate(counts.items()):
            for index in range(count):
                picture(root / split / name / f"{index}.png", 1000 * place + index + len(split))
    return root


# --- CSV


def test_a_csv_is_cut_by_patient_whatever_its_columns(clinic, tmp_path):
    text = partition(clinic / "meta.csv", tmp_path / "sites", Wanted(sites=2))
    assert "Columns: image=image_id sample_id=image_id label=dx group=Patient ID." in text
    found = loaded(tmp_path / "sites")
    places = {}
    for site, data in found.items():
        assert data.classes == ("melanoma", "nevus")
        for part, ids in sets(data).items():
            for name in ids:
                split = part if part in ("val", "test") else "train"
                places.setdefault(int(name.removeprefix("IMG_")) // 3, set()).add((site, split))
                assert (part == "unlabelled") == (
                    DIAGNOSES[int(name.removeprefix("IMG_")) // 3 % 3] == ""
                )
    assert sorted(places) == list(range(40))
    assert all(len(where) == 1 for where in places.values())
    assert len({len(data.labelled) for data in found.values()}) <= 2


def test_a_csv_is_cut_by_its_hospitals(clinic, tmp_path):
    partition(clinic / "meta.csv", tmp_path / "sites", Wanted(by="hospital"))
    found = loaded(tmp_path / "sites")
    assert list(found) == ["Bern", "Koln"]
    ids = set.union(*sets(found["Koln"]).values())
    assert ids == {f"IMG_{index}" for index in range(120) if index // 3 % 2 == 1}


def test_a_site_file_that_is_copied_finds_images_and_csv(clinic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    partition(Path(os.path.relpath(clinic)) / "meta.csv", Path("sites"), Wanted(sites=2))
    before = sets(loaded(tmp_path / "sites")["site-1"])
    for name in ("site-1.yaml", "data.json"):
        (tmp_path / "kit" / "local").mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "sites" / name, tmp_path / "kit" / "local")
    assert sets(loaded(tmp_path / "kit" / "local")["site-1"]) == before


def test_columns_can_be_named_and_left_out(clinic):
    pool = read_csv(
        clinic / "meta.csv",
        clinic,
        CsvOptions(columns={"label": "hospital", "group": "", "sample_id": ""}),
    )
    assert pool.classes == ("Bern", "Köln")
    assert not pool.grouped
    assert pool.groups[0] == "part_0/IMG_0.jpg"


def test_named_splits_are_kept_and_others_refused(tmp_path):
    rows = [["file", "class", "set"]]
    for index in range(60):
        picture(tmp_path / f"{index}.png", index, grey=True)
        rows.append(
            [f"{index}.png", "AB"[index % 2], ("Training", "Validación", "TEST")[index // 2 % 3]]
        )
    pool = read_csv(table(tmp_path / "t.csv", rows), tmp_path)
    assert pool.splits == [("train", "val", "test")[index // 2 % 3] for index in range(60)]
    assert (pool.channels, pool.side, pool.data_spec()["views"]) == (1, 24, "upright")
    for row in rows[1:]:
        row[2] = "fold 1"
    with pytest.raises(
        DataError,
        match=r"test, found 'fold 1' \(rename cells of splits to these, or --columns split=",
    ):
        read_csv(table(tmp_path / "t.csv", rows), tmp_path)
    pool = read_csv(tmp_path / "t.csv", tmp_path, CsvOptions(columns={"split": ""}))
    assert set(pool.splits) == {"train"}


def test_the_only_two_labels_are_most_likely_two_classes_however_alike_they_are(tmp_path):
    """With one class alone the command that is proposed would be refused again."""
    rows = [["image", "label"]]
    for number in range(40):
        picture(tmp_path / f"{number}.png", number)
        rows.append([f"{number}.png", "Aa"[number % 2]])
    source = table(tmp_path / "t.csv", rows)
    with pytest.raises(DataError, match=r"A \(20\) beside a \(20\)") as caught:
        partition(source, tmp_path / "out", Wanted(sites=2))
    proposed = f"{caught.value}".splitlines()[-1]
    assert proposed.endswith(f"--sites 2 --labels a=a A=A --out {tmp_path / 'out'}")


def test_a_patient_in_two_splits_of_a_csv_is_refused(tmp_path):
    picture(tmp_path / "a.png", 1)
    picture(tmp_path / "b.png", 2)
    rows = [
        ["image", "label", "patient", "split"],
        ["a.png", "A", "P1", "train"],
        ["b.png", "B", "P1", "test"],
    ]
    with pytest.raises(DataError, match="1 in several, such as P1"):
        read_csv(table(tmp_path / "t.csv", rows), tmp_path)


def test_a_row_without_a_patient_stays_with_its_lesion(tmp_path):
    whose = [("P1", "L1"), ("", "L1"), ("", "L2"), ("unknown", "L2"), ("", ""), ("P2", "")]
    rows = [["image", "label", "patient_id", "lesion_id"]]
    for number, (patient, lesion) in enumerate(whose):
        picture(tmp_path / f"{number}.png", number)
        rows.append([f"{number}.png", "AB"[number % 2], patient, lesion])
    pool = read_csv(table(tmp_path / "t.csv", rows), tmp_path)
    assert pool.groups == ["P1", "P1", "lesion_id L2", "lesion_id L2", "4.png", "P2"]
    assert "Rows without patient_id that stay together by lesion_id: 3." in pool.notes
    assert pool.alone == [False, False, False, False, True, False]
    # Who names a column means this one.
    named = CsvOptions(columns={"group": "patient_id"})
    pool = read_csv(tmp_path / "t.csv", tmp_path, named)
    assert pool.groups == ["P1", "1.png", "2.png", "3.png", "4.png", "P2"]


def test_a_row_without_a_patient_stays_with_all_that_an_id_leads_to():
    """A lesion is of one patient, and so is a case, whichever of them names the others."""
    rows = [
        ("P1", "C1", "L1"),
        ("", "C2", "L1"),  # Of P1, by its lesion.
        ("", "C2", "L2"),  # Of P1, by its case.
        ("", "", "L2"),
        ("P2", "C3", "L3"),
        ("", "C3", "L1"),  # Of P2: the case comes before the lesion.
        ("", "C5", "L5"),  # No id leads to a patient from here on.
        ("", "C6", "L5"),
        ("", "", "L6"),
        ("", "", ""),
    ]
    names = ("patient", "case_id", "lesion")
    records = [
        Record(line, dict(zip(names, cells, strict=True))) for line, cells in enumerate(rows)
    ]
    found = row_groups(records, "patient", ["case_id", "lesion"])
    assert found.further_columns == ["case_id", "lesion"]
    assert list(found.of_rows.values()) == [
        *["P1"] * 4,
        *["P2"] * 2,
        *["case_id C5"] * 2,
        "lesion L6",
        "",
    ]


def test_a_column_of_groups_that_tears_patients_is_decided_by_the_user(tmp_path):
    """As a batch, or the arm of a trial."""
    rows = [["image", "label", "group", "patient_id"]]
    for number in range(16):
        picture(tmp_path / f"{number}.png", number)
        patient = "unknown" if number < 4 else f"P{number // 2}"
        rows.append([f"{number}.png", "AB"[number % 2], f"batch {number % 3}", patient])
    path = table(tmp_path / "t.csv", rows)
    words = r"found patient_id, whose .* so: --columns group=patient_id\. .*: --columns group=group"
    with pytest.raises(DataError, match=words):
        read_csv(path, tmp_path)
    pool = read_csv(path, tmp_path, CsvOptions(columns={"group": "patient_id"}))
    assert pool.groups[3:8] == ["3.png", "P2", "P2", "P3", "P3"]
    pool = read_csv(path, tmp_path, CsvOptions(columns={"group": "group"}))
    assert pool.groups[:4] == ["batch 0", "batch 1", "batch 2", "batch 0"]
    # A family holds its patients whole.
    for number, row in enumerate(rows[1:]):
        row[2:] = [f"F{number // 4}", f"P{number // 2}"]
    assert set(read_csv(table(path, rows), tmp_path).groups) == {"F0", "F1", "F2", "F3"}


def test_a_column_of_kinds_is_none_of_lesions():
    """Few values of many images each would make a few large groups of what belongs to many."""
    records = [
        Record(line, {"patient": "", "lesion": ("nevus", "melanoma")[line % 2]})
        for line in range(50)
    ]
    assert set(row_groups(records, "patient", ["lesion"]).of_rows.values()) == {""}
    ids = row_groups(records[:40], "patient", ["lesion"]).of_rows
    assert set(ids.values()) == {"lesion nevus", "lesion melanoma"}


def test_new_splits_hold_a_patient_once_whom_those_of_a_csv_share(tmp_path):
    rows = [["image", "label", "patient", "split"]]
    for number in range(80):
        picture(tmp_path / f"{number}.png", number)
        split = "elsewhere" if number == 0 else ("train", "test")[number % 4 == 3]
        rows.append([f"{number}.png", "AB"[number % 2], f"P{number // 4}", split])
    partition(table(tmp_path / "t.csv", rows), tmp_path / "out", Wanted(sites=2, resplit=True))
    places = {}
    for path in (tmp_path / "out").glob("site-*.csv"):
        for row in csv.DictReader(path.open()):
            places.setdefault(row["group"], []).append((path.stem, row["split"]))
    assert [len(found) for found in places.values()] == [4] * 20
    assert all(len(set(found)) == 1 for found in places.values())


def test_few_bad_rows_are_left_out_and_many_refused(tmp_path):
    rows = [["image", "label"]]
    for index in range(40):
        picture(tmp_path / f"{index}.png", index)
        rows.append([f"{index}.png", "AB"[index % 2]])
    pool = read_csv(table(tmp_path / "t.csv", [*rows, ["gone.png", "A"], ["39.png"]]), tmp_path)
    assert len(pool.labels) == 40
    assert pool.left_out == (
        (("gone.png", 42), "expected an image file, found none at 'gone.png'"),
        (("", 43), "expected 2 cells, found 1"),
    )
    with pytest.raises(
        DataError,
        match=r"3 of 43 that cannot: .*'gone.png': line 42 \(gone\.png\), line 43 .*--images",
    ):
        read_csv(table(tmp_path / "t.csv", [*rows, *[["gone.png", "A"]] * 3]), tmp_path)


def test_images_outside_the_folder_are_not_listed(clinic, tmp_path):
    picture(tmp_path / "secret.png")
    inside = tmp_path / "in"
    rows = [["image", "label"], ["../secret.png", "A"], [str(tmp_path / "secret.png"), "B"]]
    inside.mkdir()
    with pytest.raises(DataError, match="2 of 2 that cannot"):
        read_csv(table(inside / "t.csv", rows), inside)
    listed = [["image", "label"], [str(tmp_path / "secret.png"), "B"]]
    with pytest.raises(ConfigError, match="two or more classes"):
        read_csv(table(inside / "t.csv", listed), tmp_path)


def test_a_name_of_two_files_is_no_path(tmp_path):
    for folder in ("a", "b"):
        picture(tmp_path / folder / "same.png")
    with pytest.raises(DataError, match=r"found 2\. These are a/same\.png, b/same\.png"):
        read_csv(table(tmp_path / "t.csv", [["image", "label"], ["same.png", "A"]]), tmp_path)


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        (
            {"label": "diagnosis"},
            ConfigError,
            r"columns of the CSV \(image_id, dx, Patient ID, hospital\), found dia",
        ),
        (
            {"lable": "dx"},
            ConfigError,
            r"columns for image, .*, split, found lable \(did you mean label\?\)",
        ),
        ({"image": ""}, DataError, "a column of images"),
        ({"sample_id": "dx"}, DataError, "another row has the id 'nevus'"),
    ],
)
def test_columns_that_cannot_be_are_refused(clinic, columns, error, words):
    with pytest.raises(error, match=words):
        read_csv(clinic / "meta.csv", clinic, CsvOptions(columns=columns))


def test_the_index_that_pandas_writes_is_no_trouble(tmp_path):
    for index in range(4):
        picture(tmp_path / f"{index}.png", index)
    rows = [
        ["", "image", "label"],
        *([index, f"{index}.png", "AB"[index % 2]] for index in range(4)),
    ]
    assert read_csv(table(tmp_path / "t.csv", rows), tmp_path).labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"label\nA\n", b'image,"label\n', b"image,image\n"]
)
def test_what_is_no_csv_of_images_is_refused(tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"t\.csv") as caught:
        read_csv(tmp_path / "t.csv", tmp_path)
    assert "site (all)" not in str(caught.value)


# --- folders


def test_folders_are_classes_in_natural_order(tmp_path):
    root = folders(tmp_path / "eyes", {"grade 10": 30, "grade 2": 60})
    (root / "grade 2" / "notes.txt").write_text("x")
    (root / ".cache").mkdir()
    text = partition(root, tmp_path / "sites", Wanted(sites=2, labelled=0.5))
    assert "Classes: grade 2, grade 10." in text
    assert "Listed: 91 files. Used: 90. Left out: 1, " in text
    assert "1: .txt is no ending of an image: grade 2/notes.txt" in text
    found = loaded(tmp_path / "sites")
    everything = set.union(*(ids for data in found.values() for ids in sets(data).values()))
    assert everything == {f"grade 10/{i}.png" for i in range(30)} | {
        f"grade 2/{i}.png" for i in range(60)
    }
    assert [(len(data.labelled), len(data.unlabelled)) for data in found.values()] == [(14, 13)] * 2
    for data in found.values():
        for name, label in zip(data.test.ids, data.test.labels, strict=True):
            assert name.split("/")[0] == data.classes[label]


def test_folders_of_splits_are_kept(tmp_path):
    root = folders(
        tmp_path / "xray", {"A": 20, "unlabelled": 5, "B": 20}, ("Train", "valid", "test")
    )
    pool = read_folder(root)
    assert pool.classes == ("A", "B")
    partition(root, tmp_path / "sites", Wanted(sites=2))
    found = loaded(tmp_path / "sites")
    assert sum(len(data.unlabelled) for data in found.values()) == 5
    for part, folder in (("labelled", "Train"), ("val", "valid"), ("test", "test")):
        names = [name for data in found.values() for name in getattr(data, part).ids]
        assert sorted(names) == sorted(
            f"{folder}/{kind}/{index}.png" for kind in "AB" for index in range(20)
        )


def test_folders_of_splits_are_known_in_some_languages_and_others_are_refused(tmp_path):
    root = folders(tmp_path / "xray", {"A": 3, "B": 3}, ("Entraînement", "Validierung", "prueba"))
    assert Counter(read_folder(root).splits) == {"train": 6, "val": 6, "test": 6}
    (root / "Validierung").rename(root / "Kontrolle")
    with pytest.raises(DataError, match="Rename folders of splits to train, val and test"):
        read_folder(root)


def test_folders_of_one_class_may_be_written_in_both_of_unicodes_forms(tmp_path):
    for split, form in (("train", "NFC"), ("test", "NFD")):
        for label in ("Nävus", "Rest"):
            folder = tmp_path / split / normalize(form, label)
            folder.mkdir(parents=True)
            for number in range(3):
                picture(folder / f"{number}.png", seed=len(label) + number)
    pool = read_folder(tmp_path)
    assert pool.classes == ("Nävus", "Rest")
    assert np.bincount(pool.labels).tolist() == [6, 6]


def test_a_csv_in_a_folder_of_classes_is_pointed_out(tmp_path):
    root = folders(tmp_path / "eyes", {"A": 20, "B": 20})
    (root / "meta.csv").write_text("x")
    assert "meta.csv" in " ".join(read_folder(root).doubts)


@pytest.mark.parametrize("cell", ["{}/{}.png", "/data/eyes/{}/{}", "D:\\eyes\\{}\\{}.png"])
def test_folders_beside_a_csv_of_their_images_are_no_classes_by_themselves(tmp_path, cell):
    root = folders(tmp_path / "eyes", {"Bern": 20, "Zug": 20})
    rows = [
        [cell.format(place, number), "ab"[number % 2]]
        for place in ("Bern", "Zug")
        for number in range(20)
    ]
    table(root / "befunde.csv", [["Datei", "Befund"], *rows], delimiter=";")
    with pytest.raises(DataError, match=r"found befunde\.csv, whose rows name images") as refusal:
        read_folder(root)
    assert f"`fedward partition {root / 'befunde.csv'}`" in str(refusal.value)
    assert "--classes Bern Zug" in str(refusal.value)
    assert read_folder(root, ["Bern", "Zug"]).classes == ("Bern", "Zug")


def test_a_csv_of_images_in_a_folder_without_folders_is_named(tmp_path):
    root = tmp_path / "eyes"
    root.mkdir()
    for number in range(20):
        (root / f"{number}.png").touch()
    rows = [[f"{number}.png", "ab"[number % 2]] for number in range(20)]
    table(root / "befunde.csv", [["Datei", "Befund"], *rows], delimiter=";")
    with pytest.raises(DataError) as refusal:
        read_folder(root)
    assert str(refusal.value) == (
        f"{root}: expected a CSV of images, or a folder for each class, found befunde.csv, whose "
        "rows name images of this folder, and no folder of a class. Name the CSV: `fedward "
        f"partition {root / 'befunde.csv'}`, with the same options."
    )


def test_a_csv_in_a_folder_is_named_as_the_caller_calls(tmp_path):
    root = folders(tmp_path / "eyes", {"A": 3, "B": 3})
    table(root / "all.csv", [["image", "label"]])
    with naming_arguments():
        (doubt,) = read_folder(root).doubts
    assert f'`fedward.partition("{root / "all.csv"}", ...)`, with the same options.' in doubt


def test_a_csv_of_other_images_or_of_an_earlier_cut_is_no_list(tmp_path):
    root = folders(tmp_path / "eyes", {"A": 30, "B": 30})
    rows = [[f"A/{number + 900}.png", f"{number}"] for number in range(20)]
    table(root / "staff.csv", [["image", "label"], *rows])
    for name in ("B/note.gif", "note.gif"):
        (root / name).write_bytes(b"GIF89a")
    wanted = Wanted(sites=2)
    first = partition(root, root, wanted)
    assert "- 2: GIF: convert to PNG: B/note.gif, note.gif" in first
    assert {path.name for path in root.glob("*.csv")} == {
        "left_out.csv",
        "site-1.csv",
        "site-2.csv",
        "staff.csv",
    }
    assert partition(root, root, wanted) == first
    for name in ("B/note.gif", "note.gif"):
        (root / name).unlink()
    assert "Used: 60." in partition(root, root, wanted)
    assert not (root / "left_out.csv").exists()
    (root / "left_out.csv").write_text("mine")
    partition(root, root, wanted)
    assert (root / "left_out.csv").read_text() == "mine"


def test_links_out_of_the_folder_and_odd_names_are_left_out(tmp_path):
    root = folders(tmp_path / "eyes", {"A": 40, "B": 40})
    picture(tmp_path / "secret.png")
    (root / "A" / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "A" / "gone.png").symlink_to(tmp_path / "gone.png")
    os.link(root / "A" / "1.png", os.fsencode(root / "B") + b"/\xff.png")
    os.link(root / "A" / "1.png", root / "B" / 'a "quoted", broken\nname.png')
    pool = read_folder(root)
    assert len(pool.labels) == 81
    assert all(pool.alone)
    assert pool.notes == ()
    assert [image.origin.image for image in pool.left_out] == [
        "A/gone.png",
        "A/link.png",
        "B/\udcff.png",
    ]
    assert pool.left_out[0].reason == (
        "expected an image file, found a link at 'A/gone.png' whose file cannot be reached: "
        "connect the storage that has it, or remove the link"
    )
    assert pool.left_out[1].reason.startswith("expected a path inside")
    text = partition(root, tmp_path / "sites", Wanted(sites=2, contradicting="kept"))
    assert "expected a name in UTF-8, found another: rename it: 'B/\\udcff.png'" in text
    found = loaded(tmp_path / "sites").values()
    assert 'B/a "quoted", broken\nname.png' in set.union(
        *(ids for data in found for ids in sets(data).values())
    )


@pytest.mark.parametrize("files", [[], ["A/notes.txt"], ["1.png"], ["A/1.dcm"]])
def test_folders_without_images_of_classes_are_refused(tmp_path, files):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match="images in a folder for each class"):
        read_folder(tmp_path)


def test_damaged_images_are_told_and_one_readable_one_is_enough(tmp_path):
    for name in ("A", "B"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"no image")
    with pytest.raises(
        DataError, match=r"images that can be read, found A/1.png: .*PNG, JPEG or TIFF"
    ):
        read_folder(tmp_path)
    picture(tmp_path / "B" / "2.png", size=(300, 400))
    assert read_folder(tmp_path).data_spec()["image_size"] == 224


@pytest.mark.parametrize(
    ("most", "too_many"),
    [
        ([f"class {number}" for number in range(1000)], [f"{number}" for number in range(1001)]),
        (["a" * 200, "b"], ["a" * 201, "b"]),
    ],
)
def test_classes_that_no_job_can_have_are_refused_before_the_cut(most, too_many):
    assert set(take_classes(most).classes) == set(most)
    with pytest.raises(ClassesError, match="at most 1000 classes, whose names have at most 200"):
        take_classes(too_many)


# --- the command


def run(*words):
    return cli.main([str(word) for word in words])


def test_a_csv_becomes_a_run_in_two_commands(clinic, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(clinic, tmp_path / "clinic")
    words = ["--sites", 2, "--out", "sites", "--columns", "label=dx", "--images", "clinic"]
    assert run("partition", "clinic/meta.csv", *words) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    small = ["rounds=1", "images_per_round=8", "batch=4", "net=small_cnn", "data.image_size=16"]
    changes = [word for change in small for word in ("--set", change)]
    assert run("run", "fedavg", "--site-files", "sites", *changes, "--out", "run") == 0
    assert run("doctor", "sites/site-1.yaml") == 0
    assert "melanoma" in capsys.readouterr().out


def test_a_share_of_the_images_becomes_the_servers(clinic, tmp_path, capsys):
    """The pooled site trains on what all sites keep, and the server's labels are none of theirs."""
    wanted = ["--sites", 2, "--server", 0.5, "--pooled", "--columns", "group=Patient ID"]
    assert run("partition", clinic / "meta.csv", *wanted, "--out", tmp_path / "sites") == 0
    table_lines = capsys.readouterr().out.splitlines()[:5]
    assert [line.split()[0] for line in table_lines[1:]] == ["site-1", "site-2", "pooled", "server"]
    spec = DataSpec.model_validate(json.loads((tmp_path / "sites/data.json").read_text()))
    server = load_site(tmp_path / "sites/server.yaml", spec)
    assert len(server.labelled) > len(server.val) > len(server.test) == 0
    pooled_sites = ("site-1", "site-2", "pooled")
    of_others = [load_site(tmp_path / f"sites/{name}.yaml", spec) for name in pooled_sites]
    ids = [name for data in of_others for part in sets(data).values() for name in part]
    of_server = set().union(*sets(server).values())
    assert not of_server & set(ids)
    assert len(of_server) + len(ids) == 120


@pytest.mark.parametrize("layout", ["{split}/{kind}", "{kind}/{split}"])
def test_the_servers_share_of_a_folder_with_splits_is_of_its_training_images(tmp_path, layout):
    """A quarter of each class and of the unlabelled images; sites keep the data's own splits."""
    counts = {"train": 40, "val": 12, "test": 16}
    number = 0
    for split, count in counts.items():
        for kind in ("A", "B", "unlabelled"):
            folder = tmp_path / "eyes" / layout.format(split=split, kind=kind)
            images = count
            if kind == "unlabelled":
                images = 8 if split == "train" else 0
            for index in range(images):
                number += 1
                picture(folder / f"{index}.png", number)
    partition(tmp_path / "eyes", tmp_path / "sites", Wanted(sites=2, server=0.25))
    found = loaded(tmp_path / "sites")
    assert list(found) == ["server", "site-1", "site-2"]
    sizes = {name: [len(ids) for ids in sets(data).values()] for name, data in found.items()}
    # Labelled, unlabelled, validation and test images; a fifth of the server's are for validation.
    assert sizes == {"server": [16, 2, 4, 0], "site-1": [30, 3, 12, 16], "site-2": [30, 3, 12, 16]}
    of_server = found["server"]
    assert np.bincount(of_server.labelled.labels).tolist() == [8, 8]
    assert np.bincount(of_server.val.labels).tolist() == [2, 2]
    everything = [name for data in found.values() for ids in sets(data).values() for name in ids]
    assert len(set(everything)) == len(everything) == 144
    for data in found.values():
        for part, ids in sets(data).items():
            split = part if part in ("val", "test") and data is not of_server else "train"
            assert all(split in name.split("/") for name in ids)


def test_what_sites_have_not_is_told_before_the_run(clinic, tmp_path, capsys):
    sites = tmp_path / "sites"
    out = tmp_path / "run"
    partition(clinic / "meta.csv", sites, Wanted(sites=3))
    capsys.readouterr()
    assert (
        run("run", "fedavg", "--site-files", sites, "--set", "data.classes=[a, b]", "--out", out)
        == 1
    )
    error = capsys.readouterr().err
    assert "found 3 of 3 that cannot be used" in error
    assert "\n  site-1, site-2, site-3: field labels: " in error
    assert '--set "data.classes=[melanoma, nevus]"' in error
    spoilt = yaml.safe_load((sites / "site-2.yaml").read_text())
    (sites / "site-2.yaml").write_text(yaml.safe_dump({**spoilt, "folder": "nowhere"}))
    (sites / "notes.yaml").write_text("a: b\n")
    small = ["rounds=1", "images_per_round=8", "batch=4", "net=small_cnn", "data.image_size=16"]
    arguments = [
        "--site-files",
        sites,
        "--out",
        out,
        *[word for change in small for word in ("--set", change)],
    ]
    assert run("run", "fedavg", *arguments) == 1
    error = capsys.readouterr().err
    for line in (
        "2 of 4 that cannot be used",
        "\n  notes: file ",
        "kind: expected manifest or npz",
        "site-2: field folder",
    ):
        assert line in error
    assert not out.exists()
    assert run("run", "fedavg", *arguments, "--allow-missing", "--unmeasured") == 0
    assert (
        "2 of 4 cannot be used, and the run goes on without these sites:\n  notes: "
        in capsys.readouterr().out
    )
    assert json.loads((out / "run.json").read_text())["sites"] == ["site-1", "site-3"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "expected an npz file, a CSV, or a folder of images, found nothing there"),
        (["eyes", "--columns", "label=x"], "--columns: expected a CSV, found eyes. Remove --col"),
        (
            ["eyes", "--columns", "label=x", "label=y", "--blank", "negative", "--prefix", "a/"],
            "--columns, --blank, --prefix: expected a CSV, found eyes. Remove --columns and --blank"
            " and --prefix, or name the CSV.",
        ),
        (["eyes", "--by", "hospital"], "a column of the data (there are none), found hospital"),
        (
            ["eyes", "--by", "hospital", "--dirichlet", "1"],
            "--by: expected no --sites or --dirichlet",
        ),
        (["eyes", "--seed", "3", "--oracle"], "expected --sites or --by, found --oracle"),
        (
            ["eyes", "--seed", "3", "--val", "0", "--labelled-sites", "0"],
            "expected --sites or --by, found --labelled-sites and --val",
        ),
        (
            ["eyes"],
            "expected --sites or --by, found eyes. Say into how many sites, as in --sites 4.",
        ),
        (["eyes", "--images", "x"], "expected --sites or --by, found --images"),
    ],
)
def test_wrong_use_is_told_with_what_to_do(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    folders(tmp_path / "eyes", {"A": 2, "B": 2})
    sites = (
        [] if {"--by", "--seed", "--images"} & set(words) or words == ["eyes"] else ["--sites", "2"]
    )
    assert run("partition", *words, *sites, "--out", "sites") in (1, 2)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "sites").exists()


@pytest.mark.parametrize(
    ("out", "found"),
    [("eyes/A/0.png/sites", "eyes/A/0.png, which is no folder"), ("old", "found site-3.yaml")],
)
def test_a_folder_that_cannot_be_used_is_refused_before_an_image_is_opened(
    tmp_path, monkeypatch, out, found
):
    monkeypatch.chdir(tmp_path)
    root = folders(tmp_path / "eyes", {"A": 20, "B": 20})
    partition(root, Path("old"), Wanted(sites=3, val=0, test=0))
    for path in root.rglob("*.png"):
        path.write_bytes(b"nothing could be read of it")
    with pytest.raises(ConfigError, match=rf"{found}.*[Nn]ame another"):
        partition(root, Path(out), Wanted(sites=2, val=0, test=0))


def test_the_name_that_is_proposed_is_said(clinic, tmp_path):
    text = " ".join(partition(clinic / "meta.csv", tmp_path / "sites", Wanted(sites=2)).split())
    assert 'titled with the name in it, "meta", which is that of the data set\'s file' in text
    assert json.loads((tmp_path / "sites" / "data.json").read_text())["name"] == "meta"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Kopf 1.mgz", "Volumes of other formats must be converted to NIfTI (.nii.gz). Name the f"),
        ("x.gif", "found a file of a kind that is not read. GIF: convert to PNG. Name the f"),
        ("x.png", "found one image. Name the folder of the images, or a CSV."),
    ],
)
def test_a_single_file_is_no_table(tmp_path, name, said):
    (tmp_path / name).write_bytes(b"\x1f\x8b")
    with pytest.raises(ConfigError) as refusal:
        partition(tmp_path / name, tmp_path / "sites", Wanted(sites=2))
    assert said in str(refusal.value)


def test_one_thumbnail_does_not_decide_the_proposed_size(tmp_path):
    for number, side in enumerate((16, 40, 48, 40, 40, 300)):
        picture(tmp_path / "ab"[number % 2] / f"{number}.png", number, (side, side + 8))
    assert read_folder(tmp_path).data_spec()["image_size"] == 40


@pytest.mark.parametrize("colours", [4, 15])
def test_images_of_all_classes_decide_whether_a_data_set_is_grey(tmp_path, colours):
    for number in range(16):
        picture(tmp_path / "a" / f"{number}.png", number, grey=True)
    for number in range(colours):
        picture(tmp_path / "b" / f"{number}.png", number)
    assert read_folder(tmp_path).channels == 3


def test_images_at_no_site_are_counted_by_reason(tmp_path):
    rows = ["image,label,patient,place"]
    for number in range(120):
        picture(tmp_path / f"{number}.png", number)
        place = "" if number < 4 else "AB"[number % 2]
        # Patient 9 has two images at A and one at B.
        patient = 9 if number in (110, 112, 113) else 1000 + number
        rows.append(f"{number}.png,{'ab'[number // 2 % 2]},{patient},{place}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    text = " ".join(partition(tmp_path / "t.csv", tmp_path / "cut", Wanted(by="place")).split())
    assert "Listed: 120 rows. Used: 115. Left out: 5, each with its reason in " in text
    assert (
        "- 4: no value in place: line 2 (0.png), line 3 (1.png), line 4 (2.png) and 1 more - 1: in "
        "a group that has more images at another site: line 113 (111.png)"
    ) in text.replace("line 115 (113.png)", "line 113 (111.png)")


def test_many_images_whose_group_is_elsewhere_are_said_last(tmp_path):
    """As where a column says which camera, and not which patient: 22 of 120 images."""
    rows = ["image,label,patient,place"]
    for number in range(120):
        picture(tmp_path / f"{number}.png", number)
        group = "camera" if number < 44 else f"{1000 + number}"
        rows.append(f"{number}.png,{'ab'[number // 2 % 2]},{group},{'AB'[number % 2]}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    text = partition(tmp_path / "t.csv", tmp_path / "cut", Wanted(by="place"))
    assert "Used: 98. Left out: 22, " in text
    assert " ".join(text.split("\n\n")[2].split()) == (
        "22 of 120 images are left out: they are in a group that has more images at another "
        "site, and a group stays together. If the groups are wrong, name another column of groups "
        "(--columns group=COLUMN) or none (--columns group=)."
    )


def test_sites_that_are_called_otherwise_than_their_value_are_named(tmp_path):
    rows = ["image,label,place"]
    for number in range(120):
        picture(tmp_path / f"{number}.png", number)
        rows.append(f"{number}.png,{'ab'[number // 2 % 2]},{('Köln', 'Bonn')[number % 2]}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    text = " ".join(partition(tmp_path / "t.csv", tmp_path / "cut", Wanted(by="place")).split())
    assert (
        "Names of sites are values of place in letters that any file name may have: Koln (Köln). "
        "`fedward run --without NAME` takes these names."
    ) in text
    assert (tmp_path / "cut" / "Koln.yaml").exists()


@pytest.mark.parametrize(
    ("share", "note"),
    [
        (
            0.01,
            "Sites see 4 of 52 training labels, 7.7% in place of 1.0%: each keeps at least one "
            "label of each class that it has.",
        ),
        (0.5, ""),
    ],
)
def test_a_share_of_labels_that_each_class_raises_is_told(tmp_path, share, note):
    source = folders(tmp_path / "images", {"A": 44, "B": 44})
    text = partition(source, tmp_path / "sites", Wanted(sites=2, labelled=share))
    said = " ".join(text.split())
    assert note in said
    assert bool(note) == ("in place of" in said)


def test_a_broken_image_is_named_by_partition_and_nobody_later(tmp_path):
    """One of 13 is more than 5 %, and one of 25 would be more than 5 % of its site."""
    small = folders(tmp_path / "small", {"A": 7, "B": 6})
    (small / "B" / "3.png").write_bytes(b"\x89PNG damaged")
    with pytest.raises(DataError, match=r"found 1 of 13 that cannot: .*: B/3\.png\. Repair"):
        partition(small, tmp_path / "sites", Wanted(sites=1))
    larger = folders(tmp_path / "larger", {"A": 13, "B": 12})
    (larger / "B" / "3.png").write_bytes(b"\x89PNG damaged")
    text = partition(larger, tmp_path / "sites", Wanted(sites=1, val=0, test=0))
    text = " ".join(text.split())
    assert "Listed: 25 files. Used: 24. Left out: 1, each with its reason in " in text
    assert "to PNG of 8 bits: B/3.png" in text
    assert not loaded(tmp_path / "sites")["site-1"].rejected


@pytest.mark.parametrize("contradicting", ["left-out", "kept"])
def test_rows_that_label_one_file_differently_are_refused_whatever_is_decided_of_copies(
    tmp_path, contradicting
):
    for name in "ab":
        Image.new("L", (8, 8), 255).save(tmp_path / f"{name}.png")
    table = tmp_path / "all.csv"
    table.write_text("image,label\na.png,A\nb.png,B\na.png,B\n")
    with pytest.raises(DataError, match=r"one label for each image, .*a\.png is A in line 2"):
        partition(table, tmp_path / "sites", Wanted(sites=2, contradicting=contradicting))
