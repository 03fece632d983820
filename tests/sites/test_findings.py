"""Images that show several classes, or none: how sites write it, and what becomes of it."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from fedward import cli
from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted
from fedward.labels import class_counts, known, strata
from fedward.operation.next_step import next_after_doctor
from fedward.sites import Images, load_site
from fedward.sites.check import read_sites
from fedward.sites.doctor import examine, run
from findings import FINDINGS, SPEC, write_findings

LABELS = np.array([[1, 1, 0], [0, 0, 0], [-1, -1, -1], [1, 0, 0], [0, 1, 0], [1, 0, 1]])


def write_csv(folder: Path, header: str, *rows: str, **fields: object) -> Path:
    """Write a site of images 0.png, 1.png and so on, which a row each begins with; all train, but
    for their splits.
    """
    rng = np.random.default_rng(1)
    for number in range(len(rows)):
        Image.fromarray(rng.integers(0, 255, (16, 16), np.uint8)).save(folder / f"{number}.png")
    lines = [f"{number}.png,{number}.png,train,{row}" for number, row in enumerate(rows)]
    (folder / "manifest.csv").write_text(
        "\n".join([f"sample_id,image,split,{header}", *lines]) + "\n"
    )
    content = {
        "kind": "manifest",
        "folder": ".",
        "columns": {"group": None},
        "max_rejected": 1.0,
        **fields,
    }
    (folder / "site-1.yaml").write_text(yaml.safe_dump(content))
    return folder / "site-1.yaml"


def read(file: Path) -> tuple[dict[str, list[int]], list[str], dict[str, str]]:
    """Return id -> label of the labelled images, ids of the unlabelled ones, and id -> reason of
    the rejected.
    """
    data = load_site(file, SPEC)
    labels = dict(zip(data.labelled.ids, data.labelled.labels.tolist(), strict=True))
    return labels, list(data.unlabelled.ids), {row.sample_id: row.reason for row in data.rejected}


def test_an_empty_cell_is_no_label_and_no_finding_is_one(tmp_path):
    rows = ["Mass", "Edema | Mass", "No Finding", "", "mass|Edema", "Nodule", "Edema|No Finding"]
    labels, unlabelled, rejected = read(write_csv(tmp_path, "label", *rows))
    assert labels == {"0.png": [1, 0, 0], "1.png": [1, 1, 0], "2.png": [0, 0, 0]}
    assert unlabelled == ["3.png"]
    assert rejected == {
        "4.png": "expected a class of the job (Mass, Edema, Hernia), found 'mass|Edema' "
        '(if it is Mass, write labels: {"mass": "Mass"} into the site file)',
        "5.png": "expected a class of the job (Mass, Edema, Hernia), found 'Nodule' (if it is for "
        "example Hernia, write labels: {'Nodule': \"Hernia\"} into the site file)",
        "6.png": "expected No Finding alone, found 'Edema|No Finding'",
    }


def test_words_of_a_site_lead_to_classes_to_nothing_or_to_none(tmp_path):
    said = {"Oedem": "Edema", "o.B.": "No Finding", "Nodule": "No Finding", "unsure": ""}
    rows = ["Oedem|Nodule", "o.B.", "Nodule", "unsure", "unsure|Mass", "artefact|Mass"]
    file = write_csv(tmp_path, "label", *rows, labels=said, ignore_labels=["artefact"])
    labels, unlabelled, rejected = read(file)
    assert labels == {
        "0.png": [0, 1, 0],
        "1.png": [0, 0, 0],
        "2.png": [0, 0, 0],
        "4.png": [1, 0, 0],
    }
    assert unlabelled == ["3.png"]
    assert not rejected


COLUMNS = {"label": ["Mass", "Oedem", "Hernia", "No Finding"], "group": None}


def test_a_column_for_each_finding(tmp_path):
    rows = [
        "1,0,0,0",
        "1.0,1.0,0.0,0",
        "0,0,0,1",
        "0,0,0,0",
        ",,,",
        "1,,0,0",
        "1,0,-1.0,0",
        "1,0,0,1",
    ]
    file = write_csv(
        tmp_path, "Mass,Oedem,Hernia,No Finding", *rows, columns=COLUMNS, labels={"Oedem": "Edema"}
    )
    labels, unlabelled, rejected = read(file)
    none = [0, 0, 0]
    assert labels == {"0.png": [1, 0, 0], "1.png": [1, 1, 0], "2.png": none, "3.png": none}
    assert unlabelled == ["4.png"]
    expected = "expected 0 or 1 for each finding, or an empty cell for all of them, found"
    assert rejected == {
        "5.png": f"{expected} '' for Oedem "
        '(for not mentioned, write blank: "negative" or "unlabelled")',
        "6.png": f"{expected} '-1.0' for Hernia "
        '(for uncertain, write uncertain: "positive", "negative" or "unlabelled")',
        "7.png": "expected No Finding alone, found 'Mass|No Finding'",
    }


def test_a_class_without_a_column_is_refused(tmp_path):
    columns = {"label": ["Mass", "Hernia"], "group": None}
    with pytest.raises(
        DataError, match="a column for each of Mass, Edema, Hernia, found none for Edema"
    ):
        load_site(write_csv(tmp_path, "Mass,Hernia", "1,0", columns=columns), SPEC)


@pytest.mark.parametrize("name", ["No Finding", "Mass|Edema"])
def test_names_that_say_something_else_are_no_classes(tmp_path, name):
    spec = SPEC.model_copy(update={"classes": ("Mass", name)})
    with pytest.raises(DataError, match=r"no class No Finding and no \| in its name"):
        load_site(write_csv(tmp_path, "label", "Mass"), spec)


def test_the_rarest_class_divides(tmp_path):
    """Mass is in three images, Edema in two, Hernia in one; no class is the class 3."""
    assert strata(LABELS).tolist() == [1, 3, -1, 0, 1, 2]
    assert class_counts(LABELS, 3).tolist() == [3, 2, 1]
    assert known(LABELS).tolist() == [True, True, False, True, True, True]
    single = np.array([2, -1, 0])
    assert strata(single) is single
    assert class_counts(single, 3).tolist() == [1, 0, 1]


def test_labels_that_come_later(tmp_path):
    data = load_site(write_findings(tmp_path, labelled=0.0) / "site-1.yaml", SPEC)
    assert data.labelled.labels.shape == (0, 3)
    first, second = data.unlabelled.ids[:2]
    found = data.with_labels({second: [0, 0, 0], first: (1, 0, 1)})
    assert dict(zip(found.labelled.ids, found.labelled.labels.tolist(), strict=True)) == {
        first: [1, 0, 1],
        second: [0, 0, 0],
    }
    assert len(found.unlabelled) == len(data.unlabelled) - 2
    assert (found.unlabelled.labels == -1).all()
    assert len(found.with_labels({}).labelled) == 0


def test_an_npz_file_is_read_whole(tmp_path):
    folder = write_findings(tmp_path, sites=1, labelled=1.0)
    data = load_site(folder / "site-1.yaml", SPEC)
    arrays = np.load(tmp_path / "chest.npz")
    for images, split in ((data.labelled, "train"), (data.val, "val"), (data.test, "test")):
        wanted = {
            f"{split}-{index}": row for index, row in enumerate(arrays[f"{split}_labels"].tolist())
        }
        assert dict(zip(images.ids, images.labels.tolist(), strict=True)) == wanted
    assert not len(data.unlabelled)


def test_a_share_of_labels_is_that_of_each_class(tmp_path):
    data = load_site(write_findings(tmp_path, sites=1) / "site-1.yaml", SPEC)
    assert len(data.labelled) == 45
    whole = np.load(tmp_path / "chest.npz")["train_labels"].sum(axis=0)
    assert np.abs(data.labelled.labels.sum(axis=0) - whole / 2).max() <= 6
    assert data.labelled.labels.sum(axis=0)[2] >= 1, "the rare class is seen"


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([2, 0, 0], "0 or 1 in each column, or -1 in all of them, found [2, 0, 0]"),
        ([-1, 0, 0], "found [-1, 0, 0]"),
    ],
)
def test_other_numbers_are_rejected(tmp_path, labels, reason):
    folder = write_findings(tmp_path, sites=1, labelled=1.0)
    arrays = dict(np.load(tmp_path / "chest.npz"))
    arrays["train_labels"] = arrays["train_labels"].astype(np.int64)
    arrays["train_labels"][7], arrays["train_labels"][8] = labels, -1
    np.savez(tmp_path / "chest.npz", **arrays)
    data = load_site(folder / "site-1.yaml", SPEC)
    assert data.unlabelled.ids == ("train-8",)
    (row,) = data.rejected
    assert row.sample_id == "train-7"
    assert reason in row.reason


def test_the_other_kind_of_labels_is_refused_before_a_run(tmp_path):
    folder = write_findings(tmp_path)
    single = SPEC.model_copy(update={"multi_label": False})
    found = read_sites(["site-1"], [folder], single).problems["site-1"]
    assert "expected one label an image (N,), found (90, 3)" in found
    assert "set data.multi_label=true" in found
    assert not read_sites(["site-1", "site-2"], [folder], SPEC).problems
    arrays = dict(np.load(tmp_path / "chest.npz"))
    np.savez(
        tmp_path / "chest.npz",
        **{k: v[:, :1] if k.endswith("labels") else v for k, v in arrays.items()},
    )
    assert (
        "expected 0 or 1 for each class (N, C), found (90,)"
        in read_sites(["site-1"], [folder], SPEC).problems["site-1"]
    )


def test_every_column_of_a_file_is_named(tmp_path):
    folder = write_findings(tmp_path, labels={0: "Mass", 1: "Edema", 3: "Hernia"})
    with pytest.raises(DataError, match="the class of each column from 0 to 2, found 0, 1, 3"):
        load_site(folder / "site-1.yaml", SPEC)
    spec = SPEC.model_copy(update={"classes": ("Hernia", "Mass")})
    folder = write_findings(tmp_path, sites=1, labelled=1.0, labels={0: "Mass", 1: "", 2: "Hernia"})
    arrays = np.load(tmp_path / "chest.npz")
    assert (
        load_site(folder / "site-1.yaml", spec).test.labels == arrays["test_labels"][:, [2, 0]]
    ).all()


def test_the_doctor_counts_each_finding(tmp_path, capsys):
    folder = write_findings(tmp_path, sites=1)
    report = examine(folder / "site-1.yaml", SPEC)
    test = np.load(tmp_path / "chest.npz")["test_labels"]
    cells = {line.split()[0]: line.split() for line in report.text().splitlines() if line}
    assert [int(cells[name][3]) for name in FINDINGS] == test.sum(axis=0).tolist()
    assert int(cells["No"][4]) == (test == 0).all(axis=1).sum()
    assert run(folder / "site-1.yaml", SPEC, tmp_path) == 0
    assert (tmp_path / "site-1-contact-sheet.png").stat().st_size
    assert "No Finding" in capsys.readouterr().out


def test_a_file_of_columns_is_cut(tmp_path):
    write_findings(tmp_path)
    text = partition(
        tmp_path / "chest.npz", tmp_path / "cut", Wanted(sites=2, classes=FINDINGS, labelled=0.5)
    )
    assert "An image may show several of the classes, or none." in text
    said = json.loads((tmp_path / "cut" / "data.json").read_text())
    assert (said["classes"], said["multi_label"]) == (list(FINDINGS), True)
    loaded = [load_site(tmp_path / "cut" / f"site-{number}.yaml", SPEC) for number in (1, 2)]
    for split in ("val", "test"):
        both = [getattr(data, split) for data in loaded]
        ids = sorted(name for images in both for name in images.ids)
        assert ids == sorted(f"{split}-{index}" for index in range({"val": 60, "test": 80}[split]))
        first, second = (images.labels.sum(axis=0) for images in both)
        assert np.abs(first - second).max() <= 8, "each finding is at both sites"
    lines = {
        line.split()[0]: line.split() for line in text.splitlines() if line.startswith("site-")
    }
    assert [int(lines[data.site][2]) for data in loaded] == [len(data.labelled) for data in loaded]


def csv_of_images(folder: Path, header: str, labels: Sequence[str]) -> Path:
    """Write 60 images, and a CSV that lists them with the labels in turn."""
    rng = np.random.default_rng(2)
    lines = [header]
    for number in range(60):
        Image.fromarray(rng.integers(0, 255, (16, 16), np.uint8)).save(folder / f"{number}.png")
        lines.append(f"{number}.png,{labels[number % len(labels)]}")
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    return folder / "list.csv"


def test_a_csv_with_several_findings_is_cut(tmp_path):
    words = ["Mass", "Edema|Mass", "No Finding", "Nodule", "", "Nodule|Edema"]
    cut = Wanted(sites=2, classes=("Mass", "Edema"), columns={"label": "Finding Labels"})
    text = partition(csv_of_images(tmp_path, "image,Finding Labels", words), tmp_path / "cut", cut)
    assert "Findings that are left out: Nodule. An image with these alone shows none." in " ".join(
        text.split()
    )
    spec = SPEC.model_copy(update={"classes": ("Mass", "Edema")})
    parts: list[Images] = []
    for number in (1, 2):
        data = load_site(tmp_path / "cut" / f"site-{number}.yaml", spec)
        assert not data.rejected
        parts += [data.labelled, data.unlabelled, data.val, data.test]
    found = {
        name: row
        for part in parts
        for name, row in zip(part.ids, part.labels.tolist(), strict=True)
    }
    wanted = [[1, 0], [1, 1], [0, 0], [0, 0], [-1, -1], [0, 1]]
    assert found == {f"{number}.png": wanted[number % len(words)] for number in range(60)}


def columns_of_findings(folder: Path) -> Path:
    """Write a CSV with columns of 0 and 1: of a finding with a comma in its name, of one, and of
    none.
    """
    return csv_of_images(
        folder,
        'Path,"Mass, left",Edema,No Finding',
        ["1,0,0", "1,1,0", "0,0,1", "0,0,0", ",,", "0,1,0"],
    )


def test_a_csv_with_a_column_for_each_finding_is_cut(tmp_path, capsys):
    named = ["label=Mass, left", "label=Edema", "label=No Finding"]
    out = tmp_path / "cut"
    assert (
        cli.main(
            [
                "partition",
                f"{columns_of_findings(tmp_path)}",
                "--sites",
                "2",
                "--out",
                f"{out}",
                "--columns",
                *named,
            ]
        )
        == 0
    )
    text = " ".join(capsys.readouterr().out.split())
    assert "Columns: image=Path label=Mass, left label=Edema label=No Finding." in text
    spec = DataSpec.model_validate(json.loads((out / "data.json").read_text()))
    assert (spec.classes, spec.multi_label) == (("Edema", "Mass, left"), True)
    loaded = [load_site(out / f"site-{number}.yaml", spec) for number in (1, 2)]
    assert not any(data.rejected for data in loaded)
    parts = [
        part for data in loaded for part in (data.labelled, data.unlabelled, data.val, data.test)
    ]
    found = {
        name: row
        for part in parts
        for name, row in zip(part.ids, part.labels.tolist(), strict=True)
    }
    wanted = [[0, 1], [1, 1], [0, 0], [0, 0], [-1, -1], [1, 0]]
    assert found == {f"{number}.png": wanted[number % len(wanted)] for number in range(60)}


def test_columns_of_findings_that_cannot_be_are_told(tmp_path):
    file = columns_of_findings(tmp_path)
    with pytest.raises(
        DataError,
        match=r"expected a column of labels, found Path, Mass, left, Edema, No Finding\. Name it",
    ):
        partition(file, tmp_path / "cut", Wanted(sites=2))
    with pytest.raises(
        ConfigError,
        match=r"--columns: expected columns of the CSV .* found Edem \(did you mean Edema\?\)",
    ):
        partition(file, tmp_path / "cut", Wanted(sites=2, findings=("Edem", "Mass, left")))
    file.write_text(file.read_text().replace(",1,1,0", ",1,-1,0"))
    with pytest.raises(
        DataError,
        match=r"found -1 \(Edema 10\)\. Say what it counts as: --uncertain positive, --uncert",
    ):
        partition(file, tmp_path / "cut", Wanted(sites=2, findings=("Edema", "Mass, left")))


def test_the_list_of_chestxray14_is_read_as_it_is(tmp_path):
    rng = np.random.default_rng(4)
    lines = ["Image Index,Finding Labels,Patient ID"]
    for number in range(40):
        Image.fromarray(rng.integers(0, 255, (16, 16), np.uint8)).save(tmp_path / f"{number}.png")
        lines.append(
            f"{number}.png,{('Mass', 'Edema|Mass', 'No Finding')[number % 3]},{number // 2}"
        )
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    text = " ".join(partition(tmp_path / "list.csv", tmp_path / "cut", Wanted(sites=1)).split())
    assert (
        "Columns: image=Image Index sample_id=Image Index label=Finding Labels group=Patient ID."
        in text
    )
    assert "Classes: Edema, Mass." in text


@pytest.mark.parametrize(
    ("oracle", "labelled_sites", "job"),
    [(False, 2, "fedavg"), (False, 1, "fedperl"), (True, 2, "fedal")],
)
def test_the_job_named_next_takes_several_labels(tmp_path, oracle, labelled_sites, job):
    write_findings(tmp_path)
    wanted = Wanted(sites=2, classes=FINDINGS, oracle=oracle, labelled_sites=labelled_sites)
    cut = tmp_path / "cut"
    text = partition(tmp_path / "chest.npz", cut, wanted)
    assert text.splitlines()[-1] == f"Next: fedward doctor {cut}"
    spec = DataSpec.model_validate(json.loads((cut / "data.json").read_text()))
    assert next_after_doctor(cut, spec) == [f"Next: fedward run {job} --site-files {cut}"]


def test_no_finding_is_not_among_the_classes_for_a_job(tmp_path):
    file = columns_of_findings(tmp_path)
    partition(file, tmp_path / "cut", Wanted(sites=1, findings=("Edema", "Mass, left")))
    single = DataSpec(classes=("Mass", "Edema"))
    (problem,) = read_sites(["site-1"], [tmp_path / "cut"], single).problems.values()
    assert 'found "Mass, left", No Finding' in problem
    assert "(--set \"data.classes=[Edema, 'Mass, left']\" --set data.multi_label=true)" in problem
    several = single.model_copy(update={"multi_label": True})
    (problem,) = read_sites(["site-1"], [tmp_path / "cut"], several).problems.values()
    assert "(--set \"data.classes=[Edema, 'Mass, left']\")" in problem
