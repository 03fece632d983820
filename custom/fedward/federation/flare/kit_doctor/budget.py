"""Checks of the noise a site adds to its updates: what a release costs, what is spent, and what is left."""

from nvflare.apis.workspace import Workspace

from fedward.errors import ConfigError, DataError
from fedward.federation.flare.kit_doctor.kit import Kit
from fedward.federation.flare.kit_doctor.policy import SCOPES, scopes
from fedward.federation.flare.kit_doctor.rows import Row, broken, done, warning
from fedward.federation.flare.places import site_state
from fedward.federation.flare.privacy import GaussianUpdateFilter
from fedward.federation.ledger import Rule, epsilon, ledger_file, spent


def check(kit: Kit) -> list[Row]:
    """Return a row for each noise filter in a site's scopes, or one for a ledger that cannot be used."""
    try:
        rules = noise_rules(kit)
        used = released(kit) if rules else []
    except ConfigError:
        return []  # the row of the scopes says it
    except DataError as error:
        return [broken("noise", error)]
    return [_row(scope, rule, used) for scope, rule in rules]


def noise_rules(kit: Kit) -> list[tuple[str, Rule]]:
    """Return (scope, rule) of each noise filter of a site; raises ConfigError where its rules cannot be read."""
    return [
        (scope.name, each.rule)
        for scope in scopes(kit).name_to_scopes.values()
        for filters in scope.task_result_filters.values()
        for each in filters
        if isinstance(each, GaussianUpdateFilter)
    ]


def released(kit: Kit) -> list[float]:
    """Return the noise multipliers of all a site's releases; raises DataError where the ledger cannot be used."""
    return spent(ledger_file(site_state(Workspace(str(kit.folder), kit.name)), kit.name))


def _row(scope: str, rule: Rule, used: list[float]) -> Row:
    each, total, left = epsilon([rule.noise_multiplier], rule.delta), epsilon(used, rule.delta), rule.left(used)
    found = (
        f"{scope}: one release costs epsilon {each:.3g}, {len(used)} have spent {total:.4g} "
        f"of {rule.max_epsilon:g} at delta {rule.delta:g}, {left} are left"
    )
    if left:
        return done("noise", found)
    remedy = f"No update leaves any more, in no job. If this site wants to go on, raise max_epsilon in {SCOPES}."
    return warning("noise", expected="a budget that is not used up", found=found, remedy=remedy)
