"""DICOM files of several frames: refused unless the site wants them, and then images of one patient
and one label.
"""

import numpy as np
import pytest

from dicom_files import RLE, dataset, pydicom, save
from fedward.errors import DataError
from fedward.sites import load_site
from fedward.sites.decoding import BadRow
from fedward.sites.dicom import open_frames
from fedward.sites.images import decode_file, decode_files
from fedward.sites.rendering import Frames, Rendering, evenly

CINE = np.random.default_rng(0).integers(0, 256, (7, 20, 24), np.uint8)
"""Seven frames."""


def cine(path, frames=CINE, **tags):
    """Write frames (N, H, W)."""
    shape = {"Rows": frames.shape[1], "Columns": frames.shape[2], "NumberOfFrames": len(frames)}
    return save(path, frames[0], **(shape | {"PixelData": frames.tobytes()} | tags))


def test_the_middle_of_equal_parts_is_taken():
    assert list(evenly(range(10), None)) == list(range(10))
    assert list(evenly(range(3), 5)) == [0, 1, 2]
    assert evenly(range(10), 1) == [5]
    assert evenly(range(10), 2) == [2, 7]
    assert evenly(range(100), 4) == [12, 37, 62, 87]
    assert list(Frames(every=3).chosen(10)) == [0, 3, 6, 9]
    assert list(Frames(every=3, at_most=2).chosen(10)) == [3, 9]
    assert len(Frames().chosen(10**15)) == 10**15  # nothing as long is made


def test_several_frames_are_refused_with_the_remedy(tmp_path):
    with pytest.raises(
        BadRow, match=r"7 frames: to use them, write frames: \{at_most: 8\}.*--frames 8"
    ):
        decode_file(cine(tmp_path / "x"), 16, 1)


def test_chosen_frames_have_their_own_pixels(tmp_path):
    path = cine(tmp_path / "x")
    found = dict(open_frames(path, frames=Frames(every=3)))
    assert list(found) == [0, 3, 6]
    assert all(np.array_equal(image, CINE[index]) for index, image in found.items())
    packed = cine(tmp_path / "y", syntax=RLE)
    assert all(
        np.array_equal(image, CINE[index]) for index, image in open_frames(packed, frames=Frames())
    )
    assert list(decode_file(path, 16, 3, Rendering(frames=Frames(at_most=2)))) == ["#1", "#5"]
    alone = save(tmp_path / "z", CINE[0])
    assert list(decode_file(alone, 16, 1, Rendering(frames=Frames()))) == [""]


def test_frames_have_slopes_and_windows_of_their_own(tmp_path):
    def item(**values):
        made = pydicom.Dataset()
        for name, value in values.items():
            setattr(made, name, value)
        return made

    def groups(slope=None, centre=None):
        parts = {}
        if slope is not None:
            parts["PixelValueTransformationSequence"] = [
                item(RescaleSlope=slope, RescaleIntercept=0)
            ]
        if centre is not None:
            parts["FrameVOILUTSequence"] = [item(WindowCenter=centre, WindowWidth=100)]
        return item(**parts)

    frames = np.array([[[40, 50]], [[40, 50]]], np.uint8)
    shared = {"SharedFunctionalGroupsSequence": [groups(slope=2, centre=100.5)]}
    own = {"PerFrameFunctionalGroupsSequence": [groups(), groups(slope=1)]}
    path = cine(tmp_path / "x", frames, **shared, **own)
    first, second = (np.asarray(image).tolist() for _, image in open_frames(path, frames=Frames()))
    assert first == [[76, 128]]  # of 80 and 100: (v - 100) / 99 + 0.5
    assert second == [[0, 0]]
    enhanced = cine(tmp_path / "y", frames[:1], **shared)  # of one frame: an image like others
    assert [np.asarray(image).tolist() for _, image in open_frames(enhanced)] == [[[76, 128]]]


def test_blank_frames_are_left_out_and_damage_is_told(tmp_path):
    blank = CINE.copy()
    blank[[0, 3]] = 9
    wanted = Rendering(frames=Frames())
    assert list(decode_file(cine(tmp_path / "x", blank), 16, 1, wanted)) == [
        "#1",
        "#2",
        "#4",
        "#5",
        "#6",
    ]
    with pytest.raises(BadRow, match="blank"):
        decode_file(cine(tmp_path / "y", np.full_like(CINE, 9)), 16, 1, wanted)
    for tags in ({"NumberOfFrames": 2**31 - 1}, {"PixelData": CINE[:4].tobytes()}):
        with pytest.raises(BadRow, match="the file is cut short"):
            decode_file(cine(tmp_path / "z", **tags), 16, 1, wanted)


def hospital_of(empty_hospital):
    """Return forty patients with a file each, every fourth of which has seven frames."""
    hospital = empty_hospital()
    for index in range(40):
        frames = np.random.default_rng(index).integers(
            0, 256, (7 if index % 4 == 0 else 1, 20, 24), np.uint8
        )
        cine(hospital.folder / "images" / f"{index}.dcm", frames)
        hospital.rows.append(
            [f"s{index:02}", f"images/{index}.dcm", ("MEL", "NV")[index % 2], f"g{index}"]
        )
    hospital.spec = hospital.spec.model_copy(update={"classes": ("MEL", "NV"), "channels": 1})
    return hospital


def parts_of(data):
    return {name: getattr(data, name).ids for name in ("labelled", "unlabelled", "val", "test")}


def test_frames_of_a_file_share_label_and_split(empty_hospital):
    hospital = hospital_of(empty_hospital)
    site = hospital.write(frames={"at_most": 3}, labelled=0.5)
    cache = hospital.folder / "cache"
    data = load_site(site, hospital.spec, cache)
    places = {}
    for part, ids in parts_of(data).items():
        for sample in ids:
            places.setdefault(sample.partition("#")[0], []).append((part, sample.partition("#")[2]))
    assert len(places) == 40
    for index in range(40):
        found = places[f"s{index:02}"]
        assert [number for _, number in found] == (["1", "3", "5"] if index % 4 == 0 else [""])
        assert len({part for part, _ in found}) == 1
    files = {name.partition("#")[0] for name in data.labelled.ids}
    assert (
        len(files)
        == len(
            {
                name.partition("#")[0]
                for part in ("labelled", "unlabelled")
                for name in parts_of(data)[part]
            }
        )
        / 2
    )
    again = load_site(site, hospital.spec, cache)
    for part in parts_of(data):
        assert parts_of(again)[part] == parts_of(data)[part]
        assert np.array_equal(getattr(again, part).pixels, getattr(data, part).pixels)
    first = (
        data.labelled if any(name.endswith("#3") for name in data.labelled.ids) else data.unlabelled
    )
    sample = next(name for name in first.ids if name.endswith("#3"))
    whole = decode_file(
        hospital.folder / "images" / f"{int(sample[1:3])}.dcm", 16, 1, Rendering(frames=Frames())
    )
    assert np.array_equal(first.named([sample]).pixels[0], whole["#3"])


def test_a_broken_file_moves_no_other(empty_hospital):
    hospital = hospital_of(empty_hospital)
    site = hospital.write(frames={})
    before = load_site(site, hospital.spec, hospital.folder / "cache")
    path = hospital.folder / "images" / "8.dcm"
    path.write_bytes(path.read_bytes()[:-100])
    after = load_site(site, hospital.spec, hospital.folder / "cache")
    assert [row.sample_id for row in after.rejected] == ["s08"]
    for part, ids in parts_of(before).items():
        assert parts_of(after)[part] == tuple(name for name in ids if not name.startswith("s08"))
    paths = [hospital.folder / "images" / "0.dcm"]
    one, all_ = (
        decode_files(paths, 16, 1, hospital.folder / "cache", "s", Rendering(frames=frames))
        for frames in (Frames(at_most=1), Frames())
    )
    assert (one.parts, len(one.pixels), len(all_.pixels)) == ([["#3"]], 1, 7)


def test_without_a_word_a_site_of_cines_is_refused(empty_hospital):
    hospital = hospital_of(empty_hospital)
    with pytest.raises(DataError, match=r"10: 10 like row 2 \(s00\): .* 7 frames: to use them"):
        load_site(hospital.write(), hospital.spec)
    for wrong in ({"every": 0}, {"at_most": 0}, {"evry": 2}, 3):
        with pytest.raises(DataError, match="frames"):
            load_site(hospital.write(frames=wrong), hospital.spec)
    with pytest.raises(DataError, match="reading: no lesion"):
        load_site(hospital.write(frames={}, reading={"lesion": "site"}), hospital.spec)


def test_no_header_reaches_a_message_about_frames(tmp_path):
    made = dataset(
        CINE[0], PatientName="Mueller-4711", NumberOfFrames=3, WindowCenter=9, WindowWidth=9
    )
    made.save_as(tmp_path / "x", enforce_file_format=True)
    for rendering in (Rendering(), Rendering(frames=Frames())):
        with pytest.raises(BadRow) as caught:
            decode_file(tmp_path / "x", 16, 1, rendering)
        assert "Mueller" not in str(caught.value)
