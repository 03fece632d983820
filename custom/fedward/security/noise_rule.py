"""A site's rule on noise: how much its updates get, and how much privacy they may spend."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedward.errors import ConfigError
from fedward.security.privacy_budget import epsilon, releases_left

_HIGHEST = {"clip": 1e6, "noise_multiplier": 1e6, "delta": 1e-4, "max_epsilon": 20.0}
"""Setting of a rule -> its largest value.

No update has a norm above a ``clip`` of 1e6. ``delta`` is the probability that nothing is
promised. ``max_epsilon`` bounds how much more likely an update may be with one image than without
it, after all releases: at 20, 485 million times.
"""


@dataclass(frozen=True)
class Rule:
    """How much noise a site adds to an update, and how much privacy it may spend.

    Args:
        clip: largest L2 norm of an update, over all its tensors together; in (0, 1e6].
        noise_multiplier: standard deviation of the noise in units of ``clip``; at most 1e6, and so
            large that one release costs no more than ``max_epsilon``.
        delta: the delta for which epsilon is computed; in (0, 1e-4].
        max_epsilon: epsilon of all releases together; in (0, 20].

    Raises:
        ConfigError: a number is out of its range, or the package dp-accounting is missing.
    """

    clip: float
    noise_multiplier: float
    delta: float
    max_epsilon: float

    def __post_init__(self) -> None:
        for name, highest in _HIGHEST.items():
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 < value <= highest:
                raise _wrong(name, f"a number above 0, at most {highest:g}", repr(value))
        cost = epsilon([self.noise_multiplier], self.delta)
        if cost > self.max_epsilon:
            expected = f"noise whose single release costs at most epsilon {self.max_epsilon:g}"
            found = f"{self.noise_multiplier:g}: one costs {cost:.4g}"
            raise _wrong("noise_multiplier", expected, found)

    def releases_left(self, spent: Sequence[float]) -> int:
        """Return how many further releases the rule allows, at most 1e9.

        Args:
            spent: noise multipliers of the releases so far.
        """
        return releases_left(spent, self.noise_multiplier, self.delta, self.max_epsilon)


def _wrong(name: str, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"GaussianUpdateFilter, {name}",
        "Correct the filter's args in the site's privacy.json.",
        expected=expected,
        found=found,
    )
