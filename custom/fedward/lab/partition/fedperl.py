"""Dividing a pooled skin data set into FedPerl's ten sites and a server, for simulation."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedward.errors import DataError, option
from fedward.lab.partition.all_sites import POOLED
from fedward.lab.partition.arguments import FEDPERL_SHARE
from fedward.lab.partition.write import write_files
from fedward.sites.data import SPLITS
from fedward.sites.site_file import SERVER, Split
from fedward.sites.split import group_split, parts_of_labelled_groups
from fedward.sites.table import read_table
from fedward.yaml_text import write_yaml

_HEADER = ("sample_id", "image", "label", "group")
"""Columns of a site's CSV, which are fields of a sample."""


@dataclass(frozen=True)
class Sample:
    """One row of a pooled manifest; an image without a lesion id is its own group."""

    sample_id: str
    image: str
    label: str
    group: str
    source: str


def read_skin(manifest: Path) -> list[Sample]:
    """Read the pooled skin manifest: columns ``sample_id, image, diagnosis, lesion_id, source``.

    Raises:
        DataError: it cannot be read, or a row of it is malformed.
    """
    columns = ("sample_id", "image", "diagnosis", "lesion_id", "source")
    try:
        records, rejected = read_table(manifest, columns, "(all)")
    except DataError as error:
        raise DataError(
            error.problem.removeprefix("site (all), "),
            "Name the folder of a pooled skin data set, or cut any other one with "
            f"{option('sites')} or {option('by')}.",
            expected=error.expected,
            found=error.found,
        ) from None
    if rejected:
        raise DataError(
            f"{manifest}, line {rejected[0].row}",
            "Fetch it again.",
            expected="a whole row",
            found=rejected[0].reason,
        )
    samples = []
    for record in records:
        sample_id, image, diagnosis, lesion, source = (record.cells[name] for name in columns)
        samples.append(Sample(sample_id, image, diagnosis, lesion or sample_id, source))
    return samples


FEDPERL_SOURCES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "archive": (
        ("isic2017_train", "isic2017_val", "isic2017_test", "vidir_modern"),
        ("site-1", "site-2", "site-3", "site-4", "site-5", SERVER),
    ),
    "clinic": (("rosendahl",), ("site-6", "site-7", "site-8")),
    "loner 9": (("vidir_molemax",), ("site-9",)),
    "loner 10": (("vienna_dias",), ("site-10",)),
}
"""Name -> the sources that are pooled, and the sites into which the pool is cut."""
THINNED_SOURCE = "vidir_molemax"
"""A source with 95 % naevi, of which some are left out."""
THINNED_IMAGES = 1000
"""Roughly how many of its images are used."""


def fedperl_layout(samples: Sequence[Sample], seed: int = 0) -> dict[str, list[Sample]]:
    """Divide real skin images like FedPerl's ten clients: 5 + 3 + 2, and a set at the server.

    Source: Bdair et al., MELBA 2022, Sec. 3.

    ISIC 2017, which has three diagnoses, and HAM10000's ``vidir_modern``, which has all, are pooled
    as an archive, and cut into sites 1-5 and the server's public images. ``rosendahl`` (Queensland:
    many carcinomas and keratoses) is cut into sites 6-8. ``vidir_molemax``, thinned, is site-9, and
    ``vienna_dias`` (scanned slides) is site-10. Every site of a community has all its diagnoses, as
    in the paper.

    Deviates: the paper's archive is ISIC 2019, its second community HAM10000, and its loners
    PAD-UFES and Derm7pt. All images of a lesion stay together; a lesion that occurs in two sources
    belongs to the first of them.

    Args:
        samples: of the data set.
        seed: determines which images a site has.

    Returns:
        ``site-1`` to ``site-10`` and ``server`` -> samples; no group is at two of them.

    Raises:
        DataError: a source has no samples.
    """
    layout: dict[str, list[Sample]] = {}
    taken: set[str] = set()
    for sources, places in FEDPERL_SOURCES.values():
        pooled = [
            sample for sample in samples if sample.source in sources and sample.group not in taken
        ]
        if not pooled:
            raise DataError(
                "FedPerl layout", "Use the skin set.", expected=f"images of {sources}", found="none"
            )
        if THINNED_SOURCE in sources:
            pooled = _thinned(pooled, THINNED_IMAGES, seed)
        layout |= dict(zip(places, _cut(pooled, len(places), seed), strict=True))
        taken |= {sample.group for sample in pooled}
    return {place: layout[place] for place in sorted(layout, key=_place_order)}


def _place_order(place: str) -> tuple[bool, int, str]:
    """Order sites by their numbers, and the server after them."""
    return place == SERVER, len(place), place


def _cut(samples: list[Sample], parts: int, seed: int) -> list[list[Sample]]:
    """Cut samples into even parts, by label; a group stays together."""
    groups = [sample.group for sample in samples]
    _, labels = np.unique([sample.label for sample in samples], return_inverse=True)
    part_of = group_split(groups, labels.astype(np.int64), [1 / parts] * parts, seed)
    samples_of: list[list[Sample]] = [[] for _ in range(parts)]
    for sample, part in zip(samples, part_of, strict=True):
        samples_of[part].append(sample)
    return samples_of


def _thinned(samples: list[Sample], images: int, seed: int) -> list[Sample]:
    """Drop whole groups of the commonest label until about ``images`` samples are left."""
    commonest, _ = Counter(sample.label for sample in samples).most_common(1)[0]
    common = [sample for sample in samples if sample.label == commonest]
    surplus = max(len(samples) - images, 0)
    kept_share = max(1 - surplus / len(common), 0.0)
    one_class = np.zeros(len(common), np.int64)
    groups = [sample.group for sample in common]
    parts = group_split(groups, one_class, [kept_share, 1 - kept_share], seed)
    dropped = {sample for sample, part in zip(common, parts, strict=True) if part != 0}
    return [sample for sample in samples if sample not in dropped]


def write_site_files(
    layout: Mapping[str, Sequence[Sample]],
    dataset_folder: Path,
    out_folder: Path,
    labelled: float = FEDPERL_SHARE,
    seed: int = 0,
) -> list[Path]:
    """Write ``<site>.yaml`` and ``<site>.csv`` for every site of a layout, but no images.

    Args:
        layout: site -> its samples; ``server`` becomes a validation set.
        dataset_folder: the folder that the samples' image paths are relative to.
        out_folder: made if absent. The site files name the data set and their CSV by absolute
            paths, so that a site file can be copied, into a startup kit for example.
        labelled: share of the training labels that each site sees.
        seed: determines each site's splits, and which labels it sees.

    Returns:
        The site files, in the layout's order.

    Raises:
        ConfigError: one of the files exists with other content, perhaps edited by hand; nothing is
            written.
    """
    tables = {}
    for site, samples in layout.items():
        tables[site] = _table(_HEADER, [_cells(sample) for sample in samples])
    return _written(tables, dataset_folder, out_folder, labelled, seed)


def write_centralised(
    layout: Mapping[str, Sequence[Sample]],
    dataset_folder: Path,
    out_folder: Path,
    labelled: float = FEDPERL_SHARE,
    seed: int = 0,
) -> list[Path]:
    """Write site files by which one site trains on the training images of all.

    The others keep the images that they evaluate, in the splits of :func:`write_site_files`. The
    arguments and errors are those of that function.
    """
    rows_of: dict[str, list[list[str]]] = {site: [] for site in layout}
    rows_of[POOLED] = []
    for site, samples in layout.items():
        for sample, split in zip(samples, _splits(site, samples, seed), strict=True):
            owner = POOLED if split == "train" else site
            rows_of[owner].append([*_cells(sample), split])
    tables = {site: _table((*_HEADER, "split"), rows) for site, rows in rows_of.items()}
    return _written(tables, dataset_folder, out_folder, labelled, seed)


def _splits(site: str, samples: Sequence[Sample], seed: int) -> list[str]:
    """Return the split of each sample at its site, as the site itself would draw it."""
    shares = _shares(site)
    train_share = max(1 - shares["val"] - shares["test"], 0.0)
    classes = sorted({sample.label for sample in samples} - {""})
    labels = [classes.index(sample.label) if sample.label else -1 for sample in samples]
    parts = parts_of_labelled_groups(
        [sample.group for sample in samples],
        np.array(labels, np.int64),
        [train_share, shares["val"], shares["test"]],
        seed,
    )
    return [SPLITS[part] for part in parts]


def _shares(site: str) -> dict[str, float]:
    """Return the shares of a site's images in validation and test."""
    if site == SERVER:
        return {"val": 1.0, "test": 0.0}
    default = Split()
    return {"val": default.val, "test": default.test}


def _cells(sample: Sample) -> list[str]:
    """Return the row of a sample in a site's CSV."""
    return [getattr(sample, name) for name in _HEADER]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a CSV."""
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(header)
    writer.writerows(rows)
    return table.getvalue()


def _written(
    tables: Mapping[str, str], dataset_folder: Path, out_folder: Path, labelled: float, seed: int
) -> list[Path]:
    """Write the files of sites with these CSVs; return the site files."""
    files: dict[Path, str] = {}
    for site, table in tables.items():
        files[out_folder / f"{site}.csv"] = table
        content = {
            "kind": "manifest",
            "folder": str(dataset_folder.resolve()),
            "manifest": str(out_folder.resolve() / f"{site}.csv"),
            "labelled": labelled,
            "split": {**_shares(site), "seed": seed},
        }
        files[out_folder / f"{site}.yaml"] = write_yaml(
            content, sort_keys=False, default_flow_style=None
        )
    write_files(files)
    return [file for file in files if file.suffix == ".yaml"]
