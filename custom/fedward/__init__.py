"""fedward: federated learning for hospitals that are short of labels, on NVIDIA FLARE.

What a notebook needs is here; docs/extending.md begins with it.
"""

import os
from getpass import getuser
from importlib import import_module
from typing import Any

_MODULE_OF = {
    "Run": "fedward.lab.results",
    "TrainedModel": "fedward.inference.model",
    "doctor": "fedward.lab.notebook",
    "experiment": "fedward.lab.notebook",
    "load_model": "fedward.inference.model",
    "partition": "fedward.lab.notebook",
    "register": "fedward.lab.notebook",
    "run": "fedward.lab.notebook",
}
"""Public name -> the module that defines it."""

__all__ = list(_MODULE_OF)
__version__ = "0.1.0"


def _name_the_user() -> None:
    """Give this process a user name where the machine knows none for its number.

    Containers often run under a number without an entry in /etc/passwd. MONAI and torch ask for the
    name while they are imported, and would fail.
    """
    try:
        getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on.
        os.environ["USER"] = f"uid-{os.getuid()}"


_name_the_user()


def __getattr__(name: str) -> Any:
    """Return a public name, imported at first use: commands and idle sites need none of them."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    """Return the public names, which a notebook lists when Tab is pressed."""
    return sorted(__all__)
