"""A site's privacy scopes (``local/privacy.json``), and the noise that their filters add.

Nothing here imports torch: an idle participant reads its scopes for its metrics.
"""

import contextlib
import io
import logging
from collections.abc import Iterator
from pathlib import Path

from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.privacy_manager import PrivacyManager

from fedward.errors import ConfigError
from fedward.flare.kits.kit import Kit
from fedward.flare.kits.reading import read_json
from fedward.flare.privacy import GaussianUpdateFilter
from fedward.security.noise_rule import Rule
from fedward.security.privacy_ledger import PRIVACY
from fedward.terminal import one_line

SCOPES = "local/privacy.json"
"""File in a site's kit that lists its privacy scopes."""

_EVERY_JOB_FAILS = "As it is, every job fails at this site."


def read_scopes(kit: Kit) -> PrivacyManager:
    """Return the site's privacy scopes with their filters, built as FLARE builds them for a job.

    Raises:
        ConfigError: FLARE cannot read the file, or a filter cannot be built.
    """
    file = kit.folder / SCOPES
    if file.exists():
        read_json(file, f"Correct or restore it. {_EVERY_JOB_FAILS}")
    with quiet():
        try:
            return create_privacy_manager(kit.workspace, names_only=False)
        except Exception as error:  # A filter may raise anything when it is built.
            raise ConfigError(
                SCOPES,
                expected="scopes whose filters can be built",
                found=one_line(str(error)),
                remedy=f"{_EVERY_JOB_FAILS} FLARE's own sample file is no working example.",
            ) from error


def noise_rules(kit: Kit) -> list[tuple[str, Rule]]:
    """Return (scope, rule) of each filter that adds noise at a site.

    Raises:
        ConfigError: the site's scopes cannot be read.
    """
    rules = []
    for scope in read_scopes(kit).name_to_scopes.values():
        for filters in scope.task_result_filters.values():
            for result_filter in filters:
                if isinstance(result_filter, GaussianUpdateFilter):
                    rules.append((scope.name, result_filter.rule))
    return rules


def privacy_ledger(kit: Kit) -> Path:
    """Return the ledger of a site's privacy budget.

    Raises:
        ConfigError: jobs run in containers, and nothing names the folder that the site keeps.
    """
    return PRIVACY.file(kit.state, kit.name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress what FLARE prints and logs while it reads a kit; its exceptions say the same."""
    disabled_before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(disabled_before)
