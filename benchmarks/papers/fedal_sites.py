"""The four hospitals of FedAL's experiments as site files, cut anew for each seed, and their training images pooled.

The paper splits each hospital 7:1:2 by image. Many lesions were photographed more than once, so that training images
show the lesions of test images; a split by lesion has no such leak within a hospital, as far as lesions are known.
Nine melanomas were photographed both at B and at C, and a hospital knows nothing of another's split.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from fedward.errors import DataError
from fedward.sites.data import SPLITS
from fedward.sites.split import group_split
from fedward.sites.table import read_table
from papers.fedal_paper import HOSPITALS

CLASSES = ("NV", "BKL", "MEL")
SHARES = (0.7, 0.1, 0.2)
"""Of training, validation and test. Paper: 7:1:2."""
GROUPS: dict[str, str | None] = {"images": None, "lesions": "lesion_id"}
"""How hospitals may be split -> the column of what stays together."""
COLUMNS = ("sample_id", "image", "lesion_id", "diagnosis", "fedal_hospital")
POOL = "pool"
"""The site that holds the training images of all hospitals."""

Row = Mapping[str, str]


class Federation(NamedTuple):
    """Sites that run together, and the folder with their files."""

    folder: Path
    sites: tuple[str, ...]


def site_of(hospital: str) -> str:
    """Return a hospital's name as a site."""
    return f"hospital-{hospital}"


def federation(folder: Path) -> Federation:
    """Return the four hospitals."""
    return Federation(folder / "hospitals", tuple(map(site_of, HOSPITALS)))


def pooled(folder: Path) -> Federation:
    """Return one site that trains on the images of all, and the hospitals, which only evaluate."""
    return Federation(folder / "pooled", (*map(site_of, HOSPITALS), POOL))


def write_site_files(data: Path, split: str, seed: int, folder: Path) -> None:
    """Write a manifest with a column ``split``, and the site files of :func:`federation` and :func:`pooled`.

    Every hospital is split by itself, stratified by class; a row without a lesion stands alone.

    Args:
        data: folder with ``manifest.csv`` and the images it names.
        split: a key of :data:`GROUPS`.
        seed: another one cuts anew.
        folder: for the files; what lies there is written again.

    Raises:
        DataError: the manifest cannot be read, or a split of a hospital lacks a class: scores would be undefined.
    """
    records, aside = read_table(data / "manifest.csv", COLUMNS, "the four hospitals")
    if aside:
        raise DataError(
            f"{data / 'manifest.csv'}",
            expected="whole rows",
            found=f"{len(aside)} others, the first: line {aside[0].row}, {aside[0].reason}",
            remedy="Fetch the file again: a benchmark must not choose its images.",
        )
    rows: list[dict[str, str]] = []
    for hospital in HOSPITALS:
        own = [dict(record.cells) for record in records if record.cells["fedal_hospital"] == hospital]
        rows += _divided(own, hospital, split, seed)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "manifest.csv"
    with manifest.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, "split"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    group = GROUPS[split]
    for hospital in HOSPITALS:
        where = {"fedal_hospital": [hospital]}
        _write(federation(folder).folder / f"{site_of(hospital)}.yaml", data, manifest, group, where)
        evaluated = {**where, "split": ["val", "test"]}
        _write(pooled(folder).folder / f"{site_of(hospital)}.yaml", data, manifest, group, evaluated)
    _write(pooled(folder).folder / f"{POOL}.yaml", data, manifest, group, {"split": ["train"]})


def _divided(rows: Sequence[Row], hospital: str, split: str, seed: int) -> list[dict[str, str]]:
    """Return the rows with their splits."""
    column = GROUPS[split] or "sample_id"
    groups = [row[column] or row["sample_id"] for row in rows]
    labels = np.array([CLASSES.index(row["diagnosis"]) if row["diagnosis"] in CLASSES else -1 for row in rows], int)
    parts = [SPLITS[part] for part in group_split(groups, labels, SHARES, seed)]
    given = [{**row, "split": part} for row, part in zip(rows, parts, strict=True)]
    there = {(row["split"], row["diagnosis"]) for row in given}
    if missing := [(part, name) for part in SPLITS for name in CLASSES if (part, name) not in there]:
        part, name = missing[0]
        raise DataError(
            f"hospital {hospital}, split by {split}, seed {seed}",
            expected=f"images of {', '.join(CLASSES)} in each of {', '.join(SPLITS)}",
            found=f"none of {name} in {part}, of {len(rows)} images of the hospital",
            remedy="Name the folder of the benchmark's data with --data, or take another seed.",
        )
    return given


def _write(file: Path, data: Path, manifest: Path, group: str | None, where: Mapping[str, Sequence[str]]) -> None:
    content: dict[str, Any] = {
        "kind": "manifest",
        "folder": str(data.resolve()),
        "manifest": str(manifest.resolve()),
        "columns": {"label": "diagnosis", "group": group, "split": "split"},
        "where": dict(where),
        "annotation": "oracle",
        "max_rejected": 0.0,  # a benchmark does not choose its images
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
