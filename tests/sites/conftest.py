"""A small hospital on disk: images, a CSV and a site file, each of which a test may spoil."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from fedward.config import DataSpec

CLASSES = ("MEL", "NV", "BCC")


class Hospital:
    """Writes itself into a folder; rows are (sample_id, image, label, group)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header = ["sample_id", "image", "label", "group"]
        self.rows: list[list[str]] = []
        self.spec = DataSpec(classes=CLASSES, image_size=16)
        (folder / "images").mkdir(parents=True)

    def picture(self, name: str, seed: int = 0, size: tuple[int, int] = (24, 20)) -> str:
        noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
        Image.fromarray(noise).save(self.folder / "images" / name)
        return f"images/{name}"

    def fill(self, images: int = 40, per_group: int = 2) -> "Hospital":
        for index in range(images):
            image = self.picture(f"{index:03d}.png", index)
            self.rows.append(
                [
                    f"s{index:03d}",
                    image,
                    CLASSES[index // per_group % 3],
                    f"g{index // per_group:02d}",
                ]
            )
        return self

    def write(self, delimiter: str = ",", encoding: str = "utf-8", **site: Any) -> Path:
        with (self.folder / "manifest.csv").open("w", newline="", encoding=encoding) as file:
            csv.writer(file, delimiter=delimiter).writerows([self.header, *self.rows])
        return self.site_file(**site)

    def site_file(self, **site: Any) -> Path:
        path = self.folder / "site-1.yaml"
        path.write_text(yaml.safe_dump({"kind": "manifest", "folder": ".", **site}))
        return path


@pytest.fixture
def hospital(tmp_path: Path) -> Hospital:
    return Hospital(tmp_path / "hospital").fill()


@pytest.fixture(scope="module")
def lasting_hospital(tmp_path_factory: pytest.TempPathFactory) -> Hospital:
    """For tests that leave it as it was."""
    return Hospital(tmp_path_factory.mktemp("lasting") / "hospital").fill()


@pytest.fixture
def empty_hospital(tmp_path: Path) -> Callable[[], Hospital]:
    return lambda: Hospital(tmp_path / "empty")
