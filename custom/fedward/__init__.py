"""fedward: federated learning for hospitals that are short of labels, on NVIDIA FLARE.

What a notebook needs is here; docs/extending.md begins with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedward.inference.model import TrainedModel, load_model
    from fedward.lab.notebook import experiment, register, run

__all__ = ["TrainedModel", "experiment", "load_model", "register", "run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return a public name, imported at first use: commands and idle sites need none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "inference.model" if name in ("TrainedModel", "load_model") else "lab.notebook"
    return getattr(import_module(f"fedward.{module}"), name)
