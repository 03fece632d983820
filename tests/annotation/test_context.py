"""The facts beside an image at the page: titles, cells of the CSV, its group; never its label."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dicom_files import save
from fedward.annotation import queue_of
from fedward.annotation.desk import Desk
from fedward.annotation.page.app import Page
from fedward.annotation.page.guard import Guard
from fedward.annotation.pictures import Pictures
from fedward.errors import DataError
from visiting import come_in

CLASSES = ("MEL", "NV", "BCC")
TOKEN = "t" * 43
_SITE = "kind: manifest\nfolder: .\ncolumns: {group: patient}\n"
_READING = """reading:
  columns: {age: "", place: Where}
  lesion: lesion
  classes:
    MEL: {title: "Mela<b>noma", definition: Malignant.}
"""


def write(clinic: Any, reading: str = _READING) -> Path:
    """Give the clinic patients: p0 has s00 to s02, of which s00 and s01 show one lesion."""
    rows = ["sample_id,image,label,patient,lesion,age,place"]
    for index, name in enumerate(clinic.ids):
        lesion = "1" if index < 2 else f"{index}"
        age = "" if index == 1 else f"{40 + index}.0"
        rows.append(f"{name},images/{name}.png,,p{index // 3},{lesion},{age},arm & leg")
    (clinic.site_file.parent / "manifest.csv").write_text("\n".join(rows))
    clinic.site_file.write_text(_SITE + reading)
    clinic.ask(*clinic.ids)
    path: Path = clinic.site_file
    return path


def visit(site_file: Path) -> Any:
    pictures = Pictures(site_file, CLASSES)
    return come_in(
        Page(Desk(queue_of(site_file), pictures.ids, CLASSES), pictures, Guard(TOKEN, "::1")), TOKEN
    )


def test_cells_and_group_stand_beside_the_image(clinic: Any) -> None:
    client = visit(write(clinic))
    view = client.get("/state?annotator=anna").get_json()
    assert view["facts"] == [["Age", "40"], ["Where", "arm & leg"]]
    assert (view["together"], view["group"], view["more"]) == (
        ["s00", "s01"],
        ["s00", "s01", "s02"],
        0,
    )
    other = client.get("/state?annotator=anna&showing=s01").get_json()
    assert other["facts"] == [["Where", "arm & leg"]], "an empty cell says nothing"
    assert other["group"] == ["s01", "s00", "s02"]


def test_nothing_stands_there_unless_the_site_says_so(clinic: Any) -> None:
    view = visit(write(clinic, "")).get("/state?annotator=anna").get_json()
    assert (view["facts"], view["together"]) == ([], ["s00"])


def test_a_large_group_is_cut_and_says_so(make_clinic: Any) -> None:
    clinic = make_clinic(30)
    write(clinic, "")
    rows = (clinic.site_file.parent / "manifest.csv").read_text().splitlines()
    one = [row.replace(f",p{index // 3},", ",p,") for index, row in enumerate(rows[1:])]
    (clinic.site_file.parent / "manifest.csv").write_text("\n".join([rows[0], *one]))
    view = visit(clinic.site_file).get("/state?annotator=anna").get_json()
    assert (len(view["group"]), view["more"], view["group"][0]) == (
        25,
        5,
        view["image"]["sample_id"],
    )


def test_classes_have_titles_and_definitions(clinic: Any) -> None:
    text = visit(write(clinic)).get("/").text
    assert 'data-label="MEL" data-key="1"' in text
    assert "Mela&lt;b&gt;noma" in text
    assert text.count("Malignant.") == 2, "on the button, and in Help"
    assert 'data-title="NV"' in text


@pytest.mark.parametrize(
    ("reading", "found"),
    [
        ("reading: {classes: {WART: {title: Wart}}}", "reading.classes: .*MEL, NV, BCC.*WART"),
        ("reading: {columns: [age, weight]}", "reading.columns: .*weight"),
        ("reading: {columns: [label]}", "label.*readers would see the answer"),
        ("reading: {title: x}", "title"),
    ],
)
def test_a_reading_that_cannot_be_is_refused_with_its_field(
    clinic: Any, reading: str, found: str
) -> None:
    with pytest.raises(DataError, match=found):
        Pictures(write(clinic, reading), CLASSES)


def test_an_npz_file_has_no_columns(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        "kind: npz\nfile: a.npz\nlabels: {0: MEL}\nreading: {columns: [age]}\n"
    )
    with pytest.raises(DataError, match="which only a CSV has"):
        Pictures(tmp_path / "site.yaml", CLASSES)


def test_own_answers_are_listed_and_can_be_shown_again(clinic: Any) -> None:
    clinic_file = write(clinic)
    client = visit(clinic_file)
    body = {
        "annotator": "anna",
        "key": "0" * 32,
        "sample_id": "s00",
        "kind": "unusable",
        "label": None,
        "seen": 0,
    }
    for seconds, code in [(-1, 400), ("2", 400), (2.5, 200)]:
        answer = client.post("/answer", json={**body, "seconds": seconds})
        assert answer.status_code == code
    (given,) = client.get("/given?annotator=anna").get_json()
    assert (given["sample_id"], given["text"]) == ("s00", "unusable")
    assert client.get("/given?annotator=ben").get_json() == []
    shown = client.get("/state?annotator=anna&showing=s00&again=true").get_json()
    assert (shown["image"]["sample_id"], shown["own"]) == ("s00", "unusable")
    assert client.get("/state?annotator=ben&showing=s00&again=true").get_json()["own"] is None


# --- window and level


def picture(client: Any, **how: float) -> np.ndarray:
    answer = client.get("/image", query_string={"id": "s00", **how})
    assert answer.status_code == 200
    return np.asarray(Image.open(io.BytesIO(answer.data)))


def test_sixteen_bits_are_drawn_between_two_values(clinic: Any) -> None:
    values = np.arange(0, 60000, 2500, dtype=np.uint16).reshape(4, 6)
    site_file = write(clinic, "")
    Image.fromarray(values).save(clinic.site_file.parent / "images" / "s00.png")
    client = visit(site_file)
    levels = client.get("/levels?id=s00").get_json()
    assert (levels["low"], levels["high"], levels["deep"]) == (0, 57500, True)
    assert (
        picture(client) == picture(client, centre=levels["centre"], width=levels["width"])
    ).all()
    narrow = picture(client, centre=10000, width=5000)
    assert narrow.ravel()[[0, 3, 4, 5, 6]].tolist() == [0, 0, 128, 255, 255]


def test_hounsfield_units_of_a_ct_are_drawn_in_any_window(clinic: Any) -> None:
    pytest.importorskip("pydicom")
    site_file = write(clinic, "")
    stored = np.array([[0, 1024, 1064, 1264], [1464, 2000, 3000, 4095]], np.uint16)
    path = clinic.site_file.parent / "images" / "s00.png"
    window = {"RescaleSlope": 1, "RescaleIntercept": -1024, "WindowCenter": 40, "WindowWidth": 400}
    save(path, stored, **window)
    client = visit(site_file)
    levels = client.get("/levels?id=s00").get_json()
    assert {name: levels[name] for name in ("centre", "width", "deep", "inverted")} == {
        **{"centre": 40, "width": 400},
        **{"deep": True, "inverted": False},
    }
    assert levels["low"] == -1024
    assert (picture(client) == picture(client, centre=40, width=400)).all()
    wide = picture(client, centre=1000, width=4000).ravel()
    assert (np.diff(wide.astype(int)) >= 0).all()
    assert len(set(wide.tolist())) > len(set(picture(client).ravel().tolist()))


def test_eight_bits_keep_their_picture_and_colour_has_no_window(clinic: Any) -> None:
    site_file = write(clinic, "")
    client = visit(site_file)
    assert client.get("/levels?id=s00").get_json() is None
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6)
    for image in (Image.fromarray(grey), Image.fromarray(grey).convert("RGB")):
        image.save(clinic.site_file.parent / "images" / "s00.png")
        assert client.get("/levels?id=s00").get_json()["deep"] is False
        assert (picture(client, centre=5, width=2) == picture(client)).all()


def test_a_thumbnail_is_small_and_nonsense_is_refused(clinic: Any) -> None:
    client = visit(write(clinic))
    assert max(picture(client, wide=16, high=16).shape) == 16
    for query in (
        "wide=1",
        "high=9999",
        "width=0&centre=1",
        "centre=nan&width=1",
        "centre=x&width=1",
    ):
        assert client.get(f"/image?id=s00&{query}").status_code == 400
    assert client.get("/levels?id=nobody").status_code == 404
    (clinic.site_file.parent / "images" / "s00.png").write_bytes(b"no image")
    assert client.get("/levels?id=s00").status_code == 404
