"""fedward: federated learning for hospitals that are short of labels, on NVIDIA FLARE.

What a notebook needs is here; docs/extending.md begins with it.
"""

from importlib import import_module
from typing import Any

_MODULE_OF = {
    "TrainedModel": "fedward.inference.model",
    "experiment": "fedward.lab.notebook",
    "load_model": "fedward.inference.model",
    "register": "fedward.lab.notebook",
    "run": "fedward.lab.notebook",
}
"""Public name -> the module that defines it."""

__all__ = list(_MODULE_OF)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return a public name, imported at first use: commands and idle sites need none of them."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
