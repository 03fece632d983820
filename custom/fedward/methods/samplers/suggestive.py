"""SA, suggestive annotation: the least confident images, and some of every kind of the others.

Shi, Dou, Xue, Qin, Chen, Heng: *An active learning approach for reducing annotation cost in skin
lesion analysis*, MLMI 2019, without its mixing of images. A share of the budget goes to the lowest
confidence. The rest is spread over groups of similar pictures, found by locality-sensitive hashing.
"""

import math
from collections import defaultdict
from itertools import zip_longest

import torch
from pydantic import Field
from torch import Tensor

from fedward.methods.samplers.base import Sampler, SamplerSettings, shuffled
from fedward.methods.samplers.pool import Pool, PoolUses
from fedward.methods.samplers.selection import select

_IMAGES_AT_ONCE = 64


class SuggestiveSettings(SamplerSettings):
    """SA's settings, with the values of the authors' code."""

    uncertain_share: float = Field(0.7, ge=0.0, le=1.0)
    """Share of the budget for the least confident images. Authors' code: 0.7, chosen from 0.3, 0.5,
    0.7 and 0.9."""
    bands: int = Field(10, ge=1, le=64)
    """b: images that are alike in one band are alike. Authors' code: 10."""
    rows: int = Field(30, ge=1, le=62)
    """r: bits of a band, all of which have to be equal. Authors' code: 30."""
    groups: int = Field(20, ge=1)
    """Largest number of groups; images of the smaller groups join the nearest one. Authors' code:
    20."""


@torch.no_grad()
def principal_axes(images: Tensor) -> Tensor:
    """Describe each picture by the first principal axis of its rows of pixels.

    The H rows are points in W dimensions, which are centred first.

    Source: Shi et al., MLMI 2019; the authors' code takes grey images of 224 by 224 pixels.

    Args:
        images: (N, H, W) grey, any numeric dtype; H, W >= 1.

    Returns:
        (N, W) float32 of norm 1; the entry of largest size is positive. The axis of an image whose
        rows are all equal is 0. O(N W² (H + W)).
    """
    if len(images) == 0:
        return torch.empty(0, images.shape[2])
    return torch.cat([_principal_axes(block) for block in images.split(_IMAGES_AT_ONCE)])


def _principal_axes(images: Tensor) -> Tensor:
    rows = images.to(torch.float64)
    rows = rows - rows.mean(dim=1, keepdim=True)  # (N, H, W)
    # Eigenvalues rise, so the last eigenvector is the first principal axis.
    axes: Tensor = torch.linalg.eigh(rows.mT @ rows).eigenvectors[:, :, -1]  # (N, W)
    # An eigenvector's sign is arbitrary.
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))  # (N, 1)
    axes = axes * largest.sign()
    constant = ~rows.flatten(1).any(dim=1, keepdim=True)  # (N, 1)
    return axes.masked_fill(constant, 0.0).float()


@torch.no_grad()
def hashed_groups(
    features: Tensor, bands: int, rows: int, groups: int, generator: torch.Generator
) -> list[list[int]]:
    """Group similar images by the side of random hyperplanes on which they lie.

    Image i has bits ``[x_i · h >= 0]`` for ``b r`` normal directions h. Two images are alike where
    all r bits of one of b bands are equal, and are grouped with all that are alike to either.

    Source: Shi et al., MLMI 2019, with Kak's LocalitySensitiveHashing; Charikar, STOC 2002, for the
    hash.

    Args:
        features: x (N, D) finite.
        bands: b >= 1.
        rows: r in [1, 62].
        groups: >= 1, the largest number of groups to end with.
        generator: draws the directions.

    Returns:
        At most ``groups`` disjoint lists of positions, each rising, that together hold every image
        once. Each image outside the ``groups`` largest groups (where equal, the first) joins the
        group whose mean is nearest.

    Edge cases: N = 0: no group. An image at 0 lies on the upper side of every plane.

    Deviates: the library's merging passes once over its groups, which may overlap afterwards; here
    they are the connected components.
    """
    planes = torch.randn(features.shape[1], bands * rows, generator=generator)
    bits = (features @ planes >= 0).view(len(features), bands, rows)
    # The r bits of a band as one integer: (N, b).
    keys = (bits.long() << torch.arange(rows)).sum(dim=2)
    members_of: dict[int, list[int]] = defaultdict(list)
    for position, component in enumerate(_components(keys).tolist()):
        members_of[component].append(position)
    by_size = sorted(members_of.values(), key=len, reverse=True)
    kept = by_size[:groups]
    strays = [position for members in by_size[groups:] for position in members]
    if strays:
        means = torch.stack([features[members].mean(dim=0) for members in kept])
        nearest_groups = torch.cdist(features[strays], means).argmin(dim=1).tolist()
        for position, group in zip(strays, nearest_groups, strict=True):
            kept[group].append(position)
    return [sorted(members) for members in kept]


def _components(keys: Tensor) -> Tensor:
    """Return the lowest row that each row of (N, b) is connected to by equal keys in a column."""
    # Keys of a column as numbers from 0, so that they can index a tensor.
    columns = [column.unique(return_inverse=True)[1] for column in keys.unbind(dim=1)]
    labels = torch.arange(len(keys))
    while True:
        labels_before = labels
        for column in columns:
            # The lowest label among the rows of each key, then back to its rows.
            unset = torch.full_like(labels, len(labels))
            lowest = unset.scatter_reduce(0, column, labels, "amin")
            labels = lowest[column]
        # A label is a row of the same component, so its own label is at most as large: following it
        # once halves the longest chain.
        labels = labels[labels]
        if torch.equal(labels, labels_before):
            return labels


class Suggestive(Sampler):
    """The least confident by the site's own model, then a random image of each group in turn.

    Deviates: the authors' code takes one image less by confidence than it means to, and uses
    positions among the unlabelled images as if they were ids. It scores one randomly augmented
    view; here the image is not augmented.
    """

    settings_type = SuggestiveSettings
    settings: SuggestiveSettings
    uses = PoolUses(models=("local",), features="image")

    def pick(self, pool: Pool, budget: int, generator: torch.Generator) -> list[str]:
        """Choose the least confident images, then diverse ones."""
        images = len(pool.ids)
        budget = min(budget, images)
        # Plus 1e-9, as 0.7 times 90 is a little less than 63 in floating point.
        uncertain = math.floor(self.settings.uncertain_share * budget + 1e-9)
        confidence = pool.probabilities[0].amax(dim=1)  # (N,)
        chosen = select(-confidence, range(images), uncertain)
        if len(chosen) < budget:
            rest = sorted(set(range(images)) - set(chosen))
            diverse = self._diverse(pool.features[rest], generator)
            chosen += [rest[index] for index in diverse[: budget - len(chosen)]]
        return [pool.ids[position] for position in chosen]

    def _diverse(self, features: Tensor, generator: torch.Generator) -> list[int]:
        """Return the positions of all images, one random image of each group after the other."""
        settings = self.settings
        groups = hashed_groups(features, settings.bands, settings.rows, settings.groups, generator)
        shuffled_groups = [shuffled(members, generator) for members in groups]
        positions: list[int] = []
        for one_of_each_group in zip_longest(*shuffled_groups):
            positions += [position for position in one_of_each_group if position is not None]
        return positions
