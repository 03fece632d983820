"""What a run keeps of the server's own images for its report; no site's image is among them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from clients import public_images
from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.errors import DataError
from fedward.lab.local import LocalTransport, Sites
from fedward.methods.selffed.objectives import HIDDEN
from fedward.storage.model_files import StoredState
from fedward.storage.pictures import PICTURES_FOLDER, save_pictures
from isolated import CLASSES, write_sites
from public_images import write_public_npz
from running import run_experiment, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report", "narrow_swin")

SITES = ["site-1", "site-6"]
NAMES = ["original", "masked", "reconstruction"]
UNIT = 4


def pretraining(**changes: Any) -> Experiment:
    """Return an experiment of one round of phase 1 and nothing else."""
    options = {"rounds": 1, "warm_up": 0, "contrastive": "off", **changes.pop("options", {})}
    return tiny("selffed", options=options, **changes)


def about(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / PICTURES_FOLDER / "about.json").read_text())
    return content


def picture(run: Path, number: int, name: str) -> np.ndarray:
    return np.asarray(Image.open(run / PICTURES_FOLDER / f"{number}-{name}.png"))


def blocks(pixels: np.ndarray) -> np.ndarray:
    """Return (7, 7, 48): the values of each unit."""
    return pixels.reshape(7, UNIT, 7, UNIT, 3).transpose(0, 2, 1, 3, 4).reshape(7, 7, -1)


def check_pictures(run: Path, images: np.ndarray, hidden: int) -> None:
    """Check a run's pictures against their images; ``hidden`` units of each are masked."""
    assert about(run)["images"] == len(images)
    for number, image in enumerate(images, 1):
        original, masked, filled = (picture(run, number, name) for name in NAMES)
        assert np.array_equal(original, image)
        changed = (blocks(masked) != blocks(original)).any(axis=2)
        grey = (blocks(masked) == round(255 * HIDDEN)).all(axis=2)
        assert grey.sum() == hidden
        assert not (changed & ~grey).any()
        assert np.array_equal(blocks(filled)[~grey], blocks(original)[~grey])
        assert not np.array_equal(filled, original)


# --- which images, and when


def test_synthetic_runs_show_server_images_after_phase_1(tmp_path: Path) -> None:
    """Also where the server neither contrasts nor judges; 60 % of 49 units are hidden."""
    experiment = pretraining(options={"rounds": 2})
    run = run_local(experiment, tmp_path / "run", sites=SITES)
    assert about(run) == {"format": 3, "round": 1, "hidden": 0.6, "names": NAMES, "images": 6}
    check_pictures(
        run, public_images(experiment, tmp_path, []).learner.images.data.val.pixels[:6], 30
    )
    for other in ("val", "test", "train"):
        assert not list((run / PICTURES_FOLDER).glob(f"*{other}*"))


def test_pictures_use_the_averaged_model_and_the_same_masks(tmp_path: Path) -> None:
    runs = [run_local(pretraining(seed=seed), tmp_path / f"{seed}", sites=SITES) for seed in (3, 4)]
    for run, seed in zip(runs, (3, 4), strict=True):
        public = public_images(pretraining(seed=seed), tmp_path, [])
        shown = public.pictures(StoredState(run / "model.safetensors"), public.first(6))
        expected = (shown["reconstruction"] * 255).round().byte().permute(0, 2, 3, 1).numpy()
        assert all(
            np.array_equal(picture(run, n, "reconstruction"), image)
            for n, image in enumerate(expected, 1)
        )
    grey = [(blocks(picture(run, 1, "masked")) == round(255 * HIDDEN)).all(axis=2) for run in runs]
    assert np.array_equal(*grey)


@pytest.mark.parametrize("options", [{"pretraining_rounds": 0}, {"pretext": "contrastive"}])
def test_a_run_that_hides_nothing_keeps_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    run = run_local(pretraining(options=options), tmp_path / "run", sites=SITES[:1])
    assert not (run / PICTURES_FOLDER).exists()


# --- the server's own file


def on_files(tmp_path: Path, server: str | None) -> Path:
    experiment = pretraining(synthetic=None, data=DataSpec(classes=CLASSES, image_size=28))
    folder = write_sites(tmp_path / "files")
    if server is not None:
        (folder / "server.yaml").write_text(server)
    sites = Sites(experiment, tmp_path / "cache", [folder])
    transport = LocalTransport(sites, ["site-1", "site-2"])
    return run_experiment(experiment, tmp_path / "run", transport, site_folders=[folder])


def test_where_the_server_has_no_images_the_run_says_so(tmp_path: Path) -> None:
    run = on_files(tmp_path, None)
    assert about(run) == {"format": 3, "round": 1, "hidden": 0.6, "names": [], "images": 0}
    assert [path.name for path in (run / PICTURES_FOLDER).iterdir()] == ["about.json"]


def test_validation_images_come_first_and_test_images_never(tmp_path: Path) -> None:
    images = write_public_npz(tmp_path / "public.npz", train=3, val=2, test=7)
    run = on_files(
        tmp_path,
        f"{{kind: npz, file: {tmp_path / 'public.npz'}, labels: {{0: A, 1: B, 2: C}}, "
        "labelled: 0.5}",
    )
    shown = [picture(run, number, "original") for number in range(1, about(run)["images"] + 1)]
    assert len(shown) == 5
    assert np.array_equal(shown[:2], images["val_images"])
    assert {image.tobytes() for image in shown[2:]} == {
        image.tobytes() for image in images["train_images"]
    }


def test_a_broken_file_ends_a_run_before_its_first_round(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        on_files(tmp_path, "{kind: npz, file: nowhere.npz, labels: {0: A}}")
    assert not (tmp_path / "run" / "rounds.jsonl").exists()


# --- files


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_rounded_and_grey_pictures_stay_grey(tmp_path: Path, channels: int) -> None:
    values = torch.tensor([[0.0, 0.4999 / 255, 0.5001 / 255], [254.6 / 255, 1.0, 1.7]])
    save_pictures(tmp_path, {"original": values.expand(1, channels, 2, 3)}, {"round": 1})
    pixels = picture(tmp_path, 1, "original")
    assert pixels.shape == ((2, 3, 3) if channels == 3 else (2, 3))
    assert pixels.reshape(6, -1)[:, 0].tolist() == [0, 0, 1, 255, 255, 255]


def test_pictures_of_a_round_run_again_replace_those_before(tmp_path: Path) -> None:
    (tmp_path / f"{PICTURES_FOLDER}.partial").mkdir()
    for count in (3, 1):
        save_pictures(tmp_path, {"original": torch.zeros(count, 1, 2, 2)}, {"round": count})
    assert sorted(path.name for path in (tmp_path / PICTURES_FOLDER).iterdir()) == [
        "1-original.png",
        "about.json",
    ]
    assert [path.name for path in tmp_path.iterdir()] == [PICTURES_FOLDER]


def test_the_stand_in_layout_has_such_images_whatever_its_sites(tmp_path: Path) -> None:
    experiment = pretraining(synthetic=SyntheticData(images=40, sites=1))
    assert public_images(experiment, tmp_path, []).first(6).shape == (6, 3, 28, 28)
