"""What a site should know about its data before it joins: counts, what was rejected, leaks, and a
contact sheet.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fedward import private
from fedward.errors import DataError, listed, quoted
from fedward.sites import load_site
from fedward.sites.data import Images, SiteData
from fedward.sites.decoding import as_image
from fedward.sites.files import is_dicom, series_files
from fedward.sites.headers import header_notes, patient_numbers
from fedward.sites.identifying import identifying_notes
from fedward.sites.labels import NO_FINDING, class_counts, shows, shows_none
from fedward.sites.manifest import read_entries
from fedward.sites.site_file import ManifestSite, read_site_file
from fedward.terminal import shortened

if TYPE_CHECKING:
    from fedward.config import DataSpec

TINY = 5
"""A class with fewer images than this in a split is too small to be evaluated there."""
_WIDTH = 80
_FRAMES = {"unlabelled": "#8a8a8a", "val": "#2f6fd0", "test": "#8b4fc2"}
"""Set -> colour of its frames."""


@dataclass(frozen=True)
class Report:
    """The findings about one site; ``leaks`` must be fixed, ``notes`` should be known."""

    data: SiteData
    leaks: tuple[str, ...]
    notes: tuple[str, ...]
    headers: tuple[str, ...] = ()
    """What of a person may be in the files."""
    job: tuple[str, Sequence[str]] = ("", ())
    """A title, and what a job would do there."""

    def text(self) -> str:
        """Return the report for an 80-column terminal."""
        data = self.data
        most = 20
        train = len(data.labelled) + len(data.unlabelled)
        share = f"{len(data.labelled) / train:.0%}" if train else "-"
        height, width, channels = data.labelled.pixels.shape[1:]
        size = f"{height}x{width}, {'grey' if channels == 1 else 'RGB'}"
        rejected = [
            f"row {row.row} ({row.sample_id}): {row.reason}" for row in data.rejected[:most]
        ]
        more = [f"and {len(data.rejected) - most} more"] if len(data.rejected) > most else []
        lines = [
            f"{data.site}: {sum(map(len, _sets(data).values()))} images, {size}",
            "",
            *_table(data),
        ]
        lines += ["", f"labels seen: {len(data.labelled)} of {train} training images ({share})"]
        for title, items in (
            ("LEAKS (must be fixed)", self.leaks),
            ("Notes", self.notes),
            ("Headers and pictures (told here only)", self.headers),
            self.job,
            (f"Rejected rows: {len(data.rejected)}", [*rejected, *more]),
        ):
            if items:
                lines += ["", title]
                for item in items:
                    lines += wrap(item, _WIDTH, initial_indent="  - ", subsequent_indent="    ")
        return "\n".join(lines)


def examine(site_file: Path, spec: "DataSpec", cache: Path | None = None) -> Report:
    """Load a site and look for what would spoil its training or its numbers.

    A leak is an image whose pixels (as the network sees them) occur in two of train, val and test,
    or a patient, by the headers of DICOM files, who does. Notes: one class only, classes absent or
    tiny in a split, duplicates within a split, classes of which no label is seen.

    Raises:
        DataError: as :func:`fedward.sites.load_site`.
    """
    data = load_site(site_file, spec, cache)
    leaks, repeats = _duplicates(data)
    file = read_site_file(site_file)
    if not isinstance(file, ManifestSite):
        return Report(data, tuple(leaks), tuple(_notes(data) + repeats))
    files = {
        entry.sample_id: entry.path
        for entry in read_entries(file, spec.classes, spec.label_kind)[0]
    }
    paths = {sample: path for sample, path in files.items() if is_dicom(path) or series_files(path)}
    dicom = [each for path in paths.values() for each in series_files(path) or [path]]
    headers = header_notes(dicom, file.window is not None) if dicom else []
    headers += identifying_notes(files, file.rendering)
    return Report(
        data, tuple(leaks + _patients(data, paths)), tuple(_notes(data) + repeats), tuple(headers)
    )


def run(
    site_file: Path,
    spec: "DataSpec",
    out: Path,
    job: tuple[str, Callable[[SiteData], Sequence[str]]] | None = None,
) -> int:
    """Print the report of a site and write ``<site>-contact-sheet.png`` into ``out``.

    ``job``: a title, and what tells of a job at the site.

    Returns:
        0: the site can join; 1: its data cannot be used or leaks (said on the console).
    """
    try:
        report = examine(site_file, spec)
        if job:
            report = replace(report, job=(job[0], job[1](report.data)))
    except DataError as error:
        print("\n".join(wrap(f"Not usable. {error}", _WIDTH)))
        return 1
    out.mkdir(parents=True, exist_ok=True)
    sheet = out / f"{report.data.site}-contact-sheet.png"
    contact_sheet(report.data, sheet)
    print(f"{report.text()}\n\nContact sheet (what the network sees): {sheet}")
    return 1 if report.leaks else 0


def contact_sheet(data: SiteData, path: Path, columns: int = 12, tile: int = 72) -> None:
    """Write a PNG of what the network will see.

    One row for each class with labelled images (green frames), one of unlabelled images (grey),
    then validation (blue) and test (violet); the first images of each, with their counts.
    """
    seen = data.labelled
    shown = {name: shows(seen.labels, index) for index, name in enumerate(data.classes)}
    shown |= {NO_FINDING: shows_none(seen.labels)} if seen.labels.ndim == 2 else {}
    rows = [(name, seen, np.flatnonzero(images), "#2e9e4f") for name, images in shown.items()]
    sets = _sets(data)
    rows += [
        (name, sets[name], np.arange(len(sets[name])), colour) for name, colour in _FRAMES.items()
    ]
    rows = [row for row in rows if len(row[2])]
    widest = max((ImageFont.load_default().getlength(name) for name, *_ in rows), default=0)
    margin = max(96, ceil(widest) + 12)
    step = tile + 8
    sheet = Image.new("RGB", (margin + columns * step, 24 + max(len(rows), 1) * step), "white")
    pen = ImageDraw.Draw(sheet)
    pen.text(
        (6, 6),
        f"{data.site}: green = labelled, grey = unlabelled, blue = val, violet = test",
        fill="black",
    )
    for row, (name, images, chosen, colour) in enumerate(rows):
        top = 24 + row * step
        pen.text((6, top + tile // 2 - 12), f"{name}\n{len(chosen)} images", fill="black")
        for column, image in enumerate(images.pixels[chosen[:columns]]):
            left = margin + column * step
            pen.rectangle(
                (left - 2, top - 2, left + tile + 1, top + tile + 1), outline=colour, width=2
            )
            sheet.paste(as_image(image).resize((tile, tile), Image.Resampling.NEAREST), (left, top))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb", opener=private.opener) as file:
        sheet.save(file, "PNG")


def _sets(data: SiteData) -> dict[str, Images]:
    return {
        "labelled": data.labelled,
        "unlabelled": data.unlabelled,
        "val": data.val,
        "test": data.test,
    }


def _table(data: SiteData) -> list[str]:
    """Return a line for each class and one for all; of unlabelled images there is only the number
    of all.
    """
    sets = {name: _sets(data)[name] for name in ("labelled", "val", "test", "unlabelled")}
    split = [sets[name].labels for name in ("labelled", "val", "test")]
    counts = [class_counts(labels, len(data.classes)) for labels in split]
    rows = [("class", *sets), *zip(data.classes, *counts, strict=True)]
    if data.labelled.labels.ndim == 2:
        rows.append((NO_FINDING, *(np.count_nonzero(shows_none(labels)) for labels in split)))
    rows.append(("all", *map(len, sets.values())))
    names = [shortened(name, _WIDTH - 4 * 12 - 2) for name, *_ in rows]
    width = max(12, *map(len, names)) + 2
    lines = zip(names, rows, strict=True)
    return [
        f"{name:<{width}}" + "".join(f"{cell:>12}" for cell in cells) for name, (_, *cells) in lines
    ]


def _duplicates(data: SiteData) -> tuple[list[str], list[str]]:
    places: dict[bytes, list[tuple[str, str]]] = defaultdict(list)
    for name, images in _sets(data).items():
        split = name if name in ("val", "test") else "train"
        for sample, pixels in zip(images.ids, images.pixels, strict=True):
            places[hashlib.sha256(pixels.tobytes()).digest()].append((split, sample))
    leaks: list[str] = []
    repeats: list[str] = []
    for same in places.values():
        if len(same) > 1:
            text = f"one image, several times: {', '.join(f'{sample} ({split})' for split, sample in same)}"
            (leaks if len({split for split, _ in same}) > 1 else repeats).append(text)
    return leaks, repeats


def _patients(data: SiteData, paths: Mapping[str, Path]) -> list[str]:
    """Return the patients, by the headers of DICOM files, who are in several of train, val and
    test.
    """
    listed = [
        (name if name in ("val", "test") else "train", sample)
        for name, images in _sets(data).items()
        for sample in (_file_of(image, paths) for image in images.ids)
        if sample in paths
    ]
    places: dict[int, dict[str, str]] = defaultdict(dict)
    for (split, sample), patient in zip(
        listed, patient_numbers(paths[sample] for _, sample in listed), strict=True
    ):
        if patient is not None:
            places[patient].setdefault(split, sample)
    return [
        f"one PatientID: {', '.join(f'{sample} ({split})' for split, sample in one.items())}"
        for one in places.values()
        if len(one) > 1
    ]


def _file_of(image: str, files: Mapping[str, Path]) -> str:
    """Return the sample id of the file that an image is of: itself, or what comes before the number
    of its frame.
    """
    return image if image in files else image.rpartition("#")[0]


def _notes(data: SiteData) -> list[str]:
    notes = []
    places = range(len(data.classes))
    present = {
        place
        for place in places
        for images in _sets(data).values()
        if shows(images.labels, place).any()
    }
    if len(present) == 1:
        notes.append(f"the site has one class only: {data.classes[min(present)]}")
    absent = [name for index, name in enumerate(data.classes) if index not in present]
    if absent and present:
        notes.append(f"no labelled, val or test image of {listed(absent)}")
    unit = "patients" if data.test.groups else "images"
    for name, images in (("labelled", data.labelled), ("val", data.val), ("test", data.test)):
        owners = images.groups or images.ids
        held = [zip(owners, shows(images.labels, place), strict=True) for place in places]
        counts = [len({owner for owner, there in each if there}) for each in held]
        rare = [index for index in sorted(present) if counts[index] < TINY]
        if len(images) and rare:
            small = ", ".join(f"{counts[index]} of {quoted(data.classes[index])}" for index in rare)
            notes.append(f"{name}: fewer than {TINY} {unit} of a class: {small}")
    if not len(data.labelled):
        notes.append(
            "no training label is seen: the site can only take part in methods for unlabelled sites"
        )
    return notes
