"""A site's images as a person is to see them: whole, in their own size and shape, found by sample id alone."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from fedward.errors import DataError
from fedward.sites.assemble import check_set_aside
from fedward.sites.data import SPLITS, BadRow, Pixels
from fedward.sites.images import open_image
from fedward.sites.manifest import read_rows
from fedward.sites.npz import class_names, read_split
from fedward.sites.site_file import ManifestSite, read_site_file

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
        self.site = f"{file.site}"
        self.names: dict[str, str] = {}
        """The site's own words for classes -> the classes."""
        self._images: dict[str, Callable[[], Image.Image]]
        if isinstance(file, ManifestSite):
            rows, aside, total = read_rows(file, classes)
            check_set_aside(f"site {file.site}, {file.manifest}", aside, total, file.max_set_aside)
            self.names = dict(file.labels)
            self._images = {row.sample_id: partial(open_image, row.path) for row in rows}
        else:  # npz
            class_names(file, classes)
            splits = {split: read_split(file, split)[0] for split in SPLITS}
            self._images = {
                f"{split}-{index}": partial(_take, image)
                for split, images in splits.items()
                for index, image in enumerate(images)
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
        try:
            image = self._images[sample_id]
        except KeyError:
            where = f"site {self.site}, image {sample_id}"
            remedy = "Check the site file; ids must stay the same from run to run."
            raise DataError(where, expected="an image that the site file names", found="none", remedy=remedy) from None
        try:
            shown = image()
        except BadRow as bad:
            where = f"site {self.site}, image {sample_id}"
            remedy = "Fix the file; `fedward doctor` lists all that cannot be read."
            raise DataError(where, expected="a whole image", found=f"{bad}", remedy=remedy) from None
        if shown.mode not in ("L", "RGB"):
            shown = shown.convert("RGB")
        shown.thumbnail((LARGEST, LARGEST))
        buffer = io.BytesIO()
        shown.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()


def _take(image: Pixels) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image[..., 0] if image.shape[2:] == (1,) else image))
