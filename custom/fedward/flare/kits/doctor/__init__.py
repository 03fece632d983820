"""What a participant should know about its FLARE startup kit before it joins.

Nothing is changed, and nothing is sent but TLS handshakes.
"""

import platform
from importlib.metadata import version
from pathlib import Path

from fedward.code_version import code_version
from fedward.errors import ConfigError
from fedward.flare.kits.doctor import (
    certificates,
    files,
    flare_rules,
    job,
    network,
    policy,
    site,
)
from fedward.flare.kits.doctor.rows import Row, broken, done, report_text, skipped
from fedward.flare.kits.kit import Kit, open_kit


def examine(folder: Path, job_folder: Path | None = None) -> tuple[str, list[Row]]:
    """Return a headline and the findings about a kit.

    Args:
        folder: the kit's.
        job_folder: a job that is to run with the kit, and is examined too.
    """
    versions = done(
        "versions",
        f"fedward {code_version()}, nvflare {version('nvflare')}, "
        f"Python {platform.python_version()}",
    )
    try:
        kit = open_kit(folder)
    except ConfigError as error:
        return f"startup kit {folder}", [broken("layout", error), versions]
    rows = [files.complete(kit), *certificates.check(kit)]
    needed_for_tls = ("layout", *certificates.NEEDED)
    usable = not any(row.status == "failed" and row.name in needed_for_tls for row in rows)
    rows += network.check(kit, credentials=usable)
    rows += _check_rules(kit, job_folder)
    rows.append(versions)
    return str(kit), rows


def run(folder: Path, job_folder: Path | None = None) -> int:
    """Print the findings about a kit.

    Returns:
        0 if nothing failed (there may be warnings), else 1.
    """
    headline, rows = examine(folder, job_folder)
    print(report_text(headline, rows))
    return int(any(row.status == "failed" for row in rows))


def _check_rules(kit: Kit, job_folder: Path | None) -> list[Row]:
    """Check the rules of a kit; a user's kit has none, and is checked for its console alone."""
    if kit.role == "user":
        rows = [flare_rules.check_console(kit)]
        if job_folder:
            rows.append(skipped("job", "a user's kit sets no rules; name a site's"))
        return rows
    if not kit.local.is_dir():
        return [skipped("rules", "there is no folder local")]
    rows = flare_rules.check(kit)
    rows += site.check_data(kit)
    rows += site.check_budget(kit)
    rows += files.check(kit)
    rows += flare_rules.check_code_rights(kit)
    if job_folder:
        rows += job.check(kit, job_folder)
    rows += policy.check(kit, job_folder)
    return rows
