"""What headers of DICOM files say, for the site's own console: counts, names of tags, no value that
names anyone.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedward.sites.dicom import PHOTOMETRIC, file_window, pydicom, read_header
from fedward.sites.files import is_dicom, series_files

IDENTIFYING = (
    "PatientName",
    "PatientID",
    "IssuerOfPatientID",
    "OtherPatientIDs",
    "OtherPatientNames",
    "PatientBirthName",
    "PatientBirthDate",
    "PatientBirthTime",
    "PatientAddress",
    "PatientTelephoneNumbers",
    "PatientMotherBirthName",
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
    "ResponsiblePerson",
    "AccessionNumber",
    "StudyID",
    "AdmissionID",
    "RequestingPhysician",
    "PhysiciansOfRecord",
    "ReferringPhysicianName",
    "PerformingPhysicianName",
    "NameOfPhysiciansReadingStudy",
    "OperatorsName",
    "InstitutionName",
    "InstitutionAddress",
    "InstitutionalDepartmentName",
    "StationName",
    "DeviceSerialNumber",
    "StudyDate",
    "SeriesDate",
    "AcquisitionDate",
    "ContentDate",
    "AcquisitionDateTime",
    "StudyTime",
    "ContentTime",
    "StudyInstanceUID",
    "SeriesInstanceUID",
    "SOPInstanceUID",
    "FrameOfReferenceUID",
    "StudyDescription",
    "SeriesDescription",
    "ImageComments",
    "RequestAttributesSequence",
)
"""Tags that may name or single out a person, most of DICOM PS3.15, table E.1-1; not all of them."""
_PRIVATE = "private tags"


def patient_numbers(paths: Iterable[Path]) -> list[int | None]:
    """Return a number for each file, the same for DICOM files or series of one patient; None where
    none is named.

    Numbers are in the order of the files and say nothing of the PatientID, which is forgotten.
    """
    known: dict[tuple[str, str], int] = {}
    numbers: list[int | None] = []
    for path in paths:
        patient = _patient(next(iter(series_files(path)), path))
        numbers.append(known.setdefault(patient, len(known) + 1) if patient else None)
    return numbers


def _patient(path: Path) -> tuple[str, str] | None:
    if not is_dicom(path):
        return None
    try:
        header = read_header(path, ["PatientID", "IssuerOfPatientID"])
        name, issuer = (
            str(header.get(tag) or "").strip() for tag in ("PatientID", "IssuerOfPatientID")
        )
    except Exception:  # whatever is wrong with it is told where the image is read
        return None
    return (name, issuer) if name else None


def header_notes(paths: Sequence[Path], windowed: bool) -> list[str]:
    """Return what DICOM files have in common and what of a person stands in their headers.

    Args:
        paths: of DICOM files.
        windowed: whether the site file has a window, so that those of the files are not used.
    """
    seen: dict[str, Counter[str]] = {
        name: Counter() for name in ("syntax", "photometric", "bits", "window", "burned")
    }
    tags = Counter[str]()
    unread = 0
    for path in paths:
        try:
            header = read_header(path)
            tags.update(_identifying(header))
            facts = _facts(header)
        except Exception:  # told where the image is read
            unread += 1
        else:
            for name, value in facts.items():
                seen[name][value] += 1
    found = {
        name: ", ".join(f"{value} {count}" for value, count in counts.most_common())
        for name, counts in seen.items()
    }
    notes = [
        f"{len(paths)} DICOM files"
        + (f", of which {unread} have a header that cannot be read" if unread else "")
    ]
    notes += [
        f"Transfer syntaxes: {found['syntax']}",
        f"Photometric interpretations: {found['photometric']}",
    ]
    notes += [
        f"Bits stored: {found['bits']}",
        f"Windows of grey files: {found['window'] or 'no grey files'}",
    ]
    if seen["window"]["none"] and not windowed:
        notes.append(
            f"{seen['window']['none']} grey files have no window: images show all their stored bits, volumes their "
            "percentiles. If the contact sheet is too dark or flat, write window: [CENTRE, WIDTH] into the site file."
        )
    return notes + _about_persons(tags, seen["burned"])


def _facts(header: Any) -> dict[str, str]:
    """Return what is counted of a header, in words of DICOM or ours, whatever text stands there."""
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
        own = file_window(header)
        facts["window"] = (
            "table" if header.get("VOILUTSequence") else "centre and width" if own else "none"
        )
    return facts


def _identifying(header: Any) -> set[str]:
    """Return the names of tags, at any depth, that have a value and may name or single out a
    person.
    """
    filled = [element for element in header.iterall() if element.value not in (None, "", [])]
    names = {element.keyword for element in filled if element.keyword in IDENTIFYING}
    return names | {_PRIVATE for element in filled if element.tag.is_private}


def _about_persons(tags: Counter[str], burned: Counter[str]) -> list[str]:
    notes = []
    if tags:
        named = ", ".join(f"{name} {tags[name]}" for name in (*IDENTIFYING, _PRIVATE) if tags[name])
        notes.append(
            f"Headers may name persons. Tags with a value, and in how many files: {named}. fedward reads pixels "
            "and sends nothing of a header. Remove the tags (DICOM PS3.15, annex E) before the files go anywhere."
        )
    if burned["YES"] or burned["missing"]:
        notes.append(
            f"BurnedInAnnotation is YES in {burned['YES']} files and missing in {burned['missing']}. Look at these for "
            "names and dates within the picture, and leave out or mask those that have any: a network learns them."
        )
    return notes
