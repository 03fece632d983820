"""Linear discriminant analysis from moments.

Class means and one covariance for all classes make a linear classifier. Fisher: *The use of
multiple measurements in taxonomic problems*, Annals of Eugenics 1936. Friedman: *Regularized
discriminant analysis*, Journal of the American Statistical Association 1989, for the shrinkage.
Golub, Heath, Wahba: *Generalized cross-validation as a method for choosing a good ridge parameter*,
Technometrics 1979, and Hastie, Buja, Tibshirani: *Penalized discriminant analysis*, Annals of
Statistics 1995, for its choice.
"""

import torch
from torch import Tensor

from fedward.errors import ConfigError, RunError

ABSENT = -20.0
"""Logit of a class without images. The largest logit of the other classes is never below 0."""

SHRINKAGES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shrinkages from which :func:`chosen_shrinkage` chooses."""


def chosen_shrinkage(shares: Tensor, sums: Tensor, products: Tensor, images: int) -> float:
    """Return the shrinkage of the least error by generalised cross-validation.

    Discriminant analysis with ``S + λ I`` in place of S is ridge regression of the images' classes,
    one column of 0 and 1 for each, on their centred features: the directions are the same. There
    leave-one-out needs each image, but its rotation-invariant form needs sums alone:

    ``GCV(λ) = Σ_c RSS_c(λ) / p_c / (1 - d(λ) / N)²`` with
    ``RSS_c = p_c (1 - p_c) - 2 g_cᵀ A g_c + g_cᵀ A T A g_c``, ``A = (T + λ I)⁻¹``,
    ``g_c = p_c (μ_c - μ)``, T the covariance of all images, and ``d = 1 + tr(A T)``. Division by
    the share p_c of a class lets each class count alike. ρ stands for
    ``λ = ρ / (1 - ρ) tr(S) / D``.

    Args:
        shares, sums, products: as for :func:`discriminant`.
        images: N >= 1, number of all images.

    Returns:
        One of :data:`SHRINKAGES`; the largest of those with the least error. Where there is nothing
        to choose by, as with one class, it is the largest.

    Raises:
        RunError: as :func:`discriminant`.
    """
    present = shares > 0
    share = shares[present].double()  # (P,)
    if len(share) == 0:
        raise _unusable_statistics("a class with images", "none")
    # Noise and rounding leave shares that do not add up to 1.
    scale = share.sum()
    share = share / scale
    total = sums[present].double() / scale  # (P, D)
    centre = total.sum(dim=0)
    deviations = total - share.unsqueeze(1) * centre  # (P, D), g
    covariance = products.double() / scale - torch.outer(centre, centre)
    variances, directions = torch.linalg.eigh(covariance)
    variances = variances.clamp_min(0.0)  # (D,)
    between = (deviations.square() / share.unsqueeze(1)).sum()
    mean_within = (variances.sum() - between) / len(variances)
    if not bool(mean_within > 0):
        return SHRINKAGES[-1]
    projected = (deviations @ directions).square() / share.unsqueeze(1)  # (P, D)
    along = projected.sum(dim=0)  # (D,)
    errors = {}
    for shrinkage in SHRINKAGES:
        ridge = shrinkage / (1 - shrinkage) * mean_within
        inverse = 1 / (variances + ridge)
        explained = along * inverse * (2 - variances * inverse)
        residual = float((1 - share).sum() - explained.sum())
        freedom = 1 - (1 + float((variances * inverse).sum())) / images
        errors[shrinkage] = residual / freedom**2 if freedom > 0 else float("inf")
    return min(reversed(SHRINKAGES), key=lambda shrinkage: errors[shrinkage])


def discriminant(
    shares: Tensor, sums: Tensor, products: Tensor, shrinkage: float
) -> tuple[Tensor, Tensor]:
    """Return the linear classifier of Gaussian classes that share a covariance.

    ``μ_c = sums_c / shares_c``, ``S = products - Σ_c shares_c μ_c μ_cᵀ``,
    ``S_ρ = (1 - ρ) S + ρ tr(S) / D I``; ``W = S_ρ⁻¹ μ``,
    ``b_c = -½ μ_cᵀ S_ρ⁻¹ μ_c + ln shares_c``. The mean row of the classes that are present is
    subtracted from each row, which changes no probability and keeps the numbers small.

    Source: Guan et al., AAAI 2025 (FedCGS), with S within classes in place of the covariance of all
    images.

    Args:
        shares: (K,), of all images, by class. A share that is not above 0, as noise may make it,
            counts as 0.
        sums: (K, D), sums of the features of each class, divided by the number of all images.
        products: (D, D), symmetric: ``Σ_i x_i x_iᵀ`` divided by the number of all images.
        shrinkage: ρ in (0, 1].

    Returns:
        W (K, D) and b (K,), float64.

    Raises:
        ConfigError: the shapes do not match, or a number is out of range.
        RunError: no class is present, or no feature differs within a class.

    Edge cases: a class without images: weights 0 and the bias :data:`ABSENT`, so that it is never
    the most probable. Fewer images than features: finite. Negative eigenvalues of S, from rounding
    or noise: 0. One class: weights 0.
    """
    classes, width = sums.shape
    if shares.shape != (classes,) or products.shape != (width, width) or not 0 < shrinkage <= 1:
        raise ConfigError(
            "oneshot.discriminant",
            "Average accepted replies.",
            expected="shares (K,), sums (K, D), products (D, D), and a shrinkage in (0, 1]",
            found=(
                f"{tuple(shares.shape)}, {tuple(sums.shape)}, {tuple(products.shape)}, and "
                f"{shrinkage}"
            ),
        )
    present = shares > 0  # (K,) bool; P of the classes are present
    share = shares[present].double()  # (P,)
    total = sums[present].double()  # (P, D)
    if len(share) == 0:
        raise _unusable_statistics("a class with images", "none")
    means = total / share.unsqueeze(1)  # (P, D)

    # S = V diag(λ) Vᵀ, so that S_ρ has the eigenvalues (1 - ρ) λ + ρ mean(λ).
    eigenvalues, eigenvectors = torch.linalg.eigh(products.double() - total.T @ means)
    eigenvalues = eigenvalues.clamp_min(0.0)
    mean_eigenvalue = eigenvalues.mean()
    if not bool(mean_eigenvalue > 0):
        raise _unusable_statistics("features that differ within a class", "equal ones")
    shrunk = (1 - shrinkage) * eigenvalues + shrinkage * mean_eigenvalue
    inverse = (eigenvectors / shrunk) @ eigenvectors.T  # (D, D)

    # With m the mean of the class means, the row of class c is S_ρ⁻¹ (μ_c - m).
    centre = means.mean(dim=0)
    deviations = means - centre  # (P, D)
    weight = deviations @ inverse  # (P, D)
    bias = share.log() - weight @ centre - 0.5 * (weight * deviations).sum(dim=1)  # (P,)

    all_weights = torch.zeros(classes, width, dtype=torch.float64)
    all_weights[present] = weight
    all_biases = torch.full((classes,), ABSENT, dtype=torch.float64)
    all_biases[present] = bias - bias.mean()
    return all_weights, all_biases


def _unusable_statistics(expected: str, found: str) -> RunError:
    return RunError(
        "oneshot, statistics of all sites",
        "Give the sites more labelled images of more classes, choose another encoder, or leave out "
        "a site whose sums are false.",
        expected=expected,
        found=found,
    )
