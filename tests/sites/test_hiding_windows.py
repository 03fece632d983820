"""A window outside of a picture's values hides it: partition, doctor and run say so."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from dicom_files import save
from fedward import cli
from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.jobs import load_experiment
from fedward.lab.partition.cut import Wanted, partition
from fedward.lab.simulation import Simulation
from fedward.sites.data_file import read_data_file
from fedward.sites.decoding import BadRow
from fedward.sites.doctor import examine
from fedward.sites.hiding_windows import Hidden, showing_window, window_of_all
from fedward.sites.images import decode_file
from fedward.sites.rendering import PLAIN, Rendering, Slices
from nifti_files import write

COUNT = 48


def values(number: int) -> np.ndarray:
    """Return values (24, 24) from 900 to 1000, or from 1000 to 1100, by the number's parity."""
    rng = np.random.default_rng(number)
    return (900 + 100 * (number % 2) + rng.integers(0, 101, (24, 24))).astype(np.int16)


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
