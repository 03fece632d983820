"""A site's secret, which decides its random draws so that nobody else can predict them.

Draws are the order of images, their views, masks, dropout, and the random part of a query for
labels. They depend on the job's seed, the site's name and the round, all of which a lead knows.
They also depend on this secret, which never leaves the site's folder. All jobs use the same secret,
so a round that is repeated has the same draws.
"""

import secrets
from pathlib import Path

from fedward import private
from fedward.disk import PRIVATE, make_folder
from fedward.errors import ConfigError, reason_of
from fedward.storage.lock import locked

SECRET_FILE = "draws.secret"
"""The secret's file in a site's own folder."""

SECRET_BYTES = 32
"""Length of a secret in bytes."""


def site_secret(folder: Path) -> bytes:
    """Return the secret in a site's own folder; make one if there is none.

    Processes that ask at the same time get the same secret.

    Returns:
        32 bytes.

    Raises:
        ConfigError: the file cannot be read, is a link, has another length, or does not meet
            :data:`fedward.private.SECRET`.
    """
    path = folder / SECRET_FILE
    if not path.is_symlink() and not path.exists():
        _make(path)
    try:
        content = private.read(path, private.SECRET)
    except OSError as error:
        raise _unusable(path, private.SECRET.expected, reason_of(error)) from error
    if len(content) != SECRET_BYTES:
        raise _unusable(path, f"{SECRET_BYTES} bytes", f"{len(content)} bytes")
    return content


def _unusable(path: Path, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"secret {path}",
        "Restore it from a backup of the kit, with mode 600. "
        "Without a backup, or if others may know it, remove it between two runs.",
        expected=expected,
        found=found,
    )


def _make(path: Path) -> None:
    """Write a new secret, whole or not at all, unless another process was first."""
    make_folder(path.parent, PRIVATE)
    with locked(path):
        if path.exists():
            return
        with private.replacing(path) as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
