"""Which formats of images are read: a listed few, by what a file begins with, whatever its name
says.
"""

import ast
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, UnidentifiedImageError

import fedward
from fedward.annotation.levels import in_window, levels_of
from fedward.sites import decoding
from fedward.sites.decoding import BadRow, decode, open_image
from fedward.sites.files import is_image
from fedward.sites.images import decode_files

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 16 16
%%EndComments
(ran) (mark) (w) file exch writestring
showpage
%%EOF
"""
"""A program in a language that can write files, which Pillow takes for an image."""

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 20, 3), np.uint8))


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a Ghostscript, the first on the path, would leave a mark."""
    program = tmp_path / "bin" / "gs"
    mark = tmp_path / "ghostscript-ran"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho ran >> {mark}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow looks for it once a process
    return mark


def tried(what: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return a reader whose refusal of a file is no failure of a test."""

    def read(path: Path) -> object:
        try:
            return what(path)
        except BadRow as refused:
            return refused

    return read


READERS = {
    "training": lambda path: decode_files([path], 16, 3, None, "s"),
    "one image": tried(lambda path: decode(path, 16, 1)),
    "full size": tried(open_image),
    "reading": tried(lambda path: in_window(path, (10.0, 5.0))),
    "levels": lambda path: levels_of(path, PICTURE, None),
}


@pytest.mark.proves(
    "files",
    "a PostScript program, a rare format or pickled objects under a usual name",
    "refused; no other decoder starts, and nothing is run",
)
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.eps", "a.ps", "a"])
@pytest.mark.parametrize("reader", READERS)
def test_no_image_starts_ghostscript(tmp_path: Path, ran: Path, reader: str, name: str) -> None:
    (tmp_path / name).write_bytes(EPS)
    with suppress(UnidentifiedImageError):
        READERS[reader](tmp_path / name)
    assert not ran.exists()
    with pytest.raises(BadRow, match="not one of PNG, JPEG, TIFF, BMP and PPM"):
        open_image(tmp_path / name)


def test_the_mark_would_be_seen(tmp_path: Path, ran: Path) -> None:
    """With Pillow alone, the program runs."""
    (tmp_path / "a.png").write_bytes(EPS)
    with Image.open(tmp_path / "a.png") as image, suppress(OSError):
        image.load()
    assert ran.read_text().startswith("ran")


READ = {"PNG": ".png", "JPEG": ".jpg", "TIFF": ".tif", "BMP": ".bmp", "PPM": ".ppm"}
OTHERS = ("GIF", "WEBP", "TGA", "PCX", "ICO", "DDS", "SGI", "JPEG2000", "IM", "MSP", "BLP", "ICNS")


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("name", ["own ending", "a.png"])
def test_each_format_is_read_whatever_its_name_says(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / (f"a{READ[kind]}" if name == "own ending" else name)
    PICTURE.save(path, kind)
    assert is_image(path)
    assert decode(path, 20, 3).std() > 40


@pytest.mark.proves(
    "files",
    "a PostScript program, a rare format or pickled objects under a usual name",
    "refused; no other decoder starts, and nothing is run",
)
@pytest.mark.parametrize("kind", OTHERS)
def test_no_other_format_is_opened(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.init()
    path = tmp_path / "a.png"
    PICTURE.convert({"MSP": "1", "BLP": "P"}.get(kind, "RGB")).save(path, kind)
    opened = list[str]()
    for other, (_, accept) in list(Image.OPEN.items()):
        monkeypatch.setitem(
            Image.OPEN, other, (lambda *_, other=other: opened.append(other), accept)
        )
    with pytest.raises(BadRow, match="not one of PNG, JPEG, TIFF, BMP and PPM"):
        open_image(path)
    assert not set(opened) - set(READ)


def test_files_of_other_formats_are_counted_not_read(tmp_path: Path) -> None:
    assert not [
        name
        for name in ("a.eps", "a.webp", "a.gif", "a.psd", "a.pdf", "a.svg")
        if is_image(tmp_path / name)
    ]


def test_pillow_opens_files_at_one_place() -> None:
    """Whoever adds another ``Image.open`` would let all formats in again."""
    package = Path(fedward.__file__).parent
    found = list[str]()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "Image.open":
                found.append(file.relative_to(package).as_posix())
    assert found == [Path(decoding.__file__).relative_to(package).as_posix()]
