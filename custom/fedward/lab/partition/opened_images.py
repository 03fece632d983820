"""All images of a pool are opened once, before it is cut: what is unusable or contradicts itself.

What is refused or left out here would be refused by ``fedward doctor`` and ``fedward run``, at one
site or another.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from fedward.console.live_line import live_line
from fedward.console.progress import State
from fedward.errors import DataError, option
from fedward.lab.partition.faults import Decision, Faults
from fedward.lab.partition.image_pool import frames_remedy, hidden_by, refuse_many
from fedward.lab.partition.pool import LeftOutImage, OpenedImage, Origin, Pool
from fedward.labels import NO_FINDING, SEPARATOR, known
from fedward.sites.dark_images import dark_note
from fedward.sites.hiding_windows import Better, better_window, window_words
from fedward.sites.rendering import Rendering, Window
from fedward.text import count

Contradicting: TypeAlias = Literal["left-out", "kept"]
"""What becomes of a picture with several labels."""

_MOST_NAMED = 3
"""Pictures with several labels that a text names."""


class _Opening:
    """How far the opening of the images is, for the line in a terminal."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._done = 0

    def each(self, opened: Iterator[OpenedImage]) -> Iterator[OpenedImage]:
        """Yield what was seen of each image, and count them."""
        for image in opened:
            self._done += 1
            yield image

    def state(self) -> State:
        """Return the line."""
        words = f"opens all images ({self._done} of {count(self._rows, 'image')})"
        return State(words, self._done / max(1, self._rows))


def with_usable_images(
    pool: Pool, where: str, contradicting: Contradicting | None, faults: Faults
) -> Pool:
    """Open all images of a pool, and return it without those that cannot be used.

    Args:
        pool: what is to be cut.
        where: names its source, for errors.
        contradicting: what becomes of pictures with several labels; None: nobody has decided.
        faults: gets what must be fixed or decided: more than 5 % of the images are damaged or
            blank, files hold several frames, of which none are chosen, or a picture has several
            labels.
    """
    opening = _Opening(len(pool.labels))
    with live_line(opening):
        opened = list(opening.each(pool.open_images()))
    if not opened:
        return pool
    rendering = pool.rendering
    notes, reasons = _unusable(where, opened, rendering, faults)
    dark = [image for image in opened if image.dark]
    cause = ""
    if any(image.shown_in for image in dark):
        cause = hidden_by(rendering.window, _better(opened, rendering))
    files = [image.path for image in dark if image.path]
    whole = sum(not image.problem for image in opened)
    notes += dark_note([image.name for image in dark], whole, cause, files)
    rows_of = _rows_by_picture(opened)
    contradictions = _contradictions(pool, rows_of.values())
    if contradictions and contradicting is None:
        faults.note(_contradiction(where, pool, opened, contradictions), contradicting="left-out")
        # Such pictures stay in what is cut, as if their labels had been corrected.
        rows_of = _without_contradictions(rows_of, contradictions)
    elif contradictions:
        rows = sum(map(len, contradictions))
        fate = "kept, as decided"
        if contradicting == "left-out":
            several = "a picture with several labels, left out as decided"
            reasons |= {row: several for rows in contradictions for row in rows}
            fate = "left out"
        notes.append(
            f"{count(len(contradictions), 'picture')} with several labels, of {rows} rows: {fate}."
        )
    pool = replace(pool, copies=tuple(tuple(same) for same in rows_of.values() if len(same) > 1))
    if reasons:
        pool = pool.leaving_out(reasons)
        pool = pool.taken([row for row in range(len(opened)) if row not in reasons])
    return pool.noting(notes)


def _better(opened: Sequence[OpenedImage], rendering: Rendering) -> Better:
    """Return how images can be seen that a window hides, together with all that can be seen."""
    hidden: dict[Path, Window] = {}
    others = []
    for image in opened:
        if image.path and image.shown_in:
            hidden[image.path] = image.shown_in
        elif image.path and not image.problem:
            others.append(image.path)
    return better_window(hidden, others, rendering)


def _rows_by_picture(opened: Sequence[OpenedImage]) -> dict[bytes, list[int]]:
    """Return the rows of each picture that can be used, by the digest of its pixels.

    What a window hides is left out: dark pictures may be alike only as they are shown.
    """
    rows_of = defaultdict[bytes, list[int]](list)
    for row, image in enumerate(opened):
        if image.digest and not image.shown_in:
            rows_of[image.digest].append(row)
    return rows_of


def _without_contradictions(
    rows_of: Mapping[bytes, list[int]], contradictions: Iterable[list[int]]
) -> dict[bytes, list[int]]:
    """Return the rows of each picture that has one label."""
    contradicting = {row for rows in contradictions for row in rows}
    return {name: rows for name, rows in rows_of.items() if contradicting.isdisjoint(rows)}


def _unusable(
    where: str, opened: Sequence[OpenedImage], rendering: Rendering, faults: Faults
) -> tuple[list[str], dict[int, str]]:
    """Return notes of the images that cannot be used; and row -> why it is left out.

    Many are a fault. They then stay in what is cut, as if they were fixed: that sites are too
    small without them would be no fault of its own.

    Args:
        where: names the source, for errors.
        opened: what was seen of each row.
        rendering: how files become images.
        faults: gets what must be fixed or decided.
    """
    rows = range(len(opened))
    several = [row for row in rows if opened[row].several]
    hidden = [row for row in rows if opened[row].problem and opened[row].shown_in]
    with_problem = {row for row in rows if opened[row].problem}
    others = sorted(with_problem.difference(several, hidden))
    better = _better(opened, rendering) if hidden else Better()
    hides = hidden_by(rendering.window, better)
    other_window: dict[str, Decision] = {}
    if better.window or better.own:
        # No word: the command is right without a window.
        other_window["window"] = window_words(better.window) if better.window else []
    kinds: list[tuple[list[int], str, str, dict[str, Decision]]] = [
        (several, frames_remedy(), "", {"frames": "all"}),
        (hidden, hides, hides, other_window),
        (others, "Repair these files, or leave them out.", "", {}),
    ]
    notes = []
    reasons: dict[int, str] = {}
    for of_kind, remedy, further_note, decisions in kinds:
        bad = [opened[row] for row in of_kind]
        unusable = [LeftOutImage(Origin(image.name), image.problem) for image in bad]
        with faults.noted(**decisions):
            refuse_many(where, unusable, len(opened), remedy)
            if of_kind and further_note:
                notes.append(further_note)
            reasons |= {row: opened[row].problem for row in of_kind}
    return notes, reasons


def _contradictions(pool: Pool, pictures: Iterable[list[int]]) -> list[list[int]]:
    """Return the rows of each picture that has several labels; rows without a label have none.

    ``pictures``: the rows of each picture.
    """
    has_label = known(pool.labels)
    contradictions = []
    for rows in pictures:
        with_label = [row for row in rows if has_label[row]]
        if len(np.unique(pool.labels[with_label], axis=0)) > 1:
            contradictions.append(with_label)
    return contradictions


def _contradiction(
    where: str, pool: Pool, opened: Sequence[OpenedImage], contradictions: Sequence[Sequence[int]]
) -> DataError:
    """Return the error that names the first pictures with several labels."""
    examples = []
    for rows in contradictions[:_MOST_NAMED]:
        labels: dict[str, str] = {}
        for row in rows:
            labels.setdefault(_label(pool, row), opened[row].name)
        examples.append(" and ".join(f"{name} ({label})" for label, name in labels.items()))
    return DataError(
        where,
        f"Correct the labels. To leave such pictures out: {option('contradicting', 'left-out')}. "
        f"To train on them as they are: {option('contradicting', 'kept')}.",
        expected="one label for each picture",
        found=f"{count(len(contradictions), 'picture')} with several: {'; '.join(examples)}",
    )


def _label(pool: Pool, row: int) -> str:
    """Return the label of a row, in words."""
    label = pool.labels[row]
    if pool.label_kind.exclusive:
        return pool.classes[int(label)]
    shown = [name for name, value in zip(pool.classes, label, strict=True) if value == 1]
    return SEPARATOR.join(shown) or NO_FINDING
