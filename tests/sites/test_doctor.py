import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedward.errors import offering
from fedward.lab.synthetic import synthetic_site
from fedward.operation.next_step import next_after_doctor
from fedward.sites import doctor, site_csv
from fedward.sites.doctor import contact_sheet, examine, run, sheet_font
from fedward.sites.files import LeftOut
from fedward.terminal import printable
from file_modes import modes


def test_a_clean_site(hospital, tmp_path, capsys):
    report = examine(hospital.write(labelled=0.5), hospital.spec)
    assert not report.leaks
    assert run(hospital.write(labelled=0.5), hospital.spec, tmp_path / "out") == 0
    text = capsys.readouterr().out
    assert "site-1: 40 images, 16x16, RGB" in text
    assert "labels seen: 12 of 24 training images (50%)" in text
    assert "It shows patients' images: delete it" in text
    assert max(map(len, text.split("Contact sheet")[0].splitlines())) <= 80
    with Image.open(tmp_path / "out" / "site-1-contact-sheet.png") as sheet:
        assert sheet.size[0] > 500


def test_long_names_fit_80_columns_and_the_contact_sheet(hospital, tmp_path):
    first, *others = hospital.spec.classes
    long = f"{first}, {60 * 'x'}"
    for row in hospital.rows:
        row[2] = long if row[2] == first else row[2]
    spec = hospital.spec.model_copy(update={"classes": (long, *others)})
    report = examine(hospital.write(labelled=0.5), spec)
    text = report.text()
    assert max(map(len, text.split("Notes")[0].splitlines())) <= 80
    assert f"{first}, xxxxxxxxxxxxxxxxxxxxxxxx…" in text
    assert f'of "{long}"' in " ".join(report.notes)
    contact_sheet(report.data, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size[0] > 12 * 80 + 60 * 4


@pytest.mark.proves(
    "files",
    "a class, a file or a folder with line breaks or a terminal's commands in its name",
    "adds no line to what commands print, and draws on no contact sheet",
)
@pytest.mark.parametrize("added", ["\nall   99   99   99   99", "\r\tx", "\x1b[2J", "\u202egnp"])
def test_a_name_of_a_class_adds_no_line(hospital, tmp_path, added):
    first, *others = hospital.spec.classes
    before = len(examine(hospital.write(), hospital.spec).text().split("Notes")[0].splitlines())
    for row in hospital.rows:
        row[2] = f"{first}{added}" if row[2] == first else row[2]
    spec = hospital.spec.model_copy(update={"classes": (f"{first}{added}", *others)})
    report = examine(hospital.write(), spec)
    lines = report.text().split("Notes")[0].splitlines()
    assert len(lines) == before
    (line,) = [line for line in lines if line.startswith(first)]
    assert line.startswith(printable(" ".join(f"{first}{added}".split())))
    contact_sheet(report.data, tmp_path / "sheet.png")


def test_the_classes_that_a_run_does_not_measure_are_named(hospital):
    notes = examine(hospital.write(labelled=0.5), hospital.spec).notes
    few = "fewer than 5 images of a class"
    assert [note for note in notes if few in note] == [
        f"labelled: {few}: 4 of MEL, 4 of NV, 4 of BCC",
        f"val: {few}, which a run does not measure there: 2 of MEL, 2 of NV, 2 of BCC",
        f"test: {few}, which a run does not measure there: 4 of MEL, 4 of NV, 2 of BCC",
    ]


def test_the_sheet_has_letters_with_accents():
    font = sheet_font()

    def glyph(letter):
        mask = font.getmask(letter)
        return mask.size, bytes(mask)

    missing = glyph("\uffff")
    glyphs = [glyph(letter) for letter in "äöüßéèçñåøłščğ"]
    assert missing not in glyphs
    assert len(set(glyphs)) == len(glyphs)


def test_counts_are_told_where_the_sheet_cannot_be_written(hospital, tmp_path, capsys):
    file = tmp_path / "a file"
    file.touch()
    assert run(hospital.write(labelled=0.5), hospital.spec, file) == 1
    text = capsys.readouterr().out
    assert "labels seen: 12 of 24 training images (50%)" in text
    end = " ".join(text.split("contact sheet")[1].split())
    assert end == (
        f"{file}/site-1-contact-sheet.png: expected a place that can be written, found file "
        "exists. Name another folder with --out."
    )


def test_the_same_picture_in_two_splits_is_a_leak(hospital, tmp_path, capsys):
    hospital.header.append("split")
    for index, row in enumerate(hospital.rows):
        row.append("train" if index < 20 else "test")
    shutil.copy(hospital.folder / hospital.rows[0][1], hospital.folder / hospital.rows[30][1])
    shutil.copy(hospital.folder / hospital.rows[2][1], hospital.folder / hospital.rows[4][1])
    report = examine(hospital.write(), hospital.spec)
    assert report.leaks == ("one image, several times: s000 (train), s030 (test)",)
    assert "one image, several times: s002 (train), s004 (train)" in report.notes
    assert run(hospital.write(), hospital.spec, tmp_path) == 1
    assert "LEAKS" in capsys.readouterr().out


def test_one_class_tiny_classes_and_bad_rows_are_told(hospital):
    for row in hospital.rows:
        row[2] = "NV"
    hospital.rows[3][2] = "WART"
    report = examine(hospital.write(), hospital.spec)
    assert "the site has one class only: NV" in report.notes
    assert not any("no labelled, val or test image" in note for note in report.notes)
    text = report.text()
    assert "Rejected rows: 1" in text
    assert "row 5 (s003)" in text


def test_a_wrong_column_of_labels_is_one_reason(hospital, tmp_path, capsys):
    """Each of its cells is another label that the job does not know."""
    for number, row in enumerate(hospital.rows):
        row[2] = f"text {number}"
    assert run(hospital.write(), hospital.spec, tmp_path) == 1
    text = " ".join(capsys.readouterr().out.split())
    rows = len(hospital.rows)
    assert f"Rejected rows: {rows} - {rows} rows (2, 3, 4," in text
    assert "other reasons" not in text


def test_rows_that_are_rejected_for_one_reason_share_a_line(hospital, tmp_path, capsys):
    for index in (2, 3, 7):
        hospital.rows[index][2] = "WART"
    hospital.rows[9][2] = "MOLE"
    text = " ".join(examine(hospital.write(max_rejected=1.0), hospital.spec).text().split())
    assert "Rejected rows: 4" in text
    assert text.count("found 'WART'") == 1
    assert "3 rows (4, 5, 9), the first s002: " in text
    assert "row 11 (s009): " in text
    with offering("classes"):
        assert run(hospital.write(max_rejected=0.0), hospital.spec, tmp_path) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "- 3 rows (4, 5, 9), the first s002: " in text
    assert text.count("found 'WART'") == 1, "each reason is said once"
    assert (
        "rows unusable, found 4. Fix the rows, the site's labels or --classes, or raise "
        "max_rejected in the site file. Rejected rows: 4"
    ) in text


def test_a_row_is_listed_under_each_of_its_reasons(hospital, tmp_path, capsys):
    """Mending the label would not make an empty or missing image usable."""
    for index in (2, 3, 7):
        hospital.rows[index][2] = "WART"
    (hospital.folder / hospital.rows[3][1]).write_bytes(b"")
    (hospital.folder / hospital.rows[7][1]).unlink()
    labels = {"Naevus": "NV", "Melanom": "MEL"}
    reason = (
        "3 rows (4, 5, 9), the first s002: expected a label of the site (Melanom, Naevus) or a "
        "class of the job (MEL, NV, BCC), found 'WART' (if it is for example BCC, write labels: "
        "{'WART': \"BCC\"} into the site file)"
    )
    for most in (1.0, 0.0):
        status = run(hospital.write(labels=labels, max_rejected=most), hospital.spec, tmp_path)
        text = " ".join(capsys.readouterr().out.split())
        assert status == (most == 0)
        assert "Rejected rows: 3, some for several reasons - 3 rows" in text
        assert reason in text
        assert "row 5 (s003): expected a whole image, found an empty file" in text
        assert "row 9 (s007): expected an image file, found none at" in text


def test_the_next_step_of_a_single_file_is_called_a_trial(hospital, monkeypatch):
    file = hospital.write(labelled=0.5)
    monkeypatch.chdir(file.parent)
    assert next_after_doctor(Path(file.name), hospital.spec) == [
        f"{file.name} is the only site file in {file.parent}: the run is a trial of it.",
        f"Next: fedward run ssfl --site-files {file.parent}",
    ]


def test_no_labels_are_told(hospital):
    report = examine(hospital.write(columns={"label": None}), hospital.spec)
    assert any("no training label" in note for note in report.notes)


def test_an_unusable_site_is_told_without_a_traceback(hospital, tmp_path, capsys):
    site_file = hospital.write()
    (hospital.folder / "manifest.csv").unlink()
    assert run(site_file, hospital.spec, tmp_path) == 1
    assert "Not usable. site site-1" in capsys.readouterr().out


def test_a_table_is_read_once_and_its_folder_searched_once(hospital, monkeypatch):
    """Rows, notes and images that no row names are all of one reading."""
    hospital.rows[3][1] = "left/" + hospital.rows[3][1]
    hospital.picture("unlisted.png", 99)
    tables = []
    folders = []
    read_table = site_csv.read_table
    files_below = LeftOut.files_below

    def reading(path, *arguments):
        tables.append(path)
        return read_table(path, *arguments)

    def searching(self, folder):
        folders.append(folder)
        return files_below(self, folder)

    monkeypatch.setattr(site_csv, "read_table", reading)
    monkeypatch.setattr(LeftOut, "files_below", searching)
    report = examine(hospital.write(), hospital.spec)
    unlisted = f"Images in {hospital.folder} that no row names: 2, such as images/003.png."
    assert unlisted in report.notes
    assert tables == [hospital.folder / "manifest.csv"]
    assert folders == [hospital.folder]


def test_the_sheet_shows_the_pixels_the_network_sees(hospital, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_TILE", 16)
    data = examine(hospital.write(), hospital.spec).data
    contact_sheet(data, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        pixels = np.asarray(sheet)
    first = data.labelled.pixels[data.labelled.labels == 0][0]
    assert np.array_equal(pixels[24:40, 96:112], first)
    assert pixels.shape == (24 + 5 * 24, 96 + 12 * 24, 3)


@pytest.mark.proves(
    "files",
    "images on disk, or single hospitals' models at the server, read by another account",
    "readable by their owner alone",
)
@pytest.mark.usefixtures("open_umask")
def test_images_on_disk_are_their_owners_alone(hospital, tmp_path):
    sheet = tmp_path / "sheet.png"
    cache = tmp_path / "state" / "cache"
    sheet.touch(mode=0o644)
    contact_sheet(examine(hospital.write(), hospital.spec, cache).data, sheet)
    assert len(list(cache.iterdir())) > 1
    assert modes(sheet) == {0o600}
    assert modes(tmp_path / "state") == {0o600, 0o700}


def test_two_doctors_at_one_time_both_write_a_whole_sheet(hospital, tmp_path, monkeypatch):
    sheet = tmp_path / "sheets" / "sheet.png"
    data = examine(hospital.write(), hospital.spec).data
    save = Image.Image.save

    def save_while_another_does(image, file, *arguments):
        with monkeypatch.context() as other_process:
            other_process.setattr(Image.Image, "save", save)
            other_process.setattr("os.getpid", lambda: 1)
            contact_sheet(data, sheet)
        save(image, file, *arguments)

    monkeypatch.setattr(Image.Image, "save", save_while_another_does)
    contact_sheet(data, sheet)
    with Image.open(sheet) as whole:
        whole.load()
    assert list(sheet.parent.iterdir()) == [sheet]


def test_a_link_in_the_place_of_a_sheet_is_not_followed(hospital, tmp_path):
    sheet = tmp_path / "sheet.png"
    (tmp_path / "other").write_text("of another use")
    sheet.symlink_to(tmp_path / "other")
    contact_sheet(examine(hospital.write(), hospital.spec, tmp_path / "cache").data, sheet)
    assert (tmp_path / "other").read_text() == "of another use"
    assert not sheet.is_symlink()


def test_grey_and_empty_sets_have_a_sheet_too(tmp_path):
    from fedward.config import DataSpec, SyntheticData

    grey = synthetic_site("server", DataSpec(channels=1), SyntheticData(images=16), 1)
    contact_sheet(grey, tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").is_file()
