"""A run beside others: what each came to, and how the first differs from the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedward.evaluation.intervals import Interval, paired_difference
from fedward.evaluation.selection import Selection, mean
from fedward.runs.choices import Choices, tested_values
from fedward.runs.run import Run


@dataclass(frozen=True)
class Comparison:
    """One run beside the others."""

    name: str
    run: Run
    choices: Choices
    auroc: float | None
    """Macro AUROC on test at the best single round, mean over sites."""
    megabytes: float
    difference: Interval | None
    """The first run minus this one: test metric over the last rounds, paired over sites with the
    same images.
    """
    paired: int
    """Sites in that difference."""


def comparisons(runs: Sequence[Run], metric: str) -> list[Comparison]:
    """Return one line per run; the others are compared with the first, whose report it is."""
    lines: list[Comparison] = []
    for run, name in zip(runs, names(runs), strict=True):
        choices = Choices.of(run, metric)
        pairs = _pairs(lines[0].choices.end, choices.end) if lines else []
        lines.append(
            Comparison(
                name=name,
                run=run,
                choices=choices,
                auroc=mean(tested_values(run, "auroc_macro", choices.reported).values()),
                megabytes=sum(row.down + row.up for row in run.bytes) / 1e6,
                difference=paired_difference(*zip(*pairs, strict=True)) if pairs else None,
                paired=len(pairs),
            )
        )
    return lines


def _pairs(a: Selection, b: Selection) -> list[tuple[float, float]]:
    """Return the values of sites that have as many test images in both: others were not measured on
    the same ones.
    """
    other = {(choice.site, choice.images): choice.test for choice in b.sites}
    pairs = [(choice.test, other.get((choice.site, choice.images))) for choice in a.sites]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def names(runs: Sequence[Run]) -> list[str]:
    """Return a short name per run, all different: its title where that is enough, else with
    :func:`_ends`.
    """
    folders: dict[str, list[Path]] = {}
    for run in runs:
        folders.setdefault(run.title, []).append(run.folder)
    ends = {title: iter(_ends(alike)) for title, alike in folders.items()}
    return [run.title + next(ends[run.title]) for run in runs]


def _ends(folders: Sequence[Path]) -> list[str]:
    """Return, in brackets, as much of the paths' ends as tells all folders apart; numbers where one
    is named twice.

    A single folder needs nothing.
    """
    if len(folders) == 1:
        return [""]
    paths = [folder.resolve().parts for folder in folders]
    ends = (
        [str(Path(*parts[-length:])) for parts in paths]
        for length in range(1, max(map(len, paths)) + 1)
    )
    numbers = [str(number) for number in range(1, len(paths) + 1)]
    return [
        f" ({end})"
        for end in next((found for found in ends if len(set(found)) == len(found)), numbers)
    ]
