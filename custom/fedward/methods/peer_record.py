"""The record of a round's peers, of which the server makes a row of peers.jsonl."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

LOGGED_NEIGHBOURS = 30
"""How many of the sites most similar to a participant are logged.

A limit keeps the rows of the log from growing with the federation.
"""


class PeerRecord:
    """What a server that compares models logs of one round.

    Args:
        names: of the M sites whose models are compared.
        features: number of features of each model.
        anonymised: whether a site is sent the mean of its peers' models.
    """

    def __init__(self, names: Sequence[str], features: int, anonymised: bool) -> None:
        self._names = names
        self._features = features
        self._anonymised = anonymised
        self._sites: list[str] = []
        self._nearest: list[list[str]] = []
        self._similarities: list[list[float]] = []

    def add(self, site: str, closest: Sequence[int], similarities: Tensor) -> None:
        """Add a participant.

        Args:
            site: its name.
            closest: indices of the sites most similar to it, in falling order of similarity.
            similarities: (M,), those to each of the M sites.
        """
        logged = list(closest[:LOGGED_NEIGHBOURS])
        self._sites.append(site)
        self._nearest.append([self._names[index] for index in logged])
        self._similarities.append(similarities[logged].tolist())

    def row(self, chosen: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Return the fields of a :class:`fedward.storage.rows.PeerRow` besides the round.

        Args:
            chosen: site -> the peers whose models it is sent.
        """
        return {
            "sites": self._sites,
            "nearest": self._nearest,
            "similarity": self._similarities,
            "chosen": chosen,
            "anonymised": self._anonymised,
            "features": self._features,
        }
