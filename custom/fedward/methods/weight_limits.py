"""How much one site may count for in a mean: the limits that every average of replies keeps to.

Sites report their own counts, and nobody else can verify them. Two limits keep a mean from being
one site's model, or so close to it that the parts of other sites can be subtracted:

- no site has more than a given share of the weights (:func:`capped_counts`,
  :func:`capped_weights`)
- the mean is worth at least a given number of equally weighted sites (:func:`levelled_weights`)

:class:`WeightLimits` applies both, and is what methods call.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedward.errors import ConfigError

_FEWEST_CAPPED = 3
"""Smallest number of sites whose counts are capped: a cap would make any two sites equal."""

_ADDED_SHARE = 1e-12
"""Part of a site's share of the images that is added to its weight before weights are capped.

Without it, a site whose weight was rounded to 0 could take over nothing of what another loses."""

_TOLERANCE = 1 + 1e-12
"""Factor that allows for rounding.

With it, a count at its limit is not above the limit, and K equal weights are worth K sites."""


@dataclass(frozen=True)
class WeightLimits:
    """The limits of one average: weights are capped first, then levelled.

    Levelling never raises the largest share, so that the result keeps to both limits.
    """

    largest_share: float
    """In (0, 1]: largest share of all weights that one of three or more sites may have."""
    effective_replies: float
    """>= 1: number of equally weighted sites that the average must be worth at least."""

    def limited_counts(self, counts: Sequence[float]) -> list[float]:
        """Return the weights of a mean by counts, such as images or steps.

        Args:
            counts: one finite number >= 0 for each site, not all 0. A site that counts for 0 gets
                the weight 0.

        Returns:
            Weights >= 0 in the order of the counts. Only their ratios matter. Counts within both
            limits are returned unchanged, to the last bit.

        Raises ConfigError: ``largest_share`` is out of range, or fewer than ``effective_replies``
        sites count for more than 0.
        """
        capped = capped_counts(counts, self.largest_share)
        return levelled_weights(capped, counts, self.effective_replies)

    def limited_weights(self, weights: Tensor, sizes: Tensor) -> list[float]:
        """Return the weights of a mean from weights that were computed, such as those by distance.

        A computed weight may be rounded to 0 although its site has images. Unlike in
        :meth:`limited_counts`, such a site still gets its part of what other sites lose.

        Args:
            weights: (K,) float64 >= 0, not all 0.
            sizes: (K,) float64 >= 0, not all 0, such as numbers of images. A site of size 0 must
                have the weight 0, and keeps it.

        Returns:
            K weights >= 0 with the sum of ``weights``, up to rounding. Weights within both limits
            are returned unchanged, to the last bit.

        Raises ConfigError: as :meth:`limited_counts`.
        """
        capped = capped_weights(weights, sizes, self.largest_share)
        return levelled_weights(capped.tolist(), sizes.tolist(), self.effective_replies)


def capped_counts(counts: Sequence[float], largest_share: float) -> list[float]:
    """Lower counts above a share of their sum, so that no site decides an average alone.

    ``n_k' = min(n_k, c)`` with the largest c for which no ``n_k'`` is above ``largest_share`` times
    ``Σ_s n_s'``. Sites report their own counts, which nobody else can verify.

    Args:
        counts: one finite number >= 0 for each site, such as its images or steps.
        largest_share: in (0, 1]. With K counts above 0, a value below 1 / K has the effect of
            1 / K.

    Returns:
        New counts in the order of the old. Counts that are not lowered are unchanged to the last
        bit. A site with a larger count than another never gets a smaller new count.

    Raises ConfigError: ``largest_share`` is out of range. Counts are checked where they are used.

    Edge cases: One or two counts above 0 are unchanged, because a cap would make any two sites
    equal. With ``largest_share`` 1/2, one huge count is lowered to the sum of all others.
    """
    _check_share(largest_share)
    descending = sorted((count for count in counts if count > 0), reverse=True)
    if len(descending) < _FEWEST_CAPPED:
        return list(counts)
    share = max(largest_share, 1 / len(descending))
    # If the j largest counts are lowered to c, and R is the sum of the others, then
    # c = s (j c + R) for the share s, and so c = s R / (1 - s j). Find the smallest j for which
    # the next count is no longer above c. This holds at the latest for the first j >= 1/s - 1,
    # which is below 1/s, so that the divisor is above 0.
    for lowered, next_count in enumerate(descending):
        sum_of_others = sum(descending[lowered:])
        divisor = 1 - share * lowered
        if next_count * divisor <= share * sum_of_others * _TOLERANCE:
            # Rounding may put the cap just below the next count, which must not be lowered.
            cap = max(share * sum_of_others / divisor, next_count)
            return [min(count, cap) for count in counts]
    # Only rounding leads here, where the share is one over the number of counts.
    return [min(count, descending[-1]) for count in counts]


def _check_share(largest_share: float) -> None:
    if not 0 < largest_share <= 1:
        raise ConfigError(
            "largest_share",
            "Set largest_share to 1 for no cap.",
            expected="above 0, at most 1",
            found=f"{largest_share}",
        )


def capped_weights(weights: Tensor, sizes: Tensor, largest_share: float) -> Tensor:
    """Lower weights above ``largest_share`` of their sum, so that no mean is one site's model.

    The sum of the weights stays the same. Unlike in :func:`capped_counts`, a site whose weight was
    rounded to 0 takes over its part of what another site loses.

    Args:
        weights: (K,) float64 >= 0, not all 0.
        sizes: (K,) float64 >= 0, not all 0, such as numbers of images.
        largest_share: in (0, 1].

    Returns:
        (K,) float64; ``weights`` itself if none is too large, or if there are one or two sites.

    Raises ConfigError: ``largest_share`` is out of range.
    """
    _check_share(largest_share)
    total = weights.sum()
    if len(weights) < _FEWEST_CAPPED or bool(weights.max() <= largest_share * total):
        return weights
    shares = weights / total + _ADDED_SHARE * sizes / sizes.sum()
    capped = torch.tensor(capped_counts(shares.tolist(), largest_share), dtype=torch.float64)
    return capped * (total / capped.sum())


def effective_number(weights: Sequence[float]) -> float:
    """Return how many equally weighted sites an average is worth: ``(Σ_k w_k)² / Σ_k w_k²``.

    It is K for K equal weights, and about 2 for two equal weights and a third close to 0. If the
    parts of c sites are subtracted from an average with the effective number E, what remains is a
    mixture of the other sites whose effective number is at least ``E - c``. It is exactly that if
    each of the c sites has the weight ``1 / E``.
    Source: Kish, *Survey sampling*, 1965, where it is the effective size of a sample.

    Args:
        weights: one finite number >= 0 for each site.

    Returns:
        A number from 1 to the number of weights above 0; 0 where there are none.
    """
    largest_weight = max(weights, default=0.0)
    if not largest_weight:
        return 0.0
    # Scaled, because squares of large weights would overflow, and those of small ones vanish.
    scaled_weights = [weight / largest_weight for weight in weights]
    return sum(scaled_weights) ** 2 / sum(scaled * scaled for scaled in scaled_weights)


def levelled_weights(weights: Sequence[float], sizes: Sequence[float], least: float) -> list[float]:
    """Move weights towards equal ones until an average is worth ``least`` equally weighted sites.

    ``w_k' = (1 - a) w_k + a W / K`` with ``W = Σ_s w_s``, over the K sites that have a size > 0.
    Here a is the smallest number in [0, 1] for which :func:`effective_number` is at least
    ``least``: ``1 - a = √((1 / least - 1 / K) / (Σ_k (w_k / W)² - 1 / K))``.

    Args:
        weights: one finite number >= 0 for each site, not all 0.
        sizes: one number >= 0 for each site, such as its images. A site of size 0 has the weight 0
            and keeps it.
        least: the effective number that an average must have, >= 1.

    Returns:
        New weights of the same sum, in the order of the old. The order of two sites' weights is
        kept, and the largest share does not grow. Weights that are already worth ``least`` sites
        are unchanged to the last bit.

    Raises ConfigError: fewer than ``least`` sites have a size above 0, so that no weights would
    suffice. The server discards a round with so few replies before it averages.

    Edge cases: With ``least`` = K all weights become equal. A weight of 0 of a site with images is
    raised too. One site with ``least`` = 1 keeps its weight.
    """
    if effective_number(weights) * _TOLERANCE >= least:
        return list(weights)
    sites_with_size = sum(size > 0 for size in sizes)
    if sites_with_size < least:
        raise ConfigError(
            "levelled_weights",
            "Average no fewer replies than minimum_replies.",
            expected=f"at least {least:g} sites with images, or steps",
            found=f"{sites_with_size}",
        )
    total = sum(weights)
    equal_share = 1 / sites_with_size
    pairs = list(zip(weights, sizes, strict=True))
    # Above 0, because equal weights are worth K >= least sites and were returned above.
    spread = sum((weight / total - equal_share) ** 2 for weight, size in pairs if size > 0)
    # scale is 1 - a, and shift is a W / K.
    scale = math.sqrt((1 / least - equal_share) / spread)
    shift = (1 - scale) * (total / sites_with_size)
    levelled = []
    for weight, size in pairs:
        if size > 0:
            levelled.append(scale * weight + shift)
        else:
            levelled.append(scale * weight)
    return levelled
