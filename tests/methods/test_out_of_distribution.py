"""Which images look like no labelled one: fedward.methods.fedal.out_of_distribution."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from fedward.errors import DataError
from fedward.methods.fedal import out_of_distribution
from fedward.methods.fedal.out_of_distribution import LEAST_LABELLED, nearest_distances
from fedward.methods.fedal.query_rounds import ActiveSettings
from fedward.methods.samplers.pool import Pool
from fedward.nets import build
from fedward.sites import Images
from fedward.training.batches import Pixels
from fedward.training.pool import observe
from fedward.views import weak
from loading import MODELS, Loading

refused = out_of_distribution.out_of_distribution
grid = settings(deadline=None, max_examples=50)


def random_features(images: int, length: int, seed: int) -> Tensor:
    return torch.randn(images, length, generator=torch.Generator().manual_seed(seed))


def pool(features: Tensor, labelled: Tensor) -> Pool:
    """Return a pool whose ids fall as positions rise."""
    names = [f"{len(features) - position:04d}" for position in range(len(features))]
    return Pool("north", names, features=features, labelled=labelled)


def test_distances_by_hand() -> None:
    """cos((1, 0), (3, 4)) = 3/5, cos((1, 0), (0, 1)) = 0; opposite: 2 apart; 0: 1 from all."""
    others = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    images = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, -4.0], [0.0, 0.0]])
    assert nearest_distances(images, others).tolist() == pytest.approx([0.4, 0, 1.8, 1])
    assert nearest_distances(others).tolist() == pytest.approx([0.2, 0.2]), "each without itself"
    assert nearest_distances(images[:0], others).tolist() == []


def test_farther_than_any_labelled_one_is_refused() -> None:
    """Labelled: nineteen along (1, 0), and (3, 4), which is 0.4 from them.

    An image 0.4 away is asked about, one 0.5 away is not.
    """
    labelled = torch.tensor([[1.0, 0.0]] * 19 + [[3.0, 4.0]])
    images = torch.tensor([[3.0, -4.0], [1.0, -math.sqrt(3)], [2.0, 0.0], [0.0, -1.0]])
    assert refused(pool(images, labelled)) == {"0003": 0.5, "0001": 1.0}


@grid
@given(images=st.integers(0, 20), labelled_images=st.integers(20, 30), seed=st.integers(0, 10_000))
def test_refused_images_equal_a_loop(images: int, labelled_images: int, seed: int) -> None:
    features = random_features(images, 3, seed)
    labelled = random_features(labelled_images, 3, seed + 1)

    def nearest(image: list[float], others: list[list[float]]) -> float:
        cosines = []
        for other in others:
            inner_product = sum(a * b for a, b in zip(image, other, strict=True))
            cosines.append(inner_product / math.hypot(*image) / math.hypot(*other))
        return 1 - max(cosines)

    rows = labelled.tolist()
    distances_of_labelled = [
        nearest(row, rows[:position] + rows[position + 1 :]) for position, row in enumerate(rows)
    ]
    expected = {}
    for position, row in enumerate(features.tolist()):
        distance = nearest(row, rows)
        if distance > max(distances_of_labelled):
            expected[f"{images - position:04d}"] = distance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out_of_distribution, "_ROWS_AT_ONCE", 7)
        refused_ids = refused(pool(features, labelled))
    assert list(refused_ids) == sorted(expected)
    assert refused_ids == pytest.approx(expected, abs=2e-6)


def test_order_lengths_and_repetition_do_not_matter() -> None:
    features = random_features(50, 3, 0)
    labelled = random_features(25, 3, 1).abs()
    given_pool = pool(features, labelled)
    distances = refused(given_pool)
    assert distances
    order = list(range(49, -1, -1))
    names = [given_pool.ids[position] for position in order]
    turned = Pool("north", names, features=features[order], labelled=labelled)
    assert list(refused(turned).items()) == list(distances.items())
    assert refused(pool(7 * features, 0.1 * labelled)) == pytest.approx(distances, abs=2e-6)


def test_equal_labelled_images_refuse_all_but_their_like() -> None:
    labelled = random_features(1, 100, 2).repeat(40, 1)
    images = torch.cat([3 * labelled[:2], random_features(1, 100, 3)])
    assert list(refused(pool(images, labelled))) == ["0001"]


def test_few_labels_and_no_images_refuse_nothing() -> None:
    features = random_features(200, 2, 0)
    labelled = torch.ones(LEAST_LABELLED, 2)
    assert refused(pool(features, labelled))
    assert refused(pool(features, labelled[1:])) == {}
    assert refused(pool(features, torch.empty(0, 0))) == {}
    assert refused(Pool("north", [])) == {}


@pytest.mark.parametrize("labelled_images", [20, 100])
def test_about_one_rightful_image_in_the_number_of_labels_is_refused(labelled_images: int) -> None:
    """Twenty draws of labels; the mean over them stays below twice the share that chance gives."""
    shares = []
    for seed in range(20):
        features = random_features(labelled_images + 500, 4, seed)
        labelled = features[:labelled_images]
        rightful = features[labelled_images:]
        shares.append(len(refused(pool(rightful, labelled))) / len(rightful))
    assert 0 < np.mean(shares) < 2 / labelled_images


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_broken_features_of_either_kind_are_refused(value: float) -> None:
    features = random_features(3, 2, 0)
    labelled = random_features(20, 2, 1)
    features[1, 0] = value
    message = r"out_of_distribution_filter: expected finite features, .*first '0002'"
    with pytest.raises(DataError, match=message):
        refused(pool(features, labelled))
    labelled[0, 0] = value
    with pytest.raises(DataError, match="of labelled images"):
        refused(pool(features[:1], labelled))


def test_the_filter_is_off_unless_a_job_wants_it() -> None:
    assert not ActiveSettings().out_of_distribution_filter


def test_chest_x_rays_among_skin_lesions_are_found(real_data: Path) -> None:
    """At 112 pixels: 60 labelled lesions, and a pool of 60 other lesions and 60 X-rays."""
    with (real_data / "skin" / "manifest.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows = [row for row in rows if row["source"] == "vidir_modern" and row["diagnosis"]]
    every = len(rows) // 120
    paths = [real_data / "skin" / row["image"] for row in rows[::every][:120]]
    lesions = [np.asarray(Image.open(path).convert("RGB").resize((112, 112))) for path in paths]
    with np.load(real_data / "cxr" / "cxr_multisource_96.npz") as archive:
        pictures = map(Image.fromarray, archive["images"][::37])
        films = [np.asarray(picture.convert("RGB").resize((112, 112))) for picture in pictures]
    net = build("tf_efficientnet_lite0", 7, pretrained=True)
    cpu = torch.device("cpu")

    def images(kind: str, pixels: list[Any]) -> Images:
        return Images(
            tuple(f"{kind}-{place}" for place in range(len(pixels))),
            np.stack(pixels),
            np.zeros(len(pixels), int),
        )

    mixed = images("skin", lesions[60:] + films[:60])
    labelled = images("known", lesions[:60])
    uses = out_of_distribution.USES
    seen = observe(
        "north",
        mixed,
        [labelled],
        uses,
        Loading(lambda name: net),
        MODELS,
        lambda some: Pixels.of(some, cpu),
        weak,
    )
    refused_numbers = {int(name.removeprefix("skin-")) for name in refused(seen)}
    refused_films = [number for number in refused_numbers if number >= 60]
    assert len(refused_films) >= 45
    assert len(refused_numbers) - len(refused_films) <= 3
