"""MONAI's trainer, without the rest of MONAI.

``import monai`` imports all of MONAI and what that can use: seconds, where the trainer itself runs
in a tenth of one. So the trainer's files are loaded with stand-ins for the packages that they name
and do not use here. All of it leaves ``sys.modules`` again: whoever imports MONAI or ignite later
gets them whole, with a trainer class of their own. If they are there already, or the trainer cannot
be loaded so, it is the ordinary one.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn
from unittest import mock

_NAMED = (
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


class _Named(ModuleType):
    """Stands for a module: every name leads to a class that can be mentioned and never used."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__module__": self.__name__, "__new__": _refuse})


def _refuse(kind: type, *_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        f"{kind.__module__}.{kind.__name__} is not loaded with MONAI's trainer alone"
    )


@contextmanager
def _alone() -> Iterator[None]:
    """Import with stand-ins, and without MONAI's search for its own modules; then take what came
    out again.
    """
    before = set(sys.modules)
    sys.modules.update({name: _Named(name) for name in _NAMED if name not in before})
    try:
        with mock.patch.object(pkgutil, "walk_packages", return_value=()):
            yield
    finally:
        for name in set(sys.modules) - before:
            if name.split(".")[0] in ("ignite", "monai"):
                del sys.modules[name]


def _load() -> Any:
    if "monai" not in sys.modules:
        try:
            with _alone():
                return importlib.import_module("monai.engines").Trainer
        except Exception:  # a version whose trainer needs more
            pass
    return importlib.import_module("monai.engines").Trainer


Trainer = _load()
