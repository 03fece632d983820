"""Answers that people gave before a run count in it as labels of the data do."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import yaml
from PIL import Image

from asking import RUN, requests
from clients import new_client
from fedward.annotation import Queue, queue_of
from fedward.annotation.desk import Desk, SentAnswer
from fedward.client import ranks
from fedward.client.client import Client
from fedward.client.earlier_answers import read_for_run
from fedward.client.labels import labels_in
from fedward.client.ranks import Processes
from fedward.client.survey import counted_images
from fedward.config import DataSpec, Experiment
from fedward.errors import DataError, WireError
from fedward.lab.run_check import enter
from fedward.label_kinds import SEVERAL_LABELS
from fedward.methods.workflow import QUERY, ClientTask, Exchange
from fedward.nets import build
from fedward.operation.site_job import job_notes
from fedward.protocol.wire import Message as WireMessage
from fedward.security.sums import ImageSet, image_set
from fedward.sites import Images, SiteData, load_site
from isolated import CLASSES
from public_images import write_public_npz
from tiny import tiny

SPEC = DataSpec(classes=CLASSES, image_size=28)
LATER_RUN = "f" * 32
TRAIN_IMAGES = 40
LABELLED = 10


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    folder = tmp_path / "sites"
    folder.mkdir()
    write_public_npz(folder / "images.npz", train=TRAIN_IMAGES, val=18, test=18)
    return write_site_file(folder)


def write_site_file(folder: Path, **fields: object) -> Path:
    content = {
        "kind": "npz",
        "file": "images.npz",
        "labels": dict(enumerate(CLASSES)),
        "labelled": LABELLED / TRAIN_IMAGES,
        "annotation": "queue",
    }
    file = folder / "site-1.yaml"
    file.write_text(yaml.safe_dump({**content, **fields}))
    return file


def site(file: Path, method: str = "fedavg", folder: str = "site", **options: object) -> Client:
    """Return a client that has answered nothing yet; its folder may hold what another one noted."""
    experiment = tiny(method, data=SPEC, synthetic=None, options=options)
    client: Client = new_client("site-1", experiment, file.parent / folder, [file.parent])
    return client


def data_of(file: Path, run: str = RUN, hidden_labels: bool = False) -> SiteData:
    source = site(file).source
    return read_for_run(source, run, class_totals=False, hidden_labels=hidden_labels)


def answer(file: Path, image: str, given: str | None, kind: str = "label") -> None:
    queue = queue_of(file)
    Desk(queue, {image}).answer(SentAnswer("ab", image, kind, given, uuid4().hex, 0))


def asked(queue: Queue) -> set[str]:
    return {request.sample_id for request in queue.pending()}


def test_they_are_labels_of_every_later_job(site_file: Path) -> None:
    before = data_of(site_file)
    first, second, third = before.unlabelled.ids[:3]
    answer(site_file, first, "B")
    answer(site_file, second, None, "cannot tell")
    answer(site_file, third, None, "unusable")
    data = data_of(site_file, LATER_RUN)
    assert labels_in(data) == {**labels_in(before), first: CLASSES.index("B")}
    assert set(data.unlabelled.ids) == set(before.unlabelled.ids) - {first}
    assert data.cannot_tell == {second, third}
    assert data.refused == {third}


def test_an_answer_in_the_middle_of_a_run_waits_for_the_next_one(site_file: Path) -> None:
    first, second = data_of(site_file, run="").unlabelled.ids[:2]
    answer(site_file, first, "B")
    begun = labels_in(data_of(site_file))
    answer(site_file, second, "C")
    assert labels_in(data_of(site_file)) == begun
    later = labels_in(data_of(site_file, LATER_RUN))
    assert (later[first], later[second]) == (1, 2)


def test_a_run_that_begins_without_answers_stays_without_them(site_file: Path) -> None:
    begun = labels_in(data_of(site_file))
    answer(site_file, data_of(site_file).unlabelled.ids[0], "B")
    assert labels_in(data_of(site_file)) == begun


def test_an_answer_overrules_no_label_that_the_data_have_by_now(site_file: Path) -> None:
    """The run goes on after the site has added the label."""
    image = data_of(site_file, run="").unlabelled.ids[0]
    for_all = labels_in(load_site(site_file, SPEC, labelled=1.0))
    other = CLASSES[for_all[image] - 1]
    answer(site_file, image, other)
    assert labels_in(data_of(site_file))[image] == CLASSES.index(other)
    write_site_file(site_file.parent, labelled=1.0)
    assert labels_in(data_of(site_file)) == for_all


def test_a_site_that_asks_nobody_has_no_answers(site_file: Path) -> None:
    before = data_of(site_file)
    answer(site_file, before.unlabelled.ids[0], "B")
    write_site_file(site_file.parent, annotation="none")
    assert labels_in(data_of(site_file, LATER_RUN)) == labels_in(before)


def test_hidden_labels_make_no_difference_and_unusable_images_do(site_file: Path) -> None:
    before = data_of(site_file, hidden_labels=True)
    answer(site_file, before.unlabelled.ids[1], "B")
    answer(site_file, before.unlabelled.ids[2], None, "unusable")
    data = data_of(site_file, LATER_RUN, hidden_labels=True)
    assert data.unlabelled.ids == before.unlabelled.ids
    assert len(data.labelled) == 0
    assert data.refused == {before.unlabelled.ids[2]}


def test_a_run_whose_id_leads_elsewhere_is_refused(site_file: Path) -> None:
    with pytest.raises(WireError, match="32 hexadecimal digits"):
        data_of(site_file, "../" * 10 + "ab")


def test_answers_with_classes_of_another_job_count_in_none_of_this(
    site_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An image that is of none of those classes may be of one of these. Nobody did wrong."""
    melanoma, other, blurred = data_of(site_file, run="").unlabelled.ids[:3]
    answer(site_file, melanoma, "melanoma")
    answer(site_file, other, None, "none of these")
    answer(site_file, blurred, None, "unusable")
    data = data_of(site_file)
    assert not {melanoma, other} & labels_in(data).keys()
    assert data.refused == data.cannot_tell == {blurred}
    assert not caplog.records


def test_answers_of_a_job_with_several_findings_refuse_nothing_here(site_file: Path) -> None:
    image = data_of(site_file, run="").unlabelled.ids[0]
    queue_of(site_file, SEVERAL_LABELS).request(RUN, 1, "random", [image])
    answer(site_file, image, None, "cannot tell")
    assert not data_of(site_file, LATER_RUN).cannot_tell


def test_an_answer_is_about_all_images_of_its_lesion(tmp_path: Path) -> None:
    file = write_lesions(tmp_path)
    answer(file, "l0-x", "A")
    answer(file, "l1-x", None, "cannot tell")
    data = data_of(file)
    assert labels_in(data)["l0-x"] == labels_in(data)["l0-y"] == 0
    assert data.cannot_tell == {"l1-x", "l1-y"}


def test_to_look_for_answers_makes_no_queue(site_file: Path) -> None:
    """The doctor's account may be another one than the service's."""
    data_of(site_file)
    assert not (site_file.parent / "annotation").exists()
    job_notes(site(site_file, "fedal").experiment, load_site(site_file, SPEC), site_file)
    assert not (site_file.parent / "annotation").exists()


def test_the_doctor_says_that_answers_cannot_be_read(site_file: Path) -> None:
    folder = site_file.parent / "annotation" / "site-1"
    folder.mkdir(parents=True)
    (folder / "queue.sqlite").write_text("no database")
    notes = job_notes(site(site_file).experiment, load_site(site_file, SPEC), site_file)
    assert notes[1].startswith("the answers of people cannot be read, and no job can begin: ")


def test_what_is_noted_and_damaged_is_named(site_file: Path) -> None:
    data_of(site_file)
    (noted,) = (site_file.parent / "site" / "memory" / RUN).glob("*.answers")
    noted.write_text("{")
    with pytest.raises(DataError, match="expected JSON as this site has written it"):
        data_of(site_file)


def test_answers_to_a_run_of_which_nothing_is_noted_count_once(
    site_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The note is lost after the first query, and the run has still 5 labels to buy."""
    options = {"target_fraction": 0.5, "initial_fraction": 0.1, "rounds": 4, "steps": 2}
    model = build("small_cnn", len(CLASSES), seed=1).state_dict()

    def query(round_: int) -> dict[str, Any]:
        client = site(site_file, "fedal", query_every=1, **options)
        exchange = Exchange(round_, model, {"site-1": ClientTask(QUERY)})
        return client.handle(requests(client.experiment, exchange)["site-1"]).meta

    assert query(2)["label_counts"]["asked"] == 5
    for image in asked(queue_of(site_file)):
        answer(site_file, image, "B")
    (noted,) = (site_file.parent / "site" / "memory" / RUN).glob("*.answers")
    noted.unlink()
    said = query(3)
    assert (said["labelled"], said["label_counts"]["asked"]) == (LABELLED + 5, 5)
    assert "the answers that this run began with are not noted" in caplog.text


def test_a_process_that_decrypts_first_has_them(site_file: Path) -> None:
    answer(site_file, data_of(site_file, run="").unlabelled.ids[0], "B")
    client = site(site_file)
    model = build("small_cnn", len(CLASSES), seed=1).state_dict()
    train = requests(client.experiment, Exchange(1, model, {"site-1": ClientTask("train")}))
    message = train["site-1"]
    sums = {"task": "decrypt", "sites": 3, "weight": 9, "effective": 3.0, "trained": "train"}
    assert "error" in client.handle(WireMessage({**message.meta, **sums}, {})).meta
    assert client.handle(message).meta["labelled"] == LABELLED + 1


def test_sums_over_classes_keep_to_their_rule_of_patients(tmp_path: Path) -> None:
    """Class B has six images of one patient: no sum may be of them, whoever answers what."""
    file = write_lesions(tmp_path)
    by_patient = SPEC.model_copy(update={"classes": ("A", "B"), "evaluate_by": "patient"})
    experiment = tiny("oneshot", data=by_patient, synthetic=None)

    def read(run: str) -> Images:
        client = new_client("site-1", experiment, tmp_path / "site", [tmp_path])
        data = read_for_run(client.source, run, class_totals=True, hidden_labels=False)
        labelled: Images = data.labelled
        return labelled

    def sums(images: Images) -> ImageSet:
        return image_set(counted_images(images, by_patient.classes))

    before = read(RUN)
    answer(file, "l0-x", "A")
    after = read(LATER_RUN)
    assert set(before.labels.tolist()) == set(after.labels.tolist()) == {0}
    assert set(after.ids) == {*before.ids, "l0-x", "l0-y"}
    assert sums(after).is_near(sums(before), fewest=8)
    by_image = load_site(file, by_patient.model_copy(update={"evaluate_by": "image"})).labelled
    assert sums(by_image).names["train A"] == sums(before).names["train A"]


def write_lesions(folder: Path) -> Path:
    """Write the file of a site with labelled images, and ten unlabelled lesions of two images."""
    rng = np.random.default_rng(0)
    rows = [(f"a{number}", "A", f"patient-{number}", "", "train") for number in range(12)]
    rows += [(f"b{number}", "B", "patient-b", "", "train") for number in range(6)]
    for number in range(10):
        rows += [(f"l{number}-{view}", "", f"owner-{number}", "1", "train") for view in "xy"]
    for split in ("val", "test"):
        rows += [(f"{split}{number}", "A", f"{split}-{number}", "", split) for number in range(6)]
    lines = ["sample_id,image,label,group,lesion,split"]
    for name, label, patient, lesion, split in rows:
        Image.fromarray(rng.integers(0, 256, (28, 28, 3), np.uint8)).save(folder / f"{name}.png")
        lines.append(f"{name},{name}.png,{label},{patient},{lesion},{split}")
    (folder / "images.csv").write_text("\n".join(lines))
    content = {
        "kind": "manifest",
        "folder": ".",
        "manifest": "images.csv",
        "annotation": "queue",
        "reading": {"lesion": "lesion"},
    }
    file = folder / "site-1.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def test_a_later_query_buys_only_what_is_missing(site_file: Path) -> None:
    """Half of 40 images shall have a label, and 10 have one: with 4 answers, 6 are missing."""
    before = data_of(site_file, run="")
    for image in before.unlabelled.ids[:4]:
        answer(site_file, image, "B")
    answer(site_file, before.unlabelled.ids[4], None, "cannot tell")
    client = site(site_file, "fedal", target_fraction=0.5, initial_fraction=0.1)
    model = build("small_cnn", len(CLASSES), seed=1).state_dict()
    exchange = Exchange(3, model, {"site-1": ClientTask(QUERY)})
    said = client.handle(requests(client.experiment, exchange)["site-1"]).meta
    assert said["labelled"] == LABELLED + 4
    assert said["label_counts"]["bought"] == 0
    # One image of 40 cannot get a label.
    missing = round(0.5 * (TRAIN_IMAGES - 1)) - (LABELLED + 4)
    assert said["label_counts"]["asked"] == missing
    now_asked = asked(queue_of(site_file))
    assert len(now_asked) == missing
    assert not now_asked & set(before.unlabelled.ids[:5])


def test_the_doctor_counts_them(site_file: Path) -> None:
    data = load_site(site_file, SPEC)
    experiment = site(site_file, "fedal", target_fraction=0.5, initial_fraction=0.1).experiment
    questions = "it has 10 labels and asks for 10; people answer"
    assert job_notes(experiment, data, site_file)[1:] == [questions]
    for image in data.unlabelled.ids[:4]:
        answer(site_file, image, "B")
    assert job_notes(experiment, data, site_file)[1:] == [
        "the labels include 4 answers that people gave",
        "it has 14 labels and asks for 6; people answer",
    ]
    assert job_notes(site(site_file, "ssfl").experiment, data, site_file)[1:] == [
        "the labels include 4 answers that people gave",
    ]


def test_a_run_on_answers_alone_begins(site_file: Path) -> None:
    """The files show no label at all, and people have answered about two images."""
    write_site_file(site_file.parent, labelled=0.0)
    first, second = data_of(site_file, run="").unlabelled.ids[:2]
    experiment = site(site_file).experiment
    with pytest.raises(DataError, match="No site shows a label"):
        entered(experiment, site_file)
    answer(site_file, first, "B")
    answer(site_file, second, "C")
    table = entered(experiment, site_file)
    assert [line.split()[:3] for line in table if line.startswith("site-1")] == [
        ["site-1", "2", f"{TRAIN_IMAGES - 2}"]
    ]
    client = site(site_file)
    model = build("small_cnn", len(CLASSES), seed=1).state_dict()
    exchange = Exchange(1, model, {"site-1": ClientTask("train")})
    said = client.handle(requests(client.experiment, exchange)["site-1"]).meta
    assert (said["labelled"], said["unlabelled"]) == (2, TRAIN_IMAGES - 2)
    assert said["steps"] > 0


def entered(experiment: Experiment, file: Path) -> list[str]:
    """Return what is said before the first round of a run on this machine."""
    said = list[str]()
    source = site(file).source
    enter(experiment, [source], say=said.append, unmeasured=True)
    return said


def test_all_processes_of_a_site_have_them(
    site_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = data_of(site_file, run="").unlabelled.ids[0]
    answer(site_file, image, "B")
    client = site(site_file)
    client._run = RUN
    read = list[SiteData]()

    def start(name: str, folder: Path, *others: object) -> None:
        content = (folder / "request.json").read_bytes()
        read.append(ranks._read_data(ranks._REQUEST.validate_json(content)))
        raise InterruptedError

    monkeypatch.setattr(ranks, "launch", start)
    learner = replace(client.learner, name="site-1")
    model = learner.networks.template
    with pytest.raises(InterruptedError):
        Processes(client.source, RUN, learner, 2).train(
            model, [], 1, task="train", part=0, memory={}, aborted=lambda: False
        )
    assert labels_in(read[0]) == labels_in(client.data)
    assert labels_in(read[0])[image] == 1
