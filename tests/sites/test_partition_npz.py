"""An npz file of one's own in one command: ``fedward partition`` and a run on what it wrote."""

import json
import shlex
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from deciding import read_npz
from fedward import cli
from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.lab.partition.cut import partition
from fedward.lab.partition.label_choices import LabelChoices
from fedward.lab.partition.wanted import Wanted
from fedward.operation.data_spec import data_spec
from fedward.operation.next_step import next_after_doctor
from fedward.sites import load_site
from fedward.sites.check import read_sites

COUNTS = {"train": 120, "val": 24, "test": 40}


def images(count, shape=(28, 28), seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def grey(folder, **changed):
    """Write a file like BreastMNIST: two classes, grey."""
    arrays = {}
    for seed, (split, count) in enumerate(COUNTS.items()):
        arrays |= {
            f"{split}_images": images(count, seed=seed),
            f"{split}_labels": (np.arange(count) % 2)[:, None],
        }
    folder.mkdir(exist_ok=True, parents=True)
    np.savez(folder / "breast.npz", **{**arrays, **changed})
    return folder / "breast.npz"


def pooled(folder, **changed):
    """Write a file without splits: 90 images of 30 patients from two hospitals."""
    arrays = {
        "images": images(90),
        "labels": np.arange(90) // 3 % 3,
        "label_names": np.array(["cyst", "solid", "none"]),
        "groups": np.arange(90) // 3,
        "source": np.arange(90) // 3 % 2,
        "source_names": np.array(["north", "south"]),
    }
    arrays |= changed
    np.savez(
        folder / "pooled.npz",
        **{name: value for name, value in arrays.items() if value is not None},
    )
    return folder / "pooled.npz"


def sites(folder):
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))}


def loaded(folder):
    spec = DataSpec.model_validate(json.loads((folder / "data.json").read_text()))
    return {path.stem: load_site(path, spec) for path in sorted(folder.glob("*.yaml"))}


def everything(data):
    return [
        name
        for part in ("labelled", "unlabelled", "val", "test")
        for name in getattr(data, part).ids
    ]


def test_an_official_file_is_cut_and_described(tmp_path):
    text = partition(
        grey(tmp_path / "data"),
        tmp_path / "sites",
        Wanted(sites=3, classes=("benign", "malignant")),
    )
    assert json.loads((tmp_path / "sites" / "data.json").read_text()) == {
        "name": "breast",
        "classes": ["benign", "malignant"],
        "multi_label": False,
        "image_size": 28,
        "channels": 1,
        "views": "upright",
    }
    found = loaded(tmp_path / "sites")
    assert sorted(name for data in found.values() for name in everything(data)) == sorted(
        f"{split}-{row}" for split, count in COUNTS.items() for row in range(count)
    )
    for data in found.values():
        assert (len(data.labelled), len(data.unlabelled), data.rejected) == (40, 0, ())
        assert (len(data.val), data.classes) == (8, ("benign", "malignant"))
        assert set(data.test.labels.tolist()) == {0, 1}
    assert "--classes names them" not in text
    assert text.splitlines()[1].split() == [
        "site-1",
        "40",
        "40",
        "8",
        "14",
        "-",
        "2/2",
        "benign",
        "50%",
    ]
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80


def test_some_sites_have_labels_and_some_of_them(tmp_path):
    text = partition(
        grey(tmp_path), tmp_path / "sites", Wanted(sites=3, labelled=0.25, labelled_sites=2)
    )
    assert text.splitlines()[-1] == f"Next: fedward doctor {tmp_path / 'sites'}"
    spec = data_spec(tmp_path / "sites", "test")
    (line,) = next_after_doctor(tmp_path / "sites", spec)
    assert line == f"Next: fedward run isofed --site-files {tmp_path / 'sites'}"
    assert [content["labelled"] for content in sites(tmp_path / "sites").values()] == [
        0.25,
        0.25,
        0.0,
    ]
    found = loaded(tmp_path / "sites")
    assert [len(data.labelled) for data in found.values()] == [10, 10, 0]
    assert found["site-3"].unlabelled.labels[:].tolist() == [-1] * 40
    assert set(found["site-3"].val.labels[:].tolist()) == {0, 1}


def test_the_number_of_labelled_sites_moves_no_image(tmp_path):
    file = grey(tmp_path)
    cuts = []
    for count in (1, 2):
        partition(file, tmp_path / f"{count}", Wanted(sites=3, gamma=1.0, labelled_sites=count))
        cuts.append([content["indices"] for content in sites(tmp_path / f"{count}").values()])
    assert cuts[0] == cuts[1]


def test_site_files_that_are_moved_find_the_data(tmp_path):
    partition(grey(tmp_path / "data"), tmp_path / "sites", Wanted(sites=2))
    (tmp_path / "sites").rename(tmp_path / "elsewhere")
    assert [len(data.labelled) for data in loaded(tmp_path / "elsewhere").values()] == [60, 60]


@pytest.mark.parametrize("count", [-1, 4])
def test_more_labelled_sites_than_sites_are_refused(tmp_path, count):
    with pytest.raises(ConfigError, match="--labelled-sites: expected a number from 0 to 3"):
        partition(grey(tmp_path), tmp_path / "sites", Wanted(sites=3, labelled_sites=count))
    assert not (tmp_path / "sites").exists()


@pytest.mark.parametrize("resplit", [False, True])
def test_the_servers_images_are_training_images_of_the_file(tmp_path, resplit):
    """Also its validation images, although the file has arrays of validation images."""
    file = grey(tmp_path)
    out = tmp_path / "sites"
    partition(file, out, Wanted(sites=2, server=0.3, resplit=resplit))
    spec = DataSpec.model_validate(json.loads((out / "data.json").read_text()))
    names = ("server", "site-1", "site-2")
    server, *of_sites = (load_site(out / f"{name}.yaml", spec) for name in names)

    def pictures(part):
        return {pixels.tobytes() for pixels in part.pixels}

    server_pictures = pictures(server.labelled) | pictures(server.val)
    assert len(server_pictures) == len(server.labelled) + len(server.val)
    assert len(server.val) > 4
    for data in of_sites:
        for part in (data.labelled, data.val, data.test):
            assert not server_pictures & pictures(part)
    if not resplit:
        with np.load(file) as arrays:
            of_file = {picture.tobytes() for picture in arrays["train_images"]}
        assert server_pictures <= of_file


def test_the_server_of_an_earlier_cut_is_refused(tmp_path):
    """Its images are those of sites now; a server's file that is added to a finished cut stays."""
    out = tmp_path / "sites"
    file = grey(tmp_path)
    partition(file, out, Wanted(sites=2, server=0.1, oracle=True))
    assert [name for name, site in sites(out).items() if "annotation" in site] == [
        "site-1",
        "site-2",
    ]
    for path in out.glob("site-*"):
        path.unlink()
    with pytest.raises(ConfigError, match=r"server\.yaml: .*Delete it if it is of an earlier cut"):
        partition(file, out, Wanted(sites=2))
    assert not list(out.glob("site-*"))
    (out / "server.yaml").unlink()
    partition(file, out, Wanted(sites=2))
    (out / "server.yaml").write_text("kind: npz\n")
    partition(file, out, Wanted(sites=2))
    assert (out / "server.yaml").read_text() == "kind: npz\n"


@pytest.mark.parametrize("name", ["pooled", "Evaluation"])
def test_a_hospital_with_the_name_of_an_options_site_is_refused(tmp_path, name):
    file = pooled(tmp_path, source_names=np.array([name, "south"]))
    wanted = Wanted(by="source", pooled=name == "pooled", evaluate_together=name == "Evaluation")
    with pytest.raises(ConfigError, match=f"expected no site called .*found {name}"):
        partition(file, tmp_path / "sites", wanted)
    assert not (tmp_path / "sites").exists()


def test_the_pooled_site_has_its_labels(tmp_path):
    wanted = Wanted(sites=2, pooled=True, labelled_sites=1)
    with pytest.raises(ConfigError, match=r"--pooled, --labelled-sites 1: .*--labelled limits"):
        partition(grey(tmp_path), tmp_path / "sites", wanted)


def test_the_cut_that_is_offered_leaves_the_server_its_share(tmp_path, monkeypatch, capsys):
    """Also where the folder of the cut is the current one, which has no name of its own."""
    labels = np.arange(66) % 3
    file = pooled(tmp_path, labels=labels, images=images(66), groups=None, source=None)
    (tmp_path / "sites").mkdir()
    monkeypatch.chdir(tmp_path / "sites")
    partition(file, Path(), Wanted(sites=2, server=0.4))
    words = shlex.split(Path("measures_more.sh").read_text())
    assert words[-2:] == ["--out", f"{tmp_path / 'sites-measured'}"]
    assert words[words.index("--server") + 1] == "0.4"
    assert cli.main(words[1:]) == 0
    found = sites(tmp_path / "sites-measured")
    assert min(len(found[f"site-{number}"]["indices"]["train"]) for number in (1, 2)) >= 10


def test_a_file_without_splits_is_split_by_patient(tmp_path):
    file = pooled(tmp_path)
    text = partition(file, tmp_path / "sites", Wanted(sites=2, seed=4))
    found = loaded(tmp_path / "sites")
    patients = {}
    with np.load(file) as arrays:
        for site, data in found.items():
            for part in ("labelled", "val", "test"):
                images = getattr(data, part)
                for name, pixels, label in zip(
                    images.ids, images.pixels, images.labels, strict=True
                ):
                    row = int(name.split("-")[1])
                    assert (pixels[..., 0] == arrays["images"][row]).all()
                    assert data.classes[label] == arrays["label_names"][arrays["labels"][row]]
                    patients.setdefault(int(arrays["groups"][row]), set()).add((site, part))
    assert sorted(patients) == list(range(30))
    assert all(len(places) == 1 for places in patients.values())
    assert {len(data.test) for data in found.values()} <= {9, 12, 15}
    assert "counts as a patient" not in " ".join(text.split())


def test_what_is_no_array_is_left_where_it_is(tmp_path):
    path = pooled(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README.txt", "from the north")
    assert len(read_npz(path).labels) == 90


def test_each_source_becomes_a_site(tmp_path):
    partition(pooled(tmp_path), tmp_path / "sites", Wanted(by="source"))
    assert list(sites(tmp_path / "sites")) == ["north", "south"]
    rows = [
        int(name.split("-")[1]) // 3 % 2 for name in everything(loaded(tmp_path / "sites")["south"])
    ]
    assert rows == [1] * 45


def test_named_classes_are_used_and_others_left_out(tmp_path):
    text = partition(
        pooled(tmp_path), tmp_path / "sites", Wanted(sites=2, classes=("solid", "cyst"))
    )
    assert "Images of other classes, which are left out: 30 (" in text
    found = loaded(tmp_path / "sites")
    assert sum(len(everything(data)) for data in found.values()) == 60
    assert found["site-1"].classes == ("solid", "cyst")
    row = int(found["site-1"].test.ids[0].split("-")[1])
    assert found["site-1"].test.labels[0] == [1, 0][row // 3 % 3]


def test_images_called_unlabelled_have_no_label_and_train(tmp_path):
    file = pooled(tmp_path, label_names=np.array(["cyst", "Unlabelled", "none"]))
    partition(file, tmp_path / "sites", Wanted(sites=2))
    assert sites(tmp_path / "sites")["site-1"]["labels"] == {0: "cyst", 1: "", 2: "none"}
    found = loaded(tmp_path / "sites")
    assert sum(len(data.unlabelled) for data in found.values()) == 30
    assert all(data.classes == ("cyst", "none") for data in found.values())
    assert not any(data.rejected for data in found.values())


def test_numbers_name_classes_from_whichever_on(tmp_path):
    pool = read_npz(pooled(tmp_path, label_names=None, labels=np.arange(90) % 11 + 1))
    assert pool.notes == ("The labels are numbers. --classes names them, in this order.",)
    assert pool.classes == tuple(str(number) for number in range(1, 12))
    assert pool.labels.tolist() == [index % 11 for index in range(90)]


@pytest.mark.parametrize(
    ("changed", "classes", "error", "words"),
    [
        (
            {"label_names": None},
            ("a", "b"),
            ConfigError,
            "--classes: expected a name for each of the labels 0, 1, 2",
        ),
        (
            {},
            ("cyst", "nodule"),
            ConfigError,
            r"classes of the data \(cyst, none, solid\), found nodule",
        ),
        ({}, ("cyst",), ConfigError, r"--classes: expected two or more classes, found cyst\. "),
        (
            {},
            ("cyst", "cyst"),
            ConfigError,
            "--classes: expected different classes, found cyst several times. Name each class",
        ),
        (
            {"label_names": np.array(["a"])},
            (),
            DataError,
            "labels from 0 to 0.*found 1 to 2.*Complete label_names",
        ),
        ({"images": np.zeros((90, 4), np.uint8)}, (), DataError, "uint8 images"),
        ({"labels": np.zeros((90, 14, 2), int)}, (), DataError, "labels .N,. or .N, C."),
        ({"labels": None}, (), DataError, "no array labels"),
        ({"images": None}, (), DataError, "no array train_images; no array train_labels"),
        ({"groups": np.array([None] * 90)}, (), DataError, "an npz file of arrays"),
    ],
)
def test_other_files_are_refused(tmp_path, changed, classes, error, words):
    with pytest.raises(error, match=words):
        partition(pooled(tmp_path, **changed), tmp_path / "sites", Wanted(sites=2, classes=classes))
    assert not (tmp_path / "sites").exists()


def test_a_patient_in_two_splits_is_refused(tmp_path):
    groups = {
        f"{split}_patient": np.arange(count) + 1000 * len(split) for split, count in COUNTS.items()
    }
    groups["test_patient"] += 5000
    assert read_npz(grey(tmp_path, **groups)).grouped
    groups["val_patient"][3] = 5005
    with pytest.raises(
        DataError, match=r"each group .* in one split, found 1 in several, such as 5005"
    ):
        read_npz(grey(tmp_path, **groups))
    file = grey(tmp_path, **groups)
    partition(file, tmp_path / "sites", Wanted(sites=2, resplit=True))
    # The images are counted through all splits of the file.
    patients = np.concatenate([groups[f"{split}_patient"] for split in COUNTS])
    places = {}
    for path in (tmp_path / "sites").glob("site-*.yaml"):
        for split, rows in yaml.safe_load(path.read_text())["indices"].items():
            for row in rows:
                places.setdefault(patients[row], set()).add((path.stem, split))
    assert len(places) == len(set(patients))
    assert all(len(found) == 1 for found in places.values())


@pytest.mark.parametrize(
    "unknown",
    [np.nan, -1, "", "nan", "NaN", " ", "unknown", b"", b"n/a", np.datetime64("NaT", "D")],
)
def test_images_of_unknown_patients_are_each_on_their_own(tmp_path, unknown):
    """They are no patient who has to stay in one split."""
    unknown_images = {"train": [0, 7], "val": [2], "test": [3, 4]}
    columns = {}
    for split, count in COUNTS.items():
        names = np.array([f"{split}-p{index // 2}" for index in range(count)])
        if isinstance(unknown, bytes):
            names = names.astype("S")
        elif not isinstance(unknown, str):
            start = 1000 * len(split) + ord(split[0])
            names = (start + np.arange(count) // 2).astype(np.array(unknown).dtype)
        names[unknown_images[split]] = unknown
        columns[f"{split}_patient"] = names
    pool = read_npz(grey(tmp_path, **columns))
    assert pool.grouped
    ids = [f"{split}-{index}" for split, count in COUNTS.items() for index in range(count)]
    alone = {f"{split}-{index}" for split, own in unknown_images.items() for index in own}
    for row, name in enumerate(ids):
        assert (pool.groups[row] == name) == (name in alone)
    assert pool.groups[:4] == ["train-0", *[pool.groups[1]], *[pool.groups[2]] * 2]
    assert pool.groups[ids.index("val-22")] == pool.groups[ids.index("val-23")]


def test_groups_that_tear_patients_are_refused(tmp_path):
    batches = np.arange(90) % 3
    patients = np.arange(90) // 3
    file = pooled(tmp_path, groups=batches, patient=patients)
    with pytest.raises(DataError) as refused:
        read_npz(file)
    assert refused.value.found == "patient, whose images would not stay together"
    assert "call it patient, and leave out groups." in refused.value.remedy
    with pytest.raises(DataError, match=r"found MRN, .* names patients, call it patient\. If"):
        read_npz(pooled(tmp_path, groups=None, MRN=patients))
    families = pooled(tmp_path, groups=np.arange(90) // 9, patient=patients)
    assert set(read_npz(families).groups) == {f"{family}" for family in range(10)}


def test_columns_of_groups_are_known_as_those_of_a_csv(tmp_path):
    """However they are spelt, and with a lesion in place of an unknown patient."""
    patients = np.array(["", "P1", "P1", "P2", *[""] * 86])
    lesions = np.array(["7", "8", "7", "9", *["5"] * 2, *[""] * 84])
    arrays = {"groups": None, "Patient ID": patients, "Lesion-ID": lesions}
    pool = read_npz(pooled(tmp_path, **arrays))
    assert pool.groups[:6] == ["P1", "P1", "P1", "P2", *["Lesion-ID 5"] * 2]
    assert pool.groups[6:] == [f"train-{row}" for row in range(6, 90)]
    assert "Images without Patient ID that stay together by Lesion-ID: 3." in pool.notes
    with pytest.raises(DataError) as refused:
        read_npz(pooled(tmp_path, **arrays, patient_id=patients))
    assert refused.value.expected == "one column of the name patient_id"
    assert refused.value.found == "Patient ID and patient_id"


def test_a_file_that_knows_no_patient_has_no_groups(tmp_path):
    pool = read_npz(pooled(tmp_path, groups=np.full(90, np.nan)))
    assert not pool.grouped
    assert pool.groups == [f"train-{index}" for index in range(90)]


def test_patients_are_numbered_past_the_codes_for_an_absent_value(tmp_path):
    """99 and 255 stand for no label elsewhere; their images would be torn apart."""
    count = 600
    arrays = {"images": images(count), "labels": np.arange(count) % 3, "source": None}
    pool = read_npz(pooled(tmp_path, **arrays, groups=np.arange(count) // 2))
    assert pool.groups == [f"{index // 2}" for index in range(count)]


def test_an_image_without_a_hospital_has_none_of_the_names(tmp_path):
    source = np.arange(90) // 3 % 2
    source[:6] = [-1, -1, -1, -2, -2, -2]
    file = pooled(tmp_path, source=source)
    assert read_npz(file).columns["source"][:9] == [""] * 6 + ["north"] * 3
    text = partition(file, tmp_path / "sites", Wanted(by="source"))
    assert "- 6: no value in source: train-" in text
    indices = [site["indices"] for site in sites(tmp_path / "sites").values()]
    used = sorted(index for own in indices for split in own.values() for index in split)
    assert used == list(range(6, 90))


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.uint64])
def test_numbers_are_names_in_all_splits_or_in_none(tmp_path, dtype):
    """A test image of a hospital beyond the names: no hospital has a name and a number."""
    columns = {
        f"{split}_source": (np.arange(count) % 2).astype(dtype) for split, count in COUNTS.items()
    }
    names = np.array([["north"], ["south"]])
    pool = read_npz(grey(tmp_path, **columns, source_names=names))
    assert set(pool.columns["source"]) == {"north", "south"}
    columns["test_source"] = columns["test_source"] + 1
    pool = read_npz(grey(tmp_path, **columns, source_names=names))
    assert set(pool.columns["source"]) == {"0", "1", "2"}


def test_names_in_bytes_are_names(tmp_path):
    names = np.array(["Zürich".encode(), b"B\xe2le"])
    pool = read_npz(pooled(tmp_path, source_names=names, label_names=np.array([b"a", b"b", b"c"])))
    assert pool.classes == ("a", "b", "c")
    assert set(pool.columns["source"]) == {"Zürich", "B\\xe2le"}


def test_a_column_of_a_wrong_length_is_refused_with_all_others(tmp_path):
    """Its images would have no patient, and the patients of the training images might be there."""
    columns = {
        f"{split}_patient": 1000 * len(split) + np.arange(count) for split, count in COUNTS.items()
    }
    columns["test_patient"] = columns["test_patient"][:-1]
    columns |= {"train_age": np.arange(120), "val_age": np.zeros((24, 2)), "test_age": np.array(5)}
    columns |= {"train_mean": np.zeros(3), "val_mean": np.zeros(3)}
    with pytest.raises(DataError) as caught:
        read_npz(grey(tmp_path, **columns))
    assert str(caught.value) == (
        f"{tmp_path / 'breast.npz'}: expected a value for each image: 24 in val_age, 40 in "
        "test_age, 40 in test_patient, found (24, 2) in val_age, () in test_age, 39 in "
        "test_patient. Write these arrays again, or leave them out."
    )
    for name in ("test_patient", "val_age", "test_age"):
        del columns[name]
    pool = read_npz(grey(tmp_path, **columns))
    assert pool.columns["age"][118:122] == ["118", "119", "", ""]
    assert "mean" not in pool.columns


@pytest.mark.parametrize("groups", [np.arange(89), np.zeros((90, 2), int), np.array(1)])
def test_groups_that_are_not_one_for_each_image_are_refused(tmp_path, groups):
    """Each image would count as a patient."""
    found = r"a value for each image: 90 in groups, found .* in groups\. Write these arrays again"
    with pytest.raises(DataError, match=found):
        read_npz(pooled(tmp_path, groups=groups))


def test_files_of_another_cut_are_kept(tmp_path):
    file = grey(tmp_path)
    out = tmp_path / "sites"
    first = partition(file, out, Wanted(sites=3))
    assert partition(file, out, Wanted(sites=3)) == first
    before = {path: path.read_bytes() for path in out.iterdir()}
    for other, words in (
        (
            Wanted(sites=3, seed=1),
            "found site-1.yaml.*another cut: delete it, or name another --out",
        ),
        (Wanted(sites=2), "site-3.yaml"),
        (Wanted(sites=3, labelled=0.5), "site-1.yaml"),
        (Wanted(sites=3, gamma=1.0), "site-1.yaml, of another cut or edited by hand"),
    ):
        with pytest.raises(ConfigError, match=words):
            partition(file, out, other)
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("title", ["", "x" * 61, "two\nlines"])
def test_a_title_that_no_run_would_take_is_refused(tmp_path, title):
    with pytest.raises(ConfigError, match="expected titles of 1 to 60 printable characters"):
        partition(grey(tmp_path), tmp_path / "sites", Wanted(sites=2, titles={"0": title}))
    assert not (tmp_path / "sites" / "data.json").exists()


def test_from_a_file_to_a_run_in_two_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grey(tmp_path)
    words = [
        "partition",
        "breast.npz",
        "--sites",
        "2",
        "--dirichlet",
        "2",
        "--out",
        "sites",
        "--classes",
        "no",
        "yes",
        "--titles",
        "yes=benign or none",
    ]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[-1] == "Next: fedward doctor sites"
    small = ["rounds=1", "images_per_round=8", "batch=4", "net=small_cnn", "data.image_size=16"]
    changes = [word for change in small for word in ("--set", change)]
    assert cli.main(["run", "fedavg", "--site-files", "sites", *changes, "--out", "run"]) == 0
    said = (
        "images as in sites/data.json, but image_size by --set: 2 classes, 16 pixels,\n"
        "grey, views upright\n"
    )
    assert capsys.readouterr().out.startswith(said)
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["experiment"]["data"] == {
        "name": "breast",
        "classes": ["no", "yes"],
        "titles": {"yes": "benign or none"},
        "card": {},
        "multi_label": False,
        "image_size": 16,
        "channels": 1,
        "views": "upright",
        "evaluate_by": "image",
    }


@pytest.mark.parametrize(
    "content", ["[1]", "{", "", "[" * 100_000, '{"image_size": 16, "image_size": 32}']
)
def test_a_damaged_data_file_is_refused(tmp_path, capsys, content):
    partition(grey(tmp_path), tmp_path / "sites", Wanted(sites=2))
    (tmp_path / "sites" / "data.json").write_text(content)
    assert (
        cli.main(
            [
                "run",
                "fedavg",
                "--site-files",
                str(tmp_path / "sites"),
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 1
    )
    assert "data.json: expected a JSON object" in capsys.readouterr().err


def test_all_faults_of_the_arrays_are_in_one_message(tmp_path):
    """Also those that a run would find at a site, before it opens an image."""
    pictures = np.random.default_rng(0).random((12, 8, 8)).astype(np.float32)
    pictures[3, 2] = np.nan
    names = np.array(["cyst", "none"])
    arrays = {
        "train_images": pictures,
        "train_labels": np.array([*[0.0] * 11, np.nan]),
        "val_images": np.zeros((9, 8, 8, 3), np.uint8),
        "val_labels": np.arange(8),
        "test_images": np.zeros((9, 8, 8), np.uint8),
    }
    file = tmp_path / "broken.npz"
    np.savez(file, **arrays, label_names=names)
    faults = [
        "images float32 (12, 8, 8), of which 1 image with NaN or infinity",
        "labels float64 (12,), of which 1 are NaN",
        "9 images and 8 labels",
        "no array test_labels",
    ]
    with pytest.raises(DataError, match="3 things must be fixed") as error:
        partition(file, tmp_path / "sites", Wanted(sites=2))
    assert all(fault in str(error.value) for fault in faults)
    site = tmp_path / "site-1.yaml"
    site.write_text(f"kind: npz\nfile: {file}\nlabels: {{0: cyst, 1: none}}\n")
    spec = DataSpec(classes=("cyst", "none"), image_size=16, channels=1)
    problem = read_sites(["site-1"], [tmp_path], spec).problems["site-1"]
    assert all(fault in problem for fault in faults)


def test_only_images_that_a_site_gets_are_counted_as_those_without_a_patient(tmp_path):
    patients = np.array([f"P{index // 3}" for index in range(90)])
    patients[:6] = ""
    pictures = images(90)
    pictures[:2] = 0
    file = pooled(tmp_path, images=pictures, groups=patients)
    text = " ".join(partition(file, tmp_path / "sites", Wanted(sites=2)).split())
    assert "Listed: 90 images. Used: 88." in text
    assert "Images without a patient or lesion, each of which counts as a patient: 4." in text


def test_blank_images_and_pictures_of_two_labels_are_no_site_s(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (90, 8, 8, 3), np.uint8)
    images[4] = 7
    images[33] = images[5]  # Image 5 has label 1, and image 33 label 2.
    file = pooled(tmp_path, images=images)
    with pytest.raises(DataError, match=r"1 picture with several: train-5 .* and train-33 "):
        partition(file, tmp_path / "sites", Wanted(sites=2))
    text = partition(file, tmp_path / "sites", Wanted(sites=2, contradicting="left-out"))
    assert "Listed: 90 images. Used: 87. Left out: 3, " in text
    assert "- 1: a blank image: every pixel is the same: train-4" in text
    assert "- 2: a picture with several labels, left out as decided: train-5, train-33" in text
    used = {
        index
        for site in sites(tmp_path / "sites").values()
        for split in site["indices"].values()
        for index in split
    }
    assert used == set(range(90)) - {4, 5, 33}


@pytest.mark.parametrize("seed", range(4))
def test_no_copy_of_a_picture_leaks_where_splits_are_made(tmp_path, seed):
    """Ten pictures are there three times each; all other images stay."""
    pictures = images(90)
    pictures[40:50] = pictures[70:80] = pictures[:10]
    path = pooled(tmp_path, images=pictures, groups=None, labels=np.arange(90) % 10 % 3)
    said = partition(path, tmp_path / "out", Wanted(sites=3, seed=seed))
    splits_of, rows = {}, set()
    for site in sites(tmp_path / "out").values():
        for split, used in site["indices"].items():
            rows.update(used)
            for row in used:
                splits_of.setdefault(pictures[row].tobytes(), set()).add(split)
    assert all(len(splits) == 1 for splits in splits_of.values())
    assert len(splits_of) == 70, "of each picture some copy stays"
    left_out = 90 - len(rows)
    assert left_out > 0
    reason = "a copy of a picture in another of training, validation and test"
    assert f"- {left_out}: {reason}: " in " ".join(said.split())


@pytest.mark.parametrize("given", [False, True])
def test_no_copy_leaks_to_the_server_or_a_split_that_is_drawn(tmp_path, given):
    """The server validates on some of its images; a file may lack its validation split alone."""
    pictures = np.concatenate([images(60), images(60)])
    if given:
        arrays = {"train_images": pictures, "test_images": pictures[:40]}
        arrays |= {
            f"{split}_labels": np.arange(n) % 2 for split, n in (("train", 120), ("test", 40))
        }
        (tmp_path / "in").mkdir()
        path = tmp_path / "in" / "breast.npz"
        np.savez(path, **arrays)
    else:
        path = pooled(
            tmp_path, images=pictures, groups=None, source=None, labels=np.arange(120) % 3
        )
    partition(path, tmp_path / "out", Wanted(sites=2, server=0.3, seed=1))
    splits_of = {}
    for site in sites(tmp_path / "out").values():
        for split in ("train", "val"):
            for row in site["indices"].get(split, []):
                splits_of.setdefault(pictures[row].tobytes(), set()).add(split)
    assert splits_of
    assert all(len(splits) == 1 for splits in splits_of.values())


def test_a_site_that_loses_its_tenth_image_as_a_copy_is_refused(tmp_path):
    pictures = images(24)
    pictures[12:] = pictures[:12]
    path = pooled(
        tmp_path, images=pictures, groups=None, source=None, labels=np.arange(24) % 12 % 3
    )
    with pytest.raises(
        ConfigError, match=r"at least 10 training images.*Name fewer sites, or leave"
    ):
        partition(path, tmp_path / "out", Wanted(sites=1, seed=6))


def test_a_class_of_one_picture_is_said_to_be_lost(tmp_path):
    """Its first row is in the test split by some seed, and then all training images are copies."""
    pictures = images(90)
    labels = np.arange(90) % 3
    pictures[labels == 2] = pictures[2]
    path = pooled(tmp_path, images=pictures, groups=None, source=None, labels=labels)
    told = {}
    for seed in range(8):
        out = tmp_path / f"{seed}"
        told[seed] = " ".join(partition(path, out, Wanted(sites=2, seed=seed)).split())
        trained = {labels[row] for site in sites(out).values() for row in site["indices"]["train"]}
        note = (
            "No training image of none is left, so that no model can learn it: all are copies of "
            "pictures in validation or test, and were left out. Add other pictures of it, leave it "
            "out (--classes cyst solid), or draw the splits by another --seed."
        )
        assert (note in told[seed]) == (2 not in trained)
    lost = ["No training image of" in text for text in told.values()]
    assert any(lost)
    assert not all(lost)


def test_a_class_that_the_server_alone_trains_on_is_not_lost(tmp_path):
    pictures = images(90)
    labels = np.arange(90) % 3
    copies = np.flatnonzero(labels == 2)[:-1]
    pictures[copies] = pictures[2]
    path = pooled(tmp_path, images=pictures, groups=None, source=None, labels=labels)
    at_server_alone = 0
    for seed in range(30):
        out = tmp_path / f"{seed}"
        told = partition(path, out, Wanted(sites=1, server=0.2, seed=seed))
        rows = {site: file["indices"]["train"] for site, file in sites(out).items()}
        of_sites = {labels[row] for site, own in rows.items() if site != "server" for row in own}
        of_server = {labels[row] for row in rows["server"]}
        assert ("No training image of" in told) == (2 not in of_sites | of_server)
        at_server_alone += 2 in of_server - of_sites
    assert at_server_alone


def test_a_new_cut_removes_the_command_of_an_earlier_one(tmp_path):
    file = pooled(tmp_path)
    out = tmp_path / "sites"
    partition(file, out, Wanted(sites=2, test=0.01))
    assert (out / "measures_more.sh").exists()
    for path in out.glob("*.yaml"):
        path.unlink()
    partition(file, out, Wanted(sites=2, evaluate_together=True))
    assert not (out / "measures_more.sh").exists()


def test_copies_in_given_splits_stay(tmp_path):
    """The numbers of others on the same splits stay comparable; the doctor says that they leak."""
    tests = images(40, seed=2)
    tests[:5] = images(120)[:5]
    labels = np.concatenate([np.arange(5) % 2, np.arange(35) % 2])[:, None]
    path = grey(tmp_path / "in", test_images=tests, test_labels=labels)
    partition(path, tmp_path / "out", Wanted(sites=2))
    tested = [len(site["indices"]["test"]) for site in sites(tmp_path / "out").values()]
    assert sum(tested) == 40


def test_a_number_that_may_be_no_label_is_decided(tmp_path):
    labels = np.where(np.arange(60) % 6 == 0, -1, np.arange(60) % 2)
    np.savez(tmp_path / "a.npz", images=images(60), labels=labels)
    with pytest.raises(DataError, match=r"found -1 \(10\)\. .*--labels=-1="):
        read_npz(tmp_path / "a.npz")
    choices = LabelChoices({"-1": ""})
    assert read_npz(tmp_path / "a.npz", ["x", "y"], choices=choices).classes == ("x", "y")
    partition(tmp_path / "a.npz", tmp_path / "sites", Wanted(sites=1, choices=choices))
    site = load_site(
        tmp_path / "sites" / "site-1.yaml", DataSpec(classes=("0", "1"), image_size=28, channels=1)
    )
    numbers = {place: int(name.partition("-")[2]) for place, name in enumerate(site.labelled.ids)}
    assert [labels[numbers[place]] for place in numbers] == site.labelled.labels.tolist()
    assert {int(name.partition("-")[2]) % 6 for name in site.unlabelled.ids} == {0}


@pytest.mark.parametrize(
    ("changed", "meanings", "words"),
    [
        ({"label_names": None}, {"2": ""}, "a name for each of the labels 0, 1, found x, y, z"),
        ({"label_names": None}, {"7": ""}, r"labels of the data \(0, 1, 2\), found 7"),
        ({}, {"2": ""}, "--labels: expected numbers without names as labels, found names in "),
        (
            {"label_names": None, "labels": np.arange(270).reshape(90, 3) % 4 % 2},
            {"2": ""},
            "--labels: expected numbers without names as labels, found findings",
        ),
    ],
)
def test_no_decision_on_labels_is_passed_over(tmp_path, changed, meanings, words):
    names = ["cyst", "solid", "none"] if changed == {} else ["x", "y", "z"]
    with pytest.raises(ConfigError, match=words):
        read_npz(pooled(tmp_path, **changed), names, LabelChoices(meanings))


@pytest.mark.parametrize("classes", [(), ("cyst", "solid")])
def test_findings_of_one_name_are_refused(tmp_path, classes):
    """Sites would take them for one finding, and the cut would count the last column alone."""
    labels = np.random.default_rng(0).integers(0, 2, (90, 3))
    file = pooled(tmp_path, labels=labels, label_names=np.array(["cyst", "cyst", "solid"]))
    with pytest.raises(DataError, match=r"label_names: expected different .* found cyst several"):
        read_npz(file, classes)


def test_findings_that_are_neither_0_nor_1_are_left_out_or_refused(tmp_path):
    """Sites could not read them. -1 for all of them says that an image has no label."""
    labels = np.random.default_rng(0).integers(0, 2, (90, 3))
    labels[:2] = [[1, 1, 0], [0, 0, 0]]
    labels[[4, 7, 9]] = [[0, 2, 1], [-1, 1, 0], [-1, -1, -1]]
    file = pooled(tmp_path, label_names=None, labels=labels)
    pool = read_npz(file)
    used = np.delete(np.arange(90), [4, 7])
    assert pool.labels.tolist() == labels[used].tolist()
    assert pool.columns["source"] == [["north", "south"][place // 3 % 2] for place in used]
    wrong = "expected 0 or 1 for each finding, or -1 for all of them, found "
    assert pool.left_out == (
        (("train-4", None), f"{wrong}[0, 2, 1]"),
        (("train-7", None), f"{wrong}[-1, 1, 0]"),
    )
    partition(file, tmp_path / "sites", Wanted(sites=2))
    assert not any(data.rejected for data in loaded(tmp_path / "sites").values())
    labels[10:20, 1] = -1
    with pytest.raises(DataError, match=r"found 12 of 90 that cannot: image .* Write 0 or 1"):
        partition(pooled(tmp_path, label_names=None, labels=labels), tmp_path, Wanted(sites=2))


def test_one_hot_labels_are_one_class_unless_they_are_findings(tmp_path):
    hot = np.eye(3, dtype=int)[np.arange(60) % 3]
    np.savez(tmp_path / "a.npz", images=images(60), labels=hot)
    assert read_npz(tmp_path / "a.npz").labels.tolist() == [0, 1, 2] * 20
    several = read_npz(tmp_path / "a.npz", choices=LabelChoices(kind="several"))
    assert several.labels.tolist() == hot.tolist()
    partition(tmp_path / "a.npz", tmp_path / "sites", Wanted(sites=1))
    spec = DataSpec(classes=("0", "1", "2"), image_size=28, channels=1)
    test = load_site(tmp_path / "sites" / "site-1.yaml", spec).test
    assert [int(name.partition("-")[2]) % 3 for name in test.ids] == test.labels.tolist()
