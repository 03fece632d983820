"""How often pseudo-labels were right in a laboratory run, from the notes in its sites' folders.

A simulated site knows the labels that its run hides, and may note how its pseudo-labels compare
with them; see :mod:`fedward.lab.pseudo_labels`. A hospital's run folder has no such notes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedward.evaluation.selection import LAST
from fedward.runs.run import Run
from fedward.storage.rows import PseudoLabelRow, read_rows

PSEUDO_LABELS_FOLDER = "pseudo_labels"
"""Folder in a site's own folder, with one file of notes for each run."""
OTHERS = "other classes"
_NAMED_CLASSES = 5
"""How many classes a figure shows separately; all other classes are one line."""


class Quality(NamedTuple):
    """Quality of the pseudo-labels of several trainings, those of all sites together."""

    kept: float | None
    """Share of pseudo-labels that are used; None if there are none."""
    kept_right: float | None
    """Share of the used pseudo-labels that are right; None if none is used."""
    right: float | None
    """Share of all pseudo-labels that are right; None if there are none."""


@dataclass(frozen=True)
class AgainstHiddenLabels:
    """What a report shows of a run's pseudo-labels."""

    rounds: tuple[int, ...]
    """Rounds in which some pseudo-labels were used."""
    kept: dict[str, tuple[float, ...]]
    """Class -> its share of the used pseudo-labels in each of these rounds.

    The most frequent classes come first, then :data:`OTHERS`.
    """
    last: Quality
    """Quality in the last three rounds of training."""
    classes: tuple[tuple[str, float, float], ...]
    """Class, its share of the unlabelled images, and of the pseudo-labels used in the last three
    rounds.
    """


def against_hidden_labels(run: Run) -> AgainstHiddenLabels | None:
    """Return how a run's pseudo-labels compare with its hidden labels.

    Returns None if no site noted it, or if no pseudo-label was used.
    """
    rows = rows_of(run)
    last = last_rows(run)
    kept_by_round: dict[int, Counter[str]] = {}
    for round_ in _rounds(rows):
        counts = kept_counts(row for row in rows if row.round == round_)
        if counts.total():
            kept_by_round[round_] = counts
    if not kept_by_round:
        return None
    hidden = hidden_counts(last)
    kept_last = kept_counts(last)
    all_counts = sum(kept_by_round.values(), hidden)
    named = [name for name, _ in all_counts.most_common(_NAMED_CLASSES)]
    shares: dict[str, tuple[float, ...]] = {}
    for name in named:
        shares[name] = tuple(counts[name] / counts.total() for counts in kept_by_round.values())
    if set(all_counts) - set(named):
        shares[OTHERS] = tuple(1 - sum(values) for values in zip(*shares.values(), strict=True))
    classes = [
        (name, hidden[name] / hidden.total(), kept_last[name] / max(kept_last.total(), 1))
        for name in run.classes
    ]
    return AgainstHiddenLabels(tuple(kept_by_round), shares, quality(last), tuple(classes))


def rows_of(run: Run) -> list[PseudoLabelRow]:
    """Return the notes of all sites."""
    return [row for rows in notes(run.folder, run.info.id).values() for row in rows]


def last_rows(run: Run) -> list[PseudoLabelRow]:
    """Return the notes of the last three rounds that have some."""
    rows = rows_of(run)
    last_rounds = _rounds(rows)[-LAST:]
    return [row for row in rows if row.round in last_rounds]


def notes(run_folder: Path, run: str) -> dict[str, list[PseudoLabelRow]]:
    """Return site -> its notes of a run by round; of a repeated round the last note counts.

    The sites' folders lie in the run folder of a simulation.

    Raises:
        RunError: a file is broken.
    """
    by_site: dict[str, list[PseudoLabelRow]] = {}
    for path in sorted(run_folder.glob(f"sites/*/{PSEUDO_LABELS_FOLDER}/{run}.jsonl")):
        site = path.parent.parent.name
        by_exchange = {(row.round, row.part): row for row in read_rows(path, PseudoLabelRow, [])}
        by_site[site] = [by_exchange[exchange] for exchange in sorted(by_exchange)]
    return by_site


def quality(rows: Sequence[PseudoLabelRow]) -> Quality:
    """Return the quality of the pseudo-labels in one or more notes."""
    labelled = sum(row.labelled for row in rows)
    right = sum(row.right for row in rows)
    kept = kept_counts(rows).total()
    kept_right = sum(row.kept_right for row in rows)
    return Quality(
        kept=_share(kept, labelled),
        kept_right=_share(kept_right, kept),
        right=_share(right, labelled),
    )


def kept_counts(rows: Iterable[PseudoLabelRow]) -> Counter[str]:
    """Return class -> number of pseudo-labels that were used."""
    return sum((Counter(row.kept) for row in rows), Counter[str]())


def hidden_counts(rows: Iterable[PseudoLabelRow]) -> Counter[str]:
    """Return class -> number of unlabelled images whose hidden label it is."""
    return sum((Counter(row.hidden) for row in rows), Counter[str]())


def _rounds(rows: Iterable[PseudoLabelRow]) -> list[int]:
    return sorted({row.round for row in rows})


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
