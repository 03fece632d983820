"""A site's secret, on which its random draws depend, so that nobody else can tell which images a
step was of.

The order of images, their views, masks, dropout, and the random part of a query for labels come
from the job's seed, the site's name and the round, all of which a lead knows, and from this secret,
which never leaves the site's folder. It stays the same over all jobs, so that a round that is
repeated has the same draws.
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
"""Length of a secret."""


def site_secret(folder: Path) -> bytes:
    """Return the secret in a site's own folder; if there is none, make it.

    Processes that ask at the same time get the same one.

    Raises:
        ConfigError: the file cannot be read, is a link, has another length, or gives rights to
            others than its owner.
    """
    path = folder / FILE
    if not path.is_symlink() and not path.exists():
        _make(path)
    where = f"secret {path}"
    remedy = "Restore it from a backup of the kit; without one, remove it between two runs."
    try:
        found = path.lstat()
        content = path.read_bytes()
    except OSError as error:
        expected = f"a file of {BYTES} bytes"
        raise ConfigError(
            where, expected=expected, found=reason_of(error), remedy=remedy
        ) from error
    if not stat.S_ISREG(found.st_mode) or len(content) != BYTES:
        kind = f"{len(content)} bytes" if stat.S_ISREG(found.st_mode) else "no plain file"
        raise ConfigError(where, expected=f"a file of {BYTES} bytes", found=kind, remedy=remedy)
    mode = stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    if mode:
        remedy = f"Others may know it: remove it between two runs, or chmod 600 {path.name} if nobody has looked."
        raise ConfigError(
            where,
            expected="a file of its owner alone",
            found=f"mode bits {mode:03o}",
            remedy=remedy,
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
