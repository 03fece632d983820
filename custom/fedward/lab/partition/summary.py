"""What ``fedward partition`` prints: a line for each site, what to know, and what to do next."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from fedward.errors import listed
from fedward.lab.partition.pool import Cut, Pool, Rows
from fedward.labels import class_counts, known, shows, strata
from fedward.sites.data_file import DATA_FILE
from fedward.sites.split import apportion
from fedward.terminal import shortened

_WIDTH = 80
_LONGEST_SITE = 17
_LONGEST_CLASS = 13
"""Letters of names in the table."""
_FEWEST_EVALUATED = 5
"""Images of a class, or patients, that a split needs for an evaluation of the class."""
_COLUMNS = ("train", "labelled", "val", "test", "groups", "classes", "commonest class")


def summary(pool: Pool, cut: Cut, shares: Sequence[float], out: Path, oracle: bool = False) -> str:
    """Return a table of a cut's sites, and notes in 80 columns.

    Labels, classes and the commonest class are those of training images.

    Args:
        pool: what was cut.
        cut: site -> split -> rows.
        shares: share of its training labels that each site sees.
        out: folder of the site files.
        oracle: whether sites answer a job that asks for labels.
    """
    width = min(max(4, *map(len, cut)), _LONGEST_SITE)
    lines = [_line("site", _COLUMNS, width)]
    for (site, site_rows), share in zip(cut.items(), shares, strict=True):
        lines.append(_line(site, _cells(pool, site_rows, share), width))
    lines.append("")
    for note in _notes(pool, cut, out):
        lines += wrap(note, _WIDTH)
    lines.append("")
    job = _job(pool, cut, shares, oracle)
    lines.append(f"Next: fedward run {job} --site-files {shlex.quote(f'{out}')}")
    return "\n".join(lines)


def _line(site: str, cells: Sequence[str], width: int) -> str:
    """Return a line of the table."""
    train, labelled, val, test, groups, classes, commonest = cells
    return (
        f"{site:<{width}.{width}} {train:>6} {labelled:>8} {val:>5} {test:>5} {groups:>6} "
        f"{classes:>7}  {commonest:.20}"
    )


def _job(pool: Pool, cut: Cut, shares: Sequence[float], oracle: bool) -> str:
    """Return the shipped job that suits the sites."""
    if oracle:
        return "fedal"
    train = np.concatenate([site_rows["train"] for site_rows in cut.values()])
    sees_all_labels = min(shares) == 1 and bool(known(pool.labels[train]).all())
    # One site has no peers, and without unlabelled images there is nothing to guess.
    if len(cut) == 1 or sees_all_labels:
        return "fedavg"
    # IsoFed has a role for sites without labels, but takes one label an image.
    if all(shares) or not pool.label_kind.exclusive:
        return "fedperl"
    return "isofed"


def _cells(pool: Pool, site_rows: Mapping[str, Rows], share: float) -> tuple[str, ...]:
    """Return the cells of a site."""
    labels = pool.labels[site_rows["train"]]
    counts = class_counts(labels, len(pool.classes))
    kinds = strata(labels)
    seen_labels = sum(apportion(np.bincount(kinds[kinds >= 0]), share))
    groups = "-"
    if pool.grouped:
        groups = f"{len({pool.groups[row] for rows in site_rows.values() for row in rows})}"
    commonest = "-"
    if counts.any():
        name = shortened(pool.classes[counts.argmax()], _LONGEST_CLASS)
        commonest = f"{name} {counts.max() / known(labels).sum():.0%}"
    return (
        f"{len(site_rows['train'])}",
        f"{seen_labels}",
        f"{len(site_rows['val'])}",
        f"{len(site_rows['test'])}",
        groups,
        f"{np.count_nonzero(counts)}/{len(counts)}",
        commonest,
    )


def _has_rare_class(pool: Pool, rows: Rows) -> bool:
    """Return whether a class has too few patients, or single images, in these rows to evaluate."""
    units = [pool.groups[row] if pool.rendering.several else row for row in rows]
    for place in range(len(pool.classes)):
        has_class = shows(pool.labels[rows], place)
        with_class = {unit for unit, has in zip(units, has_class, strict=True) if has}
        if 0 < len(with_class) < _FEWEST_EVALUATED:
            return True
    return False


def _notes(pool: Pool, cut: Cut, out: Path) -> list[str]:
    """Return what a person should know of the cut."""
    spec: dict[str, Any] = pool.data_spec()
    notes = list(pool.notes)
    used = sum(len(rows) for site_rows in cut.values() for rows in site_rows.values())
    unused = len(pool.labels) - used
    if unused:
        notes.append(
            f"{unused} images are at no site: they have no value in the column, belong to a group "
            "that has more images at another site, or have no label to be evaluated by."
        )
    for kind, part in (
        ("file of several frames", pool.rendering.frames),
        ("volume", pool.rendering.slices),
    ):
        if part:
            count = f"at most {part.at_most}" if part.at_most else "as many"
            notes.append(f"A {kind} becomes {count} images with its label. The table counts files.")
    rare = [
        site
        for site, site_rows in cut.items()
        if _has_rare_class(pool, site_rows["val"]) or _has_rare_class(pool, site_rows["test"])
    ]
    if rare:
        unit = "patients" if "evaluate_by" in spec else "images"
        notes.append(
            f"{len(rare)} of {len(cut)} sites have fewer than {_FEWEST_EVALUATED} {unit} of a "
            "class for validation or for testing. The class is not evaluated there, and a score "
            "of what is left says little. Fewer sites have more each."
        )
    if not pool.grouped:
        notes.append(
            "No column says which images are of one patient or lesion: each is taken to stand "
            "alone."
        )
    if not pool.label_kind.exclusive:
        notes.append("An image may show several of the classes, or none.")
    notes.append(f"Classes: {listed(pool.classes)}.")
    colour = "grey" if spec["channels"] == 1 else "RGB"
    notes.append(
        f"{out / DATA_FILE} proposes {spec['image_size']} pixels, {colour}, views {spec['views']} "
        "to the jobs that ship. Edit it where that is wrong, or use --set, as in "
        "--set data.views=rotation_invariant."
    )
    return notes
