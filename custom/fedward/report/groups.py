"""The report's section on sites that are averaged in groups, such as by IsoFed."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedward.evaluation.selection import mean
from fedward.report import drawing, multiples
from fedward.report.sites import MANY
from fedward.runs.run import Run
from fedward.runs.sentences import named
from fedward.runs.site_lines import SiteLine
from fedward.text import count

_COLOURS = {
    "labelled": drawing.SERIES[0],
    "unlabelled": drawing.SERIES[1],
    "never trained": drawing.FAINT,
}
"""Kind of site -> colour of its bars, in the order the kinds are shown in."""


@dataclass(frozen=True)
class GroupLine:
    """One site's part in the averages of a run that forms groups."""

    site: SiteLine
    weights: Mapping[int, float]
    """Round -> the site's share of its group's model, for the rounds that it contributed to."""
    weight: float | None
    """Mean weight after the warm-up."""
    distance: float | None
    """Mean distance of its model from the models it was averaged with, after the warm-up."""

    @property
    def group(self) -> str:
        """``labelled``, ``unlabelled``, or ``never trained`` if its images are unknown."""
        if self.site.labelled is None:
            return "never trained"
        return "labelled" if self.site.labelled else "unlabelled"


@dataclass(frozen=True)
class Groups:
    """What the section shows."""

    sentence: str
    """Who was averaged with whom."""
    weights: Sequence[tuple[GroupLine, Markup]]
    """A site that contributed, and the picture of its weights; of many sites some."""
    contributed: int
    """Sites that contributed."""
    lines: Sequence[GroupLine]
    """The table's lines."""

    @classmethod
    def of(cls, run: Run, sites: Sequence[SiteLine], shown: Sequence[SiteLine]) -> "Groups | None":
        """Return the section; None if no site contributed to an average of a group.

        Args:
            run: the run of the report.
            sites: all of its sites.
            shown: those that a table shows.
        """
        lines = group_lines(run, sites)
        contributed = [line for line in lines if line.weights]
        if not contributed:
            return None
        names = {line.site for line in shown}
        drawn = [line for line in contributed if line.site.site in names] or contributed[:MANY]
        pictures = multiples.weights(
            {line.site.site: line.weights for line in drawn},
            {line.site.site: _COLOURS[line.group] for line in drawn},
        )
        return cls(
            sentence=grouping(run, lines),
            weights=[(line, pictures[line.site.site]) for line in drawn],
            contributed=len(contributed),
            lines=[line for line in lines if line.site.site in names],
        )


def group_lines(run: Run, sites: Sequence[SiteLine]) -> list[GroupLine]:
    """Return one line per site, labelled ones first; empty for a run without groups."""
    if not run.groups:
        return []
    weights = effective_weights(run)
    distances = _distances(run)
    lines = []
    for site in sites:
        by_round = weights.get(site.site, {})
        line = GroupLine(
            site=site,
            weights=by_round,
            weight=mean(weight for round_, weight in by_round.items() if round_ > run.warm_up),
            distance=mean(distances[site.site]),
        )
        lines.append(line)
    kinds = list(_COLOURS)
    return sorted(lines, key=lambda line: kinds.index(line.group))


def effective_weights(run: Run) -> dict[str, dict[int, float]]:
    """Return site -> round -> its share of the group's model.

    Several averages of one group in one round count equally; a site that is not in one of them has
    no share in it.
    """
    averages = Counter((row.round, row.group) for row in run.groups)
    table: dict[str, dict[int, float]] = {}
    for row in run.groups:
        for site, weight in zip(row.sites, row.weights, strict=True):
            by_round = table.setdefault(site, {})
            share = weight / averages[row.round, row.group]
            by_round[row.round] = by_round.get(row.round, 0.0) + share
    return table


def _distances(run: Run) -> dict[str, list[float]]:
    """Return site -> distances of its models from the means of their groups, after the warm-up."""
    table: dict[str, list[float]] = defaultdict(list)
    for row in run.groups:
        if row.round > run.warm_up:
            for site, distance in zip(row.sites, row.distances, strict=True):
                table[site].append(distance)
    return table


def grouping(run: Run, lines: Sequence[GroupLine]) -> str:
    """Return who was averaged with whom, in a run with groups."""
    groups = {row.group for row in run.groups}
    labelled = _averaged_sites(run, lines, "labelled")
    unlabelled = _averaged_sites(run, lines, "unlabelled")
    passes = ""
    most_averages = max(Counter(row.round for row in run.groups).values())
    if most_averages > 1:
        passes = (
            f" A round's model is the mean of up to {most_averages} such averages, each over some "
            "of the sites."
        )
    if all(line.group == "labelled" for line in lines):
        return f"All sites have labels ({labelled}) and were averaged together.{passes}"
    if "all" in groups:
        return (
            f"Sites with labels ({labelled}) and sites without ({unlabelled}) were averaged "
            f"together.{passes}"
        )
    if len(groups) > 1:
        return (
            f"Sites with labels ({labelled}) were averaged among themselves, and so were sites "
            f"without ({unlabelled}); the two groups were never mixed."
        )
    if groups == {"labelled"}:
        return f"Only sites with labels ({labelled}) were averaged; the others contributed nothing."
    return f"Only sites without labels ({unlabelled}) were averaged so far."


def _averaged_sites(run: Run, lines: Sequence[GroupLine], group: str) -> str:
    """Return the names of a group's sites that were in an average."""
    averaged = {site for row in run.groups for site in row.sites}
    sites = [line.site.site for line in lines if line.group == group]
    return named([site for site in sites if site in averaged])


def warm_up(run: Run) -> str:
    """Return what is different in the first rounds; empty for a run without such rounds."""
    if not run.warm_up:
        return ""
    difference = "only sites with labels trained" if run.groups else "sites trained without peers"
    return f"In the warm-up ({count(run.warm_up, 'round')}), {difference}."
