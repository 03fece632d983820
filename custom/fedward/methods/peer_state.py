"""The state of a server that chooses peers by features of the sites' last models.

FedPerl and FedMatch compare different features, and share how these are kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedward.methods.algorithm import ServerState


@dataclass
class PeerState(ServerState):
    """The server's state between two rounds. The sites' models are kept by the federation."""

    features_name: ClassVar[str]
    """Key of the features in ``rows``. It is part of a saved state, so it stays as it is."""
    seen: list[str] = field(default_factory=list)
    """The M sites that have sent a model that can be compared, sorted."""
    rows: Mapping[str, Tensor] = field(default_factory=dict)
    """``features_name`` -> features (M, F) float64 of the sites in ``seen``; empty without any.

    One tensor holds them all, because there may be thousands of sites. It has a name, because the
    server saves mappings of tensors.
    """

    @property
    def feature_rows(self) -> Tensor:
        """Features (M, F) of the sites in ``seen``, of which there must be one or more."""
        return self.rows[self.features_name]

    @property
    def features(self) -> dict[str, Tensor]:
        """Features (F,) of each site's last model, by which models are compared."""
        if not self.seen:
            return {}
        return dict(zip(self.seen, self.feature_rows, strict=True))

    def remember(self, features: Mapping[str, Tensor]) -> None:
        """Store the features (F,) of sites in place of the features of their earlier models."""
        if not features:
            return
        newest = self.features | dict(features)
        self.seen = sorted(newest)
        self.rows = {self.features_name: torch.stack([newest[site] for site in self.seen])}

    def indices_of(self, sites: Iterable[str]) -> dict[str, int]:
        """Return site -> its index in ``seen``; sorted, without the sites that are not there."""
        index_of = {site: index for index, site in enumerate(self.seen)}
        return {site: index_of[site] for site in sorted(sites) if site in index_of}
