"""Pictures of what pre-training learned: inside the page, described for who cannot see them, or
said to be missing.
"""

import json
from base64 import b64decode
from pathlib import Path

import pytest
from pages import report
from PIL import Image
from run_folders import write_run

from fedward.errors import RunError
from fedward.report import write_report
from fedward.report.reconstructions import NAMES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", method="selffed", rounds=2)


def add_pictures(folder: Path, images: int) -> None:
    place = folder / "reconstructions"
    place.mkdir()
    for number in range(1, images + 1):
        for index, name in enumerate(NAMES):
            Image.new("RGB", (4, 4), (number, index, 0)).save(place / f"{number}-{name}.png")
    about = {
        "format": 3,
        "round": 40,
        "hidden": 0.6,
        "names": list(NAMES) if images else [],
        "images": images,
    }
    (place / "about.json").write_text(json.dumps(about))


def test_all_pictures_are_in_the_page_in_order_and_described(folder: Path) -> None:
    add_pictures(folder, 2)
    _, page = report(folder)
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert [image["alt"] for image in images[:3]] == [
        "Image 1 of the server's own",
        "The same image with 60 % of its squares hidden",
        "The same image with the hidden squares filled in by the model",
    ]
    kind = "data:image/png;base64,"
    assert all(image["src"].startswith(kind) for image in images)
    found = [b64decode(image["src"].removeprefix(kind)) for image in images]
    expected = [
        (folder / "reconstructions" / f"{n}-{name}.png").read_bytes()
        for n in (1, 2)
        for name in NAMES
    ]
    assert found == expected
    assert "after 40 rounds" in page.text
    assert "these two are taken from the true image" in page.text
    assert not page.unclosed


def test_without_images_the_page_says_so_in_a_line(folder: Path) -> None:
    add_pictures(folder, 0)
    _, page = report(folder)
    assert "The server has no public images of its own" in page.text
    assert "img" not in {tag for tag, _ in page.tags}


def test_other_runs_have_no_such_part(folder: Path) -> None:
    _, page = report(folder)
    assert "reconstructions" not in page.by_id


def test_a_damaged_folder_is_named(folder: Path) -> None:
    add_pictures(folder, 1)
    (folder / "reconstructions" / "1-masked.png").write_bytes(b"<svg onload=alert(1)>")
    with pytest.raises(RunError, match=r"1-masked\.png is not a PNG file"):
        write_report(folder)
    about = folder / "reconstructions" / "about.json"
    for content in ("[" * 100_000, about.read_text().replace("0.6", "1" * 400), "{}"):
        about.write_text(content)
        with pytest.raises(RunError, match=r"pictures in .*expected about\.json"):
            write_report(folder)
    about.unlink()
    with pytest.raises(RunError, match=r"about\.json"):
        write_report(folder)
