"""The images and features on which the references of a study are fitted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedward.client.site_data import DataSource
from fedward.config import Experiment
from fedward.evaluation.arrays import Values
from fedward.lab.bench.reference import Input
from fedward.lab.bench.references import Inputs, SiteImages
from fedward.lab.noted_answers import GroupedImages
from fedward.lab.synthetic import SyntheticSites
from fedward.methods import method_of
from fedward.nets.trainable import HEAD
from fedward.sites.caches import Cache
from fedward.sites.data import Images
from fedward.training.features import encoder_of
from fedward.training.machine import device_of, threads_limited
from fedward.training.networks import Networks

SIDE = 32
"""Pixels of a side at most: larger images are reduced to it, by the mean of areas."""
_BLOCK = 512
"""Images that are reduced at once."""


def input_names(experiment: Experiment) -> tuple[Input, ...]:
    """Return what references learn from: pixels, and the features of an encoder if it is frozen."""
    return ("pixels", "features") if experiment.trainable == HEAD else ("pixels",)


@dataclass(frozen=True)
class ReferenceImages:
    """The images of all sites of a repetition."""

    experiment: Experiment
    """A run of the repetition, which says how images are read."""
    sites: Sequence[str]
    files: Path | None
    """Folder of the site files; None: the images are synthetic."""
    cache: Path
    """Folder for decoded images and features, which the runs of the study share."""

    def by_site(self) -> dict[str, SiteImages]:
        """Return the images of each site.

        Raises:
            DataError: the data that a site file names cannot be used.
        """
        return {site: self._images(site) for site in self.sites}

    def _images(self, site: str) -> SiteImages:
        source = self._source(site)
        seen = source.read(class_totals=False)
        whole = source.whole()
        return SiteImages(
            few=seen.labelled,
            whole=whole.labelled,
            train=_together(whole.labelled, whole.unlabelled),
            val=seen.val,
            test=seen.test,
            tested=GroupedImages.of_site(seen.test, source.file),
        )

    def _source(self, site: str) -> DataSource:
        return DataSource(
            site,
            self.experiment,
            self.cache / "references" / site,
            [self.files] if self.files else [],
            cache=self.cache / "images" / site,
            synthetic=SyntheticSites(),
        )

    def inputs(self) -> dict[Input, Inputs]:
        """Return what makes vectors of images: from pixels, and by a frozen encoder.

        Features of an image are computed once, whichever site and repetition it is in.
        """
        makers: dict[Input, Callable[[], Inputs]] = {
            "pixels": lambda: lambda _, images: reduced(images),
            "features": self._features,
        }
        return {name: makers[name]() for name in input_names(self.experiment)}

    def _features(self) -> Inputs:
        networks = Networks(
            self.experiment, method_of(self.experiment), device_of("auto", "references")
        )
        cache = Cache(self.cache / "features", kept=None)
        encoder = encoder_of(networks.on_images, self.experiment, cache, plain=True)
        assert encoder is not None, "a head alone trains on features"
        with threads_limited(1):
            to_features = {site: encoder.table(self._source(site).whole()) for site in self.sites}

        def vectors(site: str, images: Images) -> Values:
            rows = to_features[site](images).take(torch.arange(len(images)))
            return rows.double().cpu().numpy()

        return vectors


def _together(first: Images, second: Images) -> Images:
    """Return the images of both."""
    return Images(
        ids=(*first.ids, *second.ids),
        pixels=np.concatenate([first.pixels, second.pixels]),
        labels=np.concatenate([first.labels, second.labels]),
    )


def reduced(images: Images) -> Values:
    """Return the pixels of images (N, D) in [0, 1], of :data:`SIDE` pixels a side at most."""
    side = images.pixels.shape[1]
    blocks = []
    for start in range(0, len(images), _BLOCK):
        pixels = torch.from_numpy(np.array(images.pixels[start : start + _BLOCK])).double() / 255
        if side > SIDE:
            channels_first = pixels.permute(0, 3, 1, 2)
            pixels = torch.nn.functional.adaptive_avg_pool2d(channels_first, SIDE)
            pixels = pixels.permute(0, 2, 3, 1)
        blocks.append(pixels.reshape(len(pixels), -1).numpy())
    return np.concatenate(blocks)
