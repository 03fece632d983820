"""Who gets which images of a pool: whole groups, training images evenly, by a Dirichlet law, or by
a column.

Validation and test images are those of the data set, or set apart by group. They are divided evenly
by class among the sites, however the training images are: each is at one site, so the mean over the
sites, weighted by their images, is that over all of them. With a column, each image is at the site
of its value.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from fedward.errors import ConfigError, did_you_mean
from fedward.lab.partition.pool import Cut, Pool, Rows
from fedward.seeds import numpy_generator
from fedward.sites.data import SPLITS, Labels
from fedward.sites.site_file import ANY_SITE, NO_SITE, Split
from fedward.sites.split import commonest_labels, group_split
from fedward.text import natural

_TRIES = 1000
AT_LEAST = 10
"""Training images of the smallest site."""


def divide(pool: Pool, sites: int, gamma: float | None = None, seed: int = 0) -> Cut:
    """Divide a pool among ``site-1`` to ``site-N``.

    Args:
        pool: what is cut.
        sites: number of sites.
        gamma: concentration of the Dirichlet law by which each class of the training images is
            spread, see :func:`dirichlet`; None: evenly, by class.
        seed: of all divisions.

    Raises:
        ConfigError: see :func:`dirichlet`; a site would have fewer than 10 training images.
    """
    if sites < 1:
        raise ConfigError(
            "--sites", expected="at least 1", found=f"{sites}", remedy="Name a number above 0."
        )
    splits = whole_splits(pool, pool.kinds, seed)
    train, val, test = (np.flatnonzero(splits == split) for split in SPLITS)
    learned = (
        _even(pool, train, sites, seed)
        if gamma is None
        else _spread(pool, train, sites, gamma, seed)
    )
    parts = zip(learned, _even(pool, val, sites, seed), _even(pool, test, sites, seed), strict=True)
    cut = {
        f"site-{index}": dict(zip(SPLITS, part, strict=True)) for index, part in enumerate(parts, 1)
    }
    _check_size(pool, cut, "Ask for fewer sites, or a larger --dirichlet.")
    return cut


def divide_by(pool: Pool, column: str, seed: int = 0) -> Cut:
    """Divide a pool among the sites of a column's values: a hospital's images stay there, those of
    no value go.

    Site files have the values' names. A group that occurs at several sites stays where it has most
    images, and its other images go: they are those of another camera. Validation and test images
    are set apart at each site, by class.

    Raises:
        ConfigError: no such column; a single value; one that cannot name a file; or one of fewer
            than 10 training images.
    """
    if column not in pool.columns:
        expected = f"a column of the data ({', '.join(pool.columns) or 'there are none'})"
        found = f"{column}{did_you_mean(column, pool.columns)}"
        raise ConfigError(
            "--by", expected=expected, found=found, remedy="Name one of them, or give --sites."
        )
    values = pool.columns[column]
    names = _site_names(value for value in values if value)
    most = {
        group: counts.most_common(1)[0][0] for group, counts in _places(pool.groups, values).items()
    }
    place = {value: index for index, value in enumerate(names)}
    rows = zip(pool.groups, values, strict=True)
    owner = np.array(
        [place[value] if value and most[group] == value else -1 for group, value in rows], np.int64
    )
    kinds = np.where(
        (pool.kinds < 0) | (owner < 0), -1, owner * (len(pool.classes) + 1) + pool.kinds
    )
    splits = whole_splits(pool, kinds, seed)
    cut = {
        name: {
            split: np.flatnonzero((owner == place[value]) & (splits == split)) for split in SPLITS
        }
        for value, name in names.items()
    }
    _check_size(
        pool,
        cut,
        f"Give the images of these sites no value in {column}, to leave them out, or name another column.",
    )
    return cut


def whole_splits(pool: Pool, kinds: Labels, seed: int) -> npt.NDArray[np.str_]:
    """Return each row's split; validation and test images are set apart from training where the
    pool has none.

    Groups without any label train. The split is empty for an image without a label that would be
    evaluated.

    Args:
        pool: of N rows.
        kinds: (N,) by which what is set apart is stratified.
        seed: of the choice.
    """
    splits = np.array(pool.splits, "<U5")
    wanted = {"val": Split().val, "test": Split().test}
    shares = {split: share for split, share in wanted.items() if not (splits == split).any()}
    if shares:
        known = {group for group, label in zip(pool.groups, pool.kinds, strict=True) if label >= 0}
        rows = np.flatnonzero([name in known for name in pool.groups] & (splits == "train"))
        groups = [pool.groups[row] for row in rows]
        parts = group_split(groups, kinds[rows], [1 - sum(shares.values()), *shares.values()], seed)
        splits[rows] = np.array(["train", *shares])[parts]
    splits[(splits != "train") & (pool.kinds < 0)] = ""
    return splits


def _even(pool: Pool, rows: Rows, sites: int, seed: int) -> list[Rows]:
    owner = group_split(
        [pool.groups[row] for row in rows], pool.kinds[rows], [1 / sites] * sites, seed
    )
    if (
        pool.grouped
    ):  # what remains of each class is a patient or more, and would always be at the first sites
        member, labels = _groups(pool, rows)
        owner = (owner + labels[member]) % sites
    return [rows[owner == site] for site in range(sites)]


def _spread(pool: Pool, rows: Rows, sites: int, gamma: float, seed: int) -> list[Rows]:
    member, labels = _groups(pool, rows)
    least = 1 if pool.grouped else AT_LEAST
    parts = dirichlet(labels, sites, gamma, numpy_generator(seed, "dirichlet"), least)
    return [rows[np.isin(member, groups)] for groups in parts]


def _groups(pool: Pool, rows: Rows) -> tuple[npt.NDArray[np.int64], Labels]:
    """Return the number of each row's group, in the order in which groups first occur, and each
    group's class.
    """
    place: dict[str, int] = {}
    member = np.array([place.setdefault(pool.groups[row], len(place)) for row in rows], np.int64)
    return member, commonest_labels(member, pool.kinds[rows], len(place))


def _check_size(pool: Pool, cut: Cut, remedy: str) -> None:
    small = {
        site: len(rows["train"]) for site, rows in cut.items() if len(rows["train"]) < AT_LEAST
    }
    if small:
        site = min(small, key=lambda name: small[name])
        kind = "files, however many images each becomes" if pool.rendering.several else "images"
        expected = f"at least {AT_LEAST} training {kind}, at each site"
        owners = {pool.groups[row] for row in cut[site]["train"]}
        of = f" (groups, as patients: {len(owners)})" if pool.grouped else ""
        found = f"{len(small)} of {len(cut)} with fewer, as {site} with {small[site]}{of}"
        raise ConfigError("fedward partition", expected=expected, found=found, remedy=remedy)


def _places(groups: Sequence[str], values: Sequence[str]) -> dict[str, Counter[str]]:
    """Return group -> value -> images."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for group, value in zip(groups, values, strict=True):
        if value:
            found[group][value] += 1
    return found


def _site_names(values: Iterable[str]) -> dict[str, str]:
    """Return value -> site's name, in natural order: the value itself, with a hyphen for what no
    plain name has.
    """
    plain = {
        value: normalize("NFKD", value).encode("ascii", "ignore").decode()
        for value in sorted(set(values), key=natural)
    }
    names = {
        value: re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") for value, text in plain.items()
    }
    taken = {Path(name).stem for name in (*NO_SITE, ANY_SITE)}
    if (
        len(names) < 2
        or len(set(names.values())) < len(names)
        or not all(names.values())
        or taken & set(names.values())
    ):
        expected = "two or more values, each of which can name a site"
        found = ", ".join(map(repr, names))
        remedy = "Rename the values, or name another column."
        raise ConfigError("--by", expected=expected, found=f"{found or 'none':.300}", remedy=remedy)
    return names


def dirichlet(
    labels: Labels, sites: int, gamma: float, rng: np.random.Generator, at_least: int = 1
) -> list[npt.NDArray[np.int64]]:
    """Divide rows among sites whose shares of each class are drawn from Dir(gamma, ..., gamma).

    A site that holds ``len(labels) / sites`` rows or more gets none of the further classes, which
    are taken in the order of their numbers. A small gamma gives sites of few classes, a large one
    equal sites. To keep rows together (a patient's images), pass one row for each group.

    Source: Li et al., ICDE 2022; the split of RSCFed's code.

    Args:
        labels: int64 (N,); -1 counts as a class.
        sites: number of sites, at least 1.
        gamma: concentration, above 0.
        rng: draws the shares and the rows.
        at_least: rows the smallest site must have; shares are drawn again until it does, at most
            1000 times.

    Returns:
        Ascending row indices of each site; together every row once.

    Raises:
        ConfigError: sites or gamma out of bounds, or no draw leaves every site enough rows.
    """
    if sites < 1 or gamma <= 0:
        raise ConfigError(
            "dirichlet partition",
            expected="sites >= 1, gamma > 0",
            found=f"{sites}, {gamma}",
            remedy="Fix these.",
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
