"""Attacks over sockets on the page as it runs, in a process of its own."""

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from chromium import Server
from fedward.annotation.page import connections
from fedward.annotation.page.connections import LARGEST_REQUEST, MOST_STRANGERS
from waiting import PATIENCE

CLASSES = ("MEL", "NV", "BCC")
_PORTS = count()


class Target:
    """A page that runs, and what a reader's browser knows of it."""

    def __init__(self, clinic: Any, errors: Path) -> None:
        self.clinic = clinic
        self.errors = errors
        with errors.open("wb") as stream:
            self.server = Server(clinic.site_file, CLASSES, errors=stream)
        self.port = self.server.port
        self.token = self.server.address.partition("token=")[2]
        answer, page = self.ask("GET", f"/?token={self.token}")
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        self.form_secret, self.image_secret = re.findall(rb'-secret" content="(\w+)"', page)

    def ask(
        self, method: str, path: str, body: bytes = b"", **headers: Any
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, named)
        answer = connection.getresponse()
        return answer, answer.read()

    def as_reader(
        self, method: str, path: str, body: bytes = b"", **headers: Any
    ) -> tuple[int, dict[str, Any]]:
        answer, content = self.ask(
            method, path, body, Cookie=self.cookie, X_Form_Secret=self.form_secret, **headers
        )
        return answer.status, json.loads(content)

    def send(self, content: bytes) -> bytes:
        """Send bytes, and return all bytes that come back until the page ends the connection."""
        answer = b""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as sending,
            suppress(ConnectionError),
        ):
            sending.sendall(content)
            # The page may have closed the connection already, and its answer can still be read.
            with suppress(OSError):
                sending.shutdown(socket.SHUT_WR)
            while part := sending.recv(65536):
                answer += part
        return answer

    def threads(self) -> int:
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.findall(r"Threads:\s+(\d+)", status)[0])

    def decisions(self) -> list[Any]:
        return list(self.clinic.queue.decisions())


def message(sample_id: str = "s00", label: str = "MEL", **more: Any) -> dict[str, Any]:
    said = {
        "annotator": f"reader {next(_PORTS)}",
        "key": uuid4().hex,
        "sample_id": sample_id,
        "seen": 0,
    }
    return {**said, "kind": "label", "label": label, **more}


def as_bytes(content: Any) -> bytes:
    return json.dumps(content).encode()


@pytest.fixture(scope="module")
def target(module_clinic: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    found = Target(module_clinic, tmp_path_factory.mktemp("target") / "errors")
    yield found
    found.server.process.kill()
    found.server.process.communicate()


# --- whoever reaches the port


@pytest.mark.proves(
    "outsider",
    "half, slow, endless or malformed requests, or one after a refused one",
    "closed after 15 seconds, read to 256 KiB at most, repeated nowhere; a reader is "
    "served at once",
)
def test_half_requests_do_not_keep_a_reader_out(target: Target) -> None:
    held = [
        socket.create_connection(("127.0.0.1", target.port), timeout=PATIENCE)
        for _ in range(4 * MOST_STRANGERS)
    ]
    try:
        for one in held:
            one.sendall(b"GET /half")
        assert [one.recv(1) for one in held[: 3 * MOST_STRANGERS - 1]] == [b""] * (
            3 * MOST_STRANGERS - 1
        )
        assert target.as_reader("GET", "/state?annotator=anna")[0] == 200
        assert target.threads() <= MOST_STRANGERS + 20
    finally:
        for one in held:
            one.close()


@pytest.mark.proves(
    "outsider",
    "half, slow, endless or malformed requests, or one after a refused one",
    "closed after 15 seconds, read to 256 KiB at most, repeated nowhere; a reader is "
    "served at once",
)
def test_a_request_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(connections.time, "monotonic", lambda: now[0])
    here, there = socket.socketpair()
    with here, there:
        incoming = connections._Incoming(here)
        for _ in range(5):
            there.sendall(b"x")
            assert incoming.read(1) == b"x"
            now[0] += connections.LONGEST_REQUEST / 5
        there.sendall(b"x")
        with pytest.raises(TimeoutError):
            incoming.read(1)


@pytest.mark.proves(
    "outsider",
    "half, slow, endless or malformed requests, or one after a refused one",
    "closed after 15 seconds, read to 256 KiB at most, repeated nowhere; a reader is "
    "served at once",
)
def test_a_request_has_a_size() -> None:
    here, there = socket.socketpair()
    with here, there:
        incoming = connections._Incoming(here)
        taken = 0
        for _ in range(2 * LARGEST_REQUEST // 4096):
            there.sendall(bytes(4096))
            taken += len(incoming.read(4096) or b"")
            if taken == LARGEST_REQUEST:
                break
        assert incoming.read(4096) == b""
    assert taken == LARGEST_REQUEST


_HOST = b"Host: 127.0.0.1\r\n"


@pytest.mark.proves(
    "outsider",
    "half, slow, endless or malformed requests, or one after a refused one",
    "closed after 15 seconds, read to 256 KiB at most, repeated nowhere; a reader is "
    "served at once",
)
@pytest.mark.parametrize(
    "sent",
    [
        b"GET /secret-word http/9.9 x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03secret-word\r\n\r\n",
        b"GET / HTTP/9.9secret-word\r\n\r\n",
        b"GET http://[secret-word HTTP/1.1\r\n" + _HOST + b"\r\n",
        b"GET /%0d%0aWARNING:%20secret-word%1b[2J HTTP/1.1\r\n" + _HOST + b"\r\n",
        b"GET / HTTP/1.1\r\n" + _HOST + b"X: secret-word\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + _HOST + b"X: " + b"secret-word" * 9000 + b"\r\n\r\n",
        b"GET /" + b"secret-word" * 9000 + b" HTTP/1.1\r\n" + _HOST + b"\r\n",
        b"TRACE / HTTP/1.1\r\n" + _HOST + b"X: secret-word\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\n" + _HOST + b"X: secret-word\r\n\r\n",
        b"POST /answer HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\nsecret-word\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\nContent-Length: -5\r\n\r\nsecret-word",
        b"GET / HTTP/1.1\r\n" + _HOST + b"Host: secret-word\r\n\r\n",
    ],
)
def test_what_is_no_request_is_not_repeated(target: Target, sent: bytes) -> None:
    answer = target.send(sent)
    head = answer.partition(b"\r\n\r\n")[0]
    assert re.match(rb"HTTP/1\.[01] 4\d\d|HTTP/1\.1 505|$", head), head
    assert not re.search(rb"secret-word|Werkzeug|Python|Traceback", answer)
    if answer.startswith(b"HTTP"):
        assert b"frame-ancestors 'none'" in head
        assert b"nosniff" in head
    assert target.errors.read_bytes() == b""


@pytest.mark.proves(
    "outsider",
    "half, slow, endless or malformed requests, or one after a refused one",
    "closed after 15 seconds, read to 256 KiB at most, repeated nowhere; a reader is "
    "served at once",
)
def test_a_second_request_in_a_connection_is_dropped(target: Target) -> None:
    body = as_bytes(message())
    proof = f"Cookie: {target.cookie}\r\nX-Form-Secret: {target.form_secret.decode()}\r\n".encode()
    second = (
        b"POST /answer HTTP/1.1\r\n"
        + _HOST
        + proof
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
    )
    before = target.decisions()
    answer = target.send(
        b"POST /answer HTTP/1.1\r\n" + _HOST + b"Content-Length: 0\r\n\r\n" + second
    )
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b" 403 " in answer.partition(b"\r\n")[0]
    assert target.decisions() == before


_DATA = ("/state?annotator=anna", "/given?annotator=anna", "/image?id=s00", "/levels?id=s00")


@pytest.mark.proves(
    "outsider",
    "the annotation page's cookie, which browsers show to other ports",
    "reveals the names of the site and its classes; opens no image, id or answer",
)
@pytest.mark.parametrize("path", [*_DATA, "/answer", "/undo"])
def test_the_cookie_alone_opens_nothing(target: Target, path: str) -> None:
    method, body = ("POST", as_bytes(message())) if path in ("/answer", "/undo") else ("GET", b"")
    before = target.decisions()
    answer, content = target.ask(method, path, body, Cookie=target.cookie)
    assert (answer.status, set(json.loads(content))) == (403, {"message"})
    page = target.ask("GET", "/", Cookie=target.cookie)[1]
    assert target.form_secret not in page
    assert target.image_secret not in page
    assert target.token not in target.cookie
    stolen = target.cookie.partition("=")[2]
    assert target.ask("GET", f"/?token={stolen}")[0].status == 403
    assert target.decisions() == before


@pytest.mark.proves(
    "outsider",
    "the annotation page from elsewhere (DNS rebinding), or without its token, cookie "
    "and secret; ids that lead out",
    "refused; nothing is shown",
)
def test_the_address_of_an_image_is_no_key(target: Target) -> None:
    secret = target.image_secret.decode()
    assert target.ask("GET", f"/image?id=s00&secret={secret}")[0].status == 403
    assert (
        target.ask("GET", f"/image?id=s00&secret={secret}", Cookie=target.cookie)[0].status == 200
    )
    for path in ("/state?annotator=anna&", "/levels?id=s00&"):
        assert target.ask("GET", f"{path}secret={secret}", Cookie=target.cookie)[0].status == 403
    refused, _ = target.ask(
        "POST", "/answer", as_bytes(message()), Cookie=target.cookie, X_Form_Secret=secret
    )
    assert refused.status == 403


@pytest.mark.proves(
    "outsider",
    "the annotation page from elsewhere (DNS rebinding), or without its token, cookie "
    "and secret; ids that lead out",
    "refused; nothing is shown",
)
def test_tokens_that_are_nearly_right_are_refused(target: Target) -> None:
    for place in range(len(target.token)):
        other = "A" if target.token[place] != "A" else "B"
        wrong = target.token[:place] + other + target.token[place + 1 :]
        assert target.ask("GET", f"/?token={wrong}")[0].status == 403
        assert target.ask("GET", f"/?token={target.token[:place]}")[0].status == 403


# --- a reader who has the address


@pytest.mark.proves(
    "files",
    "a reader's messages with unknown images, keys, methods or types, endless numbers "
    "or absurd windows",
    "refused, or drawn within the page's limits; nothing is stored",
)
@pytest.mark.parametrize("sample_id", ["s06", "s07"])
def test_what_nobody_asked_about_is_not_shown_and_not_answered(
    target: Target, sample_id: str
) -> None:
    for path in ("/image", "/levels"):
        assert target.as_reader("GET", f"{path}?id={sample_id}")[0] == 404
    before = target.decisions()
    status, content = target.as_reader("POST", "/answer", as_bytes(message(sample_id)))
    assert (status, content["message"]) == (
        409,
        "Nobody has asked about this image. Nothing was changed.",
    )
    assert target.decisions() == before


@pytest.mark.proves(
    "files",
    "a reader's messages with unknown images, keys, methods or types, endless numbers "
    "or absurd windows",
    "refused, or drawn within the page's limits; nothing is stored",
)
@pytest.mark.parametrize(
    "change", [{"sample_id": "s02"}, {"label": "NV"}, {"annotator": "somebody else"}]
)
def test_a_key_is_for_one_message(target: Target, change: dict[str, str]) -> None:
    first = message("s01")
    assert target.as_reader("POST", "/answer", as_bytes(first))[0] == 200
    decisions_before = target.decisions()
    assert target.as_reader("POST", "/answer", as_bytes(first))[0] == 200
    status, content = target.as_reader("POST", "/answer", as_bytes({**first, **change}))
    assert (status, "key of another message" in content["message"]) == (409, True)
    undo = {"annotator": first["annotator"], "key": first["key"], "answer": 1}
    assert target.as_reader("POST", "/undo", as_bytes(undo))[0] == 409
    assert target.decisions() == decisions_before


@pytest.mark.proves(
    "files",
    "a reader's messages with unknown images, keys, methods or types, endless numbers "
    "or absurd windows",
    "refused, or drawn within the page's limits; nothing is stored",
)
@pytest.mark.parametrize(
    ("method", "body", "headers"),
    [
        ("PUT", as_bytes(message()), {}),
        ("DELETE", as_bytes(message()), {}),
        ("PATCH", as_bytes(message()), {}),
        ("GET", as_bytes(message()), {"X_HTTP_Method_Override": "POST"}),
        ("POST", b"[" * 10_000, {}),
        ("POST", b'{"a":' * 2_000, {}),
        ("POST", as_bytes(message(seen=10**300)), {}),
        ("POST", as_bytes(message(seen=-1)), {}),
        ("POST", as_bytes(message()).replace(b'"seen": 0', b'"seen": 1e999'), {}),
        ("POST", as_bytes(message(seconds=1)).replace(b'"seconds": 1', b'"seconds": NaN'), {}),
        ("POST", as_bytes(message(label=["MEL"])), {}),
        ("POST", as_bytes(message(label=0)), {}),
        ("POST", as_bytes(message(sample_id="../clinic.yaml")), {}),
        ("POST", as_bytes(message(sample_id="s00\x00")), {}),
        ("POST", as_bytes(message(annotator="\u202eanna")), {}),
        ("POST", as_bytes(message(annotator="an\ud800na")), {}),
        ("POST", as_bytes(message(run="another")), {}),
        ("POST", bytes(17_000), {}),
        ("POST", as_bytes(message()), {"Origin": "null"}),
        ("POST", as_bytes(message()), {"Origin": "http://127.0.0.1:1"}),
        ("POST", as_bytes(message()), {"Origin": "http://["}),
    ],
)
def test_strange_messages_change_nothing(
    target: Target, method: str, body: bytes, headers: dict[str, str]
) -> None:
    before = target.decisions()
    status, content = target.as_reader(method, "/answer", body, **headers)
    assert 400 <= status < 500
    assert set(content) <= {"message", "view"}
    assert target.decisions() == before
    assert target.errors.read_bytes() == b""


@pytest.mark.proves(
    "files",
    "a reader's messages with unknown images, keys, methods or types, endless numbers "
    "or absurd windows",
    "refused, or drawn within the page's limits; nothing is stored",
)
@pytest.mark.parametrize(
    "how",
    [
        "wide=0",
        "high=-1",
        "wide=999999",
        "high=1e9",
        "wide=nan",
        "centre=nan&width=1",
        "centre=1e308&width=1e308",
        "centre=inf&width=1",
        "centre=0&width=-1",
        "centre=0&width=0",
        "id=s05&id=s06",
    ],
)
def test_absurd_parameters_of_an_image_do_no_harm(target: Target, how: str) -> None:
    path = f"/image?id=s00&secret={target.image_secret.decode()}&{how}"
    answer, content = target.ask("GET", path, Cookie=target.cookie)
    assert answer.status in (200, 400)
    assert content.startswith(b"\x89PNG" if answer.status == 200 else b"{")
    assert target.errors.read_bytes() == b""


@pytest.mark.proves(
    "files",
    "the queue's file is removed while the annotation page runs",
    "nothing is acknowledged, and the page goes on once the file is back",
)
def test_a_queue_that_was_removed_is_not_made_again(target: Target) -> None:
    files = {path: path.read_bytes() for path in target.clinic.queue.folder.glob("queue.sqlite*")}
    for path in files:
        path.unlink()
    said = as_bytes(message("s03"))
    status, content = target.as_reader("POST", "/answer", said)
    assert (status, "cannot be used" in content["message"]) == (503, True)
    assert not target.clinic.queue.database.path.exists()
    assert b"put back a backup" in target.errors.read_bytes()
    for path, kept in files.items():
        path.write_bytes(kept)
    assert target.as_reader("POST", "/answer", said)[0] == 200
    assert "s03" in target.clinic.queue.labels()
    target.errors.write_bytes(b"")
