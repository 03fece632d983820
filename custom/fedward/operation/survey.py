"""The survey of site files on one machine: the same counts as in a federation, and the same page."""

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
from fedward.sites.decoding import as_image
from fedward.storage.rows import SurveyRow, row_of
from fedward.text import count, natural

_TILES = 24
"""Pictures of each class in a contact sheet."""
_TILE = 96
"""Pixels a side at most."""


def named_files(paths: Sequence[Path]) -> list[Path]:
    """Return site files, and those that the folders among the paths hold; ConfigError where there
    are none.
    """
    folders = [path for path in paths if path.is_dir()]
    found = [
        folder / f"{site}.yaml"
        for folder in folders
        for site in sorted(named_sites(folder), key=natural)
    ]
    files = [*(path for path in paths if not path.is_dir()), *found]
    names = [path.stem for path in files]
    if len(names) > len(set(names)):
        repeated = ", ".join(sorted({name for name in names if names.count(name) > 1}))
        remedy = "Rename a file, or name it once."
        raise ConfigError(
            "fedward survey", expected="each site once", found=f"{repeated} twice", remedy=remedy
        )
    return files


def survey(
    files: Sequence[Path],
    out: Path,
    classes: Sequence[str] | None,
    image_size: int | None,
    *,
    pictures: bool = False,
) -> Path:
    """Write ``survey.html`` and ``survey.json`` into a folder, for their owner alone; return the
    path of the page.

    Args:
        files: of the sites.
        out: the folder. What an earlier survey left there is replaced.
        classes: of the job; None: those in ``data.json`` beside the first file, else the default
            ones.
        image_size: at which images are measured; None: likewise.
        pictures: whether the page shows images. Then it must stay at the site.

    Raises:
        ConfigError: pictures of several sites, or a class or size that cannot be.
        DataError: a site's files cannot be used.
    """
    if pictures and len(files) > 1:
        found = count(len(files), "site")
        remedy = "Name one site file: pictures stay where they are."
        raise ConfigError(
            "fedward survey --pictures", expected="one site", found=found, remedy=remedy
        )
    spec = data_spec(files[0].parent, "fedward survey", classes=classes, image_size=image_size)
    if not spec.label_kind.exclusive:
        remedy = "Count these images with fedward doctor SITE_FILE."
        raise ConfigError(
            "fedward survey", expected="one label an image", found="data.multi_label", remedy=remedy
        )
    rows = list[SurveyRow]()
    sheet = list[tuple[str, list[str]]]()
    for file in files:
        data = load_site(file, spec, labelled=1.0)
        row = {"round": 1, "site": data.site, **survey_file(file, data)}
        rows.append(row_of(SurveyRow, json.dumps(row)))
        if pictures:
            sheet = _sheet(data)
        print(
            f"{data.site}: {sum(map(len, (data.labelled, data.unlabelled, data.val, data.test)))} images"
        )
    size = f"images measured at {spec.image_size} × {spec.image_size} pixels"
    page = render_survey(
        Surveyed(spec.name, spec.classes, rows, f"{size}, on one machine", sheet=sheet)
    )
    edges = {"shorter side": SIDES, "brightness": BRIGHTNESS, "contrast": CONTRAST}
    told = {
        "data": spec.name,
        "classes": spec.classes,
        "intervals": edges,
        "sites": [vars(row) for row in rows],
    }
    out.mkdir(parents=True, exist_ok=True)
    _write(out / "survey.json", json.dumps(told, indent=1))
    return _write(out / "survey.html", page)


def _write(path: Path, text: str) -> Path:
    with open(path, "w", encoding="utf-8", opener=private.opener) as file:
        file.write(text)
    return path


def _sheet(data: SiteData) -> list[tuple[str, list[str]]]:
    """Return the first images of each class, over all splits, and of those without a label."""
    labelled = (data.labelled, data.val, data.test)
    rows = [
        (
            name,
            [
                image
                for images in labelled
                for image in images.pixels[images.labels == index][:_TILES]
            ],
        )
        for index, name in enumerate(data.classes)
    ]
    rows.append(("without a label", list(data.unlabelled.pixels[:_TILES])))
    return [
        (name, [_picture(image) for image in images[:_TILES]]) for name, images in rows if images
    ]


def _picture(pixels: np.ndarray) -> str:
    image = as_image(pixels)
    buffer = io.BytesIO()
    image.thumbnail((_TILE, _TILE))
    image.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
