"""A bundle runs by MONAI's own tools, without fedward, and predicts as ``fedward predict``."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hospitals import CLASSES, SITES, Finished, arrays
from PIL import Image

import fedward
from fedward import cli
from fedward.config import DataSpec
from fedward.digests import file_digest
from fedward.inference.card import ModelCard
from fedward.nets import build
from fedward.sites import decoding
from finished_run import finished_run
from tiny import tiny

REQUIRED = {
    "schema",
    "version",
    "monai_version",
    "pytorch_version",
    "numpy_version",
    "required_packages_version",
    "task",
    "description",
    "authors",
    "copyright",
    "network_data_format",
}
"""Fields of metadata.json by MONAI's schema of 2024."""

MONAI = """
import sys
from monai.bundle import load, run, verify_net_in_out

metadata, config = "configs/metadata.json", "configs/inference.json"
verify_net_in_out("network_def", meta_file=metadata, config_file=config, device="cpu")
places = {"dataset_dir": sys.argv[1], "output_dir": sys.argv[2], "device": "$torch.device('cpu')"}
run(config_file=config, meta_file=metadata, **places)
net, inside, _ = load("bundle", bundle_dir="..", load_ts_module=True, device="cpu")
assert inside["network_data_format"]["outputs"]["pred"]["num_channels"] == 3, inside
assert "fedward" not in sys.modules
"""


@pytest.fixture(scope="module")
def bundle(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "bundle"
    assert cli.main(["export", str(finished.run), "--bundle", str(folder)]) == 0
    return folder


def test_monai_predicts_as_fedward(bundle: Path, finished: Finished, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    out = tmp_path / "out"
    (pictures / "below").mkdir(parents=True)
    for number, pixels in enumerate(arrays(70, seed=9)["images"]):
        image = Image.fromarray(pixels).resize((40, 50 + number))
        turned = image.getexif()
        turned[0x0112] = 6
        image.save(pictures / ("below" if number % 2 else "") / f"{number}.jpg", exif=turned)
    subprocess.run([sys.executable, "-c", MONAI, pictures, out], cwd=bundle, check=True)
    with (out / "predictions.csv").open() as file:
        theirs = {
            str(Path(name).relative_to(pictures)): list(map(float, row))
            for name, *row in csv.reader(file)
        }
    assert (
        cli.main(["predict", str(finished.run), str(pictures), "--out", str(tmp_path / "ours.csv")])
        == 0
    )
    with (tmp_path / "ours.csv").open(encoding="utf-8-sig") as file:
        ours = {
            row["image"]: [float(row[f"probability/{name}"]) for name in CLASSES]
            for row in csv.DictReader(file)
        }
    assert set(theirs) == set(ours)
    assert len(ours) == 70
    assert all(theirs[name] == pytest.approx(ours[name], abs=1e-5) for name in ours)


def test_the_metadata_are_what_monais_schema_asks_for(bundle: Path) -> None:
    metadata = json.loads((bundle / "configs" / "metadata.json").read_text())
    assert set(metadata) >= REQUIRED
    image = metadata["network_data_format"]["inputs"]["image"]
    found = metadata["network_data_format"]["outputs"]["pred"]
    assert (image["num_channels"], image["spatial_shape"], image["value_range"]) == (
        1,
        [16, 16],
        [0, 1],
    )
    assert found["channel_def"] == {"0": "MEL", "1": "NV", "2": "BCC"}
    assert "not a medical device" in metadata["intended_use"]
    assert 0 < metadata["eval_metrics"]["accuracy"] <= 1


def test_images_are_read_by_the_code_of_the_sites(bundle: Path) -> None:
    assert (bundle / "scripts" / "decoding.py").read_bytes() == Path(decoding.__file__).read_bytes()


def test_the_card_tells_where_the_model_comes_from(bundle: Path, finished: Finished) -> None:
    card = (bundle / "docs" / "README.md").read_text()
    run = json.loads((finished.run / "run.json").read_text())
    hashes = [file_digest(finished.run / name) for name in ("model.safetensors", "audit.jsonl")]
    for fact in (
        *hashes,
        run["id"],
        run["audit"]["last_hash"],
        "fedavg, 3 rounds",
        "not a medical device",
        *CLASSES,
    ):
        assert fact in card
    for site in SITES:
        assert f"| {site} | 45 | 0 | 30 | 60 |" in card
    rows = [json.loads(line) for line in (finished.run / "metrics.jsonl").read_text().splitlines()]
    last = {
        row["site"]: row["value"]
        for row in rows
        if (row["round"], row["split"], row["name"]) == (3, "test", "accuracy")
    }
    assert all(f"| {site} | {value:.3f} |" in card for site, value in last.items())
    assert f"| mean over sites | {sum(last.values()) / 2:.3f} |" in card


def test_the_best_model_has_a_card_of_its_round(finished: Finished, tmp_path: Path) -> None:
    words = ["export", str(finished.run), "--bundle", str(tmp_path / "best")]
    assert cli.main(words) == 0
    card = (tmp_path / "best" / "docs" / "README.md").read_text()
    best = json.loads((finished.run / "best.json").read_text())
    assert f"fedavg, {best['round']} rounds" in card
    assert fedward.load_model(finished.run).sha256 in card


@pytest.mark.parametrize(
    ("engine", "images"),
    [
        ("flare", "Images stayed at their sites."),
        ("local", "One machine simulated the sites."),
        ("simulator", "One machine simulated the sites."),
    ],
)
def test_a_card_says_that_images_stayed_at_sites_only_of_a_federation(
    finished: Finished, tmp_path: Path, engine: str, images: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.run, folder)
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "engine": engine}))
    card = ModelCard.of(fedward.load_model(folder), folder).text()
    assert f"rounds of federated learning at 2 sites. {images}\n" in card


def test_a_card_says_how_its_model_was_calibrated(finished: Finished) -> None:
    model = fedward.load_model(finished.run)
    for temperature, said in (
        (1.0, "1: not calibrated"),
        (2.5, "2.5, fitted on validation images of one site"),
        ((1.25, 1.0, 2.0), "1.25, 1, 2, fitted on validation images of one site"),
    ):
        model.temperature = temperature
        assert f"| temperature | {said} |" in ModelCard.of(model, finished.run).text()


@pytest.mark.proves(
    "lead",
    "a class whose name is code to MONAI's bundles",
    "no bundle is written",
)
@pytest.mark.parametrize(
    "name", ["$__import__('os').system('touch pwned')", "%configs/inference.json", "@network_def"]
)
def test_a_class_named_as_code_is_not_exported(name: str, tmp_path: Path, capsys) -> None:
    """MONAI evaluates the first when asked for a workflow's ``channel_def``."""
    job = tiny(
        "fedavg", data=DataSpec(classes=("MEL", name), image_size=16, channels=1, views="upright")
    )
    run = finished_run(tmp_path / "run", job, build(job.net, 2, 1).state_dict())
    assert cli.main(["export", str(run), "--bundle", str(tmp_path / "bundle")]) == 2
    assert "data.classes: expected names without $ % @ before them" in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()


def test_a_folder_with_files_is_left_alone(finished: Finished, tmp_path: Path, capsys) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert cli.main(["export", str(finished.run), "--bundle", str(tmp_path)]) == 2
    assert "expected a new folder, found files in it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
