"""A pool that is a CSV and the images it lists, whatever it calls its columns."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from fedward.errors import ConfigError, DataError, did_you_mean
from fedward.lab.partition.folder_pool import is_image
from fedward.lab.partition.image_pool import SPLIT_NAMES, ListedImage, image_pool, refuse_many
from fedward.lab.partition.pool import GROUPS, Pool
from fedward.sites.data import Rejected
from fedward.sites.decoding import BadRow
from fedward.sites.files import locate
from fedward.sites.labels import SEPARATOR
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.table import Record, read_header, read_table
from fedward.sites.written import check_columns, words

_IMAGE = (
    "image",
    "image_path",
    "path",
    "filepath",
    "file_path",
    "file",
    "filename",
    "file_name",
    "img",
    "image_name",
)
_ID = ("image_id", "image_index", "isic_id", "sample_id", "id")
KNOWN = {
    "image": (*_IMAGE, *_ID),
    "sample_id": ("sample_id", "image_id", "image_index", "isic_id", "id"),
    "label": (
        "label",
        "labels",
        "diagnosis",
        "dx",
        "class",
        "class_name",
        "target",
        "category",
        "finding_labels",
        "findings",
        "finding",
    ),
    "group": GROUPS,
    "split": ("split", "set", "subset", "partition"),
}
"""What a column is for -> what it is called where nobody says, the first that there is, in lower
case.
"""


def read_csv(
    path: Path,
    folder: Path,
    classes: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    rendering: Rendering = PLAIN,
    findings: Sequence[str] = (),
) -> Pool:
    """Read a CSV as a pool.

    A cell of the image column is a path in the folder, or the name of a file anywhere in it, with
    its ending or without. Rows of which this cannot be said are left out, if they are few. The id
    of an image is by default its path. Where a label has ``|`` in it, labels are findings with it
    between them, and the data set is a multi-label one. So it is where each finding has a column of
    its own.

    Args:
        path: of the CSV; see :func:`fedward.sites.table.read_table`.
        folder: of the images.
        classes: those to use; none: all.
        columns: what a column is for (the keys of :data:`KNOWN`) -> its name; empty: there is none.
            By default they are found by well-known names.
        rendering: how files become images.
        findings: columns of 0 and 1, of which each is a finding; none: labels are in one column.

    Raises:
        ConfigError: a column for something else, or one that the CSV has not.
        DataError: the CSV cannot be read; there is no column of images, or of labels; more than 5 %
            of the rows cannot be used; or see :func:`fedward.lab.partition.image_pool.image_pool`.
    """
    records, malformed, header = read_rows(path)
    used = columns_of(path, header, columns or {}, findings)
    if not (used["label"] or findings or classes or "label" in (columns or {})):
        remedy = "Name it, as in --columns label=NAME. "
        remedy += "If each finding has a column of 0 and 1, name all: label=A label=B."
        raise DataError(
            f"{path}", expected="a column of labels", found=_names(header), remedy=remedy
        )
    total = len(records) + len(malformed)
    bad = [f"line {row.row}: {row.reason}" for row in malformed]
    finder = Finder(folder)
    listed = dict[str, ListedImage]()
    kept = list[Record]()
    for record in records:
        try:
            image = _listed(record, used, finder, findings)
            if image.sample_id in listed:
                raise BadRow(f"another row has the id {image.sample_id!r}")
        except BadRow as problem:
            bad.append(f"line {record.line}: {problem}")
        else:
            listed[image.sample_id] = image
            kept.append(record)
    many = {"label": findings} if findings else {}
    told = " ".join(
        f"{purpose}={name}"
        for purpose in used
        for name in many.get(purpose, [used[purpose]])
        if name
    )
    remedy = f"Fix the rows, name the images' folder with --images, or other columns than these: --columns {told}."
    notes = (f"Columns: {told}.", *refuse_many(f"{path}", bad, total, remedy))
    others = {name: [record.cells[name] for record in kept] for name in header if name}
    name = path.stem if path.stem != "manifest" else path.resolve().parent.name
    images = list(listed.values())
    several = bool(findings) or any(SEPARATOR in image.label for image in images)
    return image_pool(name, folder, images, classes, others, rendering, notes, several)


def read_rows(path: Path) -> tuple[list[Record], list[Rejected], list[str]]:
    """Return the rows of a CSV, those that are malformed, and its columns; see
    :mod:`fedward.sites.table`.
    """
    try:
        header = read_header(path, "(all)")
        return *read_table(path, header or ["image"], "(all)"), header
    except DataError as error:
        where = error.problem.removeprefix("site (all), ")
        remedy = "Name another CSV, or fix this one."
        raise DataError(where, expected=error.expected, found=error.found, remedy=remedy) from None


def columns_of(
    path: Path, header: Sequence[str], said: Mapping[str, str], findings: Sequence[str] = ()
) -> dict[str, str]:
    """Return what each column is for -> its name, empty where there is none; see :func:`read_csv`."""
    by_name = {name.lower().replace(" ", "_").replace("-", "_"): name for name in reversed(header)}
    used = {}
    for purpose, names in KNOWN.items():
        used[purpose] = said.get(
            purpose, next((by_name[name] for name in names if name in by_name), "")
        )
    known = _names(header)
    unknown = [purpose for purpose in said if purpose not in KNOWN]
    if unknown:
        expected = f"columns for {', '.join(KNOWN)}"
        remedy = "Write for example --columns label=diagnosis."
        raise ConfigError("--columns", expected=expected, found=", ".join(unknown), remedy=remedy)
    missing = [
        name for name in dict.fromkeys([*used.values(), *findings]) if name and name not in header
    ]
    if missing:
        expected = f"columns of the CSV ({known})"
        remedy = "Name one of them."
        found = ", ".join(f"{name}{did_you_mean(name, header)}" for name in missing)
        raise ConfigError("--columns", expected=expected, found=found, remedy=remedy)
    if not used["image"]:
        remedy = "Name the column of their files, as in --columns image=NAME."
        raise DataError(f"{path}", expected="a column of images", found=known, remedy=remedy)
    return used


def _names(header: Sequence[str]) -> str:
    return f"{', '.join(name for name in header if name):.300}"


def _listed(
    record: Record, used: Mapping[str, str], finder: "Finder", findings: Sequence[str]
) -> ListedImage:
    cell = {purpose: record.cells[name] if name else "" for purpose, name in used.items()}
    split = SPLIT_NAMES.get(cell["split"].lower(), "")
    if used["split"] and not split:
        raise BadRow(
            f"expected train, val or test, found {cell['split']!r} (--columns split= makes new splits)"
        )
    if findings:
        check_columns(record, findings)
        cell["label"] = SEPARATOR.join(words(record, tuple(findings), multi_label=True))
    image = finder.find(cell["image"])
    return ListedImage(cell["sample_id"] or image, image, cell["label"], cell["group"], split)


class Finder:
    """Finds image files by path, or by name anywhere in a folder, which is listed once and only if
    it must be.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for path in sorted(self._folder.rglob("*")):
            own = path.relative_to(self._folder).as_posix()
            if path.is_file() and own.isprintable() and is_image(path):
                for name in (path.name, path.stem):
                    found[name].append(own)
        return found

    def find(self, name: str) -> str:
        """Return the path in the folder; raise BadRow where there is none, or several."""
        if Path(name).is_absolute() and Path(name).is_relative_to(self._folder.resolve()):
            name = Path(name).relative_to(self._folder.resolve()).as_posix()
        with suppress(BadRow):
            locate(self._folder, name)
            return name
        found = self._named.get(Path(name).name, [])
        if len(found) != 1:
            places = (
                f"found {len(found)}: {', '.join(found[:2])}"
                if found
                else f"found none in {self._folder}"
            )
            raise BadRow(f"expected the image {name!r}, {places}")
        locate(self._folder, found[0])
        return found[0]
