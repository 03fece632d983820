"""What a report says of sites that are averaged in groups, and of the peers that sites were sent."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import nan

from fedward.evaluation.selection import mean
from fedward.runs.run import Run
from fedward.runs.site_lines import SiteLine
from fedward.text import natural

GROUPS = ("labelled", "unlabelled", "never trained")
"""Kinds of sites, in the order they are shown in."""


@dataclass(frozen=True)
class GroupLine:
    """One site's part in the averages of a run that forms groups."""

    site: SiteLine
    weights: Mapping[int, float]
    """Round -> the site's share of its group's model; rounds it did not contribute to are absent.
    """
    weight: float | None
    """Mean of those after the warm-up."""
    distance: float | None
    """Distance of its model from the mean of those it was averaged with, mean over its averages
    after the warm-up.
    """

    @property
    def group(self) -> str:
        """``labelled`` or ``unlabelled``; ``never trained`` where nothing is known of its images."""
        if self.site.labelled is None:
            return GROUPS[-1]
        return "labelled" if self.site.labelled else "unlabelled"


def group_lines(run: Run, sites: Sequence[SiteLine]) -> list[GroupLine]:
    """Return one line per site, labelled ones first; empty for a run without groups."""
    if not run.groups:
        return []
    weights = effective_weights(run)
    distances = _distances(run)
    lines = []
    for site in sites:
        line = weights.get(site.site, {})
        weight = mean(weight for round_, weight in line.items() if round_ > run.warm_up)
        lines.append(GroupLine(site, line, weight, mean(distances[site.site])))
    return sorted(lines, key=lambda line: GROUPS.index(line.group))


def effective_weights(run: Run) -> dict[str, dict[int, float]]:
    """Return site -> round -> its share of the group's model.

    Several averages of one group in one round count equally; a site that is not in one of them has
    no share in it.
    """
    averages = Counter((row.round, row.group) for row in run.groups)
    table: dict[str, dict[int, float]] = {}
    for row in run.groups:
        for site, weight in zip(row.sites, row.weights, strict=True):
            line = table.setdefault(site, {})
            line[row.round] = line.get(row.round, 0.0) + weight / averages[row.round, row.group]
    return table


def _distances(run: Run) -> dict[str, list[float]]:
    table: dict[str, list[float]] = defaultdict(list)
    for row in run.groups:
        if row.round > run.warm_up:
            for site, distance in zip(row.sites, row.distances, strict=True):
                table[site].append(distance)
    return table


def peer_bytes(run: Run) -> dict[int, float]:
    """Return round -> bytes of peer models sent down.

    A site's message holds the global model and its peers, all of one size, so p peers are p / (p +
    1) of it.
    """
    total: dict[int, float] = {}
    for row in run.bytes:
        total[row.round] = total.get(row.round, 0.0) + row.down * row.peer_models / (
            row.peer_models + 1
        )
    return total


def frequent_peers(run: Run, most: int) -> list[str]:
    """Return all sites that a row of peers or the run names; of more than ``most`` those that were
    peers most often.
    """
    everyone = sorted(
        {*run.info.sites, *(site for row in run.peers for site in row.chosen)}, key=natural
    )
    if len(everyone) <= most:
        return everyone
    chosen = Counter(peer for row in run.peers for peers in row.chosen.values() for peer in peers)
    return sorted(sorted(everyone, key=lambda site: -chosen[site])[:most], key=natural)


def similarity(run: Run, wanted: Collection[str]) -> tuple[list[str], list[list[float]]]:
    """Return (sites, S): how alike the models of two sites were when they were compared last; NaN
    if they never were.

    1 on the diagonal. ``sites`` are those ``wanted`` whose models were compared with another.
    """
    met = {
        site
        for row in run.peers
        for site in (*row.sites, *(near for each in row.nearest for near in each))
    }
    sites = sorted(met.intersection(wanted), key=natural)
    place = {site: index for index, site in enumerate(sites)}
    matrix = [[1.0 if i == j else nan for j in place] for i in place]
    for row in run.peers:
        for site, nearest, values in zip(row.sites, row.nearest, row.similarity, strict=True):
            pairs = zip(nearest, values, strict=True) if site in place else ()
            for other, value in ((other, value) for other, value in pairs if other in place):
                i = place[site]
                j = place[other]
                matrix[i][j] = matrix[j][i] = value
    return sites, matrix


def peer_shares(run: Run, wanted: Sequence[str]) -> tuple[list[str], list[list[float]]]:
    """Return (sites, F): F[i][j] is the share of site i's choices of peers that fell on site j.

    ``sites`` are those ``wanted``. With all sites rows sum to 1, or to 0 for a site without peers.
    """
    counts: dict[str, Counter[str]] = {site: Counter() for site in wanted}
    for row in run.peers:
        for site in counts.keys() & row.chosen.keys():
            counts[site].update(row.chosen[site])
    return list(counts), [
        [chosen[j] / (chosen.total() or 1) for j in counts] for chosen in counts.values()
    ]
