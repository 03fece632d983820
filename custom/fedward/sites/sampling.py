"""FedVC: every site works as a virtual client of the same size.

Source: Hsu, Qi and Brown, ECCV 2020, Sec. 3.2.
"""

import torch

from fedward.errors import DataError


def virtual_client(pool: int, images: int, generator: torch.Generator) -> torch.Tensor:
    """Draw which of a site's images one round trains on: a fixed number, whatever the site's size.

    Source: Hsu et al. 2020, Sec. 3.2: without replacement if the site has enough images.

    Deviates for smaller sites: instead of drawing with replacement, all images are used in one new
    order after the other until enough are drawn. Every image occurs ``images // pool`` times or
    once more.

    Args:
        pool: number of images the site has, at least 1 (0 if ``images`` is 0).
        images: N_VC, number to draw, at least 0.
        generator: CPU generator.

    Returns:
        int64 (images,) indices in [0, pool).

    Raises:
        DataError: images are asked of an empty pool.
    """
    if images and pool < 1:
        raise DataError("A virtual client has no images to draw from", "Leave this site out.")
    if images == 0:
        return torch.zeros(0, dtype=torch.long)
    passes = -(-images // pool)  # rounded up
    orders = [torch.randperm(pool, generator=generator) for _ in range(passes)]
    return torch.cat(orders)[:images]
