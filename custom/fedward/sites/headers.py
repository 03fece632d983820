"""What headers of DICOM files hold, for the site's own console: counts and names of tags.

No value that names anyone is shown.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedward.sites.decoding import BadRow
from fedward.sites.dicom_header import file_window, pydicom, read_header
from fedward.sites.dicom_stored import PHOTOMETRIC
from fedward.sites.files import is_dicom, series_files
from fedward.sites.label_texts import group_or_empty
from fedward.sites.patient_names import Words, words_of
from fedward.text import count, counted

_Name = TypeVar("_Name", bound=Hashable)
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
_ANONYMOUS = frozenset({"anon", "anonym", "anonymous", "anonymized", "anonymised", "test", "0"})
"""What programs write as the PatientID of anybody."""
_PRIVATE = "private tags"
_FACTS = ("syntax", "photometric", "bits", "window", "burned")
"""What is counted of headers."""


class DicomPatients(NamedTuple):
    """Whose N files are, as far as their headers say."""

    numbers: Sequence[int | None]
    """(N,) the same number for files of one patient, from 1 in the order of the files.

    They say nothing of the headers. None: nobody knows, or the file is not DICOM.
    """
    ignored: int
    """Number of files whose PatientID is anybody's, or that of all files of their site."""
    by_study: int
    """Number of files that have a number by their study alone."""
    studies: int
    """Number of these studies."""

    @property
    def notes(self) -> list[str]:
        """What a person should know of them."""
        notes = []
        if self.ignored:
            verb = "has" if self.ignored == 1 else "have"
            notes.append(
                f"{count(self.ignored, 'DICOM file')} {verb} a PatientID that is ignored: "
                "ANONYMOUS or the like, or the same in all files."
            )
        if self.by_study:
            verb = "names" if self.by_study == 1 else "name"
            if self.by_study == 1:
                studies = "its study"
            elif self.studies == 1:
                studies = "their study"
            else:
                studies = f"each of their {self.studies} studies"
            notes.append(
                f"{count(self.by_study, 'DICOM file')} {verb} no patient, so {studies} counts "
                "as a patient. One patient may have several studies."
            )
        return notes


class _Header(NamedTuple):
    """What a DICOM file says of its patient; each is empty where nobody wrote it."""

    has_id: bool = False
    """Whether it has a PatientID, even one of anybody."""
    patient: Words = ()
    issuer: Words = ()
    study: str = ""


def dicom_patients(paths: Iterable[Path], sites: Iterable[str] = repeat("")) -> DicomPatients:
    """Return whose files or series are.

    A file's patient is that of its PatientID. Without one, as where it is ``ANONYMOUS``, or if all
    files of a site have the same, it is that of its StudyInstanceUID, which counts likewise. An id
    of several issuers is of several patients, unless some file does not name its issuer: then it
    may be of any of these, and all count as one. Ids and issuers may be spelt in several ways
    (:func:`fedward.sites.patient_names.patient_names`).

    Args:
        paths: of the files, or folders of series.
        sites: site of each; by default all are of one.
    """
    headers = [_header(next(iter(series_files(path)), path)) for path in paths]
    site_of = list(islice(sites, len(headers)))
    without_issuer = {header.patient for header in headers if not header.issuer}
    named = [
        (header.patient, () if header.patient in without_issuer else header.issuer)
        if header.patient
        else None
        for header in headers
    ]
    patients = _telling(named, site_of)
    studies = _telling([header.study or None for header in headers], site_of)
    patient_of = {
        study: patient
        for study, patient in zip(studies, patients, strict=True)
        if study and patient
    }
    keys = [
        patient or (study and patient_of.get(study, study))
        for study, patient in zip(studies, patients, strict=True)
    ]
    number_of = {key: number for number, key in enumerate(dict.fromkeys(filter(None, keys)), 1)}
    by_study = [key for key in keys if isinstance(key, str)]
    return DicomPatients(
        [number_of[key] if key else None for key in keys],
        ignored=sum(header.has_id for header in headers) - sum(map(bool, patients)),
        by_study=len(by_study),
        studies=len(set(by_study)),
    )


def _telling(names: Sequence[_Name | None], sites: Sequence[str]) -> list[_Name | None]:
    """Return what files name, but None at sites where several files have one name and no other."""
    names_of = defaultdict[str, list[_Name]](list)
    for name, site in zip(names, sites, strict=True):
        if name:
            names_of[site].append(name)
    nothing = {site for site, own in names_of.items() if len(own) > 1 and len(set(own)) == 1}
    return [None if site in nothing else name for name, site in zip(names, sites, strict=True)]


def _header(path: Path) -> _Header:
    """Return what a file says of its patient; nothing if it is not DICOM."""
    if not is_dicom(path):
        return _Header()
    try:
        header = read_header(path, ["PatientID", "IssuerOfPatientID", "StudyInstanceUID"])
        patient, issuer, study = (
            str(header.get(tag) or "").strip()
            for tag in ("PatientID", "IssuerOfPatientID", "StudyInstanceUID")
        )
    except Exception:  # the fault is reported where the image is read
        return _Header()
    words = words_of(group_or_empty(patient))
    is_somebody = not _ANONYMOUS.issuperset(words)
    return _Header(bool(patient), words if is_somebody else (), words_of(issuer), study)


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
