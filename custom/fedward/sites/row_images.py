"""The images that the rows of a site's CSV name, each of which is sought once."""

from functools import cached_property
from pathlib import Path

from fedward.sites.decoding import BadRow
from fedward.sites.files import locate
from fedward.sites.image_paths import ImageFinder
from fedward.sites.site_file import ManifestSite
from fedward.sites.table import Record, guessed_encoding


class RowImages:
    """Finds the images of a site's rows.

    Args:
        file: of the site.
    """

    def __init__(self, file: ManifestSite) -> None:
        self.finder = ImageFinder(file.folder, [file.prefix] if file.prefix else [])
        self._file = file
        self._sought: dict[int, Path | str] = {}
        """Line of a row -> its image, or why it has none."""

    def find(self, record: Record) -> Path:
        """Return the image of a row, or the folder of a DICOM series.

        Raises:
            BadRow: there is none, there are several, or it lies outside of the site's folder.
        """
        if record.line not in self._sought:
            self._sought[record.line] = self._seek(record.cells[self._file.columns.image])
        found = self._sought[record.line]
        if isinstance(found, str):
            raise BadRow(found)
        return found

    def _seek(self, cell: str) -> Path | str:
        """Return the image that a cell names, or why it names none."""
        try:
            return locate(self._file.folder, self.finder.find(cell))
        except BadRow as problem:
            return f"{problem}{self._doubt(cell)}"

    def _doubt(self, cell: str) -> str:
        """Return that the letters of a cell may be read wrongly; empty where they are not."""
        if cell.isascii() or not self._guessed_encoding:
            return ""
        return (
            f". The CSV is not UTF-8 and was read as {self._guessed_encoding}: if letters of this "
            "name are wrong, save the CSV as UTF-8"
        )

    @cached_property
    def _guessed_encoding(self) -> str:
        return guessed_encoding(self._file.manifest)
