"""The report's section on peers: whose models are alike, and whose models helped whom (FedPerl)."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import nan

from markupsafe import Markup

from fedward.report import figures
from fedward.report.site_order import community_order
from fedward.report.sites import MANY
from fedward.runs.communities import Community, community, found_communities, picks_of
from fedward.runs.run import Run
from fedward.storage.rows import PeerRow
from fedward.text import natural

_FEWEST_FEATURES = 10
"""Fewer features than these are those of a classifier alone, and may not tell sites apart."""
_MOST_COMMUNITIES = 6
"""Number of communities that are listed at most, the largest."""
_MOST_NAMED = 12
"""Number of sites of a community that are named at most."""


@dataclass(frozen=True)
class Peers:
    """What the section shows."""

    newest: PeerRow
    """The last row of peers.jsonl."""
    shown: int | None
    """Number of sites in the figures; None if they show all."""
    similarity: Markup | None
    """How alike two sites' models are; None if none was compared with another."""
    chosen: Markup | None
    """Which site's peers were which other sites; None if there were none."""
    communities: Sequence[Community]
    """The largest communities of sites that were each other's peers."""
    similarity_of: str
    """What described a model: ``moments``, ``rows`` or ``answers``."""
    at_random: bool
    """Whether peers are drawn at random, and not by how alike models are."""
    most_named: int
    """Number of sites of a community that are named at most."""
    few_features: bool
    """Whether models were compared by so few numbers that many sites look alike."""

    @classmethod
    def of(cls, run: Run) -> "Peers | None":
        """Return the section; None for a run without peers."""
        if not run.peers:
            return None
        newest = run.peers[-1]
        central = frequent_peers(run, MANY)
        compared, alike = similarity(run, central)
        picks = picks_of(run.info.sites, run.peers)
        communities = found_communities(picks)
        neighbours = [compared[place] for place in community_order(alike)]
        neighbours = by_community(neighbours, communities)
        order = [compared.index(site) for site in neighbours]
        matrix = [[alike[row][column] for column in order] for row in order]
        title = f"Similarity of the sites' models, up to round {newest.round}"
        options = run.info.experiment.get("options", {})
        at_random = options.get("peers") == "random"
        return cls(
            newest=newest,
            shown=len(central) if len(run.info.sites) > len(central) else None,
            similarity=figures.heat_map(
                neighbours, matrix, title, "site", "site", blocks(neighbours, communities)
            )
            if neighbours
            else None,
            chosen=_chosen(run, central, neighbours, communities),
            communities=[community(picks, members) for members in communities[:_MOST_COMMUNITIES]],
            similarity_of=options.get("similarity", "moments"),
            at_random=at_random,
            most_named=_MOST_NAMED,
            few_features=newest.features < _FEWEST_FEATURES
            and options.get("similarity", "moments") == "moments"
            and not at_random,
        )


def by_community(sites: Sequence[str], communities: Sequence[Sequence[str]]) -> list[str]:
    """Return the sites with the members of each community side by side.

    A community comes where its first member was; members, and sites of none, keep their order.
    """
    community_of = {site: members for members in communities for site in members}
    order = dict[str, None]()
    for site in sites:
        members = community_of.get(site, (site,))
        for other in sites:
            if other in members:
                order[other] = None
    return list(order)


def blocks(sites: Sequence[str], communities: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return where the communities are in an order of :func:`by_community`.

    Returns:
        Place of the first member and number of members, of communities with two of the sites.
    """
    found = []
    for members in communities:
        places = [place for place, site in enumerate(sites) if site in members]
        if len(places) > 1:
            found.append((places[0], len(places)))
    return found


def _chosen(
    run: Run,
    wanted: Sequence[str],
    neighbours: Sequence[str],
    communities: Sequence[Sequence[str]],
) -> Markup | None:
    """Return the figure of chosen peers, in the order of neighbours and then of all other sites."""
    names, shares = peer_shares(run, wanted)
    if not any(map(any, shares)):
        return None
    places = {site: place for place, site in enumerate(neighbours)}
    ordered_names = sorted(names, key=lambda site: places.get(site, len(places)))
    ordered_names = by_community(ordered_names, communities)
    order = [names.index(site) for site in ordered_names]
    matrix = [[shares[row][column] for column in order] for row in order]
    title = "Share of a site's peers that were each other site"
    frames = blocks(ordered_names, communities)
    return figures.heat_map(ordered_names, matrix, title, "helped", "peer", frames)


def peer_bytes(run: Run) -> dict[int, float]:
    """Return round -> bytes of peer models sent down.

    A site's message holds the global model and its peers, all of one size, so p peers are p / (p +
    1) of it.
    """
    totals: dict[int, float] = {}
    for row in run.bytes:
        share = row.peer_models / (row.peer_models + 1)
        totals[row.round] = totals.get(row.round, 0.0) + row.down * share
    return totals


def frequent_peers(run: Run, most: int) -> list[str]:
    """Return all sites that the run or a row of peers names, at most ``most``.

    Of more than ``most`` they are those that were peers most often.
    """
    choices = Counter[str]()
    everyone = set(run.info.sites)
    for row in run.peers:
        everyone.update(row.chosen)
        for peers in row.chosen.values():
            choices.update(peers)
    sites = sorted(everyone, key=natural)
    if len(sites) <= most:
        return sites
    by_choices = sorted(sites, key=lambda site: -choices[site])
    return sorted(by_choices[:most], key=natural)


def similarity(run: Run, wanted: Collection[str]) -> tuple[list[str], list[list[float]]]:
    """Return (sites, S): how alike the models of two sites were when they were compared last.

    S is (n, n), with 1 on the diagonal and NaN for two sites that were never compared. ``sites``
    are those ``wanted`` whose models were compared with another.
    """
    compared: set[str] = set()
    for row in run.peers:
        compared.update(row.sites)
        for nearest in row.nearest:
            compared.update(nearest)
    sites = sorted(compared.intersection(wanted), key=natural)
    place = {site: index for index, site in enumerate(sites)}
    matrix = [[1.0 if i == j else nan for j in place] for i in place]
    for row in run.peers:
        for site, nearest, values in zip(row.sites, row.nearest, row.similarity, strict=True):
            for other, value in zip(nearest, values, strict=True):
                if site in place and other in place:
                    matrix[place[site]][place[other]] = value
                    matrix[place[other]][place[site]] = value
    return sites, matrix


def peer_shares(run: Run, wanted: Sequence[str]) -> tuple[list[str], list[list[float]]]:
    """Return (sites, F): F[i][j] is the share of site i's choices of peers that fell on site j.

    ``sites`` are those ``wanted``. If they are all sites, a row sums to 1, or to 0 for a site
    without peers.
    """
    choices: dict[str, Counter[str]] = {site: Counter() for site in wanted}
    for row in run.peers:
        for site in choices.keys() & row.chosen.keys():
            choices[site].update(row.chosen[site])
    shares = []
    for chosen in choices.values():
        total = chosen.total() or 1
        shares.append([chosen[peer] / total for peer in choices])
    return list(choices), shares
