"""What a site's files say of its images besides pixels and labels: sizes, patients, columns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedward.sites.decoding import open_with_pillow
from fedward.sites.dicom_header import read_header
from fedward.sites.files import is_dicom
from fedward.sites.npz import site_images
from fedward.sites.site_csv import read_rows
from fedward.sites.site_file import ManifestSite, NpzSite
from fedward.text import composed

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind


class Size(NamedTuple):
    """Size of the images of one file, by its header."""

    width: int
    """In pixels, before the orientation of the header is applied."""
    height: int
    """Likewise."""
    grey: bool


class Fact(NamedTuple):
    """What is known of the images of one file."""

    size: Size | None = None
    """None where its header does not say, as for a volume."""
    group: str = ""
    """Patient or lesion; empty where the site does not say."""
    told: tuple[str, ...] = ()
    """Cells of the site file's ``survey_columns``, in that order."""


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
    for entry in read_rows(file, classes, label_kind).entries:
        facts[entry.sample_id] = Fact(
            size=_size(entry.path),
            group=entry.group if file.columns.group else "",
            told=tuple(composed(entry.cells[column]) for column in file.survey_columns),
        )
    return facts


def _of_arrays(file: NpzSite, label_kind: "LabelKind") -> dict[str, Fact]:
    facts = dict[str, Fact]()
    for images, id_of in site_images(file, label_kind):
        height, width = images.shape[1:3]
        fact = Fact(Size(width, height, grey=images.shape[3:] != (3,)))
        facts |= dict.fromkeys(id_of.values(), fact)
    return facts


def _size(path: Path) -> Size | None:
    try:
        if is_dicom(path):
            header = read_header(path, ["Rows", "Columns", "PhotometricInterpretation"])
            grey = str(header.PhotometricInterpretation).startswith("MONOCHROME")
            return Size(int(header.Columns), int(header.Rows), grey)
        with open_with_pillow(path) as image:
            width, height = image.size
            return Size(width, height, grey=image.mode[0] in "1LIF")
    except Exception:
        # A damaged header may lead to any error. It is reported where the pixels are read.
        return None
