"""What a kit's class list lets FLARE's component builder call: all installed modules are tried."""

import importlib
import inspect
import json
import pkgutil
import re
import sys
from pathlib import Path

import pytest
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.workspace import Workspace
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.fuel.utils.class_loader import load_class

from fedward.flare.classes import ALLOWED, SYNTHETIC_SITES

NAME = re.compile(r"[A-Za-z_]\w*")


@pytest.fixture(scope="module")
def modules():
    """Names of all modules that can be imported here, found without importing any."""
    installed = {found for path in sys.path for found in below(path)}
    return sorted({*sys.builtin_module_names, *sys.stdlib_module_names, *installed})


def below(folder, package=""):
    """Yield the names of the modules in a folder; folders without ``__init__.py`` count too."""
    for _, name, is_package in pkgutil.iter_modules([folder]):
        yield f"{package}{name}"
        if is_package:
            yield from below(str(Path(folder) / name), f"{package}{name}.")
    for path in Path(folder).glob("*/") if Path(folder).is_dir() else ():
        if NAME.fullmatch(path.name) and not (path / "__init__.py").exists():
            yield from below(str(path), f"{package}{path.name}.")


class Site:
    """A site with a class list."""

    def __init__(self, folder, listed):
        for name in ("startup", "local"):
            (folder / name).mkdir()
        (folder / "local" / "resources.json").write_text(
            json.dumps({"class_allow_list": list(listed)})
        )
        self.workspace = Workspace(str(folder))
        self.authorizer = ComponentPathAuthorizer()

    def admits(self, path):
        try:
            self.authorizer.authorize_component_config({"path": path}, workspace=self.workspace)
        except UnsafeComponentError:
            return False
        return True

    def reaches(self, modules, listed):
        """Yield the admitted paths of which ``getattr(import_module(module), name)`` is callable.

        The list compares whole names or beginnings of them, so that a module needs to be looked
        into only where one of the listed names, or any name at all, is admitted in it. A name is
        looked for in the modules of that name, and, in case the list compares otherwise, in one of
        fifty others.
        """
        names = {path.rsplit(".", 1)[1] for path in listed if not path.endswith(".")}
        parents = {path.rsplit(".", 1)[0] for path in listed}
        for place, module in enumerate(modules):
            if self.admits(f"{module}.any_name"):
                members = inspect.getmembers(importlib.import_module(module))
                candidates = [name for name, _ in members]
            elif module in parents or place % 50 == 0:
                candidates = [name for name in names if self.admits(f"{module}.{name}")]
            else:
                continue
            for name in candidates:
                path = f"{module}.{name}"
                try:
                    if self.admits(path) and callable(load_class(path)):
                        yield path
                except TypeError:
                    pass  # there is nothing of that name


@pytest.mark.proves(
    "lead",
    "a job with own code, a class off the list, code that a policy does not admit, or "
    "without the sites' privacy scope",
    "refused before it is imported; the lead reads the class or rule",
)
@pytest.mark.parametrize("role", ["site", "server"])
def test_the_builder_reaches_only_the_listed_classes(tmp_path, modules, role):
    site = Site(tmp_path, ALLOWED[role])
    assert len(modules) > 5000
    assert {path.rsplit(".", 1)[0] for path in ALLOWED[role]} <= set(modules)
    assert sorted(site.reaches(modules, ALLOWED[role])) == sorted(ALLOWED[role])
    assert all(inspect.isclass(load_class(path)) for path in ALLOWED[role])


@pytest.mark.parametrize("role", ["site", "server"])
def test_the_class_list_of_a_kit_leaves_out_synthetic_sites(tmp_path, role):
    site = Site(tmp_path, ALLOWED[role])
    assert not site.admits(SYNTHETIC_SITES)
    assert inspect.isclass(load_class(SYNTHETIC_SITES))


def test_a_package_in_the_list_reaches_more_than_it_says(tmp_path, modules):
    """The same search finds what one package admits, here the smallest of ours."""
    site = Site(tmp_path, ["fedward.evaluation."])
    ours = [module for module in modules if module.startswith("fedward.evaluation")]
    reached = set(site.reaches(ours, ["fedward.evaluation."]))
    assert len(reached) > 50
    origins = {str(getattr(load_class(path), "__module__", "")) for path in reached}
    assert any(not origin.startswith("fedward") for origin in origins)


@pytest.mark.parametrize("role", ["site", "server"])
@pytest.mark.parametrize("tail", [".execute", ".__init__", ".run.__globals__", ".os.system"])
def test_a_name_that_continues_a_listed_class_leads_nowhere(role, tail):
    """FLARE admits names that continue a listed one; the import fails: a class is no package."""
    for path in ALLOWED[role]:
        with pytest.raises(TypeError, match="Can't load class"):
            load_class(path + tail)


def test_little_of_flares_own_list_is_left():
    assert len(set(DEFAULT_CLASS_ALLOW_LIST) & {*ALLOWED["site"], *ALLOWED["server"]}) == 2
