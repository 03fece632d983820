"""Look-up tables of DICOM files: of the modality, of the values of interest, and of colours."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedward.sites.decoding import BadRow
from fedward.sites.dicom_header import pydicom

_CHANNELS = ("Red", "Green", "Blue")
PALETTES = [
    f"{prefix}PaletteColorLookupTable{suffix}"
    for channel in _CHANNELS
    for prefix, suffix in (
        (channel, "Descriptor"),
        (channel, "Data"),
        (f"Segmented{channel}", "Data"),
    )
]
"""The tags of palettes."""
_MOST_ENTRIES = 2**16
"""Entries of a table at most, as in the standard."""


class Table(NamedTuple):
    """A look-up table, of DICOM PS3.3, C.11.1 and C.11.2."""

    first: int
    """The lowest value that the table maps."""
    entries: npt.NDArray[np.unsignedinteger[Any]]
    """What it and the following values become; values outside become the first or the last."""

    def applied(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what values, of any shape, become."""
        first = self.first
        if first >= 2**15 and values.size and (values.min() < 0 or values.max() < first):
            # The first value is negative, but written as a number without a sign. Otherwise the
            # table would map none of the values, or could not map those below zero.
            first -= 2**16
        places = np.clip(np.rint(values) - first, 0, len(self.entries) - 1)
        return np.asarray(self.entries[places.astype(np.intp)])

    @property
    def white(self) -> int:
        """The largest number of as many bits as the largest entry needs, but of 8 at least.

        Many tables hold fewer bits than their descriptor says; scaled by it they would be dark.
        """
        bits = max(8, int(self.entries.max()).bit_length())
        return int(2**bits - 1)


def sequence_table(header: Any, name: str, little_endian: bool) -> Table | None:
    """Return the first table of a sequence that has data; None without one.

    Args:
        header: of the file or frame.
        name: ``ModalityLUTSequence`` or ``VOILUTSequence``.
        little_endian: how the file stores numbers.

    Raises:
        BadRow: the table is damaged.
    """
    for item in header.get(name) or ():
        if item.get("LUTDescriptor") and "LUTData" in item:
            return _table(item, "LUTDescriptor", "LUTData", little_endian)
    return None


def colours(dataset: Any, stored: npt.NDArray[Any], little_endian: bool) -> npt.NDArray[Any]:
    """Return stored values (H, W) as RGB in 0..1 by the file's palette.

    Raises:
        BadRow: a palette is missing or damaged.
    """
    if "RedPaletteColorLookupTableData" not in dataset:
        _check_segments(dataset, little_endian)
        applied = pydicom().pixels.apply_color_lut(stored, dataset)[..., :3]
        return np.asarray(applied / np.iinfo(applied.dtype).max)
    channels = []
    most = 0
    for channel in _CHANNELS:
        descriptor = f"{channel}PaletteColorLookupTableDescriptor"
        table = _table(dataset, descriptor, f"{channel}PaletteColorLookupTableData", little_endian)
        channels.append(table.applied(stored))
        most = max(most, int(table.entries.max()))
    # Some files declare 16 bits and hold 8.
    return np.stack(channels, axis=-1) / (255 if most <= 255 else 65535)


def _check_segments(dataset: Any, little_endian: bool) -> None:
    """Refuse a palette of segments that unpacks to more than a table holds.

    A segment is its kind (0: entries as they are, 1: a ramp to one entry), the number of its
    entries, and these. One of kind 2 repeats others, which may repeat others in turn.

    Raises:
        BadRow: there are too many entries, or a segment repeats others.
    """
    bits = int(dataset.RedPaletteColorLookupTableDescriptor[2])
    kind_of_words = "u1" if bits // 8 == 1 else ("<u2" if little_endian else ">u2")
    for channel in _CHANNELS:
        content = dataset[f"Segmented{channel}PaletteColorLookupTableData"].value
        words = np.frombuffer(content, kind_of_words).tolist()
        place = 0
        entries = 0
        while place + 1 < len(words) and entries <= _MOST_ENTRIES:
            kind, count = words[place : place + 2]
            if kind > 1:
                raise BadRow(
                    "expected a palette of entries and ramps, found a segment that repeats "
                    "others: export it as RGB"
                )
            entries += count
            place += 2 + (count if kind == 0 else 1)
        if entries > _MOST_ENTRIES:
            raise BadRow(
                f"expected at most {_MOST_ENTRIES} entries in a palette, found more: export it as "
                "RGB"
            )


def _table(item: Any, descriptor_name: str, data_name: str, little_endian: bool) -> Table:
    """Return the table that two tags of a dataset hold."""
    try:
        descriptor = [int(value) for value in item.get(descriptor_name) or ()]
        element = item[data_name]
    except Exception:
        raise BadRow(f"expected whole numbers as {descriptor_name}, found others") from None
    if len(descriptor) != 3:
        raise BadRow(f"expected three numbers as {descriptor_name}, found {len(descriptor)}")
    # A table of 65,536 entries is written as one of 0.
    count = (descriptor[0] & 0xFFFF) or 2**16
    if isinstance(element.value, bytes):
        in_words = element.VR == "OW"
        entries = _entries(element.value, count, descriptor[2] <= 8, in_words, little_endian)
    else:
        value = element.value
        values = value if isinstance(value, list | pydicom().multival.MultiValue) else [value]
        entries = np.array(
            [int(entry) & 0xFFFF for entry in values if entry is not None], np.uint16
        )
    if not len(entries):
        raise BadRow(f"expected entries as {data_name}, found none")
    return Table(descriptor[1], entries[:count])


def _entries(
    value: bytes, count: int, may_be_packed: bool, in_words: bool, little_endian: bool
) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the entries of a table, of 16 bits each, or of 8 if there are too few bytes."""
    words = np.frombuffer(value[: len(value) // 2 * 2], "<u2" if little_endian else ">u2")
    if len(value) >= 2 * count or not may_be_packed:
        return words
    if in_words:
        # The lower byte of a word comes first.
        return words.astype("<u2").view(np.uint8)
    return np.frombuffer(value, np.uint8)
