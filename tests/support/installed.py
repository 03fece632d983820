"""A package in a folder, as pip would install it: one module, and its entry points."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    module: str,
    code: str,
    version: str = "1.0",
    **points: Mapping[str, str],
) -> None:
    """Install it for one test; ``points``: kind -> name -> ``module:object``."""
    info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    groups = [
        "\n".join([f"[fedward.{kind}s]", *(f"{name} = {target}" for name, target in names.items())])
        for kind, names in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups) + "\n")
    (folder / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)
