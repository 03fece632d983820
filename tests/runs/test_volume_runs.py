"""Volumes and frames from files to a report: patients are evaluated, and no header leaves."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
import yaml

import fedward
from dicom_files import save
from fedward import cli
from fedward.config import DataSpec
from fedward.inference.evaluation import evaluate
from fedward.inference.words import lines
from fedward.lab.local import LocalTransport
from fedward.lab.partition.cut import partition
from fedward.lab.partition.wanted import Wanted
from fedward.sites import load_site
from fedward.sites.rendering import Rendering, Slices
from nifti_files import body, nibabel, write
from run_files import rows
from running import run_local
from series_files import series
from tiny import tiny

SECRET = "Mueller4711"
UID = "1.2.826.47110815"
SPLITS = {"train": 10, "val": 10, "test": 12}
"""Volumes of each class."""


def volumes(root):
    """Draw volumes for two sites, in a folder for each split and class.

    Each has a name in its header and extension.
    """
    for split, count in SPLITS.items():
        for index in range(2 * count):
            kind = ("healthy", "lesion")[index % 2]
            seed = 1000 * len(split) + index
            path = root / split / kind / f"{index:02}.nii.gz"
            write(
                path,
                body(seed, organ=60 + 200 * (index % 2)),
                descrip=SECRET,
                aux_file=SECRET,
                db_name=SECRET,
            )
            image = nibabel.load(path)
            image.header.extensions.append(
                nibabel.nifti1.Nifti1Extension("comment", SECRET.encode())
            )
            nibabel.save(image, path)


def cine(path, index, **tags):
    noise = np.random.default_rng(index).integers(0, 180, (4, 20, 20)).astype(np.uint8)
    frames = 60 * (index % 2) + noise
    save(path, frames[0], **tags, NumberOfFrames=4, PixelData=frames.tobytes())


def scan(path, index, **tags):
    uids = {
        "SeriesInstanceUID": f"{UID}.{index}",
        "StudyInstanceUID": UID,
        "SeriesDescription": SECRET,
    }
    series(path, body(index, (20, 20, 8), organ=60 + 200 * (index % 2)), **uids, **tags)


def listed(folder, draw, **fields):
    """Draw a site of DICOM files or folders, whose groups are the patients' names."""
    table = [["sample_id", "image", "label", "group", "split"]]
    for split, count in SPLITS.items():
        for index in range(count):
            name = f"{split}{index}"
            draw(folder / name, index, PatientName=f"{SECRET}-{name}", PatientID=SECRET)
            table.append([name, name, ("healthy", "lesion")[index % 2], f"{SECRET}-{name}", split])
    with (folder / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows(table)
    return yaml.safe_dump({"kind": "manifest", "folder": f"{folder}", **fields})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the run folder, its site files, and all that was sent."""
    root = tmp_path_factory.mktemp("volumes")
    volumes(root / "scans")
    rendering = Rendering((40, 400), slices=Slices(at_most=3))
    partition(root / "scans", root / "sites", Wanted(sites=2, rendering=rendering))
    (root / "sites" / "site-3.yaml").write_text(listed(root / "cines", cine, frames={"at_most": 2}))
    slices = {"at_most": 3}
    (root / "sites" / "site-4.yaml").write_text(
        listed(root / "series", scan, slices=slices, window=[40, 400])
    )
    broken = re.search(r"train/[^,]+gz", (root / "sites" / "site-1.csv").read_text())[0]
    (root / "scans" / broken).write_bytes((root / "scans" / broken).read_bytes()[:600])
    text = (root / "sites" / "site-1.yaml").read_text()
    (root / "sites" / "site-1.yaml").write_text(f"{text}max_rejected: 0.1\n")
    messages = []
    exchange = LocalTransport.exchange

    def heard(self, requests, timeout, deliver):
        def record(name, answer):
            messages.append(repr(answer))
            deliver(name, answer)

        messages.extend(repr(request) for request in requests.values())
        exchange(self, requests, timeout, record)

    spec = DataSpec.model_validate(json.loads((root / "sites" / "data.json").read_text()))
    experiment = tiny("fedavg", data=spec, synthetic=None, options={"rounds": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalTransport, "exchange", heard)
        sites = ["site-1", "site-2", "site-3", "site-4"]
        run = run_local(experiment, root / "run", sites=sites, site_folders=[root / "sites"])
    return run, root, messages


def test_sites_report_patients(finished):
    run, root, _ = finished
    patients = {
        (row["site"], row["split"]): row["n"]
        for row in rows(run, "metrics")
        if row["name"] == "accuracy"
    }
    for site in ("site-1", "site-2", "site-3", "site-4"):
        assert patients[site, "val"] == 10
        assert patients[site, "test"] == 12
    for site in ("site-2", "site-4"):
        spec = fedward.load_model(run).experiment.data
        assert len(load_site(root / "sites" / f"{site}.yaml", spec).test) == 36


def test_an_evaluation_is_by_patient_or_by_image(finished, tmp_path, monkeypatch, capsys):
    run, root, _ = finished
    model = fedward.load_model(run)
    for site in ("site-1", "site-3", "site-4"):
        evaluation = evaluate(model, root / "sites" / f"{site}.yaml")
        logged = {
            row["name"]: row["value"]
            for row in rows(run, "metrics")
            if (row["site"], row["split"]) == (site, "test")
        }
        assert evaluation["unit"] == "patient"
        assert evaluation["images"] == 12
        for name in ("accuracy", "auroc_macro"):
            assert evaluation["overall"][name]["value"] == pytest.approx(logged[name])
    monkeypatch.chdir(tmp_path)
    arguments = ["evaluate", str(run), str(root / "sites" / "site-2.yaml"), "--by", "image"]
    assert cli.main(arguments) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "site-2, test: 36 images" in out
    assert "too narrow, as some patients of this site have several images: `--by patient`" in out
    text = "\n".join(lines(evaluate(model, root / "sites" / "site-2.yaml")))
    assert "site-2, test: 12 patients" in text
    assert "test images" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_report_says_what_it_counts(finished):
    run = finished[0]
    page = re.sub(r"\s+", " ", (run / "report.html").read_text())
    assert "Evaluated by patient: the answer is the mean" in page
    assert "48 test patients of 4 sites correctly" in page
    assert "test image" not in page
    assert "Evaluated by patient" in (run / "clinician.html").read_text()


def test_a_prediction_is_the_mean_over_a_files_slices(finished, tmp_path, capsys):
    run, root, _ = finished
    out = tmp_path / "answers.csv"
    site = root / "sites" / "site-2.yaml"
    asked = ["predict", str(run), str(root / "scans" / "test"), "--out", str(out)]
    assert cli.main([*asked, "--site-file", str(site)]) == 0
    assert "24 files (means over 72 images)" in capsys.readouterr().out
    answers = list(csv.DictReader(out.open(encoding="utf-8-sig")))
    assert {row["images"] for row in answers} == {"3"}
    model = fedward.load_model(run)
    data = load_site(site, model.experiment.data)
    name = data.test.ids[0].partition("#")[0]
    three = [index for index, sample in enumerate(data.test.ids) if sample.startswith(f"{name}#")]
    import torch

    pixels = torch.from_numpy(np.array(data.test.pixels[three])).permute(0, 3, 1, 2) / 255
    row = next(row for row in answers if row["image"] == name.removeprefix("test/"))
    assert float(row["probability/lesion"]) == pytest.approx(
        float(model(pixels)[:, 1].mean()), abs=1e-5
    )
    assert cli.main(asked) == 1  # without a word, volumes are refused
    assert all(
        "--slices 16" in row["problem"] for row in csv.DictReader(out.open(encoding="utf-8-sig"))
    )


def test_a_prediction_of_a_series_is_of_its_folder(finished, tmp_path, capsys):
    run, root, _ = finished
    out = tmp_path / "answers.csv"
    new = tmp_path / "new"
    for name in ("test0", "test1"):
        shutil.copytree(root / "series" / name, new / name)
    (new / "test1" / "IM003").unlink()
    for asked, status in ((new, 1), (new / "test0", 0)):
        call = [
            "predict",
            str(run),
            str(asked),
            "--out",
            str(out),
            "--site-file",
            str(root / "sites" / "site-4.yaml"),
        ]
        assert cli.main(call) == status
        answers = {row["image"]: row for row in csv.DictReader(out.open(encoding="utf-8-sig"))}
        assert answers["test0"]["images"] == "3"
        assert [*answers] == ["test0", "test1"][: 1 + status]
        assert status == 0 or "is a file missing?" in answers["test1"]["problem"]
    capsys.readouterr()


@pytest.mark.proves(
    "server",
    "patients' names, ids or dates in headers of NIfTI, DICOM and frames",
    "in no message, log or run folder",
)
def test_no_header_and_no_group_leaves_a_site(finished, capfd):
    run, root, messages = finished
    spec = fedward.load_model(run).experiment.data
    assert len(load_site(root / "sites" / "site-1.yaml", spec).rejected) == 1
    assert any(
        SECRET in group for group in load_site(root / "sites" / "site-3.yaml", spec).test.groups
    )
    evaluated = [
        evaluate(fedward.load_model(run), root / "sites" / f"site-{site}.yaml") for site in (3, 4)
    ]
    written = b"".join(path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file())
    sent_and_printed = "".join((*messages, json.dumps(evaluated), *capfd.readouterr())).encode()
    assert len(messages) > 8
    assert not any(text.encode() in written + sent_and_printed for text in (SECRET, UID))
