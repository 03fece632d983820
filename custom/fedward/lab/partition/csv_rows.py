"""What becomes of each row of a CSV of images: an image of the pool, a repeat, or a problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedward.errors import option
from fedward.lab.partition.image_pool import ListedImage
from fedward.lab.partition.label_columns import RowLabels
from fedward.sites.data import Rejected
from fedward.sites.decoding import BadRow
from fedward.sites.files import LeftOut
from fedward.sites.image_paths import ImageFinder, NoImage
from fedward.sites.label_texts import group_or_empty
from fedward.sites.split import SPLIT_NAMES
from fedward.sites.table import Record

_LINES_NAMED = 20
"""Lines that are left out and that a note names at most."""


@dataclass
class CsvRows:
    """The rows of a CSV, by what becomes of them."""

    finder: ImageFinder
    """Finds the images that the rows name."""
    problems: dict[int, str]
    """Line of a row -> why it cannot be used, as it may have no image."""
    images: dict[str, ListedImage] = field(default_factory=dict)
    """Sample id -> image of a row that is used."""
    records: list[Record] = field(default_factory=list)
    """The rows that are used, in the same order."""
    contradictions: list[str] = field(default_factory=list)
    """Rows that give an image another label than an earlier row."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """The DICOM objects without a picture that rows name, such as reports."""
    _by_path: dict[str, ListedImage] = field(default_factory=dict)
    """Path -> image of a row that is used."""
    _line_of: dict[str, int] = field(default_factory=dict)
    """Path of an image -> line of the row that is used."""
    _decided: list[int] = field(default_factory=list)
    """Lines of rows that are left out because a person has decided so."""
    _repeats: int = 0
    """Rows that say of an image what an earlier row says."""
    _without_image: int = 0
    """Rows among ``problems`` that name no image, or several."""

    def read(self, record: Record, column_of: Mapping[str, str], labels: RowLabels) -> None:
        """Use a row, or note why it cannot be used."""
        if record.line in labels.left_out:
            self._decided.append(record.line)
            return
        try:
            image = _listed_image(record, column_of, labels, self.finder)
            # The list of an archive's export names its reports, too, which are no damaged images.
            if not self.left_out.add_object(self.finder.folder / image.image):
                self._add(record, image)
        except BadRow as problem:
            if isinstance(problem, NoImage):
                self._without_image += 1
            self.problems[record.line] = str(problem)

    def _add(self, record: Record, image: ListedImage) -> None:
        """Use a row, unless its image is that of an earlier one.

        Raises:
            BadRow: another image has its id, or the row contradicts an earlier one of its image.
        """
        earlier = self._by_path.get(image.image)
        if earlier is not None:
            self._add_again(record, image, earlier)
            return
        if image.sample_id in self.images:
            raise BadRow(f"another row has the id {image.sample_id!r}")
        self.images[image.sample_id] = image
        self.records.append(record)
        self._by_path[image.image] = image
        self._line_of[image.image] = record.line

    def _add_again(self, record: Record, image: ListedImage, earlier: ListedImage) -> None:
        """Count a row of an image that has one, or note that their labels contradict each other.

        Raises:
            BadRow: the rows have other groups or splits.
        """
        line = self._line_of[image.image]
        if image.label != earlier.label:
            self.contradictions.append(
                f"{image.image} is {earlier.label or 'unlabelled'} in line {line} and "
                f"{image.label or 'unlabelled'} in line {record.line}"
            )
        elif (image.group, image.split) != (earlier.group, earlier.split):
            raise BadRow(f"line {line} has the same image with another group or split")
        else:
            self._repeats += 1

    def problem_texts(self) -> list[str]:
        """Return why lines cannot be used, one text for each."""
        return [f"line {line}: {reason}" for line, reason in self.problems.items()]

    def lines_note(self) -> list[str]:
        """Return a note of the lines that are left out; empty for fewer than two."""
        left_out = sorted((*self.problems, *self._decided))
        if len(left_out) < 2:
            return []
        lines = ", ".join(map(str, left_out[:_LINES_NAMED]))
        more = ", ..." if len(left_out) > _LINES_NAMED else ""
        return [f"Lines that are left out: {lines}{more}."]

    def counts_note(self, total: int) -> str:
        """Return what became of how many of the ``total`` rows."""
        parts = {
            "used": len(self.images),
            "without a picture": self.left_out.total,
            "without an image": self._without_image,
            "otherwise unusable": len(self.problems) - self._without_image,
            "with none or several of the classes, left out": len(self._decided),
            "repeating another row": self._repeats,
        }
        counts = [f"{number} {name}" for name, number in parts.items() if number or name == "used"]
        return f"Rows: {total}; {', '.join(counts)}."


def read_rows(
    folder: Path,
    prefix: str,
    records: Sequence[Record],
    malformed: Sequence[Rejected],
    column_of: Mapping[str, str],
    labels: RowLabels,
) -> CsvRows:
    """Return the rows of a CSV, whose images are sought in a folder.

    Args:
        folder: of the images.
        prefix: start of the CSV's paths that stands for the folder; empty: none does.
        records: the rows that can be read.
        malformed: the others.
        column_of: purpose of a column -> its name; empty: there is none.
        labels: of the rows.
    """
    finder = ImageFinder(folder, [prefix] if prefix else [])
    rows = CsvRows(finder, problems={row.row: row.reason for row in malformed})
    for record in records:
        rows.read(record, column_of, labels)
    return rows


def _listed_image(
    record: Record, column_of: Mapping[str, str], labels: RowLabels, finder: ImageFinder
) -> ListedImage:
    """Return the image of a row; BadRow if its image, label or split cannot be used."""
    cell = {purpose: record.cells[name] if name else "" for purpose, name in column_of.items()}
    path = finder.find(cell["image"])
    split = SPLIT_NAMES.get(cell["split"].lower(), "")
    if column_of["split"] and not split:
        raise BadRow(
            f"expected train, val or test, found {cell['split']!r} "
            f"({option('columns', {'split': ''})} makes new splits)"
        )
    if record.line in labels.problems:
        raise BadRow(labels.problems[record.line])
    return ListedImage(
        sample_id=cell["sample_id"] or path,
        image=path,
        label=labels.texts[record.line],
        group=group_or_empty(cell["group"]),
        split=split,
    )
