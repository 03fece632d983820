"""What an anonymous peer gives away: guesses of its sites, and how often they are right.

FedPerl sends a site the mean of T other sites' models instead of these models (Bdair et al., MELBA
2022, eq. (6)), and claims that this hides identities. Models are vectors here: all travelling
tensors of a network, one after the other. A guess is a committee, T distinct indices of candidates
in rising order. Ties go to the committee that comes first, so a caller who must not favour a site
shuffles the candidates.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from fedward.errors import ConfigError

Vector = npt.NDArray[np.floating]
Matrix = npt.NDArray[np.floating]
Committee = tuple[int, ...]


@dataclass(frozen=True)
class Rate:
    """How many guesses were right, with the two-sided 95 % interval of Clopper and Pearson (1934).

    The interval takes the guesses for independent trials.
    """

    right: int
    guesses: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share of right guesses."""
        return self.right / self.guesses


def rate(outcomes: Iterable[bool]) -> Rate:
    """Return the rate of right guesses with its interval; raises ConfigError without guesses."""
    outcomes = list(outcomes)
    if not outcomes:
        raise ConfigError(
            "rate", expected="at least one guess", found="none", remedy="Run more rounds."
        )
    from scipy.stats import binomtest  # type: ignore[import-untyped,unused-ignore]  # slow to import

    right = sum(outcomes)
    n = len(outcomes)
    interval = binomtest(right, n).proportion_ci(0.95, "exact")
    return Rate(right, n, float(interval.low), float(interval.high))


def chance(candidates: int, size: int) -> float:
    """Return the probability that a committee of ``size``, drawn at random, is the right one."""
    _require_size("chance", candidates, size)
    return 1 / comb(candidates, size)


def closest_committee(peer: Vector, models: Matrix, size: int) -> tuple[Committee, float]:
    """Return the committee whose mean model lies closest to the peer, and the distance.

    ``argmin_S ‖φ_a - (1/T) Σ_{k in S} φ_k‖`` over all C(N, T) committees S.

    Args:
        peer: φ_a (D,), what a site received.
        models: φ_k (N, D), a guess of each candidate's model: its own, an older one, or a
            prediction.
        size: T in [1, N].

    Returns:
        The committee and the Euclidean distance. With the candidates' own models the distance is 0
        up to rounding.

    Raises:
        ConfigError: shapes that do not belong together, T out of range, NaN or infinity.
    """
    _require("closest_committee", peer, models, size)
    offsets = models.astype(np.float64) - peer
    products = offsets @ offsets.T
    committees = list(combinations(range(len(models)), size))
    squares = [products[np.ix_(members, members)].sum() for members in committees]
    best = int(np.argmin(squares))
    return committees[best], float(np.sqrt(max(squares[best], 0.0))) / size


def most_aligned_committee(shift: Vector, offsets: Matrix, size: int) -> Committee:
    """Return the committee whose mean offset has most nearly the direction of ``shift``.

    ``argmax_S cos(s, Σ_{k in S} o_k)`` over all C(N, T) committees S. Meant for hints of another
    kind than models: how much more often the peer names each class than the global model does,
    against how much more of each class the sites hold than all sites together.

    Args:
        shift: s (K,), observed of the peer.
        offsets: o_k (N, K), known of each candidate.
        size: T in [1, N].

    Raises:
        ConfigError: shapes that do not belong together, T out of range, NaN or infinity.

    Edge cases: a zero shift, or a committee with a zero sum, has cosine 0.
    """
    _require("most_aligned_committee", shift, offsets, size)
    committees = list(combinations(range(len(offsets)), size))
    sums = offsets[np.array(committees)].sum(axis=1)
    lengths = np.linalg.norm(sums, axis=1)
    cosines = (
        sums @ shift / np.where(lengths > 0, lengths, 1.0)
    )  # the shift's own length decides nothing
    return committees[int(np.argmax(cosines))]


def site_offsets(design: Matrix, observed: Matrix, ridge: float = 1.0) -> Matrix:
    """Return what each site adds to an update, from sums in which several sites are mixed.

    ``argmin_D ‖A D - Y‖² + λ ‖D‖²``: ridge regression. Who knows which sites trained in which round
    can so take the global model's steps apart; an update of a single site, where one is known, is a
    further row.

    Args:
        design: A (R, N), the weight of each site's offset in each observation.
        observed: Y (R, D).
        ridge: λ > 0; without rows the offsets are 0.

    Returns:
        D (N, D) float64.

    Raises:
        ConfigError: a different number of rows, λ not above 0, NaN or infinity.
    """
    if design.ndim != 2 or observed.ndim != 2 or len(design) != len(observed) or not ridge > 0:
        raise ConfigError(
            "anonymity.site_offsets",
            expected="a row of weights for each observation, and a ridge above 0",
            found=f"{design.shape}, {observed.shape}, ridge {ridge}",
            remedy="Describe each observation by the sites mixed in it.",
        )
    _require_finite("site_offsets", design, observed)
    weights = design.astype(np.float64)
    gram = weights.T @ weights + ridge * np.eye(weights.shape[1])
    return np.asarray(np.linalg.solve(gram, weights.T) @ observed)


def reconstruct(peer: Vector, known: Matrix, size: int, near: Vector) -> Vector:
    """Return the model of the unknown member of a committee, from all other candidates' models.

    ``φ_v = T φ_a - Σ_{k in S} φ_k``, exact up to rounding if S is the rest of the committee. Which
    T - 1 of the known models these are is guessed: the S whose φ_v lies closest to ``near``, since
    a wrong one adds the difference of two committees.

    Args:
        peer: φ_a (D,).
        known: φ_k (N, D), the models of all candidates but the victim.
        size: T in [1, N + 1]; with T = 1 the peer is the victim's model.
        near: (D,), what any site's model is about, such as the global model.

    Raises:
        ConfigError: shapes that do not belong together, T out of range, NaN or infinity.
    """
    models = np.vstack([known, near])
    _require("reconstruct", peer, models, size)
    offsets = peer - known.astype(np.float64)
    candidates = [
        peer + offsets[list(members)].sum(axis=0)
        for members in combinations(range(len(known)), size - 1)
    ]
    return min(candidates, key=lambda model: float(np.linalg.norm(model - near)))


def _require(where: str, target: Vector, candidates: Matrix, size: int) -> None:
    if candidates.ndim != 2 or target.shape != candidates.shape[1:]:
        raise ConfigError(
            f"anonymity.{where}",
            expected="a vector (D,) and one row (D,) for each candidate",
            found=f"{target.shape} and {candidates.shape}",
            remedy="Flatten the models in the same order of tensors.",
        )
    _require_finite(where, target, candidates)
    _require_size(where, len(candidates), size)


def _require_finite(where: str, *arrays: Matrix) -> None:
    if not all(np.isfinite(array).all() for array in arrays):
        raise ConfigError(
            f"anonymity.{where}",
            expected="finite numbers",
            found="NaN or infinity",
            remedy="Leave out the site whose model is broken.",
        )


def _require_size(where: str, candidates: int, size: int) -> None:
    if not 1 <= size <= candidates:
        raise ConfigError(
            f"anonymity.{where}",
            expected=f"a committee of 1 to {candidates}",
            found=f"{size}",
            remedy="Guess as many sites as the peer was made of.",
        )
