"""The house rules that a reader relies on: which way imports point, where names come from."""

import ast
import importlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import fedward

ROOT = Path(fedward.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
LONGEST_CHAIN = 21
"""Imports from one module to the next, counted along the longest way down."""

MAY_USE: dict[str, set[str]] = {
    "cards": set(),
    "code_version": set(),
    "digests": set(),
    "disk": set(),
    "errors": set(),
    "frozen": set(),
    "json_text": {"errors"},
    "labels": set(),
    "model_state": set(),
    "paper_jobs": set(),
    "private": {"disk"},
    "seeds": set(),
    "speed": set(),
    "spreadsheet": set(),
    "terminal": {"text"},
    "text": set(),
    "tracking": set(),
    "yaml_text": set(),
    "cli": {"code_version", "errors", "terminal"},
    "faults": {"errors", "json_text"},
    "__main__": {"cli"},
    "sites": {
        "cards",
        "disk",
        "errors",
        "faults",
        "json_text",
        "labels",
        "private",
        "seeds",
        "terminal",
        "text",
        "yaml_text",
    },
    "evaluation": {"errors", "labels", "sites"},
    "protocol": {
        "cards",
        "code_version",
        "digests",
        "errors",
        "evaluation",
        "model_state",
        "terminal",
    },
    "registry": {"errors", "evaluation"},
    "methods": {"errors", "frozen", "model_state", "registry", "seeds"},
    "nets": {"digests", "errors", "registry", "seeds"},
    "views": {"errors", "registry"},
    "label_kinds": {"errors", "evaluation", "labels", "methods", "sites", "text"},
    "config": {
        "cards",
        "digests",
        "errors",
        "faults",
        "frozen",
        "label_kinds",
        "methods",
        "protocol",
        "registry",
        "text",
    },
    "annotation": {
        "config",
        "disk",
        "errors",
        "json_text",
        "label_kinds",
        "labels",
        "private",
        "sites",
        "spreadsheet",
        "terminal",
        "text",
    },
    "jobs": {
        "config",
        "errors",
        "json_text",
        "label_kinds",
        "methods",
        "paper_jobs",
        "registry",
        "text",
        "yaml_text",
    },
    "storage": {
        "config",
        "digests",
        "disk",
        "errors",
        "evaluation",
        "faults",
        "json_text",
        "methods",
        "model_state",
        "protocol",
        "text",
    },
    "training": {
        "config",
        "digests",
        "disk",
        "errors",
        "evaluation",
        "label_kinds",
        "labels",
        "methods",
        "model_state",
        "nets",
        "private",
        "registry",
        "seeds",
        "sites",
        "speed",
        "views",
    },
    "runs": {
        "cards",
        "config",
        "errors",
        "evaluation",
        "json_text",
        "label_kinds",
        "methods",
        "storage",
        "text",
    },
    "security": {
        "config",
        "digests",
        "disk",
        "errors",
        "evaluation",
        "faults",
        "json_text",
        "methods",
        "private",
        "protocol",
        "registry",
        "storage",
        "yaml_text",
    },
    "starting_model": {
        "config",
        "digests",
        "errors",
        "json_text",
        "methods",
        "model_state",
        "nets",
        "protocol",
        "runs",
        "storage",
    },
    "client": {
        "annotation",
        "config",
        "digests",
        "disk",
        "errors",
        "evaluation",
        "json_text",
        "label_kinds",
        "labels",
        "methods",
        "model_state",
        "nets",
        "protocol",
        "registry",
        "security",
        "seeds",
        "sites",
        "starting_model",
        "storage",
        "terminal",
        "text",
        "training",
        "views",
    },
    "console": {"config", "runs", "storage", "terminal", "text"},
    "inference": {
        "code_version",
        "config",
        "digests",
        "disk",
        "errors",
        "evaluation",
        "json_text",
        "label_kinds",
        "methods",
        "nets",
        "private",
        "runs",
        "seeds",
        "sites",
        "spreadsheet",
        "starting_model",
        "storage",
        "terminal",
        "text",
        "training",
    },
    "report": {
        "digests",
        "disk",
        "errors",
        "evaluation",
        "json_text",
        "label_kinds",
        "registry",
        "runs",
        "storage",
        "terminal",
        "text",
    },
    "server": {
        "client",
        "config",
        "console",
        "digests",
        "disk",
        "errors",
        "evaluation",
        "json_text",
        "methods",
        "model_state",
        "protocol",
        "runs",
        "security",
        "seeds",
        "sites",
        "starting_model",
        "storage",
        "terminal",
        "text",
        "training",
    },
    "flare": {
        "annotation",
        "client",
        "code_version",
        "config",
        "console",
        "disk",
        "errors",
        "evaluation",
        "jobs",
        "json_text",
        "methods",
        "nets",
        "private",
        "protocol",
        "registry",
        "report",
        "runs",
        "security",
        "server",
        "sites",
        "starting_model",
        "storage",
        "terminal",
        "text",
        "tracking",
    },
    "operation": {
        "client",
        "config",
        "digests",
        "disk",
        "errors",
        "evaluation",
        "faults",
        "flare",
        "jobs",
        "json_text",
        "labels",
        "methods",
        "paper_jobs",
        "private",
        "protocol",
        "registry",
        "report",
        "runs",
        "server",
        "sites",
        "storage",
        "terminal",
        "text",
        "training",
    },
    "lab": {
        "client",
        "config",
        "console",
        "digests",
        "disk",
        "errors",
        "evaluation",
        "faults",
        "flare",
        "jobs",
        "json_text",
        "label_kinds",
        "labels",
        "methods",
        "model_state",
        "nets",
        "operation",
        "paper_jobs",
        "private",
        "protocol",
        "registry",
        "report",
        "runs",
        "security",
        "seeds",
        "server",
        "sites",
        "spreadsheet",
        "starting_model",
        "storage",
        "terminal",
        "text",
        "tracking",
        "training",
        "views",
        "yaml_text",
    },
}
"""The rooms of the package, and which others each may import; imports for type checkers alone do
not count.
"""


@cache
def code_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(code_of(path))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    return ".".join(("fedward", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


def imports(tree: ast.AST) -> set[str]:
    """Return the dotted names a module imports, inside functions too, but not under ``if
    TYPE_CHECKING``.
    """
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            found |= imports(ast.Module(node.orelse, []))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        else:
            found |= imports(node)
    return found


@cache
def imports_of(path: Path) -> set[str]:
    return imports(tree_of(path))


@cache
def packages_of(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports_of(path)}


def rooms_used(path: Path) -> set[str]:
    parts = [name.split(".") for name in imports_of(path) if name.startswith("fedward.")]
    return {part[1] for part in parts if part[1] in MAY_USE} - {room_of(path)}


def module_graph() -> dict[str, set[str]]:
    """Return the modules of the package, each with those it imports names from."""
    modules = {module_of(path): path for path in MODULES}
    return {
        module: {name if name in modules else name.rpartition(".")[0] for name in imports_of(path)}
        & set(modules)
        for module, path in modules.items()
    }


def layers(graph: dict[str, set[str]]) -> list[set[str]]:
    """Sort nodes so that each uses nodes of lower layers alone, one at least of the layer just
    below.
    """
    left = dict(graph)
    found = []
    while left:
        ready = {node for node, used in left.items() if not used & set(left)}
        assert ready, f"a circle among {sorted(left)}"
        found.append(ready)
        left = {node: used for node, used in left.items() if node not in ready}
    return found


def test_the_reader_of_imports_sees_all_of_them() -> None:
    code = (
        "from typing import TYPE_CHECKING\nimport os.path\n"
        "if TYPE_CHECKING:\n    import a\nelse:\n    import b\n"
        "def f():\n    try:\n        from c.d import e\n"
        "    except ImportError:\n        import g as h\n"
    )
    assert imports(ast.parse(code)) == {"typing.TYPE_CHECKING", "os.path", "b", "c.d.e", "g"}


def test_every_room_is_in_the_table() -> None:
    rooms = {room_of(path) for path in MODULES} - {"__init__"}
    assert rooms == set(MAY_USE)


def test_imports_point_one_way() -> None:
    paths = [path for path in MODULES if room_of(path) != "__init__"]
    wrong = {name_of(path): rooms_used(path) - MAY_USE[room_of(path)] for path in paths}
    assert not {name: rooms for name, rooms in wrong.items() if rooms}


def test_nothing_outside_the_laboratory_imports_it() -> None:
    """Not even for type checkers: the command table and ``fedward/__init__.py`` name it as text."""
    importers = []
    for path in MODULES:
        if room_of(path) == "lab":
            continue
        for node in ast.walk(tree_of(path)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            if any(f"{name}.".startswith("fedward.lab.") for name in names):
                importers.append(f"{name_of(path)}, line {node.lineno}")
    assert not importers


def test_the_table_has_no_circle() -> None:
    assert set().union(*layers(MAY_USE)) == set(MAY_USE)


def test_modules_have_no_circle_and_short_chains_of_imports() -> None:
    assert len(layers(module_graph())) - 1 <= LONGEST_CHAIN


def test_layers_count_the_longest_chain_and_find_circles() -> None:
    assert layers({"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}}) == [
        {"c"},
        {"b", "d"},
        {"a"},
    ]
    with pytest.raises(AssertionError, match=r"a circle among \['a', 'b', 'c'\]"):
        layers({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()})


def test_nothing_imports_the_command() -> None:
    assert [name_of(path) for path in MODULES if "cli" in rooms_used(path)] == ["__main__.py"]


def test_only_the_flare_engine_imports_flare() -> None:
    users = {name_of(path) for path in MODULES if "nvflare" in packages_of(path)}
    assert users
    assert all(name.startswith("flare/") for name in users)


def test_methods_are_mathematics() -> None:
    """No files, no processes, no FLARE, no trainer: tensors and settings only."""
    files = {
        "io",
        "json",
        "logging",
        "os",
        "pathlib",
        "pickle",
        "shutil",
        "subprocess",
        "sys",
        "tempfile",
        "time",
    }
    allowed = set(sys.stdlib_module_names) - files | {"torch", "pydantic", "fedward"}
    forbidden = {"open", "print", "input", "eval", "exec"}
    wrong = []
    for path in MODULES:
        if room_of(path) != "methods":
            continue
        wrong += [(name_of(path), package) for package in packages_of(path) - allowed]
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Global):
                wrong.append((name_of(path), "global"))
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in forbidden
            ):
                wrong.append((name_of(path), node.func.id))
    assert not wrong


def test_chance_is_derived_and_nothing_is_pickled() -> None:
    """No global seeds but inside ``fork_rng``, no ``random``, no ``pickle``, no numpy generator by
    hand.
    """
    wrong = []
    for path in MODULES:
        wrong += [
            (name_of(path), name)
            for name in packages_of(path) & {"random", "pickle", "cloudpickle", "dill"}
        ]
        if "np.random.seed" in code_of(path):
            wrong.append((name_of(path), "np.random.seed"))
        if (
            "manual_seed" in code_of(path)
            and room_of(path) != "seeds"
            and "fork_rng" not in code_of(path)
        ):
            wrong.append((name_of(path), "manual_seed outside fork_rng"))
    assert not wrong


@pytest.mark.parametrize("module", ["executor", "shareables", "places"])
def test_an_idle_flare_site_imports_no_torch(module: str) -> None:
    code = f"import sys, fedward.flare.{module}; "
    code += "print(sorted({'torch', 'monai', 'timm'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_a_report_needs_no_torch() -> None:
    """Else it would take more memory than many sites' runs."""
    code = "import sys, fedward.report; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


WRONG = (
    ("run", "no_job"),
    ("run", "fedperl", "--site-files", "absent"),
    ("run", "fedperl", "--set", "rounds"),
    ("doctor", "absent.yaml"),
    ("doctor", "absent.yaml", "--job", "fedavg"),
)


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_arguments_are_refused_without_torch(arguments: tuple[str, ...]) -> None:
    code = "import sys; from fedward.cli import main; code = main(sys.argv[1:]); "
    code += "print(code, 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    code_of_it, imported = done.stdout.splitlines()[-1].split()
    assert code_of_it in ("1", "2")
    assert imported == "False"


def dotted(path: Path) -> str:
    return ".".join(("fedward", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


def modules_needed(path: Path, modules: set[str]) -> set[str]:
    """Return the modules, with their packages, that must be there before this one is: imports at
    its top level.
    """
    tree = ast.Module(
        [
            node
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.ImportFrom)
        ],
        [],
    )
    parts = [name.split(".") for name in imports(tree)]
    found = {
        ".".join(part[:count]) for part in parts for count in range(2, len(part) + 1)
    } & modules
    return {name for name in found if not f"{dotted(path)}.".startswith(f"{name}.")}


def test_every_module_can_be_the_first_one_imported() -> None:
    """No circle among modules: a name that is looked up late imports its module alone."""
    modules = {dotted(path) for path in MODULES}
    left = {dotted(path): modules_needed(path, modules) for path in MODULES}
    while left:
        ready = {module for module, needed in left.items() if not needed & set(left)}
        assert ready, f"a circle among {sorted(left)}"
        left = {module: needed for module, needed in left.items() if module not in ready}


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports a test file by its name alone: the second of two would hide the first, or
    fail.
    """
    names = [path.name for path in Path(__file__).parent.rglob("*.py")]
    many = {
        "conftest.py",
        "sitecustomize.py",
    }  # pytest knows the first by its folder, the second is alone on a path
    assert not {name for name in names if names.count(name) > 1} - many


REFERENCE = re.compile(r":(?:class|func|mod|attr|meth|data):`~?(fedward[\w.]+)`")


def exists(name: str) -> bool:
    """Return whether a dotted name leads to a module, or to an attribute or field in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


def test_docstrings_refer_to_what_exists() -> None:
    assert exists("fedward.config.Experiment.method")
    assert not exists("fedward.config.Experiments")
    missing = {
        name for path in MODULES for name in REFERENCE.findall(code_of(path)) if not exists(name)
    }
    assert not missing
