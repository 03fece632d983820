"""The page's server: who may talk to it, what it says, and how it fails."""

import io
import json
import os
import re
import secrets
import socket
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flask.testing import FlaskClient
from PIL import Image
from werkzeug.test import TestResponse

from fedward import cli
from fedward.annotation.database import NAME
from fedward.annotation.desk import Desk
from fedward.annotation.page.app import KEYS, Page
from fedward.annotation.page.guard import Guard, is_loopback
from fedward.annotation.page.server import Token, address, listen
from fedward.annotation.pictures import LARGEST, Pictures
from fedward.errors import ConfigError, DataError
from odd_images import deep_png, odd_exif
from visiting import come_in

CLASSES = ("MEL", "NV", "BCC")
TOKEN = secrets.token_urlsafe(32)
_KEYS = count()


class Visitor:
    """A browser, as far as the server can see one."""

    def __init__(self, clinic: Any, host: str = "127.0.0.1") -> None:
        pictures = Pictures(clinic.site_file, CLASSES)
        desk = Desk(clinic.queue, pictures.ids)
        guard = Guard(TOKEN, host)
        self.guard = guard
        self.page = Page(desk, pictures, guard)
        self.client: FlaskClient = self.page.app().test_client()

    def come_in(self) -> "Visitor":
        self.client = come_in(self.page, TOKEN)
        return self

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> TestResponse:
        if headers is not None:  # in place of those of the page
            del self.client.environ_base["HTTP_X_FORM_SECRET"]
        return self.client.post(path, data=json.dumps(body), headers=headers)


def message(sample_id: str = "s00", label: str | None = "MEL", **more: Any) -> dict[str, Any]:
    key = f"{next(_KEYS):032x}"
    return {
        "annotator": "anna",
        "key": key,
        "sample_id": sample_id,
        "kind": "label",
        "label": label,
        "seen": 0,
        **more,
    }


@pytest.fixture
def visitor(clinic: Any) -> Visitor:
    clinic.ask(*clinic.ids)
    return Visitor(clinic).come_in()


# --- who may talk to it


def test_the_token_becomes_a_cookie_that_no_script_sees(clinic: Any) -> None:
    visitor = Visitor(clinic)
    answer = visitor.client.get(f"/?token={TOKEN}")
    cookie = answer.headers["Set-Cookie"]
    assert answer.status_code == 200
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in answer.text
    assert visitor.client.get("/").status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=wrong", "/?token={nearly}", "/?token=ä"]
)
def test_without_the_token_a_sentence_says_what_to_do(clinic: Any, path: str) -> None:
    path = path.format(nearly=TOKEN[:-1])
    answer = Visitor(clinic).client.get(path)
    assert answer.status_code == 403
    assert "full address" in answer.text
    assert "Set-Cookie" not in answer.headers
    assert "form-secret" not in answer.text


@pytest.mark.proves(
    "outsider",
    "the annotation page from elsewhere (DNS rebinding), or without its token, cookie "
    "and secret; ids that lead out",
    "refused; nothing is shown",
)
@pytest.mark.parametrize(
    "path", ["/state?annotator=anna", "/given?annotator=anna", "/image?id=s00", "/nothing"]
)
def test_nothing_is_told_without_the_token(clinic: Any, path: str) -> None:
    answer = Visitor(clinic).client.get(path)
    assert answer.status_code == 403
    assert set(answer.get_json()) == {"message"}


@pytest.mark.proves(
    "outsider",
    "the annotation page from elsewhere (DNS rebinding), or without its token, cookie "
    "and secret; ids that lead out",
    "refused; nothing is shown",
)
@pytest.mark.parametrize("path", ["/answer", "/undo"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"X-Form-Secret": "wrong"}, {"X-Form-Secret": TOKEN}, {"X-Form-Secret": "ä"}],
)
def test_a_change_needs_the_secret_of_the_page(
    visitor: Visitor, clinic: Any, path: str, headers: dict[str, str]
) -> None:
    assert visitor.post(path, message(), headers).status_code == 403
    assert clinic.queue.labels() == {}


def test_a_change_from_another_origin_is_refused(visitor: Visitor, clinic: Any) -> None:
    for origin, code in [("https://evil.example", 403), ("null", 403), ("http://localhost", 200)]:
        headers = {"Origin": origin}
        assert visitor.client.post("/answer", json=message(), headers=headers).status_code == code
    assert clinic.queue.labels() == {"s00": "MEL"}


@pytest.mark.proves(
    "outsider",
    "the annotation page from elsewhere (DNS rebinding), or without its token, cookie "
    "and secret; ids that lead out",
    "refused; nothing is shown",
)
@pytest.mark.parametrize(
    ("bound", "named", "code"),
    [
        ("127.0.0.1", "127.0.0.1:8765", 200),
        ("127.0.0.1", "localhost:9", 200),
        ("127.0.0.1", "[::1]:8765", 200),
        ("127.0.0.1", "evil.example:8765", 421),
        ("127.0.0.1", "192.0.2.7:8765", 421),
        ("127.0.0.1", "127.0.0.1.evil.example", 421),
        ("127.0.0.1", "[::1", 421),
        ("127.0.0.1", "", 421),
        ("0.0.0.0", "192.0.2.7:8765", 200),
        ("0.0.0.0", "evil.example:8765", 421),
        ("reading-room.example", "Reading-Room.example:8765", 200),
    ],
)
def test_a_foreign_name_for_this_machine_is_refused(
    clinic: Any, bound: str, named: str, code: int
) -> None:
    """A name server elsewhere may point its name here (DNS rebinding)."""
    client = Visitor(clinic, host=bound).client
    assert client.get(f"/?token={TOKEN}", headers={"Host": named}).status_code == code


@pytest.mark.parametrize(
    "path", ["/", "/state?annotator=anna", "/image?id=s00", "/static/page.js", "/nothing"]
)
def test_every_answer_carries_the_security_headers(visitor: Visitor, path: str) -> None:
    headers = visitor.client.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("name", ["page.html", "page.js", "page.css"])
def test_the_page_brings_everything_along(visitor: Visitor, name: str) -> None:
    """No foreign address, no script or style inside the HTML, which the policy would block."""
    text = visitor.client.get("/" if name == "page.html" else f"/static/{name}").text
    assert not re.search(r"https?://|//[a-z]+\.[a-z]", text)
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|style=", text)


def test_two_pages_on_one_machine_do_not_share_a_cookie(clinic: Any) -> None:
    other = Guard("another", "127.0.0.1")
    assert other._cookie != Guard(TOKEN, "127.0.0.1")._cookie  # browsers send cookies to every port


# --- what it says


def test_the_page_shows_no_path(visitor: Visitor, clinic: Any) -> None:
    (clinic.site_file.parent / "images" / "s00.png").write_bytes(b"broken")
    for path in (
        "/",
        "/state?annotator=anna",
        "/image?id=s00",
        "/image?id=../clinic.yaml",
        "/nothing",
    ):
        text = visitor.client.get(path).text
        assert str(clinic.site_file.parent) not in text
        assert "manifest" not in text


def test_classes_have_keys_that_mean_nothing_else(visitor: Visitor) -> None:
    text = visitor.client.get("/").text
    assert re.findall(r'data-label="(\w+)" data-key="(.)"', text) == [
        ("MEL", "1"),
        ("NV", "2"),
        ("BCC", "3"),
    ]
    assert len(set(KEYS)) == len(KEYS)
    assert not set(KEYS) & set("cfsu+-=?")


def test_more_classes_than_keys_work_and_names_are_escaped(clinic: Any) -> None:
    classes = [f"<b>{index}" for index in range(len(KEYS) + 2)]
    clinic.site_file.write_text(
        clinic.site_file.read_text().replace("naevus: NV", "") + "site: <i>\n"
    )
    page = Page(Desk(clinic.queue, []), Pictures(clinic.site_file, classes), Guard(TOKEN, "::1"))
    text = page.app().test_client().get(f"/?token={TOKEN}").text
    assert text.count('class="choice"') == len(classes)
    assert text.count("data-key") == len(KEYS)
    assert "<b>0" not in text
    assert "<i>" not in text


def test_the_view_says_what_waits_and_how_far_it_is(visitor: Visitor) -> None:
    view = visitor.client.get("/state?annotator=anna").get_json()
    assert (view["image"]["sample_id"], view["waiting"], view["mine"]) == ("s00", 6, 0)
    assert (view["tally"]["total"], view["tally"]["decided"]) == (6, 0)
    view = visitor.post("/answer", message()).get_json()
    assert (view["image"]["sample_id"], view["waiting"], view["mine"]) == ("s01", 5, 1)
    assert view["tally"]["decided"] == 1
    last = {"answer": 1, "sample_id": "s00", "kind": "label", "text": "MEL"}
    assert view["last"] == last | {"before": None, "shown_again": True}


def test_undo_shows_the_image_again(visitor: Visitor, clinic: Any) -> None:
    visitor.post("/answer", message("s04"))
    body = {"annotator": "anna", "key": f"{next(_KEYS):032x}", "answer": 1}
    view = visitor.post("/undo", body).get_json()
    assert (view["image"]["sample_id"], view["mine"], view["last"]) == ("s04", 0, None)
    assert clinic.queue.labels() == {}


def test_a_stale_answer_changes_nothing_and_shows_the_present(
    visitor: Visitor, clinic: Any
) -> None:
    visitor.post("/answer", message())
    answer = visitor.post("/answer", message(label="NV"))
    assert answer.status_code == 409
    assert answer.get_json()["view"]["image"]["sample_id"] == "s01"
    assert (
        visitor.post("/undo", {"annotator": "anna", "key": "0" * 32, "answer": 99}).status_code
        == 409
    )
    assert clinic.queue.labels() == {"s00": "MEL"}


@pytest.mark.proves(
    "files",
    "a reader who types another reader's name",
    "**not covered**: sees that reader's answers and answers for them; names are not checked",
)
def test_whoever_types_a_name_is_that_reader(visitor: Visitor, clinic: Any) -> None:
    visitor.post("/answer", message(annotator="anna"))
    assert [each["text"] for each in visitor.client.get("/given?annotator=anna").get_json()] == [
        "MEL"
    ]
    visitor.post("/answer", message(annotator="anna", label="NV", seen=1))
    assert clinic.queue.labels() == {"s00": "NV"}


def test_the_same_person_written_differently_is_one(visitor: Visitor, clinic: Any) -> None:
    visitor.post("/answer", message(annotator="  Zo\u00eb  M "))
    visitor.post("/answer", message("s01", annotator="Zoe\u0308 M"))
    assert {decision.annotator for decision in clinic.queue.decisions()} == {"Zo\u00eb M"}


@pytest.mark.parametrize(
    "change",
    [
        {"sample_id": "s99"},
        {"sample_id": 3},
        {"label": "HEART"},
        {"label": None},
        {"kind": "skip"},
        {"kind": "undo", "label": None},
        {"annotator": "  "},
        {"annotator": "x" * 81},
        {"annotator": "a\u0007b"},
        {"key": "short"},
        {"seen": "0"},
        {"more": 1},
    ],
)
def test_what_the_page_never_sends_is_refused(
    visitor: Visitor, clinic: Any, change: dict[str, Any]
) -> None:
    answer = visitor.post("/answer", {**message(), **change})
    assert answer.status_code == 400
    assert "reload" in answer.get_json()["message"]
    assert clinic.queue.decisions() == []


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", " -1", "@SUM(1)"])
def test_a_spreadsheet_formula_as_name_is_refused_and_reported(
    visitor: Visitor, clinic: Any, name: str
) -> None:
    for answer in (
        visitor.post("/answer", message(annotator=name)),
        visitor.client.get("/state", query_string={"annotator": name}),
    ):
        assert answer.status_code == 400
        assert "a reader's name that does not begin with = + - @" in answer.get_json()["message"]
    assert clinic.queue.decisions() == []


@pytest.mark.parametrize("body", [b"", b"[", b"\xff", b"x" * 20_000])
def test_broken_messages_are_refused(visitor: Visitor, clinic: Any, body: bytes) -> None:
    answer = visitor.client.post("/answer", data=body)
    assert answer.status_code in (400, 413)
    assert clinic.queue.decisions() == []


def test_a_failing_queue_acknowledges_nothing_and_hides_details(
    visitor: Visitor, clinic: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (clinic.queue.folder / NAME).write_bytes(b"spoilt" * 1000)
    answer = visitor.post("/answer", message())
    assert answer.status_code == 503
    assert str(clinic.queue.folder) not in answer.text
    assert str(clinic.queue.folder) in caplog.text


# --- images


def test_an_image_is_shown_whole_in_its_own_size(visitor: Visitor, clinic: Any) -> None:
    answer = visitor.client.get("/image?id=s03")
    assert answer.mimetype == "image/png"
    with (
        Image.open(io.BytesIO(answer.data)) as shown,
        Image.open(clinic.site_file.parent / "images/s03.png") as own,
    ):
        assert (np.asarray(shown) == np.asarray(own)).all()


@pytest.mark.parametrize(
    "name", ["s99", "", "../clinic.yaml", "images/s00.png", "%2e%2e%2fclinic.yaml", "s00%00"]
)
def test_only_ids_of_the_site_have_images(visitor: Visitor, name: str) -> None:
    answer = visitor.client.get(f"/image?id={name}")
    assert (answer.status_code, answer.mimetype) == (404, "application/json")


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fpage.html"]
)
def test_nothing_but_the_two_static_files_is_served(visitor: Visitor, path: str) -> None:
    assert visitor.client.get(path).status_code == 404


def test_a_broken_image_is_said_and_may_be_skipped(visitor: Visitor, clinic: Any) -> None:
    (clinic.site_file.parent / "images" / "s00.png").write_bytes(b"no image")
    assert visitor.client.get("/image?id=s00").status_code == 404
    assert (
        visitor.post("/answer", message(kind="skip", label=None)).get_json()["image"]["sample_id"]
        == "s01"
    )


def shown(clinic: Any, image: Image.Image, name: str = "s00.png", **saved: Any) -> Image.Image:
    path = clinic.site_file.parent / "images" / "s00.png"
    image.save(path, name.rpartition(".")[2], **saved)
    return Image.open(io.BytesIO(Pictures(clinic.site_file, CLASSES).png("s00")))


def test_sixteen_bits_are_scaled_from_darkest_to_brightest(clinic: Any) -> None:
    deep = np.linspace(1000, 3000, 24, dtype=np.uint16).reshape(4, 6)
    picture = np.asarray(shown(clinic, Image.fromarray(deep)))
    assert (picture.min(), picture.max(), picture.dtype, picture.shape) == (
        0,
        255,
        np.uint8,
        (4, 6),
    )
    assert (np.diff(picture.ravel().astype(int)) > 0).all()


def test_transparency_is_shown_on_black_and_palettes_as_colours(clinic: Any) -> None:
    clear = Image.new("RGBA", (4, 4), (200, 100, 50, 0))
    assert shown(clinic, clear).getpixel((0, 0)) == (0, 0, 0)
    assert shown(clinic, Image.new("RGB", (4, 4), (9, 8, 7)).convert("P")).mode == "RGB"


def test_a_turned_photograph_is_upright_without_its_metadata(clinic: Any) -> None:
    photograph = Image.new("RGB", (8, 4))
    exif = photograph.getexif()
    exif[0x0112], exif[0x010E] = 6, "name of a patient"
    picture = shown(clinic, photograph, "x.jpeg", exif=exif)
    assert picture.size == (4, 8)
    assert not picture.info


def test_odd_camera_data_is_read_and_deep_colour_refused(clinic: Any) -> None:
    assert shown(clinic, Image.new("RGB", (8, 4)), "x.jpeg", exif=odd_exif("width")).size == (4, 8)
    path = clinic.site_file.parent / "images" / "s00.png"
    path.write_bytes(deep_png(np.full((4, 4, 3), 900, np.uint16), 2))
    with pytest.raises(DataError, match=r"image s00.*convert to 8 bit"):
        Pictures(clinic.site_file, CLASSES).png("s00")


def test_a_huge_image_is_reduced(clinic: Any) -> None:
    assert shown(clinic, Image.new("L", (2 * LARGEST, 100), 7)).size == (LARGEST, 50)


def test_a_site_with_an_npz_file_shows_each_split(tmp_path: Path) -> None:
    arrays = {}
    for number, split in enumerate(("train", "val", "test")):
        arrays[f"{split}_images"] = np.full((2, 5, 6, 3), number, np.uint8)
        arrays[f"{split}_labels"] = np.zeros((2, 1), np.int64)
    np.savez(tmp_path / "a.npz", **arrays)
    (tmp_path / "site.yaml").write_text(f"kind: npz\nfile: a.npz\nlabels: {{0: {CLASSES[0]}}}\n")
    pictures = Pictures(tmp_path / "site.yaml", CLASSES)
    assert pictures.ids == {
        f"{split}-{index}" for split in ("train", "val", "test") for index in (0, 1)
    }
    assert Image.open(io.BytesIO(pictures.png("test-1"))).getpixel((0, 0)) == (2, 2, 2)
    with pytest.raises(DataError, match="train-2"):
        pictures.png("train-2")
    # Of the three arrays one after the other, the site has two images.
    (tmp_path / "site.yaml").write_text(
        f"kind: npz\nfile: a.npz\nlabels: {{0: {CLASSES[0]}}}\n"
        "joined: true\nindices: {train: [5], test: [2]}\n"
    )
    pictures = Pictures(tmp_path / "site.yaml", CLASSES)
    assert pictures.ids == {"image-5", "image-2"}
    assert Image.open(io.BytesIO(pictures.png("image-5"))).getpixel((0, 0)) == (2, 2, 2)
    (tmp_path / "site.yaml").write_text("kind: npz\nfile: a.npz\nlabels: {0: WART}\n")
    with pytest.raises(DataError, match=r"site site, field labels: .*WART"):
        Pictures(tmp_path / "site.yaml", CLASSES)


# --- socket and token


def test_a_taken_port_is_a_sentence_and_port_0_finds_a_free_one() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address(first, "t") == f"http://127.0.0.1:{port}/?token=t"
        with pytest.raises(ConfigError, match="--port 0"):
            listen("127.0.0.1", port)


def test_the_command_warns_of_other_hosts_and_unreadable_images(
    clinic: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stopped:
        def serve_forever(self) -> None:
            assert (clinic.queue.folder / "token").is_file()

        def shutdown(self) -> None:
            pass

    monkeypatch.setattr("fedward.annotation.page.server.server", lambda app, listening: Stopped())
    clinic.ask("s00", "gone")
    for host, warns in [("127.0.0.1", False), ("0.0.0.0", True)]:
        words = [
            "annotate",
            str(clinic.site_file),
            "--classes",
            *CLASSES,
            "--port",
            "0",
            "--host",
            host,
        ]
        assert cli.main(words) == 0
        printed = capsys.readouterr()
        assert ("WARNING" in printed.err) == warns
        assert "not among the site's images: gone" in printed.err
        name = socket.gethostname() if warns else host
        assert re.search(rf"http://{re.escape(name)}:\d+/\?token=[\w-]+ ", printed.out)
        assert not (clinic.queue.folder / "token").exists()


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("x.y", False),
    ],
)
def test_loopback_is_this_machine_alone(host: str, is_local: bool) -> None:
    assert is_loopback(host) == is_local


def test_the_token_outlives_a_crash_and_not_a_good_end(tmp_path: Path) -> None:
    first = Token(tmp_path)
    assert Token(tmp_path).value == first.value
    assert os.stat(tmp_path / "token").st_mode & 0o777 == 0o600
    first.forget()
    assert Token(tmp_path).value != first.value


@pytest.mark.parametrize("left", [b"", b"short", b"\xff" * 50])
def test_a_spoilt_token_is_replaced(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "token").write_bytes(left)
    assert len(Token(tmp_path).value) == 43


def test_tokens_differ(tmp_path: Path) -> None:
    tokens = set()
    for _ in range(50):
        token = Token(tmp_path)
        tokens.add(token.value)
        token.forget()
    assert len(tokens) == 50


@pytest.mark.parametrize(
    ("more", "name"), [("", "hospital-c"), ("site: clinic-of-its-own\n", "clinic-of-its-own")]
)
def test_a_site_is_called_as_in_its_startup_kit(clinic: Any, more: str, name: str) -> None:
    """Each hospital's file in a startup kit has the same name."""
    local = clinic.site_file.parent
    file = local / "fedward_site.yaml"
    file.write_text(clinic.site_file.read_text() + more)
    assert Pictures(file, CLASSES).site == (name if more else "fedward_site")
    (local.parent / "startup").mkdir()
    for content in ("{", "[]", '{"client": {"fqsn": 3}}', "[" * 100_000):
        (local.parent / "startup" / "fed_client.json").write_text(content)
        assert Pictures(file, CLASSES).site == (name if more else "fedward_site")
    kit = {"client": {"fqsn": "relay.hospital-c"}}
    (local.parent / "startup" / "fed_client.json").write_text(json.dumps(kit))
    assert Pictures(file, CLASSES).site == name
    assert Pictures(clinic.site_file, CLASSES).site == "clinic"
