"""How good pseudo-labels were in a run whose sites noted it, by the labels that the experiment
hides.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

from fedward.evaluation.selection import LAST
from fedward.lab.pseudo_labels.rows import noted
from fedward.runs.run import Run
from fedward.storage.rows import PseudoLabelRow

_NAMED = 5
"""So many classes have a colour of their own."""
OTHERS = "other classes"


class Quality(NamedTuple):
    """Numbers of some trainings, all sites' pseudo-labels together."""

    kept: float | None
    """Share of pseudo-labels that are used; None where there are none."""
    kept_right: float | None
    """Share of these that are right; None where there are none."""
    right: float | None
    """Share of all pseudo-labels that are right."""
    local: float
    """Accuracy of a site's own model after its training on its unlabelled images, mean over
    trainings.
    """


@dataclass(frozen=True)
class Judged:
    """What a report shows of a run's pseudo-labels."""

    rounds: tuple[int, ...]
    """Those in which some were kept."""
    kept: dict[str, tuple[float, ...]]
    """Class -> its share of what was kept in each of these rounds; the commonest classes, then all
    others together.
    """
    last: Quality
    """Over the last three rounds of training."""
    classes: tuple[tuple[str, float, float], ...]
    """Class, its share of the unlabelled images, and of what was kept in the last three rounds."""


def judged(run: Run) -> Judged | None:
    """Return what sites noted; None where none has kept a pseudo-label, or nothing was noted."""
    rows = rows_of(run)
    last = last_rows(run)
    by_round = {
        round_: total("kept", [row for row in rows if row.round == round_])
        for round_ in _rounds(rows)
    }
    kept = {round_: counts for round_, counts in by_round.items() if counts.total()}
    if not kept:
        return None
    hidden = total("hidden", last)
    used = total("kept", last)
    named = [name for name, _ in (hidden + sum(kept.values(), Counter[str]())).most_common(_NAMED)]
    shares = {
        name: tuple(counts[name] / counts.total() for counts in kept.values()) for name in named
    }
    if set(hidden | sum(kept.values(), Counter[str]())) - set(named):
        shares[OTHERS] = tuple(1 - sum(values) for values in zip(*shares.values(), strict=True))
    classes = (
        (name, hidden[name] / hidden.total(), used[name] / max(used.total(), 1))
        for name in run.classes
    )
    return Judged(tuple(kept), shares, quality(last), tuple(classes))


def rows_of(run: Run) -> list[PseudoLabelRow]:
    """Return all that the sites noted."""
    return [row for rows in noted(run.folder, run.info.id).values() for row in rows]


def last_rows(run: Run) -> list[PseudoLabelRow]:
    """Return what sites noted in the last three rounds in which any did; nothing of a run that was
    not judged.
    """
    rows = rows_of(run)
    rounds = _rounds(rows)[-LAST:]
    return [row for row in rows if row.round in rounds]


def quality(rows: Sequence[PseudoLabelRow]) -> Quality:
    """Return the numbers of one or more rows."""
    labelled, right, kept_right = (
        sum(getattr(row, of) for row in rows) for of in ("labelled", "right", "kept_right")
    )
    kept = total("kept", rows).total()
    shares = (_share(kept, labelled), _share(kept_right, kept), _share(right, labelled))
    return Quality(*shares, local=fmean(row.accuracy for row in rows))


def favourite(rows: Sequence[PseudoLabelRow]) -> str:
    """Return the class most often kept, its share of the kept pseudo-labels, and of the images by
    their labels.
    """
    kept = total("kept", rows)
    hidden = total("hidden", rows)
    if not kept.total():
        return "-"
    name, times = kept.most_common(1)[0]
    return f"{name} {times / kept.total():.2f} ({hidden[name] / hidden.total():.2f})"


def total(of: Literal["kept", "hidden"], rows: Iterable[PseudoLabelRow]) -> Counter[str]:
    """Return the sum over rows of counts by class."""
    return sum((Counter(getattr(row, of)) for row in rows), Counter[str]())


def _rounds(rows: Iterable[PseudoLabelRow]) -> list[int]:
    return sorted({row.round for row in rows})


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
