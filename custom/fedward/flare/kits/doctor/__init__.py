"""What a participant should know about its FLARE startup kit before it joins.

Nothing is changed, and nothing is sent but TLS handshakes.
"""

import platform
from importlib.metadata import version
from pathlib import Path

from fedward.errors import ConfigError
from fedward.flare.kits.doctor import (
    budget,
    certificates,
    connections,
    data,
    imports,
    job,
    layout,
    network,
    policy,
    rights,
    site_rules,
)
from fedward.flare.kits.doctor.rows import Row, broken, done, skipped, text
from fedward.flare.kits.kit import Kit, open_kit


def examine(folder: Path, job_folder: Path | None = None) -> tuple[str, list[Row]]:
    """Return a headline and the findings about a kit and, if one is named, about a job that shall
    run with it.
    """
    installed = f"fedward {version('fedward')}, nvflare {version('nvflare')}, Python {platform.python_version()}"
    versions = done("versions", installed)
    try:
        kit = open_kit(folder)
    except ConfigError as error:
        return f"startup kit {folder}", [broken("layout", error), versions]
    own = [layout.complete(kit), *certificates.check(kit)]
    credentials = not any(
        row.status == "failed" for row in own if row.name in ("layout", *certificates.NEEDED)
    )
    return str(kit), [*own, *network.check(kit, credentials), *_rules(kit, job_folder), versions]


def run(folder: Path, job_folder: Path | None = None) -> int:
    """Print the findings about a kit.

    Returns:
        0: nothing failed (there may be warnings); 1: something did.
    """
    headline, rows = examine(folder, job_folder)
    print(text(headline, rows))
    return int(any(row.status == "failed" for row in rows))


def _rules(kit: Kit, job_folder: Path | None) -> list[Row]:
    """Return what the kit's ``local`` folder says; a user's kit has no rules."""
    if kit.role == "user":
        return [skipped("job", "a user's kit sets no rules; name a site's")] if job_folder else []
    if not kit.local.is_dir():
        return [skipped("rules", "there is no folder local")]
    return [
        *policy.check(kit),
        *data.check(kit),
        *budget.check(kit),
        *layout.check(kit),
        *imports.check(kit),
        *connections.check(kit),
        *rights.check(kit),
        *(job.check(kit, job_folder) if job_folder else []),
        *site_rules.check(kit, job_folder),
    ]
