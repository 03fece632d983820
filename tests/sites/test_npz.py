import tracemalloc

import numpy as np
import pytest
import yaml

from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.label_kinds import ONE_LABEL
from fedward.sites import load_site
from fedward.sites.data import NO_LABEL_TO_EVALUATE
from fedward.sites.facts import read_facts
from fedward.sites.npz import check_layout, load_npz, site_images
from fedward.sites.site_file import read_site_file
from fedward.sites.stored_images import JoinedImages, StoredImages

SPEC = DataSpec(classes=("A", "B", "C"), image_size=16)
SETS = ("labelled", "unlabelled", "val", "test")


def write(folder, *, shape=(16, 16, 3), **changed):
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 60), ("val", 12), ("test", 24)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (count, *shape), np.uint8)
        arrays[f"{split}_labels"] = (np.arange(count) % 3).astype(np.uint8)[:, None]
    arrays.update(changed)
    np.savez(folder / "toy.npz", **arrays)
    return arrays


def site(folder, **fields):
    path = folder / "site-1.yaml"
    path.write_text(
        yaml.safe_dump(
            {"kind": "npz", "file": "toy.npz", "labels": dict(enumerate(SPEC.classes)), **fields}
        )
    )
    return path


def test_the_official_splits_are_kept(tmp_path):
    arrays = write(tmp_path)
    data = load_site(site(tmp_path, labelled=0.1), SPEC)
    assert [len(getattr(data, name)) for name in SETS] == [6, 54, 12, 24]
    assert np.bincount(data.labelled.labels).tolist() == [2, 2, 2]
    assert np.array_equal(data.test.pixels, arrays["test_images"])
    assert data.test.labels.tolist() == arrays["test_labels"][:, 0].tolist()
    assert (data.unlabelled.labels == -1).all()


def test_grey_is_repeated_and_resized(tmp_path):
    arrays = write(tmp_path, shape=(28, 28))
    data = load_site(site(tmp_path), SPEC)
    assert data.val.pixels.shape == (12, 16, 16, 3)
    assert (data.val.pixels[..., 0] == data.val.pixels[..., 2]).all()
    same_size = load_site(site(tmp_path), DataSpec(classes=SPEC.classes, image_size=28, channels=1))
    assert np.array_equal(same_size.val.pixels[..., 0], arrays["val_images"])


@pytest.mark.parametrize("write_file", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("shape", [(9, 5, 4), (9, 5, 4, 1), (9, 5, 4, 3)])
def test_stored_images_are_those_of_the_array(tmp_path, write_file, by_column, shape):
    array = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    write_file(tmp_path / "a.npz", images=np.asfortranarray(array) if by_column else array)
    stored = StoredImages(tmp_path / "a.npz", "images", "here")
    assert (stored.shape, len(stored), stored.dtype) == (shape, 9, np.uint8)
    for indices in ([], [0], [8], [1, 2, 7], range(9)):
        images = list(stored.read(indices))
        assert np.array_equal(np.array(images, np.uint8).reshape(-1, *shape[1:]), array[indices])


def test_joined_arrays_are_read_as_one(tmp_path):
    counts = {"a": 3, "b": 1, "c": 2}
    arrays = {name: np.full((count, 4, 5), count, np.uint8) for name, count in counts.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    parts = [StoredImages(tmp_path / "a.npz", name, "here") for name in arrays]
    joined = JoinedImages(parts, "here")
    assert (joined.shape, len(joined)) == ((6, 4, 5), 6)
    assert [image[0, 0] for image in joined.read([0, 2, 3, 5])] == [3, 3, 1, 2]
    np.savez(tmp_path / "b.npz", d=np.zeros((2, 4, 4), np.uint8))
    with pytest.raises(DataError, match=r"here: expected images of one size .*\(4, 4\), \(4, 5\)"):
        JoinedImages([*parts, StoredImages(tmp_path / "b.npz", "d", "here")], "here")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"indices": {"train": [3, 1], "test": [2]}},
        {"indices": {"train": [90, 1], "val": [61, 2]}, "joined": True},
    ],
)
def test_all_that_names_an_image_names_it_alike(tmp_path, fields):
    write(tmp_path)
    file = read_site_file(site(tmp_path, **fields))
    data = load_site(site(tmp_path, **fields), SPEC)
    pixels = {}
    for images, id_of in site_images(file, ONE_LABEL):
        pixels |= dict(zip(id_of.values(), images.read(id_of), strict=True))
    own = {
        name: image
        for part in SETS
        for name, image in zip(getattr(data, part).ids, getattr(data, part).pixels, strict=True)
    }
    assert pixels.keys() == own.keys() == read_facts(file, SPEC.classes, ONE_LABEL).keys()
    assert all(np.array_equal(pixels[name], own[name]) for name in own)


@pytest.mark.parametrize("joined", [True, False])
def test_an_image_in_two_splits_is_refused(tmp_path, joined):
    """Where the file has no splits of its own, they are parts of one array."""
    arrays = write(tmp_path)
    images = {"images": arrays["train_images"], "labels": arrays["train_labels"]}
    np.savez(tmp_path / "toy.npz", **images)
    path = site(tmp_path, indices={"train": [0, 1, 2, 3], "val": [4, 3]}, joined=joined)
    found = r"field indices\.val: expected other images than those of train, found 3 in both"
    with pytest.raises(DataError, match=found):
        load_site(path, SPEC)
    with pytest.raises(DataError, match=found):
        check_layout(read_site_file(path), ONE_LABEL)


def test_an_index_of_no_image_is_known_before_an_image_is_read(tmp_path):
    write(tmp_path)
    file = read_site_file(site(tmp_path, indices={"test": [24]}))
    with pytest.raises(DataError, match=r"field indices\.test: expected different numbers from 0"):
        check_layout(file, ONE_LABEL)


def test_a_fault_of_arrays_without_a_split_names_none(tmp_path):
    arrays = write(tmp_path)
    np.savez(tmp_path / "toy.npz", **arrays, labels=arrays["train_labels"])
    with pytest.raises(DataError, match=r"site site-1, [^ ]*toy\.npz: expected .* no array images"):
        load_site(site(tmp_path, joined=True, indices={"train": [0]}), SPEC)


def test_a_joined_file_without_labels_is_refused_plainly(tmp_path):
    np.savez(tmp_path / "toy.npz", train_images=np.zeros((3, 4, 4), np.uint8))
    indices = {"train": [0, 1, 2]}
    with pytest.raises(DataError, match="an npz file with train_labels or labels, found none"):
        load_site(site(tmp_path, joined=True, indices=indices), SPEC)


def test_images_in_memory_are_there_once(tmp_path):
    write(tmp_path, shape=(64, 64))
    spec = DataSpec(classes=SPEC.classes, image_size=64, channels=3)
    file = read_site_file(site(tmp_path))
    load_npz(file, spec)
    tracemalloc.start()
    try:
        listed = load_npz(file, spec)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert listed.pixels.nbytes == 96 * 64 * 64 * 3
    assert peak < 1.4 * listed.pixels.nbytes


def test_damage_after_the_last_image_that_is_read_is_noticed(tmp_path):
    array = np.random.default_rng(1).integers(0, 256, (50, 40, 40), np.uint8)
    np.savez(tmp_path / "a.npz", images=array)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[-2000] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    images = StoredImages(tmp_path / "a.npz", "images", "here").read([0, 3])
    assert np.array_equal(next(images), array[0])
    with pytest.raises(DataError, match="here: expected a whole array of images, found BadZipFile"):
        list(images)


def test_numbers_are_named_by_the_site(tmp_path):
    write(tmp_path)
    data = load_site(site(tmp_path, labels={0: "C", 1: "B", 2: "A"}), SPEC)
    assert data.val.labels.tolist() == [2, 1, 0] * 4
    with pytest.raises(DataError, match=r"field labels.*D"):
        load_site(site(tmp_path, labels={0: "D"}), SPEC)


def test_numbers_of_no_class_train_without_a_label(tmp_path):
    write(tmp_path)
    data = load_site(site(tmp_path, labels={0: "C", 1: "", 2: "A"}), SPEC)
    assert [len(getattr(data, name)) for name in SETS] == [40, 20, 8, 16]
    assert {row.reason for row in data.rejected} == {NO_LABEL_TO_EVALUATE}
    assert not any(row.counted for row in data.rejected)


def test_numbers_that_are_not_named_are_refused(tmp_path):
    """They would pass as the job's classes, whatever these are."""
    write(tmp_path)
    with pytest.raises(
        DataError, match=r"field labels: .*found nothing\. .*write labels: {0: A, 1: B, 2: C}\."
    ):
        load_site(site(tmp_path, labels={}), SPEC)


def test_indices_out_of_bounds_are_refused(tmp_path):
    write(tmp_path)
    for wanted in ([0, 60], [-1], [1, 1]):
        with pytest.raises(DataError, match=r"field indices\.train"):
            load_site(site(tmp_path, indices={"train": wanted}), SPEC)


def test_blank_images_and_unknown_labels_are_rejected(tmp_path):
    arrays = write(tmp_path)
    arrays["train_images"][7] = 3
    arrays["val_labels"][2] = 9
    write(tmp_path, **arrays)
    data = load_site(site(tmp_path), SPEC)
    assert [(row.row, row.sample_id) for row in data.rejected] == [(7, "train-7"), (2, "val-2")]
    assert "blank" in data.rejected[0].reason
    assert data.rejected[1].reason == "expected a label among [0, 1, 2], found 9"
    with pytest.raises(DataError, match="at most 1% of 96 rows"):
        load_site(site(tmp_path, max_rejected=0.01), SPEC)


@pytest.mark.parametrize("index", [0, 28, 59])
def test_mending_an_image_moves_no_other(tmp_path, index):
    def members():
        data = load_site(site(tmp_path, labelled=0.5), SPEC)
        return {name: getattr(data, name).ids for name in SETS}

    arrays = write(tmp_path)
    whole = members()
    arrays["train_images"][index] = 3
    write(tmp_path, **arrays)
    assert members() == {
        part: tuple(i for i in ids if i != f"train-{index}") for part, ids in whole.items()
    }


PICKLE = pytest.mark.proves(
    "files",
    "a PostScript program, a rare format or pickled objects under a usual name",
    "refused; no other decoder starts, and nothing is run",
)


@pytest.mark.parametrize(
    "changed",
    [
        {"train_labels": np.zeros((60, 14), np.uint8)},
        {"train_labels": np.zeros((59, 1), np.uint8)},
        {"train_labels": np.zeros((60, 1), np.float32)},
        {"train_images": np.zeros((60, 16, 16, 3), np.float32)},
        {"train_images": np.zeros((60, 16), np.uint8)},
        {"train_images": np.zeros((), np.uint8)},
        {"train_images": np.zeros((), np.uint8), "train_labels": np.zeros((), np.uint8)},
        pytest.param({"train_images": np.array([None] * 60)}, marks=PICKLE),
    ],
)
def test_other_contents_are_refused(tmp_path, changed):
    write(tmp_path, **changed)
    with pytest.raises(DataError, match=r"site site-1, .*toy\.npz, train"):
        load_site(site(tmp_path), SPEC)


CUT = {"train": [0, 1, 2], "val": [3, 4], "test": [5]}
"""Indices in training images, of which other splits are parts."""


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        # Columns, which a job of one label does not have.
        (np.zeros((6, 14), np.uint8), "toy.npz, {}labels: expected"),
        (np.zeros(6, np.float32), "toy.npz{}: expected"),
        (np.zeros(5, np.uint8), "toy.npz{}: expected"),
    ],
)
@pytest.mark.parametrize("prefix", ["train_", ""])
def test_a_fault_of_training_images_is_told_once_and_of_them(tmp_path, prefix, labels, place):
    """Also where validation and test are parts of them."""
    images = np.zeros((6, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "toy.npz", **{f"{prefix}images": images, f"{prefix}labels": labels})
    file = read_site_file(site(tmp_path, indices=CUT))
    with pytest.raises(DataError) as caught:
        check_layout(file, ONE_LABEL)
    told = str(caught.value)
    name = prefix if "labels" in place else ", train" * bool(prefix)
    assert told.startswith("site site-1, ")
    assert place.format(name) in told
    assert told.count("site-1") == 1


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"text"])
@pytest.mark.parametrize("indices", [None, CUT])
def test_broken_files_are_refused(tmp_path, content, indices):
    (tmp_path / "toy.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"^site site-1, \S*toy\.npz: expected an npz file, found"):
        load_site(site(tmp_path, indices=indices), SPEC)


def test_a_file_that_is_not_there_is_named_with_its_place(tmp_path):
    with pytest.raises(
        DataError,
        match=f"field file: expected an npz file, found none at {tmp_path.resolve()}/toy.npz",
    ):
        load_site(site(tmp_path), SPEC)


def test_a_single_array_is_no_archive(tmp_path):
    with (tmp_path / "toy.npz").open("wb") as file:
        np.save(file, np.zeros((60, 16, 16), np.uint8))
    with pytest.raises(DataError, match="expected an npz file, found"):
        load_site(site(tmp_path), SPEC)


@pytest.mark.parametrize("compressed", [False, True])
def test_bit_rot_is_refused_or_changes_no_shape(tmp_path, compressed):
    """The archive's own checksum is checked only once its header and its compression have been
    understood.
    """
    path = tmp_path / "toy.npz"
    rng = np.random.default_rng(0)
    arrays = {"train_images": rng.integers(0, 9, (6, 4, 4), np.uint8), "train_labels": np.arange(6)}
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    whole = path.read_bytes()
    file = read_site_file(site(tmp_path, indices={"train": list(range(6))}))
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ rng.integers(1, 256)]) + whole[place + 1 :]
        )
        try:
            ((images, ids),) = site_images(file, ONE_LABEL)
            list(images.read(ids))
        except DataError:
            refused += 1
        else:
            assert (images.shape, len(ids)) == ((6, 4, 4), 6)
    assert refused > len(whole) / 2


def test_missing_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "toy.npz", images=np.zeros(3))
    with pytest.raises(DataError, match="no array train_images; no array train_labels"):
        load_site(site(tmp_path), SPEC)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (
            {"device": "gpu"},
            "field device: expected auto, cpu, cuda, or one GPU as in cuda:1, found 'gpu'",
        ),
        ({"device": "cuda:"}, "field device: "),
        ({"device": 0}, "field device: "),
        ({"threads": -1}, "field threads: "),
        (
            {"device": "cuda:1", "processes": 2},
            "device: auto, cuda or cpu, as several processes choose their GPUs themselves",
        ),
    ],
)
def test_a_device_and_threads_that_cannot_be_are_refused(tmp_path, fields, named):
    with pytest.raises(DataError, match=named):
        read_site_file(site(tmp_path, **fields))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "fields with values, such as `kind: manifest`, found nothing"),
        ("manifest", "a readable YAML file, found text without fields"),
        ("- kind", "a readable YAML file, found a list"),
    ],
)
def test_a_site_file_without_fields_is_refused(tmp_path, text, found):
    path = tmp_path / "site-1.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=f"site-1.*: expected {found}"):
        read_site_file(path)


def test_device_and_threads_come_with_the_data(tmp_path):
    write(tmp_path)
    data = load_site(site(tmp_path, device="cpu", threads=3), SPEC)
    assert (data.device, data.threads) == ("cpu", 3)
    assert (load_site(site(tmp_path), SPEC).device, load_site(site(tmp_path), SPEC).threads) == (
        "auto",
        1,
    )
