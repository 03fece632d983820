"""What ``fedward partition`` prints: a line for each site, what to know, and what to do next."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedward.errors import listed, option, setting
from fedward.evaluation.evaluated_images import fewest_measured, measured_classes
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.lab.partition.left_out import left_out_lines
from fedward.lab.partition.pool import Cut, Pool, Rows
from fedward.lab.partition.subgroup_columns import left_over_notes
from fedward.labels import class_counts, known, strata
from fedward.sites.data_file import DATA_FILE
from fedward.sites.site_file import SERVER
from fedward.sites.split import apportion
from fedward.sites.unused_columns import patients_note, unused_patients
from fedward.terminal import fold, shortened
from fedward.text import count

_WIDTH = 80
_LONGEST_SITE = 17
_LONGEST_CLASS = 13
"""Letters of names in the table."""
_COLUMNS = ("train", "labelled", "val", "test", "groups", "classes", "commonest class")


def summary(
    pool: Pool,
    cut: Cut,
    shares: Sequence[float],
    out: Path,
    better_command: str = "",
) -> str:
    """Return a table of a cut's sites, and notes in 80 columns.

    Labels, classes and the commonest class are those of training images.

    Args:
        pool: what was cut.
        cut: site -> split -> rows; the server has a line in the table alone.
        shares: share of its training labels that each site sees.
        out: folder of the site files.
        better_command: cuts the data so that more is measured; empty without need, or if no cut
            does.
    """
    width = min(max(4, *map(len, cut)), _LONGEST_SITE)
    lines = [_line("site", _COLUMNS, width)]
    for (site, site_rows), share in zip(cut.items(), shares, strict=True):
        lines.append(_line(site, _cells(pool, site_rows, share), width))
    lines.append("")
    used = {row for site_rows in cut.values() for rows in site_rows.values() for row in rows}
    listed_note, reasons = left_out_lines(pool, len(used), out)
    lines += fold(listed_note)
    for reason in reasons:
        lines += fold(reason, first="  - ", others="    ")
    share_of = dict(zip(cut, shares, strict=True))
    cut = {site: site_rows for site, site_rows in cut.items() if site != SERVER}
    for note in (
        *pool.notes,
        *_alone_note(pool, used),
        *_notes(pool, cut, [share_of[site] for site in cut], out),
    ):
        lines += fold(note)
    lines.append("")
    for doubt in pool.doubts:
        lines += [*fold(doubt), ""]
    needed = fewest_measured(pool.label_kind)
    if better_command and len(measured_somewhere(pool, cut, "test")) < needed:
        lines += fold(
            f"`fedward run` refuses sites that together measure fewer than {needed} "
            f"{'class' if needed == 1 else 'classes'} on test images. This cut measures more:"
        )
        lines += _folded("Next:", better_command)
    else:
        if better_command:
            lines += ["A cut that measures more:", *_folded(" ", better_command), ""]
        lines.append(f"Next: fedward doctor {shlex.quote(f'{out}')}")
    return "\n".join(lines)


def _folded(prefix: str, command: str) -> list[str]:
    """Return a command in lines that fit 80 columns, and that a shell reads as one.

    Args:
        prefix: what stands before the command.
        command: as :func:`shlex.join` returns it.
    """
    lines = [prefix]
    for word in shlex.split(command):
        quoted = shlex.quote(word)
        # Two columns are left for the sign that the next line belongs to this one.
        if len(lines[-1]) + len(quoted) > _WIDTH - 3:
            lines.append("   ")
        lines[-1] += f" {quoted}"
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _line(site: str, cells: Sequence[str], width: int) -> str:
    """Return a line of the table."""
    train, labelled, val, test, groups, classes, commonest = cells
    return (
        f"{site:<{width}.{width}} {train:>6} {labelled:>8} {val:>5} {test:>5} {groups:>6} "
        f"{classes:>7}  {commonest:.20}"
    )


def measured_somewhere(pool: Pool, cut: Cut, split: str) -> set[int]:
    """Return the classes, by their places, of which some site measures numbers in a split."""
    measured = set[int]()
    for site_rows in cut.values():
        measured |= set(np.flatnonzero(_measured(pool, site_rows[split])))
    return measured


def compares_classes(pool: Pool, cut: Cut, split: str) -> bool:
    """Return whether some site measures enough classes itself to tell them apart."""
    fewest = fewest_measured(pool.label_kind)
    return any(_measured(pool, rows[split]).sum() >= fewest for rows in cut.values())


def _measured(pool: Pool, rows: Rows) -> npt.NDArray[np.bool_]:
    """Return of which classes (K,) these validation or test images of a site give numbers."""
    groups = [pool.groups[row] for row in rows] if pool.rendering.several else []
    return measured_classes(pool.labels[rows], groups, len(pool.classes), pool.label_kind)


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


def _alone_note(pool: Pool, used: Collection[int]) -> list[str]:
    """Return a note that counts the used images without a patient or lesion; none without any."""
    alone = sum(pool.alone[row] for row in used)
    if not alone:
        return []
    return [f"Images without a patient or lesion, each of which counts as a patient: {alone}."]


def _labelled_note(pool: Pool, cut: Cut, shares: Sequence[float]) -> list[str]:
    """Return a note where sites see more labels than asked for; empty if none does."""
    wanted = 0.0
    total = 0
    asked = 0
    seen = 0
    for site_rows, share in zip(cut.values(), shares, strict=True):
        if not 0 < share < 1:
            continue
        kinds = strata(pool.labels[site_rows["train"]])
        counts = np.bincount(kinds[kinds >= 0])
        wanted = share
        total += int(counts.sum())
        asked += round(share * int(counts.sum()))
        seen += sum(apportion(counts, share))
    if seen <= asked:
        return []
    kind = "class" if pool.label_kind.exclusive else "combination of findings"
    return [
        f"Sites see {seen} of {total} training labels, {seen / total:.1%} in place of "
        f"{wanted:.1%}: each keeps at least one label of each {kind} that it has."
    ]


def _notes(pool: Pool, cut: Cut, shares: Sequence[float], out: Path) -> list[str]:
    """Return what a person should know of the cut, without the pool's own notes."""
    spec: dict[str, Any] = pool.data_spec()
    notes = []
    for kind, part in (
        ("file of several frames", pool.rendering.frames),
        ("volume", pool.rendering.slices),
    ):
        if part:
            images = f"at most {count(part.at_most, 'image')}" if part.at_most else "as many images"
            notes.append(f"A {kind} becomes {images} with its label. The table counts files.")
    for split, about in (("val", "validation"), ("test", "test")):
        notes += _measured_notes(pool, cut, split, about)
    notes += _labelled_note(pool, cut, shares)
    notes += patients_note(
        unused_patients(pool.columns, pool.used_columns, pool.groups),
        lambda name: option("columns", {"group": name}),
    )
    if pool.subgroups:
        columns = [f"{name} ({listed(groups)})" for name, groups in pool.subgroups.items()]
        notes.append(f"Right answers are also counted by {' and '.join(columns)}.")
        notes += left_over_notes(pool.subgroups, pool.columns)
    if not pool.label_kind.exclusive:
        notes.append("An image may show several of the classes, or none.")
    notes.append(f"Classes: {listed(pool.classes)}.")
    colour = "grey" if spec["channels"] == 1 else "RGB"
    notes.append(
        f"{out / DATA_FILE} proposes {spec['image_size']} pixels, {colour}, views {spec['views']} "
        "to the jobs that ship. Edit it where that is wrong, or change a run, as with "
        f"{setting('data.views', 'rotation_invariant')}."
    )
    notes.append(
        f'Reports are titled with the name in it, "{spec["name"]}", which is that of the data '
        'set\'s file or folder. Edit "name" there for another.'
    )
    return notes


def _measured_notes(pool: Pool, cut: Cut, split: str, about: str) -> list[str]:
    """Return a note of what sites measure in a split; nothing if each measures every class."""
    unit = "patients" if pool.rendering.several else "images"
    sites_of: list[list[str]] = [[] for _ in pool.classes]
    evaluating = [site for site, site_rows in cut.items() if len(site_rows[split])]
    for site in evaluating:
        for place in np.flatnonzero(_measured(pool, cut[site][split])):
            sites_of[place].append(site)
    rule = f"a site needs {SMALLEST_COUNT} {about} {unit} of a class to measure it"
    if not evaluating:
        return [f"No site has {about} images."]
    if not any(sites_of):
        return [f"Nothing is measured on {about} images: {rule}."]
    nowhere = [name for name, sites in zip(pool.classes, sites_of, strict=True) if not sites]
    partly = sum(0 < len(sites) < len(evaluating) for sites in sites_of)
    parts = []
    if nowhere:
        parts.append(f"{listed(nowhere)} at no site")
    if partly:
        parts.append(f"{partly} of {len(pool.classes)} classes at some sites only")
    if not parts:
        return []
    return [f"Measured on {about} images: {', and '.join(parts)}; {rule}."]
