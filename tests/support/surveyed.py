"""A hospital of a few drawn images, of which every number of a survey can be worked out by hand."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from fedward.config import DataSpec

CLASSES = ("MEL", "NV", "DF")
SPEC = DataSpec(name="moles", classes=CLASSES, image_size=16)
Held = tuple[str, str, int, int, str, str]
"""Label, split, how many, grey value of the upper half (the lower one is 20 above it), patient,
camera.
"""


def write_hospital(
    folder: Path, held: Sequence[Held], size: tuple[int, int] = (40, 30), **file: Any
) -> Path:
    """Write a site with these images; ``*`` at the end of a patient becomes the image's number."""
    (folder / "images").mkdir(parents=True)
    rows = []
    for label, split, count, grey, patient, camera in held:
        for number in range(count):
            name = f"{label or 'none'}-{split}-{grey}-{camera}-{number}.png"
            width, height = size
            pixels = np.full((height, width, 3), grey, np.uint8)
            pixels[height // 2 :] += 20
            pixels[0, 0, 0] += number  # no two are the same
            pixels[:4, :4, 1] += len(rows) % 200
            Image.fromarray(pixels).save(folder / "images" / name)
            rows.append(
                (f"s{len(rows)}", name, label, patient.replace("*", f"{len(rows)}"), split, camera)
            )
    with (folder / "list.csv").open("w", newline="") as target:
        csv.writer(target).writerows(
            [("sample_id", "image", "label", "group", "split", "camera"), *rows]
        )
    content = {"kind": "manifest", "folder": "images", "manifest": "list.csv", **file}
    path = folder / f"{folder.name}.yaml"
    path.write_text(yaml.safe_dump({**content, "manifest": str(folder / "list.csv")}))
    return path
