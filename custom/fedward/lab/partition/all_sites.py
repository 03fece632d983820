"""The rows of all sites of a cut, those that options add among them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedward.errors import ConfigError, option
from fedward.lab.partition.divide import (
    ColumnSites,
    SetApart,
    check_size,
    column_sites,
    divide,
    divide_by,
    leaking_copies,
    lost_classes_note,
    split_off_server,
    without_rows,
)
from fedward.lab.partition.pool import Cut, Pool, Rows
from fedward.lab.partition.wanted import Wanted
from fedward.sites.site_file import SERVER

POOLED = "pooled"
"""Name of the site that trains on the images of all."""
EVALUATION = "evaluation"
"""Name of the site that has the validation and test images of all, and trains nothing."""
EVALUATED = ("val", "test")
"""Splits that give numbers."""


class Division(NamedTuple):
    """The rows of all sites."""

    cut: Cut
    public: Cut
    """The server's, where it has a share of the images."""
    copies: frozenset[int]
    """Rows that are left out, as a copy of them is in another split."""
    by: ColumnSites | None
    """The sites of a column; None: the images are divided otherwise."""
    lost: Sequence[str] = ()
    """A note of the classes that lose all their training images by that; empty without any."""


def all_sites(pool: Pool, wanted: Wanted) -> tuple[Division, list[float]]:
    """Return the rows of all sites, and the share of its training labels that each sees.

    Sites that options add are among them; the server is the last.

    Raises:
        ConfigError: options contradict each other, or the images do not suffice; see
            :mod:`fedward.lab.partition.divide`.
    """
    by = _column_sites(pool, wanted)
    division = divided(pool, wanted, by)
    cut = _centralised(division.cut) if wanted.pooled else division.cut
    shares = _shares(cut, wanted)
    if wanted.evaluate_together:
        cut = evaluated_together(cut, wanted)
        shares.append(1.0)
    shares += [1.0] * len(division.public)
    return division._replace(cut=cut), shares


def _column_sites(pool: Pool, wanted: Wanted) -> ColumnSites | None:
    """Return the sites of the column that is named; None: none is."""
    if wanted.by is None:
        return None
    if wanted.sites is not None or wanted.gamma is not None:
        raise ConfigError(
            option("by"),
            f"Remove {option('by')}, or the others.",
            expected=f"no {option('sites')} or {option('dirichlet')}",
            found="both",
        )
    return column_sites(pool, wanted.by)


def divided(pool: Pool, wanted: Wanted, by: ColumnSites | None) -> Division:
    """Return the sites, and the server where it has a share of the images.

    ``by``: the sites of the column that is named; None: none is.
    """
    apart = SetApart(wanted.val, wanted.test)
    if by:
        cut = divide_by(pool, by, wanted.seed, apart)
    else:
        cut = divide(pool, wanted.sites or 0, wanted.gamma, wanted.seed, apart)
    public: Cut = {}
    if wanted.server:
        cut, server_rows = split_off_server(pool, cut, wanted.server, wanted.seed)
        public = {SERVER: server_rows}
    copies = leaking_copies(pool, {**cut, **public})
    if not copies:
        return Division(cut, public, copies, by)
    kept = without_rows(cut, copies)
    check_size(pool, kept, "Name fewer sites, or leave copies of pictures out of the data.")
    kept_public = without_rows(public, copies)
    lost = lost_classes_note(pool, {**cut, **public}, {**kept, **kept_public})
    return Division(kept, kept_public, copies, by, lost)


def _shares(cut: Cut, wanted: Wanted) -> list[float]:
    """Return the share of its training labels that each site sees."""
    if wanted.pooled and wanted.labelled_sites is not None:
        raise ConfigError(
            f"{option('pooled', True)}, {option('labelled-sites', wanted.labelled_sites)}",
            f"Remove {option('labelled-sites')}. {option('labelled')} limits the labels of the "
            "pooled site.",
            expected="one of the two",
            found="both, though only the pooled site trains",
        )
    sites_with_labels = len(cut) if wanted.labelled_sites is None else wanted.labelled_sites
    if not 0 <= sites_with_labels <= len(cut):
        raise ConfigError(
            option("labelled-sites"),
            "Name one of them.",
            expected=f"a number from 0 to {len(cut)}",
            found=f"{sites_with_labels}",
        )
    without_labels = len(cut) - sites_with_labels
    return [wanted.labelled] * sites_with_labels + [0.0] * without_labels


def _centralised(cut: Cut) -> Cut:
    """Return a cut in which one site trains on the images of all sites.

    The others keep the images that they evaluate, so that a result is the mean over the same sites
    as without.

    Raises:
        ConfigError: a site has the name of that site.
    """
    _refuse_site_called(POOLED, cut, option("pooled", True))
    no_rows = np.zeros(0, np.int64)
    train = np.sort(np.concatenate([rows["train"] for rows in cut.values()]))
    centralised: dict[str, Mapping[str, Rows]] = {
        site: {**rows, "train": no_rows} for site, rows in cut.items()
    }
    centralised[POOLED] = {"train": train, "val": no_rows, "test": no_rows}
    return centralised


def evaluated_together(cut: Cut, wanted: Wanted) -> Cut:
    """Return the cut with all validation and test images at one more site, which trains nothing.

    Raises:
        ConfigError: a site has the name of that site, or one site trains on the images of all.
    """
    _refuse_site_called(EVALUATION, cut, option("evaluate-together", True))
    if wanted.pooled:
        raise ConfigError(
            option("evaluate-together", True),
            "Remove one of the two.",
            expected="sites that train on their own images",
            found=option("pooled", True),
        )
    no_rows = np.zeros(0, np.int64)
    sites: dict[str, Mapping[str, Rows]] = {}
    for site, rows in cut.items():
        sites[site] = {"train": rows["train"], "val": no_rows, "test": no_rows}
    of_all = {"train": no_rows}
    for split in EVALUATED:
        of_all[split] = np.sort(np.concatenate([rows[split] for rows in cut.values()]))
    sites[EVALUATION] = of_all
    return sites


def _refuse_site_called(name: str, cut: Cut, given: str) -> None:
    """Raise ConfigError if a site has a name that an option gives to a site of its own.

    Some file systems do not tell capital letters from small ones.

    Args:
        name: of the option's site, in small letters.
        cut: the sites.
        given: the option.
    """
    same_name = [site for site in cut if site.lower() == name]
    if same_name:
        raise ConfigError(
            given,
            f"Rename the value in the column, or remove {given}.",
            expected=f"no site called {name}, as this option makes one",
            found=same_name[0],
        )
