"""Columns of a CSV that nothing uses, although they seem to say whose an image is."""

import re
from collections.abc import Callable, Mapping, Sequence

from fedward.sites.label_texts import without_accents
from fedward.sites.patient_words import PATIENT_WORDS, are_of_few
from fedward.sites.site_csv import Entry
from fedward.sites.site_file import ManifestSite

_OF_ONE_PATIENT = ("lesion", "study", "exam", "accession", "nhs", "fall")
"""Further words for what belongs to one patient, and says so of a column alone."""
_IDS = ("id", "no", "nr", "num", "number", "name", "nummer", "code", "key", "uid", "pseudonym")
"""Words for what tells patients apart."""
_OTHER_LANGUAGES = (
    *("patienten", "patientinnen", "probanden"),
    *("patiente", "paciente", "pacient", "pacjent", "paziente", "sujet", "sujeto"),
)
"""Singular and plural words for a patient, without accents, as in ``Patientennummer``."""


def _with_ids(*words: str) -> frozenset[str]:
    """Return words alone and as they form one with a word of ids, such as ``patientid``."""
    return frozenset(f"{word}{ending}" for word in words for ending in ("", "s", *_IDS))


_PATIENTS = _with_ids(*PATIENT_WORDS, *_OTHER_LANGUAGES)
"""Words that a column of patients is named by."""
_WORDS = _PATIENTS | _with_ids(*_OF_ONE_PATIENT)
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
    if not _some_repeat(values):
        return False
    if _words(name) & _WORDS:
        return True
    return are_of_few(values) and all(_ID.fullmatch(value) for value in set(values))


def called_patients(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns that are called as those of patients and may be so, in their order.

    ``Patienten-ID`` and ``MRN`` are called so; ``Patient Age`` and ``study_id`` are not. At least
    one value repeats and another differs, and few images share one.

    Args:
        columns: name of a column that is used for nothing -> its cells, row by row.
    """
    return [
        name
        for name, cells in columns.items()
        if _words(name) & _PATIENTS
        and _words(name) <= _PATIENTS.union(_IDS)
        and _some_repeat(list(filter(None, cells)))
        and are_of_few(cells)
    ]


def _some_repeat(values: Sequence[str]) -> bool:
    """Return whether a value repeats and another differs."""
    return 1 < len(set(values)) < len(values)


def _words(name: str) -> set[str]:
    """Return the words of a column's name, in lower case and without accents."""
    # patientId and PATIENT_ID have the same words; SubjectNr has subject and nr.
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return set(re.findall(r"[a-z]+", without_accents(spaced)))


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
