"""What may name a person in files: the doctor tells fields and pictures, and no value."""

import struct

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont, PngImagePlugin
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from dicom_files import save
from fedward.lab.synthetic import synthetic_site
from fedward.sites.doctor import examine
from fedward.sites.identifying import has_text_lines, identifying_notes
from fedward.sites.rendering import PLAIN, Rendering, Slices
from nifti_files import body, nibabel, write

SECRET = "Mueller 4711"


def scan(size=200):
    """Return a noisy disc in black, as of a body."""
    x, y = np.meshgrid(*[np.linspace(-1, 1, size)] * 2)
    noise = np.random.default_rng(0).normal(120, 25, (size, size))
    return np.where(x**2 + y**2 < 0.7, noise, 0).clip(0, 255).astype(np.uint8)


def written(pixels, text=SECRET, size=12, colour=255, at=(3, 3)):
    image = Image.fromarray(pixels)
    ImageDraw.Draw(image).text(at, text, fill=colour, font=ImageFont.load_default(size))
    return np.asarray(image)


@pytest.mark.parametrize("size", [10, 14, 24])
def test_lines_of_text_are_found(size):
    assert has_text_lines(written(scan(), size=size))
    assert has_text_lines(
        written(np.full((200, 200), 230, np.uint8), size=size, colour=0, at=(20, 90))
    )


def test_pictures_without_text_are_left_alone():
    ramp = np.tile(np.arange(256, dtype=np.uint8), (100, 1))
    noise = np.random.default_rng(1).integers(0, 256, (100, 100), np.uint8)
    ruler = scan()
    ruler[20:180:10, 5:15] = 255
    for picture in (
        scan(),
        ramp,
        noise,
        ruler,
        np.zeros((50, 50), np.uint8),
        np.zeros((9, 1), np.uint8),
    ):
        assert not has_text_lines(picture)


def test_drawn_lesions_have_no_text():
    from fedward.config import DataSpec, SyntheticData

    data = synthetic_site("site-1", DataSpec(image_size=64), SyntheticData(images=40), 1)
    assert not any(
        has_text_lines(np.asarray(Image.fromarray(pixels).convert("L")))
        for pixels in data.unlabelled.pixels
    )


def files(folder):
    """Return six files of several kinds, all with a name somewhere but the first."""
    exif = Image.Exif()
    exif[0x013B], exif[0x010E] = SECRET, SECRET  # Artist, ImageDescription
    text = PngImagePlugin.PngInfo()
    text.add_text(SECRET, SECRET)
    plain = Image.fromarray(scan())
    plain.save(folder / "plain.png")
    plain.save(folder / "camera.jpg", exif=exif)
    plain.save(folder / "text.png", pnginfo=text)
    Image.fromarray(written(scan())).save(folder / "burned.png")
    volume = write(folder / "volume.nii", body(), descrip=SECRET)
    image = nibabel.load(volume)
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", SECRET.encode()))
    nibabel.save(image, folder / "volume.nii.gz")
    save(folder / "burned.dcm", written(scan()), PatientName=SECRET)
    (folder / "broken.png").write_bytes((folder / "text.png").read_bytes()[:60])
    return {path.name: path for path in sorted(folder.iterdir())}


def test_fields_are_told_by_name_and_count(tmp_path):
    fields, pictures = identifying_notes(files(tmp_path), Rendering(slices=Slices()))
    told = "EXIF Artist 1, EXIF ImageDescription 1, NIfTI descrip 2, NIfTI extension 1, PNG text 1."
    assert told in fields
    assert "picture of 2 of 8 files looked at, such as burned.dcm, burned.png." in pictures
    assert "Mueller" not in fields + pictures
    kept = {name: path for name, path in files(tmp_path).items() if name == "plain.png"}
    assert identifying_notes(kept, PLAIN) == []


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "jpeg"])
def test_words_of_the_reader_are_no_text_of_a_tiff(tmp_path, compression):
    """Pillow calls the compression by a word."""
    Image.fromarray(scan()).save(tmp_path / "plain.tif", compression=compression)
    assert identifying_notes({"plain.tif": tmp_path / "plain.tif"}, PLAIN) == []
    Image.fromarray(scan()).save(tmp_path / "named.tif", description=SECRET)
    text = PngImagePlugin.PngInfo()
    text.add_text("compression", SECRET)
    Image.fromarray(scan()).save(tmp_path / "text.png", pnginfo=text)
    (fields,) = identifying_notes({"text.png": tmp_path / "text.png"}, PLAIN)
    assert "PNG text 1" in fields
    (fields,) = identifying_notes({"named.tif": tmp_path / "named.tif"}, PLAIN)
    assert "EXIF ImageDescription 1" in fields


TIFF_TEXTS = {
    "EXIF DocumentName": (269, 2, SECRET),
    "EXIF PageName": (285, 2, SECRET),
    "EXIF TargetPrinter": (337, 2, SECRET),
    "EXIF XPSubject": (40095, 1, SECRET.encode("utf-16-le")),
    "EXIF XPKeywords": (40094, 1, SECRET.encode("utf-16-le")),
    "private tag 65001": (65001, 2, SECRET),
}


def resource(number, content):
    """Return a block of Photoshop's."""
    return b"8BIM" + struct.pack(">HHL", number, 0, len(content)) + content


@pytest.mark.parametrize("told", TIFF_TEXTS)
def test_texts_of_a_tiff_are_told_by_their_tags(tmp_path, told):
    tag, kind, value = TIFF_TEXTS[told]
    tags = ImageFileDirectory_v2()
    tags.tagtype[tag] = kind
    tags[tag] = value
    Image.fromarray(scan()).save(tmp_path / "a.tif", tiffinfo=tags)
    (fields,) = identifying_notes({"a": tmp_path / "a.tif"}, PLAIN)
    assert f"in how many files: {told} 1." in fields
    assert "Mueller" not in fields


def test_private_tags_without_text_are_left_alone(tmp_path):
    tags = ImageFileDirectory_v2()
    for tag, kind, value in ((65001, 3, 7), (65002, 2, "  "), (65003, 1, b"\1\2")):
        tags.tagtype[tag] = kind
        tags[tag] = value
    Image.fromarray(scan()).save(tmp_path / "a.tif", tiffinfo=tags)
    assert identifying_notes({"a": tmp_path / "a.tif"}, PLAIN) == []


IPTC = b"\x1c\x02\x78" + struct.pack(">H", len(SECRET)) + SECRET.encode()
"""A caption, as the press writes it."""


@pytest.mark.parametrize("kind", ["TIFF", "TIFF of Photoshop", "JPEG"])
@pytest.mark.parametrize("has_caption", [True, False])
def test_captions_of_the_press_are_told(tmp_path, kind, has_caption):
    path = tmp_path / "a"
    # Resource 1000 is of sizes, and says nothing of a person.
    block = resource(0x0404 if has_caption else 1000, IPTC)
    if kind == "JPEG":
        content = b"Photoshop 3.0\0" + block
        segment = b"\xff\xed" + struct.pack(">H", len(content) + 2) + content
        Image.fromarray(scan()).save(path, "JPEG", extra=segment)
    else:
        tags = ImageFileDirectory_v2()
        if kind == "TIFF of Photoshop":
            tags.tagtype[34377] = 1
            tags[34377] = block
        elif has_caption:
            tags.tagtype[33723] = 7
            tags[33723] = IPTC
        Image.fromarray(scan()).save(path, "TIFF", tiffinfo=tags)
    notes = identifying_notes({"a": path}, PLAIN)
    assert ["IPTC caption 1." in note for note in notes] == [True] * has_caption


def test_the_doctor_tells_them(hospital):
    names = [row[1] for row in hospital.rows]
    for name in names[:3]:
        Image.fromarray(written(scan())).convert("RGB").save(hospital.folder / name)
    exif = Image.Exif()
    exif[0x013B] = SECRET
    Image.fromarray(scan()).save(hospital.folder / names[5], "JPEG", exif=exif)
    text = " ".join(examine(hospital.write(), hospital.spec).text().split())
    assert "Headers and pictures (reported here only)" in text
    assert "EXIF Artist 1." in text
    assert "picture of 3 of 40 files looked at, such as s000, s001, s002." in text
    assert "Mueller" not in text
