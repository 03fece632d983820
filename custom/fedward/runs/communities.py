"""Which sites were peers of which (FedPerl), and how often both were of one community."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedward.storage.rows import PeerRow
from fedward.text import natural

Picks: TypeAlias = Mapping[str, Mapping[str, int]]
"""Site -> other site -> how often the other was its peer. Each site of the run is a key."""


@dataclass(frozen=True)
class Community:
    """Sites that belong together, and whether they found each other."""

    sites: tuple[str, ...]
    """Its members."""
    picks: int
    """Number of peers that its members were given, over all rounds."""
    inside: int
    """How many of these were members too."""
    chance: float
    """Share that would be members if peers were drawn at random among all other sites."""

    @property
    def share(self) -> float:
        """Share of the members' peers that were members, in [0, 1]; 0 if they had no peers."""
        return self.inside / self.picks if self.picks else 0.0


def picks_of(sites: Iterable[str], rows: Iterable[PeerRow]) -> dict[str, dict[str, int]]:
    """Count the peers of each site over the rows of peers.jsonl.

    Args:
        sites: all sites of the run; sites that a row names besides are added.
        rows: the rows.
    """
    counts = {site: Counter[str]() for site in sites}
    for row in rows:
        for site, peers in row.chosen.items():
            counts.setdefault(site, Counter()).update(peers)
            for peer in peers:
                counts.setdefault(peer, Counter())
    return {site: dict(counts[site]) for site in sorted(counts, key=natural)}


def community(picks: Picks, members: Collection[str]) -> Community:
    """Return how often the members of a community were each other's peers.

    Source: Bdair et al., MELBA 2022, Sec. 3.3 and Fig. 3.

    Args:
        picks: of all sites.
        members: two or more sites.
    """
    given = Counter[str]()
    for member in members:
        given.update(picks.get(member, {}))
    return Community(
        sites=tuple(sorted(members, key=natural)),
        picks=given.total(),
        inside=sum(given[member] for member in members),
        chance=(len(members) - 1) / max(len(picks) - 1, 1),
    )


def found_communities(picks: Picks) -> list[Sequence[str]]:
    """Divide the sites into communities whose members were each other's peers most often.

    Each site's picks count as shares, so that one that took part more often has no more weight.
    The directions of a pair are added.

    Source: Blondel et al., *Fast unfolding of communities in large networks*, 2008, as in networkx.
    FedPerl's paper reads its communities off the figure.

    Returns:
        Communities of two sites or more, the largest first; none if no site had a peer.
    """
    # Its import takes a tenth of a second, and few runs have peers.
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(picks)
    for site, peers in picks.items():
        total = sum(peers.values())
        for peer, times in peers.items():
            before = graph.get_edge_data(site, peer, {"weight": 0.0})["weight"]
            graph.add_edge(site, peer, weight=before + times / total)
    # Sites are visited in an order that is drawn from the seed.
    parts = networkx.community.louvain_communities(graph, seed=0)
    communities = [sorted(part, key=natural) for part in parts if len(part) > 1]
    return sorted(communities, key=lambda part: (-len(part), natural(part[0])))
