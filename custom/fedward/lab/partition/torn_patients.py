"""Whether the groups of a data set divide the images of a patient."""

from collections import Counter
from collections.abc import Sequence

from fedward.sites.patient_words import are_of_few


def are_torn(patients: Sequence[str], groups: Sequence[str]) -> bool:
    """Return whether some patients have several groups.

    Args:
        patients: of N images; empty where nobody knows. They count only if each has few images.
        groups: of the same images; empty for an image without one.
    """
    pairs = set(zip(patients, groups, strict=True))
    groups_of = Counter(patient for patient, group in pairs if patient and group)
    return any(number > 1 for number in groups_of.values()) and are_of_few(patients)
