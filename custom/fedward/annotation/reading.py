"""Reading the rules of a queue from a site's file."""

from pathlib import Path

from fedward.annotation.rules import Rules
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.labels import SEPARATOR
from fedward.sites.site_file import ManifestSite, read_site_file
from fedward.sites.table import read_table
from fedward.text import composed


def read_rules(site_file: Path, label_kind: LabelKind = ONE_LABEL) -> Rules:
    """Return the rules of a site.

    An image with an empty cell in the column of lesions shares its answer with no other.

    Args:
        site_file: the file that describes the site's images.
        label_kind: what an image of the job may show.

    Raises:
        DataError: the site file or its CSV cannot be read, or the CSV has no such column.
    """
    file = read_site_file(site_file)
    lesions: dict[str, tuple[str, str]] = {}
    if isinstance(file, ManifestSite) and file.reading.lesion:
        lesions = _lesions(file, file.reading.lesion)
    return Rules(
        readers=file.reading.readers,
        adjudicators=frozenset(file.reading.adjudicators),
        lesions=lesions,
        label_kind=label_kind,
        repeat=file.reading.repeat,
        known={
            sample_id: SEPARATOR.join(sorted(label_kind.split(label)))
            for sample_id, label in file.reading.known.items()
        },
    )


def _lesions(file: ManifestSite, column: str) -> dict[str, tuple[str, str]]:
    """Return image -> its patient and lesion, for the rows that name a lesion in ``column``."""
    columns = [file.columns.sample_id, column]
    if file.columns.group:
        columns.append(file.columns.group)
    records, _ = read_table(file.manifest, columns, file.site)
    lesions: dict[str, tuple[str, str]] = {}
    for record in records:
        lesion = composed(record.cells[column])
        if lesion:
            # Sites number the lesions of a patient, so the patient belongs to the lesion's name.
            patient = composed(record.cell(file.columns.group))
            lesions[record.cells[file.columns.sample_id]] = (patient, lesion)
    return lesions
