"""Pictures of the server's own images, kept in the run folder for its report."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from fedward.disk import make_new_folder, save_json, sync
from fedward.storage.info import FORMAT

if TYPE_CHECKING:
    # A report reads this module, and needs no torch.
    from torch import Tensor

PICTURES_FOLDER = "reconstructions"
"""Folder in the run folder."""


def save_pictures(run: Path, pictures: "Mapping[str, Tensor]", facts: Mapping[str, Any]) -> None:
    """Write ``reconstructions/<number>-<name>.png`` and ``about.json``, all of it or nothing.

    All of it is on the disk when the call returns.

    Args:
        run: the run folder.
        pictures: name -> (N, C, H, W) in [0, 1] on the CPU, C 1 or 3, N the same for all; empty
            where there are none. Pictures are numbered from 1.
        facts: JSON values for ``about.json``, which also holds ``names`` and ``images``.
    """
    folder = run / PICTURES_FOLDER
    partial = folder.with_name(f"{PICTURES_FOLDER}.partial")
    make_new_folder(partial)
    for name, images in pictures.items():
        for number, image in enumerate(images, 1):
            file = partial / f"{number}-{name}.png"
            _picture(image).save(file)
            sync(file)
    image_count = len(next(iter(pictures.values()), ()))
    about = {"format": FORMAT, **facts, "names": list(pictures), "images": image_count}
    # Writing this file also puts the names of all files on the disk.
    save_json(partial / "about.json", about)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)
    sync(run)


def _picture(image: "Tensor") -> Image.Image:
    """Return a (C, H, W) tensor in [0, 1] as a grey or an RGB picture of 8 bits."""
    pixels = (image.float().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
