"""The version of the code: two installations have the same one if their modules are the same."""

import shutil
from pathlib import Path

import pytest

import fedward
from fedward.code_version import code_version, digest_of_modules


def modules(folder: Path) -> Path:
    """Return a folder with two modules."""
    (folder / "inner").mkdir(parents=True)
    (folder / "one.py").write_text("A = 1\n")
    (folder / "inner" / "two.py").write_text("B = 2\n")
    return folder


def test_a_copy_of_the_package_elsewhere_has_its_digest(tmp_path: Path) -> None:
    """As an installed copy has that of the clone; what Python compiles does not count."""
    package = Path(fedward.__file__).parent
    copy = tmp_path / "installed"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "cli.cpython-311.pyc").write_bytes(b"compiled")
    digest = digest_of_modules(copy)
    assert digest == digest_of_modules(package)
    assert code_version() == f"{fedward.__version__}+{digest[:12]}"


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "one.py").write_text("A = 2\n"),
        lambda folder: (folder / "one.py").rename(folder / "other.py"),
        lambda folder: (folder / "one.py").rename(folder / "inner" / "one.py"),
        lambda folder: (folder / "three.py").write_text(""),
        lambda folder: (folder / "one.py").unlink(),
    ],
    ids=["content", "name", "folder", "further module", "missing module"],
)
def test_any_change_of_a_module_changes_the_digest(tmp_path: Path, change) -> None:
    folder = modules(tmp_path / "package")
    before = digest_of_modules(folder)
    change(folder)
    assert digest_of_modules(folder) != before


def test_content_cannot_pass_for_another_module(tmp_path: Path) -> None:
    """One module whose text holds the name of a second differs from the two modules."""
    two = modules(tmp_path / "two")
    one = tmp_path / "one"
    one.mkdir()
    (one / "inner").mkdir()
    (one / "inner" / "two.py").write_text("B = 2\none.py 6\nA = 1\n")
    assert digest_of_modules(one) != digest_of_modules(two)
