"""``fedward predict``: a row for every image, with the pixels of the training, whatever is wrong
with some of them.
"""

import csv
import json
import math
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from hospitals import CLASSES, Finished, arrays
from PIL import Image

import fedward
from fedward import cli
from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.inference.images import images_at
from fedward.inference.prediction import _refer, write_predictions
from fedward.sites import load_site
from finished_run import run_of_two_models
from tiny import tiny

PROBABILITIES = [f"probability/{name}" for name in CLASSES]


def predict(*arguments: object) -> int:
    return cli.main(["predict", *map(str, arguments)])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def numbers(found: list[dict[str, str]]) -> torch.Tensor:
    return torch.tensor([[float(row[name]) for name in PROBABILITIES] for row in found])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six pictures, two of them in a folder below, larger than the network's images."""
    found = tmp_path / "pictures"
    (found / "below").mkdir(parents=True)
    for number, pixels in enumerate(arrays(6, seed=9)["images"]):
        ending = "jpg" if number % 2 else "png"
        Image.fromarray(pixels).resize((40, 50)).save(
            found / ("below" if number > 3 else "") / f"{number}.{ending}"
        )
    return found


def test_an_answer_that_is_no_number_is_referred():
    assert [_refer(value, 0.5) for value in (0.4, 0.5, math.nan)] == ["yes", "no", "yes"]


def test_pixels_are_those_of_the_training(finished: Finished, tmp_path: Path) -> None:
    model = fedward.load_model(finished.run)
    assert predict(finished.run, finished.npz, "--out", tmp_path / "out.csv") == 0
    found = {row["image"]: row for row in rows(tmp_path / "out.csv")}
    assert len(found) == 90 + 60 + 120
    data = load_site(finished.sites / "north.yaml", model.experiment.data)
    for images in (data.labelled, data.val, data.test):
        seen = torch.from_numpy(images.pixels.copy()).permute(0, 3, 1, 2) / 255
        chosen = [found[name] for name in images.ids]
        torch.testing.assert_close(numbers(chosen), model(seen), atol=1e-6, rtol=0)
        assert [row["prediction"] for row in chosen] == [
            CLASSES[place] for place in model(seen).argmax(1)
        ]
    assert {(row["refer"], row["problem"]) for row in found.values()} == {("", "")}


def test_a_folder_is_read_with_what_is_below(
    finished: Finished, folder: Path, tmp_path: Path, capsys
) -> None:
    (folder / "notes.docx").write_text("no image")
    (folder / ".hidden.png").write_text("no image")
    assert predict(finished.run, folder, "--out", tmp_path / "out.csv") == 0
    found = rows(tmp_path / "out.csv")
    assert {row["image"] for row in found} == {
        "0.png",
        "1.jpg",
        "2.png",
        "3.jpg",
        "below/4.png",
        "below/5.jpg",
    }
    model = fedward.load_model(finished.run)
    expected = model(model.read([folder / row["image"] for row in found]))
    torch.testing.assert_close(numbers(found), expected, atol=1e-6, rtol=0)
    assert "those of images: 1 file (.docx 1)" in capsys.readouterr().err


@pytest.mark.parametrize("synthetic", [True, False])
def test_a_model_of_synthetic_images_is_called_so(
    synthetic: bool, finished: Finished, folder: Path, tmp_path: Path, capsys
) -> None:
    run = shutil.copytree(finished.run, tmp_path / "run")
    info = json.loads((run / "run.json").read_text())
    info["synthetic"] = {"site-1": synthetic, "site-2": False}
    (run / "run.json").write_text(json.dumps(info))
    assert predict(run, folder / "0.png", "--out", tmp_path / "out.csv") == 0
    warning = "the model was trained on synthetic images: its answers say nothing about patients"
    assert (warning in capsys.readouterr().err) is synthetic
    assert [row["image"] for row in rows(tmp_path / "out.csv")] == ["0.png"]


@pytest.mark.parametrize(
    ("init", "told"),
    [
        (None, "round 0, which has never been trained: its answers are those of random weights"),
        ({"run": "earlier"}, "round 0, which the run started from: no round of it was better"),
    ],
)
def test_a_model_that_no_round_has_trained_is_called_so(
    init: dict[str, str] | None, told: str, finished: Finished, folder: Path, tmp_path: Path, capsys
) -> None:
    run = shutil.copytree(finished.run, tmp_path / "run")
    info = json.loads((run / "run.json").read_text())
    info["summary"]["best_round"] = 0
    info["init"] = init
    (run / "run.json").write_text(json.dumps(info))
    shutil.copy(run / "model.safetensors", run / "best.safetensors")
    assert predict(run, folder / "0.png", "--out", tmp_path / "out.csv") == 0
    assert f"this is the model of {told}\n" in capsys.readouterr().err


def test_a_model_that_no_report_describes_is_called_so(
    folder: Path, tmp_path: Path, capsys
) -> None:
    run = run_of_two_models(tmp_path / "run", tiny("fedavg"))
    told = "the model after the last round, 2; report.html describes the one after round 1"
    for words in ([], ["--last"]):
        assert predict(run, folder / "0.png", "--out", tmp_path / "out.csv", *words) == 0
        assert (told in capsys.readouterr().err) == bool(words)


def test_a_csv_keeps_its_order_and_bad_rows(
    finished: Finished, folder: Path, tmp_path: Path, capsys
) -> None:
    table = tmp_path / "list.csv"
    table.write_text("filename;age\nbelow/5.jpg;60\nnone.png;61\n0.png\n\n2;62\n../list.csv;63\n")
    assert (
        predict(
            finished.run,
            table,
            "--folder",
            folder,
            "--out",
            tmp_path / "out.csv",
            "--refer-below",
            "0.01",
        )
        == 1
    )
    found = rows(tmp_path / "out.csv")
    assert [row["image"] for row in found] == [
        "below/5.jpg",
        "none.png",
        "0.png",
        "2",
        "../list.csv",
    ]
    assert [bool(row["prediction"]) for row in found] == [True, False, False, True, False]
    assert [row["refer"] for row in found] == ["no", "yes", "yes", "no", "yes"]
    assert ", 3 to refer:" in capsys.readouterr().out
    assert found[1]["problem"].startswith("expected an image file, found none at 'none.png'")
    assert found[2]["problem"] == "expected 2 cells, found 1"


def test_the_csvs_column_may_be_named(
    finished: Finished, folder: Path, tmp_path: Path, capsys
) -> None:
    (folder / "list.csv").write_text("scan,note\n0.png,a\n")
    out = tmp_path / "out.csv"
    assert predict(finished.run, folder / "list.csv", "--out", out) == 1
    assert "--columns image=scan" in capsys.readouterr().err
    assert not out.exists()
    assert predict(finished.run, folder / "list.csv", "--out", out, "--columns", "image=scan") == 0


def test_what_cannot_be_read_has_a_row(
    finished: Finished, folder: Path, tmp_path: Path, capsys
) -> None:
    (folder / "1.jpg").write_bytes((folder / "1.jpg").read_bytes()[:100])
    Image.new("L", (30, 30), 7).save(folder / "2.png")
    (folder / "3.jpg").unlink()
    (folder / "3.jpg").symlink_to(finished.npz)
    (folder / "6.jpg").symlink_to(tmp_path / "gone.jpg")
    out = tmp_path / "out.csv"
    assert predict(finished.run, folder, "--out", out) == 1
    found = {row["image"]: row for row in rows(out)}
    assert len(found) == 7
    assert "expected a whole image" in found["1.jpg"]["problem"]
    assert "found a blank one" in found["2.png"]["problem"]
    assert "which leaves it" in found["3.jpg"]["problem"]
    assert "found a link at '6.jpg' whose file cannot be reached" in found["6.jpg"]["problem"]
    for name in ("1.jpg", "2.png", "3.jpg", "6.jpg"):
        assert {found[name][column] for column in ("prediction", "refer", *PROBABILITIES)} == {""}
    model = fedward.load_model(finished.run)
    whole = ["0.png", "below/4.png", "below/5.jpg"]
    expected = model(model.read([folder / name for name in whole]))
    torch.testing.assert_close(
        numbers([found[name] for name in whole]), expected, atol=1e-6, rtol=0
    )
    out, err = capsys.readouterr()
    assert "7 images: " in out
    assert "no prediction for 4 of 7 images" in err


def test_doubtful_images_are_marked(finished: Finished, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out.csv"
    assert predict(finished.run, finished.npz, "--out", out, "--refer-below", "0.6") == 0
    found = rows(out)
    doubtful = numbers(found).max(1).values < 0.6
    assert [row["refer"] for row in found] == ["yes" if one else "no" for one in doubtful]
    assert 0 < doubtful.sum() < len(found)
    assert f", {doubtful.sum()} to refer:" in capsys.readouterr().out


def test_a_blank_array_has_a_row(finished: Finished, tmp_path: Path) -> None:
    images = arrays(300, seed=4)["images"]
    images[[0, 270]] = 5
    np.savez(tmp_path / "some.npz", images=images)
    assert predict(finished.run, tmp_path / "some.npz", "--out", tmp_path / "out.csv") == 1
    found = rows(tmp_path / "out.csv")
    assert [row["image"] for row in found if row["problem"]] == ["image-0", "image-270"]
    assert [row["image"] for row in found] == [f"image-{number}" for number in range(300)]


def test_a_spreadsheet_sees_the_encoding(finished: Finished, tmp_path: Path) -> None:
    """Excel takes a CSV without a byte order mark for one of a Western code page."""
    picture = tmp_path / "Müller.png"
    Image.fromarray(arrays(1, seed=9)["images"][0]).save(picture)
    out = tmp_path / "out.csv"
    assert predict(finished.run, picture, "--out", out) == 0
    assert out.read_bytes().startswith(b'\xef\xbb\xbf"image","prediction",')
    (row,) = rows(out)
    assert row["image"] == "Müller.png"


def test_earlier_predictions_are_replaced_and_nothing_else(
    finished: Finished, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    for _ in range(2):
        assert predict(finished.run, folder, "--out", out) == 0
    out.write_text("image,diagnosis\n")
    capsys.readouterr()
    assert predict(finished.run, folder, "--out", out) == 2
    assert capsys.readouterr().err == (
        f"fedward: {out}: expected a new file, or one that this command may replace, found another "
        "file. Name another file, or remove this one.\n"
    )
    assert out.read_text() == "image,diagnosis\n"


def test_names_are_no_formulas(finished: Finished, folder: Path, tmp_path: Path) -> None:
    (folder / "0.png").rename(folder / "=1+1.png")
    assert predict(finished.run, folder, "--out", tmp_path / "out.csv") == 0
    assert "'=1+1.png" in {row["image"] for row in rows(tmp_path / "out.csv")}


def test_a_name_may_be_any_bytes(finished: Finished, folder: Path, tmp_path: Path) -> None:
    (folder / "0.png").rename(folder / "odd\udcff.png")
    assert predict(finished.run, folder, "--out", tmp_path / "out.csv") == 0
    assert "odd\\udcff.png" in {row["image"] for row in rows(tmp_path / "out.csv")}


@pytest.mark.parametrize(
    ("named", "told"), [(".", ". is a folder: name"), ("", "argument --out: name")]
)
def test_what_is_no_file_is_no_place_for_a_csv(
    finished: Finished, folder: Path, capsys, named, told
) -> None:
    with pytest.raises(SystemExit) as ended:
        predict(finished.run, folder, "--out", named)
    assert ended.value.code == 2
    assert f"{told} a file to write" in capsys.readouterr().err


def test_the_csv_is_whole_or_not_there(finished: Finished, folder: Path, tmp_path: Path) -> None:
    model = fedward.load_model(finished.run)
    out = tmp_path / "new" / "out.csv"
    asked = images_at(folder, model.experiment.data, {})

    def interrupted():
        yield next(asked.blocks)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_predictions(model, asked._replace(blocks=interrupted()), out)
    assert not list(out.parent.iterdir())
    assert write_predictions(model, images_at(folder, model.experiment.data, {}), out).images == 6
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["nothing", "empty", "site.yaml", "labels.npz", "deep.npz"])
def test_what_holds_no_images_is_refused(
    name: str, finished: Finished, tmp_path: Path, capsys
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "report.pdf").write_text("")
    (tmp_path / "site.yaml").write_text("kind: npz")
    np.savez(tmp_path / "labels.npz", labels=np.zeros(3))
    np.savez(tmp_path / "deep.npz", images=np.zeros((3, 16, 16), np.uint16))
    assert predict(finished.run, tmp_path / name, "--out", tmp_path / "out.csv") == 1
    assert capsys.readouterr().err.startswith(f"fedward: {tmp_path / name}: expected ")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("a.gif", "found a file of a kind that is not read. GIF: convert to PNG. Name a folder"),
        (
            "scans",
            "found 1 file of kinds that are not read.* Volumes .* converted to NIfTI",
        ),
    ],
)
def test_other_formats_are_named_with_what_to_convert_them_to(
    tmp_path: Path, asked: str, said: str
) -> None:
    (tmp_path / "scans").mkdir()
    for name in ("a.gif", "scans/b.mgz"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match=said):
        images_at(tmp_path / asked, DataSpec(), {})


@pytest.mark.parametrize("threshold", ["0", "1.5", "-1", "half", "nan"])
def test_a_threshold_is_a_probability(threshold: str, finished: Finished) -> None:
    with pytest.raises(SystemExit) as ended:
        predict(finished.run, finished.npz, "--out", "out.csv", f"--refer-below={threshold}")
    assert ended.value.code == 2
