"""A site's privacy ledger: every noisy update it released, over all jobs, and the rule that says
when to stop.

It has a line for each release, and notices when lines are missing
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
    remedy="No update leaves. Restore the ledger and its end from one backup; see docs/privacy.md.",
)

_HIGHEST = {"clip": 1e6, "noise_multiplier": 1e6, "delta": 1e-4, "max_epsilon": 20.0}
"""What a rule may name at most. No update is longer than that ``clip``. ``delta`` is the chance
that nothing is promised. ``max_epsilon`` bounds how often more likely an update may look after all
releases: at 20, 485 million times.
"""
_HUGE = 1e6
"""Sensitivity in units of the noise beyond which epsilon, about half its square, is as good as
infinite.
"""
_MANY = 10**9
"""Releases that are counted no further."""


@dataclass(frozen=True)
class Rule:
    """How much noise a site adds to an update, and how much it may spend.

    Args:
        clip: largest L2 norm of an update, over all its tensors together; in (0, 1e6].
        noise_multiplier: standard deviation of the noise in units of ``clip``; at most 1e6, and so
            large that one release costs no more than ``max_epsilon``.
        delta: for which epsilon is computed; in (0, 1e-4].
        max_epsilon: of all releases together; in (0, 20].

    Raises:
        ConfigError: a number out of its range, or the package dp-accounting is missing.
    """

    clip: float
    noise_multiplier: float
    delta: float
    max_epsilon: float

    def __post_init__(self) -> None:
        for name, highest in _HIGHEST.items():
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 < value <= highest
            ):
                raise _wrong(name, f"a number above 0, at most {highest:g}", repr(value))
        cost = epsilon([self.noise_multiplier], self.delta)
        if cost > self.max_epsilon:
            wanted = f"noise of which one release costs at most epsilon {self.max_epsilon:g}"
            raise _wrong(
                "noise_multiplier", wanted, f"{self.noise_multiplier:g}: one costs {cost:.4g}"
            )

    def left(self, spent: Sequence[float]) -> int:
        """Return how many further releases the rule allows, after those with these noise
        multipliers; at most 1e9.
        """
        used = _mu(spent)
        each = 2 / self.noise_multiplier

        def total(further: int) -> float:
            return _epsilon(math.hypot(used, math.sqrt(further) * each), self.delta)

        return max(bisect_right(range(_MANY + 1), self.max_epsilon, key=total) - 1, 0)


class BudgetUsedError(FedwardError):
    """A release would spend more than the site's rule allows."""

    def __init__(self, spent: float, cost: float, rule: Rule) -> None:
        allowed = f"{rule.max_epsilon:g} at delta {rule.delta:g}"
        self.public = f"privacy budget used up: epsilon {spent:.4g} of {allowed}"
        """What the server may know of it."""
        expected = f"at most epsilon {allowed} for all releases of this site"
        remedy = "No update leaves until the site's own privacy.json allows more."
        found = f"{spent:.4g} so far, {cost:.4g} with this one"
        super().__init__("privacy budget", expected=expected, found=found, remedy=remedy)


def ledger_file(folder: Path, site: str) -> Path:
    """Return the ledger in a site's own folder, which the simulator's sites share."""
    return PRIVACY.file(folder, site)


def epsilon(noise_multipliers: Sequence[float], delta: float) -> float:
    """Return the epsilon of releases with these noise multipliers, each of any update of norm <=
    clip.

    Two such updates differ by up to 2 clip, so a release is a Gaussian mechanism with multiplier
    ``z / 2``; releases compose to one with ``(sum (2 / z)^2)^(-1/2)``, also when a release depends
    on those before.

    Raises:
        ConfigError: the package dp-accounting is missing.
    """
    return _epsilon(_mu(noise_multipliers), delta)


def enter(path: Path, release: Mapping[str, Any], rule: Rule) -> dict[str, Any]:
    """Append a release to a ledger, and return its line: ``release``, and what all of them have
    spent.

    It is on the disk when this returns. A ledger of an earlier version, which is no chain, becomes
    one.

    ``path`` is made if there is none, readable for its owner alone. ``release``: JSON values that
    describe it. ``rule``: what it was made with, and what all releases together may spend.

    Raises:
        BudgetUsedError: it would spend too much; nothing was written.
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):  # two jobs may run at one site
        ledger = KeptChain(path, PRIVACY)
        earlier = _unchained(ledger)
        rows = ledger.rows() if earlier is None else earlier
        spent = _multipliers(ledger, rows)
        cost = epsilon([*spent, rule.noise_multiplier], rule.delta)
        if cost > rule.max_epsilon:
            raise BudgetUsedError(epsilon(spent, rule.delta), cost, rule)
        if earlier:
            _adopt(ledger, earlier)
        made_with = {
            "clip": rule.clip,
            "noise_multiplier": rule.noise_multiplier,
            "delta": rule.delta,
        }
        made_with["sigma"] = rule.clip * rule.noise_multiplier
        return ledger.add({**release, **made_with, "releases": len(spent) + 1, "epsilon": cost})


def spent(path: Path) -> list[float]:
    """Return the noise multipliers of a ledger's releases, the oldest first; none where there is no
    ledger.

    Raises:
        DataError: the ledger is not what was written.
    """
    ledger = KeptChain(path, PRIVACY)
    earlier = _unchained(ledger)
    return _multipliers(ledger, ledger.rows() if earlier is None else earlier)


def half_line(path: Path) -> bytes:
    """Return what a crash left of a line at a ledger's end; it counts for nothing. Empty: all lines
    are whole.
    """
    return read(path)[1]


def _mu(noise_multipliers: Sequence[float]) -> float:
    """Return the sensitivity of releases as one, in units of its noise."""
    return math.hypot(*(2 / z for z in noise_multipliers))


def _epsilon(mu: float, delta: float) -> float:
    try:
        import dp_accounting  # noqa: F401
    except ImportError as error:
        expected = "the package dp-accounting"
        remedy = "Install it at this site: pip install 'fedward[privacy]'."
        raise ConfigError(
            "GaussianUpdateFilter", expected=expected, found=str(error), remedy=remedy
        ) from error
    if mu > _HUGE:
        return math.inf
    return _of_gaussian(mu, delta) if mu else 0.0


@lru_cache(1024)
def _of_gaussian(mu: float, delta: float) -> float:
    from dp_accounting import get_epsilon_gaussian  # takes milliseconds, and a search asks for many

    return float(get_epsilon_gaussian(1 / mu, delta))


def _unchained(ledger: KeptChain) -> list[dict[str, Any]] | None:
    """Return the lines of a ledger as versions before the chain wrote it: it has no end, or one of
    no line.

    None for any other.

    Raises:
        DataError: it is a link, or the site's log of answers knows of a line: that ledger was a
            chain.
    """
    ledger.check_files()
    known = ledger.known()
    end = ledger.end()
    if end and end["lines"]:
        return None
    try:
        rows = [json.loads(line) for line in read(ledger.path)[0]]
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(row, dict) and "hash" not in row for row in rows):
        return None
    ledger.check_known(known, rows)
    return rows


def _multipliers(ledger: KeptChain, rows: Sequence[Mapping[str, Any]]) -> list[float]:
    found = []
    for number, row in enumerate(rows, 1):
        if "torn" in row:
            continue  # half a line that a crash left: its update did not leave
        value = row.get("noise_multiplier")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e300:
            raise ledger.refused(
                ledger.path, f"a noise multiplier above 0 in line {number}", repr(value)
            )
        found.append(float(value))
    return found


def _adopt(ledger: KeptChain, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a ledger by a chain of its lines, in one step."""
    if not ledger.end():
        ledger.keep_end(
            {"lines": 0, "last_hash": ledger.path.name}
        )  # first, so that no chain is ever without an end
    with replacing(ledger.path) as partial:
        chain = Chain(partial, ledger.path.name)
        for row in rows:
            chain.add(row)


def _wrong(name: str, expected: str, found: str) -> ConfigError:
    remedy = "Correct the filter's args in the site's privacy.json."
    return ConfigError(
        f"GaussianUpdateFilter, {name}", expected=expected, found=found, remedy=remedy
    )
