"""MONAI's trainer, without the rest of MONAI.

``import monai`` imports all of MONAI's modules, most of them twice: 8 CPU seconds where the trainer needs half. So the
package's own search for modules finds none here. Modules that anybody imports by name come as ever.
"""

import importlib
import pkgutil
import sys
from unittest import mock

if "monai" not in sys.modules:
    with mock.patch.object(pkgutil, "walk_packages", return_value=()):
        importlib.import_module("monai")
    importlib.import_module("monai.apps")  # the order in which MONAI itself imports them: they need each other

from monai.engines import Trainer

__all__ = ["Trainer"]
