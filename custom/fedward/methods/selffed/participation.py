"""SelfFed's weights by participation (Khowaja et al., arXiv 2307.01514, Sec. III-E)."""

import torch
from torch import Tensor

from fedward.errors import ConfigError


def gain_recession_weights(sizes: Tensor, participations: Tensor, beta: float) -> Tensor:
    """Weight sites by their images, and less the more often they have taken part.

    ``w_k = n_k β^F_k / Σ_s n_s β^F_s``.

    Source: Khowaja et al., arXiv 2307.01514, eq. (7).

    Args:
        sizes: n_k (K,), numbers of images, finite, >= 0, not all 0; K >= 1.
        participations: F_k (K,), accepted answers of the site in earlier rounds of the phase,
            finite, >= 0; 0 in the first.
        beta: β in (0, 1]; 1 is federated averaging by size.

    Returns:
        (K,) float64 in [0, 1] with a sum of 1. A number added to every F_k changes nothing, to the
        last bit; where all are equal, the weight is exactly ``n_k / Σ_s n_s``.

    Raises ConfigError: different shapes, or a number out of range.

    Edge cases: size 0: 0, and its F_k does not matter. Large F_k: the site that took part least has
    the factor 1.

    Deviates: eq. (7) does not divide by the sum, and so shrinks the model itself: with β = 0.9 and
    all sites in every round, less than 1 % is left of it after 10 rounds. Whether F_k counts the
    present round makes no difference here.
    """
    n = sizes.to(torch.float64)
    times = participations.to(torch.float64)
    same_shape = n.dim() == 1 and n.shape == times.shape
    numbers = torch.cat([n.flatten(), times.flatten()])
    in_range = bool((numbers.isfinite() & (numbers >= 0)).all())
    some_images = bool((n > 0).any())
    if not (same_shape and in_range and some_images and 0 < beta <= 1):
        raise ConfigError(
            "selffed.gain_recession_weights",
            "Weight only replies that were accepted.",
            expected=(
                "as many finite participations >= 0 as sizes >= 0, not all sizes 0, and a beta in "
                "(0, 1]"
            ),
            found=f"sizes {sizes.tolist()}, participations {participations.tolist()}, beta {beta}",
        )
    # Counted from the site that took part least: β to a large power would underflow to 0.
    further = (times - times[n > 0].min()).clamp_min(0.0)
    gains = n * beta**further
    return gains / gains.sum()
