"""Cutting one data set into sites, for simulation: by source, by a Dirichlet law, or like FedPerl's ten."""

import csv
import io
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from fedward.errors import ConfigError, DataError
from fedward.sites.data import Labels
from fedward.sites.site_file import NpzSite
from fedward.sites.split import group_split
from fedward.sites.table import read_table

_HEADER = ("sample_id", "image", "label", "group")


@dataclass(frozen=True)
class Sample:
    """One row of a pooled manifest; an image without a lesion id is a group of its own."""

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
        records, aside = read_table(manifest, columns, "(all)")
    except DataError as error:
        raise DataError(
            error.where.removeprefix("site (all), "),
            expected=error.expected,
            found=error.found,
            remedy="Name the folder of a pooled skin data set, or fix its manifest.csv.",
        ) from None
    if aside:
        raise DataError(
            f"{manifest}, line {aside[0].row}", expected="a whole row", found=aside[0].reason, remedy="Fetch it again."
        )
    cells = [[record.cells[column] for column in columns] for record in records]
    return [Sample(name, image, label, lesion or name, source) for name, image, label, lesion, source in cells]


def by_source(sources: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the rows of every source, by its name in alphabetical order: each row once, in ascending order."""
    return {name: np.flatnonzero(np.asarray(sources) == name).astype(np.int64) for name in sorted(set(sources))}


def dirichlet(
    labels: Labels,
    sites: int,
    gamma: float,
    rng: np.random.Generator,
    at_least: int = 1,
    tries: int = 1000,
    *,
    even: bool = False,
) -> list[npt.NDArray[np.int64]]:
    """Cut rows into sites whose shares of each class are drawn from Dir(gamma, ..., gamma).

    Source: Yurochkin et al., ICML 2019, Sec. 4; Hsu et al., 2019. A small gamma gives sites of few classes, a large one
    equal sites. Rows that belong together (a patient's images) must be cut as one: pass one row for each group.

    Args:
        labels: int64 (N,); -1 counts as a class.
        sites: number of sites, at least 1.
        gamma: concentration, above 0.
        rng: draws the shares and which rows.
        at_least: rows the smallest site must have; shares are drawn again until it does.
        tries: draws before giving up.
        even: a site that holds ``len(labels) / sites`` rows or more gets none of the further classes, which are taken
            in the order of their numbers (Li et al., ICDE 2022; RSCFed's split).

    Returns:
        Ascending row indices of each site; together every row once.

    Raises:
        ConfigError: sites or gamma out of bounds, or no draw leaves every site enough rows.
    """
    if sites < 1 or gamma <= 0:
        raise ConfigError(
            "dirichlet partition", expected="sites >= 1, gamma > 0", found=f"{sites}, {gamma}", remedy="Fix these."
        )
    for _ in range(tries):
        owner = np.zeros(len(labels), np.int64)
        settled = np.zeros(len(labels), np.bool_)
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(sites, gamma))
            if even:
                held = np.bincount(owner[settled], minlength=sites)
                free = held < len(labels) / sites
                shares = shares * free
                shares = shares / shares.sum() if shares.any() else free / free.sum()
                settled = settled | (labels == label)
            cuts = np.cumsum(shares)[:-1]
            owner[rows] = np.searchsorted(cuts, (np.arange(len(rows)) + 0.5) / len(rows))
        if np.bincount(owner, minlength=sites).min() >= at_least:
            return [np.flatnonzero(owner == site).astype(np.int64) for site in range(sites)]
    raise ConfigError(
        "dirichlet partition",
        expected=f"{sites} sites of at least {at_least} rows",
        found=f"none in {tries} draws from {len(labels)} rows with gamma {gamma}",
        remedy="Ask for fewer sites or a larger gamma.",
    )


FEDPERL_SOURCES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "community A": (("isic2017_train", "isic2017_val", "isic2017_test"), tuple(f"site-{i}" for i in range(1, 6))),
    "community B": (("vidir_modern",), ("site-6", "site-7", "site-8")),
    "loner 9": (("rosendahl",), ("site-9",)),
    "loner 10": (("vienna_dias",), ("site-10",)),
}
"""Which sources are pooled and cut into which sites."""
SERVER_SOURCE = "vidir_molemax"
SERVER_IMAGES = 1000


def fedperl_layout(samples: Sequence[Sample], seed: int = 0) -> dict[str, list[Sample]]:
    """Lay real skin images out like FedPerl's ten clients: 5 + 3 + 2, and a server set (MELBA 2022, Sec. 3).

    ISIC 2017 (its challenge split is by image, so the three parts are pooled) is cut into sites 1-5, HAM10000's
    ``vidir_modern`` into 6-8; ``rosendahl`` (Queensland: many carcinomas and keratoses) is site-9, ``vienna_dias``
    (scanned slides) site-10. The server's public validation set are 1000 images of ``vidir_molemax``, whose machine no
    site has: all diagnoses but NV whole, NV thinned. It has no AK and almost no BCC, as no source can give them up.
    Deviates: the paper's clients 8 and 9 are PAD-UFES and Derm7pt. Lesions are cut whole; a lesion that the server
    shares with a site leaves the server.

    Returns:
        ``site-1`` to ``site-10`` and ``server`` -> samples; no group is at two of them.

    Raises:
        DataError: a source has no samples.
    """
    layout: dict[str, list[Sample]] = {}
    for sources, sites in FEDPERL_SOURCES.values():
        pooled = [sample for sample in samples if sample.source in sources]
        if not pooled:
            raise DataError("FedPerl layout", expected=f"images of {sources}", found="none", remedy="Use the skin set.")
        for site, part in zip(sites, _cut(pooled, len(sites), seed), strict=True):
            layout[site] = part
    taken = {sample.group for part in layout.values() for sample in part}
    public = [sample for sample in samples if sample.source == SERVER_SOURCE and sample.group not in taken]
    layout["server"] = _thinned(public, SERVER_IMAGES, seed)
    return layout


def _cut(samples: list[Sample], parts: int, seed: int) -> list[list[Sample]]:
    codes = np.unique([sample.label for sample in samples], return_inverse=True)[1].astype(np.int64)
    owner = group_split([sample.group for sample in samples], codes, [1 / parts] * parts, seed)
    return [[sample for sample, part in zip(samples, owner, strict=True) if part == index] for index in range(parts)]


def _thinned(samples: list[Sample], images: int, seed: int) -> list[Sample]:
    """Drop whole groups of the commonest label until about ``images`` samples are left."""
    common = Counter(sample.label for sample in samples).most_common(1)[0][0] if samples else ""
    many = [sample for sample in samples if sample.label == common]
    share = max(0.0, 1 - max(len(samples) - images, 0) / max(len(many), 1))
    codes = np.zeros(len(many), np.int64)
    kept = group_split([sample.group for sample in many], codes, [share, 1 - share], seed) == 0
    chosen = {sample.sample_id for sample, keep in zip(many, kept, strict=True) if keep}
    return [sample for sample in samples if sample.label != common or sample.sample_id in chosen]


def write_site_files(
    layout: Mapping[str, Sequence[Sample]],
    dataset_folder: Path,
    out_folder: Path,
    labelled: float | Mapping[str, float] = 0.1,
    val: float = 0.15,
    test: float = 0.25,
    seed: int = 0,
) -> list[Path]:
    """Write ``<site>.yaml`` and ``<site>.csv`` for every site of a layout; images stay where they are.

    Args:
        layout: site -> its samples; ``server`` becomes a validation set.
        dataset_folder: the folder the samples' image paths are relative to.
        out_folder: made if absent. The site files name the data set by a relative path, so both folders can move
            together.
        labelled: share of training labels seen, for all sites or by site.
        val: share of the groups set apart for validation.
        test: share of the groups set apart for test.
        seed: of the splits and of the choice of labels.

    Returns:
        The site files, in the layout's order.

    Raises:
        ConfigError: one of the files exists with other content, perhaps mended by hand; nothing is written.
    """
    folder = os.path.relpath(dataset_folder.resolve(), out_folder.resolve())
    files: dict[Path, str] = {}
    for site, samples in layout.items():
        rows = io.StringIO(newline="")
        csv.writer(rows).writerows([_HEADER, *([getattr(sample, name) for name in _HEADER] for sample in samples)])
        files[out_folder / f"{site}.csv"] = rows.getvalue()
        shares = {"val": 1.0, "test": 0.0} if site == "server" else {"val": val, "test": test}
        content = {
            "kind": "manifest",
            "folder": folder,
            "manifest": f"{site}.csv",
            "labelled": labelled[site] if isinstance(labelled, Mapping) else labelled,
            "split": {**shares, "seed": seed},
        }
        files[out_folder / f"{site}.yaml"] = _yaml(content)
    _write_unless_changed(files)
    return [file for file in files if file.suffix == ".yaml"]


def write_npz_site_files(
    npz: Path, classes: Sequence[str], out_folder: Path, sites: int, gamma: float | None, labelled: float, seed: int = 0
) -> list[Path]:
    """Write ``site-1.yaml`` to ``site-<sites>.yaml`` that divide a MedMNIST file.

    Args:
        npz: the file; class number i is called ``classes[i]``.
        classes: names in the file's order.
        out_folder: made if absent.
        sites: number of sites.
        gamma: concentration of :func:`dirichlet`, whose class shares all splits have in common; None: equal stratified
            parts (``share`` in the site files).
        labelled: share of training labels seen.
        seed: of the partition and of the choice of labels.

    Returns:
        The site files.
    """
    out_folder.mkdir(parents=True, exist_ok=True)
    file = os.path.relpath(npz.resolve(), out_folder.resolve())
    content = {"kind": "npz", "file": file, "labels": dict(enumerate(classes)), "labelled": labelled}
    equal: list[dict[str, Any]] = [{"share": [index, sites]} for index in range(1, sites + 1)]
    parts = equal if gamma is None else _indices(npz, sites, gamma, seed)
    return [
        _write_yaml(out_folder / f"site-{index}.yaml", {**content, **part, "split": {"seed": seed}})
        for index, part in enumerate(parts, 1)
    ]


def write_isolated_site_files(
    npz: Path, classes: Sequence[str], out_folder: Path, sites: int, labelled_sites: int, gamma: float, seed: int = 0
) -> list[Path]:
    """Write ``site-1.yaml`` to ``site-<sites>.yaml`` as IsoFed divides a MedMNIST file: sites with all labels, or none.

    The file's training images are divided by :func:`dirichlet` (``even``, at least 10 at each site); the first
    ``labelled_sites`` have all their labels, the others none. Every site, also one without labels, holds an equal and
    stratified part of the validation images: they only choose a round. Test images stay with whoever judges the run.

    Source: Saha et al., MICCAI 2023, Sec. 3.1; the split is that of RSCFed's code.

    Args:
        npz: the file; class number i is called ``classes[i]``.
        classes: names in the file's order.
        out_folder: made if absent.
        sites: number of sites.
        labelled_sites: how many of them have labels, from the first on.
        gamma: concentration of the Dirichlet law.
        seed: of both divisions.

    Returns:
        The site files.
    """
    from fedward.seeds import numpy_generator  # here: it imports torch, which looking at a site does not need
    from fedward.sites.npz import read_split

    out_folder.mkdir(parents=True, exist_ok=True)
    file = NpzSite(kind="npz", file=npz, site="(all)")
    train, val = (read_split(file, split)[1] for split in ("train", "val"))
    parts = dirichlet(train, sites, gamma, numpy_generator(seed, "dirichlet"), at_least=10, even=True)
    judge = group_split([f"val-{index}" for index in range(len(val))], val, [1 / sites] * sites, seed)
    content = {
        "kind": "npz",
        "file": os.path.relpath(npz.resolve(), out_folder.resolve()),
        "labels": dict(enumerate(classes)),
    }
    written = []
    for index, rows in enumerate(parts):
        mine = {"train": rows.tolist(), "val": np.flatnonzero(judge == index).tolist()}
        share = float(index < labelled_sites)
        whole = {**content, "labelled": share, "indices": mine, "split": {"seed": seed}}
        written.append(_write_yaml(out_folder / f"site-{index + 1}.yaml", whole))
    return written


def _indices(npz: Path, sites: int, gamma: float, seed: int) -> list[dict[str, Any]]:
    from fedward.seeds import numpy_generator  # here: it imports torch, which looking at a site does not need
    from fedward.sites.npz import read_split

    file = NpzSite(kind="npz", file=npz, site="(all)")
    labels = {split: read_split(file, split)[1] for split in ("train", "val", "test")}
    offsets = np.cumsum([0, *(len(part) for part in labels.values())])
    parts = dirichlet(np.concatenate(list(labels.values())), sites, gamma, numpy_generator(seed, "dirichlet"))
    found: list[dict[str, Any]] = []
    for rows in parts:
        mine: dict[str, list[int]] = defaultdict(list)
        for split, start, stop in zip(labels, offsets[:-1], offsets[1:], strict=True):
            mine[split] = [int(row - start) for row in rows[(rows >= start) & (rows < stop)]]
        found.append({"indices": dict(mine)})
    return found


def _write_yaml(path: Path, content: Mapping[str, Any]) -> Path:
    path.write_text(_yaml(content), "utf-8")
    return path


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False, default_flow_style=None)


def _write_unless_changed(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        if path.exists() and path.read_bytes() != text.encode():
            raise ConfigError(
                f"{path}",
                expected="no such file, or the one that would be written",
                found="another one, of other settings or mended by hand",
                remedy="Name another folder, or delete the file.",
            )
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
