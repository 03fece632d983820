"""The version of fedward's code: two copies share it only if all their modules are equal."""

import hashlib
from functools import cache
from pathlib import Path

import fedward

_DIGITS = 12
"""Hexadecimal digits of the digest in a version."""


@cache
def code_version() -> str:
    """Return the version with a digest of all modules, such as ``0.1.0+3f9a2c41d07b``.

    Releases are rare, and machines that install from a clone may have any commit. By the number of
    the release alone they would have one version, and still give other results or messages.
    """
    digest = digest_of_modules(Path(fedward.__file__).parent)
    return f"{fedward.__version__}+{digest[:_DIGITS]}"


def digest_of_modules(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of all Python files in and below a folder.

    Names are relative to the folder, so that an installed copy has the digest of its source.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
