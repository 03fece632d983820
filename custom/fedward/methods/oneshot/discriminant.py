"""Linear discriminant analysis from moments: class means and one covariance of all classes make a
linear classifier.

Fisher: *The use of multiple measurements in taxonomic problems*, Annals of Eugenics 1936. Friedman:
*Regularized discriminant analysis*, Journal of the American Statistical Association 1989, for the
shrinkage.
"""

import torch
from torch import Tensor

from fedward.errors import ConfigError, RunError

ABSENT = -20.0
"""Logit of a class without images. The largest of the others is never below 0."""


def discriminant(
    shares: Tensor, sums: Tensor, products: Tensor, shrinkage: float
) -> tuple[Tensor, Tensor]:
    """Return the linear classifier of Gaussian classes that share a covariance.

    ``μ_c = sums_c / shares_c``, ``S = products - Σ_c shares_c μ_c μ_cᵀ``, ``S_ρ = (1 - ρ) S + ρ
    tr(S) / D I``; ``W = S_ρ⁻¹ μ``, ``b_c = -½ μ_cᵀ S_ρ⁻¹ μ_c + ln shares_c``. From each row the
    mean row of the classes that are present is taken away, which changes no probability and keeps
    the numbers small.
    Source: Guan et al., AAAI 2025 (FedCGS), with S within classes in place of the covariance of all
    images.

    Args:
        shares: (K,), of all images, by class. One that is not above 0, as noise may make it, counts
            as 0.
        sums: (K, D), of the features of each class, divided by the number of all images.
        products: (D, D), symmetric: ``Σ_i x_i x_iᵀ`` divided by the number of all images.
        shrinkage: ρ in (0, 1].

    Returns:
        W (K, D) and b (K,), float64.

    Raises:
        ConfigError: shapes that do not fit, or a number out of range.
        RunError: no class is present, or no feature differs within a class.

    Edge cases: a class without images: weights 0 and the bias :data:`ABSENT`, so that it is never
    the likeliest. fewer images than features: finite. negative eigenvalues of S, as of rounding or
    noise: 0. one class: weights 0.
    """
    classes, width = sums.shape
    if shares.shape != (classes,) or products.shape != (width, width) or not 0 < shrinkage <= 1:
        expected = "shares (K,), sums (K, D), products (D, D), and a shrinkage in (0, 1]"
        found = (
            f"{tuple(shares.shape)}, {tuple(sums.shape)}, {tuple(products.shape)}, and {shrinkage}"
        )
        raise ConfigError(
            "oneshot.discriminant",
            expected=expected,
            found=found,
            remedy="Average accepted replies.",
        )
    present = shares > 0
    share = shares[present].double()
    total = sums[present].double()
    if not len(share):
        raise _hopeless("a class with images", "none")
    means = total / share.unsqueeze(1)
    values, vectors = torch.linalg.eigh(products.double() - total.T @ means)
    values = values.clamp_min(0.0)
    mean = values.mean()
    if not bool(mean > 0):
        raise _hopeless("features that differ within a class", "equal ones")
    inverse = (vectors / ((1 - shrinkage) * values + shrinkage * mean)) @ vectors.T
    centre = means.mean(dim=0)
    apart = means - centre
    weight = apart @ inverse
    bias = share.log() - weight @ centre - 0.5 * (weight * apart).sum(dim=1)
    head = (
        torch.zeros(classes, width, dtype=torch.float64),
        torch.full((classes,), ABSENT, dtype=torch.float64),
    )
    head[0][present], head[1][present] = weight, bias - bias.mean()
    return head


def _hopeless(expected: str, found: str) -> RunError:
    remedy = "Give the sites more labelled images of more classes, or choose another encoder."
    return RunError(
        "oneshot, statistics of all sites", expected=expected, found=found, remedy=remedy
    )
