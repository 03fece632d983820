"""Which pictures are nearly black, and what is said of them."""

import numpy as np
import pytest
from PIL import Image

from dicom_files import save
from fedward.sites.dark_images import dark_images, dark_note, nearly_black
from fedward.sites.data import Images

RAMP = np.arange(4096).reshape(64, 64, 1)


@pytest.mark.parametrize(
    ("picture", "dark"),
    [
        (RAMP * 15 // 4095, True),  # 12 bits shown as 16
        (255 - RAMP * 15 // 4095, True),  # the same, inverted
        (RAMP * 255 // 4095, False),
        (RAMP * 40 // 4095, False),  # dim, but there is something to see
        (np.where(RAMP < 4000, RAMP * 15 // 4095, 255), True),  # a marker takes all the greys
        (np.where(RAMP < 3800, 0, 255), False),  # a bright spot of 7 % on black
        (np.full((8, 8, 1), 7), True),
        (np.full((8, 8, 3), [90, 80, 85]), True),  # one grey, of a faint tint
        (np.full((8, 8, 3), [30, 2, 50]), True),  # one dark colour
        (np.where(RAMP < 2048, 100, 131), True),  # two of 32 neighbouring greys
        (np.where(RAMP < 2048, 100, 132), False),
        (np.full((8, 8, 3), [90, 74, 80]), True),  # the strongest tint, 16 greys
        (np.full((8, 8, 3), [90, 73, 80]), False),
        (np.full((8, 8, 3), [63, 2, 50]), True),  # the brightest dark colour
        (np.full((8, 8, 3), [64, 2, 50]), False),
        (np.where(np.arange(100).reshape(10, 10, 1) < 95, 0, 255), True),  # 95 of 100 pixels
        (np.where(np.arange(100).reshape(10, 10, 1) < 94, 0, 255), False),
        (np.where(RAMP < 120, [90, 50, 40], [230, 180, 170]), False),  # skin with a small mole
        (np.where(RAMP < 120, 40, 230), True),  # the same in grey
        (np.concatenate([RAMP * 0, RAMP * 255 // 4095, RAMP * 0], 2), False),  # green alone
    ],
)
def test_a_picture_in_which_nothing_can_be_seen_is_nearly_black(picture, dark):
    assert nearly_black(picture[None].astype(np.uint8)).tolist() == [dark]


def test_each_image_is_judged_alone():
    batch = np.stack([RAMP * 15 // 4095, RAMP * 255 // 4095]).astype(np.uint8)
    assert nearly_black(batch).tolist() == [True, False]
    assert nearly_black(batch[:0]).tolist() == []


def test_all_sets_of_a_site_are_looked_at():
    pixels = np.stack([RAMP * 15 // 4095, RAMP * 255 // 4095]).astype(np.uint8)
    sets = [Images((f"{name}1", f"{name}2"), pixels, np.zeros(2, np.int64)) for name in "ab"]
    assert dark_images(sets) == ["a1", "b1"]


@pytest.mark.parametrize(
    ("name", "pixels", "said"),
    [
        ("a.jpg", np.zeros((8, 8, 3), np.uint8), "."),
        ("a.png", np.zeros((8, 8), np.uint16), "export those of more than 8 bits again with 8"),
        ("a.dcm", None, "write window: [CENTRE, WIDTH] into the site file (DICOM and volumes)"),
    ],
)
def test_a_window_is_advised_for_files_that_are_shown_in_one(tmp_path, name, pixels, said):
    if pixels is None:
        save(tmp_path / name, np.zeros((8, 8), np.uint16))
    else:
        Image.fromarray(pixels).save(tmp_path / name)
    [note] = dark_note(["a"], 9, files=[tmp_path / name])
    assert said in note.partition("Look at the contact sheet (fedward doctor)")[2]
    assert ("window" in note) == (name == "a.dcm")
    assert ("8 bits" in note) == (name == "a.png")


def test_the_note_counts_and_names_some():
    assert dark_note([], 9) == []
    [note] = dark_note(["a", "b", "c", "d"], 9)
    assert note.startswith("4 of 9 images are nearly black or of one grey, such as a, b, c: 95 of")
    [note] = dark_note(["a"], 9)
    assert note.startswith("1 of 9 images is nearly black or of one grey, such as a: 95 of")
