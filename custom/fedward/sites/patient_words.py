"""How columns, folders and files of patients are called, and which images are of one patient."""

from collections import Counter
from collections.abc import Iterable, Sequence

PATIENT_WORDS = (
    "patient",
    "patientin",
    "pat",
    "pt",
    "pid",
    "subject",
    "subj",
    "participant",
    "person",
    "proband",
    "probandin",
    "individual",
    "case",
    "mrn",
    "donor",
    "animal",
    "mouse",
)
"""Singular words, in lower case, for a patient or what is as good as one."""
_MOST_IMAGES_OF_ONE = 20
"""Images that a patient has on average at most, where no word says that these are patients."""


def are_of_few(ids: Iterable[str]) -> bool:
    """Return whether an id is of few images on average, as that of a patient or lesion is.

    It is so without any id.

    Args:
        ids: of N images; empty where an image has none.
    """
    known = [own_id for own_id in ids if own_id]
    return len(known) <= _MOST_IMAGES_OF_ONE * len(set(known))


def are_torn(patients: Sequence[str], groups: Sequence[str]) -> bool:
    """Return whether some patients have several groups.

    Args:
        patients: of N images; empty where nobody knows. They count only if each has few images.
        groups: of the same images; empty for an image without one.
    """
    pairs = set(zip(patients, groups, strict=True))
    groups_of = Counter(patient for patient, group in pairs if patient and group)
    return any(number > 1 for number in groups_of.values()) and are_of_few(patients)
