"""How pictures become squares, on every way by which images are read."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from PIL import Image

from fedward.config import DataSpec
from fedward.inference.images import images_at
from fedward.inference.model import TrainedModel
from fedward.methods import method_of
from fedward.sites import load_site
from fedward.sites.decoding import as_image, decode, fit
from fedward.sites.images import decode_files
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.site_file import read_site_file
from fedward.starting_model import network_of
from tiny import tiny

SIZE = 16
SPEC = DataSpec(name="wide", classes=("A", "B"), image_size=SIZE)
CROP = Rendering(fit="crop")


def picture(height: int, width: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng([height, width])
    return rng.integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize(("height", "width"), [(16, 40), (33, 16), (16, 16), (16, 17)])
def test_a_crop_is_the_central_square_of_the_shorter_side(height: int, width: int) -> None:
    whole = picture(height, width)
    expected = np.empty((SIZE, SIZE, 3), np.uint8)
    for row in range(SIZE):
        for column in range(SIZE):
            expected[row, column] = whole[row + (height - 16) // 2, column + (width - 16) // 2]
    assert np.array_equal(fit(as_image(whole), SIZE, 3, "crop"), expected)


def test_a_large_picture_is_cropped_first_and_then_resized(tmp_path: Path) -> None:
    whole = picture(64, 100)
    Image.fromarray(whole).save(tmp_path / "a.png")
    square = as_image(np.ascontiguousarray(whole[:, 18:82]))
    assert np.array_equal(decode(tmp_path / "a.png", SIZE, 3, "crop"), fit(square, SIZE, 3))


@pytest.mark.parametrize("how", ["squash", "crop"])
def test_every_reader_of_images_makes_the_same_squares(how: str, tmp_path: Path) -> None:
    wholes = [picture(20, 20 + 3 * index) for index in range(6)]
    rows = ["sample_id,image,label,split"]
    for index, whole in enumerate(wholes):
        Image.fromarray(whole).save(tmp_path / f"{index}.png")
        rows.append(f"s{index},{index}.png,{'AB'[index % 2]},train")
    (tmp_path / "manifest.csv").write_text("\n".join(rows))
    expected = np.stack([fit(as_image(whole), SIZE, 3, how) for whole in wholes])
    fields = {"kind": "manifest", "folder": str(tmp_path), "fit": how, "columns": {"group": None}}
    site_file = tmp_path / "site-1.yaml"
    site_file.write_text(yaml.safe_dump(fields))
    site = load_site(site_file, SPEC, tmp_path / "cache")
    assert np.array_equal(site.labelled.pixels, expected)
    rendering = read_site_file(site_file).rendering
    blocks = images_at(tmp_path / "manifest.csv", SPEC, {}, rendering=rendering).blocks
    assert np.array_equal(np.concatenate([block.pixels for block in blocks]), expected)
    experiment = tiny("fedavg", data=SPEC)
    model = TrainedModel(network_of(experiment, method_of(experiment)), experiment, "")
    read = model.read([tmp_path / "0.png", as_image(wholes[1])], fit=how)
    assert np.array_equal((read * 255).round().byte().permute(0, 2, 3, 1).numpy(), expected[:2])


@pytest.mark.parametrize("how", ["squash", "crop"])
def test_arrays_become_the_same_squares(how: str, tmp_path: Path) -> None:
    images = np.stack([picture(20, 30), picture(20, 30) // 2])
    np.savez(tmp_path / "a.npz", train_images=images, train_labels=[[0], [1]])
    site_file = tmp_path / "site-1.yaml"
    fields = {"kind": "npz", "file": "a.npz", "labels": {0: "A", 1: "B"}, "fit": how}
    site_file.write_text(yaml.safe_dump({**fields, "indices": {"train": [0, 1]}}))
    expected = np.stack([fit(as_image(image), SIZE, 3, how) for image in images])
    assert np.array_equal(load_site(site_file, SPEC, tmp_path).labelled.pixels, expected)
    rendering = read_site_file(site_file).rendering
    (block,) = images_at(tmp_path / "a.npz", SPEC, {}, rendering=rendering).blocks
    assert np.array_equal(block.pixels, expected)


def test_a_cache_of_squashed_pictures_is_not_taken_for_cropped_ones(tmp_path: Path) -> None:
    Image.fromarray(picture(20, 40)).save(tmp_path / "a.png")
    read = {
        how: decode_files([tmp_path / "a.png"], SIZE, 3, tmp_path / "cache", "s", how).pixels
        for how in (PLAIN, CROP)
    }
    assert not np.array_equal(read[PLAIN], read[CROP])
