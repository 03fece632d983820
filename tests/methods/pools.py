"""Pools of images that any sampler can choose from."""

import torch
from torch import Tensor

from fedward.methods.samplers import Pool, Sampler


def random_probabilities(members: int, images: int, classes: int, seed: int) -> Tensor:
    """Softmax outputs in float64, without ties."""
    draw = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(members, images, classes, generator=draw, dtype=torch.float64)).softmax(
        dim=2
    )


def random_logits(members: int, images: int, classes: int, seed: int) -> Tensor:
    """Some of them below 0, without ties above it."""
    draw = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(members, images, classes, generator=draw, dtype=torch.float64)


def random_pool(
    sampler: Sampler, images: int, classes: int = 4, seed: int = 0, labelled: int = 3
) -> Pool:
    """A pool with everything a sampler uses; its ids do not come in their own order."""
    draw = torch.Generator().manual_seed(seed + 1)
    names = [f"image-{number:03d}" for number in torch.randperm(images, generator=draw).tolist()]
    features = torch.randn(images + labelled, 5, generator=draw)
    return Pool(
        "north",
        names,
        random_probabilities(sampler.uses.members, images, classes, seed),
        features[:images],
        features[images:],
        random_logits(sampler.uses.members, images, classes, seed),
    )


def reordered(pool: Pool, order: list[int]) -> Pool:
    """The same images in another order."""
    return Pool(
        pool.site,
        [pool.ids[index] for index in order],
        pool.probabilities[:, order],
        pool.features[order],
        pool.labelled,
        pool.logits[:, order],
    )
