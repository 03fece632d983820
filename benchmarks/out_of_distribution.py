"""Which images of no class a score finds at a site with few labels.

The filter also refuses rightful images. Which ones, this counts too.

    FEDWARD_DATA=DATA OMP_NUM_THREADS=1 python benchmarks/out_of_distribution.py
    python benchmarks/out_of_distribution.py --page docs/results/out_of_distribution.md \\
        docs/results/tables/out_of_distribution.md

DATA holds the skin lesions, chest X-rays and MedMNIST files that
docs/results/out_of_distribution.md names. Features are those of a frozen ImageNet encoder at 112
pixels. Labels of a site are drawn by chance, one image a lesion. The second command writes the
tables of the kept lines into the pages.
"""

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.digests import arrays_digest
from fedward.errors import ConfigError
from fedward.lab.bench.markdown import Table
from fedward.methods.fedal.out_of_distribution import nearest_distances, out_of_distribution
from fedward.methods.local import logits_and_features
from fedward.methods.samplers.pool import Pool
from fedward.nets import build
from fedward.seeds import torch_generator
from measured import Line, Measurement, run

DATA = "FEDWARD_DATA"
"""Environment variable that names the folder of data sets."""
SIZE = 112
"""Side of a picture in pixels."""
NET = "tf_efficientnet_lite0"
SITES = ("rosendahl", "vidir_modern")
CLASSES = ("AK", "BCC", "BKL", "DF", "MEL", "NV", "VASC")
LABELS = (20, 50, 150, 300)
DRAWS = 20
LABELS_OF_SCORES = (20, 50, 150)
DRAWS_OF_SCORES = 5
"""All scores are compared in the first draws alone; the filter is measured in all."""
OWN_OF_SCORES = 600
"""Most unlabelled images of the site that scores are compared on."""
RARE = ("AK", "DF", "VASC")
LABELS_OF_RARE = (50, 150)
LABELLED_OF_RARE = (0, 1, 3)
"""Labelled images of a rare class."""
FOREIGN = ("chest X-rays", "blood cells", "organs in CT", "frames, noise, rulers")
SPOILT = ("own, blurred", "own, in a frame")
STRANGE = 400
"""Images of each kind of another data set."""
SHRINKAGE = 0.1
"""Share of a multiple of the identity in the covariance of few images."""
DIGITS = 5
"""Decimal places of a kept area."""
Score = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(labelled (L, D), labels (L,), images (N, D)) -> (N,): the higher, the stranger."""


# --- pictures


def lesions(data: Path, site: str) -> tuple[list[Image.Image], Tensor]:
    """Return the first image of each lesion of a site, cut to a square, and its class."""
    with (data / "skin" / "manifest.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == site and row["diagnosis"]]
    firsts = {row["lesion_id"] or row["sample_id"]: row for row in reversed(rows)}.values()
    pictures = []
    for row in firsts:
        whole = Image.open(data / "skin" / row["image"]).convert("RGB")
        left, top = ((side - min(whole.size)) // 2 for side in whole.size)
        cut = whole.crop((left, top, left + min(whole.size), top + min(whole.size)))
        pictures.append(cut.resize((SIZE, SIZE), Image.Resampling.BILINEAR))
    return pictures, torch.tensor([CLASSES.index(row["diagnosis"]) for row in firsts])


def strange(data: Path) -> dict[str, list[Image.Image]]:
    """Return images of no class of skin lesions, by kind."""
    kinds = {}
    for name, file, key in (
        ("chest X-rays", "cxr/cxr_multisource_96.npz", "images"),
        ("blood cells", "medmnist/bloodmnist.npz", "train_images"),
        ("organs in CT", "medmnist/organamnist.npz", "train_images"),
    ):
        with np.load(data / file) as archive:
            arrays = archive[key]
        chosen = np.random.default_rng(0).permutation(len(arrays))[:STRANGE]
        kinds[name] = [
            Image.fromarray(arrays[row]).convert("RGB").resize((SIZE, SIZE)) for row in chosen
        ]
    return kinds | {FOREIGN[-1]: blanks()}


def blanks() -> list[Image.Image]:
    """Return frames of one grey, noise, and rulers on a light ground, twenty each."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(20):
        grey = int(rng.integers(256))
        found.append(Image.new("RGB", (SIZE, SIZE), (grey,) * 3))
        noise = rng.normal(grey, rng.uniform(5, 60), (SIZE, SIZE, 3)).clip(0, 255)
        found.append(Image.fromarray(noise.astype(np.uint8)))
        ruler = Image.new("RGB", (SIZE, SIZE), (int(rng.integers(180, 256)),) * 3)
        for place in range(0, SIZE, 4 + number % 8):
            ImageDraw.Draw(ruler).line(
                [(place, 0), (place, 15 + 10 * (place % 5 == 0))], fill=0, width=2
            )
        found.append(ruler)
    return found


def blurred(picture: Image.Image) -> Image.Image:
    return picture.filter(ImageFilter.GaussianBlur(4))


def framed(picture: Image.Image) -> Image.Image:
    """Return what a round black frame leaves of a picture."""
    mask = Image.new("L", picture.size)
    ImageDraw.Draw(mask).ellipse([4, 4, SIZE - 5, SIZE - 5], fill=255)
    return Image.composite(picture, Image.new("RGB", picture.size), mask)


def pixels_of(pictures: Sequence[Image.Image]) -> np.ndarray:
    """Return pictures as (N, 112, 112, 3) uint8."""
    return np.stack([np.asarray(picture) for picture in pictures])


@torch.no_grad()
def features(net: nn.Module, pixels: np.ndarray) -> Tensor:
    """Return the features (N, D) of pictures (N, H, W, 3)."""
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return torch.cat(
        [logits_and_features(net, batch.float() / 255)[1] for batch in images.split(32)]
    )


@dataclass(frozen=True)
class Material:
    """Features of all pictures, and what they were made from."""

    own: dict[str, tuple[Tensor, Tensor]]
    """Site -> features (N, D) and classes (N,) of its lesions."""
    foreign: dict[str, Tensor]
    """Kind -> features of images of no class."""
    spoilt: dict[str, dict[str, Tensor]]
    """Site -> kind -> features of its first lesions, spoilt."""
    pictures: str
    """SHA-256 of the pixels of all pictures."""
    weights: str
    """SHA-256 of the network's weights."""


@cache
def material() -> Material:
    """Return the features of all pictures, computed once in a process."""
    folder = os.environ.get(DATA)
    if not folder:
        raise ConfigError(f"{DATA} is not set", "Let it name the folder of data sets.")
    data = Path(folder)
    pixels = {kind: pixels_of(pictures) for kind, pictures in strange(data).items()}
    classes = {}
    for site in SITES:
        pictures, classes[site] = lesions(data, site)
        pixels[site] = pixels_of(pictures)
        first = pictures[:200]
        for kind, spoil in zip(SPOILT, (blurred, framed), strict=True):
            pixels[f"{site}, {kind}"] = pixels_of([spoil(picture) for picture in first])
    net = build(NET, len(CLASSES), pretrained=True).eval()
    found = {name: features(net, each) for name, each in pixels.items()}
    return Material(
        own={site: (found[site], classes[site]) for site in SITES},
        foreign={kind: found[kind] for kind in FOREIGN},
        spoilt={site: {kind: found[f"{site}, {kind}"] for kind in SPOILT} for site in SITES},
        pictures=arrays_digest(pixels),
        weights=arrays_digest({name: each.numpy() for name, each in net.state_dict().items()}),
    )


# --- scores


def nearest(known: Tensor, labels: Tensor, images: Tensor) -> Tensor:
    return nearest_distances(images, known)


def mahalanobis(known: Tensor, labels: Tensor, images: Tensor) -> Tensor:
    """Squared distance to the nearest class mean, by one covariance of all classes."""
    means = torch.stack([known[labels == each].mean(dim=0) for each in labels.unique()]).double()
    rest = known.double() - means[torch.searchsorted(labels.unique(), labels)]
    covariance = rest.T @ rest / len(rest)
    floor = covariance.diagonal().mean() * torch.eye(len(covariance), dtype=torch.float64)
    inverse = torch.linalg.inv((1 - SHRINKAGE) * covariance + SHRINKAGE * floor)
    apart = [images.double() - mean for mean in means]
    return torch.stack([((each @ inverse) * each).sum(dim=1) for each in apart]).amin(dim=0)


def classifier(known: Tensor, labels: Tensor, images: Tensor) -> Tensor:
    """Logits of a linear classifier that has learned the labels."""
    head = nn.Linear(known.shape[1], len(CLASSES))
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimiser = torch.optim.Adam(head.parameters(), 1e-3, weight_decay=5e-4)
    for _ in range(200):
        optimiser.zero_grad()
        F.cross_entropy(head(known), labels).backward()
        optimiser.step()
    logits: Tensor = head(images)
    return logits.detach()


def energy(known: Tensor, labels: Tensor, images: Tensor) -> Tensor:
    return -classifier(known, labels, images).logsumexp(dim=1)


def doubt(known: Tensor, labels: Tensor, images: Tensor) -> Tensor:
    return -classifier(known, labels, images).softmax(dim=1).amax(dim=1)


SCORES: dict[str, Score] = {
    "nearest labelled image, cosine": nearest,
    "Mahalanobis distance": mahalanobis,
    "energy": energy,
    "confidence": doubt,
}


# --- lines


class OutOfDistribution(Measurement):
    """Scores, and what the filter refuses, for each site, number of labels and draw of them."""

    name = "out_of_distribution"

    def cells(self) -> list[dict[str, Any]]:
        cells = []
        for site, labels, draw in product(SITES, LABELS, range(DRAWS)):
            has_scores = labels in LABELS_OF_SCORES and draw < DRAWS_OF_SCORES
            cells.append(
                {
                    "site": site,
                    "labels": labels,
                    "draw": draw,
                    "network": NET,
                    "pixels": SIZE,
                    "strange": STRANGE,
                    "scores": list(SCORES) if has_scores else [],
                    "rare": list(RARE) if labels in LABELS_OF_RARE else [],
                }
            )
        return cells

    def measure(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Return what scores find and the filter refuses.

        ``classes`` has the number of the site's lesions of each class, ``areas`` for each score and
        kind the area under the ROC curve, and ``refused`` for each kind how many of how many images
        the filter refuses. ``rare`` has that for each rare class and number of its images that are
        labelled, of its other images. ``pictures`` and ``weights`` are digests of what was used.
        """
        used = material()
        images, classes = used.own[cell["site"]]
        order = drawn(len(images), cell["draw"], cell["site"], cell["labels"])
        labelled = order[: cell["labels"]]
        rest = order[cell["labels"] :]
        own = images[rest]
        kinds = {"own": own, **used.foreign, **used.spoilt[cell["site"]]}
        counts = torch.bincount(classes, minlength=len(CLASSES)).tolist()
        return {
            "classes": dict(zip(CLASSES, counts, strict=True)),
            "areas": {
                name: areas(SCORES[name], images[labelled], classes[labelled], own[:OWN_OF_SCORES])
                for name in cell["scores"]
            },
            "refused": {kind: refused(each, images[labelled]) for kind, each in kinds.items()},
            "rare": {name: refused_of_class(cell, name) for name in cell["rare"]},
            "pictures": used.pictures,
            "weights": used.weights,
        }

    def tables(self, lines: Sequence[Line]) -> dict[str, str]:
        return {
            "out_of_distribution_images": images_table(lines),
            "out_of_distribution_found": found_table(lines),
            "out_of_distribution_refused": refused_table(lines),
            "out_of_distribution_rare": rare_table(lines),
        }


def drawn(count: int, draw: int, *purpose: str | int) -> Tensor:
    """Return places in an order drawn for one repetition."""
    return torch.randperm(count, generator=torch_generator(draw, "out of distribution", *purpose))


def areas(score: Score, known: Tensor, labels: Tensor, own: Tensor) -> dict[str, float]:
    """Return kind -> area under the ROC curve, the site's own images against those of the kind."""
    foreign = material().foreign
    values = score(known, labels, torch.cat([own, *foreign.values()]))
    of_own, *of_kinds = values.split([len(own), *map(len, foreign.values())])
    found = {}
    for kind, of_kind in zip(foreign, of_kinds, strict=True):
        truth = [0] * len(of_own) + [1] * len(of_kind)
        area = roc_auc_score(truth, torch.cat([of_own, of_kind]))
        found[kind] = round(float(area), DIGITS)
    return found


def refused(images: Tensor, known: Tensor) -> list[int]:
    """Return how many images the package's filter refuses, and of how many."""
    ids = [f"{place:06d}" for place in range(len(images))]
    pool = Pool("site", ids, features=images, labelled=known)
    return [len(out_of_distribution(pool)), len(images)]


def refused_of_class(cell: Mapping[str, Any], name: str) -> dict[str, list[int]]:
    """Return number of labelled images of a class -> how many of its others are refused.

    A class without other images is omitted.
    """
    site = cell["site"]
    images, classes = material().own[site]
    place = CLASSES.index(name)
    of_class = (classes == place).nonzero().flatten()
    of_others = (classes != place).nonzero().flatten()
    mine = of_class[drawn(len(of_class), cell["draw"], site, place)]
    theirs = of_others[drawn(len(of_others), cell["draw"], site, place)]
    counts = {}
    for given in LABELLED_OF_RARE:
        if len(mine) > given:
            known = torch.cat([mine[:given], theirs[: cell["labels"] - given]])
            counts[f"{given}"] = refused(images[mine[given:]], images[known])
    return counts


# --- tables


def outcomes(lines: Sequence[Line], site: str, labels: int) -> list[Mapping[str, Any]]:
    """Return what came out of all draws."""
    return [
        line.outcome for line in lines if (line.cell["site"], line.cell["labels"]) == (site, labels)
    ]


def percent(counts: Sequence[int]) -> float:
    """Return the percentage of refused images."""
    refused_images, images = counts
    return 100 * refused_images / images


def images_table(lines: Sequence[Line]) -> str:
    """Return a table of how many lesions of each class the sites have."""
    table = Table(["site", "lesions", *CLASSES])
    for site in SITES:
        counts = outcomes(lines, site, LABELS[0])[0]["classes"]
        table.add(site, f"{sum(counts.values())}", *(f"{counts[name]}" for name in CLASSES))
    return table.markdown()


def found_table(lines: Sequence[Line]) -> str:
    """Return a table of the mean area under the ROC curve over draws."""
    table = Table(["site, labels", "score", *FOREIGN], left=(0, 1))
    for site, labels, name in product(SITES, LABELS_OF_SCORES, SCORES):
        of_draws = [each["areas"][name] for each in outcomes(lines, site, labels) if each["areas"]]
        means = [fmean(draw[kind] for draw in of_draws) for kind in FOREIGN]
        table.add(f"{site}, {labels}", name, *(f"{mean:.3f}" for mean in means))
    return table.markdown()


def refused_table(lines: Sequence[Line]) -> str:
    """Return a table of the mean percentage that the filter refuses, over draws."""
    kinds = ("own", *FOREIGN, *SPOILT)
    table = Table(["site", "labels", *kinds])
    for site, labels in product(SITES, LABELS):
        of_draws = [each["refused"] for each in outcomes(lines, site, labels)]
        means = [fmean(percent(draw[kind]) for draw in of_draws) for kind in kinds]
        table.add(site, f"{labels}", *(f"{mean:.1f}" for mean in means))
    return table.markdown()


def rare_table(lines: Sequence[Line]) -> str:
    """Return a table of the percentage refused of a class, by its number of labelled images."""
    columns = [f"{given} labelled" for given in LABELLED_OF_RARE]
    table = Table(["site", "labels, class (images)", *columns], left=(0, 1))
    for site, labels, name in product(SITES, LABELS_OF_RARE, RARE):
        of_draws = outcomes(lines, site, labels)
        cells = []
        for given in map(str, LABELLED_OF_RARE):
            counts = [each["rare"][name][given] for each in of_draws if given in each["rare"][name]]
            shares = [percent(each) for each in counts]
            cells.append(f"{fmean(shares):.1f} ({max(shares):.0f})" if shares else "")
        table.add(site, f"{labels}, {name} ({of_draws[0]['classes'][name]})", *cells)
    return table.markdown()


if __name__ == "__main__":
    run(OutOfDistribution(), __doc__)
