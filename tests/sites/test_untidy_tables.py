"""CSVs as hospitals, spreadsheets and challenges write them: the right image, the right label."""

import argparse
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from deciding import read_csv, read_folder
from fedward import cli
from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.lab.partition.arguments import add_arguments
from fedward.lab.partition.csv_pool import CsvOptions
from fedward.lab.partition.cut import partition
from fedward.lab.partition.divide import column_sites
from fedward.lab.partition.label_choices import LabelChoices
from fedward.lab.partition.left_out import left_out_lines
from fedward.lab.partition.wanted import Wanted, command_of
from fedward.sites import load_site
from fedward.sites.decoding import BadRow
from fedward.sites.doctor import examine
from fedward.sites.image_paths import ImageFinder
from fedward.sites.images import decode_file
from fedward.sites.label_texts import Undecided, group_or_empty, undecided
from fedward.sites.rendering import Frames, Rendering
from fedward.sites.site_file import read_site_file
from fedward.sites.written import answer_in

NAMES = [f"{'A' if number < 10 else 'Bü c'}/I{number:02d}.png" for number in range(20)]
"""Paths of the images, relative to their folder ``w``."""
KINDS = ["nevus", "melanoma"]


def write_image(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``w`` of the images; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("scans") / "w"
    for number, name in enumerate(NAMES):
        write_image(folder / name, number)
    return folder


def write_table(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def listing(csv: Path, cells: list[str]) -> Path:
    """Write a CSV of these images, whose labels are in turn those of KINDS."""
    rows = [f'"{cell}",{KINDS[number % 2]}' for number, cell in enumerate(cells)]
    return write_table(csv, "image,label", rows)


def listed(pool, out: Path) -> dict[str, str]:
    """Return path of an image -> its label, in the table that a pool writes for a site."""
    rows = {"train": np.arange(len(pool.labels))}
    table = pool.listing("site-1", rows, out).table.splitlines()[1:]
    return {row.split(",")[1]: row.split(",")[2] for row in table}


RIGHT = {name: KINDS[number % 2] for number, name in enumerate(NAMES)}


@pytest.mark.parametrize(
    ("spelt", "note"),
    [
        (lambda name: name, ""),
        (lambda name: f"./{name}", ""),
        (lambda name: name.replace("/", "\\"), "another spelling"),
        (lambda name: name.upper(), "another spelling"),
        (lambda name: name.removesuffix(".png"), "without their ending: 20"),
        (lambda name: f"  {name} ", ""),
        (lambda name: name.replace(" ", "%20").replace("ü", "%C3%BC"), "another spelling"),
        (lambda name: normalize("NFD", name), "another spelling"),
        (lambda name: f"w/{name}", "the end of their paths: 20"),
        (lambda name: "C:\\scans\\w\\" + name.replace("/", "\\"), "the folder's name"),
        (lambda name: "\\\\server\\share\\w\\" + name.replace("/", "\\"), "the folder's name"),
        (lambda name: f"/home/anna/w/{name}", "the folder's name and what follows it: 20"),
        (lambda name: f"file:///D:/w/{name}", "the folder's name"),
        (lambda name: f"../w/{name}", ""),
        (lambda name: name.split("/")[1], "their bare names: 20"),
        (lambda name: name.split("/")[1].removesuffix(".png").lower(), "their bare names: 20"),
    ],
)
def test_each_row_gets_its_own_image_however_its_path_is_written(images, tmp_path, spelt, note):
    pool = read_csv(listing(tmp_path / "t.csv", [spelt(name) for name in NAMES]), images)
    assert listed(pool, tmp_path) == RIGHT
    assert any(note in text for text in pool.notes)
    assert any("Images found by" in text for text in pool.notes) == bool(note)
    assert (len(pool.labels), pool.left_out) == (20, ())


def test_names_are_the_same_in_both_of_unicodes_forms(images, tmp_path):
    """macOS writes names of files with accents of their own, which no terminal shows."""
    table = tmp_path / "t.csv"
    rows = [
        f"{name},{normalize('NFD' if number % 3 else 'NFC', ['Nävus', 'Mélanome'][number % 2])},"
        f"{normalize('NFD' if number % 2 else 'NFC', f'Jürgen {number // 2}')},"
        f"{normalize('NFD' if number % 4 else 'NFC', ['Köln', 'Düren'][number // 10])}"
        for number, name in enumerate(NAMES)
    ]
    write_table(table, normalize("NFD", "image,Läsion,patient,Klinik für Haut"), rows)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    named = [
        argument.replace("ä", normalize("NFD", "ä")).replace("ü", normalize("NFD", "ü"))
        for argument in ("label=Läsion", "Klinik für Haut", "Nävus")
    ]
    words = ["t.csv", "--out", "s", "--columns", named[0], "--by", named[1], "--classes", named[2]]
    given = parser.parse_args(words)
    assert (dict(given.columns), given.by) == ({"label": "Läsion"}, "Klinik für Haut")
    assert given.classes == ["Nävus"]
    pool = read_csv(table, images, CsvOptions(columns=dict(given.columns)))
    assert pool.classes == ("Mélanome", "Nävus")
    assert pool.groups == [f"Jürgen {number // 2}" for number in range(20)]
    assert set(pool.columns[given.by]) == {"Köln", "Düren"}
    assert not any("in several ways" in note for note in pool.notes)


def test_a_site_reads_names_in_both_of_unicodes_forms(images, tmp_path):
    """Otherwise one patient would be in training and in test."""
    rows = [
        f"{number},{name},{normalize('NFD', ['Nävus', 'Rest'][number % 2])},"
        f"{normalize('NFD' if number % 2 else 'NFC', f'Jürgen {number // 2}')}"
        for number, name in enumerate(NAMES)
    ]
    write_table(tmp_path / "t.csv", normalize("NFD", "sample_id,image,Läsion,Fälle"), rows)
    file = tmp_path / "site-1.yaml"
    fields = {
        "kind": "manifest",
        "folder": f"{images}",
        "manifest": "t.csv",
        "columns": {"label": "Läsion", "group": "Fälle"},
        "labels": {"Nävus": "Mal", "Rest": normalize("NFD", "Übrige")},
    }
    for form in ("NFC", "NFD"):
        file.write_text(normalize(form, yaml.safe_dump(fields, allow_unicode=True)))
        spec = DataSpec(classes=("Mal", normalize(form, "Übrige")), image_size=16)
        data = load_site(file, spec)
        assert data.rejected == ()
        assert spec.classes == ("Mal", "Übrige")
        patients = [
            {int(sample_id) // 2 for sample_id in part.ids}
            for part in (data.labelled, data.val, data.test)
        ]
        assert set.union(*patients) == set(range(10))
        assert sum(map(len, patients)) == 10


def test_a_path_of_another_folder_never_gets_an_image_of_the_same_name(images, tmp_path):
    """The folder B has no such images, but A has images of these names."""
    wrong = [name.replace("A/", "B/") for name in NAMES]
    with pytest.raises(DataError, match=r"10 of 20 that cannot.*B/I00\.png.*: A/I00\.png"):
        read_csv(listing(tmp_path / "t.csv", wrong), images)
    with pytest.raises(DataError, match=r"If B stands for .*/A, say so: --prefix B\."):
        read_csv(listing(tmp_path / "t.csv", wrong[:10]), images / "A")
    pool = read_csv(listing(tmp_path / "t.csv", wrong[:10]), images / "A", CsvOptions(prefix="B"))
    assert list(listed(pool, tmp_path)) == [f"I{number:02d}.png" for number in range(10)]
    assert any("Images found by the prefix B: 10" in note for note in pool.notes)


def test_a_prefix_of_another_machine_is_hinted_at_and_taken(images, tmp_path):
    table = listing(tmp_path / "t.csv", ["X:\\p\\" + name.replace("/", "\\") for name in NAMES])
    with pytest.raises(DataError, match=r"say so: --prefix 'X:\\p'"):
        read_csv(table, images)
    assert listed(read_csv(table, images, CsvOptions(prefix="X:\\p")), tmp_path) == RIGHT


def test_paths_that_begin_differently_do_not_share_an_image(images, tmp_path):
    (tmp_path / "link").symlink_to(images)
    assert ImageFinder(tmp_path / "link").find(f"{tmp_path}/link/A/I00.png") == "A/I00.png"
    finder = ImageFinder(images)
    assert finder.find("/p7/w/A/I00.png") == "A/I00.png"
    with pytest.raises(BadRow, match="begins with /p7, as others do"):
        finder.find("/p8/w/A/I00.png")


def test_a_path_of_several_images_is_refused_with_these(tmp_path):
    for name in ("x/left.png", "y/left.png", "y/LEFT.png", "z/a.png", "z/a.tif"):
        write_image(tmp_path / name, 0)
    finder = ImageFinder(tmp_path)
    for cell, candidates in (
        ("left.png", "found 2. These are x/left.png, y/left.png"),
        ("Y/Left.png", "found 2. These are y/LEFT.png, y/left.png"),
        ("z/a", "found 2. These are z/a.png, z/a.tif"),
    ):
        with pytest.raises(BadRow, match=candidates):
            finder.find(cell)
    assert finder.find("Y\\LEFT.png") == "y/LEFT.png"
    write_image(tmp_path / "Y" / "LEFT.png", 0)
    assert ImageFinder(tmp_path).find("y\\LEFT.png") == "y/LEFT.png"
    write_image(tmp_path / "007.png", 0)
    for cell, words in (
        ("z/a.dcm", r"With another ending there is z/a\.png, z/a\.tif"),
        ("7", r"With zeros in front there is 007\.png"),
    ):
        with pytest.raises(BadRow, match=words):
            ImageFinder(tmp_path).find(cell)


def test_a_path_back_from_behind_a_link_names_what_the_system_finds(tmp_path):
    for place, name in enumerate(("x.png", "a/x.png", "a/b/1.png")):
        write_image(tmp_path / name, place)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    assert (tmp_path / "link/../x.png").samefile(tmp_path / "a/x.png")
    assert ImageFinder(tmp_path).find("link/../x.png") == "a/x.png"
    assert ImageFinder(tmp_path).find("link/1.png") == "link/1.png"


FOLDERS = st.lists(st.sampled_from(["a", "A", "b", "p 7", "w"]), min_size=0, max_size=3)
FILES = st.sampled_from(["1.png", "1.PNG", "2.png", "1.2.3"])
PATHS = st.builds(lambda folders, file: "/".join([*folders, file]), FOLDERS, FILES)


@settings(max_examples=60, deadline=None)
@given(st.lists(PATHS, min_size=1, max_size=6, unique=True), PATHS, st.sampled_from("/\\"))
def test_a_row_never_gets_an_image_whose_path_ends_otherwise(tmp_path_factory, tree, cell, slash):
    root = tmp_path_factory.mktemp("tree") / "w"
    for name in tree:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"\0" * 128 + b"DICM")
    try:
        found = ImageFinder(root).find(cell.replace("/", slash))
    except BadRow:
        assert cell not in tree
        return
    assert found in tree
    image = f"/w/{found}".lower()
    wanted = f"/{cell}".lower()
    # From its end on, all of the cell is the image's path, or all of the image's path is the cell.
    assert image.endswith(wanted) or wanted.endswith(image) or _lacks_ending(image, wanted)
    assert cell not in tree or found == cell


def _lacks_ending(image: str, wanted: str) -> bool:
    stem = image.removesuffix(".png")
    return stem.endswith(wanted) or wanted.endswith(stem)


# --- labels that a person decides


@pytest.mark.parametrize(
    ("texts", "options", "classes"),
    [
        (["a", "b", "NaN"], "--labels NaN=", ("a", "b")),
        (["a", "b", "n/a", "nan"], "--labels n/a= nan=", ("a", "b")),
        (["0", "1", "-1"], "--labels=-1=", ("0", "1")),
        (["0", "1", "?"], "--labels '?='", ("0", "1")),
        (["a", "b", "none"], "--labels none=", ("a", "b")),
        (["Benign", "benign", "benign", "b"], "--labels Benign=benign", ("b", "benign")),
        (["mel", "MEL", "MEL", "NV"], "--labels mel=MEL", ("MEL", "NV")),
        (["0", "0", "1", "0.0", "00"], "--labels 00=0 0.0=0", ("0", "1")),
        (["TRUE", "True", "True", "false"], "--labels TRUE=True", ("false", "True")),
        (["1", "1", "0", "True"], "--labels True=1", ("0", "1")),
        (["basal cell", "basal_cell", "basal cell", "b"], "--labels 'basal_cell=basal cell'", None),
        (["a|b", "a", "A", "No Finding", "no finding"], "'no finding=No Finding'", ("a", "b")),
    ],
)
def test_labels_that_could_mean_several_things_are_decided_by_the_user(
    images, tmp_path, texts, options, classes
):
    labels = [texts[number % len(texts)] for number in range(20)]
    rows = [f"{name},{label}" for name, label in zip(NAMES, labels, strict=True)]
    table = write_table(tmp_path / "t.csv", "image,label", rows)
    with pytest.raises(DataError, match="labels that are classes, each written in one") as refused:
        read_csv(table, images)
    text = str(refused.value)
    assert options in text
    printed = shlex.split(text.split("as in ")[1].split(" (nothing after", maxsplit=1)[0])
    meanings = dict(word.removeprefix("--labels=").rpartition("=")[::2] for word in printed)
    meanings.pop("", None)
    pool = read_csv(table, images, CsvOptions(choices=LabelChoices(meanings)))
    assert classes is None or pool.classes == classes
    expected = ["|".join(filter(None, (meanings.get(w, w) for w in t.split("|")))) for t in labels]
    assert list(listed(pool, tmp_path).values()) == expected


def test_every_label_may_be_kept_as_a_class_of_its_own(images, tmp_path):
    rows = [f"{name},{['mel', 'MEL', 'nan'][number % 3]}" for number, name in enumerate(NAMES)]
    table = write_table(tmp_path / "t.csv", "image,label", rows)
    with pytest.raises(DataError, match=r"own: --labels nan=nan MEL=MEL mel=mel\."):
        read_csv(table, images, CsvOptions(choices=LabelChoices({})))
    kept = LabelChoices({name: name for name in ("mel", "MEL", "nan")})
    assert set(read_csv(table, images, CsvOptions(choices=kept)).classes) == {"mel", "MEL", "nan"}
    with pytest.raises(DataError, match=r"found mels \(did you mean mel\?\)"):
        read_csv(table, images, CsvOptions(choices=LabelChoices({"mels": "mel"})))


@pytest.mark.parametrize(
    ("encoding", "read"), [("cp1250", "znaménko ŸluŸté"), ("mac_roman", "znamŽnko"), ("utf-8", "")]
)
def test_an_encoding_that_is_guessed_is_said(images, tmp_path, encoding, read):
    name = {"cp1250": "znaménko źluźté"}.get(encoding, "znaménko")
    rows = [f"{image},{(name, 'melanom')[number % 2]}" for number, image in enumerate(NAMES[:10])]
    table = tmp_path / "t.csv"
    table.write_bytes("\n".join(["image,label", *rows]).encode(encoding))
    notes = " ".join(read_csv(table, images).notes)
    assert ("was read as cp1252 (Western European)" in notes) == bool(read)
    assert f"such as {read}" in notes or not read
    table.write_bytes("\n".join(["image,label", *rows]).replace(name, "Zn").encode(encoding))
    assert "cp1252" not in " ".join(read_csv(table, images).notes)


def test_probabilities_are_no_classes(images, tmp_path):
    rows = [f"{name};0,{70 + number % 2}5" for number, name in enumerate(NAMES)]
    table = write_table(tmp_path / "t.csv", "image;label", rows)
    with pytest.raises(DataError, match=r"not whole: 0,705, 0,715\. .*--classes 0,705 0,715"):
        read_csv(table, images)
    pool = read_csv(table, images, CsvOptions(classes=["0,705", "0,715"]))
    assert pool.labels.tolist() == [0, 1] * 10


def test_a_label_that_lists_others_is_no_class(images, tmp_path):
    texts = ("Edema; Mass", "Mass", "Edema", "Cyst, left")
    rows = [f'{name},"{texts[number % 4]}"' for number, name in enumerate(NAMES)]
    table = write_table(tmp_path / "t.csv", "image,label", rows)
    with pytest.raises(
        DataError, match=r"several in Edema; Mass \(5\).*write \|.*'Edema; Mass=Edema; Mass'\.$"
    ):
        read_csv(table, images)
    kept = LabelChoices({"Edema; Mass": "Edema; Mass"})
    assert set(read_csv(table, images, CsvOptions(choices=kept)).classes) == set(texts)


@pytest.mark.parametrize(
    ("texts", "lists"),
    [
        (["0,0", "1,0"], ()),
        (["25,0", "40,0", "40"], ()),
        (["3,0", "5,0", "3,5"], ()),
        (["3", "5", "3,5"], ("3,5",)),
        (["1", "0", "1, 0"], ("1, 0",)),
    ],
)
def test_a_number_with_a_decimal_comma_is_no_list_of_labels(texts, lists):
    assert undecided(dict.fromkeys(texts, 5), {}).lists == lists


def test_hospitals_that_differ_in_case_alone_are_no_two_sites(images, tmp_path):
    places = ("Bern", "bern", "Köln")
    rows = [f"{name},{KINDS[number % 2]},{places[number % 3]}" for number, name in enumerate(NAMES)]
    pool = read_csv(write_table(tmp_path / "t.csv", "image,label,place", rows), images)
    with pytest.raises(ConfigError, match="found Bern beside bern"):
        column_sites(pool, "place")


def test_no_site_has_the_name_of_the_table_of_what_is_left_out(images, tmp_path):
    """Its CSV would be overwritten."""
    rows = [
        f"{name},{KINDS[number % 2]},{('Bern', 'Left_out')[number % 2]}"
        for number, name in enumerate(NAMES)
    ]
    pool = read_csv(write_table(tmp_path / "t.csv", "image,label,place", rows), images)
    with pytest.raises(ConfigError, match=r"found 'Left_out'\. Rename the values"):
        column_sites(pool, "place")


def test_blanks_and_empty_labels_are_counted(images, tmp_path):
    rows = [f"{name},{('a ', 'b', '')[number % 3]}" for number, name in enumerate(NAMES)]
    pool = read_csv(write_table(tmp_path / "t.csv", "image,label", rows), images)
    assert pool.labels.tolist() == [(0, 1, -1)[number % 3] for number in range(20)]
    assert "Labels with blanks at their ends, which are cut off: 7." in pool.notes
    assert "Rows without a label: 6." in pool.notes


DECIDED = {"unknown": "", "benign": "Benign"}


def test_folders_of_classes_are_decided_alike(tmp_path):
    for number in range(4):
        for name in ("benign", "Benign", "unknown", "malignant"):
            write_image(tmp_path / "f" / name / f"{number}.png", number)
    write_image(tmp_path / "f" / "lost.png", 0)
    (tmp_path / "f" / "empty").mkdir()
    with pytest.raises(DataError, match=r"as in --labels unknown= benign=Benign \("):
        read_folder(tmp_path / "f", choices=LabelChoices({}))
    pool = read_folder(tmp_path / "f", choices=LabelChoices(DECIDED))
    assert pool.classes == ("Benign", "malignant")
    assert sorted(pool.labels.tolist()) == [-1] * 4 + [0] * 8 + [1] * 4
    assert pool.doubts == ("Images that lie in no folder of a class and are left out: 1 of 17.",)
    assert "Folders without an image, which are no classes: empty." in pool.notes
    (tmp_path / "f" / "all of them.csv").write_text("image,label\n")
    doubt = read_folder(tmp_path / "f", choices=LabelChoices(DECIDED)).doubts[1]
    assert doubt == (
        "all of them.csv is not read. If it lists the images, cut by it: "
        f"`fedward partition '{tmp_path / 'f' / 'all of them.csv'}'`, with the same options."
    )
    for number in range(2):
        write_image(tmp_path / "g" / "A" / "train" / f"{number}.png", number)
        write_image(tmp_path / "g" / "B" / "Test" / f"{number}.png", number)
    pool = read_folder(tmp_path / "g")
    assert (pool.classes, pool.splits) == (("A", "B"), ["train", "train", "test", "test"])
    (tmp_path / "f" / "train").mkdir()
    with pytest.raises(DataError, match="folders of splits alone"):
        read_folder(tmp_path / "f")


# --- columns of classes and of findings


def one_hot(path: Path, cells: list[str], separator: str = ",") -> Path:
    rows = [f"{name}{separator}{cell}" for name, cell in zip(NAMES, cells, strict=True)]
    return write_table(path, separator.join(["image", "MEL", "NV", "UNK"]), rows)


@pytest.mark.parametrize(
    ("melanoma", "nevus", "separator"),
    [
        ("1.0,0.0,0.0", "0.0,1.0,0.0", ","),
        ("1;0;0", "0;1;0", ";"),
        ("1,0;0,0;0,0", "0,000;1,00;0", ";"),
        ("True,False,False", "FALSE,TRUE,FALSE", ","),
        ("1,,", ",1,", ","),
    ],
)
def test_columns_of_exclusive_classes_become_one_label(
    images, tmp_path, melanoma, nevus, separator
):
    cells = [(melanoma, nevus)[number % 2] for number in range(20)]
    pool = read_csv(one_hot(tmp_path / "t.csv", cells, separator), images)
    assert (pool.classes, pool.label_kind.exclusive) == (("MEL", "NV"), True)
    assert pool.labels.tolist() == [number % 2 for number in range(20)]
    assert any("Each row has one of" in note for note in pool.notes)


def test_rows_with_none_or_two_exclusive_classes_are_named(images, tmp_path):
    cells = [("1,0,0", "0,1,0")[number % 2] for number in range(20)]
    cells[3] = "0,0,0"
    cells[5] = "1,1,0"
    table = one_hot(tmp_path / "t.csv", cells)
    columns = ("MEL", "NV", "UNK")
    with pytest.raises(DataError, match=r"in 2 \(lines 5, 7\)\. .*--label-kind one.*several"):
        read_csv(table, images, CsvOptions(findings=columns))
    several = read_csv(
        table, images, CsvOptions(findings=columns, choices=LabelChoices(kind="several"))
    )
    assert any("rows have none (1), one (18) or several (1)" in note for note in several.notes)
    assert several.labels[3].tolist() == [0, 0]
    one = read_csv(table, images, CsvOptions(findings=columns, choices=LabelChoices(kind="one")))
    reason = "none or several of the classes, left out as decided"
    assert one.left_out == (((NAMES[3], 5), reason), ((NAMES[5], 7), reason))
    assert one.labels.tolist() == [number % 2 for number in range(20) if number not in (3, 5)]
    good = [row for row in table.read_text().splitlines()[1:] if ",0,0,0" not in row]
    good.remove(f"{NAMES[5]},1,1,0")
    bad = [f"{NAMES[3]},0,0,0", f"{NAMES[5]},1,1,0"]
    write_table(table, "image,MEL,NV,UNK", [*good * 3, *bad])
    pool = read_csv(table, images, CsvOptions(findings=columns, choices=LabelChoices(kind="one")))
    assert len(pool.labels) == 18
    assert [image.origin.line for image in pool.left_out] == list(range(20, 58))


def test_a_table_of_which_no_row_is_used_says_why(images, tmp_path):
    table = one_hot(tmp_path / "t.csv", ["1,1,0"] * 20)
    columns = ("MEL", "NV", "UNK")
    options = CsvOptions(findings=columns, choices=LabelChoices(kind="one"))
    for classes in ((), columns):
        with pytest.raises(DataError, match="20 of 20 that cannot: none or several of the classes"):
            read_csv(table, images, replace(options, classes=classes))


CHEXPERT = ["1.0,,", "-1.0,0.0,", "0.0,1.0,", ",,", ",-1.0,1.0"]
"""Edema, Fracture and No Finding of five rows; of the last one they contradict each other."""


@pytest.mark.parametrize(
    ("uncertain", "labels"),
    [
        ("positive", [[1, 0], [1, 0], [0, 1], [-1, -1]]),
        ("negative", [[1, 0], [0, 0], [0, 1], [-1, -1]]),
        ("unlabelled", [[1, 0], [-1, -1], [0, 1], [-1, -1]]),
    ],
)
def test_uncertain_findings_are_read_as_the_user_says(images, tmp_path, uncertain, labels):
    rows = [f"w/{NAMES[number]},{CHEXPERT[number % 4]}" for number in range(20)]
    table = write_table(tmp_path / "t.csv", "Path,Edema,Fracture,No Finding", rows)
    columns = ("Edema", "Fracture", "No Finding")
    with pytest.raises(DataError, match=r"--columns label=Edema label=Fracture\n.*--uncertain pos"):
        read_csv(table, images)
    with pytest.raises(
        DataError, match=r"-1\.0 \(Edema 5\).*--uncertain positive, --uncertain neg"
    ):
        read_csv(table, images, CsvOptions(findings=columns))
    choices = LabelChoices(uncertain=uncertain)
    pool = read_csv(table, images, CsvOptions(findings=columns, choices=choices))
    assert pool.labels.tolist() == [labels[number % 4] for number in range(20)]
    assert f"Uncertain findings (-1) count as {uncertain}: Edema 5." in pool.notes
    assert any(
        note.startswith(
            "Empty cells beside others (not mentioned) count as negative: No Finding 15"
        )
        for note in pool.notes
    )
    assert "Rows with empty cells alone, which count as unlabelled: 5." in pool.notes


def test_empty_cells_beside_others_are_decided_by_the_user(images, tmp_path):
    rows = [f"{NAMES[number]},{('1,', '1,1', '0,0')[number % 3]}" for number in range(18)]
    table = write_table(tmp_path / "t.csv", "image,Edema,Mass", rows)
    with pytest.raises(DataError, match=r"empty cells beside others \(Mass 6\).*--blank negative"):
        read_csv(
            table,
            images,
            CsvOptions(findings=("Edema", "Mass"), choices=LabelChoices(kind="several")),
        )
    for blank, label in (("negative", [1, 0]), ("unlabelled", [-1, -1])):
        choices = LabelChoices(blank=blank, kind="several")
        pool = read_csv(table, images, CsvOptions(findings=("Edema", "Mass"), choices=choices))
        assert pool.labels[:3].tolist() == [label, [1, 1], [0, 0]]


def site_of(images: Path, table: Path, **fields: object) -> Path:
    """Write a hospital's own site file of a CSV."""
    content = {
        "kind": "manifest",
        "folder": str(images),
        "manifest": str(table),
        "columns": {"sample_id": "image", "group": None},
        "split": {"val": 0, "test": 0},
        "max_rejected": 1.0,
        **fields,
    }
    path = table.parent / "site-1.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def labels_at(file: Path, classes: tuple[str, ...], several: bool = False) -> dict[str, object]:
    """Return sample id -> label, or reason for which a site rejects it."""
    spec = DataSpec(classes=classes, image_size=16, multi_label=several)
    data = load_site(file, spec)
    labels = dict(zip(data.labelled.ids, data.labelled.labels.tolist(), strict=True))
    labels |= dict.fromkeys(data.unlabelled.ids, -1)
    return labels | {row.sample_id: row.reason for row in data.rejected}


def test_a_site_reads_exclusive_columns_and_uncertain_findings_alike(images, tmp_path):
    columns = {"sample_id": "image", "group": None, "label": ["MEL", "NV", "UNK"]}
    cells = ["1,0;0,0;0,0", "0;1;0", "0;0;0", "1;1;0", ";;", *["0;0;1"] * 15]
    file = site_of(images, one_hot(tmp_path / "t.csv", cells, ";"), columns=columns)
    found = list(labels_at(file, ("MEL", "NV", "UNK")).values())
    assert found[:2] == [0, 1]
    assert found.count(-1) == 1
    reasons = sorted(reason for reason in found if isinstance(reason, str))
    assert [reason.split("found it in ")[1] for reason in reasons] == ["MEL and NV", "none"]
    rows = [f"{NAMES[number]},{CHEXPERT[number]}" for number in range(5)]
    table = write_table(tmp_path / "u.csv", "image,Edema,Fracture,No Finding", rows)
    columns["label"] = ["Edema", "Fracture", "No Finding"]
    said = labels_at(site_of(images, table, columns=columns), ("Edema", "Fracture"), several=True)
    assert 'write uncertain: "positive", "negative" or "unlabelled"' in str(said[NAMES[1]])
    assert 'write blank: "negative" or "unlabelled"' in str(said[NAMES[0]])
    file = site_of(images, table, columns=columns, uncertain="negative")
    said = labels_at(file, ("Edema", "Fracture"), several=True)
    assert [said[name] for name in NAMES[:3]] == [[1, 0], [0, 0], [0, 1]]
    assert said[NAMES[3]] == -1
    assert said[NAMES[4]] == [0, 0]


def test_a_site_is_told_what_its_words_may_mean(images, tmp_path):
    rows = [f"{NAMES[0]},MEL", f"{NAMES[1]},mel", f"{NAMES[2]},NaN", f"{NAMES[3]},wart"]
    table = write_table(tmp_path / "t.csv", "image,label", rows)
    said = labels_at(site_of(images, table), ("MEL", "NV"))
    assert 'if it is MEL, write labels: {"mel": "MEL"} into the site file' in str(said[NAMES[1]])
    assert 'if it is no label, write labels: {"NaN": ""} into' in str(said[NAMES[2]])
    assert str(said[NAMES[3]]).endswith(
        "found 'wart' (if it is for example NV, write labels: {'wart': \"NV\"} into the site file)"
    )
    said = labels_at(site_of(images, table), ("MEL", "Nävus"))
    assert "write labels: {'wart': \"Nävus\"} into the site file" in str(said[NAMES[3]])
    said = labels_at(site_of(images, table, labels={"mel": "MEL", "NaN": ""}), ("MEL", "NV"))
    assert (said[NAMES[1]], said[NAMES[2]]) == (0, -1)


def test_a_site_finds_images_as_a_partition_does(images, tmp_path):
    cells = ["C:\\s\\w\\A\\I00.PNG", "B/I01.png", "I02", "X:/p/A/I03.png", "A/I02.png"]
    rows = [f"{cell},{number},NV" for number, cell in enumerate(cells)]
    folder = shutil.copytree(images, tmp_path / "w")
    table = write_table(folder / "t.csv", "image,id,label", rows)
    columns = {"sample_id": "id", "group": None}
    file = site_of(folder, table, columns=columns, prefix="X:/p")
    spec = DataSpec(classes=("MEL", "NV"), image_size=16)
    report = examine(file, spec)
    assert report.data.labelled.ids == ("0", "2", "3")
    reasons = {row.sample_id: row.reason for row in report.data.rejected}
    assert "none at 'B/I01.png'. 1 of this name in other folders: A/I01.png" in reasons["1"]
    assert reasons["4"] == "not used: it repeats the image of line 4"
    notes = " ".join(report.notes)
    assert "Images found by their bare names: 1, the first: I02 is A/I02.png." in notes
    assert "that no row names: 17, such as A/I01.png." in notes


# --- the table itself


CELLS = [("I00", "a"), ("I01", "b"), ("I02", "a"), ("I03", "b")]


@pytest.mark.parametrize(
    "content",
    [
        "sep=;\nimage;label\n{rows;}",
        '"sep=;"\r\nimage;label\r\n{rows;}',
        "sep=,\nimage,label\n{rows,}",
        "\ufeffimage,label\n{rows,}",
        "image\tlabel\n{rows\t}",
        "image|label\n{rows|}",
        " image , label \n{rows,}",
        "image,label,,\n{rows,}",
        "\n,\r\nimage,label\n{rows,}",
        "sep=;\n;;\nimage;label\n{rows;}",
        "image,label,Unnamed: 2\nI00,a,\nI01,b,\nI02,a,\nI03,b,\n,,\n,,\n",
        "image;label;\nI00;a;;\nI01;b;;\nI02;a;;\nI03;b;;\n;;;\n",
        'image,label,"note, with\nbreak"\n"I00",a,"x\ny"\nI01,b,\nI02,a,\nI03,b,\n',
        "image;text, more\nI00;a\nI01;b\nI02;a\nI03;b\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_tables_of_spreadsheets_are_read_whole(images, tmp_path, content, encoding):
    for mark in ";,\t|":
        rows = "".join(f"{name}{mark}{label}\n" for name, label in CELLS)
        content = content.replace(f"{{rows{mark}}}", rows)
    (tmp_path / "t.csv").write_bytes(content.encode(encoding))
    label = "text, more" if "text, more" in content else "label"
    pool = read_csv(tmp_path / "t.csv", images, CsvOptions(columns={"label": label}))
    assert listed(pool, tmp_path) == {f"A/{name}.png": label for name, label in CELLS}
    assert pool.left_out == ()
    assert f"Images in {images} that no row names: 16, such as A/I04.png." in pool.notes


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"image,label,label\nA/I00.png,a,b\n", "columns of the same name: label"),
        (b"Image,image,label\nA/I00.png,A/I01.png,b\n", "found 'Image' and 'image'.*image=Image"),
        (b"PK\x03\x04" + b"\0" * 40, 'a workbook .*Save its sheet as "CSV UTF-8"'),
        (b"\xd0\xcf\x11\xe0" + b"\0" * 40, "a workbook of Excel"),
    ],
)
def test_tables_that_could_be_read_in_two_ways_are_refused(images, tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises((DataError, ConfigError), match=words):
        read_csv(tmp_path / "t.csv", images)


def test_every_row_is_counted(images, tmp_path):
    rows = [f"{name},{KINDS[number % 2]}" for number, name in enumerate(NAMES)] * 3
    rows += ["A/gone.png,nevus", "short", "A/I00.png,nevus,more"]
    table = write_table(tmp_path / "t.csv", "image,label", rows)
    pool = read_csv(table, images)
    assert [image.origin.line for image in pool.left_out] == list(range(22, 65))
    assert [image.reason for image in pool.left_out[-4:]] == [
        "a repeat of line 21",
        "expected an image file, found none at 'A/gone.png'",
        "expected 2 cells, found 1",
        "expected 2 cells, found 3",
    ]
    assert listed(pool, tmp_path) == RIGHT
    text = partition(table, tmp_path / "sites", Wanted(sites=1, images=images))
    assert "Listed: 63 rows. Used: 20. Left out: 43, each with its reason in" in text
    items = [line.strip() for line in text.splitlines() if line.startswith("  - ")]
    assert [item.split(":")[0] for item in items] == ["- 40", "- 2", "- 1"]
    alike = "line 22 (A/I00.png): a repeat of line 2; likewise line 23 (A/I01.png), line 24"
    assert alike in " ".join(text.split())
    written = (tmp_path / "sites" / "left_out.csv").read_text("utf-8-sig").splitlines()
    assert written[0] == '"line","image","reason"'
    assert written[1] == f'"22","{NAMES[0]}","a repeat of line 2"'
    assert len(written) == 44


UNUSABLE = [
    "O'Brien.png,nevus",
    "I00.png,nevus",
    "gone.png,nevus",
    "I02.png,nevus",
    '"O\'Neil ""Jr"".png",nevus',
    "short",
]
"""Three rows name no image, and two of them one of two images."""


def test_rows_that_cannot_be_used_are_counted_by_kind(images, tmp_path):
    """In a refusal, and in what is said of those that are left out."""
    folder = shutil.copytree(images, tmp_path / "w")
    shutil.copytree(folder / "A", folder / "C")
    rows = [f"{name},{KINDS[number % 2]}" for number, name in enumerate(NAMES)]
    path = write_table(tmp_path / "t.csv", "image,label", [*rows, *UNUSABLE])
    kinds = [
        "3: line 22 (O'Brien.png): expected an image file, found none at \"O'Brien.png\"; likewise "
        'line 24 (gone.png), line 26 (O\'Neil "Jr".png)',
        "2: line 23 (I00.png): expected one image at 'I00.png', found 2. These are A/I00.png, "
        "C/I00.png; likewise line 25 (I02.png)",
        "1: expected 2 cells, found 1: line 27",
    ]
    with pytest.raises(DataError) as refusal:
        read_csv(path, folder)
    assert f"found 6 of 26 that cannot: {'; '.join(kinds)}. Fix the rows" in str(refusal.value)
    many = [f"{name},{KINDS[number % 2]}" for number, name in enumerate(NAMES)] * 6
    pool = read_csv(write_table(path, "image,label", [*many[20:], *rows, *UNUSABLE]), folder)
    items = left_out_lines(pool, len(pool.labels), tmp_path)[1]
    assert [item.split(":")[0] for item in items] == ["100", "3", "2", "1"]
    assert "likewise line 124 (gone.png), line 126" in items[1]


def test_a_row_with_the_id_of_another_is_named_with_its_reason(images, tmp_path):
    rows = [f"{number},{name},{KINDS[number % 2]}" for number, name in enumerate(NAMES)]
    rows[6] = rows[6].replace("6,", "4,", 1)
    pool = read_csv(write_table(tmp_path / "t.csv", "id,image,label", rows), images)
    assert pool.left_out == (((NAMES[6], 8), "another row has the id '4': line 6"),)


def test_an_image_with_two_labels_is_refused(images, tmp_path):
    rows = [f"{name},{KINDS[number % 2]}" for number, name in enumerate(NAMES)]
    table = write_table(tmp_path / "t.csv", "image,label", [*rows, "w\\A\\i00.png,melanoma"])
    with pytest.raises(DataError, match=r"A/I00\.png is nevus in line 2 and melanoma in line 22"):
        read_csv(table, images)
    table = write_table(
        tmp_path / "u.csv", "image,id,label", ["A/I00.png,1,nevus", "I00,2,melanoma"]
    )
    columns = {"sample_id": "id", "group": None}
    with pytest.raises(DataError, match="another label: lines 2 and 3"):
        labels_at(site_of(images, table, columns=columns), ("nevus", "melanoma"))


def test_groups_that_name_nobody_do_not_make_one_patient(images, tmp_path):
    rows = [f"{name},{KINDS[number % 2]},nan" for number, name in enumerate(NAMES)]
    rows[0] = rows[0].replace("nan", "P1")
    rows[1] = rows[1].replace("nan", "p1")
    pool = read_csv(write_table(tmp_path / "t.csv", "image,label,patient", rows), images)
    assert len(set(pool.groups)) == 19
    assert "Groups that name nobody, and count as empty cells do: nan 18." in pool.notes
    assert pool.groups[0] == pool.groups[1] == "P1"
    assert any("counts as one: 1, as P1 and p1" in note for note in pool.notes)


@pytest.mark.parametrize("cell", ["99", "255", "9999", "099", "99.0", "0", "P1", "n7"])
def test_a_number_names_a_patient(images, tmp_path, cell):
    assert group_or_empty(cell) == cell
    rows = [f"{name},{KINDS[number % 2]},{cell}" for number, name in enumerate(NAMES)]
    pool = read_csv(write_table(tmp_path / "t.csv", "image,label,patient", rows), images)
    assert pool.groups == [cell] * 20
    assert not any("name nobody" in note for note in pool.notes)


@pytest.mark.parametrize(
    "cell", ["", "-1", "-9", "-99", "-1.0", "NaN", "NA", "ND", "n.d.", "?", "unbekannt"]
)
def test_a_text_that_says_that_nobody_knows_names_no_patient(cell):
    assert group_or_empty(cell) == ""


def test_an_image_without_a_patient_is_none_of_the_patient_who_has_its_id(images, tmp_path):
    patients = {1: "7", 2: "007", 7: "?"}
    rows = [
        f"{name},{number},{KINDS[number % 2]},{patients.get(number, f'P{number}')}"
        for number, name in enumerate(NAMES)
    ]
    table = write_table(tmp_path / "t.csv", "image,id,label,patient", rows)
    pool = read_csv(table, images)
    assert pool.groups[1] == pool.groups[2] == "7"
    assert pool.groups.count(pool.groups[7]) == 1
    written = pool.listing("site-1", {"train": np.arange(20)}, tmp_path).table.splitlines()
    assert written[8].split(",")[3] == pool.groups[7]


def test_gaps_of_a_search_are_said(images, tmp_path):
    folder = shutil.copytree(images, tmp_path / "w")
    (folder / "more").symlink_to(images)
    pool = read_csv(listing(tmp_path / "t.csv", NAMES[:10]), folder)
    assert f"Images in {folder} that no row names: 10, such as Bü c/I10.png." in pool.notes
    assert f"Left out: 1 link to folders, such as {folder}/more." in pool.notes


@pytest.mark.parametrize(
    ("cells", "answer"),
    [
        ("1 1,0 TRUE WAHR vrai Verdadero sí checked x t positive", "1"),
        ("0 0.0 FALSE FALSCH faux falso nein f unchecked absent", "0"),
        ("NaN #N/A nil (null) [NULL] NaT none", "blank"),
        ("#VALUE! unknown 2 maybe", "other"),
    ],
)
def test_answers_in_columns_of_findings(cells, answer):
    assert {cell: answer_in(cell) for cell in cells.split(" ")} == dict.fromkeys(
        cells.split(" "), answer
    )


def test_answers_are_alike_as_labels_but_single_letters_are_classes():
    found = undecided({"WAHR": 3, "yes": 2, "FALSCH": 4, "0": 1, "nil": 1}, {})
    assert set(found.alike) == {("WAHR", "yes"), ("FALSCH", "0")}
    assert found.unknown == ("nil",)
    assert undecided({"t": 1, "x": 1, "y": 1, "f": 1, "n": 1}, {}) == Undecided((), ())


# --- several pages


def test_a_file_of_several_pages_is_refused_or_expanded_by_choice(tmp_path):
    pages = [
        Image.fromarray(np.random.default_rng(seed).integers(0, 256, (16, 16), np.uint8))
        for seed in range(5)
    ]
    for name in ("stack.tif", "moving.png"):
        path = tmp_path / name
        pages[0].save(path, save_all=True, append_images=pages[1:])
        with pytest.raises(BadRow, match=r"found 5 pages in the file.*partition --frames 8"):
            decode_file(path, 16, 1)
        found = decode_file(path, 16, 1, Rendering(frames=Frames(at_most=2)))
        assert list(found) == ["#1", "#3"]
        assert (found["#3"][..., 0] == np.asarray(pages[3])).all()
    single = tmp_path / "single.tif"
    pages[0].save(single)
    assert list(decode_file(single, 16, 1, Rendering(frames=Frames()))) == [""]


def test_a_thumbnail_beside_the_picture_is_no_page(tmp_path):
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, (16, 16), np.uint8))
    small = Image.fromarray(rng.integers(0, 256, (4, 4), np.uint8))
    small.encoderinfo = {"tiffinfo": {254: 1}}
    picture.save(tmp_path / "a.tif", save_all=True, append_images=[small])
    with Image.open(tmp_path / "a.tif") as file:
        assert file.n_frames == 2
    assert (decode_file(tmp_path / "a.tif", 16, 1)[""][..., 0] == np.asarray(picture)).all()


# --- the command


def test_the_printed_options_lead_from_a_challenge_to_site_files(images, tmp_path, capsys):
    cells = [("1.0,0.0,-1.0", "0.0,1.0,0.0")[number % 2] for number in range(20)]
    rows = [f"X:\\p\\{name},50,{cell}" for name, cell in zip(NAMES, cells, strict=True)]
    table = write_table(tmp_path / "t.csv", "Path,Age,Edema,Mass,Cyst", rows)
    words = ["partition", f"{table}", "--images", f"{images}", "--sites", "1", "--out"]
    words += [f"{tmp_path / 'out'}", "--columns", "label=Edema", "label=Mass", "label=Cyst"]
    for option in ([], ["--uncertain", "negative"], ["--prefix", "X:\\p"]):
        words += option
        rc = cli.main(words)
        said = capsys.readouterr()
        assert rc == (0 if "--prefix" in words else 1), said.err
    assert "Listed: 20 rows. Used: 20." in said.out
    assert not (tmp_path / "out" / "left_out.csv").exists()
    spec = DataSpec.model_validate(json.loads((tmp_path / "out" / "data.json").read_text()))
    data = load_site(tmp_path / "out" / "site-1.yaml", spec)
    assert not data.rejected
    parts = (data.labelled, data.val, data.test)
    found = {
        name: dict(zip(spec.classes, label, strict=True))
        for part in parts
        for name, label in zip(part.ids, part.labels.tolist(), strict=True)
    }
    assert found == {
        name: {"Edema": 1 - number % 2, "Mass": number % 2} for number, name in enumerate(NAMES)
    }


def test_a_cut_is_repeated_with_what_was_decided():
    choices = LabelChoices({"nan": "", "-1": "", "MEL": "mel"}, uncertain="positive", kind="one")
    wanted = Wanted(sites=2, findings=["A", "B"], choices=choices, prefix="D:\\s")
    words = shlex.split(command_of(Path("t.csv"), Path("out"), wanted))[2:]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = parser.parse_args(words)
    assert dict(options.labels) == choices.meanings
    assert (options.uncertain, options.label_kind, options.prefix) == ("positive", "one", "D:\\s")


def test_one_refusal_has_every_decision_and_the_command_that_takes_them_all(
    tmp_path, monkeypatch, capsys
):
    """Columns, a prefix, -1, a finding beside No Finding, pages and one picture of two labels."""
    monkeypatch.chdir(tmp_path)
    cells = ["1.0,,1.0,", "-1.0,0.0,,", "0.0,1.0,,", ",,1.0,1.0"]
    rows = []
    for number in range(80):
        path = Path(f"w/p{number}/view.png")
        write_image(path, 0 if number == 79 else number)
        if number % 8 == 3:
            path = path.rename(path.with_suffix(".tif"))
            pages = [Image.fromarray(np.full((8, 8, 3), fill, np.uint8)) for fill in (9, 200)]
            for page in pages:
                page.putpixel((number % 8, number // 8 % 8), (number, 255, 0))
            pages[0].save(path, save_all=True, append_images=pages[1:])
        rows.append(f"Export/{path.relative_to('w')},Male,{number},{cells[number % 4]}")
    write_table(Path("t.csv"), "Path,Sex,Age,Edema,Fracture,Device,No Finding", rows)
    typed = ["partition", "t.csv", "--images", "w", "--sites", "2", "--out", "s"]
    assert cli.main(typed) == 1
    error = capsys.readouterr().err
    assert "6 things must be fixed or decided" in error
    command = error.strip().splitlines()[-1]
    assert cli.main(shlex.split(command)[1:]) == 0, command
    words = shlex.split(command)[4:]
    decided = {"--prefix", "--columns", "--uncertain", "--no-finding", "--contradicting"}
    assert decided | {"--frames"} <= set(words)
    spec = json.loads(Path("s/data.json").read_text())
    assert spec["classes"] == ["Device", "Edema", "Fracture"]
    listed_rows = [
        row.split(",")
        for site in ("site-1", "site-2")
        for row in Path(f"s/{site}.csv").read_text().splitlines()[1:]
    ]
    # Of the 20 rows with -1 none has a label, and the pictures with two labels are at no site.
    assert not {"p0/view.png", "p79/view.png"} & {row[1] for row in listed_rows}
    assert {row[2] for row in listed_rows} >= {"Edema|Device", "Fracture", "Device"}


@pytest.mark.parametrize(
    ("columns", "said", "typed"),
    [
        ([], ["expected a column of images", "expected a column of labels"], "scan outcome"),
        (["image=scn", "label=outcme"], ["scn (did you mean scan?), outcme"], "scan outcome"),
        (["label=result"], ["expected a column of images", "found result"], "scan outcome"),
        (["image=Scan", "label="], ["Scan (did you mean scan?)"], "scan "),
    ],
)
def test_columns_of_images_and_labels_are_refused_together(
    images, tmp_path, monkeypatch, capsys, columns, said, typed
):
    """One refusal ends in one command, which takes the likeliest columns."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{number},P{number // 2},{name},{KINDS[number % 2]}" for number, name in enumerate(NAMES)
    ]
    write_table(Path("t.csv"), "nr,person,scan,outcome", rows)
    words = ["partition", "t.csv", "--images", f"{images}", "--sites", "1", "--out", "s"]
    named = ["--columns", *columns] if columns else []
    classes = ["--classes", *KINDS] if typed == "scan " else []
    assert cli.main([*words, *named, *classes]) in (1, 2)
    error = capsys.readouterr().err
    assert all(text in error for text in said)
    image, label = typed.split(" ")
    command = error.strip().splitlines()[-1]
    assert {f"image={image}", f"label={label}"} <= set(shlex.split(command))
    if label:
        assert cli.main(shlex.split(command)[1:]) == 0, command
        assert json.loads(Path("s/data.json").read_text())["classes"] == sorted(KINDS)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("scan,first,second", "Columns with few values that images share: first, second."),
        ("scan,Geschlecht,sex", "No column has few values that images share."),
    ],
)
def test_no_command_is_proposed_that_is_refused_for_the_same_column(
    images, tmp_path, monkeypatch, capsys, header, said
):
    monkeypatch.chdir(tmp_path)
    rows = [f"{name},{KINDS[number % 2]},{'mf'[number % 2]}" for number, name in enumerate(NAMES)]
    write_table(Path("t.csv"), header, rows)
    words = ["partition", "t.csv", "--images", f"{images}", "--sites", "1", "--out", "s"]
    assert cli.main(words) == 1
    error = capsys.readouterr().err
    assert said in error
    last = error.strip().splitlines()[-1]
    assert last == "No column is the likeliest for label, so no command is proposed."
    # A wrong name is one fault, also where no column of images is likely.
    Path("t.csv").write_text("a,outcome\n1,x\n2,y\n3,x\n4,y\n")
    assert cli.main([*words, "--columns", "image=scn", "label=outcome"]) == 2
    error = capsys.readouterr().err
    assert "things must be fixed" not in error
    assert error.strip().endswith("the likeliest for image, so no command is proposed.")


@pytest.mark.parametrize(
    "column", ["Diagnose", "Étiquette", "Befund (final)", "Diagnostic", "Klasse"]
)
def test_a_word_for_labels_names_the_likeliest_column(
    images, tmp_path, monkeypatch, capsys, column
):
    """Beside columns of 0 and 1, and others with few values."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{name};{number % 3};{number // 5 % 2};R{number % 4};{KINDS[number % 2]}"
        for number, name in enumerate(NAMES)
    ]
    write_table(Path("t.csv"), f"Bild;Stufe;Raucher;Raum;{column}", rows)
    assert cli.main(["partition", "t.csv", "--images", f"{images}", "--sites", "1", "--out", "s"])
    command = shlex.split(capsys.readouterr().err.strip().splitlines()[-1])
    assert {"image=Bild", f"label={column}"} <= set(command)
    assert cli.main(command[1:]) == 0
    assert json.loads(Path("s/data.json").read_text())["classes"] == sorted(KINDS)


@pytest.mark.parametrize(
    ("header", "options", "said"),
    [
        # Each row has a text of its own in the column of labels, which is no unusual spelling.
        ("image,site,label", {}, "labels: expected labels that images share"),
        # The class is missing because the label is.
        (
            "image,label,site",
            {"--labels": ["naevus=cyst", "scar=hyp"], "--classes": ["cyst", "hyp"]},
            "of the data (melanoma, nevus), found naevus (did you mean nevus?), scar",
        ),
    ],
)
def test_what_follows_from_a_fault_is_none_of_its_own(
    images, tmp_path, monkeypatch, capsys, header, options, said
):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{name},{KINDS[number % 2]},{number} n/a, {number / 7:.3f}%".replace(", ", " ")
        for number, name in enumerate(NAMES)
    ]
    write_table(Path("t.csv"), header, rows)
    options = {"--sites": ["1"], **options}
    words = [word for name, values in options.items() for word in (name, *values)]
    assert cli.main(["partition", "t.csv", "--images", f"{images}", "--out", "s", *words]) in (1, 2)
    error = capsys.readouterr().err
    assert said in error
    assert "things must be fixed" not in error


@pytest.mark.parametrize("kind", ["damaged", "pages", "labels"])
def test_sites_too_small_for_want_of_bad_images_are_no_further_fault(
    tmp_path, monkeypatch, capsys, kind
):
    monkeypatch.chdir(tmp_path)
    for number in range(60):
        path = Path("scans") / "ab"[number % 2] / f"{number}.tif"
        write_image(path, number // 2 if kind == "labels" else number)
        if number % 3 and kind == "damaged":
            path.write_bytes(path.read_bytes()[:200])
        if number % 3 and kind == "pages":
            pages = [Image.fromarray(np.full((8, 8, 3), fill, np.uint8)) for fill in (9, 200)]
            for page in pages:
                page.putpixel((number % 8, number // 8), (number, 255, 0))
            pages[0].save(path, save_all=True, append_images=pages[1:])
    assert cli.main(["partition", "scans", "--sites", "2", "--out", "s"]) == 1
    error = capsys.readouterr().err
    expected = {"damaged": "Repair these files", "pages": "--frames all", "labels": "--contradict"}
    assert expected[kind] in error
    assert "things must be fixed" not in error


def test_spellings_and_columns_are_decided_together(images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    labels = ["MEL", "mel", "nv", "NaN", "-1"]
    rows = [f"{name},{labels[place % 5]},{place % 3}" for place, name in enumerate(NAMES)]
    write_table(Path("t.csv"), "image,label,diagnosis", rows)
    typed = ["partition", "t.csv", "--images", f"{images}", "--sites", "1", "--out", "s"]
    assert cli.main([*typed, "--seed", "3"]) == 1
    command = capsys.readouterr().err.strip().splitlines()[-1]
    assert "--columns label=label" in command
    assert cli.main(shlex.split(command)[1:]) == 0, command
    assert "--seed 3" in command
    assert json.loads(Path("s/data.json").read_text())["classes"] == ["MEL", "nv"]


def test_the_likeliest_column_of_images_names_some(images, tmp_path, capsys):
    """``dx`` is spelt like x, but its cells are no files."""
    rows = [f"{name};{KINDS[number % 2]}" for number, name in enumerate(NAMES)]
    table = write_table(tmp_path / "t.csv", "Bild;dx", rows)
    words = [f"{table}", "--images", f"{images}", "--columns", "image=x", "--sites", "1"]
    assert cli.main(["partition", *words, "--out", f"{tmp_path / 's'}"]) == 2
    command = shlex.split(capsys.readouterr().err.strip().splitlines()[-1])
    assert "image=Bild" in command


@pytest.mark.parametrize("ending", [".png", ".dcm", ".nii.gz", ".NII"])
def test_images_elsewhere_are_known_by_their_endings(tmp_path, ending):
    rows = [f"{number}{ending},{KINDS[number % 2]}" for number in range(20)]
    table = write_table(tmp_path / "t.csv", "scan,diagnosis", rows)
    with pytest.raises(DataError, match="columns than these: --columns image=scan label=diagnosis"):
        read_csv(table, tmp_path)


@pytest.mark.parametrize(
    ("name", "found"), [("ww", r"nothing there \(did you mean w\?\)"), ("t.csv", "a file")]
)
def test_a_folder_of_images_that_is_none_is_the_only_fault(images, tmp_path, name, found):
    shutil.copytree(images, tmp_path / "w")
    listing(tmp_path / "t.csv", NAMES)
    wanted = Wanted(sites=1, images=tmp_path / name)
    with pytest.raises(ConfigError, match=rf"--images .*expected a folder, found {found}"):
        partition(tmp_path / "t.csv", tmp_path / "s", wanted)


def test_a_fault_of_a_whole_site_file_repeats_none_of_it(images, tmp_path):
    site = tmp_path / "one.yaml"
    site.write_text(f"kind: manifest\nfolder: {images}\nsubgroups: {{group: [A]}}\n")
    with pytest.raises(DataError, match="without group, which names images or patients") as error:
        read_site_file(site)
    assert "field kind" not in str(error.value)
    assert f"{images}" not in str(error.value)


def test_the_printed_command_has_the_likeliest_column_of_sites(
    images, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{name},{KINDS[number % 2]},{'XY'[number // 2 % 2]}" for number, name in enumerate(NAMES)
    ]
    write_table(tmp_path / "t.csv", "image,label,hospital", rows)
    words = ["partition", "t.csv", "--images", f"{images}", "--out", "s", "--by", "hospitl"]
    assert cli.main([*words, "--val", "0", "--test", "0"]) == 2
    error = capsys.readouterr().err
    assert "found hospitl (did you mean hospital?)" in error
    command = shlex.split(error.strip().splitlines()[-1])
    assert command[command.index("--by") + 1] == "hospital"
    assert cli.main(command[1:]) == 0
    assert sorted(path.name for path in (tmp_path / "s").glob("*.yaml")) == ["X.yaml", "Y.yaml"]
