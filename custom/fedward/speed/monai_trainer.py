"""MONAI's trainer without the rest of MONAI.

What: loads ``monai.engines.trainer`` while placeholders stand for the packages that it names and
that a training here never uses: MONAI's readers, transforms and inferers, ignite's metrics and
handlers. Afterwards every module of MONAI and ignite is taken out of ``sys.modules`` again. A later
``import monai`` therefore gets all of MONAI, with a trainer class of its own.

Why: ``import monai.engines`` imports 3,400 modules, among them torch's compiler. In FLARE's
simulator that happens in a new process for each site and exchange.

Versions: MONAI 1.5.0, 1.5.2 and 1.6.1, ignite 0.5.5. Under a version of MONAI that is neither 1.5
nor 1.6 the trainer is imported in the ordinary way.

Ratio: 1.75 by CPU time (1.62 to 1.87, three pairs of runs) for the job ``fedavg`` with two sites
and two rounds in FLARE's simulator; ``python benchmarks/tricks.py monai_trainer``. A process that
trains one step takes 2.9 CPU seconds and 707 MB with it, 10.1 and 1034 without.
"""

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from monai.engines import Trainer

TRIED_VERSIONS = ("1.5.", "1.6.")
"""How the versions of MONAI begin whose trainer needs none of the packages below."""

_NEVER_USED = (
    "ignite.contrib",
    "ignite.distributed",
    "ignite.handlers",
    "ignite.metrics",
    "monai.data",
    "monai.inferers",
    "monai.networks.utils",
    "monai.transforms",
    "monai.utils.jupyter_utils",
    "monai.utils.profiling",
)


class _Placeholder(ModuleType):
    """A module in which every name is a class that can be named and not be used."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__module__": self.__name__, "__new__": _refuse_to_be_made})


def _refuse_to_be_made(placeholder: type, *_: object, **__: object) -> NoReturn:
    name = f"{placeholder.__module__}.{placeholder.__name__}"
    raise NotImplementedError(f"{name} is not loaded with MONAI's trainer alone")


def load_trainer() -> "type[Trainer]":
    """Return the class ``monai.engines.Trainer``.

    A process that has imported MONAI already gets that MONAI's class.
    """
    version = importlib.metadata.version("monai")
    if "monai" in sys.modules or not version.startswith(TRIED_VERSIONS):
        return _trainer()
    with _placeholders(version):
        return _trainer()


def _trainer() -> "type[Trainer]":
    trainer: type[Trainer] = importlib.import_module("monai.engines").Trainer
    return trainer


@contextmanager
def _placeholders(version: str) -> Iterator[None]:
    """Put the placeholders into ``sys.modules``; at the end take out all of MONAI and ignite."""
    loaded_before = set(sys.modules)
    # MONAI's own __init__ would search for all of its modules and import them.
    package = ModuleType("monai")
    spec = importlib.util.find_spec("monai")
    package.__path__ = list(spec.submodule_search_locations or ()) if spec else []
    package.__version__ = version  # type: ignore[attr-defined]  # monai.config reads it
    sys.modules["monai"] = package
    for name in _NEVER_USED:
        if name not in loaded_before:
            sys.modules[name] = _Placeholder(name)
    try:
        yield
    finally:
        for name in set(sys.modules) - loaded_before:
            if name.split(".")[0] in ("ignite", "monai"):
                del sys.modules[name]
