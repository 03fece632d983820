"""Which versions run here: a request tells the server's, and a site compares them with its own."""

from functools import cache
from importlib.metadata import version

from fedward import __version__

_PACKAGES = ("nvflare", "torch", "monai", "numpy")


@cache
def versions() -> dict[str, str]:
    """Return package -> version, of fedward and of what its results depend on."""
    return {"fedward": __version__, **{name: version(name) for name in _PACKAGES}}
