"""``fedward evaluate``: the numbers of the run, at any hospital, and nothing of single images or
rare classes.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hospitals import CLASSES, SITES, Finished, arrays, site_file, write_npz
from sklearn.metrics import log_loss
from torch import nn

import fedward
from fedward import cli
from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.evaluation.performance import counted, referral
from fedward.evaluation.temperature import fit_temperature, tempered
from fedward.inference.evaluation import evaluate
from fedward.inference.model import TrainedModel
from fedward.inference.prediction import answers_of
from fedward.inference.words import lines
from fedward.sites import load_site
from run_files import rows
from tiny import tiny

GROUPS = {"malignant": ["MEL", "BCC"], "benign": ["NV"]}
CHEST = DataSpec(
    classes=("Mass", "Edema"), multi_label=True, image_size=16, channels=1, views="upright"
)


def at(finished: Finished, file: Path, **options: Any) -> dict[str, Any]:
    return evaluate(fedward.load_model(finished.run), file, **options)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("split", ["val", "test"])
def test_numbers_are_those_that_the_site_reported(
    site: str, split: str, finished: Finished
) -> None:
    found = at(finished, finished.sites / f"{site}.yaml", split=split)
    logged = [
        row for row in rows(finished.run, "metrics") if (row["site"], row["split"]) == (site, split)
    ]
    last = {row["name"]: row for row in logged if row["round"] == 3}
    assert found["images"] == last["accuracy"]["n"] == {"val": 30, "test": 60}[split]
    for name in ("accuracy", "balanced_accuracy", "f1_macro", "auroc_macro"):
        assert found["overall"][name]["value"] == pytest.approx(last[name]["value"]), name
    for name in CLASSES:
        assert found["classes"][name]["auroc"]["value"] == pytest.approx(
            last[f"auroc/{name}"]["value"]
        )


def test_a_hospital_that_never_joined(
    finished: Finished, tmp_path: Path, monkeypatch, capsys
) -> None:
    """It has other labels and files of its own, and writes where the command is called."""
    npz = write_npz(tmp_path / "west.npz", train=3, val=60, test=90)
    site_file(tmp_path / "west.yaml", npz, labels={2: "BCC", 0: "MEL", 1: "NV"})
    monkeypatch.chdir(tmp_path)
    assert cli.main(["evaluate", str(finished.run), "west.yaml"]) == 0
    found = json.loads((tmp_path / "west-test-evaluation.json").read_text())
    assert found == json.loads(json.dumps(at(finished, tmp_path / "west.yaml")))
    assert (found["site"], found["images"], found["not_evaluated"]) == ("west", 90, [])
    assert (tmp_path / "west-test-evaluation.json").stat().st_mode & 0o777 == 0o600
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert "west, test: 90 images" in printed


def test_an_earlier_evaluation_is_replaced_and_nothing_else(
    finished: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    words = ["evaluate", f"{finished.run}", f"{finished.sites / 'north.yaml'}", "--out", f"{out}"]
    for _ in range(2):
        assert cli.main(words) == 0
    for text in ("[]", "{}", "no JSON"):
        out.write_text(text)
        assert cli.main(words) == 2
        assert "found another file. Name another file" in capsys.readouterr().err
        assert out.read_text() == text


def test_aggregates_alone(finished: Finished) -> None:
    text = json.dumps(at(finished, finished.sites / "north.yaml"))
    data = load_site(
        finished.sites / "north.yaml", fedward.load_model(finished.run).experiment.data
    )
    assert not [name for name in (*data.test.ids, *data.val.ids) if f'"{name}"' in text]
    assert str(finished.sites) not in text
    assert str(finished.run) not in text
    assert "rejected" not in text


def hospital(folder: Path, rare: int) -> Path:
    """A hospital with so many BCC in each split, at the end."""
    splits = {"train": 30, "val": 60, "test": 60}
    parts = {}
    for seed, (split, number) in enumerate(splits.items()):
        images, labels = arrays(number, seed).values()
        keep = np.flatnonzero((labels[:, 0] != 2) | (np.cumsum(labels[:, 0] == 2) <= rare))
        parts |= {f"{split}_images": images[keep], f"{split}_labels": labels[keep]}
    np.savez(folder / "some.npz", **parts)
    return site_file(folder / "east.yaml", folder / "some.npz")


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["classes", "groups"])
def test_a_rare_class_changes_no_number(groups, finished: Finished, tmp_path: Path) -> None:
    none, few = (at(finished, hospital(tmp_path, rare), groups=groups) for rare in (0, 4))
    assert none == few
    assert none["not_evaluated"] == ["BCC"]
    enough = at(finished, hospital(tmp_path, 5), groups=groups)
    assert enough["images"] == none["images"] + 5
    assert enough["not_evaluated"] == []


def test_small_cells_are_withheld(finished: Finished) -> None:
    found = at(finished, finished.sites / "north.yaml")
    rows = [(CLASSES.index(name), row) for name, row in found["confusion"].items()]
    cells = [count for place, row in rows for count in (*row[:place], *row[place + 1 :])]
    assert None in cells
    assert all(count is None or count >= 5 for count in cells)
    table = "\n".join(lines(found))
    assert table.count("<5") == cells.count(None)


@pytest.mark.proves(
    "files",
    "a class, a file or a folder with line breaks or a terminal's commands in its name",
    "adds no line to what commands print, and draws on no contact sheet",
)
def test_a_name_of_a_class_adds_no_row_to_a_table(finished: Finished) -> None:
    name = "BCC\n       9  1.00 (0.99-1.00)\x1b[2J"
    found = at(finished, finished.sites / "north.yaml")
    plain = list(lines(found))
    renamed = json.loads(json.dumps(found).replace('"BCC"', json.dumps(name)))
    table = list(lines(renamed))
    assert len("\n".join(table).splitlines()) == len(plain)
    said = "BCC 9 1.00 (0.99-1.00)\\x1b[2J"
    assert [line.replace(said, "BCC") for line in table] == plain


def test_classes_may_be_told_apart_in_groups(finished: Finished, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "found.json"
    words = ["--groups", "malignant=MEL,BCC", "benign=NV", "--out", str(out)]
    assert (
        cli.main(["evaluate", str(finished.run), str(finished.sites / "north.yaml"), *words]) == 0
    )
    found = json.loads(out.read_text())
    assert found["groups"] == GROUPS
    assert {name: of["images"] for name, of in found["classes"].items()} == {
        "malignant": 40,
        "benign": 20,
    }
    one, other = found["classes"].values()
    assert one["sensitivity"] == other["specificity"]
    assert one["auroc"]["value"] == pytest.approx(other["auroc"]["value"])
    assert sum(map(len, found["confusion"].values())) == 4


@pytest.mark.parametrize(
    "groups", ["malignant=MEL", "malignant", "malignant=", "a=MEL a=NV,BCC", "a=MEL,NV b=BCC,DF"]
)
def test_wrong_groups_are_refused(groups: str, finished: Finished, tmp_path: Path, capsys) -> None:
    words = [
        "evaluate",
        str(finished.run),
        str(finished.sites / "north.yaml"),
        "--out",
        str(tmp_path / "x"),
    ]
    try:
        code = cli.main([*words, "--groups", *groups.split()])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert "groups" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_temperature_is_of_the_validation_images(finished: Finished, tmp_path: Path) -> None:
    file = finished.sites / "north.yaml"
    out = tmp_path / "found.json"
    model = fedward.load_model(finished.run)
    data = load_site(file, model.experiment.data)
    probabilities = model(model_images(data.val.pixels)).numpy()
    evaluation = at(finished, file)
    found = evaluation["temperature"]
    assert found["value"] == pytest.approx(
        fit_temperature(probabilities, data.val.labels), rel=1e-4
    )
    assert (found["split"], found["images"]) == ("val", 30)
    assert at(finished, file, split="val")["temperature"] is None, (
        "it would be judged by what it was fitted on"
    )
    assert cli.main(["evaluate", str(finished.run), str(file), "--out", str(out)]) == 0
    assert fedward.load_model(finished.run, calibration=out).temperature == found["value"]
    cold = model(model_images(data.test.pixels)).numpy()
    warm = tempered(cold, found["value"])
    assert evaluation["log_loss"] == pytest.approx(log_loss(data.test.labels, cold), rel=1e-4)
    assert found["log_loss"] == pytest.approx(log_loss(data.test.labels, warm), rel=1e-4)
    confidence = counted(warm, data.test.labels).confidence
    assert found["calibration_error"] == pytest.approx(confidence.calibration_error, abs=1e-3)
    assert found["referral"] == referral(confidence)
    assert found["referral"] != evaluation["referral"]


@pytest.mark.parametrize(("more", "is_worse"), [(0.01, True), (-0.01, False)])
def test_a_temperature_that_makes_confidence_worse_is_called_so(
    more: float, is_worse: bool, finished: Finished
) -> None:
    found = at(finished, finished.sites / "north.yaml")
    found["temperature"]["calibration_error"] = found["calibration_error"] + more
    assert ("which is worse: use no temperature" in "\n".join(lines(found))) == is_worse


def test_of_training_images_those_with_a_label_are_evaluated(
    finished: Finished, tmp_path: Path
) -> None:
    file = site_file(tmp_path / "west.yaml", finished.npz, labelled=0.5)
    data = load_site(file, fedward.load_model(finished.run).experiment.data)
    found = at(finished, file, split="train")
    assert 0 < len(data.labelled) < 90
    assert found["images"] == len(data.labelled)
    assert found["temperature"] is None, "it would be of validation images"


def model_images(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2) / 255


class FarTooSure(nn.Module):
    """Says that an image shows a finding by its grey, ten times as sure as it is right."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (images.mean(dim=(1, 2, 3)).unsqueeze(1) - 0.5).repeat(1, 2) * 60


def test_a_findings_temperature_is_that_of_very_sure_logits() -> None:
    """A float32 has no number between 1 - 6e-8 and 1: one less it is 0 where the logit is 17 or
    more.
    """
    model = TrainedModel(FarTooSure(), tiny("fedavg", data=CHEST, synthetic=None), "0" * 64)
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, 2000).astype(np.uint8)
    honest = 1 / (1 + np.exp(-6 * (grey / 255 - 0.5)))
    shown = (rng.random(2000) < honest).astype(np.int64)
    answers = answers_of(
        model, np.broadcast_to(grey[:, None, None, None], (2000, 16, 16, 1)), torch.device("cpu")
    )
    assert answers.shape == (2000, 2, 2)
    assert float(answers[grey == 255, 0, 1].max()) == pytest.approx(math.exp(-30), rel=1e-4)
    found = fit_temperature(answers[:, 0], 1 - shown)
    assert found == pytest.approx(10, rel=0.1)
    np.testing.assert_allclose(tempered(answers[:, 0], 10)[:, 0], honest, atol=1e-5)


def findings_by_grey(folder: Path, **edema: int) -> Path:
    """A hospital with 40 images a split, of which so many show Edema: all bright ones but one.

    Mass is in the bright ones and in a dark one, so that the answers to either are not all right.
    """
    rng = np.random.default_rng(0)
    parts = {}
    for split, shown in edema.items():
        grey = np.concatenate([np.linspace(150, 240, shown + 1), np.linspace(100, 10, 39 - shown)])
        labels = np.zeros((40, 2), np.uint8)
        labels[: shown + 2, 0] = 1
        labels[1 : shown + 1, 1] = 1
        noise = rng.integers(0, 6, (40, 16, 16))
        parts[f"{split}_images"] = (grey[:, None, None] + noise).astype(np.uint8)
        parts[f"{split}_labels"] = labels
    np.savez(folder / "findings.npz", **parts)
    labels = {"labels": {0: "Mass", 1: "Edema"}}
    return site_file(folder / "west.yaml", folder / "findings.npz", **labels)


@pytest.mark.parametrize(
    ("val", "test", "with_temperature", "left_out"),
    [(5, 5, {"Mass", "Edema"}, []), (4, 5, {"Mass"}, []), (5, 4, {"Mass"}, ["Edema"])],
)
def test_a_finding_has_a_temperature_by_five_images_in_both_splits(
    val: int, test: int, with_temperature: set[str], left_out: list[str], tmp_path: Path
) -> None:
    model = TrainedModel(FarTooSure(), tiny("fedavg", data=CHEST, synthetic=None), "0" * 64)
    file = findings_by_grey(tmp_path, train=5, val=val, test=test)
    found = evaluate(model, file)
    assert set(found["temperature"]["classes"]) == with_temperature
    assert found["not_evaluated"] == left_out
    printed = " ".join("\n".join(lines(found)).split())
    said = "as fewer than 5 images show the class, or fewer than 5 do not: Edema."
    assert (f"Left out of all numbers, {said}" in printed) == bool(left_out)
    with pytest.raises(ConfigError, match="--by patient is not for a multi-label model"):
        evaluate(model, file, unit="patient")


def test_without_validation_images_no_temperature(finished: Finished, tmp_path: Path) -> None:
    site_file(tmp_path / "west.yaml", finished.npz, indices={"test": list(range(120))})
    found = at(finished, tmp_path / "west.yaml")
    assert found["temperature"] is None
    assert "no temperature follows from the validation images" in "\n".join(lines(found))


def test_images_that_cannot_be_used_are_counted_here_alone(
    finished: Finished, tmp_path: Path, caplog
) -> None:
    images, labels = arrays(120, seed=3).values()
    images[:2] = 7
    np.savez(tmp_path / "some.npz", test_images=images, test_labels=labels)
    file = site_file(
        tmp_path / "west.yaml", tmp_path / "some.npz", indices={"test": list(range(120))}
    )
    found = at(finished, file)
    assert found["images"] == 118
    assert "west: 2 rows cannot be used" in caplog.text


def test_nothing_to_evaluate_is_said(finished: Finished, tmp_path: Path) -> None:
    site_file(tmp_path / "west.yaml", finished.npz, indices={"test": list(range(12))})
    with pytest.raises(
        DataError, match="does not have a class with at least 5 labelled images in its test split"
    ):
        at(finished, tmp_path / "west.yaml")


def test_labels_of_another_job_are_refused(finished: Finished, tmp_path: Path) -> None:
    site_file(tmp_path / "west.yaml", finished.npz, labels={0: "normal", 1: "pneumonia", 2: ""})
    with pytest.raises(DataError, match="normal, pneumonia"):
        at(finished, tmp_path / "west.yaml")
