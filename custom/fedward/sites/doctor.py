"""Examines a site's data before the site joins: counts, rejected rows, leaks and pictures."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from fedward import private
from fedward.errors import DataError, listed, option, quoted, reason_of
from fedward.labels import NO_FINDING, class_counts, shows, shows_none
from fedward.sites import open_site, read_site
from fedward.sites.dark_images import dark_images, dark_note
from fedward.sites.data import Images, Rejected, SiteData
from fedward.sites.decoding import BadRow, as_image
from fedward.sites.files import is_dicom, series_files
from fedward.sites.headers import dicom_patients, header_notes
from fedward.sites.hiding_windows import Hidden, hiding_note_of_site
from fedward.sites.identifying import identifying_notes
from fedward.sites.images import decode_file
from fedward.sites.job_checks import TooManyRejectedError, kind_of_reason
from fedward.sites.leaks import (
    Place,
    Seen,
    contradictions,
    dicom_images,
    file_of,
    leak,
    patients,
    pictures,
    repeated,
    sets_of,
    several_patients_notes,
)
from fedward.sites.path_patients import patients_in_paths_note
from fedward.sites.site_csv import SiteRows, table_notes
from fedward.sites.site_file import NpzSite
from fedward.sites.subgroups import NOT_STATED
from fedward.sites.unused_columns import patients_note, unused_patients_of_site
from fedward.terminal import fold, on_one_line, shortened
from fedward.text import count

if TYPE_CHECKING:
    from fedward.config import DataSpec

SHOWS_PATIENTS = "It shows patients' images: delete it when you have looked at it."
"""What is said of a page or sheet with images, below its name."""
TINY = 5
"""A class with fewer images (or patients) than this in a split is too small to be evaluated."""
_WIDTH = 80
"""Columns of the terminal that the report is written for."""
_CELL_WIDTH = 12
"""Columns of each number in the table of classes."""
_MOST_REJECTED = 20
"""Reasons that the report lists at most, and rows of each."""
_TILES = 12
"""Images in a row of a contact sheet."""
_TILE = 72
"""Height and width in pixels of an image in a contact sheet."""
_LETTER = 10
"""Height in pixels of the font of a contact sheet."""
_LABELLED_COLOUR = "#2e9e4f"
_FRAMES = {"unlabelled": "#8a8a8a", "val": "#2f6fd0", "test": "#8b4fc2"}
"""Set of :func:`fedward.sites.leaks.sets_of` -> colour of its frames on the contact sheet."""


@dataclass(frozen=True)
class Report:
    """The findings about one site."""

    data: SiteData
    leaks: tuple[str, ...]
    """Faults that must be fixed: the same image or patient in two splits."""
    contradictions: tuple[str, ...]
    """The same image with two labels, of which a person must say which is right."""
    notes: tuple[str, ...]
    """What spoils no result but should be known, such as classes with few images."""
    headers: tuple[str, ...] = ()
    """What in the files' headers or pictures may identify a person."""
    image_faults: tuple[Rejected, ...] = ()
    """What is wrong with the images of rows that are rejected for another reason."""
    dicom: tuple[tuple[Path, Place], ...] = ()
    """DICOM file and place of each image that is of one."""
    job: tuple[str, Sequence[str]] = ("", ())
    """A title, and lines on what a job would do at the site; both empty without a job."""

    def text(self) -> str:
        """Return the report for an 80-column terminal."""
        data = self.data
        images = sum(len(part) for part in sets_of(data).values())
        height, width, channels = data.labelled.pixels.shape[1:]
        colours = "grey" if channels == 1 else "RGB"
        train = len(data.labelled) + len(data.unlabelled)
        labelled_share = f"{len(data.labelled) / train:.0%}" if train else "-"
        lines = [
            f"{data.site}: {count(images, 'image')}, {height}x{width}, {colours}",
            "",
            *_table(data),
            "",
            f"labels seen: {len(data.labelled)} of {count(train, 'training image')} "
            f"({labelled_share})",
        ]
        sections: list[tuple[str, Sequence[str]]] = [
            ("LEAKS (must be fixed)", self.leaks),
            ("CONTRADICTIONS (decide which label is right)", self.contradictions),
            ("Notes", self.notes),
            ("Headers and pictures (reported here only)", self.headers),
            self.job,
            _rejected_section([*data.rejected, *self.image_faults]),
        ]
        for title, items in sections:
            lines += _section(title, items)
        return "\n".join(lines)


def _section(title: str, items: Sequence[str]) -> list[str]:
    """Return the lines of a section of the report; none without items."""
    if not items:
        return []
    lines = ["", title]
    for item in items:
        lines += fold(item, first="  - ", others="    ")
    return lines


def _rejected_section(rejected: Sequence[Rejected]) -> tuple[str, list[str]]:
    """Return title and lines of the rejected rows, of which some are there for each reason."""
    rows = len({row.row for row in rejected})
    also = "" if rows == len(rejected) else ", some for several reasons"
    return f"Rejected rows: {rows}{also}", _rejected(rejected)


def _rejected(rejected: Sequence[Rejected]) -> list[str]:
    """Return a line for each reason, with the rows that share it.

    Many reasons of one kind are one: every row quotes another cell where the site file names the
    wrong column.
    """
    by_reason = _rows_by_reason(rejected, lambda row: row.reason)
    if len(by_reason) > _MOST_REJECTED:
        by_reason = _rows_by_reason(rejected, lambda row: kind_of_reason(row.reason))
    lines = []
    for rows in list(by_reason.values())[:_MOST_REJECTED]:
        first = rows[0]
        if len(rows) == 1:
            lines.append(f"row {first.row} ({first.sample_id}): {first.reason}")
            continue
        numbers = ", ".join(f"{row.row}" for row in rows[:_MOST_REJECTED])
        more = ", ..." if len(rows) > _MOST_REJECTED else ""
        where = f"{len(rows)} rows ({numbers}{more}), the first {first.sample_id}"
        lines.append(f"{where}: {first.reason}")
    if len(by_reason) > _MOST_REJECTED:
        lines.append(f"and {count(len(by_reason) - _MOST_REJECTED, 'other reason')}")
    return lines


def _rows_by_reason(
    rejected: Sequence[Rejected], shared_text: Callable[[Rejected], str]
) -> dict[str, list[Rejected]]:
    """Return the rows whose ``shared_text`` is the same, by that text."""
    by_reason: dict[str, list[Rejected]] = {}
    for row in rejected:
        by_reason.setdefault(shared_text(row), []).append(row)
    return by_reason


def examine(site_file: Path, spec: "DataSpec", cache: Path | None = None) -> Report:
    """Load a site and look for what would spoil its training or its numbers.

    Leaks are images and patients in more than one of train, val and test. Images are the same if
    the network sees the same pixels; patients, if their DICOM headers say so.
    Notes are about a single class, classes absent or tiny in a split, duplicates within a split,
    and training images without any label.

    Raises:
        DataError: as :func:`fedward.sites.load_site`.
    """
    site = read_site(site_file, spec)
    try:
        data = open_site(site, spec, cache)
    except TooManyRejectedError as error:
        if isinstance(site, SiteRows):
            error.rejected += tuple(_image_faults(site, error.rejected, spec))
        raise
    named = list(pictures(data))
    leaks, repeats = _duplicates(named)
    contradicting = [
        f"one image, several labels: {_labelled(places)}" for places in contradictions(named)
    ]
    notes = _notes(data) + repeats
    sets = sets_of(data).values()
    dark = dark_images(sets)
    total = sum(map(len, sets))
    if isinstance(site, NpzSite):
        notes += dark_note(dark, total)
        return Report(data, tuple(leaks), tuple(contradicting), tuple(notes))
    file = site.file
    entries = site.entries
    files = site.files
    hiding = hiding_note_of_site(dark, files, file.rendering)
    notes += dark_note(dark, total, hiding, [files[file_of(name, files)] for name in dark])
    notes += table_notes(site, spec.label_kind)
    notes += patients_note(
        unused_patients_of_site(file, entries), lambda name: f"columns: {{group: {name}}}"
    )
    notes += patients_in_paths_note(
        [f"{entry.path}" for entry in entries], [entry.group for entry in entries]
    )
    dicom_files = [own for path in files.values() for own in _dicom_files(path)]
    headers = header_notes(dicom_files, file.window is not None) if dicom_files else []
    headers += identifying_notes(files, file.rendering)
    of_dicom = tuple(dicom_images(data, files, site.patients))
    leaks += _patients(of_dicom)
    notes += dicom_patients(path for path, _ in of_dicom).notes
    notes += several_patients_notes(of_dicom)
    image_faults = _image_faults(site, data.rejected, spec)
    return Report(
        data,
        leaks=tuple(leaks),
        contradictions=tuple(contradicting),
        notes=tuple(notes),
        headers=tuple(headers),
        image_faults=tuple(image_faults),
        dicom=of_dicom,
    )


def _image_faults(site: SiteRows, rejected: Sequence[Rejected], spec: "DataSpec") -> list[Rejected]:
    """Return what is wrong with the images of rows that are rejected for another reason.

    A person who mends the reason alone would be told of the image at the next call.
    """
    reasons: dict[int, set[str]] = {}
    for row in rejected:
        if row.counted:
            reasons.setdefault(row.row, set()).add(row.reason)
    faults = []
    for record in site.records:
        if record.line not in reasons:
            continue
        try:
            path = site.images.find(record)
            decode_file(path, spec.image_size, spec.channels, site.file.rendering)
        except Hidden:  # It is a reason of its own, with the window for all images of the site.
            continue
        except BadRow as problem:
            if str(problem) not in reasons[record.line]:
                sample_id = record.cells[site.file.columns.sample_id]
                faults.append(Rejected(record.line, sample_id, str(problem)))
    return faults


def _dicom_files(path: Path) -> list[Path]:
    """Return a DICOM file alone, the files of a series, or nothing for another image."""
    return [path] if is_dicom(path) else series_files(path)


def run(
    site_file: Path,
    spec: "DataSpec",
    out: Path,
    job: tuple[str, Callable[[SiteData], Sequence[str]]] | None = None,
    seen: Seen | None = None,
) -> int:
    """Print the report of a site and write ``SITE-contact-sheet.png`` into a folder.

    Args:
        site_file: the site's file.
        spec: what the job expects of the images.
        out: folder of the contact sheet; it is created if it does not exist.
        job: a title, and a function that returns what a job would do with the site's data.
        seen: gets the site's images, for leaks between sites.

    Returns:
        0: the site can join; 1: its data cannot be used, or leaks, or there is no place for the
        contact sheet.
    """
    try:
        report = examine(site_file, spec)
        if job:
            title, lines_of = job
            report = replace(report, job=(title, lines_of(report.data)))
    except TooManyRejectedError as error:
        # The reasons follow, each with all of its rows.
        refusal = DataError(
            error.problem,
            error.remedy,
            expected=error.expected,
            found=f"{len({row.row for row in error.rejected})}",
        )
        lines = fold(f"Not usable. {refusal}")
        lines += _section(*_rejected_section(error.rejected))
        print("\n".join(lines))
        return 1
    except DataError as error:
        print("\n".join(fold(f"Not usable. {error}")))
        return 1
    if seen is not None:
        seen.pictures.extend(pictures(report.data))
        seen.dicom.extend(report.dicom)
        seen.tests.append((report.data.test.labels, report.data.test.groups))
    print(f"{report.text()}\n")
    sheet = out / f"{report.data.site}-contact-sheet.png"
    try:
        contact_sheet(report.data, sheet)
    except OSError as error:
        refusal = DataError(
            f"contact sheet {sheet}",
            f"Name another folder with {option('out')}.",
            expected="a place that can be written",
            found=reason_of(error),
        )
        print("\n".join(fold(f"{refusal}")))
        return 1
    print(f"Contact sheet (what the network sees): {sheet}")
    print(SHOWS_PATIENTS)
    return 1 if report.leaks else 0


def contact_sheet(data: SiteData, path: Path) -> None:
    """Write a PNG of what the network will see.

    There is one row for each class with labelled images (green frames), one of unlabelled images
    (grey), one of validation (blue) and one of test (violet). Each shows its first images and says
    how many it has.
    """
    rows = _sheet_rows(data)
    font = sheet_font()
    widest = max((font.getlength(row.name) for row in rows), default=0)
    margin = max(96, ceil(widest) + 12)
    step = _TILE + 8
    sheet = Image.new("RGB", (margin + _TILES * step, 24 + max(len(rows), 1) * step), "white")
    pen = ImageDraw.Draw(sheet)
    pen.font = font
    legend = f"{data.site}: green = labelled, grey = unlabelled, blue = val, violet = test"
    pen.text((6, 6), legend, fill="black")
    for number, row in enumerate(rows):
        top = 24 + number * step
        title = f"{row.name}\n{count(len(row.places), 'image')}"
        if len(row.places) > _TILES:
            title += f"\nthe first {_TILES}"
        pen.text((6, top + _TILE // 2 - 12), title, fill="black")
        for column, pixels in enumerate(row.images.pixels[row.places[:_TILES]]):
            left = margin + column * step
            frame = (left - 2, top - 2, left + _TILE + 1, top + _TILE + 1)
            pen.rectangle(frame, outline=row.colour, width=2)
            picture = as_image(pixels).resize((_TILE, _TILE), Image.Resampling.NEAREST)
            sheet.paste(picture, (left, top))
    path.parent.mkdir(parents=True, exist_ok=True)
    with private.replacing(path) as file:
        sheet.save(file, "PNG")


def sheet_font() -> ImageFont.FreeTypeFont:
    """Return the font of a contact sheet, which has the letters of most languages of Europe.

    Pillow's own font has no letter with an accent.
    """
    import matplotlib

    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(file, _LETTER)


class _SheetRow(NamedTuple):
    """A row of a contact sheet."""

    name: str
    images: Images
    places: npt.NDArray[np.intp]
    """Indices of those of the images that are in the row."""
    colour: str
    """Colour of the frames, as Pillow reads it."""


def _sheet_rows(data: SiteData) -> list[_SheetRow]:
    """Return the rows of a contact sheet, without those that have no image."""
    labelled = data.labelled
    shown = {name: shows(labelled.labels, place) for place, name in enumerate(data.classes)}
    if labelled.labels.ndim == 2:
        # In a multi-label job an image may show none of the classes.
        shown[NO_FINDING] = shows_none(labelled.labels)
    rows = []
    for name, in_row in shown.items():
        # Pillow measures no text of several lines, and fails at characters that steer a terminal.
        title = on_one_line(name)
        rows.append(_SheetRow(title, labelled, np.flatnonzero(in_row), _LABELLED_COLOUR))
    sets = sets_of(data)
    for name, colour in _FRAMES.items():
        images = sets[name]
        rows.append(_SheetRow(name, images, np.arange(len(images)), colour))
    return [row for row in rows if len(row.places)]


def _table(data: SiteData) -> list[str]:
    """Return a line for each class and one for all; unlabelled images are only in the last."""
    labelled_sets = (data.labelled, data.val, data.test)
    set_counts = [class_counts(images.labels, len(data.classes)) for images in labelled_sets]
    rows: list[tuple[str, Sequence[object]]] = [
        ("class", ("labelled", "val", "test", "unlabelled")),
    ]
    for place, name in enumerate(data.classes):
        rows.append((name, [counts[place] for counts in set_counts]))
    if data.labelled.labels.ndim == 2:
        without_finding = [np.count_nonzero(shows_none(images.labels)) for images in labelled_sets]
        rows.append((NO_FINDING, without_finding))
    rows.append(("all", [len(images) for images in (*labelled_sets, data.unlabelled)]))
    # Names are followed by two spaces and four columns of numbers.
    names = [shortened(name, _WIDTH - 4 * _CELL_WIDTH - 2) for name, _ in rows]
    name_width = max(12, *map(len, names)) + 2
    lines = []
    for name, (_, cells) in zip(names, rows, strict=True):
        numbers = "".join(f"{cell:>{_CELL_WIDTH}}" for cell in cells)
        lines.append(f"{name:<{name_width}}{numbers}")
    return lines


def _duplicates(named: Sequence[tuple[bytes, Place]]) -> tuple[list[str], list[str]]:
    """Return lines on images that are in several splits, and on those repeated within one.

    ``named``: hash and place of each image of the site.
    """
    leaks: list[str] = []
    repeats: list[str] = []
    for places in repeated(named):
        text = f"one image, several times: {_named(places)}"
        if leak(places):
            leaks.append(text)
        else:
            repeats.append(text)
    return leaks, repeats


def _patients(images: Sequence[tuple[Path, Place]]) -> list[str]:
    """Return lines on patients who are in several splits; ``images``: those of DICOM files."""
    leaks = []
    for places in repeated(patients(images)):
        if leak(places):
            first_of_split = {place.split: place for place in reversed(places)}
            firsts = [place for place in places if first_of_split[place.split] == place]
            leaks.append(f"one DICOM patient: {_named(firsts)}")
    return leaks


def _labelled(places: Sequence[Place]) -> str:
    return ", ".join(f"{place.sample} ({place.split}: {place.label})" for place in places)


def _named(places: Sequence[Place]) -> str:
    return ", ".join(f"{place.sample} ({place.split})" for place in places)


def _notes(data: SiteData) -> list[str]:
    """Return lines on classes that are absent or rare at a site, and on missing labels."""
    notes = []
    present = [place for place in range(len(data.classes)) if _is_present(data, place)]
    if len(present) == 1:
        notes.append(f"the site has one class only: {data.classes[present[0]]}")
    absent = [name for place, name in enumerate(data.classes) if place not in present]
    if absent and len(present) > 1:
        notes.append(f"no labelled, val or test image of {listed(absent)}")
    notes += _rare_notes(data, present)
    if not len(data.labelled) and not len(data.unlabelled):
        notes.append("no training image: the site only evaluates")
    elif not len(data.labelled):
        fate = "can only take part in methods for unlabelled sites"
        if data.annotation == "queue":
            fate = "learns from the answers of people alone"
        notes.append(f"no training label is seen: the site {fate}")
    return notes + _subgroup_notes(data)


def _rare_notes(data: SiteData, present: Sequence[int]) -> list[str]:
    """Return a line on each split in which present classes are rare, and what follows from it."""
    unit = "patients" if data.test.groups else "images"
    notes = []
    for name, images in (("labelled", data.labelled), ("val", data.val), ("test", data.test)):
        rare = []
        for place in present:
            number = _units_of_class(images, place)
            if number < TINY:
                rare.append(f"{number} of {quoted(data.classes[place])}")
        if not len(images) or not rare:
            continue
        few = f"fewer than {TINY} {unit} of a class"
        if name != "labelled" and data.labelled.labels.ndim == 1:
            few += ", which a run does not measure there"
        notes.append(f"{name}: {few}: {', '.join(rare)}")
    return notes


def _subgroup_notes(data: SiteData) -> list[str]:
    """Return how many test images each group of each column has; nothing without test images."""
    if not len(data.test):
        return []
    notes = []
    for place, (column, named) in enumerate(data.subgroups.items()):
        images = Counter(row[place] for row in data.test.subgroups)
        groups = [f"{group} {images[group]}" for group in (*named, NOT_STATED)]
        note = f"test images by {column}: {', '.join(groups)}"
        if images[NOT_STATED]:
            note += f"; cells that are empty or in no group count as {NOT_STATED}"
        notes.append(note)
    if notes:
        notes.append("a run has numbers of a group only where it has five test patients of a class")
    return notes


def _is_present(data: SiteData, place: int) -> bool:
    """Return whether any image of a site is known to show a class."""
    return any(shows(images.labels, place).any() for images in sets_of(data).values())


def _units_of_class(images: Images, place: int) -> int:
    """Return how many patients, or else images, show a class."""
    units = images.groups or images.ids
    return len({units[index] for index in np.flatnonzero(shows(images.labels, place))})
