"""What the models of a simulated site answer about its test images, and whose images these are.

Benchmarks resample patients or lesions by it. The notes stay in the site's own folder.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedward.client.site_data import DataSource
from fedward.disk import PRIVATE, append, make_folder, replacing
from fedward.errors import RunError, reason_of
from fedward.evaluation.patients import unit_labels
from fedward.json_text import read_json_file
from fedward.lab.npz_columns import NpzColumns
from fedward.runs.run import Run
from fedward.sites import SiteData
from fedward.sites.data import SPLITS, Images
from fedward.sites.site_csv import named_groups
from fedward.sites.site_file import ManifestSite, NpzSite, read_site_file
from fedward.sites.stored_images import array_names, refusing_broken_bytes
from fedward.sites.table import read_table
from fedward.storage.rows import AnswerRow, read_rows, written

_LABEL_ARRAYS = ("train_labels", "val_labels", "test_labels", "labels")
NOTES_FOLDER = "test_answers"
"""Folder in a site's own folder, with the test images and the answers of each run."""


@dataclass(frozen=True)
class GroupedImages:
    """N test images of a site, or N patients where these are evaluated."""

    labels: NDArray[np.int64]
    """(N,) class of each image."""
    groups: NDArray[np.int64]
    """(N,) number of the group of each image, from 0."""

    @classmethod
    def of_site(cls, images: Images, site_file: Path | None) -> "GroupedImages":
        """Return a site's test images by group: patients or lesions, else single images."""
        units, labels = unit_labels(images)
        if images.groups:
            # Each patient is evaluated as one.
            return cls(labels, np.arange(len(labels)))
        group_of = groups_in(site_file) if site_file else {}
        names = [group_of.get(_file_id(name), name) for name in images.ids]
        _, groups = np.unique(names, return_inverse=True)
        return cls(labels, groups.astype(np.int64).reshape(len(units)))


def _file_id(image_id: str) -> str:
    """Return the id of the file that an image is of: slices and frames end in # and a number."""
    name, mark, number = image_id.rpartition("#")
    return name if mark and number.isdecimal() else image_id


def groups_in(site_file: Path) -> dict[str, str]:
    """Return sample id -> group of the images that a site file names, where they have one.

    Raises:
        DataError: the file, its CSV or its arrays cannot be read.
    """
    file = read_site_file(site_file)
    if isinstance(file, NpzSite):
        return _groups_in_npz(file)
    return _groups_in_csv(file)


def _groups_in_csv(file: ManifestSite) -> dict[str, str]:
    columns = file.columns
    if columns.group is None:
        return {}
    records, _ = read_table(file.manifest, [columns.sample_id, columns.group], file.site)
    groups = named_groups(records, file)
    group_of = {record.cells[columns.sample_id]: groups[record.line] for record in records}
    return {name: group for name, group in group_of.items() if group}


def _groups_in_npz(file: NpzSite) -> dict[str, str]:
    """Return the groups by sample id, as :mod:`fedward.sites.npz` names samples."""
    where = f"site {file.site}, {file.file}"
    with refusing_broken_bytes(where, "an npz file whose groups can be read"):
        names = array_names(file.file)
    prefixes = [name.removesuffix("labels") for name in _LABEL_ARRAYS if name in names]
    columns = NpzColumns(file.file, where, prefixes, groups_alone=True)
    columns.check_lengths()
    groups_by_prefix = columns.groups().by_prefix
    group_of: dict[str, str] = {}
    if file.joined:
        first = 0
        for prefix, count in columns.counts.items():
            for index, group in enumerate(groups_by_prefix.get(prefix, []), first):
                group_of[f"image-{index}"] = group
            first += count
    else:
        for split in SPLITS:
            # As at a site: indices may be those of training images, where a split has no arrays.
            candidates = [f"{split}_"]
            if file.indices is not None:
                candidates += ["train_", ""]
            prefix = next((name for name in candidates if name in prefixes), "")
            for index, group in enumerate(groups_by_prefix.get(prefix, [])):
                group_of[f"{split}-{index}"] = group
    # An image without a group is one of its own.
    return {name: group for name, group in group_of.items() if group}


def note_answers(
    source: DataSource, data: SiteData, run: str, round_: int, answers: NDArray[np.int64]
) -> None:
    """Note the answers (N,) of the model after ``round_`` rounds in the site's own folder."""
    folder = source.folder / NOTES_FOLDER
    about = folder / f"{run}.json"
    if not about.exists():
        make_folder(folder, PRIVATE)
        images = GroupedImages.of_site(data.test, source.file)
        content = {"labels": images.labels.tolist(), "groups": images.groups.tolist()}
        with replacing(about) as partial:
            partial.write_text(json.dumps(content), "utf-8")
    row = AnswerRow(round=round_, answers=" ".join(map(str, answers.tolist())))
    append(folder / f"{run}.jsonl", written(row).encode())


@dataclass(frozen=True)
class SiteAnswers:
    """A site's test images, and what each evaluated model answered about them."""

    images: GroupedImages
    by_round: Mapping[int, NDArray[np.int64]]
    """Round -> (N,) class that the model after this round gives each image."""


def answers_of(run: Run) -> dict[str, SiteAnswers]:
    """Return site -> answers, of the sites of a laboratory run that noted some.

    Raises:
        RunError: a file is broken.
    """
    by_site: dict[str, SiteAnswers] = {}
    for path in sorted(run.folder.glob(f"sites/*/{NOTES_FOLDER}/{run.info.id}.jsonl")):
        about = path.with_suffix(".json")
        try:
            content = read_json_file(about)
            labels = np.array(content["labels"], np.int64)
            groups = np.array(content["groups"], np.int64)
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise RunError(
                str(about),
                "Restore it from a copy, or start a new run.",
                expected="labels and groups of the site's test images",
                found=reason_of(error),
            ) from error
        images = GroupedImages(labels, groups)
        by_round: dict[int, NDArray[np.int64]] = {}
        for row in read_rows(path, AnswerRow, []):
            # Of a repeated evaluation the last one counts.
            by_round[row.round] = np.array(row.answers.split(), np.int64)
        by_site[path.parent.parent.name] = SiteAnswers(images, by_round)
    return by_site
