"""What becomes of each row of a CSV of images: an image of the pool, a repeat, or a problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedward.errors import option
from fedward.lab.partition.image_pool import ListedImage
from fedward.lab.partition.label_columns import RowLabels
from fedward.lab.partition.pool import LeftOutImage, Origin
from fedward.sites.data import Rejected
from fedward.sites.decoding import BadRow
from fedward.sites.files import LeftOut
from fedward.sites.image_paths import ImageFinder
from fedward.sites.split import split_named
from fedward.sites.table import Record


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
    objects: LeftOut = field(default_factory=LeftOut)
    """The DICOM objects without a picture that rows name, such as reports."""
    _by_path: dict[str, ListedImage] = field(default_factory=dict)
    """Path -> image of a row that is used."""
    _line_of: dict[str, int] = field(default_factory=dict)
    """Path of an image -> line of the row that is used."""
    _cell_of: dict[int, str] = field(default_factory=dict)
    """Line of a row that can be read -> what it names as its image."""
    _needless: dict[int, str] = field(default_factory=dict)
    """Line of a row that is left out, though nothing is wrong with it -> why."""

    def read(
        self, record: Record, column_of: Mapping[str, str], labels: RowLabels, group: str
    ) -> None:
        """Use a row, or note why it cannot be used; ``group``: what it stays together with."""
        self._cell_of[record.line] = record.cells[column_of["image"]]
        if record.line in labels.left_out:
            self._needless[record.line] = "none or several of the classes, left out as decided"
            return
        try:
            image = _listed_image(record, column_of, labels, group, self.finder)
            path = self.finder.folder / image.image
            # The list of an archive's export names its reports, too, which are no damaged images.
            if self.objects.add_object(path):
                self._needless[record.line] = self.objects.reasons[path]
            else:
                self._add(record, image)
        except BadRow as problem:
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
        namesake = self.images.get(image.sample_id)
        if namesake is not None:
            line = self._line_of[namesake.image]
            raise BadRow(f"another row has the id {image.sample_id!r}: line {line}")
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
            self._needless[record.line] = f"a repeat of line {line}"

    def unusable_rows(self) -> list[LeftOutImage]:
        """Return the rows that cannot be used, in their order, each with the reason."""
        return self._left_out(self.problems)

    def left_out_rows(self) -> list[LeftOutImage]:
        """Return the rows that are not used, in their order, each with the reason."""
        return self._left_out({**self.problems, **self._needless})

    def _left_out(self, reasons: Mapping[int, str]) -> list[LeftOutImage]:
        """Return rows in their order; ``reasons``: line of a row -> why it is not used."""
        return [
            LeftOutImage(Origin(self._cell_of.get(line, ""), line), reasons[line])
            for line in sorted(reasons)
        ]


def read_rows(
    folder: Path,
    prefix: str,
    records: Sequence[Record],
    malformed: Sequence[Rejected],
    column_of: Mapping[str, str],
    labels: RowLabels,
    groups: Mapping[int, str],
) -> CsvRows:
    """Return the rows of a CSV, whose images are sought in a folder.

    Args:
        folder: of the images.
        prefix: start of the CSV's paths that stands for the folder; empty: none does.
        records: the rows that can be read.
        malformed: the others.
        column_of: purpose of a column -> its name; empty: there is none.
        labels: of the rows.
        groups: line of a row -> what it stays together with; empty: the row is alone.
    """
    finder = ImageFinder(folder, [prefix] if prefix else [])
    rows = CsvRows(finder, problems={row.row: row.reason for row in malformed})
    for record in records:
        rows.read(record, column_of, labels, groups[record.line])
    return rows


def _listed_image(
    record: Record,
    column_of: Mapping[str, str],
    labels: RowLabels,
    group: str,
    finder: ImageFinder,
) -> ListedImage:
    """Return the image of a row; BadRow if its image, label or split cannot be used."""
    cell = {purpose: record.cells[name] if name else "" for purpose, name in column_of.items()}
    path = finder.find(cell["image"])
    split = split_named(cell["split"])
    if column_of["split"] and not split:
        raise BadRow(
            f"expected train, val or test, found {cell['split']!r} "
            f"(rename cells of splits to these, or {option('columns', {'split': ''})} makes new "
            "splits)"
        )
    if record.line in labels.problems:
        raise BadRow(labels.problems[record.line])
    return ListedImage(
        sample_id=cell["sample_id"] or path,
        image=path,
        label=labels.texts[record.line],
        group=group,
        split=split,
        line=record.line,
    )
