"""What a report says of labels that were bought during a run: curves, counts, and sentences."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedward.report.figures import mean_line
from fedward.runs.run import Run
from fedward.storage.rows import QueryRow
from fedward.text import count

_TOLD = 30
"""Sentences of single sites at most."""


@dataclass(frozen=True)
class LabelLine:
    """What one site's questions brought, by its last answer."""

    site: str
    asked: int
    """Images it asked about in the run."""
    last: QueryRow


def label_lines(run: Run) -> list[LabelLine]:
    """Return one line per site that answered, in the run's order; empty for a run that buys no
    labels.
    """
    by_site: dict[str, list[QueryRow]] = {}
    for row in run.queries:
        by_site.setdefault(row.site, []).append(row)
    there = [(site, by_site[site]) for site in run.info.sites if site in by_site]
    return [LabelLine(site, sum(row.asked for row in rows), rows[-1]) for site, rows in there]


def site_curves(run: Run) -> dict[str, dict[int, float]]:
    """Return site -> labels bought there -> validation key metric there after the last round
    trained with so many.

    A site that got no label has no curve.
    """
    values = run.series("val", run.key_metric)
    bought = _bought(run)
    curves = {site: _curve(bought[site], line) for site, line in values.items() if site in bought}
    return {site: curve for site, curve in curves.items() if curve}


def overall_curve(run: Run, metric: str) -> dict[int, float]:
    """Return labels bought at all sites -> mean of a validation metric over sites, as
    :func:`site_curves`.
    """
    bought = _bought(run)
    rounds = sorted({row.round for row in run.queries})
    total = {round_: sum(_at(line, round_) for line in bought.values()) for round_ in rounds}
    return _curve(total, mean_line(run.series("val", metric)))


def _bought(run: Run) -> dict[str, dict[int, int]]:
    table: dict[str, dict[int, int]] = {}
    for row in run.queries:
        table.setdefault(row.site, {})[row.round] = row.bought
    return table


def _at(line: Mapping[int, int], round_: int) -> int:
    """Return what a site had bought by a round, which it may have missed."""
    return next((line[earlier] for earlier in sorted(line, reverse=True) if earlier <= round_), 0)


def _curve(bought: Mapping[int, int], values: Mapping[int, float]) -> dict[int, float]:
    """Return labels bought -> value; nothing where none was ever bought."""
    curve = {bought[round_]: value for round_, value in sorted(values.items()) if round_ in bought}
    return dict(sorted(curve.items())) if any(curve) else {}


def sentences(run: Run) -> list[str]:
    """Return what a reader should know of the labels; sites whose questions did not come to their
    end are named.
    """
    lines = label_lines(run)
    if not lines:
        return []
    newest = [line.last for line in lines]
    labelled = sum(row.labelled for row in newest)
    bought = sum(row.bought for row in newest)
    images = labelled + sum(row.unlabelled for row in newest)
    found = [
        f"{count(bought, 'label')} came by asking, at {count(len(lines), 'site')}; {labelled} of "
        f"{count(images, 'training image')} had a label at the end."
    ]
    told = [row.minutes for row in newest if row.minutes is not None]
    if told:
        which = (
            ""
            if len(told) == len(lines)
            else f" at the {count(len(told), 'site')} that told what one costs"
        )
        found.append(f"They took {sum(told):.0f} minutes of annotation{which}.")
    single = [text for line in lines for text in _of_site(line.site, line.asked, line.last)]
    more = (
        [f"{len(single) - _TOLD} such sentences on other sites are left out."]
        if len(single) > _TOLD
        else []
    )
    return found + single[:_TOLD] + more


def _of_site(site: str, asked: int, last: QueryRow) -> list[str]:
    found = []
    images = count(asked, "image")
    if not asked:
        found.append(
            f"{site} asked nobody: it trained with the {count(last.labelled, 'label')} it has."
        )
    elif not last.bought:
        found.append(f"{site} asked about {images} and got no label. Does somebody answer there?")
    elif last.waiting:
        found.append(f"At {site}, {last.waiting} of {images} asked about had no label yet.")
    if last.unusable:
        found.append(
            f"At {site}, {count(last.unusable, 'answer')} could not be used; the log there says why."
        )
    return found
