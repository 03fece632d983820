"""How IsoFed divides a MedMNIST file: class shares drawn from a Dirichlet law, sites with all their labels or none."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

from fedward.errors import ConfigError
from fedward.seeds import numpy_generator
from fedward.sites.data import Labels
from fedward.sites.npz import read_split
from fedward.sites.site_file import NpzSite
from fedward.sites.split import group_split

_TRIES = 1000


def dirichlet(
    labels: Labels, sites: int, gamma: float, rng: np.random.Generator, at_least: int = 1
) -> list[npt.NDArray[np.int64]]:
    """Divide rows among sites whose shares of each class are drawn from Dir(gamma, ..., gamma).

    A site that holds ``len(labels) / sites`` rows or more gets none of the further classes, which are taken in the
    order of their numbers. A small gamma gives sites of few classes, a large one equal sites. To keep rows together (a
    patient's images), pass one row for each group.

    Source: Li et al., ICDE 2022; the split of RSCFed's code.

    Args:
        labels: int64 (N,); -1 counts as a class.
        sites: number of sites, at least 1.
        gamma: concentration, above 0.
        rng: draws the shares and the rows.
        at_least: rows the smallest site must have; shares are drawn again until it does, at most 1000 times.

    Returns:
        Ascending row indices of each site; together every row once.

    Raises:
        ConfigError: sites or gamma out of bounds, or no draw leaves every site enough rows.
    """
    if sites < 1 or gamma <= 0:
        raise ConfigError(
            "dirichlet partition", expected="sites >= 1, gamma > 0", found=f"{sites}, {gamma}", remedy="Fix these."
        )
    for _ in range(_TRIES):
        owner = np.zeros(len(labels), np.int64)
        settled = np.zeros(len(labels), np.bool_)
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            free = np.bincount(owner[settled], minlength=sites) < len(labels) / sites
            shares = rng.dirichlet(np.full(sites, gamma)) * free
            shares = shares / shares.sum() if shares.any() else free / free.sum()
            cuts = np.cumsum(shares)[:-1]
            owner[rows] = np.searchsorted(cuts, (np.arange(len(rows)) + 0.5) / len(rows))
            settled |= labels == label
        if np.bincount(owner, minlength=sites).min() >= at_least:
            return [np.flatnonzero(owner == site).astype(np.int64) for site in range(sites)]
    raise ConfigError(
        "dirichlet partition",
        expected=f"{sites} sites of at least {at_least} rows",
        found=f"none in {_TRIES} draws from {len(labels)} rows with gamma {gamma}",
        remedy="Ask for fewer sites or a larger gamma.",
    )


def write_isolated_site_files(
    npz: Path, classes: Sequence[str], out_folder: Path, sites: int, labelled_sites: int, gamma: float, seed: int = 0
) -> list[Path]:
    """Write ``site-1.yaml`` to ``site-<sites>.yaml``, each with all labels of its images or none.

    The training images are divided by :func:`dirichlet`, with at least 10 at each site. The first ``labelled_sites``
    have all their labels. Every site holds an equal, stratified part of the validation images, which only choose a
    round. No site holds test images.

    Source: Saha et al., MICCAI 2023, Sec. 3.1.

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
    out_folder.mkdir(parents=True, exist_ok=True)
    file = NpzSite(kind="npz", file=npz, site="(all)")
    train, val = (read_split(file, split)[1] for split in ("train", "val"))
    parts = dirichlet(train, sites, gamma, numpy_generator(seed, "dirichlet"), at_least=10)
    owner = group_split([f"val-{index}" for index in range(len(val))], val, [1 / sites] * sites, seed)
    content = {
        "kind": "npz",
        "file": os.path.relpath(npz.resolve(), out_folder.resolve()),
        "labels": dict(enumerate(classes)),
    }
    written = []
    for index, rows in enumerate(parts):
        mine = {"train": rows.tolist(), "val": np.flatnonzero(owner == index).tolist()}
        whole = {**content, "labelled": float(index < labelled_sites), "indices": mine, "split": {"seed": seed}}
        path = out_folder / f"site-{index + 1}.yaml"
        path.write_text(yaml.safe_dump(whole, sort_keys=False, default_flow_style=None), "utf-8")
        written.append(path)
    return written
