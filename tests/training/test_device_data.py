"""A site's images on the device: no image is kept there twice."""

from dataclasses import replace

import pytest
import torch

from fedward.config import DataSpec, SyntheticData
from fedward.lab.synthetic import synthetic_site
from fedward.training.device_data import DeviceData

CPU = torch.device("cpu")
PARTS = ("labelled", "unlabelled")


@pytest.fixture(scope="module")
def site():
    return synthetic_site(
        "site-1", DataSpec(image_size=16), SyntheticData(images=40, labelled=0.5), 3
    )


@pytest.mark.parametrize("first", ["all", "labelled"])
def test_all_images_and_their_parts_are_the_same_memory(site, first):
    alone = DeviceData(site, CPU)
    images = DeviceData(site, CPU)
    images[first]
    whole = images["all"]
    start = 0
    for part in PARTS:
        pixels = images[part].pixels
        assert torch.equal(pixels, alone[part].pixels)
        assert torch.equal(images[part].labels, alone[part].labels)
        assert pixels.data_ptr() == whole.pixels[start:].data_ptr()
        start += len(pixels)
    assert start == len(whole)


def test_a_site_without_labels_has_an_empty_part(site):
    images = DeviceData(site.with_labels({}), CPU)
    assert (
        len(images["all"]) == len(images["unlabelled"]) == len(site.labelled) + len(site.unlabelled)
    )
    assert len(images["labelled"]) == 0


def test_a_cpu_works_on_the_sites_own_array(site):
    for part in ("val", "test"):
        assert (
            DeviceData(site, CPU)[part].pixels.data_ptr() == getattr(site, part).pixels.ctypes.data
        )


def test_refused_images_are_in_no_part_that_trains(site):
    bare = site.with_labels({})
    images = DeviceData(replace(bare, refused=frozenset(bare.unlabelled.ids[:1])), CPU)
    rest = torch.tensor(bare.unlabelled.pixels[1:]).permute(0, 3, 1, 2)
    for part in ("unlabelled", "all"):
        assert torch.equal(images[part].pixels, rest)
