"""Checks of the noise a site adds to its updates: what a release costs, what is spent, and what is
left.
"""

from pathlib import Path

from fedward.errors import ConfigError, DataError
from fedward.flare.kits.doctor.policy import SCOPES, scopes
from fedward.flare.kits.doctor.rows import Row, broken, done, skipped, warning
from fedward.flare.kits.kit import Kit
from fedward.flare.privacy import GaussianUpdateFilter
from fedward.security.ledger import Rule, epsilon, half_line, ledger_file, spent


def check(kit: Kit) -> list[Row]:
    """Return a row for each noise filter in a site's scopes, or one for a ledger that cannot be
    used.
    """
    try:
        rules = noise_rules(kit)
    except ConfigError:
        return []  # the row of the scopes says it
    if not rules:
        return []
    try:
        file = ledger(kit)
        used = spent(file)
    except ConfigError as error:
        return [
            skipped("noise", f"{error.problem}: expected {error.expected}, found {error.found}")
        ]
    except DataError as error:
        return [broken("noise", error)]
    rows = [_row(scope, rule, used) for scope, rule in rules]
    torn = half_line(file)
    if torn:
        found = f"{file.name} ends in half a line of {len(torn)} bytes, which a crash left"
        remedy = (
            "Nothing: no update left with it, it does not count, and the next release quotes it."
        )
        rows.append(warning("ledger", expected="whole lines", found=found, remedy=remedy))
    return rows


def noise_rules(kit: Kit) -> list[tuple[str, Rule]]:
    """Return (scope, rule) of each noise filter of a site; raises ConfigError where its rules
    cannot be read.
    """
    return [
        (scope.name, each.rule)
        for scope in scopes(kit).name_to_scopes.values()
        for filters in scope.task_result_filters.values()
        for each in filters
        if isinstance(each, GaussianUpdateFilter)
    ]


def ledger(kit: Kit) -> Path:
    """Return a site's ledger; raises ConfigError where jobs run in containers, and nothing names
    its folder.
    """
    return ledger_file(kit.state, kit.name)


def _row(scope: str, rule: Rule, used: list[float]) -> Row:
    each = epsilon([rule.noise_multiplier], rule.delta)
    total = epsilon(used, rule.delta)
    left = rule.left(used)
    found = (
        f"{scope}: one release costs epsilon {each:.3g}, {len(used)} have spent {total:.4g} "
        f"of {rule.max_epsilon:g} at delta {rule.delta:g}, {left} are left"
    )
    if left:
        return done("noise", found)
    remedy = f"No update leaves any more, in no job. If this site wants to go on, raise max_epsilon in {SCOPES}."
    return warning("noise", expected="a budget that is not used up", found=found, remedy=remedy)
