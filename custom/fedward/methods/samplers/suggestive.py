"""SA, suggestive annotation: the least sure images, and of the others some of every kind.

Shi, Dou, Xue, Qin, Chen, Heng: *An active learning approach for reducing annotation cost in skin
lesion analysis*, MLMI 2019, without its mixing of images. A share of the budget goes to the lowest
confidence. The rest is spread over groups of alike pictures, found by locality-sensitive hashing.
"""

import math
from collections import defaultdict
from itertools import chain, zip_longest

import torch
from pydantic import Field
from torch import Tensor

from fedward.methods.samplers.base import Sampler, SamplerSettings, shuffled
from fedward.methods.samplers.equations import select
from fedward.methods.samplers.pool import Pool, Uses

_IMAGES_AT_ONCE = 64


class SuggestiveSettings(SamplerSettings):
    """SA's choices, those of the authors' code."""

    uncertain_share: float = Field(0.7, ge=0.0, le=1.0)
    """Of the budget, for the least confident. Authors' code: 0.7 of 0.3, 0.5, 0.7 and 0.9."""
    bands: int = Field(10, ge=1, le=64)
    """b: images alike in one band are alike. Authors' code: 10."""
    rows: int = Field(30, ge=1, le=62)
    """r: bits of a band, all of which have to be equal. Authors' code: 30."""
    groups: int = Field(20, ge=1)
    """At most so many groups; images of the smaller ones join the nearest. Authors' code: 20."""


@torch.no_grad()
def principal_axes(images: Tensor) -> Tensor:
    """Describe each picture by the first principal axis of its H rows of pixels, each a point in W
    dimensions, centred.

    Source: Shi et al., MLMI 2019; the authors' code takes grey images of 224 by 224 pixels.

    Args:
        images: (N, H, W) grey, any numeric dtype; H, W >= 1.

    Returns:
        (N, W) float32 of norm 1; the entry of largest size is positive. The axis of an image whose
        rows are all equal is 0. O(N W² (H + W)).
    """
    if not len(images):
        return torch.empty(0, images.shape[2])
    return torch.cat([_principal_axes(block) for block in images.split(_IMAGES_AT_ONCE)])


def _principal_axes(images: Tensor) -> Tensor:
    rows = images.to(torch.float64)
    rows = rows - rows.mean(dim=1, keepdim=True)
    axes: Tensor = torch.linalg.eigh(rows.mT @ rows).eigenvectors[:, :, -1]
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    return (
        (axes * largest.sign()).masked_fill(~rows.flatten(1).any(dim=1, keepdim=True), 0.0).float()
    )


@torch.no_grad()
def hashed_groups(
    features: Tensor, bands: int, rows: int, groups: int, generator: torch.Generator
) -> list[list[int]]:
    """Group alike images by the side of random hyperplanes on which they lie.

    Image i has bits ``[x_i · h >= 0]`` for ``b r`` normal directions h. Two images are alike where
    all r bits of one of b bands are equal, and grouped with all that are alike to either.

    Source: Shi et al., MLMI 2019, with Kak's LocalitySensitiveHashing; Charikar, STOC 2002, for the
    hash.

    Args:
        features: x (N, D) finite.
        bands, rows, groups: b, r, and the number of groups to end with, all >= 1, r <= 62.
        generator: draws the directions.

    Returns:
        At most ``groups`` disjoint lists of positions, rising in each, that together hold every
        image once. Images beyond the ``groups`` largest, where equal the first, each join the group
        whose mean is nearest.

    Edge cases: N = 0 gives none; an image at 0 lies on the upper side of every plane.

    Deviates: the library's merging passes once over its groups, which may overlap afterwards; here
    they are the connected components.
    """
    planes = torch.randn(features.shape[1], bands * rows, generator=generator)
    bits = (features @ planes >= 0).view(len(features), bands, rows)
    keys = (bits.long() << torch.arange(rows)).sum(dim=2)
    found: dict[int, list[int]] = defaultdict(list)
    for position, label in enumerate(_components(keys).tolist()):
        found[label].append(position)
    ordered = sorted(found.values(), key=len, reverse=True)
    kept = ordered[:groups]
    strays = list(chain(*ordered[groups:]))
    if strays:
        means = torch.stack([features[members].mean(dim=0) for members in kept])
        nearest = torch.cdist(features[strays], means).argmin(dim=1).tolist()
        for position, group in zip(strays, nearest, strict=True):
            kept[group].append(position)
    return [sorted(members) for members in kept]


def _components(keys: Tensor) -> Tensor:
    """Return for each row of (N, b) the lowest row it is connected to by equal keys in a column."""
    columns = [key.unique(return_inverse=True)[1] for key in keys.unbind(dim=1)]
    labels = torch.arange(len(keys))
    while True:
        before = labels
        for column in columns:
            labels = torch.full_like(labels, len(labels)).scatter_reduce(0, column, labels, "amin")[
                column
            ]
        labels = labels[labels]  # a label is a row of the same component: halves the longest chain
        if torch.equal(labels, before):
            return labels


class Suggestive(Sampler):
    """The least confident by the site's own model, then a random image of each group of pictures in
    turn.

    Deviates: the authors' code takes one image less by confidence than it means to, and uses
    positions among the unlabelled images as if they were ids. It scores one randomly augmented
    view; here the image is not augmented.
    """

    name = "sa"
    settings_type = SuggestiveSettings
    settings: SuggestiveSettings
    uses = Uses(models=("local",), features="image")

    def pick(self, pool: Pool, budget: int, generator: torch.Generator) -> list[str]:
        """Choose the uncertain, then the diverse: a random image of each group at a time."""
        choice = self.settings
        budget = min(budget, len(pool.ids))
        uncertain = math.floor(
            choice.uncertain_share * budget + 1e-9
        )  # 0.7 times 90 is a little less than 63
        confidence = pool.probabilities[0].amax(dim=1)
        chosen = select(-confidence, range(len(pool.ids)), uncertain)
        if len(chosen) < budget:
            rest = sorted(set(range(len(pool.ids))) - set(chosen))
            groups = hashed_groups(
                pool.features[rest], choice.bands, choice.rows, choice.groups, generator
            )
            rounds = zip_longest(*(shuffled(members, generator) for members in groups))
            diverse = [rest[index] for round_ in rounds for index in round_ if index is not None]
            chosen += diverse[: budget - len(chosen)]
        return [pool.ids[position] for position in chosen]
