"""The rules that a site's file says."""

from pathlib import Path

from fedward.annotation.rules import Rules
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.sites.site_file import ManifestSite, read_site_file
from fedward.sites.table import read_table


def read_rules(site_file: Path, label_kind: LabelKind = ONE_LABEL) -> Rules:
    """Return the rules of a site; an image with an empty cell in the column of lesions stands
    alone.

    ``label_kind``: what an image of the job may show.

    Raises:
        DataError: the site file or its CSV cannot be read, or the CSV has no such column.
    """
    file = read_site_file(site_file)
    lesions = (
        _lesions(file, file.reading.lesion)
        if isinstance(file, ManifestSite) and file.reading.lesion
        else {}
    )
    return Rules(file.reading.readers, frozenset(file.reading.adjudicators), lesions, label_kind)


def _lesions(file: ManifestSite, column: str) -> dict[str, tuple[str, str]]:
    named = [file.columns.sample_id, column, *filter(None, [file.columns.group])]
    records, _ = read_table(file.manifest, named, file.site)
    # Sites number the lesions of a patient, so the patient belongs to the lesion's name.
    return {
        record.cells[file.columns.sample_id]: (
            record.cell(file.columns.group),
            record.cells[column],
        )
        for record in records
        if record.cells[column]
    }
