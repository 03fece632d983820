"""FedVC: every site works as a virtual client of the same size (Hsu, Qi and Brown, ECCV 2020, Sec.
3.2).
"""

import torch

from fedward.errors import DataError


def virtual_client(pool: int, images: int, generator: torch.Generator) -> torch.Tensor:
    """Draw which of a site's images one round trains on: a fixed number, whatever the site's size.

    Source: Hsu et al. 2020, Sec. 3.2: without replacement if the site has enough images. Deviates
    for smaller sites: instead of drawing with replacement, the images are passed through in fresh
    orders until enough are drawn, so that every image occurs ``images // pool`` or one more times.

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
        raise DataError(
            "virtual client",
            expected="a pool of images",
            found="none",
            remedy="Leave this site out.",
        )
    passes = -(-images // pool) if images else 0
    drawn = [torch.randperm(pool, generator=generator) for _ in range(passes)]
    return torch.cat(drawn)[:images] if drawn else torch.zeros(0, dtype=torch.long)
