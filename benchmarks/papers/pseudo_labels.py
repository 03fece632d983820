"""How good pseudo-labels were in a run whose sites noted it, by the labels that the experiment hides."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from fedward.evaluation.selection import LAST
from fedward.report.run import Run
from fedward.storage.pseudo_labels import noted
from fedward.storage.rows import PseudoLabelRow
from papers.numbers import head, line, mean


class Quality(NamedTuple):
    """Numbers of one run over the last rounds in which sites trained, all sites' pseudo-labels together."""

    kept: float | None
    """Share of pseudo-labels that are used; None where there are none."""
    kept_right: float | None
    """Share of these that are right; None where there are none."""
    right: float | None
    """Share of all pseudo-labels that are right."""
    local: float
    """Accuracy of a site's own model after its training on its unlabelled images, mean over trainings."""


def last_rows(run: Run) -> list[PseudoLabelRow]:
    """Return what sites noted in the last three rounds in which any did; nothing of a run that was not judged."""
    rows = [row for rows in noted(run.folder, run.info.id).values() for row in rows]
    rounds = sorted({row.round for row in rows})[-LAST:]
    return [row for row in rows if row.round in rounds]


def quality(rows: Sequence[PseudoLabelRow]) -> Quality:
    """Return the numbers of one or more rows."""
    labelled, right, kept_right = (sum(getattr(row, of) for row in rows) for of in ("labelled", "right", "kept_right"))
    kept = sum(sum(row.kept.values()) for row in rows)
    shares = (_share(kept, labelled), _share(kept_right, kept), _share(right, labelled))
    return Quality(*shares, local=fmean(row.accuracy for row in rows))


def favourite(rows: Sequence[PseudoLabelRow]) -> str:
    """Return the class most often kept, its share of the kept pseudo-labels, and of the images by their labels."""
    kept, hidden = (sum((Counter(getattr(row, of)) for row in rows), Counter[str]()) for of in ("kept", "hidden"))
    if not kept:
        return "-"
    name, times = kept.most_common(1)[0]
    return f"{name} {times / kept.total():.2f} ({hidden[name] / hidden.total():.2f})"


def table(rows: Mapping[str, Sequence[Run]]) -> str:
    """Return a table in markdown of methods by their titles, with those whose sites noted anything; else nothing."""
    columns = ("share kept", "kept that are right", "all that are right", "sites' own models", "most kept (true share)")
    lines = [
        "\n### Unlabelled images, last three rounds of training\n",
        *head("method", "seeds", *columns, left=(0, 6)),
    ]
    found = {title: [judged for run in runs if (judged := last_rows(run))] for title, runs in rows.items()}
    for title, by_run in found.items():
        if by_run:
            numbers = zip(*map(quality, by_run), strict=True)
            told = [[value for value in column if value is not None] for column in numbers]
            cells = [mean(column, digits=3) if column else "-" for column in told]
            every = [row for judged in by_run for row in judged]
            lines.append(line(title, str(len(by_run)), *cells, favourite(every)))
    return "\n".join(lines) if any(found.values()) else ""


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
