"""Numbers that need the confidence of each image: calibration in adaptive bins, risk and coverage.

A site computes them, and each leaves it as one number, like an AUROC. They are over the images that
the small-count rule lets be evaluated, and no bin has fewer than five of them.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Values
from fedward.evaluation.small_counts import SMALLEST_COUNT

_Z = 1.645
"""The 95th percentile of the standard normal distribution, to the digits of the released code."""
_NARROWEST_BIN = 1e-100
"""A bin that is narrower has one single confidence; the square of such a width would be 0."""
_FEWEST_LEFT = 40
"""Images that must be left for another bin, more than this."""
_NARROWEST_REST = 0.05
"""Confidences that are left for another bin span more than this."""


@dataclass(frozen=True)
class AnswerConfidences:
    """A model's answers about N images, by falling confidence."""

    confidence: Values
    """(N,) highest probability of each image, in [0, 1], falling."""
    is_right: NDArray[np.bool_]
    """(N,) whether its answer is right."""

    @classmethod
    def of_answers(cls, confidence: Values, is_right: NDArray[np.bool_]) -> "AnswerConfidences":
        """Return the answers, sorted; the order of images with equal confidence is kept."""
        order = np.argsort(-confidence, kind="stable")
        return cls(confidence[order], is_right[order])

    @cached_property
    def adaptive_bins(self) -> list[tuple[int, int]]:
        """First place, and place after the last one, of each bin of neighbours by confidence.

        A bin is full as soon as the 90 % interval of its share of right answers is no wider than
        the bin: with more than ``(1.645 / width)² / 4`` images. Then the next one begins, if more
        than 40 images are left, whose confidences span more than 0.05. If the last bin is not
        full, each other bin gives it ``missing · n_last / N`` images.

        Source: Ding et al., *Revisiting the evaluation of uncertainty estimation and its
        application to explore model complexity-uncertainty trade-off*, CVPR workshops 2020, as in
        their released code. In addition no bin has fewer than five images, where the code may
        leave one alone, and a last bin of one single confidence takes none, where it stops.
        """
        starts = [0]
        for place in range(1, len(self.confidence)):
            images = place - starts[-1]
            is_full = images > self._needed(starts[-1], place) and images >= SMALLEST_COUNT
            span_left = self.confidence[place - 1] - self.confidence[-1]
            images_left = len(self.confidence) - place
            if is_full and images_left > _FEWEST_LEFT and span_left > _NARROWEST_REST:
                starts.append(place)
        ends = [*starts[1:], len(self.confidence)]
        sizes = [end - start for start, end in zip(starts, ends, strict=True)]
        return list(pairwise(accumulate(self._last_filled(sizes), initial=0)))

    @property
    def ece_adaptive(self) -> float | None:
        """Expected calibration error ``Σ_v n_v / N |acc_v - conf_v|`` over adaptive bins.

        None without images. Source: Bdair et al., MELBA 2022, Eq. 13.
        """
        if not len(self.confidence):
            return None
        images = np.diff(self.adaptive_bins, axis=1)[:, 0]
        return float(images @ self._gaps() / images.sum())

    @property
    def mce_adaptive(self) -> float | None:
        """Maximum calibration error ``max_v |acc_v - conf_v|`` over adaptive bins.

        None without images. Source: Bdair et al., MELBA 2022, Eq. 14.
        """
        return float(self._gaps().max()) if len(self.confidence) else None

    @property
    def aurc(self) -> float | None:
        """Area under the risk-coverage curve ``1 / N Σ_i (wrong among the i surest) / i``.

        0 is best. Of images with equal confidence it is the mean over all their orders. None
        without images. Source: Geifman, Uziel and El-Yaniv, *Bias-reduced uncertainty estimation
        for deep neural classifiers*, ICLR 2019, Sec. 3.
        """
        if not len(self.confidence):
            return None
        kept = np.arange(1, len(self.confidence) + 1)
        # Wrong answers at the end of each run of equal confidence; between, they rise evenly.
        last_of_run = np.flatnonzero(np.diff(self.confidence, append=-np.inf))
        wrong = np.cumsum(~self.is_right)[last_of_run]
        expected_wrong = np.interp(kept, [0, *(last_of_run + 1)], [0, *wrong])
        return float((expected_wrong / kept).mean())

    def _needed(self, start: int, end: int) -> float:
        """Return how many images a bin of these places needs; infinite for a single confidence."""
        width = float(self.confidence[start] - self.confidence[end - 1])
        if width < _NARROWEST_BIN:
            return float("inf")
        return (_Z / width) ** 2 / 4

    def _last_filled(self, sizes: list[int]) -> list[int]:
        """Return the sizes of the bins after the others have given images to the last one."""
        *others, last = sizes
        images = sum(sizes)
        missing = self._needed(images - last, images) - last
        if missing <= 0 or np.isinf(missing):
            return sizes
        given = int(missing * last / images)
        left = [max(size - given, SMALLEST_COUNT) for size in others]
        return [*left, images - sum(left)]

    def _gaps(self) -> Values:
        """Return the distance of confidence from accuracy in each bin."""
        gaps = []
        for start, end in self.adaptive_bins:
            accuracy = self.is_right[start:end].mean()
            gaps.append(abs(accuracy - self.confidence[start:end].mean()))
        return np.array(gaps)
