"""The built-in synthetic images: dermoscopy drawn by a program at ten sites, without a download.

The layout follows FedPerl's (Bdair et al., MELBA 2022, Sec. 3): sites 1-5 are a community (one
archive cut in five), sites 6-8 another, and sites 9 and 10 have cameras and patients of their own.
Sizes and class frequencies resemble the paper's: naevi dominate everywhere except at site 9, and
DF, VASC and SCC are rare or absent. Site 11 is like site 1 with other patients, and so on.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedward.errors import DataError, listed, option
from fedward.lab.lesion_appearance import APPEARANCES, Colour, Style
from fedward.lab.lesions import draw
from fedward.methods import method_of
from fedward.seeds import numpy_generator
from fedward.sites.assemble import divide
from fedward.sites.data import SPLITS, Row, SiteData
from fedward.sites.decoding import Pixels
from fedward.sites.site_file import SERVER
from fedward.sites.split import group_split
from fedward.views.colour import LUMA

if TYPE_CHECKING:
    from fedward.config import DataSpec, Experiment, SyntheticData

SPLIT_SHARES = (0.60, 0.15, 0.25)
"""Train, validation, test at a site."""
_SERVER_SHARES = (0.0, 1.0, 0.0)
"""The same at the server."""
_LABELS_AT_SERVER = (0.80, 0.20, 0.0)
"""The same where the server trains on labelled images."""

_ARCHIVE = {
    "MEL": 0.18,
    "NV": 0.47,
    "BCC": 0.13,
    "AK": 0.05,
    "BKL": 0.11,
    "DF": 0.015,
    "VASC": 0.015,
    "SCC": 0.03,
}
_CLINIC = {"MEL": 0.12, "NV": 0.63, "BCC": 0.06, "AK": 0.03, "BKL": 0.12, "DF": 0.02, "VASC": 0.02}
_OUTDOOR = {"MEL": 0.03, "NV": 0.11, "BCC": 0.36, "AK": 0.31, "BKL": 0.10, "SCC": 0.09}
_ATLAS = {"MEL": 0.25, "NV": 0.53, "BCC": 0.06, "BKL": 0.06, "DF": 0.05, "VASC": 0.05}
_PUBLIC = {
    "MEL": 0.16,
    "NV": 0.40,
    "BCC": 0.12,
    "AK": 0.08,
    "BKL": 0.12,
    "DF": 0.04,
    "VASC": 0.04,
    "SCC": 0.04,
}


@dataclass(frozen=True)
class _Place:
    """A site's patients and camera."""

    relative_size: float
    priors: dict[str, float]
    """Diagnosis -> its share of the images."""
    style: Style


def _archive(size: float, gains: Colour, **style: float) -> _Place:
    return _Place(size, _ARCHIVE, Style(gains=gains, corners=0.15, blur=0.4, **style))


def _clinic(size: float, gains: Colour, **style: float) -> _Place:
    return _Place(size, _CLINIC, Style(gains=gains, corners=0.75, blur=0.55, gamma=1.15, **style))


_PLACES = (
    _archive(1.0, (1.05, 0.95, 0.93)),
    _archive(1.0, (1.07, 0.97, 0.92)),
    _archive(1.0, (1.05, 0.94, 0.90), hair=1.4),
    _archive(1.0, (1.03, 0.96, 0.95), noise=0.02),
    _archive(0.8, (1.06, 0.93, 0.94), zoom=0.92),
    _clinic(1.0, (0.86, 0.88, 1.12)),
    _clinic(1.0, (0.84, 0.90, 1.15), gel=0.5),
    _clinic(0.5, (0.88, 0.87, 1.10), zoom=1.1),
    _Place(0.6, _OUTDOOR, Style((0.98, 1.04, 0.76), 0.80, 0.0, 0.85, 0.03, 0.75, 1.3, 0.0)),
    _Place(0.25, _ATLAS, Style((1.12, 1.00, 1.02), 1.5, 0.35, 0.3, 0.01, 1.2, 0.5, 0.2)),
)
"""The places of site-1 to site-10, in this order."""


class SyntheticSites:
    """Sites that have no files and work on synthetic images, as engines that simulate want them.

    A component of FLARE jobs for simulations, too: see :mod:`fedward.flare.classes`.
    """

    def data(self, site: str, experiment: "Experiment", *, all_labels: bool = False) -> SiteData:
        """Return a site's images; with ``all_labels`` every training image has its label.

        Questions for labels are answered by the hidden labels. Raises as :func:`synthetic_site`.
        """
        synthetic = experiment.synthetic
        assert synthetic is not None, "the experiment has synthetic images"
        if all_labels:
            all_sites = {"labelled": 1.0, "isolated": False, "labelled_sites": None}
            synthetic = synthetic.model_copy(update=all_sites)
        labels_at_server = False
        if site == SERVER:
            labels_at_server = "labels" in method_of(experiment).requirements.server.images
        images = synthetic_site(
            site,
            experiment.data,
            synthetic,
            experiment.seed,
            labels_at_server=labels_at_server,
        )
        return replace(images, annotation="oracle")


def _place_of(site: str, numbers: Sequence[int] | None) -> _Place | None:
    """Return a site's place; None if no synthetic site has this name.

    ``numbers``: those of the places that sites have in turn, counted from 1; None: all.
    """
    if site == SERVER:
        return _Place(1.0, _PUBLIC, Style())
    number = re.fullmatch(r"site-([1-9]\d{0,3})", site)
    if number is None:
        return None
    places = [_PLACES[place - 1] for place in numbers] if numbers else _PLACES
    return places[(int(number[1]) - 1) % len(places)]


def synthetic_site(
    site: str,
    spec: "DataSpec",
    synthetic: "SyntheticData",
    seed: int,
    *,
    labels_at_server: bool = False,
) -> SiteData:
    """Draw one site's data.

    A site has ``synthetic.images`` images times its relative size (site-10: a quarter), each of a
    lesion of its own: 60 % in train, 15 % in val, 25 % in test. ``synthetic.labelled`` is the share
    of the training labels that are visible; with ``synthetic.isolated`` none is at every other
    site, with ``synthetic.labelled_sites`` none is at any other site. The server has
    ``synthetic.images`` images, all in val; with ``labels_at_server`` 80 % of them are in train,
    all with labels. Class counts follow the site's priors by largest remainder, so a rare class may
    have one image in train and none in val. Ids and the order of the images are independent of the
    classes. Classes that are not in ``spec.classes`` are not drawn.

    Raises:
        DataError: there is no such site, ``spec`` has a class that cannot be drawn or none of the
            site's classes, or the job is multi-label.
    """
    if not spec.label_kind.exclusive:
        raise DataError(
            f"synthetic site {site}",
            f"Give this data set site files, as with {option('site-files', 'FOLDER')}.",
            expected="a job of one label an image",
            found="data.multi_label=true",
        )
    place = _place_of(site, synthetic.places)
    if place is None:
        raise DataError(
            f"synthetic site {site}",
            "Rename the site, or give it a site file.",
            expected=f"site-1, site-2, ... or {SERVER}",
            found=repr(site),
        )
    image_count = max(round(synthetic.images * place.relative_size), 1)
    diagnoses = _diagnoses(site, place, spec, image_count, seed)
    pixels = _pixels(site, place, spec, diagnoses, seed)
    ids = [f"{site}-{index:04d}" for index in range(image_count)]
    labels = [spec.classes.index(diagnosis) for diagnosis in diagnoses]
    shares = SPLIT_SHARES
    labelled = synthetic.labelled
    if site == SERVER:
        shares = _LABELS_AT_SERVER if labels_at_server else _SERVER_SHARES
        labelled = 1.0
    elif not _shows_labels(site, synthetic):
        labelled = 0.0
    splits = group_split(ids, np.array(labels), shares, seed)
    rows = [
        Row(name, label, SPLITS[split])
        for name, label, split in zip(ids, labels, splits, strict=True)
    ]
    rng = numpy_generator(seed, "phantom labelled", site)
    return divide(site, spec.classes, rows, pixels, labelled, rng)


def _shows_labels(site: str, synthetic: "SyntheticData") -> bool:
    """Return whether a site is one of those that show labels."""
    number = int(site.removeprefix("site-"))
    if synthetic.labelled_sites is not None:
        return number in synthetic.labelled_sites
    return not synthetic.isolated or number % 2 == 1


def _pixels(
    site: str, place: _Place, spec: "DataSpec", diagnoses: Sequence[str], seed: int
) -> Pixels:
    """Return uint8 (N, size, size, channels): one image of each diagnosis.

    The server's public images were taken with the cameras of all sites in turn.
    """
    styles = [place.style] * len(diagnoses)
    if site == SERVER:
        cameras = [site_place.style for site_place in _PLACES]
        styles = [cameras[index % len(cameras)] for index in range(len(diagnoses))]
    rng = numpy_generator(seed, "phantom pixels", site)
    pixels = draw(diagnoses, spec.image_size, styles, rng)
    if spec.channels == 1:
        grey: Pixels = (pixels @ np.array(LUMA)).round().astype(np.uint8)[..., None]
        return grey
    return pixels


def _diagnoses(site: str, place: _Place, spec: "DataSpec", count: int, seed: int) -> list[str]:
    """Return the diagnoses of a site's images, in an order drawn at random."""
    unknown = [name for name in spec.classes if name not in APPEARANCES]
    priors = {name: place.priors[name] for name in spec.classes if name in place.priors}
    if unknown or not priors:
        raise DataError(
            f"synthetic site {site}",
            "The synthetic images show dermoscopy only: give this data set site files.",
            expected=f"classes among {listed(place.priors)}",
            found=listed(unknown or spec.classes),
        )
    total = sum(priors.values())
    quotas = {name: count * prior / total for name, prior in priors.items()}
    counts = {name: int(quota) for name, quota in quotas.items()}
    # Largest remainder: the images that rounding down leaves go to the largest fractions.
    by_remainder = sorted(quotas, key=lambda name: counts[name] - quotas[name])
    for name in by_remainder[: count - sum(counts.values())]:
        counts[name] += 1
    by_class = [name for name, images in counts.items() for _ in range(images)]
    order = numpy_generator(seed, "phantom labels", site).permutation(count)
    return [by_class[index] for index in order]
