"""Which test images belong together, by a site's own files."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedward.errors import DataError, RunError
from fedward.lab.noted_answers import answers_of, groups_in

PIXELS = np.zeros((3, 8, 8), np.uint8)
LABELS = np.array([0, 1, 0])


def site_of(folder: Path, arrays: dict[str, NDArray[Any]], **further: Any) -> Path:
    """Write an npz file and the site file that names it."""
    np.savez(folder / "images.npz", **arrays)
    content = {"kind": "npz", "site": "north", "file": "images.npz", "labels": {"0": "a", "1": "b"}}
    path = folder / "north.json"
    path.write_text(json.dumps(content | further), "utf-8")
    return path


def two_splits(**groups: list[str] | list[int] | list[float]) -> dict[str, NDArray[Any]]:
    """Return three images for training and three for tests, and columns of groups."""
    arrays: dict[str, NDArray[Any]] = {}
    for split in ("train", "test"):
        arrays |= {f"{split}_images": PIXELS, f"{split}_labels": LABELS}
    return arrays | {name: np.array(column) for name, column in groups.items()}


@pytest.mark.parametrize(
    ("columns", "joined", "expected"),
    [
        ({}, False, {}),
        (
            {"train_groups": [4, 4, 5], "test_groups": [6, 7, 6]},
            False,
            {"train-0": "4", "train-1": "4", "train-2": "5"}
            | {"test-0": "6", "test-1": "7", "test-2": "6"},
        ),
        (
            {"train_groups": ["p", "p", ""], "test_groups": ["q", "", "q"]},
            True,
            {"image-0": "p", "image-1": "p", "image-3": "q", "image-5": "q"},
        ),
        (
            {"train_groups": [4.0, np.nan, 5.0], "test_groups": [np.nan, np.nan, 99.0]},
            False,
            {"train-0": "4.0", "train-2": "5.0", "test-2": "99.0"},
        ),
        (
            {"train_groups": ["p", "nan", "unknown"], "test_groups": ["", "q", "q"]},
            True,
            {"image-0": "p", "image-4": "q", "image-5": "q"},
        ),
        # A column is known however it is spelt, and a lesion counts where the patient is unknown.
        (
            {"train_Patient-ID": ["p", "", ""], "train_lesion": [1, 1, 2]},
            False,
            {"train-0": "p", "train-1": "p", "train-2": "lesion 2"},
        ),
        # Names of groups are no groups.
        (
            {"groups": ["p", "q"], "train_patient": [7, 7, 8]},
            False,
            {"train-0": "7", "train-1": "7", "train-2": "8"},
        ),
        # Images of a split without the column are no part of another one's groups.
        ({"train_groups": [4, 4, 5]}, False, {"train-0": "4", "train-1": "4", "train-2": "5"}),
        ({"test_groups": [4, 4, 5]}, False, {"test-0": "4", "test-1": "4", "test-2": "5"}),
        (
            {"train_patient": ["p", "q", "r"]},
            True,
            {"image-0": "p", "image-1": "q", "image-2": "r"},
        ),
    ],
)
def test_groups_of_an_npz_file_are_named_as_its_samples(
    tmp_path: Path, columns: dict[str, Any], joined: bool, expected: dict[str, str]
) -> None:
    further = {"joined": True, "indices": {"train": [0], "test": [3]}} if joined else {}
    site = site_of(tmp_path, two_splits(**columns), **further)
    assert groups_in(site) == expected


@pytest.mark.parametrize("joined", [False, True])
def test_groups_of_a_wrong_length_are_refused(tmp_path: Path, joined: bool) -> None:
    """Those of later splits would be of other images."""
    further = {"joined": True, "indices": {"train": [0], "test": [3]}} if joined else {}
    arrays = two_splits(train_groups=["p", "p"], test_groups=["q", "r", "q"])
    site = site_of(tmp_path, arrays, **further)
    with pytest.raises(
        DataError, match=r"site north, .*each image: 3 in train_groups, found 2 in train_groups\."
    ):
        groups_in(site)


def test_images_that_any_split_may_take_are_counted_through_all_of_them(tmp_path: Path) -> None:
    arrays = two_splits(train_groups=["p", "p", "r"], test_groups=["q", "s", "q"])
    arrays |= {"val_images": PIXELS, "val_labels": LABELS}
    site = site_of(tmp_path, arrays, joined=True, indices={"train": [0], "test": [6]})
    groups = groups_in(site)
    assert groups["image-6"] == "q", "test images follow those of training and validation"
    assert set(groups) == {f"image-{place}" for place in (0, 1, 2, 6, 7, 8)}


@pytest.mark.parametrize(
    "damage",
    [None, b"", b"[" * 100_000, b"\xff", b"[]", b"{}", b'{"labels": ["a"], "groups": [0]}'],
)
def test_a_damaged_note_of_the_test_images_is_named(tmp_path: Path, damage: bytes | None) -> None:
    folder = tmp_path / "sites" / "north" / "test_answers"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"round": 1, "answers": "0 1"}\n')
    about = folder / "a.json"
    run: Any = SimpleNamespace(folder=tmp_path, info=SimpleNamespace(id="a"))
    about.write_text('{"labels": [0, 1], "groups": [0, 1]}')
    assert answers_of(run)["north"].by_round[1].tolist() == [0, 1]
    if damage is None:
        about.unlink()
    else:
        about.write_bytes(damage)
    with pytest.raises(RunError, match=rf"{about}: expected labels and groups .* found"):
        answers_of(run)
