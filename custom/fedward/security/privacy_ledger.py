"""A site's privacy ledger: every noisy update that left, over all jobs, and the limit on them.

The ledger has one line for each release, and notices when lines are missing
(:mod:`fedward.security.kept_chain`). :mod:`fedward.security.noise_rule` says how much may be spent,
and :mod:`fedward.security.privacy_budget` what releases cost and how many are left.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedward.disk import PRIVATE, make_folder
from fedward.errors import FedwardError
from fedward.security.kept_chain import KeptChain, LedgerKind
from fedward.security.noise_rule import Rule
from fedward.security.privacy_budget import epsilon
from fedward.storage.chain import read
from fedward.storage.lock import locked

PRIVACY = LedgerKind(
    "privacy ledger",
    prefix="privacy",
    field="ledger",
    remedy="No update leaves. Restore the ledger and its end from one backup; see docs/noise.md.",
)


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


def enter(path: Path, release: Mapping[str, Any], rule: Rule) -> dict[str, Any]:
    """Append a release to a ledger, and return its line with what all releases have spent.

    The line is on the disk when this returns.

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
        multipliers = _multipliers(ledger)
        epsilon_with_this_one = epsilon([*multipliers, rule.noise_multiplier], rule.delta)
        if epsilon_with_this_one > rule.max_epsilon:
            raise BudgetUsedError(epsilon(multipliers, rule.delta), epsilon_with_this_one, rule)
        row = {
            **release,
            "clip": rule.clip,
            "noise_multiplier": rule.noise_multiplier,
            "delta": rule.delta,
            "sigma": rule.clip * rule.noise_multiplier,
            "releases": len(multipliers) + 1,
            "epsilon": epsilon_with_this_one,
            # The hash of a line leaves the site, and all but the norm can be known elsewhere. The
            # salt keeps the hash from telling the norm.
            "salt": secrets.token_hex(16),
        }
        return ledger.add(row)


def spent(path: Path) -> list[float]:
    """Return the noise multipliers of a ledger's releases, oldest first; none without a ledger.

    Raises:
        DataError: the ledger is not what was written.
    """
    return _multipliers(KeptChain(path, PRIVACY))


def half_line(path: Path) -> bytes:
    """Return the half line that a crash left at a ledger's end, which counts for nothing."""
    _, rest = read(path)
    return rest


def _multipliers(ledger: KeptChain) -> list[float]:
    """Return the noise multiplier of each release, oldest first.

    Raises:
        DataError: the ledger is not what was written, or a multiplier is not a number above 0.
    """
    multipliers = []
    for number, row in enumerate(ledger.rows(), 1):
        if "torn" in row:
            continue  # A crash left half a line: its update did not leave.
        value = row.get("noise_multiplier")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e300:
            expected = f"a noise multiplier above 0 in line {number}"
            raise ledger.refused(ledger.path, expected, repr(value))
        multipliers.append(float(value))
    return multipliers
