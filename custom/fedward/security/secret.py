"""A site's secret, which decides its random draws so that nobody else can predict them.

The order of images, their views, masks, dropout, and the random part of a query for labels depend
on the job's seed, the site's name and the round, all of which a lead knows, and on this secret,
which never leaves the site's folder. All jobs use the same secret, so a round that is repeated has
the same draws.
"""

import secrets
import stat
from pathlib import Path

from fedward.errors import ConfigError, reason_of
from fedward.private import opener
from fedward.storage.disk import PRIVATE, make_folder, replacing
from fedward.storage.lock import locked

FILE = "draws.secret"
"""The secret's file in a site's own folder."""

BYTES = 32
"""Length of a secret in bytes."""

_RESTORE = "Restore it from a backup of the kit; without one, remove it between two runs."


def site_secret(folder: Path) -> bytes:
    """Return the secret in a site's own folder; make one if there is none.

    Processes that ask at the same time get the same secret.

    Returns:
        32 bytes.

    Raises:
        ConfigError: the file cannot be read, is a link, has another length, or gives rights to
            accounts other than its owner.
    """
    path = folder / FILE
    if not path.is_symlink() and not path.exists():
        _make(path)
    try:
        status = path.lstat()
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"secret {path}",
            _RESTORE,
            expected=f"a file of {BYTES} bytes",
            found=reason_of(error),
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"secret {path} is not a plain file", _RESTORE)
    if len(content) != BYTES:
        raise ConfigError(
            f"secret {path}", _RESTORE, expected=f"{BYTES} bytes", found=f"{len(content)} bytes"
        )
    rights_of_others = stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    if rights_of_others:
        raise ConfigError(
            f"secret {path}",
            "Others may know it: remove it between two runs, "
            f"or chmod 600 {path.name} if nobody has looked.",
            expected="a file of its owner alone",
            found=f"mode bits {rights_of_others:03o}",
        )
    return content


def _make(path: Path) -> None:
    """Write a new secret, whole or not at all, unless another process was first."""
    make_folder(path.parent, PRIVATE)
    with locked(path):
        if path.exists():
            return
        with replacing(path) as partial, open(partial, "xb", opener=opener) as file:
            file.write(secrets.token_bytes(BYTES))
