"""How columns, folders and files of patients are called, and which images are of one patient."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fedward.sites.label_texts import without_accents


def _words_in(table: Mapping[str, str]) -> frozenset[str]:
    """Return the words of all lines of a table, which are separated by blanks."""
    return frozenset(word for line in table.values() for word in line.split())


PATIENT_WORDS = _words_in(
    {
        "English": "patient pat pt pid subject subj participant person individual case mrn donor",
        "animals": "animal mouse",
        "German": "patientin patienten patientinnen proband probandin probanden fall",
        "French": "patiente sujet",
        "Spanish": "paciente sujeto",
        "Italian": "paziente",
        "Czech": "pacient",
        "Polish": "pacjent",
    }
)
"""Words, in lower case and without accents, for a patient or what is as good as one.

They are singular, or part of a compound such as ``Patientennummer``.
"""
_OF_ONE_PATIENT = _words_in(
    {"lesion, visit": "lesion study exam accession", "numbers of patients": "nhs ipp nhc"}
)
"""Further words for what belongs to one patient, and says so of a column alone."""
_OF_PERSONS = _words_in(
    {
        "names, English": "name surname",
        "names, German": "vorname nachname",
        "names, French": "nom prenom",
        "names, Spanish": "nombre apellido apellidos",
        "names, Italian": "cognome",
        "birthdays": "dob birthdate geburtsdatum",
    }
)
"""Words that are the whole name of a column that says whose an image is, or what it shows."""
_IDS = ("id", "no", "nr", "num", "number", "name", "nummer", "code", "key", "uid", "pseudonym")
"""Words for what tells patients apart."""
ATTRIBUTE_WORDS = _words_in(
    {
        "sex": "sex gender geschlecht sexe sesso sexo",
        "age": "age alter edad",
        "hospital": "hospital clinic clinique klinik site center centre zentrum",
        "camera": "camera kamera device scanner gerat",
        "side of the body": "side seite",
        "part of the data": "split fold",
        "time": "date datum year jahr",
    }
)
"""Words, without accents, that name columns with few values that are not labels."""
_OF_PATIENTS = ATTRIBUTE_WORDS | _words_in(
    {
        "body": "weight height size bmi gewicht grosse poids peso",
        "person": "birth dob race ethnicity country history",
        "disease": "status type class label diagnosis stage grade",
        "picture": "position orientation view",
        "study": "group cohort consent comment comments count",
    }
)
"""Words for what several patients have in common, or what else is said of them."""
_MOST_IMAGES_OF_ONE = 20
"""Images that a patient has on average at most, where no word says that these are patients."""
_FEWEST_PATIENTS = 5
"""Different values that a column of patients has at least: ``case`` may say yes or no."""


def _with_ids(*words: str) -> frozenset[str]:
    """Return words alone and as they form one with a word of ids, such as ``patientid``."""
    return frozenset(f"{word}{ending}" for word in words for ending in ("", "s", *_IDS))


_PATIENTS = _with_ids(*PATIENT_WORDS)
"""Words that a column of patients is named by."""
_WORDS = _PATIENTS | _with_ids(*_OF_ONE_PATIENT)
"""Words that a column of patients, or of what belongs to one patient, is named by."""


def is_called_patients(column: str) -> bool:
    """Return whether a column is called as one of patients.

    ``Numéro de patient`` and ``MRN`` are called so; ``Patient Age`` and ``study_id`` are not.
    """
    words = _words(column)
    return bool(words & _PATIENTS) and words.isdisjoint(_OF_PATIENTS)


def speaks_of_one_patient(column: str) -> bool:
    """Return whether a column's name has a word for a patient, or for what belongs to one."""
    return bool(_words(column) & _WORDS)


def may_be_of_persons(column: str) -> bool:
    """Return whether a column's name is a word for names or birthdays, perhaps of patients."""
    return without_accents(column) in _OF_PERSONS


def _words(name: str) -> set[str]:
    """Return the words of a column's name, in lower case and without accents."""
    # patientId and PATIENT_ID have the same words; SubjectNr has subject and nr.
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return set(re.findall(r"[a-z]+", without_accents(spaced)))


def are_of_few(ids: Iterable[str]) -> bool:
    """Return whether an id is of few images on average, as that of a patient or lesion is.

    It is so without any id. Videos and volumes have more images: where a word says that the ids
    are patients, their number says nothing.

    Args:
        ids: of N images; empty where an image has none.
    """
    known = [own_id for own_id in ids if own_id]
    return len(known) <= _MOST_IMAGES_OF_ONE * len(set(known))


def are_torn(patients: Sequence[str], groups: Sequence[str]) -> bool:
    """Return whether some patients have several groups.

    Args:
        patients: of N images; empty where nobody knows. They count only if they are five or more.
        groups: what each of the images stays together with.
    """
    pairs = {pair for pair in zip(patients, groups, strict=True) if pair[0]}
    groups_of = Counter(patient for patient, _ in pairs)
    return len(groups_of) >= _FEWEST_PATIENTS and len(pairs) > len(groups_of)
