"""Which files of a folder are images of a data set, and what is left out is said."""

import os
from pathlib import Path

import pytest

from fedward.config import DataSpec
from fedward.errors import ConfigError, FedwardError
from fedward.inference.images import images_at
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted
from fedward.sites import named_sites
from fedward.sites.data_file import read_data_file
from fedward.sites.decoding import BadRow
from fedward.sites.files import LeftOut, conversions, files_below, locate
from fedward.sites.image_paths import ImageFinder

OF_MACHINES = ("@eaDir", "#recycle", "__MACOSX", ".cache")
"""Folders in which storage and systems keep copies of images."""


def make_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_copies_that_machines_keep_are_no_images(tmp_path):
    copies = [f"{name}/left.png" for name in OF_MACHINES]
    make_files(tmp_path, "a/left.png", "a/._left.png", *copies, *[f"a/{copy}" for copy in copies])
    assert files_below(tmp_path) == [tmp_path / "a/left.png"]
    finder = ImageFinder(tmp_path)
    assert finder.find("left.png") == "a/left.png"
    assert finder.unlisted_notes() == []


@pytest.mark.parametrize("name", ["b\nc.png", "b\x1bc.png", os.fsdecode(b"b\xffc.png")])
def test_an_image_that_no_row_names_is_counted_whatever_its_name(tmp_path, name):
    """It is not found by another spelling."""
    make_files(tmp_path, "a.png", "later.png", name)
    finder = ImageFinder(tmp_path)
    finder.find("a.png")
    (note,) = finder.unlisted_notes()
    assert note.startswith(f"Images in {tmp_path} that no row names: 2, such as b")
    assert note.isprintable()
    with pytest.raises(BadRow):
        finder.find(name.upper())
    finder.find(name)
    assert finder.unlisted_notes() == [
        f"Images in {tmp_path} that no row names: 1, such as later.png."
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Kopf 1.mgz", "Volumes of other formats must be converted to NIfTI (.nii.gz)."),
        ("scan.IMG", "Volumes of other formats must be converted to NIfTI (.nii.gz)."),
        ("x.GIF", "GIF: convert to PNG."),
        ("notes.txt", ""),
        ("a.nii.gz", ""),
    ],
)
def test_other_formats_are_named_with_what_to_convert_them_to(tmp_path, name, said):
    (tmp_path / name).write_bytes(b"x")
    assert conversions([tmp_path / name, tmp_path / name]) == said
    left_out = LeftOut()
    left_out.images([tmp_path / name])
    assert said in " ".join(left_out.notes())


def test_linked_folders_are_counted_and_linked_files_are_listed(tmp_path):
    make_files(tmp_path, "w/a/1.png", "elsewhere/2.png")
    (tmp_path / "w/a/whole").symlink_to(tmp_path / "w")
    (tmp_path / "w/other").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "w/3.png").symlink_to(tmp_path / "elsewhere/2.png")
    (tmp_path / "w/gone.png").symlink_to(tmp_path / "nowhere.png")
    left_out = LeftOut()
    files = left_out.files_below(tmp_path / "w")
    # The storage of gone.png may not be connected: the file is none that may be lost silently.
    assert files == [tmp_path / "w/3.png", tmp_path / "w/a/1.png", tmp_path / "w/gone.png"]
    note = f"Left out: 2 links to folders, such as {tmp_path}/w/other."
    assert left_out.notes() == [note]
    finder = ImageFinder(tmp_path / "w")
    assert finder.notes() == []
    assert finder.find("1.png") == "a/1.png"
    assert finder.notes()[1:] == [note]


def test_folders_that_cannot_be_read_are_counted(tmp_path, monkeypatch):
    make_files(tmp_path, "a/1.png", "b/2.png")
    scan = os.scandir

    def refusing(path):
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    left_out = LeftOut()
    assert left_out.files_below(tmp_path) == [tmp_path / "a/1.png"]
    assert left_out.notes() == [
        f"Left out: 1 folder whose content cannot be read, such as {tmp_path}/b."
    ]


@pytest.mark.parametrize("links", [{"1.png": "1.png"}, {"1.png": "a", "a": "1.png"}])
def test_a_link_that_leads_in_a_circle_is_no_image(tmp_path, links):
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    with pytest.raises(BadRow, match=r"found a link at '1\.png' whose file cannot be reached"):
        locate(tmp_path, "1.png")


def test_the_reason_for_a_file_without_an_ending_names_no_ending(tmp_path):
    make_files(tmp_path, "IM 0001", "notes.TXT")
    left_out = LeftOut()
    assert left_out.images([tmp_path / "IM 0001", tmp_path / "notes.TXT"]) == []
    assert left_out.reasons == {
        tmp_path / "IM 0001": "a name without an ending: if it is an image, add one such as .jpg",
        tmp_path / "notes.TXT": ".txt is no ending of an image",
    }


def test_pipes_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "1.png")
    left_out = LeftOut()
    assert left_out.files_below(tmp_path) == []
    note = f"Left out: 1 name of pipes, sockets or devices, such as {tmp_path}/1.png."
    assert left_out.notes() == [note]


@pytest.mark.proves(
    "files",
    "a class, a file or a folder with line breaks or a terminal's commands in its name",
    "adds no line to what commands print, and draws on no contact sheet",
)
def test_a_note_about_a_name_is_one_line(tmp_path):
    name = "x\nAll images are usable.\x1b[2J"
    os.mkfifo(tmp_path / name)
    (tmp_path / f"{name} of a folder").symlink_to(tmp_path)
    make_files(tmp_path, f"notes.{name}", f"a/{name}.png")
    left_out = LeftOut()
    left_out.images(left_out.files_below(tmp_path))
    shown = "x All images are usable.\\x1b[2J"
    assert left_out.notes() == [
        "Left out by their endings, which are not those of images: 1 file (.\\x1b[2j 1).",
        f"Left out: 1 link to folders, such as {tmp_path}/{shown} of a folder.",
        f"Left out: 1 name of pipes, sockets or devices, such as {tmp_path}/{shown}.",
    ]
    assert list(left_out.reasons.values()) == [".\\x1b[2j is no ending of an image"]


@pytest.mark.proves(
    "files",
    "a pipe or a device in place of a slice, a CSV, an npz file or a description of images",
    "refused and named; nothing is waited for",
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["manifest.csv", "images.csv", "images.npz", "data.json"])
def test_what_never_ends_is_not_read(tmp_path, name, kind):
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    readers = {
        "manifest.csv": [lambda: partition(tmp_path, tmp_path / "out", Wanted(sites=2))],
        "data.json": [lambda: read_data_file(tmp_path)],
    }
    by_name = [
        lambda: partition(path, tmp_path / "out", Wanted(sites=2)),
        lambda: images_at(path, DataSpec(), {}),
    ]
    for read in readers.get(name, by_name):
        with pytest.raises(FedwardError, match=rf"{path}: expected .*, found '?a pipe or a dev"):
            read()


def test_a_row_names_the_image_that_can_be_reached(tmp_path):
    make_files(tmp_path, "b/1.png")
    (tmp_path / "a").mkdir()
    for name in ("1.png", "2.png"):
        (tmp_path / "a" / name).symlink_to(tmp_path / "storage" / name)
    finder = ImageFinder(tmp_path)
    assert finder.find("1.png") == "b/1.png"
    with pytest.raises(BadRow, match=r"found a link at 'a/2\.png' whose file cannot be reached"):
        finder.find("2.png")
    with pytest.raises(BadRow, match=r"found a link at 'a/1\.png' whose file cannot be reached"):
        finder.find("a/1.png")


def test_hidden_files_describe_no_site(tmp_path):
    """macOS keeps attributes in such files, on disks of other systems."""
    make_files(tmp_path, "site-1.yaml", "._site-1.yaml", "._old.yml", "._old.YAML")
    assert named_sites(tmp_path) == ["site-1"]


def test_a_folder_describes_no_site(tmp_path):
    make_files(tmp_path, "site-1.yaml", "old.yaml/site-2.yaml", "older.yml/site-3.yaml")
    assert named_sites(tmp_path) == ["site-1"]


def test_no_site_file_is_passed_over_for_the_letters_of_its_ending(tmp_path):
    make_files(tmp_path, "site-1.yaml", "site-2.YAML", "site-3.yml", "site-4.Yml", "notes.txt")
    with pytest.raises(ConfigError, match=r"found site-2\.YAML, site-3\.yml, site-4\.Yml\."):
        named_sites(tmp_path)
