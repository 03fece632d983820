"""DICOM files as scanners write them, and as they should not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pydicom = pytest.importorskip("pydicom", reason="pip install fedward[dicom]")

LITTLE_ENDIAN = "1.2.840.10008.1.2.1"
RLE = "1.2.840.10008.1.2.5"
JPEG_2000 = "1.2.840.10008.1.2.4.90"
_SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"


def dataset(values: np.ndarray, **tags: Any) -> Any:
    """Return an image of stored values, (H, W) or (H, W, 3), 8 to 32 bits; None omits a tag."""
    meta = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = _SECONDARY_CAPTURE
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    meta.TransferSyntaxUID = LITTLE_ENDIAN
    found = pydicom.Dataset()
    found.file_meta = meta
    bits = 8 * values.dtype.itemsize
    usual = {
        "SOPClassUID": _SECONDARY_CAPTURE,
        "SOPInstanceUID": "1.2.3",
        "Rows": values.shape[0],
        "Columns": values.shape[1],
        "SamplesPerPixel": 3 if values.ndim == 3 else 1,
        "PlanarConfiguration": 0 if values.ndim == 3 else None,
        "PhotometricInterpretation": "RGB" if values.ndim == 3 else "MONOCHROME2",
        "BitsAllocated": bits,
        "BitsStored": bits,
        "HighBit": tags.get("BitsStored", bits) - 1,
        "PixelRepresentation": int(np.issubdtype(values.dtype, np.signedinteger)),
        "PixelData": values.tobytes(),
    }
    for name, value in {**usual, **tags}.items():
        if value is not None:
            setattr(found, name, value)
    found["PixelData"].VR = "OB" if bits == 8 else "OW"
    return found


def table(first: int, values: np.ndarray, bits: int) -> Any:
    """Return a modality or VOI table: the first mapped value, and the values of it and the next."""
    item = pydicom.Dataset()
    item.LUTDescriptor = [len(values), first, bits]
    item.LUTData = values.astype("<u2").tobytes()
    item["LUTDescriptor"].VR = "US"
    item["LUTData"].VR = "OW"
    return [item]


def save(path: Path, values: np.ndarray, syntax: str = LITTLE_ENDIAN, **tags: Any) -> Path:
    """Write an image of stored values, compressed if the transfer syntax is."""
    made = dataset(values, **tags)
    if syntax != LITTLE_ENDIAN:
        made.compress(syntax, generate_instance_uid=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.save_as(path, enforce_file_format=True)
    return path


def with_raw(made: Any, **tags: bytes) -> Any:
    """Return a dataset with values as bytes, which need not be what the standard asks for."""
    for name, value in tags.items():
        tag = pydicom.tag.Tag(name)
        kind = pydicom.datadict.dictionary_VR(tag)
        made[tag] = pydicom.dataelem.RawDataElement(tag, kind, len(value), value, 0, False, True)
    return made
