"""A site's images as a person is to see them: whole, in their own size and shape, found by sample id alone."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PIL import Image

from fedward.errors import DataError
from fedward.sites.data import SPLITS
from fedward.sites.decoding import BadRow, as_image
from fedward.sites.images import open_file
from fedward.sites.manifest import read_entries
from fedward.sites.npz import read_split
from fedward.sites.site_file import ManifestSite, check_labels, check_rejected, read_site_file

LARGEST = 4096
"""Pixels of the longer side; a larger picture is reduced to it, as no browser of a tablet holds more."""


class Pictures:
    """A PNG for every usable row of a site's CSV, or every image of its npz file.

    Args:
        site_file: as for :func:`fedward.sites.load_site`.
        classes: the job's classes.

    Raises:
        DataError: the site file, its CSV or its npz cannot be used, or names classes that the job has not.
    """

    def __init__(self, site_file: Path, classes: Sequence[str]) -> None:
        file = read_site_file(site_file)
        check_labels(file, classes)
        self.site, self.classes = file.site, classes
        self.names: dict[str, str] = {}
        """The site's own words for classes -> the classes."""
        self._images: dict[str, Callable[[], Image.Image]]
        if isinstance(file, ManifestSite):
            entries, rejected, total = read_entries(file, classes)
            check_rejected(file, rejected, total)
            self.names = dict(file.labels)
            self._images = {entry.sample_id: partial(open_file, entry.path, file.rendering) for entry in entries}
        else:
            self._images = {
                f"{split}-{index}": partial(as_image, image)
                for split in SPLITS
                for index, image in enumerate(read_split(file, split)[0])
            }

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the site's images."""
        return frozenset(self._images)

    def png(self, sample_id: str) -> bytes:
        """Return an image as PNG, its longer side at most :data:`LARGEST`.

        Raises:
            DataError: the site has no such image, or its file is broken.
        """
        where = f"site {self.site}, image {sample_id}"
        if sample_id not in self._images:
            remedy = "Check the site file; ids must stay the same from run to run."
            raise DataError(where, expected="an image that the site file names", found="none", remedy=remedy)
        try:
            shown = self._images[sample_id]()
        except BadRow as bad:
            remedy = "Fix the file; `fedward doctor` lists all that cannot be read."
            raise DataError(where, expected="a whole image", found=f"{bad}", remedy=remedy) from None
        if shown.mode not in ("L", "RGB"):
            shown = shown.convert("RGB")
        shown.thumbnail((LARGEST, LARGEST))
        buffer = io.BytesIO()
        shown.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()
