import subprocess
import sys

import numpy as np
import pytest

from fedward.config import DERMOSCOPY, DataSpec, SyntheticData
from fedward.errors import DataError
from fedward.lab.lesion_appearance import APPEARANCES, Style
from fedward.lab.lesions import draw
from fedward.lab.synthetic import synthetic_site

SPEC = DataSpec()
SMALL = SyntheticData(images=60)
SITES = [f"site-{number}" for number in range(1, 11)]


def test_all_eight_classes_can_be_drawn():
    assert tuple(APPEARANCES) == DERMOSCOPY


def test_further_sites_are_like_the_first_ten():
    for first, further in (("site-9", "site-19"), ("site-10", "site-100")):
        one, two = (synthetic_site(site, SPEC, SyntheticData(), 1) for site in (first, further))
        counts = [np.bincount(labels_of(data), minlength=8) for data in (one, two)]
        assert counts[0].tolist() == counts[1].tolist(), "the same diagnoses"
        pictures = [{image.tobytes() for image in data.test.pixels} for data in (one, two)]
        assert len(pictures[0]) == len(pictures[1]) == len(one.test)
        assert not pictures[0] & pictures[1]


def test_sites_have_the_chosen_places_in_turn():
    chosen = SyntheticData(images=40, labelled=1.0, places=(9, 6))
    counts = {}
    for site in ("site-1", "site-2", "site-3"):
        labels = synthetic_site(site, SPEC, chosen, 1).labelled.labels
        counts[site] = np.bincount(labels, minlength=8).tolist()
    alike = synthetic_site(
        "site-6", SPEC, SyntheticData(images=40, labelled=1.0), 1
    ).labelled.labels
    assert counts["site-1"] == counts["site-3"] != counts["site-2"]
    assert counts["site-2"] == np.bincount(alike, minlength=8).tolist()


def labels_of(data):
    """Return the labels of all images of a site, seen or not, by what it would label in full."""
    whole = synthetic_site(data.site, SPEC, SyntheticData(labelled=1.0), 1)
    return np.concatenate([whole.labelled.labels[:], whole.val.labels[:], whole.test.labels[:]])


@pytest.mark.parametrize(
    ("site", "labelled"), [("site-11", True), ("site-12", False), ("site-20", False)]
)
def test_every_other_further_site_is_isolated(site, labelled):
    data = synthetic_site(site, SPEC, SyntheticData(images=60, labelled=1.0, isolated=True), 1)
    assert bool(len(data.labelled)) is labelled


def test_labelled_sites_are_named_by_their_numbers():
    synthetic = SyntheticData(images=60, labelled=1.0, labelled_sites=(2, 10))
    labelled = [site for site in SITES if len(synthetic_site(site, SPEC, synthetic, 1).labelled)]
    assert labelled == ["site-2", "site-10"]


@pytest.mark.parametrize(
    "site", ["site-0", "site-01", "site--1", "site-x", "hospital", "site-10000"]
)
def test_other_names_have_no_synthetic_images(site):
    with pytest.raises(
        DataError, match=f"synthetic site {site}: expected site-1, site-2, ... or server"
    ):
        synthetic_site(site, SPEC, SMALL, 1)


def test_equal_seeds_give_equal_sites(monkeypatch):
    monkeypatch.setattr("fedward.lab.synthetic.draw", draw)  # each time anew
    one, two = (synthetic_site("site-6", SPEC, SMALL, 3) for _ in range(2))
    for name in ("labelled", "unlabelled", "val", "test"):
        assert getattr(one, name).ids == getattr(two, name).ids
        assert np.array_equal(getattr(one, name).pixels, getattr(two, name).pixels)
        assert np.array_equal(getattr(one, name).labels, getattr(two, name).labels)
    other = synthetic_site("site-6", SPEC, SMALL, 4)
    assert not np.array_equal(one.test.pixels[:5], other.test.pixels[:5])


def test_pixels_are_the_golden_ones():
    """Means of a quarter of each image, rounded to tens, so that another BLAS may differ in a last
    bit.
    """
    pixels = draw(list(APPEARANCES), 32, Style(), np.random.default_rng(0))
    quarters = pixels.reshape(8, 2, 16, 2, 16, 3).mean(axis=(2, 4))
    assert quarters[:, 0, 0].round(-1).astype(int).tolist() == GOLDEN


GOLDEN = [
    [140, 110, 110],
    [190, 130, 120],
    [210, 150, 150],
    [190, 160, 130],
    [200, 150, 130],
    [190, 140, 120],
    [190, 130, 130],
    [200, 150, 130],
]


@pytest.mark.parametrize("site", ["site-1", "site-5", "site-8", "site-9", "site-10"])
def test_a_site_has_its_size_splits_and_labels(site):
    data = synthetic_site(site, SPEC, SyntheticData(), 1)
    total = {"site-5": 192, "site-8": 120, "site-9": 144, "site-10": 60}.get(site, 240)
    train = len(data.labelled) + len(data.unlabelled)
    assert train + len(data.val) + len(data.test) == total
    assert train == pytest.approx(0.6 * total, abs=4)
    assert len(data.val) == pytest.approx(0.15 * total, abs=4)
    assert 0.1 * train - 1 <= len(data.labelled) <= 0.1 * train + 8
    assert (data.unlabelled.labels == -1).all()
    ids = [i for name in ("labelled", "unlabelled", "val", "test") for i in getattr(data, name).ids]
    assert len(set(ids)) == total


def test_naevi_dominate_except_among_the_outdoor_workers():
    common = {
        site: int(np.bincount(synthetic_site(site, SPEC, SyntheticData(), 1).test.labels).argmax())
        for site in SITES
    }
    assert {site for site, label in common.items() if DERMOSCOPY[label] != "NV"} == {"site-9"}


def test_communities_share_a_cast_that_others_do_not_have():
    cast = {}
    for site in SITES:
        corner = (
            synthetic_site(site, SPEC, SyntheticData(), 1)
            .test.pixels[:, 13:19, :3]
            .astype(float)
            .mean(axis=(0, 1, 2))
        )
        cast[site] = corner / corner.sum()
    same = []
    other = []
    for one in range(1, 9):
        for two in range(one + 1, 9):
            apart = np.abs(cast[f"site-{one}"] - cast[f"site-{two}"]).sum()
            (same if (one <= 5) == (two <= 5) else other).append(apart)
    assert max(same) < min(other)


def test_the_server_is_a_validation_set_of_all_classes():
    data = synthetic_site("server", SPEC, SMALL, 1)
    assert len(data.val) == 60
    assert not len(data.labelled) + len(data.unlabelled) + len(data.test)
    assert set(data.val.labels.tolist()) == set(range(8))


def test_a_server_with_labels_has_all_of_them_and_validation_images():
    data = synthetic_site("server", SPEC, SMALL, 1, labels_at_server=True)
    assert not len(data.unlabelled) + len(data.test)
    for images in (data.labelled, data.val):
        assert set(images.labels.tolist()) <= set(range(8))
    assert (len(data.labelled), len(data.val)) == (49, 11)
    without = synthetic_site("server", SPEC, SMALL, 1)
    both = np.concatenate([data.labelled.pixels, data.val.pixels])
    assert {image.tobytes() for image in both} == {image.tobytes() for image in without.val.pixels}


def test_all_labels_and_none():
    assert not len(
        synthetic_site("site-1", SPEC, SyntheticData(images=60, labelled=1.0), 1).unlabelled
    )
    assert not len(
        synthetic_site("site-1", SPEC, SyntheticData(images=60, labelled=0.0), 1).labelled
    )


def test_hidden_share_moves_no_image():
    few, all_ = (
        synthetic_site("site-1", SPEC, SyntheticData(images=60, labelled=share), 1)
        for share in (0.1, 1.0)
    )
    assert np.array_equal(few.test.pixels, all_.test.pixels)
    assert sorted(few.labelled.ids + few.unlabelled.ids) == sorted(all_.labelled.ids)


def test_other_specs():
    grey = synthetic_site("site-2", DataSpec(channels=1, image_size=48), SMALL, 1)
    assert grey.test.pixels.shape[1:] == (48, 48, 1)
    colour = synthetic_site("site-2", DataSpec(image_size=48), SMALL, 1)
    luma = colour.test.pixels @ np.array([0.299, 0.587, 0.114])
    assert np.abs(luma - grey.test.pixels[..., 0]).max() <= 0.5
    three = synthetic_site("site-2", DataSpec(classes=("NV", "MEL", "BKL")), SMALL, 1)
    assert set(three.test.labels.tolist()) == {0, 1, 2}


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(DataError, match="found cat"):
        synthetic_site("site-1", DataSpec(classes=("NV", "cat")), SMALL, 1)
    with pytest.raises(DataError, match="DF, VASC"):
        synthetic_site("site-9", DataSpec(classes=("DF", "VASC")), SMALL, 1)


def test_importing_sites_does_not_import_torch():
    modules = "fedward.lab.partition.cut, fedward.lab.partition.fedperl, fedward.sites.doctor"
    code = f"import sys, fedward.sites, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
