"""A site's privacy ledger: every noisy update that left, over all jobs, and the limit on them.

The ledger has one line for each release, and notices when lines are missing
(:mod:`fedward.security.kept_chain`).
"""

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedward.errors import ConfigError, FedwardError
from fedward.security.kept_chain import KeptChain, LedgerKind
from fedward.storage.chain import Chain, read
from fedward.storage.disk import PRIVATE, make_folder, replacing
from fedward.storage.lock import locked

PRIVACY = LedgerKind(
    "privacy ledger",
    prefix="privacy",
    field="ledger",
    remedy="No update leaves. Restore the ledger and its end from one backup; see docs/noise.md.",
)

_HIGHEST = {"clip": 1e6, "noise_multiplier": 1e6, "delta": 1e-4, "max_epsilon": 20.0}
"""Setting of a rule -> its largest value.

No update has a norm above a ``clip`` of 1e6. ``delta`` is the probability that nothing is
promised. ``max_epsilon`` bounds how much more likely an update may be with one image than without
it, after all releases: at 20, 485 million times.
"""

_LARGEST_SENSITIVITY = 1e6
"""The largest sensitivity in units of the noise.

Above it epsilon, which is about half its square, counts as infinite.
"""

_MOST_RELEASES = 10**9
"""Releases are counted up to this number."""


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
            expected = f"noise of which one release costs at most epsilon {self.max_epsilon:g}"
            found = f"{self.noise_multiplier:g}: one costs {cost:.4g}"
            raise _wrong("noise_multiplier", expected, found)

    def left(self, spent: Sequence[float]) -> int:
        """Return how many further releases the rule allows, at most 1e9.

        Args:
            spent: noise multipliers of the releases so far.
        """
        sensitivity_so_far = _sensitivity(spent)
        sensitivity_of_one = 2 / self.noise_multiplier

        def epsilon_after(further_releases: int) -> float:
            sensitivity_of_further = math.sqrt(further_releases) * sensitivity_of_one
            return _epsilon(math.hypot(sensitivity_so_far, sensitivity_of_further), self.delta)

        # Epsilon grows with the number of releases, so the smallest number that costs too much is
        # bisected. It is 0 where the releases so far cost too much already.
        numbers = range(_MOST_RELEASES + 1)
        first_too_many = bisect_right(numbers, self.max_epsilon, key=epsilon_after)
        return max(first_too_many - 1, 0)


class BudgetUsedError(FedwardError):
    """A release would spend more than the site's rule allows."""

    def __init__(self, spent: float, with_this_one: float, rule: Rule) -> None:
        allowed = f"{rule.max_epsilon:g} at delta {rule.delta:g}"
        self.public = f"privacy budget used up: epsilon {spent:.4g} of {allowed}"
        """What the server may know about it."""
        super().__init__(
            "privacy budget",
            "No update leaves until the site's own privacy.json allows more.",
            expected=f"at most epsilon {allowed} for all releases of this site",
            found=f"{spent:.4g} so far, {with_this_one:.4g} with this one",
        )


def ledger_file(folder: Path, site: str) -> Path:
    """Return the ledger in a site's own folder, which the sites of a simulation share."""
    return PRIVACY.file(folder, site)


def epsilon(noise_multipliers: Sequence[float], delta: float) -> float:
    """Return the epsilon of several releases together, each of an update of norm at most ``clip``.

    Two such updates differ by up to 2 clip, so a release is a Gaussian mechanism with multiplier
    ``z / 2``. Releases compose to one with multiplier ``(sum (2 / z)^2)^(-1/2)``, also when a
    release depends on earlier ones.

    Args:
        noise_multipliers: ``z`` of each release, above 0.
        delta: in (0, 1).

    Raises:
        ConfigError: the package dp-accounting is missing.
    """
    return _epsilon(_sensitivity(noise_multipliers), delta)


def enter(path: Path, release: Mapping[str, Any], rule: Rule) -> dict[str, Any]:
    """Append a release to a ledger, and return its line with what all releases have spent.

    The line is on the disk when this returns. A ledger of an earlier version, which was not a
    chain, becomes one.

    Args:
        path: the ledger. It is made if there is none, readable for its owner alone.
        release: JSON values that describe the release.
        rule: what the release was made with, and what all releases together may spend.

    Raises:
        BudgetUsedError: the release would spend too much; nothing was written.
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):  # Two jobs may run at one site.
        ledger = KeptChain(path, PRIVACY)
        unchained_rows = _unchained_rows(ledger)
        rows = ledger.rows() if unchained_rows is None else unchained_rows
        earlier = _multipliers(ledger, rows)
        epsilon_with_this_one = epsilon([*earlier, rule.noise_multiplier], rule.delta)
        if epsilon_with_this_one > rule.max_epsilon:
            raise BudgetUsedError(epsilon(earlier, rule.delta), epsilon_with_this_one, rule)
        if unchained_rows:
            _adopt(ledger, unchained_rows)
        row = {
            **release,
            "clip": rule.clip,
            "noise_multiplier": rule.noise_multiplier,
            "delta": rule.delta,
            "sigma": rule.clip * rule.noise_multiplier,
            "releases": len(earlier) + 1,
            "epsilon": epsilon_with_this_one,
        }
        return ledger.add(row)


def spent(path: Path) -> list[float]:
    """Return the noise multipliers of a ledger's releases, oldest first; none without a ledger.

    Raises:
        DataError: the ledger is not what was written.
    """
    ledger = KeptChain(path, PRIVACY)
    unchained_rows = _unchained_rows(ledger)
    return _multipliers(ledger, ledger.rows() if unchained_rows is None else unchained_rows)


def half_line(path: Path) -> bytes:
    """Return the half line that a crash left at a ledger's end, which counts for nothing."""
    _, rest = read(path)
    return rest


def _sensitivity(noise_multipliers: Sequence[float]) -> float:
    """Return the sensitivity, in units of the noise, of one release that is worth all of these."""
    return math.hypot(*(2 / multiplier for multiplier in noise_multipliers))


def _epsilon(sensitivity: float, delta: float) -> float:
    """Return the epsilon of one release with a sensitivity in units of its noise."""
    try:
        import dp_accounting  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"GaussianUpdateFilter needs the package dp-accounting: {error}",
            "Install it at this site: pip install 'fedward[privacy]'.",
        ) from error
    if sensitivity > _LARGEST_SENSITIVITY:
        return math.inf
    return _gaussian_epsilon(sensitivity, delta) if sensitivity else 0.0


@lru_cache(1024)  # One value takes milliseconds to compute, and a bisection needs many.
def _gaussian_epsilon(sensitivity: float, delta: float) -> float:
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(1 / sensitivity, delta))


def _unchained_rows(ledger: KeptChain) -> list[dict[str, Any]] | None:
    """Return the rows of a ledger that a version before the chain wrote; None for any other.

    Either no end is recorded beside such a ledger, or an end of 0 lines: :func:`_adopt` records it
    before it makes the chain.

    Raises:
        DataError: it is a link, or the site's log of answers names a line of it: it was a chain.
    """
    ledger.check_files()
    # Both are read before the lines, as another job may add a line in between (KeptChain.rows).
    hashes_in_answers = ledger.hashes_in_answers()
    end = ledger.end()
    if end and end["lines"]:
        return None
    lines, _ = read(ledger.path)
    try:
        rows = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(row, dict) and "hash" not in row for row in rows):
        return None
    ledger.check_all_present(hashes_in_answers, rows)
    return rows


def _multipliers(ledger: KeptChain, rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the noise multiplier of each release; raise DataError for one that is not a number."""
    multipliers = []
    for number, row in enumerate(rows, 1):
        if "torn" in row:
            continue  # A crash left half a line: its update did not leave.
        value = row.get("noise_multiplier")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e300:
            expected = f"a noise multiplier above 0 in line {number}"
            raise ledger.refused(ledger.path, expected, repr(value))
        multipliers.append(float(value))
    return multipliers


def _adopt(ledger: KeptChain, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a ledger by a chain of its rows, in one step."""
    if not ledger.end():
        # The end comes first, so that no chain is ever without one.
        ledger.keep_end({"lines": 0, "last_hash": ledger.path.name})
    with replacing(ledger.path) as partial:
        chain = Chain(partial, ledger.path.name)
        for row in rows:
            chain.add(row)


def _wrong(name: str, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"GaussianUpdateFilter, {name}",
        "Correct the filter's args in the site's privacy.json.",
        expected=expected,
        found=found,
    )
