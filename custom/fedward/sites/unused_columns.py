"""Columns of a CSV that nothing uses, although they seem to say whose an image is."""

import re
from collections.abc import Callable, Mapping, Sequence

from fedward.sites.patient_words import PATIENT_WORDS, are_of_few
from fedward.sites.site_csv import Entry
from fedward.sites.site_file import ManifestSite

_OF_ONE_PATIENT = ("lesion", "study", "exam", "accession", "nhs", "fall")
"""Further words for what belongs to one patient, and says so of a column alone."""
_WORDS = frozenset(
    f"{word}{ending}"
    for word in (*PATIENT_WORDS, *_OF_ONE_PATIENT)
    for ending in ("", "s", "id", "no", "nr", "name", "nummer")
)
"""Words that a column of patients, or of what belongs to one patient, is named by."""
_ID = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9_.\-]+")
"""An identifier such as ``P-012``: letters and digits without spaces."""


def like_patients(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns whose values may be patients, in their order.

    At least one value repeats and another differs. Besides, the column's name has a word for a
    patient; or each value is an identifier of letters and digits that few images share.

    Args:
        columns: name of a column that is used for nothing -> its cells, row by row.
    """
    return [name for name, cells in columns.items() if _may_be_patients(name, cells)]


def _may_be_patients(name: str, cells: Sequence[str]) -> bool:
    values = [cell for cell in cells if cell]
    different = set(values)
    if not 1 < len(different) < len(values):
        return False
    # patientId and PATIENT_ID have the same words; SubjectNr has subject and nr.
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    words = set(re.split(r"[^a-z]+", spaced.lower()))
    if words & _WORDS:
        return True
    return are_of_few(values) and all(_ID.fullmatch(value) for value in different)


def unused_like_patients(file: ManifestSite, entries: Sequence[Entry]) -> list[str]:
    """Return the columns of a site's CSV that may be patients, where no images stay together.

    Args:
        file: the site's file.
        entries: usable rows of its CSV.
    """
    groups = {entry.group for entry in entries}
    if not entries or len(groups) < len(entries):
        return []
    columns = file.columns
    labels = columns.label if isinstance(columns.label, tuple) else (columns.label,)
    used = {columns.sample_id, columns.image, columns.group, columns.split or "split", *labels}
    used.update(file.subgroups)
    unused = [name for name in entries[0].cells if name and name not in used]
    return like_patients({name: [entry.cells[name] for entry in entries] for name in unused})


def patients_note(names: Sequence[str], how_to_use: Callable[[str], str]) -> list[str]:
    """Return a note on columns that may be patients; empty without any.

    Args:
        names: of the columns.
        how_to_use: returns how a column is named as that of patients.
    """
    if not names:
        return []
    which = "column" if len(names) == 1 else "columns"
    verb = "says" if len(names) == 1 else "say"
    return [
        f"Nothing uses the {which} {', '.join(names)}, which perhaps {verb} whose an image is. "
        "Images of one patient would then be in training and in test, and the numbers too good. "
        f"If so, use it: {how_to_use(names[0])}."
    ]
