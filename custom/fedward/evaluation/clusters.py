"""How many independent images the images of patients are worth, for intervals of shares.

Images of one patient or lesion are alike, so that N of them say less than N images of N patients.
An interval of a share p of right answers then takes the effective number of images

    n = N / d · (t(N - 1) / t(f))²,
    d = (m - 1) / m · Σ_i (p_i - p)² · N / (p (1 - p)),

where p_i is the share without the images of patient i, there are m patients, and t is the 97.5th
percentile of Student's t. The design effect d is that of Rao and Scott, *A simple method for the
analysis of clustered binary data*, Biometrics 1992, with the variance of the jackknife (Efron and
Tibshirani, *An introduction to the bootstrap*, 1993, ch. 11): where one patient has most images, p
is close to that patient's share, and the usual variance is far too small. The two are equal for
patients with equally many images. The factor of t allows for few patients (Korn and Graubard,
*Confidence intervals for proportions with small expected number of positive counts estimated from
survey data*, Survey Methodology 1998). Its degrees of freedom are ``f = min(m - 1, N² / Σ_i N_i²)``
for N_i images of patient i, at least 1, as few patients may have most images. Where all answers are
right, or all wrong, d is ``Σ_i N_i² / N``, as if a patient's images were all the same (Kish,
*Survey sampling*, 1965).

Sites are strata. Over sites s with N_s images worth n_s, ``n = N² / Σ_s (N_s² / n_s)``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Counts, Values
from fedward.evaluation.in_fives import in_fives
from fedward.evaluation.small_counts import SMALLEST_COUNT


@dataclass(frozen=True)
class ClusterCounts:
    """What a site's test images are worth in intervals, as a site that names patients sends it.

    All is 0 for a class of fewer than five patients, and its images are in no other number here:
    what all classes are worth together, less the others, would give theirs.
    """

    patients: Counts
    """(K,) patients of each class, rounded down to a multiple of five."""
    effective: Counts
    """(K,) independent images that those of each class are worth, rounded down to 1 or
    more."""
    all_patients: int
    """Patients of all classes that have numbers here, likewise."""
    all_effective: int
    """Independent images that those of all these classes are worth; 0 where an image may show
    several classes."""

    @classmethod
    def of_answers(
        cls,
        owners: Sequence[str],
        inside: NDArray[np.bool_],
        is_right: NDArray[np.bool_],
        exclusive: bool,
    ) -> "ClusterCounts":
        """Count N images of K classes.

        Args:
            owners: N patients or lesions.
            inside: (N, K) which images show which class, of the classes that may be reported.
            is_right: (N, K) which of these the model assigns to the class.
            exclusive: whether each image shows one class.
        """
        owner_of = np.unique(list(owners), return_inverse=True)[1]
        by_class = []
        for number in range(inside.shape[1]):
            members = inside[:, number]
            by_class.append(_worth(owner_of[members], is_right[members, number]))
        has_numbers = np.array([images > 0 for _, images in by_class], np.bool_)
        counted = np.flatnonzero((inside & has_numbers).any(axis=1))
        has_right = np.array((is_right & inside).any(axis=1), np.bool_)
        patients, effective = _worth(owner_of[counted], has_right[counted])
        return cls(
            np.array([patients for patients, _ in by_class], np.int64),
            np.array([images for _, images in by_class], np.int64),
            patients,
            effective if exclusive else 0,
        )

    def inflated(self, images: Counts, total: int) -> tuple[Values, float]:
        """Return images times their design effects: (K,) of each class, and of all.

        Images of a class of fewer than five patients are worth one, as they may be of one patient.

        Args:
            images: (K,) of each class.
            total: all images.
        """
        by_class = images**2 / np.clip(self.effective, 1, np.maximum(images, 1))
        if self.all_effective or not self.effective.any():
            counted = int(images[self.effective > 0].sum())
            others = total - counted
            of_all = counted**2 / max(min(self.all_effective, counted), 1) + others**2
            return by_class, float(of_all)
        # Where an image may show several classes, all images have no answer in common.
        return by_class, total * float(by_class.sum() / max(int(images.sum()), 1))

    def to_wire(self) -> dict[str, Any]:
        """Return the counts as plain JSON values, by the names of the wire."""
        return {
            "patients": self.patients.tolist(),
            "effective": self.effective.tolist(),
            "all_patients": self.all_patients,
            "all_effective": self.all_effective,
        }

    @classmethod
    def from_wire(cls, sent: Mapping[str, Any]) -> "ClusterCounts":
        """Return the counts that :meth:`to_wire` wrote."""
        return cls(
            np.asarray(sent["patients"], np.int64),
            np.asarray(sent["effective"], np.int64),
            sent["all_patients"],
            sent["all_effective"],
        )


def _worth(owner_of: NDArray[np.int64], is_right: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the patients of images, in fives, and what the images are worth; 0 for few patients.

    Args:
        owner_of: (N,) number of each image's patient.
        is_right: (N,).
    """
    _, patient, images = np.unique(owner_of, return_inverse=True, return_counts=True)
    if len(images) < SMALLEST_COUNT:
        return 0, 0
    right = np.bincount(patient[is_right], minlength=len(images))
    effective = effective_images(images, right)
    return in_fives(len(images)), max(int(effective + 1e-9), 1)


def effective_images(images: NDArray[np.integer], right: NDArray[np.integer]) -> float:
    """Return how many independent images those of m patients are worth, at most all of them.

    Args:
        images: (m,) images of each patient, one or more.
        right: (m,) right answers to them.
    """
    total = int(images.sum())
    patients = len(images)
    if patients == total:
        return float(total)
    if patients == 1:
        return 1.0
    share = right.sum() / total
    squares = (images**2).sum()
    if 0 < share < 1:
        shares_without = (right.sum() - right) / (total - images)
        variance = (patients - 1) / patients * ((shares_without - share) ** 2).sum()
        design_effect = max(variance * total / (share * (1 - share)), 1.0)
    else:
        design_effect = squares / total
    freedom = max(min(patients - 1, total**2 / squares), 1.0)
    # Its import takes half a second.
    from scipy.special import stdtrit  # type: ignore[import-untyped,unused-ignore]

    few_patients = stdtrit(total - 1, 0.975) / stdtrit(freedom, 0.975)
    return float(total / design_effect * few_patients**2)
