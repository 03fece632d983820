"""Inputs of further kinds: the right image and label, or a refusal that says what to do."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from deciding import read_csv, read_folder, read_npz
from dicom_files import save
from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.lab.partition.csv_pool import CsvOptions
from fedward.lab.partition.cut import partition
from fedward.lab.partition.label_choices import LabelChoices
from fedward.lab.partition.wanted import Wanted
from fedward.sites.decoding import BadRow
from fedward.sites.doctor import examine
from fedward.sites.images import decode_file

COUNT = 20


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder ``w`` of twenty images, ``0.png`` and so on."""
    folder = tmp_path_factory.mktemp("further") / "w"
    folder.mkdir()
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def read(images: Path, table: Path, header: str, row: str, cells: list[str]):
    """Return the pool of a table; ``row`` has the places of a number and of a cell in turn."""
    rows = [row.format(number, cells[number % len(cells)]) for number in range(COUNT)]
    table.write_text("\n".join([header, *rows]), encoding="utf-8")
    return read_csv(table, images)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["95%", "12 %"], r"percentages, dates .*--classes 95% '12 %'"),
        (["02.01.2026", "2026-02-03 00:00:00"], "percentages, dates"),
        (["02-Jan", "a"], "percentages, dates .*: 02-Jan"),
        (["['Edema', 'Mass']", "['Edema']"], r"write \|"),
        (["mélanome", "melanome", "b"], "--labels 'mélanome=melanome'"),
        (["naevus", "nævus", "b"], "beside"),
        (["nevus", "nevus.", "b"], "--labels nevus.=nevus"),
        (["nevus", "nevus?", "b"], "nevus .* beside nevus?"),
        (["a", "b", "indéterminé"], "--labels 'indéterminé='"),
        (["a", "b", "Not sure"], "--labels 'Not sure='"),
        (["yes", "no", "TRUE", "0"], r"yes .* beside TRUE|TRUE .* beside yes"),
        (["1", "2", "1E0"], "--labels 1E0=1"),
        (["0", "1", "99"], "--labels 99="),
        (["non-viral", "non\u2013viral", "b"], "beside"),
        (["a", "\u0430", "b"], "beside"),
        (["a\u200b", "a\u200b", "a", "b"], r"a \(5\) beside 'a"),
        (["a", "b", "indeterminate"], "--labels indeterminate="),
        (['"a;c"', "b"], r"--labels 'a;c=a\|c'"),
        (["a/c", "a", "b"], r"--labels 'a/c=a\|c'"),
        ([f"report {number}" for number in range(COUNT)], "20 different ones for 20 images"),
    ],
)
def test_what_is_no_class_by_itself_is_refused_with_the_option(images, tmp_path, labels, words):
    with pytest.raises(DataError, match=words):
        read(images, tmp_path / "t.csv", "image;label", "{}.png;{}", labels)


@pytest.mark.parametrize("label", ["HER2+", "1.2.3", "grade 2", "May", "1-2", "BI-RADS 4-5"])
def test_names_of_classes_are_kept(images, tmp_path, label):
    pool = read(images, tmp_path / "t.csv", "image;label", "{}.png;{}", [label, "HER2-"])
    assert set(pool.classes) == {label, "HER2-"}
    assert pool.labels.tolist() == [pool.classes.index(label), pool.classes.index("HER2-")] * 10


@pytest.mark.parametrize(
    ("yes", "no"), [("Yes", "no"), ("ja", "nein"), ("Oui", "NON"), ("Checked", "Unchecked")]
)
def test_answers_in_words_are_ones_and_zeros(images, tmp_path, yes, no):
    cells = [f"{yes};{no}", f"{no};{yes}"]
    pool = read(images, tmp_path / "t.csv", "image;MEL;NV", "{}.png;{}", cells)
    assert (pool.classes, pool.labels.tolist()) == (("MEL", "NV"), [0, 1] * 10)


@pytest.mark.parametrize("cell", ['"=""{}.png"""', "https://x.org/w/{}.png?token=1#top"])
def test_cells_of_programs_name_their_images(images, tmp_path, cell):
    pool = read(images, tmp_path / "t.csv", "image,label", f"{cell},{{}}", ["a", "b"])
    rows = {"train": np.arange(COUNT)}
    table = pool.listing("site-1", rows, tmp_path).table.splitlines()[1:]
    listed = {row.split(",")[1]: row.split(",")[2] for row in table}
    assert listed == {f"{number}.png": "ab"[number % 2] for number in range(COUNT)}


def test_grey_with_a_sign_is_shown_by_its_values(tmp_path):
    """Pillow takes -128 for 128, so that black would be grey and 0 black."""
    tags = ImageFileDirectory_v2()
    tags[339] = 2
    values = np.linspace(-128, 127, 256).round().astype(np.int8).reshape(16, 16)
    Image.fromarray(values.view(np.uint8)).save(tmp_path / "a.tif", tiffinfo=tags)
    pixels = decode_file(tmp_path / "a.tif", 16, 1)[""].ravel().astype(int)
    assert (pixels[0], pixels[-1]) == (0, 255)
    assert (np.diff(pixels) >= 0).all()
    assert abs(pixels[128] - 128) <= 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"GIF89a", "a GIF, .*: convert it to PNG"),
        (b"RIFF\0\0\0\0WEBP", "a WebP .*: convert it to PNG"),
        (b"\0\0\0\x18ftypheic", "a HEIC .*: convert it to PNG"),
        (b"\0\0\0\x20ftypavif", "AVIF .*: convert it to PNG"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"PK\x03\x04", "unpack it"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, content, words):
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(BadRow, match=words):
        decode_file(tmp_path / "a.jpg", 16, 3)


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({"PresentationLUTShape": "INVERSE"}, "IDENTITY as PresentationLUTShape of MONOCHROME2"),
        (
            {"PhotometricInterpretation": "MONOCHROME1", "PresentationLUTShape": "IDENTITY"},
            "INVERSE as PresentationLUTShape of MONOCHROME1",
        ),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "with RedPalette.*Descriptor, found none"),
        ({"PhotometricInterpretation": "RGB", "SamplesPerPixel": 3}, "with PlanarConfiguration"),
    ],
)
def test_a_dicom_header_that_contradicts_itself_or_lacks_a_tag_is_refused(tmp_path, tags, words):
    save(tmp_path / "a.dcm", np.arange(256, dtype=np.uint8).reshape(16, 16), **tags)
    with pytest.raises(BadRow, match=words):
        decode_file(tmp_path / "a.dcm", 16, 1)


def lay(folder: Path, names: list[str]) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(len(name)).integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(path, "PNG")
    return folder


def test_hospitals_and_folds_are_no_classes_by_themselves(tmp_path):
    lay(tmp_path, [f"{place}/{name}/1.png" for place in ("bern", "zug") for name in "AB"])
    with pytest.raises(DataError, match=r"If the classes are bern, zug, write --classes bern zug"):
        read_folder(tmp_path)
    assert read_folder(tmp_path, ["bern", "zug"]).labels.tolist() == [0, 0, 1, 1]
    assert read_folder(tmp_path / "bern").classes == ("A", "B")


def test_masks_beside_their_images_are_left_out_and_counted(tmp_path):
    masked = ["A/a (1).png", "A/a (1)_mask.png", "A/a (1)_mask_1.png", "B/2.png"]
    pool = read_folder(lay(tmp_path, [*masked, "B/2_segmentation.png", "B/swim mask.png"]))
    assert pool.labels.tolist() == [0, 1, 1]
    masks = [image for image in pool.left_out if image.reason.startswith("a mask beside")]
    assert len(masks) == 3


def test_blanks_around_the_name_of_a_class_do_not_count(tmp_path):
    assert read_folder(lay(tmp_path, ["A /1.png", "B/1.png"])).classes == ("A", "B")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["A/1.heic", "B/1.webp"], r"2 files \(\.heic 1, \.webp 1\)\. HEIC: convert to PNG\. WebP"),
        (["A/1.heic", "B/1.png"], "found images of B alone"),
        (
            ["1.mgz", "2.mgz"],
            r"2 files \(\.mgz 2\)\. Volumes .* converted to NIfTI \(\.nii",
        ),
        (["x/train/A/1.png", "x/train/B/1.png", "x/test/A/1.png"], r"below, name \S*/x\."),
        (["train/x/A/1.png", "train/x/B/1.png"], r"below, name \S*/train/x\."),
    ],
)
def test_folders_of_fewer_than_two_classes_say_where_the_images_are(tmp_path, names, words):
    with pytest.raises(DataError, match=words):
        read_folder(lay(tmp_path, names))


def test_a_link_gives_no_image_a_second_label(tmp_path):
    lay(tmp_path, ["A/1.png", "B/1.png"])
    (tmp_path / "C").symlink_to(tmp_path / "A")
    with pytest.raises(
        DataError, match=r"A/1\.png \(A\) and C/1\.png \(C\), which are one file\. Remove the links"
    ):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        ("image,label,diagnosis", "{0}.png,{1},x", "--columns label=label, or .*label=diagnosis"),
        ("image,path,label", "1{0},{0}.png,{1}", "image=image, or --columns image=path"),
    ],
)
def test_columns_that_contradict_each_other_are_decided(images, tmp_path, header, row, words):
    with pytest.raises(DataError, match=words):
        read(images, tmp_path / "t.csv", header, row, ["a", "b"])


def test_a_code_beside_its_name_and_a_path_beside_its_file_agree(images, tmp_path):
    header = "file,path,label,diagnosis"
    pool = read(images, tmp_path / "t.csv", header, "{0}.png,/x/w/{0}.png,{1}", ["0,a", "1,b"])
    assert (pool.classes, pool.labels.tolist()) == (("0", "1"), [0, 1] * 10)


def test_nearly_black_pictures_are_named_by_partition_and_doctor(tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (64, 20, 20), np.uint8)
    picture[::2] //= 60
    for number, pixels in enumerate(picture):
        path = tmp_path / "scans" / f"{number % 4 // 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    (tmp_path / "scans" / "1" / "empty.png").touch()  # nobody can say whether it is black
    text = partition(tmp_path / "scans", tmp_path / "sites", Wanted(sites=1))
    assert "32 of 64 images are nearly black" in " ".join(text.split())
    spec = DataSpec(classes=("0", "1"), image_size=20, channels=1)
    notes = examine(tmp_path / "sites" / "site-1.yaml", spec).notes
    assert any("32 of 64 images are nearly black" in note for note in notes)


@pytest.mark.parametrize(
    ("labels", "options", "classes", "several"),
    [
        (['["a", "c"]', "['b']"], {'["a", "c"]': "a|c", "['b']": "b"}, ("a", "b", "c"), True),
        (["+", "-"], {"-": "-"}, ("+", "-"), False),
        (['"a;c"', "b"], {"a;c": "a;c"}, ("a;c", "b"), False),
    ],
)
def test_what_is_decided_of_labels_is_done(images, tmp_path, labels, options, classes, several):
    with pytest.raises(DataError, match="labels"):
        read(images, tmp_path / "t.csv", "image;label", "{}.png;{}", labels)
    pool = read_csv(tmp_path / "t.csv", images, CsvOptions(choices=LabelChoices(options)))
    assert (pool.classes, pool.label_kind.multi_label) == (classes, several)


def test_a_column_of_labels_is_not_taken_for_patients(images, tmp_path):
    codes = ["C43.9", "C43.4", "D22.9"]
    read(images, tmp_path / "t.csv", "image;label", "{}.png;{}", codes)
    text = partition(tmp_path / "t.csv", tmp_path / "sites", Wanted(sites=1, images=images))
    assert "uses the column" not in " ".join(text.split())


def test_what_machines_hide_in_folders_is_no_image(tmp_path):
    names = [f"{label}/{number}.png" for label in "ab" for number in range(6)]
    hidden = ["a/.ipynb_checkpoints/0-checkpoint.png", "@eaDir/0.png", "b/__MACOSX/0.png"]
    pool = read_folder(lay(tmp_path / "scans", [*names, *hidden]))
    assert (pool.classes, len(pool.labels)) == (("a", "b"), 12)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"image,label\n", "expected rows of images, found no row"),
        (b"\x93NUMPY\x01\0", r"found one array of NumPy \(npy\)\. .*as an npz file"),
        (b"\x89HDF\r\n\x1a\n", "found an HDF5 file"),
    ],
)
def test_a_source_of_another_kind_is_named(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_csv(tmp_path / "t.csv", tmp_path)


def test_pickled_objects_are_refused_without_numpys_advice(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.array([None, 1]))
    with pytest.raises(DataError, match="found labels pickled objects"):
        read_npz(tmp_path / "a.npz")
