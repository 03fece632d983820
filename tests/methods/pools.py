"""Pools of images that any sampler can choose from."""

import torch
from torch import Tensor

from fedward.methods.samplers.base import Sampler
from fedward.methods.samplers.pool import Pool


def random_probabilities(members: int, images: int, classes: int, seed: int) -> Tensor:
    """Return softmax outputs in float64, without ties."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(members, images, classes, generator=draw, dtype=torch.float64)
    return logits.softmax(dim=2)


def random_pool(
    sampler: Sampler, images: int, classes: int = 4, seed: int = 0, labelled: int = 3
) -> Pool:
    """Return a pool with everything that a sampler uses; its ids are not sorted."""
    draw = torch.Generator().manual_seed(seed + 1)
    names = [f"image-{number:03d}" for number in torch.randperm(images, generator=draw).tolist()]
    features = torch.randn(images + labelled, 5, generator=draw)
    return Pool(
        "north",
        names,
        random_probabilities(sampler.uses.members, images, classes, seed),
        features[:images],
        features[images:],
    )


def reordered(pool: Pool, order: list[int]) -> Pool:
    """Return the same images in another order."""
    return Pool(
        pool.site,
        [pool.ids[index] for index in order],
        pool.probabilities[:, order],
        pool.features[order],
        pool.labelled,
    )
