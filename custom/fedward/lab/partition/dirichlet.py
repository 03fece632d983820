"""Divides rows among sites whose shares of each class follow a Dirichlet law."""

import numpy as np
import numpy.typing as npt

from fedward.errors import ConfigError, option
from fedward.labels import Labels
from fedward.text import count

_MOST_DRAWS = 1000
"""How often shares are drawn before the division is given up."""


def dirichlet(
    labels: Labels, sites: int, gamma: float, rng: np.random.Generator, at_least: int = 1
) -> list[npt.NDArray[np.int64]]:
    """Divide rows among sites whose shares of each class are drawn from Dir(gamma, ..., gamma).

    Classes are divided in the order of their numbers; a site that has ``len(labels) / sites`` rows
    or more gets none of the remaining classes. A small gamma gives each site few classes, a large
    one makes the sites equal. To keep rows together (a patient's images), pass one row for each
    group.

    Source: Li et al., ICDE 2022; the split of RSCFed's code.

    Args:
        labels: int64 (N,); -1 counts as a class.
        sites: number of sites, at least 1.
        gamma: concentration, above 0.
        rng: draws the shares and the rows.
        at_least: rows that each site must have; shares are drawn again until it does, at most 1000
            times.

    Returns:
        Ascending row indices of each site; together every row once.

    Raises:
        ConfigError: sites or gamma out of bounds, or no draw leaves every site enough rows.

    Example: 200 rows of each of three classes, at four sites.

        >>> labels = np.repeat([0, 1, 2], 200)
        >>> parts = dirichlet(labels, 4, gamma=0.8, rng=np.random.default_rng(0))
        >>> [np.bincount(labels[rows], minlength=3).tolist() for rows in parts]
        [[87, 86, 0], [102, 6, 141], [8, 69, 1], [3, 39, 58]]
        >>> parts = dirichlet(labels, 4, gamma=100, rng=np.random.default_rng(0))
        >>> [np.bincount(labels[rows], minlength=3).tolist() for rows in parts]
        [[50, 54, 50], [46, 42, 49], [51, 53, 52], [53, 51, 49]]
    """
    if sites < 1 or gamma <= 0:
        raise ConfigError(
            f"{option('dirichlet', gamma)} among {count(sites, 'site')} is not possible",
            "Name a number above 0, and at least one site.",
        )
    for _ in range(_MOST_DRAWS):
        # owner: the site of each row; it holds for rows that are settled.
        owner = np.zeros(len(labels), np.int64)
        settled = np.zeros(len(labels), np.bool_)
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            has_room = np.bincount(owner[settled], minlength=sites) < len(labels) / sites
            shares = rng.dirichlet(np.full(sites, gamma)) * has_room
            if not shares.any():
                # A small gamma may give all to sites without room: then those with room share it.
                shares = has_room.astype(np.float64)
            shares = shares / shares.sum()
            # The unit interval is cut by the shares, and each row is the middle of an equal step.
            cuts = np.cumsum(shares)[:-1]
            owner[rows] = np.searchsorted(cuts, (np.arange(len(rows)) + 0.5) / len(rows))
            settled |= labels == label
        if np.bincount(owner, minlength=sites).min() >= at_least:
            return [np.flatnonzero(owner == site).astype(np.int64) for site in range(sites)]
    raise ConfigError(
        "dirichlet partition",
        expected=f"{count(sites, 'site')} of at least {count(at_least, 'row')}",
        found=f"none in {_MOST_DRAWS} draws from {count(len(labels), 'row')} with gamma {gamma}",
        remedy="Ask for fewer sites or a larger gamma.",
    )
