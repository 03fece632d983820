"""How a site has its images read: by how many, who adjudicates, and which images one answer is about."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fedward.sites.site_file import ManifestSite, read_site_file
from fedward.sites.table import read_table


@dataclass(frozen=True)
class Rules:
    """The ``reading`` part of a site file, as far as it says which answer counts."""

    readers: int = 1
    """How many people must decide a question before its answer counts."""
    adjudicators: frozenset[str] = frozenset()
    """Who decides where readers differ; empty: anyone who has not answered yet."""
    lesions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Image -> its patient and lesion, of the images that share an answer with others."""

    def together(self, sample_id: str) -> tuple[str, ...]:
        """Return the images that an answer to this one is about, itself among them, sorted."""
        return self._images.get(self.lesions.get(sample_id, ("", "")), (sample_id,))

    @cached_property
    def _images(self) -> dict[tuple[str, str], tuple[str, ...]]:
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for sample_id, lesion in self.lesions.items():
            found[lesion].append(sample_id)
        return {lesion: tuple(sorted(ids)) for lesion, ids in found.items()}


def read_rules(site_file: Path) -> Rules:
    """Return the rules of a site; an image with an empty cell in the column of lesions stands alone.

    Raises:
        DataError: the site file or its CSV cannot be read, or the CSV has no such column.
    """
    file = read_site_file(site_file)
    lesions = _lesions(file, file.reading.lesion) if isinstance(file, ManifestSite) and file.reading.lesion else {}
    return Rules(file.reading.readers, frozenset(file.reading.adjudicators), lesions)


def _lesions(file: ManifestSite, column: str) -> dict[str, tuple[str, str]]:
    named = [file.columns.sample_id, column, *filter(None, [file.columns.group])]
    records, _ = read_table(file.manifest, named, file.site)
    # Sites number the lesions of a patient, so the patient belongs to the lesion's name.
    return {
        record.cells[file.columns.sample_id]: (record.cell(file.columns.group), record.cells[column])
        for record in records
        if record.cells[column]
    }
