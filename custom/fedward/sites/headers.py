"""What headers of DICOM files hold, for the site's own console: counts and names of tags.

No value that names anyone is shown.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedward.sites.decoding import BadRow
from fedward.sites.dicom_header import file_window, pydicom, read_header
from fedward.sites.dicom_stored import PHOTOMETRIC
from fedward.sites.files import is_dicom, series_files
from fedward.sites.patient_names import Words, words_of
from fedward.text import count, counted

_PERSON = "PN"
"""Value representation of names of persons: every tag that has it is pointed out."""
IDENTIFYING = (
    "PatientID",
    "IssuerOfPatientID",
    "OtherPatientIDs",
    "PatientBirthDate",
    "PatientBirthTime",
    "PatientAddress",
    "PatientTelephoneNumbers",
    "PatientInstitutionResidence",
    "CurrentPatientLocation",
    "PatientState",
    "AdditionalPatientHistory",
    "PatientInsurancePlanCodeSequence",
    "PatientAge",
    "PatientSex",
    "PatientWeight",
    "PatientSize",
    "EthnicGroup",
    "Occupation",
    "PatientComments",
    "MedicalRecordLocator",
    "MilitaryRank",
    "PatientReligiousPreference",
    "CountryOfResidence",
    "RegionOfResidence",
    "AccessionNumber",
    "StudyID",
    "AdmissionID",
    "InstitutionName",
    "InstitutionAddress",
    "InstitutionCodeSequence",
    "InstitutionalDepartmentName",
    "StationName",
    "DeviceSerialNumber",
    "StudyDate",
    "SeriesDate",
    "AcquisitionDate",
    "ContentDate",
    "AcquisitionDateTime",
    "StudyTime",
    "SeriesTime",
    "AcquisitionTime",
    "ContentTime",
    "StudyInstanceUID",
    "SeriesInstanceUID",
    "SOPInstanceUID",
    "FrameOfReferenceUID",
    "StudyDescription",
    "SeriesDescription",
    "ProtocolName",
    "RequestedProcedureDescription",
    "ReasonForStudy",
    "StudyComments",
    "ImageComments",
    "RequestAttributesSequence",
)
"""Other tags that may name or single out a person; DICOM PS3.15, table E.1-1, has many more."""
_PRIVATE = "private tags"
_FACTS = ("syntax", "photometric", "bits", "window", "burned")
"""What is counted of headers."""


def patient_numbers(paths: Iterable[Path]) -> list[int | None]:
    """Return a number for each file, the same for DICOM files or series of one patient.

    Numbers are in the order of the files and say nothing of the PatientID, which is not kept. It is
    None where a file names no patient. An id of several issuers is of several patients, unless some
    file does not name its issuer: then it may be of any of these, and all count as one. Ids and
    issuers may be spelt in several ways (:func:`fedward.sites.patient_names.patient_names`).
    """
    patients = [_patient(next(iter(series_files(path)), path)) for path in paths]
    without_issuer = {patient[0] for patient in patients if patient and not patient[1]}
    number_of: dict[tuple[Words, Words], int] = {}
    numbers: list[int | None] = []
    for patient in patients:
        if patient is None:
            numbers.append(None)
            continue
        patient_id, issuer = patient
        known_as = (patient_id, () if patient_id in without_issuer else issuer)
        numbers.append(number_of.setdefault(known_as, len(number_of) + 1))
    return numbers


def _patient(path: Path) -> tuple[Words, Words] | None:
    """Return the words of the id of a file's patient and of who issued it; none if nobody did."""
    if not is_dicom(path):
        return None
    try:
        header = read_header(path, ["PatientID", "IssuerOfPatientID"])
        patient = str(header.get("PatientID") or "").strip()
        issuer = str(header.get("IssuerOfPatientID") or "").strip()
    except Exception:  # the fault is reported where the image is read
        return None
    return (words_of(patient), words_of(issuer)) if patient else None


def header_notes(paths: Sequence[Path], windowed: bool) -> list[str]:
    """Return what DICOM files have in common, and which of their tags may name a person.

    Args:
        paths: of DICOM files.
        windowed: whether the site file has a window, so that those of the files are not used.
    """
    counts: dict[str, Counter[str]] = {name: Counter() for name in _FACTS}
    tags = Counter[str]()
    unreadable = 0
    for path in paths:
        try:
            header = read_header(path)
            tags.update(_identifying(header))
            facts = _facts(header)
        except Exception:  # the fault is reported where the image is read
            unreadable += 1
        else:
            for name, value in facts.items():
                counts[name][value] += 1
    files = count(len(paths), "DICOM file")
    if unreadable:
        files += f"; headers that cannot be read: {unreadable}"
    notes = [
        files,
        f"Transfer syntaxes: {counted(counts['syntax'])}",
        f"Photometric interpretations: {counted(counts['photometric'])}",
        f"Bits stored: {counted(counts['bits'])}",
        f"Windows of grey files: {counted(counts['window']) or 'no grey files'}",
    ]
    without_window = counts["window"]["none"]
    if without_window and not windowed:
        notes.append(
            f"Grey files without a window: {without_window}. Images and volumes are shown between "
            "their percentiles 1 and 99, or as stored if they have 8 bits. If the contact sheet is "
            "too dark or flat, write window: [CENTRE, WIDTH] into the site file."
        )
    return notes + _about_persons(tags, counts["burned"])


def _facts(header: Any) -> dict[str, str]:
    """Return what is counted of a header, in words of DICOM or ours: no free text of the header."""
    syntax = header.file_meta.get("TransferSyntaxUID")
    kind = header.get("PhotometricInterpretation")
    bits = header.get("BitsStored")
    burned = header.get("BurnedInAnnotation")
    facts = {
        "syntax": syntax.name if syntax in pydicom().uid.UID_dictionary else "unknown",
        "photometric": kind if kind in PHOTOMETRIC else "another",
        "bits": f"{bits}-bit" if isinstance(bits, int) else "unknown",
        "burned": burned if burned in ("YES", "NO") else "missing",
    }
    if str(kind).startswith("MONOCHROME"):
        facts["window"] = _kind_of_window(header)
    return facts


def _kind_of_window(header: Any) -> str:
    """Return what a grey file says of the greys that it is shown in."""
    if header.get("VOILUTSequence"):
        return "table"
    try:
        return "centre and width" if file_window(header) else "none"
    except BadRow:
        return "not numbers"


def _identifying(header: Any) -> set[str]:
    """Return the tags, at any depth, that have a value and may name or single out a person."""
    names = set()
    for element in header.iterall():
        if element.value in (None, "", []):
            continue
        if element.tag.is_private:
            names.add(_PRIVATE)
        elif element.VR == _PERSON or element.keyword in IDENTIFYING:
            names.add(element.keyword or str(element.tag))
    return names


def _about_persons(tags: Counter[str], burned: Counter[str]) -> list[str]:
    notes = []
    if tags:
        others = (*IDENTIFYING, _PRIVATE)
        persons = sorted(tags.keys() - set(others))
        named = ", ".join(f"{name} {tags[name]}" for name in (*persons, *others) if tags[name])
        notes.append(
            f"Headers may name persons. Tags with a value, and in how many files: {named}. "
            "fedward reads pixels and sends nothing of a header. Remove the tags (DICOM PS3.15, "
            "annex E) before the files go anywhere."
        )
    if burned["YES"] or burned["missing"]:
        notes.append(
            f"BurnedInAnnotation is YES in {count(burned['YES'], 'file')} and missing in "
            f"{burned['missing']}. Look at these for names and dates within the picture, and leave "
            "out or mask those that have any: a network learns them."
        )
    return notes
