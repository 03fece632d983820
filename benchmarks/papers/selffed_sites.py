"""The federations of SelfFed's experiments as site files: one data set cut by a Dirichlet law, and a public pool.

Of the training images a tenth, without labels, is the server's public pool; the rest is cut into five sites. Validation
and test images are divided evenly among the sites: a mean over sites, each weighted by its images, is over all of them.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import yaml

from fedward.jobs import site_names
from fedward.seeds import numpy_generator
from fedward.sites.data import SPLITS, Labels
from fedward.sites.npz import read_split
from fedward.sites.partition.divide import dirichlet
from fedward.sites.partition.fedperl import read_skin
from fedward.sites.site_file import NpzSite
from fedward.sites.split import group_split

SITES = 5
"""As in the paper's retina experiments."""
PUBLIC = 0.1
"""Share of the training images that the server has. Not in the paper, whose server images come from nowhere."""
AT_LEAST = 10
"""Images, or lesions, of the smallest site, as in Fed-MAE's splits."""
SKIN_SHARES = (0.7, 0.1, 0.2)
"""Of training, validation and test lesions, where the data set has no splits of its own."""
SERVER, POOL = "server", "pool"
"""Who has the public images, and who has the training images of all sites, where they are pooled."""

Rows = dict[str, npt.NDArray[np.int64]]
"""Split -> rows of the data set, ascending."""


class DataSet(NamedTuple):
    """A data set's rows."""

    labels: Labels
    """(N,), -1 for none."""
    groups: Sequence[str]
    """N names of what stays together."""
    splits: Sequence[str]
    """N of ``train``, ``val``, ``test``."""


def divide(data: DataSet, gamma: float, seed: int) -> dict[str, Rows]:
    """Return who has which rows: ``site-1`` to ``site-5``, ``server``, and ``pool``, which has what the sites train on.

    Args:
        data: its test and validation rows are the same for all seeds, its training rows are cut anew for each.
        gamma: concentration of :func:`fedward.sites.partition.divide.dirichlet`.
        seed: of every draw.
    """
    splits, names = np.asarray(data.splits), site_names(SITES)
    rows = {split: np.flatnonzero(splits == split).astype(np.int64) for split in SPLITS}

    def parts(mine: npt.NDArray[np.int64], shares: Sequence[float]) -> npt.NDArray[np.int64]:
        return group_split([data.groups[row] for row in mine], data.labels[mine], shares, seed)

    public = parts(rows["train"], [1 - PUBLIC, PUBLIC]) == 1
    train = rows["train"][~public]
    groups, first, member = np.unique([data.groups[row] for row in train], return_index=True, return_inverse=True)
    owners = np.empty(len(groups), np.int64)
    cut = dirichlet(data.labels[train[first]], SITES, gamma, numpy_generator(seed, "dirichlet"), AT_LEAST)
    for site, mine in enumerate(cut):
        owners[mine] = site
    evaluators = {split: parts(rows[split], [1 / SITES] * SITES) for split in ("val", "test")}
    return {
        **{
            name: {
                "train": train[owners[member] == site],
                **{split: rows[split][owner == site] for split, owner in evaluators.items()},
            }
            for site, name in enumerate(names)
        },
        SERVER: {"train": rows["train"][public]},
        POOL: {"train": train},
    }


def write_npz(npz: Path, classes: Sequence[str], folder: Path, gamma: float, labels: float, seed: int) -> None:
    """Write the site files of a MedMNIST file.

    Args:
        npz: with its own splits.
        classes: names in the file's order.
        folder: made if absent.
        gamma: see :func:`divide`.
        labels: share of each site's training labels, by class; a larger one keeps those of a smaller one.
        seed: see :func:`divide`.
    """
    file = NpzSite(kind="npz", file=npz, site="(all)")
    found = {split: read_split(file, split)[1] for split in SPLITS}
    start = dict(zip(SPLITS, np.cumsum([0, *map(len, found.values())]), strict=False))
    splits = [split for split, own in found.items() for _ in own]
    names = [f"{split}-{row}" for split, own in found.items() for row in range(len(own))]
    for site, mine in divide(DataSet(np.concatenate(list(found.values())), names, splits), gamma, seed).items():
        indices = {split: (rows - start[split]).tolist() for split, rows in mine.items()}
        content = {"kind": "npz", "file": f"{npz.resolve()}", "labels": dict(enumerate(classes)), "indices": indices}
        _write(folder, site, content, labels, seed)


def write_skin(data: Path, classes: Sequence[str], folder: Path, gamma: float, labels: float, seed: int) -> None:
    """Write the site files, and manifests of their own, of the skin lesions; see :func:`write_npz`.

    A lesion's images stay together. Validation and test lesions are drawn with the seed: the data set has no splits.
    """
    samples = read_skin(data / "manifest.csv")
    classed = np.array([classes.index(sample.label) if sample.label in classes else -1 for sample in samples], np.int64)
    groups = [sample.group for sample in samples]
    known = [SPLITS[part] for part in group_split(groups, classed, SKIN_SHARES, seed)]
    folder.mkdir(parents=True, exist_ok=True)
    for site, mine in divide(DataSet(classed, groups, known), gamma, seed).items():
        with (folder / f"{site}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["sample_id", "image", "label", "group", "split"])
            for split, rows in mine.items():
                chosen = [samples[row] for row in rows]
                writer.writerows([one.sample_id, one.image, one.label, one.group, split] for one in chosen)
        content = {"kind": "manifest", "folder": f"{data.resolve()}", "manifest": f"{site}.csv"}
        _write(folder, site, content, labels, seed)


def _write(folder: Path, site: str, content: Mapping[str, Any], labels: float, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    share = labels if site in site_names(SITES) else 0.0
    # A benchmark does not choose its images: one that cannot be read ends it.
    whole = {**content, "labelled": share, "max_rejected": 0.0, "split": {"seed": seed}}
    text = yaml.safe_dump(whole, sort_keys=False, default_flow_style=None)
    (folder / f"{site}.yaml").write_text(text, encoding="utf-8")
