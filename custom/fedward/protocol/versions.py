"""The versions of packages: a request has the server's, and a site compares them with its own."""

from functools import cache
from importlib.metadata import version

from fedward.code_version import code_version

_PACKAGES = ("nvflare", "torch", "monai", "numpy")
"""Packages that results depend on."""


@cache
def versions() -> dict[str, str]:
    """Return package -> version, for fedward and the packages that its results depend on."""
    installed = {"fedward": code_version()}
    for name in _PACKAGES:
        installed[name] = version(name)
    return installed
