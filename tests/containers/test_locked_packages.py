"""The lock files: what they pin, and that nothing else gets installed."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "provisioning" / "lock"
EXTRAS = ("dicom", "volumes", "privacy", "he", "monitoring", "kubernetes", "pretrained")


def pins(*files: str) -> dict[str, tuple[Version, list[str]]]:
    """Name -> version and hashes."""
    found: dict[str, tuple[Version, list[str]]] = {}
    for file in files:
        lines = [
            line for line in (LOCK / file).read_text().splitlines() if line and line[0] not in "#-"
        ]
        for entry in "\n".join(lines).replace("\\\n", "").splitlines():
            pin, *hashes = entry.split()
            name, version = pin.split("==")
            assert name not in found
            found[name] = Version(version), [one.removeprefix("--hash=sha256:") for one in hashes]
    return found


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def locked(request: pytest.FixtureRequest) -> dict[str, tuple[Version, list[str]]]:
    return pins("packages.txt", f"torch-{request.param}.txt")


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for extra in EXTRAS for text in project["optional-dependencies"][extra]]
    return [Requirement(text) for text in project["dependencies"] + extras]


def test_each_requirement_is_pinned_as_pyproject_allows(locked):
    for requirement in requirements():
        version, _ = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_each_pin_has_a_hash(locked):
    for name, (_, hashes) in {**locked, **pins("build.txt")}.items():
        assert hashes, name
        assert all(len(bytes.fromhex(one)) == 32 for one in hashes), name


def test_both_variants_have_the_same_pytorch():
    cpu = pins("torch-cpu.txt")
    cuda = pins("torch-cuda.txt")
    for name in ("torch", "torchvision"):
        assert cpu[name][0].public == cuda[name][0].public


def test_what_changes_numbers_between_versions_is_bounded():
    bounded = {
        one.name
        for one in requirements()
        if any(part.operator in ("<", "~=") for part in one.specifier)
    }
    assert {"nvflare", "torch", "numpy", "timm", "monai"} <= bounded


def wheel(folder: Path, name: str, content: str = "") -> str:
    """Write a package of one module; return its line in a lock file."""
    file = folder / f"{name}-1-py3-none-any.whl"
    info = f"{name}-1.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{name}.py", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}==1 --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with the shipped script, three locked packages, and a wheelhouse of them."""
    lock = tmp_path / "provisioning" / "lock"
    wheelhouse = tmp_path / "build" / "wheelhouse" / "cpu"
    lock.mkdir(parents=True)
    wheelhouse.mkdir(parents=True)
    shutil.copy(LOCK / "install.sh", lock)
    for file, name in {
        "build.txt": "builder",
        "packages.txt": "package",
        "torch-cpu.txt": "torchlike",
    }.items():
        (lock / file).write_text(wheel(wheelhouse, name))
    return tmp_path


def install(tree: Path) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run the script; return what it said, and the modules it installed."""
    target = tree / "installed"
    done = subprocess.run(
        [tree / "provisioning" / "lock" / "install.sh", sys.executable, "cpu"],
        env={**os.environ, "PIP_TARGET": str(target), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, {file.stem for file in target.glob("*.py")}


def test_all_that_is_locked_is_installed_without_an_index(tree):
    wheel(tree / "build" / "wheelhouse" / "cpu", "stowaway")
    done, installed = install(tree)
    assert done.returncode == 0, done.stderr
    assert installed == {"builder", "package", "torchlike"}


@pytest.mark.proves(
    "outsider",
    "an exchanged or missing package in the wheelhouse, or a line without a hash in a lock file",
    "refused; no index is asked",
)
@pytest.mark.parametrize("name", ["builder", "package"])
def test_an_exchanged_package_is_refused(tree, name):
    wheel(tree / "build" / "wheelhouse" / "cpu", name, "raise SystemExit")
    done, installed = install(tree)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert name not in installed


@pytest.mark.proves(
    "outsider",
    "an exchanged or missing package in the wheelhouse, or a line without a hash in a lock file",
    "refused; no index is asked",
)
def test_a_missing_package_is_looked_for_nowhere_else(tree):
    (tree / "build" / "wheelhouse" / "cpu" / "package-1-py3-none-any.whl").unlink()
    done, installed = install(tree)
    assert done.returncode != 0
    assert "No matching distribution found for package==1" in done.stderr
    assert installed == {"builder"}


@pytest.mark.proves(
    "outsider",
    "an exchanged or missing package in the wheelhouse, or a line without a hash in a lock file",
    "refused; no index is asked",
)
def test_a_line_without_a_hash_is_refused(tree):
    wheel(tree / "build" / "wheelhouse" / "cpu", "stowaway")
    with (tree / "provisioning" / "lock" / "packages.txt").open("a") as file:
        file.write("stowaway==1\n")
    done, installed = install(tree)
    assert done.returncode != 0
    assert installed == {"builder"}


def test_the_bill_of_materials_lists_what_is_locked(tmp_path):
    """``make sbom`` checks the bill against the schema as well."""
    bill = tmp_path / "bill.json"
    text = "".join((LOCK / file).read_text() for file in ("packages.txt", "torch-cuda.txt"))
    command = [
        Path(sys.executable).parent / "cyclonedx-py",
        "requirements",
        "--pyproject",
        ROOT / "pyproject.toml",
    ]
    subprocess.run([*command, "--no-validate", "-o", bill, "-"], input=text, text=True, check=True)
    listed = {part["name"]: part for part in json.loads(bill.read_text())["components"]}
    expected = pins("packages.txt", "torch-cuda.txt")
    assert {name: part["version"] for name, part in listed.items()} == {
        name: str(version) for name, (version, _) in expected.items()
    }
    for name, (_, hashes) in expected.items():
        (place,) = listed[name]["externalReferences"]
        assert {one["content"] for one in place["hashes"]} == set(hashes)
