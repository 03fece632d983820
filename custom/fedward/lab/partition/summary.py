"""What whoever cuts a data set reads on the console: a line for each site, and what to know and do
next.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from fedward.errors import listed
from fedward.lab.partition.pool import Cut, Pool, Rows
from fedward.sites.data import SPLITS
from fedward.sites.data_file import DATA_FILE
from fedward.sites.labels import class_counts, known, shows, strata
from fedward.sites.split import apportion
from fedward.terminal import shortened

_WIDTH = 80
_NAME = 13
"""Letters of a class in the table."""
_EVALUATED = 5
"""Images of a class in a split that an evaluation needs, or patients."""
_HEAD = ("train", "labelled", "val", "test", "groups", "classes", "commonest class")


def summary(pool: Pool, cut: Cut, shares: Sequence[float], out: Path, oracle: bool = False) -> str:
    """Return the table of a cut's sites, of which each sees a share of its labels, and notes in 80
    columns.

    Labels, classes and the commonest of them are those of training images. ``oracle``: whether
    sites answer a job that asks for labels.
    """
    rows = [
        _HEAD,
        *(_row(pool, mine, share) for mine, share in zip(cut.values(), shares, strict=True)),
    ]
    width = min(max(4, *map(len, cut)), 17)
    table = [
        f"{site:<{width}.{width}} {train:>6} {labelled:>8} {val:>5} {test:>5} {groups:>6} {classes:>7}  {most:.20}"
        for site, (train, labelled, val, test, groups, classes, most) in zip(
            ["site", *cut], rows, strict=True
        )
    ]
    notes = [line for note in _notes(pool, cut, out) for line in wrap(note, _WIDTH)]
    next_ = f"Next: fedward run {_job(pool, shares, oracle)} --site-files {shlex.quote(f'{out}')}"
    return "\n".join([*table, "", *notes, "", next_])


def _job(pool: Pool, shares: Sequence[float], oracle: bool) -> str:
    """Return the shipped job for such sites: one that asks for labels, or has a role for sites
    without any.
    """
    if oracle:
        return "fedal"
    return (
        "fedperl" if all(shares) or not pool.label_kind.exclusive else "isofed"
    )  # which takes one label an image


def _row(pool: Pool, mine: Mapping[str, Rows], share: float) -> tuple[str, ...]:
    labels = pool.labels[mine["train"]]
    counts = class_counts(labels, len(pool.classes))
    kinds = strata(labels)
    seen = sum(apportion(np.bincount(kinds[kinds >= 0]), share))
    groups = (
        len({pool.groups[row] for rows in mine.values() for row in rows}) if pool.grouped else "-"
    )
    commonest = shortened(pool.classes[counts.argmax()], _NAME)
    most = f"{commonest} {counts.max() / known(labels).sum():.0%}" if counts.any() else "-"
    sizes = dict(zip(SPLITS, (len(mine[split]) for split in SPLITS), strict=True))
    cells = (seen, sizes["val"], sizes["test"], groups)
    return (
        f"{sizes['train']}",
        *map(str, cells),
        f"{np.count_nonzero(counts)}/{len(counts)}",
        most,
    )


def _rare(pool: Pool, rows: Rows) -> bool:
    """Return whether a class has too few patients, or images that stand alone, among these rows to
    be evaluated.
    """
    owners = [pool.groups[row] if pool.rendering.several else row for row in rows]
    held = [
        zip(owners, shows(pool.labels[rows], place), strict=True)
        for place in range(len(pool.classes))
    ]
    return any(0 < len({owner for owner, there in each if there}) < _EVALUATED for each in held)


def _notes(pool: Pool, cut: Cut, out: Path) -> list[str]:
    spec: dict[str, Any] = pool.data_spec()
    notes = list(pool.notes)
    left = len(pool.labels) - sum(len(rows) for mine in cut.values() for rows in mine.values())
    if left:
        notes += [
            f"{left} images are at no site: they have no value in the column, belong to a group that has more images "
            "at another site, or have no label to be evaluated by."
        ]
    for kind, part in (
        ("file of several frames", pool.rendering.frames),
        ("volume", pool.rendering.slices),
    ):
        if part:
            count = f"at most {part.at_most}" if part.at_most else "as many"
            notes += [f"A {kind} becomes {count} images with its label. The table counts files."]
    rare = [
        site
        for site, mine in cut.items()
        if any(_rare(pool, mine[split]) for split in ("val", "test"))
    ]
    if rare:
        unit = "patients" if "evaluate_by" in spec else "images"
        notes += [
            f"{len(rare)} of {len(cut)} sites have fewer than {_EVALUATED} {unit} of a class for validation or for "
            "testing. The class is not evaluated there, and a score of what is left says little. Fewer sites have "
            "more each."
        ]
    if not pool.grouped:
        notes += [
            "No column says which images are of one patient or lesion: each is taken to stand alone."
        ]
    kind = "grey" if spec["channels"] == 1 else "RGB"
    if not pool.label_kind.exclusive:
        notes += ["An image may show several of the classes, or none."]
    return [
        *notes,
        f"Classes: {listed(pool.classes)}.",
        f"{out / DATA_FILE} proposes {spec['image_size']} pixels, {kind}, views {spec['views']} to the jobs that ship. "
        "Edit it where that is wrong, or use --set, as in --set data.views=rotation_invariant.",
    ]
