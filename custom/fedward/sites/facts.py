"""What a site's files say of its images besides pixels and labels: sizes on disk, patients, chosen
columns.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedward.sites.data import SPLITS
from fedward.sites.decoding import opened
from fedward.sites.dicom import read_header
from fedward.sites.files import is_dicom
from fedward.sites.manifest import read_entries
from fedward.sites.npz import read_split
from fedward.sites.site_file import ManifestSite, NpzSite

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind


class Size(NamedTuple):
    """Of one file, by its header."""

    width: int
    """Pixels, before the orientation of the header is applied."""
    height: int
    grey: bool


class Fact(NamedTuple):
    """About the images of one file."""

    size: Size | None = None
    """None: its header does not say, as that of a volume."""
    group: str = ""
    """Patient or lesion; empty where the site does not say."""
    told: tuple[str, ...] = ()
    """Cells of the columns that the site tells of, in the site file's order."""


def read_facts(
    file: ManifestSite | NpzSite, classes: Sequence[str], label_kind: "LabelKind"
) -> Mapping[str, Fact]:
    """Return sample id of a file -> facts, from headers alone.

    Raises:
        DataError: the site's files cannot be used; see :func:`fedward.sites.load_site`.
    """
    if isinstance(file, NpzSite):
        return _of_arrays(file, label_kind)
    facts = dict[str, Fact]()
    for entry in read_entries(file, classes, label_kind)[0]:
        told = tuple(entry.cells[column] for column in file.survey_columns)
        facts[entry.sample_id] = Fact(
            _size(entry.path), entry.group if file.columns.group else "", told
        )
    return facts


def _of_arrays(file: NpzSite, label_kind: "LabelKind") -> dict[str, Fact]:
    facts = dict[str, Fact]()
    for split in (
        SPLITS if file.indices is None else [name for name in SPLITS if file.indices.get(name)]
    ):
        images, _ = read_split(file, split, label_kind)
        fact = Fact(Size(images.shape[2], images.shape[1], images.shape[3:] != (3,)))
        facts |= {f"{split}-{index}": fact for index in range(len(images))}
    return facts


def _size(path: Path) -> Size | None:
    try:
        if is_dicom(path):
            header = read_header(path, ["Rows", "Columns", "PhotometricInterpretation"])
            kind = str(header.PhotometricInterpretation)
            return Size(int(header.Columns), int(header.Rows), kind.startswith("MONOCHROME"))
        with opened(path) as image:
            return Size(*image.size, image.mode[0] in "1LIF")
    except (
        Exception
    ):  # whatever a damaged header leads to: where the pixels are read the site hears of it
        return None
