"""Slices of volumes and frames of DICOM files at the page: made on demand, and the right ones."""

import io
import json
import re
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pytest
from flask.testing import FlaskClient
from PIL import Image

import dicom_files
import nifti_files
from fedward.annotation import queue_of, stacks
from fedward.annotation.desk import Desk
from fedward.annotation.page.app import Page
from fedward.annotation.page.guard import Guard
from fedward.annotation.page_content import SentAnswer
from fedward.annotation.pictures import Pictures
from fedward.annotation.stacks import Slice
from fedward.client.labels import bought_labels
from fedward.config import DataSpec
from fedward.errors import DataError
from fedward.lab.local import LocalTransport
from fedward.sites.images import open_parts
from fedward.sites.rendering import Rendering
from fedward.sites.rendering import Slices as Cut
from running import run_local
from tiny import tiny
from visiting import come_in

CLASSES = ("MEL", "NV")
TOKEN = "t" * 43
_SITE = (
    "kind: manifest\n"
    "folder: images\n"
    "manifest: rows.csv\n"
    "columns: {group: patient}\n"
    "annotation: queue\n"
)


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """A site with two volumes of a patient, a cine, a picture, a broken volume, a file outside."""
    images = tmp_path / "images"
    nifti_files.write(images / "one.nii.gz", nifti_files.body(1), "LPS")
    nifti_files.write(images / "two.nii", nifti_files.body(2, (22, 26, 14)))
    frames = np.stack(
        [np.full((8, 10), 10, np.uint8) + np.arange(10, dtype=np.uint8) * k for k in range(1, 5)]
    )
    dicom_files.save(
        images / "cine.dcm",
        frames,
        NumberOfFrames=4,
        Rows=8,
        Columns=10,
        SamplesPerPixel=1,
        PhotometricInterpretation="MONOCHROME2",
        PlanarConfiguration=None,
    )
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 9), np.uint8)).save(
        images / "p.png"
    )
    (images / "broken.nii").write_bytes(b"no volume")
    nifti_files.write(tmp_path / "outside.nii", nifti_files.body(3))
    rows = [
        "sample_id,image,label,patient",
        "one,one.nii.gz,,a",
        "two,two.nii,,a",
        "cine,cine.dcm,,b",
        "p,p.png,,c",
    ]
    (tmp_path / "rows.csv").write_text("\n".join([*rows, "broken,broken.nii,,d"]))
    return write(tmp_path)


def write(folder: Path, more: str = "slices: {axis: axial, at_most: 4}\nframes: {}\n") -> Path:
    (folder / "site.yaml").write_text(_SITE + more)
    return folder / "site.yaml"


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def test_the_pictures_are_the_images_of_the_job(scans: Path) -> None:
    pictures = Pictures(scans, CLASSES)
    assert [name in pictures.ids for name in ("p", "one#11", "cine#3", "one")] == [
        True,
        True,
        True,
        False,
    ]
    assert [pictures.slice(name) for name in ("one#12", "cine#4", "p", "broken#0")] == [None] * 4
    rendering = Rendering(slices=Cut(axis="axial", at_most=4))
    for name, file in (("one", "one.nii.gz"), ("two", "two.nii")):
        for part, image in open_parts(scans.parent / "images" / file, rendering):
            assert (pixels(pictures.png(f"{name}{part}")) == np.asarray(image)).all()
    assert pictures.slice("two#13") == Slice("two", 13, 14)
    assert pictures.group("two#13") == ["two#13"]
    assert len({pictures.png(f"cine#{index}") for index in range(4)}) == 4


def test_all_slices_have_the_levels_of_the_volume(scans: Path) -> None:
    pictures = Pictures(write(scans.parent, "slices: {}\nframes: {}\nwindow: [40, 400]\n"), CLASSES)
    levels = [pictures.levels(f"one#{index}") for index in (0, 5)]
    assert levels[0] == levels[1]
    assert levels[0] is not None
    assert (levels[0].low, levels[0].centre, levels[0].width, levels[0].deep) == (
        -1000,
        40,
        400,
        True,
    )
    usual, narrow = (pixels(pictures.png("one#5", window=window)) for window in (None, (60.0, 2.0)))
    assert set(np.unique(narrow)) <= {0, 128, 255}
    assert len(np.unique(usual)) > 10


def test_one_volume_is_held_and_read_once(scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    alive = list[Any]()
    original = stacks.open_stack

    def counted(path: Path, *how: Any) -> Any:
        read.append(path.name)
        assert not any(values() is not None for values in alive), "the one before is let go first"
        found = original(path, *how)
        alive.append(weakref.ref(found.values))
        return found

    monkeypatch.setattr(stacks, "open_stack", counted)
    pictures = Pictures(scans, CLASSES)
    assert read == [], "nothing is read before somebody looks"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pictures.png, [f"one#{index}" for index in range(12)]))
    assert read == ["one.nii.gz"]
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                pictures.png, [f"{name}#{index}" for index in range(6) for name in ("one", "two")]
            )
        )
    assert sum(values() is not None for values in alive) == 1


@pytest.fixture
def client(scans: Path) -> FlaskClient:
    queue = queue_of(scans)
    queue.request("run", 1, "fedal", ["one#5", "two#1", "cine#1", "broken#0"], [1, 0, 0, 0])
    pictures = Pictures(scans, CLASSES)
    return come_in(
        Page(Desk(queue, pictures.ids, CLASSES), pictures, Guard(TOKEN, "127.0.0.1")), TOKEN
    )


def test_the_view_says_which_slice_is_in_question(client: FlaskClient) -> None:
    view = client.get("/state?annotator=anna").get_json()
    assert view["slice"] == {"of": "one", "index": 5, "count": 12}
    assert view["together"] == view["group"] == ["one#5"]


@pytest.mark.proves(
    "outsider",
    "the annotation page from elsewhere (DNS rebinding), or without its token, cookie "
    "and secret; ids that lead out",
    "refused; nothing is shown",
)
@pytest.mark.parametrize(
    "name",
    [
        "one",
        "one#",
        "one#-1",
        "one#05",
        "one#5.0",
        "one#5#5",
        "one# 5",
        "one#١",
        "one#1e0",
        "p#0",
        "broken",
        "../outside#0",
        "../outside.nii#0",
        "images/one#5",
        "/etc/passwd#0",
        "one.nii.gz#5",
        "one\0#5",
        "ONE#5",
        "three#0",
        f"one#{2**63}",
        "one#5/../two#5",
    ],
)
@pytest.mark.parametrize("path", ["/image", "/levels"])
def test_no_id_leads_out_of_the_sites_volumes(client: FlaskClient, path: str, name: str) -> None:
    answer = client.get(f"{path}?id={quote(name, safe='')}")
    assert (answer.status_code, answer.get_json()["message"]) == (
        404,
        "There is no such image here.",
    )


@pytest.mark.parametrize("name", ["one#12", "one#999999", "broken#0", "cine#4"])
def test_an_index_out_of_range_shows_nothing(client: FlaskClient, name: str) -> None:
    for path in ("/image", "/levels"):
        answer = client.get(f"{path}?id={quote(name)}")
        assert (answer.status_code, answer.get_json()["message"]) == (
            404,
            "This image cannot be shown.",
        )


@pytest.mark.proves(
    "outsider",
    "the annotation page from elsewhere (DNS rebinding), or without its token, cookie "
    "and secret; ids that lead out",
    "refused; nothing is shown",
)
def test_slices_need_the_token_as_images_do(client: FlaskClient) -> None:
    assert client.get("/image?id=one%234").mimetype == "image/png"
    client.delete_cookie(Guard(TOKEN, "127.0.0.1")._cookie)
    for path in ("/image?id=one%234", "/levels?id=one%234", "/image?id=p"):
        assert client.get(path).status_code == 403


def test_a_volume_that_broke_is_said_and_shown_no_more(scans: Path, client: FlaskClient) -> None:
    (scans.parent / "images" / "two.nii").write_bytes(b"")
    answer = client.get("/image?id=two%233")
    assert (answer.status_code, answer.get_json()["message"]) == (
        404,
        "This image cannot be shown.",
    )
    assert client.get("/image?id=one%233").status_code == 200


def test_an_answer_for_a_lesion_is_not_one_for_a_slice(scans: Path) -> None:
    with pytest.raises(
        DataError, match=r"reading: no lesion, as with frames or slices an answer is of one slice"
    ):
        Pictures(write(scans.parent, "slices: {}\nreading: {lesion: patient}\n"), CLASSES)


def test_an_answer_is_of_the_asked_slice_alone(
    scans: Path, make_clinician: Callable[..., Any]
) -> None:
    queue = queue_of(scans)
    queue.request("run", 1, "fedal", ["one#5", "one#6"])
    make_clinician(queue, "anna").say("one#5", "MEL")
    assert queue.labels() == {"one#5": "MEL"}
    assert [request.sample_id for request in queue.pending()] == ["one#6"]


def test_slices_are_asked_about_answered_and_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_report: None
) -> None:
    """From the query of a job over the queue to the labels with which it trains."""
    for number in range(8):
        nifti_files.write(tmp_path / "images" / f"{number}.nii", nifti_files.body(number))
    rows = [
        f"v{number},{number}.nii,{'MEL' if number > 5 else ''},p{number}" for number in range(8)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["sample_id,image,label,patient", *rows]))
    site = write(tmp_path, "slices: {at_most: 4}\nsplit: {val: 0, test: 0}\nlabelled: 0.0\n")
    exchange = LocalTransport.exchange

    def answered(
        self: LocalTransport, requests: dict[str, Any], timeout: int, deliver: Any
    ) -> None:
        queue = queue_of(site)
        for asked in queue.pending():
            label = CLASSES[int(asked.sample_id[-1]) % 2]
            Desk(queue, {asked.sample_id}).answer(
                SentAnswer("ab", asked.sample_id, "label", label, uuid4().hex, 0)
            )
        exchange(self, requests, timeout, deliver)

    monkeypatch.setattr(LocalTransport, "exchange", answered)
    spec = DataSpec(classes=CLASSES, image_size=16, channels=1, views="upright")
    experiment = tiny("fedal", data=spec, synthetic=None, options={"rounds": 3, "steps": 2})
    run = run_local(experiment, tmp_path / "run", sites=["site"], site_folders=[tmp_path])
    name = json.loads((run / "run.json").read_text())["id"]
    labels = bought_labels(run / "sites" / "site" / "memory", name, 99)
    assert len(labels) > 3
    assert labels == {each: int(each[-1]) % 2 for each in labels}
    assert all(re.fullmatch(r"v\d#\d+", each) for each in labels)
