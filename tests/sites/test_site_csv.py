import math
import os
import shutil
from collections import Counter

import numpy as np
import pytest
import yaml
from PIL import Image

from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.sites import Rejected, find_site_file, load_site
from fedward.sites.data import NO_LABEL_TO_EVALUATE
from fedward.sites.site_csv import read_rows
from fedward.sites.site_file import read_site_file

SETS = ("labelled", "unlabelled", "val", "test")


def ids(data):
    return {name: getattr(data, name).ids for name in SETS}


def same(one, other):
    return ids(one) == ids(other) and all(
        np.array_equal(getattr(one, name).pixels, getattr(other, name).pixels)
        and np.array_equal(getattr(one, name).labels, getattr(other, name).labels)
        for name in SETS
    )


def test_every_image_is_in_one_set_and_no_group_in_two_splits(hospital):
    data = load_site(hospital.write(labelled=0.5), hospital.spec)
    found = ids(data)
    assert sorted(sum(found.values(), ())) == [row[0] for row in hospital.rows]
    group = {row[0]: row[3] for row in hospital.rows}
    split = {"labelled": "train", "unlabelled": "train"}
    assert (
        max(
            Counter(
                g for g, _ in {(group[i], split.get(n, n)) for n in SETS for i in found[n]}
            ).values()
        )
        == 1
    )
    assert data.site == "site-1"
    assert data.classes == ("MEL", "NV", "BCC")
    assert data.labelled.pixels.shape[1:] == (16, 16, 3)
    assert data.labelled.pixels.dtype == np.uint8
    label = {row[0]: hospital.spec.classes.index(row[2]) for row in hospital.rows}
    for name in ("labelled", "val", "test"):
        assert [label[i] for i in found[name]] == getattr(data, name).labels.tolist()
    assert (data.unlabelled.labels == -1).all()
    assert not data.rejected


def test_row_order_does_not_matter(hospital):
    site_file = hospital.write(labelled=0.4)
    first = load_site(site_file, hospital.spec)
    hospital.rows.reverse()
    hospital.write(labelled=0.4)
    assert same(first, load_site(site_file, hospital.spec))


def test_hidden_labels_are_not_in_the_data(hospital):
    """Blank the labels that were hidden: the methods see the very same data."""
    hospital.header.append("split")
    for index, row in enumerate(hospital.rows):
        row.append("train" if index < 30 else "test")
    whole = load_site(hospital.write(labelled=0.3), hospital.spec)
    hidden = [row for row in hospital.rows if row[0] in whole.unlabelled.ids]
    assert len(hidden) == 21
    for row in hidden:
        row[2] = ""
    blanked = load_site(hospital.write(labelled=1), hospital.spec)
    assert same(whole, blanked)


def test_a_site_may_name_the_images_whose_labels_are_used(hospital):
    every = load_site(hospital.write(), hospital.spec)
    few = every.labelled.ids[3:8]
    named = load_site(hospital.write(labelled=[*reversed(few)]), hospital.spec)
    assert named.labelled.ids == few
    assert named.labelled.labels.tolist() == every.labelled.labels[3:8].tolist()
    assert sorted(named.labelled.ids + named.unlabelled.ids) == sorted(every.labelled.ids)
    assert (named.val.ids, named.test.ids) == (every.val.ids, every.test.ids)
    assert load_site(hospital.write(labelled=[]), hospital.spec).labelled.ids == ()


def test_a_named_image_without_a_training_label_is_refused(hospital):
    held_out = load_site(hospital.write(), hospital.spec).test.ids[0]
    with pytest.raises(
        DataError,
        match=f"site-1, field labelled: expected ids .* found 1 others, such as '{held_out}'",
    ):
        load_site(hospital.write(labelled=[held_out]), hospital.spec)


def test_a_given_split_is_kept(hospital):
    hospital.header.append("fold")
    for index, row in enumerate(hospital.rows):
        row.append(["train", "VAL", "test"][index // 2 % 3])
    data = load_site(hospital.write(columns={"split": "fold"}), hospital.spec)
    assert data.val.ids == tuple(row[0] for row in hospital.rows if row[4] == "VAL")
    assert data.test.ids == tuple(row[0] for row in hospital.rows if row[4] == "test")


def test_a_group_in_two_splits_is_an_error(hospital):
    hospital.header.append("split")
    for index, row in enumerate(hospital.rows):
        row.append("train" if index % 2 else "test")
    with pytest.raises(
        DataError, match=r"site-1.*column split.*each group in one split.*g00, g01.*15 more"
    ):
        load_site(hospital.write(), hospital.spec)


def test_unlabelled_evaluation_rows_do_not_count_as_faults(hospital):
    hospital.header.append("split")
    for index, row in enumerate(hospital.rows):
        row[2] = "" if index >= 20 else row[2]
        row.append("train" if index < 10 else "val")
    data = load_site(hospital.write(), hospital.spec)
    assert len(data.val) == 10
    assert {row.reason for row in data.rejected} == {NO_LABEL_TO_EVALUATE}
    assert len(data.rejected) == 20


def test_a_site_without_labels_only_trains(hospital):
    data = load_site(hospital.write(columns={"label": None}), hospital.spec)
    assert len(data.unlabelled) == 40
    assert not len(data.labelled) + len(data.val) + len(data.test)


def test_the_site_names_columns_labels_and_rows(hospital):
    hospital.header[:] = ["Bild-Nr", "Datei", "Befund", "Patient"]
    del hospital.rows[8:]
    for row in hospital.rows:
        row[2] = {"MEL": "Melanom", "NV": "Nävus", "BCC": "weg"}[row[2]]
    data = load_site(
        hospital.write(
            columns={
                "sample_id": "Bild-Nr",
                "image": "Datei",
                "label": "Befund",
                "group": "Patient",
            },
            labels={"Melanom": "MEL", "Nävus": "NV"},
            ignore_labels=["weg"],
            split={"val": 0, "test": 0},
        ),
        hospital.spec,
    )
    assert data.labelled.ids == ("s000", "s001", "s002", "s003", "s006", "s007")
    assert data.labelled.labels.tolist() == [0, 0, 1, 1, 0, 0]


def test_one_class_is_fine(hospital):
    for row in hospital.rows:
        row[2] = "NV"
    assert set(load_site(hospital.write(), hospital.spec).labelled.labels.tolist()) == {1}


def spoil_missing(hospital):
    hospital.rows[3][1] = "images/none.png"
    return "expected an image file, found none at 'images/none.png'"


def spoil_truncated(hospital):
    path = hospital.folder / hospital.rows[3][1]
    path.write_bytes(path.read_bytes()[:300])
    return "expected a whole image"


def spoil_text(hospital):
    (hospital.folder / hospital.rows[3][1]).write_text("no image")
    return "expected a whole image, found a file that is not one of PNG, JPEG, TIFF, BMP and PPM"


def spoil_blank(hospital):
    Image.new("RGB", (30, 30), (7, 8, 9)).save(hospital.folder / hospital.rows[3][1])
    return "blank"


def spoil_label(hospital):
    hospital.rows[3][2] = "WART"
    return "expected a class of the job (MEL, NV, BCC), found 'WART'"


def spoil_duplicate(hospital):
    hospital.rows[3][0] = "s001"
    return "expected a sample_id of its own, found that of line 3"


def spoil_no_id(hospital):
    hospital.rows[3][0] = ""
    return "expected a sample_id, found none"


def spoil_short(hospital):
    hospital.rows[3].pop()
    return "expected 4 cells, found 3"


def spoil_absolute(hospital):
    hospital.rows[3][1] = "/another/machine/000.png"
    return "expected a path relative to"


def spoil_outside(hospital):
    shutil.copy(hospital.folder / "images" / "000.png", hospital.folder.parent / "secret.png")
    hospital.rows[3][1] = "../secret.png"
    return "which leaves it"


def spoil_link(hospital):
    shutil.copy(hospital.folder / "images" / "000.png", hospital.folder.parent / "secret.png")
    os.symlink(hospital.folder.parent / "secret.png", hospital.folder / "images" / "link.png")
    hospital.rows[3][1] = "images/link.png"
    return "which leaves it"


def spoil_circle(hospital):
    os.symlink("circle.png", hospital.folder / "images" / "circle.png")
    hospital.rows[3][1] = "images/circle.png"
    return "found a link at 'images/circle.png' whose file cannot be reached"


LEAVING = pytest.mark.proves(
    "files",
    "a path or link of a manifest that leaves the data folder",
    "the row is rejected, with its line and the reason",
)
SPOILERS = [value for name, value in sorted(globals().items()) if name.startswith("spoil_")]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(spoil, marks=[LEAVING] if spoil in (spoil_outside, spoil_link) else [])
        for spoil in SPOILERS
    ],
)
def test_one_bad_row_is_rejected_and_the_rest_kept(hospital, spoil):
    reason = spoil(hospital)
    data = load_site(hospital.write(), hospital.spec)
    assert [row.row for row in data.rejected] == [5]
    assert reason in data.rejected[0].reason
    assert sum(len(getattr(data, name)) for name in SETS) == 39


@pytest.mark.parametrize("spoil", SPOILERS)
def test_too_many_bad_rows_are_an_error_that_lists_them(hospital, spoil):
    reason = spoil(hospital)
    with pytest.raises(DataError) as caught:
        load_site(hospital.write(max_rejected=0.02), hospital.spec)
    text = str(caught.value)
    assert "site site-1" in text
    assert "manifest.csv" in text
    assert "row 5" in text
    assert reason in text


def test_an_unknown_split_is_rejected(hospital):
    hospital.header.append("split")
    for row in hospital.rows:
        row.append("train")
    hospital.rows[3][4] = "holdout"
    data = load_site(hospital.write(), hospital.spec)
    assert data.rejected[0].reason == (
        "expected train, val or test, found 'holdout' (rename cells of splits to these, rename or "
        "drop the column split, or write columns: {split: NAME})"
    )


def test_splits_have_the_names_that_a_partition_reads(hospital):
    hospital.header.append("split")
    for index, row in enumerate(hospital.rows):
        row.append(["Training", "valid", "testing", "train", "DEV", "Validation"][index // 2 % 6])
    data = load_site(hospital.write(), hospital.spec)
    of_split = {"labelled": "Training train", "val": "valid DEV Validation", "test": "testing"}
    for name, splits in of_split.items():
        wanted = [row[0] for row in hospital.rows if row[4] in splits.split(" ")]
        assert ids(data)[name] == tuple(wanted)


def test_an_empty_column_called_split_is_none(hospital):
    whole = load_site(hospital.write(), hospital.spec)
    hospital.header.append("split")
    for row in hospital.rows:
        row.append("")
    assert same(whole, load_site(hospital.write(), hospital.spec))
    with pytest.raises(DataError, match="at most 5% of 40 rows unusable, found 40"):
        load_site(hospital.write(columns={"split": "split"}), hospital.spec)


NUMBERS = ("99", "255", "9999", "7")
"""Numbers of patients, some of which stand for an absent value in other columns."""


def test_a_patient_of_any_number_is_in_one_split(hospital):
    for index, row in enumerate(hospital.rows):
        row[3] = NUMBERS[index % 4]
    data = load_site(hospital.write(), hospital.spec)
    splits = [data.labelled, data.val, data.test]
    assert sum(len(set(images.patients)) for images in splits) == 4
    assert {name for images in splits for name in images.patients} == set(NUMBERS)


def test_a_row_without_a_patient_is_none_of_the_patient_who_has_its_id(hospital):
    """Sample 7 is nobody's, and patient 7 has other images in another split."""
    hospital.header.append("split")
    for index, row in enumerate(hospital.rows):
        row[0] = f"{index}"
        row.append("train" if index < 20 else "test")
    hospital.rows[7][3] = "?"
    for index in (30, 31):
        hospital.rows[index][3] = "7"
    data = load_site(hospital.write(), hospital.spec)
    owner_of = dict(zip(data.labelled.ids, data.labelled.patients, strict=True))
    assert owner_of["7"] not in data.test.patients
    assert data.test.patients.count("7") == 2


def test_rows_that_say_the_same_of_an_image_count_once_also_with_one_id(hospital):
    columns = {"sample_id": "image"}
    once = load_site(hospital.write(columns=columns), hospital.spec)
    hospital.rows += [list(row) for row in hospital.rows]
    twice = load_site(hospital.write(columns=columns), hospital.spec)
    assert same(once, twice)
    assert {(row.reason, row.counted) for row in twice.rejected[:1]} == {
        ("not used: it repeats the image of line 2", False)
    }
    assert len(twice.rejected) == 40


def test_an_image_of_one_id_and_two_labels_is_refused(hospital):
    row = list(hospital.rows[3])
    row[2] = next(name for name in hospital.spec.classes if name != row[2])
    hospital.rows.append(row)
    with pytest.raises(DataError, match=r"one label for each image, .*: lines 5 and 42"):
        load_site(hospital.write(columns={"sample_id": "image"}), hospital.spec)


def test_a_site_file_says_who_answers_questions_for_labels(hospital):
    data = load_site(hospital.write(annotation="queue", wait_for_labels=30), hospital.spec)
    assert (data.annotation, data.wait_for_labels) == ("queue", 30.0)
    data = load_site(hospital.write(), hospital.spec)
    assert (data.annotation, data.wait_for_labels) == ("none", 0.0)


def test_labels_can_be_shown_and_hidden_without_moving_an_image(hospital):
    data = load_site(hospital.write(labelled=0.5), hospital.spec)
    ids = [*data.labelled.ids, *data.unlabelled.ids]
    pictures = dict(zip(ids, [*data.labelled.pixels, *data.unlabelled.pixels], strict=True))
    labels = {ids[-1]: 1, ids[0]: 0, "of another site": 1}
    shown = data.with_labels(labels)
    assert dict(zip(shown.labelled.ids, shown.labelled.labels.tolist(), strict=True)) == {
        ids[0]: 0,
        ids[-1]: 1,
    }
    assert shown.unlabelled.ids == tuple(ids[1:-1])
    assert set(shown.unlabelled.labels.tolist()) == {-1}
    for images in (shown.labelled, shown.unlabelled):
        assert all(
            (pictures[name] == pixels).all()
            for name, pixels in zip(images.ids, images.pixels, strict=True)
        )
    assert (shown.val is data.val, shown.test is data.test) == (True, True)
    assert data.with_labels({}).labelled.ids == ()


def test_images_by_id_come_in_the_order_asked_for(hospital):
    images = load_site(hospital.write(), hospital.spec).labelled
    picked = images.named(images.ids[3:0:-1])
    assert picked.ids == images.ids[3:0:-1]
    assert (picked.pixels == images.pixels[3:0:-1]).all()
    assert (picked.labels == images.labels[3:0:-1]).all()
    with pytest.raises(KeyError, match="nobody"):
        images.named(["nobody"])


@pytest.fixture(scope="module")
def members(lasting_hospital):
    return ids(load_site(lasting_hospital.write(labelled=0.5), lasting_hospital.spec))


@pytest.mark.parametrize(
    ("index", "spoilt"), [(0, "missing"), (13, "cut short"), (27, "missing"), (39, "cut short")]
)
def test_mending_a_file_moves_no_other_image(lasting_hospital, members, index, spoilt):
    hospital = lasting_hospital
    path = hospital.folder / hospital.rows[index][1]
    content = path.read_bytes()
    if spoilt == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:300])
    try:
        data = load_site(hospital.site_file(labelled=0.5), hospital.spec)
    finally:
        path.write_bytes(content)
    name = hospital.rows[index][0]
    assert [row.sample_id for row in data.rejected] == [name]
    assert ids(data) == {
        part: tuple(i for i in whole if i != name) for part, whole in members.items()
    }


def test_a_row_whose_file_is_missing_keeps_its_sample_id(hospital):
    """Otherwise repairing the file would make the row that repeats the id a bad one."""
    spoil_missing(hospital)
    hospital.rows[9][0] = "s003"
    data = load_site(hospital.write(), hospital.spec)
    assert [(row.row, row.reason) for row in data.rejected] == [
        (5, "expected an image file, found none at 'images/none.png'"),
        (11, "expected a sample_id of its own, found that of line 5"),
    ]


def test_who_looks_at_rows_alone_gets_those_with_a_file(hospital):
    spoil_missing(hospital)
    file = read_site_file(hospital.write())
    rows = read_rows(file, hospital.spec.classes, hospital.spec.label_kind)
    with_a_file = [row[0] for row in hospital.rows if row[0] != "s003"]
    assert [entry.sample_id for entry in rows.entries] == with_a_file
    assert all(entry.path.is_file() for entry in rows.entries)
    assert [row.row for row in rows.rejected_or_missing] == [5]
    assert rows.total == 40


def test_malformed_rows_count_as_unusable(hospital):
    for row in hospital.rows[20:30]:
        row.append("too much")
    hospital.rows += [["short"]]
    expected = [Rejected(22 + i, f"s{20 + i:03d}", "expected 4 cells, found 5") for i in range(10)]
    data = load_site(hospital.write(max_rejected=0.3), hospital.spec)
    assert list(data.rejected) == [*expected, Rejected(42, "short", "expected 4 cells, found 1")]
    with pytest.raises(DataError, match="at most 0% of 41 rows unusable, found 11"):
        load_site(hospital.write(max_rejected=0), hospital.spec)


def test_a_malformed_row_is_named_by_its_sample_id(hospital):
    hospital.header.reverse()
    for row in hospital.rows:
        row.reverse()
    hospital.rows[3].append("too much")
    hospital.rows[4].pop()
    data = load_site(hospital.write(), hospital.spec)
    assert [(row.row, row.sample_id) for row in data.rejected] == [(5, "s003"), (6, "")]


def test_columns_without_a_name_may_repeat(hospital):
    whole = load_site(hospital.write(), hospital.spec)
    for line in (hospital.header, *hospital.rows):
        line += ["", ""]
    assert same(whole, load_site(hospital.write(), hospital.spec))


@pytest.mark.parametrize(
    ("encoding", "delimiter"),
    [
        ("utf-8", ","),
        ("utf-8-sig", ","),
        ("utf-16", ","),
        ("cp1252", ";"),
        ("utf-8", "\t"),
        ("utf-16", ";"),
    ],
)
def test_encodings_and_delimiters(hospital, encoding, delimiter):
    for row in hospital.rows:
        row[3] = f"Müller {row[3]}"
    file = read_site_file(hospital.write(delimiter, encoding))
    entries = read_rows(file, hospital.spec.classes, hospital.spec.label_kind).entries
    assert [entry.group for entry in entries] == [row[3] for row in hospital.rows]


def test_a_quoted_column_may_hold_delimiters(hospital):
    whole = load_site(hospital.write(), hospital.spec)
    for line in (hospital.header, *hospital.rows):
        line.insert(0, "age; sample_id; image; label; group")
    assert same(whole, load_site(hospital.write(), hospital.spec))


def test_missing_columns_are_named(hospital):
    hospital.header[3] = "patient"
    with pytest.raises(
        DataError, match=r"manifest.csv, line 1: expected columns .*missing: group.*columns"
    ) as refused:
        load_site(hospital.write(), hospital.spec)
    cure = "If no column names patients or lesions, write columns: {group: null}."
    assert refused.value.remedy.endswith(cure)
    load_site(hospital.write(columns={"group": None}), hospital.spec)
    with pytest.raises(DataError, match="missing: diagnosis") as refused:
        load_site(hospital.write(columns={"group": None, "label": "diagnosis"}), hospital.spec)
    assert cure not in refused.value.remedy


@pytest.mark.parametrize(
    "text",
    ["x" * 150_000, f'"{"x" * 150_000}",image', "x," * 150_000],
)
def test_a_first_line_that_is_no_header_is_told_in_few_words(hospital, text):
    site_file = hospital.write()
    (hospital.folder / "manifest.csv").write_text(text)
    with pytest.raises(
        DataError, match=r"manifest.csv, line 1: expected columns .*missing: sample_id"
    ) as caught:
        load_site(site_file, hospital.spec)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("above", "lines"), [("\n", 1), (" \r\n,,,\n", 2), ('"","",,\n', 1), ("sep=,\n,\n\n", 3)]
)
def test_empty_rows_above_the_header_are_skipped(hospital, above, lines):
    hospital.rows[3][2] = "WART"
    site_file = hospital.write()
    table = hospital.folder / "manifest.csv"
    table.write_bytes(above.encode() + table.read_bytes())
    data = load_site(site_file, hospital.spec)
    assert [(row.row, row.sample_id) for row in data.rejected] == [(5 + lines, "s003")]


def test_names_in_a_guessed_encoding_are_said_to_be_so(hospital):
    for row in hospital.rows:
        row[1] = row[1].replace("images/", "images/Müller-")
    site_file = hospital.write(encoding="mac_roman")
    with pytest.raises(
        DataError,
        match=r"none at 'images/MŸller-000\.png'.* read as cp1252: if letters .*as UTF-8",
    ):
        load_site(site_file, hospital.spec)
    with pytest.raises(DataError, match=r"none at 'images/Müller-000\.png'\. Fix"):
        load_site(hospital.write(), hospital.spec)


def test_a_header_may_be_longer_than_a_cell(hospital):
    whole = load_site(hospital.write(), hospital.spec)
    for line in (hospital.header, *hospital.rows):
        line += ["more" * 5 + str(number) for number in range(6000)]
    assert same(whole, load_site(hospital.write(), hospital.spec))


def test_repeated_columns_are_named(hospital):
    hospital.header.append("label")
    for row in hospital.rows:
        row.append("NV")
    with pytest.raises(DataError, match="columns of the same name: label"):
        load_site(hospital.write(), hospital.spec)


def test_broken_quoting_names_the_line(hospital):
    site_file = hospital.write()
    with (hospital.folder / "manifest.csv").open("a") as file:
        file.write('"open,x,NV,g\n')
    with pytest.raises(DataError, match=r"line 42, is not a row of a CSV"):
        load_site(site_file, hospital.spec)


def test_line_numbers_survive_line_breaks_in_cells(hospital):
    hospital.rows[1][3] = "g\n0"
    hospital.rows[3][2] = "WART"
    assert load_site(hospital.write(), hospital.spec).rejected[0].row == 6


def test_a_table_that_is_no_text(hospital):
    site_file = hospital.write()
    (hospital.folder / "manifest.csv").write_bytes(b"\x81\x00\x00\x8d")
    with pytest.raises(DataError, match="UTF-8, UTF-16 or cp1252"):
        load_site(site_file, hospital.spec)


@pytest.mark.parametrize("ignored", [[], ["MEL", "NV", "BCC"]])
def test_an_empty_site_is_an_error(hospital, ignored):
    if not ignored:
        hospital.rows.clear()
    with pytest.raises(DataError, match="has no row that the site file selects"):
        load_site(hospital.write(ignore_labels=ignored), hospital.spec)


def test_a_site_whose_every_row_is_bad_is_an_error(hospital):
    for row in hospital.rows:
        row[2] = "WART"
    with pytest.raises(DataError, match="at most 5% of 40 rows unusable, found 40"):
        load_site(hospital.write(), hospital.spec)
    with pytest.raises(DataError, match="at least one usable image, found none"):
        load_site(hospital.write(max_rejected=1), hospital.spec)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"kind": "dicom"}, "dicom"),
        ({"kind": "manifest"}, "field folder"),
        ({"kind": "manifest", "folder": ".", "labeled": 0.1}, "field labeled"),
        ({"kind": "manifest", "folder": ".", "labelled": 2}, "field labelled"),
        ({"kind": "manifest", "folder": ".", "annotation": "doctor"}, "annotation"),
        ({"kind": "manifest", "folder": ".", "wait_for_labels": -1}, "wait_for_labels"),
        ({"kind": "manifest", "folder": ".", "minutes_per_label": math.inf}, "minutes_per_label"),
        ({"kind": "manifest", "folder": ".", "minutes_per_label": 1e300}, "expected 10000 or less"),
        (
            {"kind": "manifest", "folder": ".", "labels": {"é": "MEL", "e\u0301": "NV"}},
            "field labels: expected each key once, however it is written",
        ),
        (
            {"kind": "npz", "file": "a.npz", "labels": {0: "MEL", "00": "NV"}},
            "field labels: expected each key once, however it is written",
        ),
        (
            {"kind": "manifest", "folder": ".", "subgroups": {"é": ["a"], "e\u0301": ["b"]}},
            "field subgroups: expected each key once",
        ),
        (
            {"kind": "npz", "file": "a.npz", "reading": {"classes": {"é": {}, "e\u0301": {}}}},
            "field reading.classes: expected each key once",
        ),
        (
            {"kind": "manifest", "folder": ".", "split": {"val": 0.7, "test": 0.7}},
            "field split: expected val",
        ),
        ({"kind": "manifest", "folder": ".", "labels": {"x": "WART"}}, "field labels.*WART"),
        (
            {"kind": "manifest", "folder": ".", "manifest": "other.csv"},
            "field manifest: expected a CSV file, found none at .*/other.csv",
        ),
        ({"kind": "npz", "file": ""}, "field file: expected a path, found nothing. Fix this field"),
        (
            {"kind": "npz", "file": None},
            "field file: expected a path, found nothing. Fix this field",
        ),
        ({"kind": "npz"}, "field file: expected a value, found nothing. Fix this field"),
    ],
)
def test_a_wrong_site_file_names_the_field(hospital, content, found):
    site_file = hospital.write()
    site_file.write_text(yaml.safe_dump(content))
    with pytest.raises(DataError, match=f"(?s)site-1.*{found}"):
        load_site(site_file, hospital.spec)


@pytest.mark.parametrize(
    "text", ["kind: [", None, "birth: 2024-13-45", "!!int a", "[" * 5000, "!!bool x"]
)
def test_an_unreadable_site_file(tmp_path, text):
    site_file = tmp_path / "site-1.yaml"
    if text:
        site_file.write_text(text)
    with pytest.raises(DataError, match="a readable YAML file" if text else "no such file. Name"):
        load_site(site_file, DataSpec())


def test_a_data_set_is_no_site_file(tmp_path):
    (tmp_path / "blood.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match=r"found a data set \(\.npz\)\. Cut it .*fedward partition"):
        load_site(tmp_path / "blood.npz", DataSpec())


def test_the_servers_file_has_its_own_name(tmp_path):
    (tmp_path / "fedward_site.yaml").touch()
    assert find_site_file("server", [tmp_path]) is None
    (tmp_path / "server.yaml").touch()
    assert find_site_file("server", [tmp_path]) == tmp_path / "server.yaml"


def test_find_site_file_takes_the_first_folder_that_has_one(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    own = tmp_path / "b" / "site-2.yaml"
    shared = tmp_path / "b" / "fedward_site.yaml"
    assert find_site_file("site-2", [tmp_path / "a", tmp_path / "b"]) is None
    shared.touch()
    assert find_site_file("site-2", [tmp_path / "a", tmp_path / "b"]) == shared
    own.touch()
    assert find_site_file("site-2", [tmp_path / "a", tmp_path / "b"]) == own
    for name in ("../b/site-2", "", ".."):
        with pytest.raises(DataError, match="plain name"):
            find_site_file(name, [tmp_path])
