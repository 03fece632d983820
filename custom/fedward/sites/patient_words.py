"""Words by which columns, folders and files of patients are called."""

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
MOST_IMAGES_OF_ONE = 20
"""Images that a patient has on average at most, where no word says that these are patients."""
