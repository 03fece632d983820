"""Checks of what a site brings to a job: its images, and the privacy budget that is left."""

import shlex
from pathlib import Path

from fedward.errors import ConfigError, DataError
from fedward.flare.kits.doctor.rows import Row, broken, done, unnamed, warning
from fedward.flare.kits.kit import Kit
from fedward.flare.kits.scopes import SCOPES, noise_rules, privacy_ledger
from fedward.security.noise_rule import Rule
from fedward.security.privacy_budget import epsilon
from fedward.security.privacy_ledger import half_line, spent
from fedward.sites.check import described
from fedward.sites.site_file import SERVER, find_site_file
from fedward.text import count


def check_data(kit: Kit) -> list[Row]:
    """Open the images that the site file in ``local`` names.

    Images and labels themselves are examined by ``fedward doctor SITE_FILE``.
    """
    if kit.role == "site":
        site_file = find_site_file(kit.name, [kit.local])
        if site_file is None:
            return [
                warning(
                    "data",
                    expected="local/fedward_site.yaml, which names this site's data",
                    found="no such file: clinical jobs fail here",
                    remedy="Write it, and check it with fedward doctor.",
                )
            ]
        return [
            _data(kit, site_file, f"check it too: fedward doctor {shlex.quote(str(site_file))}")
        ]
    server_file = find_site_file(SERVER, [kit.local])
    if server_file is None:
        return []  # Few jobs need images at the server.
    return [_data(kit, server_file, "the server's own images, which are public")]


def _data(kit: Kit, site_file: Path, note: str) -> Row:
    try:
        summary = described(site_file)
    except DataError as error:
        if not kit.in_containers:
            return broken("data", error)
        return warning(
            "data",
            expected=error.expected,
            found=f"{error.problem}: {error.found}" if error.found else error.problem,
            remedy="Jobs run in containers with their own paths: check whether they are mounted.",
        )
    return done("data", f"local/{site_file.name}: {summary}\n{note}")


def check_budget(kit: Kit) -> list[Row]:
    """Say what each noise filter of a site's scopes costs, what is spent, and what is left."""
    try:
        rules = noise_rules(kit)
    except ConfigError:
        return []  # The row of the scopes reports it.
    if not rules:
        return []
    try:
        ledger = privacy_ledger(kit)
        releases = spent(ledger)
    except ConfigError as error:
        return [unnamed("noise", error)]
    except DataError as error:
        return [broken("noise", error)]
    rows = [_noise(scope, rule, releases) for scope, rule in rules]
    torn_line = half_line(ledger)
    if torn_line:
        rows.append(
            warning(
                "ledger",
                expected="whole lines",
                found=(
                    f"{ledger.name} ends in half a line of {count(len(torn_line), 'byte')}, "
                    "which a crash left"
                ),
                remedy=(
                    "You need do nothing: no update left the site with it, it does not count, "
                    "and the next release quotes it."
                ),
            )
        )
    return rows


def _noise(scope: str, rule: Rule, releases: list[float]) -> Row:
    """Return the row of one noise filter.

    Args:
        scope: name of the filter's privacy scope.
        rule: what the filter adds, and its budget.
        releases: noise multiplier of each update that has left the site.
    """
    cost = epsilon([rule.noise_multiplier], rule.delta)
    total = epsilon(releases, rule.delta)
    releases_left = rule.releases_left(releases)
    found = (
        f"{scope}: one release costs epsilon {cost:.3g}; {count(len(releases), 'release')} spent "
        f"{total:.4g} of {rule.max_epsilon:g} at delta {rule.delta:g}; "
        f"releases left: {releases_left}"
    )
    if releases_left:
        return done("noise", found)
    return warning(
        "noise",
        expected="a budget that is not used up",
        found=found,
        remedy=(
            "No update leaves any more, in no job. "
            f"If this site wants to go on, raise max_epsilon in {SCOPES}."
        ),
    )
