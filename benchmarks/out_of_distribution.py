"""Which images of no class a score finds at a site with few labels.

The filter also refuses rightful images. Which ones, this counts too.

    OMP_NUM_THREADS=1 python benchmarks/out_of_distribution.py DATA

DATA holds the skin lesions, chest X-rays and MedMNIST files that
docs/results/out_of_distribution.md names. Features are those of a frozen ImageNet encoder at 112
pixels. Labels of a site are drawn by chance, one image a lesion.
"""

import argparse
import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.methods.fedal.out_of_distribution import nearest_distances, out_of_distribution
from fedward.methods.local import logits_and_features
from fedward.methods.samplers import Pool
from fedward.nets import build
from fedward.seeds import torch_generator

SIZE = 112
NET = "tf_efficientnet_lite0"
Sites = dict[str, tuple[Tensor, Tensor]]
"""Site -> features and classes of its lesions."""
SITES = ("rosendahl", "vidir_modern")
CLASSES = ("AK", "BCC", "BKL", "DF", "MEL", "NV", "VASC")
RARE = ("AK", "DF", "VASC")
LABELS = (20, 50, 150, 300)
DRAWS = 20
STRANGE = 400
"""Images of each strange kind."""
SHRINKAGE = 0.1
"""Share of a multiple of the identity in the covariance of few images."""
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
    return kinds | {"frames, noise, rulers": blanks()}


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


@torch.no_grad()
def features(net: nn.Module, pictures: Sequence[Image.Image]) -> Tensor:
    pixels = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures])).permute(
        0, 3, 1, 2
    )
    return torch.cat(
        [logits_and_features(net, batch.float() / 255)[1] for batch in pixels.split(32)]
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
    optimiser = torch.optim.Adam(head.parameters(), 1e-3, weight_decay=5e-4)
    for _ in range(200):
        optimiser.zero_grad()
        F.cross_entropy(head(known), labels).backward()
        optimiser.step()
    return head(images).detach()


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


# --- tables


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("", f"| {' | '.join(head)} |", f"|{'---|' * 2}{'--:|' * (len(head) - 2)}", sep="\n")
    print(*(f"| {' | '.join(row)} |" for row in rows), sep="\n")


def drawn(count: int, number: int, *purpose: str | int) -> Tensor:
    """Return places in an order drawn for one repetition."""
    return torch.randperm(count, generator=torch_generator(number, "out of distribution", *purpose))


def found_by(scores: dict[str, Score], sites: Sites, others: dict[str, Tensor]) -> list[list[str]]:
    """Return rows of the mean AUROC over five draws of labels."""
    rows = []
    for site, (images, labels) in sites.items():
        for known in LABELS[:3]:
            orders = [drawn(len(images), number, site, known) for number in range(5)]
            for name, score in scores.items():
                areas = {kind: list[float]() for kind in others}
                for order in orders:
                    given = order[:known]
                    rest = order[known : known + 600]
                    both = torch.cat([images[rest], *others.values()])
                    values = score(images[given], labels[given], both)
                    own, *parts = values.split([len(rest), *map(len, others.values())])
                    for kind, part in zip(others, parts, strict=True):
                        truth = [0] * len(own) + [1] * len(part)
                        areas[kind].append(roc_auc_score(truth, torch.cat([own, part])))
                rows.append(
                    [f"{site}, {known}", name, *(f"{np.mean(each):.3f}" for each in areas.values())]
                )
    return rows


def share_refused(images: Tensor, known: Tensor) -> float:
    pool = Pool(
        "site", [f"{place:06d}" for place in range(len(images))], features=images, labelled=known
    )
    return len(out_of_distribution(pool)) / len(images)


def refused(sites: Sites, others: dict[str, dict[str, Tensor]]) -> list[list[str]]:
    """Return rows of the mean share that the package's filter refuses, over draws of labels."""
    rows = []
    for site, (images, _) in sites.items():
        for known in LABELS:
            shares = {kind: list[float]() for kind in ("own", *others[site])}
            for number in range(DRAWS):
                order = drawn(len(images), number, site, known)
                for kind, each in {"own": images[order[known:]], **others[site]}.items():
                    shares[kind].append(share_refused(each, images[order[:known]]))
            rows.append(
                [site, f"{known}", *(f"{100 * np.mean(each):.1f}" for each in shares.values())]
            )
    return rows


def refused_of_rare(sites: Sites) -> list[list[str]]:
    """Return rows of the share refused of a class, by its number of labelled images."""
    rows = []
    for site, (images, labels) in sites.items():
        for known in (50, 150):
            for place in map(CLASSES.index, RARE):
                own = (labels == place).nonzero().flatten()
                rest = (labels != place).nonzero().flatten()
                row = [site, f"{known}, {CLASSES[place]} ({len(own)})"]
                for given in (0, 1, 3):
                    shares = []
                    for number in range(DRAWS if len(own) > given else 0):
                        mine = own[drawn(len(own), number, site, place)]
                        theirs = rest[drawn(len(rest), number, site, place)][: known - given]
                        shares.append(
                            share_refused(
                                images[mine[given:]], images[torch.cat([mine[:given], theirs])]
                            )
                        )
                    row.append(
                        f"{100 * np.mean(shares):.1f} ({100 * max(shares):.0f})" if shares else ""
                    )
                rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Images of no class: which are found, which rightful ones refused"
    )
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    torch.set_num_threads(1)
    net = build(NET, len(CLASSES), pretrained=True).eval()
    others = {kind: features(net, pictures) for kind, pictures in strange(data).items()}
    sites = Sites()
    spoilt = dict[str, dict[str, Tensor]]()
    for site in SITES:
        pictures, labels = lesions(data, site)
        sites[site] = (features(net, pictures), labels)
        worse = {
            "own, blurred": map(blurred, pictures[:200]),
            "own, in a frame": map(framed, pictures[:200]),
        }
        spoilt[site] = {
            **others,
            **{kind: features(net, list(each)) for kind, each in worse.items()},
        }
        counts = ", ".join(
            f"{name} {int((labels == place).sum())}" for place, name in enumerate(CLASSES)
        )
        print(f"{site}: {len(labels)} lesions ({counts})")
    print(", ".join(f"{kind}: {len(each)}" for kind, each in others.items()))
    table(["site, labels", "score", *others], found_by(SCORES, sites, others))
    table(["site", "labels", "own", *spoilt[SITES[0]]], refused(sites, spoilt))
    head = ["site", "labels, class (images)", *(f"{given} labelled" for given in (0, 1, 3))]
    table(head, refused_of_rare(sites))


if __name__ == "__main__":
    main()
