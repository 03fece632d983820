"""The survey of site files on one machine, with counts and page as in a federation."""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedward import private
from fedward.client.survey import survey_file
from fedward.errors import ConfigError
from fedward.evaluation.in_fives import BRIGHTNESS, CONTRAST, SIDES
from fedward.operation.data_spec import data_spec
from fedward.report.survey import Surveyed, render_survey
from fedward.sites import SiteData, load_site, named_sites
from fedward.sites.dark_images import dark_images, dark_note
from fedward.sites.decoding import as_image
from fedward.sites.leaks import Place, contradiction_notes, contradictions
from fedward.sites.leaks import pictures as site_pictures
from fedward.storage.rows import SurveyRow, row_of
from fedward.terminal import fold
from fedward.text import count, natural

_PICTURES_OF_A_CLASS = 24
"""Number of images of each class on the page, at most."""

_LONGEST_SIDE = 96
"""Pixels of the longer side of such an image."""


def named_files(paths: Sequence[Path]) -> list[Path]:
    """Return the site files among the paths, and those in the folders among them.

    Raises:
        ConfigError: a folder without site files, or a site that is named twice.
    """
    files = [path for path in paths if not path.is_dir()]
    for folder in paths:
        if folder.is_dir():
            sites = sorted(named_sites(folder), key=natural)
            files += [folder / f"{site}.yaml" for site in sites]
    names = [path.stem for path in files]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(
            "fedward survey",
            expected="each site once",
            found=f"{', '.join(repeated)} twice",
            remedy="Rename a file, or name it once.",
        )
    return files


def survey(
    files: Sequence[Path],
    out: Path,
    classes: Sequence[str] | None,
    image_size: int | None,
    *,
    pictures: bool,
) -> Path:
    """Write ``survey.html`` and ``survey.json`` into a folder, readable by their owner alone.

    Args:
        files: of the sites.
        out: the folder. Files of an earlier survey are replaced.
        classes: of the job; by default those in ``data.json`` beside the first file, else the
            default ones.
        image_size: height and width in pixels at which images are measured; by default as the
            classes.
        pictures: whether the page shows images. Then it must stay at the site.

    Returns:
        The path of the page.

    Raises:
        ConfigError: pictures of several sites, or a class or size that cannot be.
        DataError: a site's files cannot be used.
    """
    if pictures and len(files) > 1:
        raise ConfigError(
            "fedward survey --pictures",
            expected="one site",
            found=count(len(files), "site"),
            remedy="Name one site file: pictures stay where they are.",
        )
    spec = data_spec(files[0].parent, "fedward survey", classes=classes, image_size=image_size)
    if not spec.label_kind.exclusive:
        remedy = "Count these images with fedward doctor SITE_FILE."
        raise ConfigError(
            "fedward survey", expected="one label an image", found="data.multi_label", remedy=remedy
        )
    rows: list[SurveyRow] = []
    sheet: list[tuple[str, list[str]]] = []
    named: list[tuple[bytes, Place]] = []
    for file in files:
        data = load_site(file, spec, labelled=1.0)
        named += site_pictures(data)
        row = {"round": 1, "site": data.site, **survey_file(file, data)}
        rows.append(row_of(SurveyRow, json.dumps(row)))
        if pictures:
            sheet = _contact_sheet(data)
        splits = (data.labelled, data.unlabelled, data.val, data.test)
        total = sum(map(len, splits))
        print(f"{data.site}: {count(total, 'image')}")
        for note in dark_note(dark_images(splits), total):
            print("\n".join(fold(note)))
    for note in contradiction_notes(contradictions(named)):
        print("\n".join(fold(f"{note}.")))
    how = f"images measured at {spec.image_size} × {spec.image_size} pixels, on one machine"
    page = render_survey(Surveyed(spec.name, spec.classes, rows, how, sheet=sheet))
    content = {
        "data": spec.name,
        "classes": spec.classes,
        "intervals": {"shorter side": SIDES, "brightness": BRIGHTNESS, "contrast": CONTRAST},
        "sites": [vars(row) for row in rows],
    }
    out.mkdir(parents=True, exist_ok=True)
    _write(out / "survey.json", json.dumps(content, indent=1))
    return _write(out / "survey.html", page)


def _write(path: Path, text: str) -> Path:
    """Write a new file that only its owner can read, in place of whatever is there."""
    with private.replacing(path) as file:
        file.write(text.encode())
    return path


def _contact_sheet(data: SiteData) -> list[tuple[str, list[str]]]:
    """Return (name, images) of each class, over all splits, and of images without a label.

    Only the first images of each are taken, as :func:`_picture` encodes them.
    """
    rows: list[tuple[str, list[np.ndarray]]] = []
    for index, name in enumerate(data.classes):
        of_the_class: list[np.ndarray] = []
        for images in (data.labelled, data.val, data.test):
            of_the_class += list(images.pixels[images.labels == index][:_PICTURES_OF_A_CLASS])
        rows.append((name, of_the_class))
    rows.append(("without a label", list(data.unlabelled.pixels[:_PICTURES_OF_A_CLASS])))
    return [
        (name, [_picture(image) for image in images[:_PICTURES_OF_A_CLASS]])
        for name, images in rows
        if images
    ]


def _picture(pixels: np.ndarray) -> str:
    """Return an image as the address of a small PNG in the page itself."""
    image = as_image(pixels)
    buffer = io.BytesIO()
    image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    image.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
