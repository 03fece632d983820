"""NIfTI volumes as slices: which way up, which values, which slices and channels, and files that
are no scan.
"""

import json
import logging
import struct
import sys
import tracemalloc

import numpy as np
import pytest

from deciding import read_csv
from fedward import cli
from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.lab.partition.csv_pool import CsvOptions
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted
from fedward.sites import load_site
from fedward.sites.decoding import BadRow, Unreadable
from fedward.sites.images import decode_file, decode_files, open_parts
from fedward.sites.rendering import Rendering, Slices, Volume
from fedward.sites.volumes import open_stack
from nifti_files import body, nibabel, write

SECRET = "Mueller-4711"
WINDOW = (40, 400)
SLOPE = 112
CODES = 252
AXES = 280
"""Where a NIfTI-1 header has scl_slope, qform_code before sform_code, and srow_x."""


def slices_of(path, window=WINDOW, neighbours=False, **slices):
    """Return index -> pixels of a volume's slices, by default all that are not almost empty."""
    found = open_parts(
        path, Rendering(window, slices=Slices(**{"at_most": 1000, **slices})), neighbours
    )
    return {int(part[1:]): np.asarray(image) for part, image in found}


def overwrite(path, place, content):
    """Put bytes into a NIfTI-1 header."""
    whole = path.read_bytes()
    path.write_bytes(whole[:place] + content + whole[place + len(content) :])


def ramp():
    """Return 4 x 5 x 6 voxels, each with a value of its own."""
    x, y, z = np.meshgrid(range(4), range(5), range(6), indexing="ij")
    return (1000 * x + 200 * y + 30 * z).astype(np.int16)


UPRIGHT = [
    ("axial", (3, 4, 2), (-1, 0, 0), (0, -1, 0)),
    ("coronal", (3, 2, 5), (-1, 0, 0), (0, 0, -1)),
    ("sagittal", (2, 4, 5), (0, -1, 0), (0, 0, -1)),
]


@pytest.mark.parametrize(("axis", "top_left", "right", "down"), UPRIGHT)
def test_slices_are_the_right_way_up(tmp_path, axis, top_left, right, down):
    """The patient's right or front is at the left, front or head at the top."""
    values = ramp()
    shown = slices_of(write(tmp_path / "x.nii", values), (2047.5, 4095), axis=axis)[2]
    place = np.array(top_left)
    for row in range(2):
        for column in range(2):
            value = values[tuple(place + column * np.array(right) + row * np.array(down))]
            assert shown[row, column] == round(
                255 * ((value - 2047) / 4094 + 0.5)
            )  # DICOM PS3.3, C.11.2.1.2


@pytest.mark.parametrize("axes", ["LPS", "ASR", "PIL", "SAL"])
def test_the_order_in_the_file_does_not_matter(tmp_path, axes):
    values = body()
    plain = slices_of(write(tmp_path / "plain.nii", values))
    other = slices_of(write(tmp_path / "other.nii.gz", values, axes))
    assert nibabel.load(tmp_path / "other.nii.gz").shape != values.shape or axes == "LPS"
    assert list(plain) == list(other)
    assert all(np.array_equal(plain[index], other[index]) for index in plain)


def test_tilted_volumes_turn_to_the_nearest_axes(tmp_path):
    angle = 0.3
    turn = np.array(
        [
            [np.cos(angle), -np.sin(angle), 0, 9],
            [np.sin(angle), np.cos(angle), 0, 7],
            [0, 0, 1, 5],
            [0, 0, 0, 1],
        ]
    )
    tilted = slices_of(write(tmp_path / "tilted.nii", body(), affine=turn))
    plain = slices_of(write(tmp_path / "plain.nii", body()))
    assert all(np.array_equal(plain[index], tilted[index]) for index in plain)


def test_window_and_percentiles_map_values(tmp_path):
    values = body()
    path = write(tmp_path / "x.nii", values)
    shown = slices_of(path, (40, 161))[6]
    assert shown.shape == (24, 20)
    assert shown[-1 - 6, -1 - 6] == round(255 * ((60 - 39.5) / 160 + 0.5))
    assert shown[0, 0] == 0
    shown = slices_of(path, None, percentiles=(0, 100))[6]
    low = int(values.min())
    high = int(values.max())
    assert shown[-1 - 6, -1 - 6] == round(255 * (60 - low) / (high - low))
    overwrite(path, SLOPE, struct.pack("<2f", 2, -5))
    assert slices_of(path, (115, 4))[6][-7, -7] == round(255 * (0.5 / 3 + 0.5))  # 2 * 60 - 5 is 115
    for absent in (0, np.nan, np.inf):
        overwrite(path, SLOPE, struct.pack("<2f", absent, 9))
        assert slices_of(path, (60, 4))[6][-7, -7] == round(255 * (0.5 / 3 + 0.5))


@pytest.mark.parametrize("outside", [np.nan, np.inf, -np.inf])
def test_a_background_that_is_not_finite_is_black(tmp_path, outside):
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, (20, 24, 12)).astype(np.float32)
    values[:5] = outside
    values[:, :, 3] = outside
    path = write(tmp_path / "x.nii", values)
    low, high = np.percentile(values[np.isfinite(values)], (1, 99))
    for window, black, width in ((None, low, high - low), ((0.5, 3), -1, 2)):
        found = slices_of(path, window)
        assert sorted(found) == [index for index in range(12) if index != 3]
        expected = np.clip((values[:, :, 7].astype(float) - black) / width, 0, 1) * 255
        expected[:5] = 0
        upright = expected.T[::-1, ::-1]  # front at the top, right at the left
        assert np.abs(found[7] - upright).max() <= 0.5001


def test_percentiles_of_a_scan_with_a_background_take_one_copy(tmp_path, monkeypatch):
    values = np.random.default_rng(0).normal(0, 1, (128, 128, 128)).astype(np.float32)
    values[:40] = np.nan
    volume = Volume(values, np.eye(4))
    monkeypatch.setattr("fedward.sites.volumes.read_nifti", lambda path, most: volume)
    tracemalloc.start()
    try:
        stack = open_stack(tmp_path / "scan.nii", Slices(axis="axial"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * values.nbytes
    low, high = np.nanpercentile(values, (1, 99))
    assert stack.window == pytest.approx(((low + high) / 2, high - low))


def test_slices_are_spaced_evenly_among_those_with_content(tmp_path):
    path = write(tmp_path / "x.nii", body(shape=(20, 24, 44)))  # slices 2 to 41 have a body
    assert list(slices_of(path)) == list(range(2, 42))
    assert list(slices_of(path, at_most=4)) == [7, 17, 27, 37]
    assert list(slices_of(path, at_most=1)) == [22]
    assert list(slices_of(path, axis="coronal", at_most=2)) == [7, 16]
    speck = body(shape=(20, 24, 44))
    speck[:, :, 1] = -1000
    speck[4:6, 4:8, 1] = 60  # 8 of 480 pixels
    assert 1 not in slices_of(write(tmp_path / "y.nii", speck))
    speck[4:6, 4:9, 1] = 60  # 10 of 480: over 2 %
    assert 1 in slices_of(write(tmp_path / "y.nii", speck))


def test_channels_are_the_slice_between_its_neighbours(tmp_path):
    values = body(shape=(20, 24, 8))
    values[:, :, 1] = values[:, :, 4]  # now slices 1 to 5 have a body, and so get the last two
    values[:, :, 6:] = values[:, :, 2:4]
    path = write(tmp_path / "x.nii", values)
    alone = slices_of(path)
    three = slices_of(path, neighbours=True)
    assert list(alone) == list(three) == [1, 2, 3, 4, 5, 6, 7]
    for index in (2, 3, 4, 5, 6):
        assert np.array_equal(
            three[index], np.stack([alone[index - 1], alone[index], alone[index + 1]], axis=-1)
        )
    assert np.array_equal(three[7], np.stack([alone[6], alone[7], alone[7]], axis=-1))
    assert not three[1][..., 0].any()  # slice 0 is air
    rendering = Rendering(WINDOW, slices=Slices())
    assert np.array_equal(
        decode_file(path, 24, 1, rendering)["#3"][..., 0],
        decode_file(path, 24, 3, rendering)["#3"][..., 1],
    )


def rgb(path):
    values = np.zeros((6, 6, 6), np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")]))
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), path)


def flat(path):
    overwrite(write(path, body()), AXES, bytes(48))


BROKEN = {
    "2D": (
        lambda path: write(path, body()[:, :, 5], affine=np.eye(4)),
        "three dimensions, found 20 x 24",
    ),
    "4D": (
        lambda path: write(path, np.stack([body()] * 2, -1), affine=np.eye(4)),
        "20 x 24 x 12 x 2: a series over",
    ),
    "mask": (lambda path: write(path, (body() > 0).astype(np.uint8)), "found a mask"),
    "label intent": (lambda path: write(path, body(), intent_code=1002), "found a mask"),
    "one value": (lambda path: write(path, np.full((9, 9, 9), 3.5, np.float32)), "one value"),
    "NaN alone": (
        lambda path: write(path, np.full((9, 9, 9), np.nan, np.float32)),
        "no finite value",
    ),
    "mask on NaN": (
        lambda path: write(path, np.where(body() > 0, 1, np.nan).astype(np.float32)),
        "one value",
    ),
    "no intercept": (
        lambda path: overwrite(write(path, body()), SLOPE, struct.pack("<2f", 2, np.nan)),
        "scl_inter that is not finite",
    ),
    "RGB": (rgb, "colours or complex"),
    "complex": (lambda path: write(path, body().astype(np.complex64)), "colours or complex"),
    "an orientation without a volume": (flat, "where right, front and head are"),
    "no orientation": (
        lambda path: overwrite(write(path, body()), CODES, bytes(4)),
        "where right, front and head are",
    ),
    "text": (lambda path: path.write_text(SECRET), "a NIfTI file, found one that begins otherwise"),
    "nothing": (lambda path: path.write_bytes(b""), "a NIfTI file, found one that begins"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_scan_is_refused_plainly(tmp_path, kind):
    make, said = BROKEN[kind]
    make(tmp_path / "x.nii")
    with pytest.raises(BadRow, match=said):
        decode_file(tmp_path / "x.nii", 16, 1, Rendering(slices=Slices()))


def test_air_alone_and_too_many_voxels_are_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "x.nii", body())
    with pytest.raises(BadRow, match="a blank one, as its values lie outside of the window"):
        decode_file(path, 16, 1, Rendering((3000, 10), slices=Slices()))
    monkeypatch.setattr("fedward.sites.volumes._MOST_VOXELS", 5000)
    with pytest.raises(BadRow, match="at most 5000 voxels, found 20 x 24 x 12"):
        decode_file(path, 16, 1, Rendering(slices=Slices()))
    with pytest.raises(
        BadRow, match=r"found a volume: to use it, write slices: \{axis: axial.*--slices 16"
    ):
        decode_file(path, 16, 1)


def test_a_trailing_axis_of_one_is_none(tmp_path):
    path = write(tmp_path / "x.nii", body()[..., None], affine=np.eye(4))
    assert list(slices_of(path)) == list(slices_of(write(tmp_path / "y.nii", body())))


def test_no_damage_ends_in_a_traceback_or_tells_the_header(tmp_path, caplog, capfd):
    rng = np.random.default_rng(0)
    whole = [
        write(tmp_path / name, body(), descrip=SECRET, aux_file=SECRET)
        for name in ("a.nii", "b.nii.gz")
    ]
    said = list[str]()
    rendering = Rendering(slices=Slices())
    with caplog.at_level(logging.DEBUG):
        for source in whole:
            for _ in range(40):
                content = bytearray(source.read_bytes())
                for place in rng.integers(0, min(len(content), 360), rng.integers(1, 6)):
                    content[place] = rng.integers(0, 256)
                path = tmp_path / f"x{''.join(source.suffixes)}"
                path.write_bytes(
                    content[: rng.choice([len(content), int(rng.integers(1, len(content)))])]
                )
                failed = decode_files([path], 16, 1, None, "s", rendering).failed
                said += [failure.reason for failure in failed.values()]
    assert len(said) > 30
    assert not [
        text
        for text in (*said, *capfd.readouterr(), caplog.text)
        if "Mueller" in text or "4711" in text
    ]


def test_a_site_without_nibabel_is_told_what_to_install(tmp_path, monkeypatch):
    from fedward.sites import nifti

    path = write(tmp_path / "x.nii", body())
    rendering = Rendering(slices=Slices())
    nifti.nibabel.cache_clear()
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(Unreadable, match=r"fedward\[volumes\]"):
        decode_file(path, 16, 1, rendering)
    failed = decode_files([path], 16, 1, tmp_path / "cache", "s", rendering).failed
    assert "fedward[volumes]" in failed[0].reason
    monkeypatch.undo()
    assert decode_files([path], 16, 1, tmp_path / "cache", "s", rendering).parts[0][:2] == [
        "#2",
        "#3",
    ]


# --- partition and sites


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Sixty volumes in a folder for each of two classes."""
    folder = tmp_path_factory.mktemp("ct") / "livers"
    for index in range(60):
        organ = (60, 200)[index % 2]
        write(
            folder / ("healthy", "lesion")[index % 2] / f"case{index}.nii.gz",
            body(index, organ=organ),
        )
    return folder


def test_a_folder_of_volumes_is_cut_into_sites_by_file(scans, tmp_path):
    rendering = Rendering(WINDOW, slices=Slices(at_most=4))
    told = " ".join(
        partition(scans, tmp_path, Wanted(sites=2, labelled=0.5, rendering=rendering)).split()
    )
    assert "A volume becomes at most 4 images with its label." in told
    assert "on test images: a site needs 5 test patients of a class to measure it." in told
    about = json.loads((tmp_path / "data.json").read_text())
    assert (about["image_size"], about["channels"], about["views"]) == (20, 3, "upright")
    assert about["evaluate_by"] == "patient"
    spec = DataSpec.model_validate(about)
    places = {}
    labelled = set()
    for name in ("site-1", "site-2"):
        data = load_site(tmp_path / f"{name}.yaml", spec, tmp_path / "cache")
        assert not data.rejected
        for part in ("labelled", "unlabelled", "val", "test"):
            for sample in getattr(data, part).ids:
                file, _, index = sample.partition("#")
                places.setdefault(file, []).append((name, part, int(index)))
                labelled |= {file} if part == "labelled" else set()
    assert sorted(places) == sorted(
        path.relative_to(scans).as_posix() for path in scans.rglob("*.gz")
    )
    for found in places.values():
        assert [index for *_, index in found] == [3, 5, 7, 9]
        assert len({place for *place, _ in map(list, found) for place in [tuple(place)]}) == 1
    trained = [file for file, found in places.items() if found[0][1] in ("labelled", "unlabelled")]
    assert len(labelled) == len(trained) / 2


def test_volumes_are_refused_without_a_word(scans, tmp_path):
    with pytest.raises(
        DataError, match=r"found volumes, such as healthy/case0\.nii\.gz\. .*--slices 16"
    ):
        partition(scans, tmp_path, Wanted(sites=2))
    assert not [*tmp_path.iterdir()]


def test_the_command_takes_frames_slices_and_window(scans, tmp_path, capsys):
    call = ["partition", str(scans), "--sites", "2", "--out", str(tmp_path / "s")]
    assert (
        cli.main(
            [
                *call,
                "--slices",
                "4",
                "--axis",
                "coronal",
                "--window",
                "40",
                "400",
                "--frames",
                "all",
            ]
        )
        == 0
    )
    text = (tmp_path / "s" / "site-1.yaml").read_text()
    assert "window: [40.0, 400.0]\nframes: {}\nslices:\n" in text
    for wrong, said in (
        (["--axis", "axial"], "--slices besides"),
        (["--slices", "4", "--window", "1", "0"], "a width above 0"),
    ):
        assert cli.main([*call, *wrong]) == 2
        assert said in capsys.readouterr().err
    for wrong in (["--slices", "0"], ["--frames", "many"], ["--slices", "4", "--axis", "z"]):
        with pytest.raises(SystemExit):
            cli.main([*call, *wrong])


def test_a_csv_of_volumes_keeps_patients_whole(scans, tmp_path):
    rows = [
        f"{path.name},{path.parent.name},P{index // 2}"
        for index, path in enumerate(sorted(scans.rglob("*.gz")))
    ]
    (tmp_path / "t.csv").write_text("image,label,patient\n" + "\n".join(rows))
    pool = read_csv(tmp_path / "t.csv", scans, CsvOptions(rendering=Rendering(slices=Slices())))
    assert len(set(pool.groups)) == 30


def test_arrays_have_no_frames(tmp_path):
    images = np.zeros((9, 20, 20), np.uint8)
    np.savez(tmp_path / "x.npz", images=images, labels=np.arange(9) % 2)
    with pytest.raises(ConfigError, match=r"^--slices: expected image files, .* Remove --slices"):
        partition(
            tmp_path / "x.npz",
            tmp_path / "s",
            Wanted(sites=2, rendering=Rendering(slices=Slices())),
        )
