"""What the doctor says a job would do at a site."""

from pathlib import Path

import numpy as np
import pytest

from fedward import cli
from fedward.config import DataSpec
from fedward.jobs import load_experiment
from fedward.operation.site_job import job_notes
from fedward.sites import Images, SiteData
from fedward.sites.data import Annotation

CLASSES = ("A", "B")
AFTER_FAULTS = "Next: mend the faults above, and call fedward doctor again."


def images(split: str, *counts: int) -> Images:
    labels = np.repeat(np.arange(len(counts)), counts)
    ids = tuple(f"{split}-{number}" for number in range(len(labels)))
    return Images(ids, np.zeros((len(labels), 8, 8, 3), np.uint8), labels.astype(np.int64))


def site(annotation: Annotation = "none") -> SiteData:
    return SiteData(
        "north",
        CLASSES,
        images("labelled", 12, 4),
        images("unlabelled", 24),
        images("val", 5, 4),
        images("test", 9, 5),
        annotation=annotation,
    )


def notes(job: str, data: SiteData) -> list[str]:
    experiment = load_experiment(job, ["data.classes=[A, B]"])
    return [*job_notes(experiment, data, Path("north.yaml"))]


def test_rare_classes_are_counted_as_a_run_leaves_them_out() -> None:
    used = "used, of classes with 5 images or more in a split: "
    assert notes("ssfl", site()) == [used + "5 of 9 val images, 14 of 14 test images"]
    assert notes("oneshot", site()) == [
        used + "12 of 16 labelled images, 5 of 9 val images, 14 of 14 test images",
        "the job does not use the 24 unlabelled images",
    ]


def test_labels_that_a_job_does_not_use_are_counted() -> None:
    assert notes("ssfl_server", site())[1:] == [
        "the job does not use the labels of the 16 labelled images"
    ]


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ("none", "it has 16 labels and asks for 0; nobody answers"),
        ("oracle", "it has 0 labels and asks for 8; the data's own labels answer"),
    ],
)
def test_questions_are_counted_of_images_that_may_get_a_label(
    annotation: Annotation, said: str
) -> None:
    """Half of the 16 images whose labels the data have."""
    assert notes("fedal", site(annotation))[1] == said


def test_the_job_says_classes_and_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        f"{split}_images": rng.integers(0, 256, (20, 28, 28), np.uint8)
        for split in ("train", "val", "test")
    }
    labels = {f"{split}_labels": np.arange(20)[:, None] % 2 for split in ("train", "val", "test")}
    np.savez(tmp_path / "source.npz", **arrays, **labels)
    asked = [f"{tmp_path / 'source.npz'}", "--sites", "1", "--classes", *CLASSES]
    assert cli.main(["partition", *asked, "--out", f"{tmp_path / 'sites'}"]) == 0
    file = f"{tmp_path / 'sites' / 'site-1.yaml'}"
    out = ["--out", f"{tmp_path}"]
    job = tmp_path / "job.json"
    job.write_text(
        load_experiment("ssfl")
        .model_copy(update={"data": DataSpec(image_size=40)})
        .model_dump_json()
    )
    exported = tmp_path / "jobs" / "ssfl"
    assert (
        cli.main(["jobs", f"{tmp_path / 'jobs'}", "--only", "ssfl", "--set", "data.classes=[A, B]"])
        == 0
    )
    for name, found in (("ssfl", "28x28, grey"), (f"{exported}", "32x32, RGB")):
        assert cli.main(["doctor", file, "--job", name, *out]) == 0
        assert found in capsys.readouterr().out
    assert cli.main(["doctor", file, "--job", f"{job}", *out]) == 1
    assert "Not usable" in capsys.readouterr().out, "the file names classes that this job has not"
    assert cli.main(["doctor", file, "--job", "ssfl", "--image-size", "28", *out]) == 2
    assert "the job names both" in capsys.readouterr().err


def test_what_comes_next_is_said_of_the_job_that_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the job knows its classes: there is no data.json beside the site file."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    arrays = {}
    for split in ("train", "val", "test"):
        arrays[f"{split}_images"] = rng.integers(0, 256, (40, 28, 28), np.uint8)
        arrays[f"{split}_labels"] = rng.integers(0, 2, (40, 3))
    np.savez("site.npz", **arrays)
    Path("sites").mkdir()
    file = Path("sites/site-1.yaml")
    file.write_text("{kind: npz, file: ../site.npz, labels: {0: A, 1: B, 2: C}}")
    settings = ["--set", "data.classes=[A, B, C]", "--set", "data.multi_label=true"]
    assert cli.main(["jobs", "jobs", "--only", "ssfl", *settings]) == 0
    capsys.readouterr()
    words = ["doctor", f"{file}", "--job", "jobs/ssfl"]
    assert cli.main(words) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"Next: FEDWARD_SITES={tmp_path / 'sites'} nvflare simulator jobs/ssfl"
    ), "fedward run takes no exported job"
    Path("sites/data.json").write_text('{"classes": ["A", "B", "C"], "multi_label": true}')
    assert cli.main([*words[:3], "ssfl"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Next: fedward run ssfl --site-files sites"
    ), "with all labels shown, fedavg is proposed where no job is named"
    Path("sites/site-2.yaml").write_text("kind: npz")
    assert cli.main([*words[:2], "--classes", "A", "B", "C", "--image-size", "28"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Next: fedward doctor sites --classes A B C --image-size 28"
    ), "the other file is wrong, and its images are used as these were"
    Path("sites/site-2.yaml").unlink()
    Path("site.npz").unlink()
    assert cli.main(words) == 1
    assert capsys.readouterr().out.splitlines()[-1] == AFTER_FAULTS
    assert cli.main([*words[:2], "--classes", "X", "Y"]) == 1
    text = capsys.readouterr().out
    assert "name the site's own (--classes A B C)" in " ".join(text.split())
    assert text.splitlines()[-1] == AFTER_FAULTS, "the refused classes are not proposed again"
