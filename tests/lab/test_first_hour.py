"""Own images of every kind go from files to report, evaluation, prediction and export.

The commands are those of README. The classes differ by brightness, so that a network that sees
the right images with the right labels learns them, and a mistake on the way shows in its answers.
"""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedward.cli import main
from fedward.runs.judge import judge
from fedward.runs.run import Run

COUNT = 96
SIDE = 32
GREYS = (60, 190)
"""Mean grey of an image of each class."""


def image(number: int) -> np.ndarray:
    """Return an image (32, 32) uint8; its class is its number modulo 2."""
    rng = np.random.default_rng(number)
    values = rng.normal(GREYS[number % 2], 15, (SIDE, SIDE))
    return values.clip(0, 255).astype(np.uint8)


def npz(folder: Path) -> list[str]:
    """Write a file as MedMNIST's, with splits of its own."""
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for split, size in (("train", 48), ("val", 24), ("test", 24)):
        numbers = range(start, start + size)
        colours = [np.repeat(image(number)[..., None], 3, axis=2) for number in numbers]
        arrays[f"{split}_images"] = np.stack(colours)
        arrays[f"{split}_labels"] = np.array([[number % 2] for number in numbers])
        start += size
    np.savez(folder / "own.npz", **arrays)
    return [str(folder / "own.npz")]


def folders(folder: Path) -> list[str]:
    """Write a folder of images for each class."""
    for number in range(COUNT):
        write_png(folder / "images" / str(number % 2) / f"{number}.png", number)
    return [str(folder / "images"), *SHARES]


def dicom(folder: Path) -> list[str]:
    """Write an export with deep values, and a report beside the images of each class."""
    from dicom_files import dataset, save

    for number in range(COUNT):
        values = image(number).astype(np.uint16) * 16
        path = folder / "export" / str(number % 2) / f"IM{number:04}.dcm"
        tags = {"WindowCenter": 2040, "WindowWidth": 4080, "PatientID": f"patient {number}"}
        save(path, values, BitsStored=12, **tags)
    for label in ("0", "1"):
        report = dataset(image(0), PixelData=b"", Modality="SR")
        del report.PixelData, report.Rows, report.Columns
        report.save_as(folder / "export" / label / "report.dcm", enforce_file_format=True)
    return [str(folder / "export"), *SHARES]


def one_hot(folder: Path) -> list[str]:
    """Write a table as ISIC's, with a column of 0.0 and 1.0 for each class."""
    rows = ["image,0,1"]
    for number in range(COUNT):
        write_png(folder / "images" / f"ISIC_{number:07}.jpg", number)
        rows.append(f"ISIC_{number:07},{1.0 - number % 2},{float(number % 2)}")
    (folder / "truth.csv").write_text("\n".join(rows))
    return [str(folder / "truth.csv"), "--images", str(folder / "images"), *SHARES]


def findings(folder: Path) -> list[str]:
    """Write a table as CheXpert's, with a finding that is bright and one that is dark."""
    rows = ["Path,Sex,No Finding,Bright,Dark"]
    for number in range(COUNT):
        name = f"train/patient{number:05}/study1/view1_frontal.jpg"
        write_png(folder / name, number)
        bright = number % 2
        uncertain = "-1.0" if number % 16 == 0 else f"{1 - bright:.1f}"
        rows.append(f"CheXpert-v1.0/{name},Male,,{bright:.1f},{uncertain}")
    (folder / "train.csv").write_text("\n".join(rows))
    columns = ["--columns", "label=Bright", "label=Dark", "--label-kind", "several"]
    prefix = ["--prefix", "CheXpert-v1.0"]
    return [str(folder / "train.csv"), *columns, "--uncertain", "unlabelled", *prefix, *SHARES]


def nifti(folder: Path) -> list[str]:
    """Write a folder of volumes for each class."""
    from nifti_files import write

    for number in range(COUNT):
        values = np.repeat(image(number)[..., None], 3, axis=2).astype(np.int16)
        write(folder / "scans" / str(number % 2) / f"{number}.nii.gz", values)
    return [str(folder / "scans"), "--slices", "1", "--window", "128", "256", *SHARES]


NUMBER = re.compile(r"(?:patient|IM|ISIC_|train-|val-|test-|/)(\d+)")
"""The number of an image in its name."""
SHARES = ("--val", "0.25", "--test", "0.25")
KINDS: tuple[Callable[[Path], list[str]], ...] = (npz, folders, dicom, one_hot, findings, nifti)


def asked(source: list[str]) -> list[str]:
    """Return what predict is asked about: the images that were partitioned."""
    path = Path(source[0])
    if path.name == "train.csv":
        return [str(path.parent / "train")]
    if "--slices" in source:
        return [str(path), "--site-file", "sites/site-1.yaml"]
    return [str(path)]


def write_png(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image(number)).save(path, quality=95)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_own_images_become_a_report_and_a_model_that_answers(
    kind: Callable[[Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = kind(tmp_path)
    assert main(["partition", *source, "--sites", "2", "--out", "sites"]) == 0
    assert main(["doctor", "sites"]) == 0
    settings = ["rounds=4", "images_per_round=64", "learning_rate=0.01", "participants=null"]
    words = [word for setting in settings for word in ("--set", setting)]
    assert main(["run", "fedavg", "--site-files", "sites", "--out", "run", *words]) == 0
    assert (tmp_path / "run" / "report.html").exists()
    verdict = judge(Run.load(tmp_path / "run"))
    tested = verdict.tested.images
    # An uncertain finding leaves its image without a label.
    assert tested == (22 if kind is findings else 24)
    assert main(["evaluate", "run", "sites/site-1.yaml", "--out", "one.json"]) == 0
    evaluation = json.loads(Path("one.json").read_text())
    assert evaluation["images"] == tested / 2
    assert evaluation["overall"]["f1_macro"]["value"] == 1.0
    assert main(["predict", "run", *asked(source), "--out", "answers.csv"]) == 0
    with open("answers.csv", newline="", encoding="utf-8-sig") as file:
        answers = list(csv.DictReader(file))
    assert len(answers) == COUNT
    for answer in answers:
        number = NUMBER.search(answer["image"])
        assert number is not None
        bright = answer.get("probability/1") or answer["probability/Bright"]
        assert (float(bright) > 0.5) == int(number[1]) % 2
    assert main(["export", "run", "--torchscript", "model.pt"]) == 0
    grey = torch.from_numpy(image(1)).float()[None, None] / 255
    channels = json.loads(Path("sites/data.json").read_text())["channels"]
    scores = torch.jit.load("model.pt")(grey.repeat(1, channels, 1, 1))
    assert scores.shape == (1, 2)
