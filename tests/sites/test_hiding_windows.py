"""A window outside of a picture's values hides it: partition, doctor and run say so."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from dicom_files import dataset, save
from fedward import cli
from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.jobs import load_experiment
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted
from fedward.lab.simulation import Simulation
from fedward.sites.data_file import read_data_file
from fedward.sites.decoding import BadRow
from fedward.sites.doctor import examine
from fedward.sites.hiding_windows import Hidden, showing_window, window_of_all, window_words
from fedward.sites.images import decode_file, decode_files
from fedward.sites.rendering import PLAIN, Rendering, Slices
from nifti_files import write

COUNT = 48


def values(number: int) -> np.ndarray:
    """Return values (24, 24) from 900 to 1000, or from 1000 to 1100, by the number's parity."""
    rng = np.random.default_rng(number)
    return (900 + 100 * (number % 2) + rng.integers(0, 101, (24, 24))).astype(np.int16)


def followed(words: list[str], capsys: pytest.CaptureFixture[str], most: int = 1) -> str:
    """Call a command, then each one that its refusal prints; return the text of the last.

    ``most``: refusals at most.
    """
    for _ in range(most):
        assert cli.main(words) == 1
        printed = capsys.readouterr().err.strip().splitlines()[-1]
        words = shlex.split(printed)[1:]
    assert cli.main(words) == 0, words
    return " ".join(capsys.readouterr().out.split())


def scans(folder: Path, spot: int = 0, **tags: float) -> Path:
    """Write DICOM files of two classes; ``spot``: the value of three pixels, a marker."""
    for number in range(COUNT):
        stored = values(number)
        if spot:
            stored[0, :3] = spot
        save(folder / str(number % 2) / f"{number}.dcm", stored, **tags)
    return folder


@pytest.mark.parametrize("window", [(40.0, 400.0), (9000.0, 100.0)])
def test_a_picture_outside_of_its_window_is_shown_in_another(tmp_path, window):
    path = save(tmp_path / "x.dcm", values(0))
    rendering = Rendering(window=window)
    with pytest.raises(Hidden, match="as its values lie outside of the window"):
        decode_file(path, 24, 1, rendering)
    low, high = np.percentile(values(0), (1, 99))
    assert showing_window(path, rendering) == ((low + high) / 2, high - low)
    own = save(tmp_path / "own.dcm", values(0), WindowCenter=window[0], WindowWidth=window[1])
    assert showing_window(own, PLAIN) == showing_window(path, rendering)


def test_a_cache_remembers_what_a_window_hides(tmp_path):
    hidden = save(tmp_path / "hidden.dcm", values(0))
    broken = tmp_path / "broken.dcm"
    broken.write_bytes(hidden.read_bytes()[:-100])
    rendering = Rendering(window=(40.0, 400.0))
    for _ in range(2):
        failed = decode_files([hidden, broken], 24, 1, tmp_path / "cache", "s", rendering).failed
        assert {index: failure.kind for index, failure in failed.items()} == {
            0: "window",
            1: "file",
        }


def test_what_no_window_hides_has_no_other_one(tmp_path):
    black = save(tmp_path / "black.dcm", np.zeros((8, 8), np.uint16))
    colour = save(tmp_path / "colour.dcm", np.zeros((8, 8, 3), np.uint8))
    without = save(tmp_path / "without.dcm", values(0))
    (tmp_path / "broken.dcm").write_bytes(b"\0" * 128 + b"DICM")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    for path in (black, colour, tmp_path / "broken.dcm", tmp_path / "picture.png"):
        assert showing_window(path, Rendering(window=(40.0, 400.0))) is None
    assert showing_window(without, PLAIN) is None
    with pytest.raises(BadRow, match="every pixel is the same"):
        decode_file(black, 8, 1, PLAIN)


def test_volumes_are_hidden_alike(tmp_path):
    scan = np.random.default_rng(0).normal(1000, 100, (16, 16, 8)).astype(np.int16)
    path = write(tmp_path / "scan.nii.gz", scan)
    rendering = Rendering(window=(-600.0, 100.0), slices=Slices())
    with pytest.raises(Hidden):
        decode_file(path, 16, 1, rendering)
    low, high = np.percentile(scan, (1, 99))
    assert showing_window(path, rendering) == pytest.approx(((low + high) / 2, high - low))
    assert showing_window(path, Rendering(slices=Slices())) is None


def test_one_window_holds_those_of_all_pictures():
    assert window_of_all([(10.25, 20.0), (30.0, 10.0)]) == (17.5, 35.0)
    assert window_of_all([(0.5, 1.0)]) == (0.5, 1.0)
    assert window_of_all([(1000.0100041, 0.0019929)]) == (1000.010004, 0.001993)


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ((-12345678.0, 200.0), ["-12345678", "200"]),
        ((1.5e16, 1e-05), ["15000000000000000", "0.00001"]),
        ((-600, 100.5), ["-600", "100.5"]),
    ],
)
def test_the_numbers_of_a_window_have_no_exponent(window, words):
    assert window_words(window) == words


def test_partition_refuses_blank_pictures_with_the_window_that_shows_them(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    scans(Path("scans"))
    words = ["partition", "scans", "--sites", "1", "--window", "40", "400", "--out", "sites"]
    assert cli.main(words) == 1
    error = capsys.readouterr().err
    assert "found 48 of 48 that cannot" in error
    assert (
        "The window 40 400 (centre, width) hides what they show. In another one it can be seen: "
        "--window 1000 200."
    ) in error
    assert "Repair these files" not in error
    assert "things must be fixed" not in error
    command = error.strip().splitlines()[-1]
    assert cli.main(shlex.split(command)[1:]) == 0, command
    assert "nearly black" not in capsys.readouterr().out


@pytest.mark.parametrize("intercept", [12345678, -12345678])
def test_the_printed_window_is_exact_and_can_be_typed(tmp_path, monkeypatch, capsys, intercept):
    monkeypatch.chdir(tmp_path)
    scans(Path("scans"), RescaleSlope=1, RescaleIntercept=intercept)
    words = ["partition", "scans", "--sites", "1", "--window", "40", "400", "--out", "sites"]
    assert "nearly black" not in followed(words, capsys)
    window = yaml.safe_load(Path("sites/site-1.yaml").read_text())["window"]
    assert window == [intercept + 1000, 200]


def test_a_window_for_hidden_pictures_hides_no_others(tmp_path, monkeypatch, capsys):
    """Half of the files have a right window of their own, and half a wrong one."""
    monkeypatch.chdir(tmp_path)
    for number in range(COUNT):
        centre = 950 if number % 2 == 0 else 40
        path = Path("scans", str(number % 2), f"{number}.dcm")
        save(path, values(number), WindowCenter=centre, WindowWidth=100)
    words = ["partition", "scans", "--sites", "1", "--out", "sites"]
    assert "nearly black" not in followed(words, capsys)
    assert yaml.safe_load(Path("sites/site-1.yaml").read_text())["window"] == [1000, 200]


def test_where_no_window_shows_all_the_commands_own_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number in range(COUNT):
        stored = values(number).astype(np.int32) + (3_000_000 if number % 4 < 2 else 0)
        save(Path("scans", str(number % 2), f"{number}.dcm"), stored)
    words = ["partition", "scans", "--sites", "1", "--window", "40", "400", "--out", "sites"]
    assert cli.main(words) == 1
    assert (
        "No window shows all of the images, as their values are too far apart. Without it they can "
        "be seen: leave out --window."
    ) in capsys.readouterr().err
    assert "nearly black" not in followed(words, capsys)
    assert "window" not in yaml.safe_load(Path("sites/site-1.yaml").read_text())


def test_where_no_window_shows_all_none_is_proposed(tmp_path):
    for number in range(COUNT):
        stored = values(number).astype(np.int32) + (3_000_000 if number % 4 < 2 else 0)
        path = tmp_path / "scans" / str(number % 2) / f"{number}.dcm"
        save(path, stored, WindowCenter=40, WindowWidth=80)
    told = "The files' own window hides what they show. No window shows all .*correct the windows"
    with pytest.raises(DataError, match=told) as refusal:
        partition(tmp_path / "scans", tmp_path / "sites", Wanted(sites=1))
    assert "--window 1" not in str(refusal.value)


def test_few_hidden_pictures_are_left_out_with_the_window_that_shows_them(tmp_path):
    for number in range(COUNT):
        stored = values(number) + (400 if number < 2 else 0)
        save(tmp_path / "scans" / str(number % 2) / f"{number}.dcm", stored.astype(np.int16))
    rendering = Rendering(window=(1000.0, 300.0))
    text = partition(tmp_path / "scans", tmp_path / "sites", Wanted(sites=1, rendering=rendering))
    text = " ".join(text.split())
    assert "Listed: 48 files. Used: 46. Left out: 2, " in text
    assert "In another one it can be seen: --window 1200 600." in text


def test_files_of_several_frames_are_hidden_alike(tmp_path, monkeypatch, capsys):
    """The first frame is empty, as before the contrast agent comes."""
    monkeypatch.chdir(tmp_path)
    for number in range(COUNT):
        frames = np.stack([np.zeros((24, 24), np.int16), values(number), values(number)])
        made = dataset(frames[1], NumberOfFrames=3, PixelData=frames.tobytes())
        path = Path("scans", str(number % 2), f"{number}.dcm")
        path.parent.mkdir(parents=True, exist_ok=True)
        made.save_as(path, enforce_file_format=True)
    words = ["partition", "scans", "--sites", "1", "--window", "9000", "40", "--out", "sites"]
    assert cli.main(words) == 1
    refusal = capsys.readouterr().err
    assert "Say how many images of each are used: --frames all, or a number" in refusal
    assert "PNG" not in refusal
    assert "nearly black" not in followed([*words, "--frames", "all"], capsys)
    assert yaml.safe_load(Path("sites/site-1.yaml").read_text())["window"] == [1000, 200]


def test_doctor_and_run_name_the_window_that_shows_rejected_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scans(Path("scans"))
    partition(Path("scans"), Path("sites"), Wanted(sites=1))
    site_file = Path("sites/site-1.yaml")
    site_file.write_text(f"{site_file.read_text()}window: [40, 400]\n")
    told = "values lie outside of the window: write window: [1000, 200] into the site file"
    assert cli.main(["doctor", "sites"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(told) == 1, "in the list of rows alone"
    changes = ["--set", "net=small_cnn", "--out", "run"]
    assert cli.main(["run", "fedavg", "--site-files", "sites", *changes]) == 1
    assert told in capsys.readouterr().err


def test_partition_doctor_and_run_name_the_window_of_dark_pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scans(Path("scans"), spot=9000, WindowCenter=8000, WindowWidth=4000)
    text = " ".join(partition(Path("scans"), Path("sites"), Wanted(sites=1)).split())
    assert "several labels" not in text
    hides = "The files' own window hides what they show. In another one it can be seen: "
    assert "48 of 48 images are nearly black or of one grey" in text
    assert f"{hides}--window 1000 200. " in text
    spec = DataSpec.model_validate(json.loads(Path("sites/data.json").read_text()))
    [note] = [note for note in examine(Path("sites/site-1.yaml"), spec).notes if "black" in note]
    assert note.endswith(f"{hides}window: [1000, 200] in the site file.")
    said: list[str] = []
    experiment = load_experiment("fedavg", ["net=small_cnn"], data=read_data_file(Path("sites")))
    simulation = Simulation(experiment, Path("run"), ["site-1"], site_files=Path("sites"))
    simulation.entered(said.append, unmeasured=True)
    assert f"). At site-1: {hides}window: [1000, 200] in the site file" in " ".join(said)


def test_a_series_of_hidden_volumes_is_refused_by_its_window(tmp_path):
    for number in range(24):
        scan = np.random.default_rng(number).normal(1000, 100, (16, 16, 8)).astype(np.int16)
        write(tmp_path / "scans" / "ab"[number % 2] / f"{number}.nii.gz", scan)
    rendering = Rendering(window=(-600.0, 100.0), slices=Slices(at_most=2))
    with pytest.raises(DataError, match=r"The window -600 100 .* hides what they show.*--window"):
        partition(tmp_path / "scans", tmp_path / "sites", Wanted(sites=1, rendering=rendering))
