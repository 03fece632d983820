"""Features of a frozen encoder: computed once for each image and view, and kept at the site.

The features of an image depend on the image, on the encoder and on how views are made. The name of
a file has a hash of the encoder and the views (:attr:`Encoder.key`), the images in it are known by
their own hashes, and no file is ever changed. So features are read where all of this is the same,
and computed where any of it differs.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedward.config import Experiment
from fedward.digests import digest
from fedward.disk import PRIVATE, make_folder
from fedward.errors import ConfigError, DataError, WorkError
from fedward.methods.local import logits_and_features
from fedward.nets.build import MONAI
from fedward.nets.trainable import HEAD, TrainablePart
from fedward.registry import NETWORKS, VIEWS
from fedward.seeds import torch_generator
from fedward.sites import Images, SiteData, caches
from fedward.sites.caches import Cache
from fedward.views import Views

_FORMAT = 1
"""Version of the files; to be raised when the same images would get other features."""
_Array: TypeAlias = npt.NDArray[np.float16]
_Pixels: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Features:
    """Stored features of N images, in place of their pixels."""

    table: Tensor
    """(R, D) float16. An image has one row for itself, then one for each of its views."""
    first: Tensor
    """(N,) int64: the row of each image itself."""
    labels: Tensor
    """As :attr:`fedward.training.batches.Samples.labels`."""
    view_rows: int
    """Rows of an image after its first one: weak views, then as many strong ones.

    Images that do not train have none.
    """

    @classmethod
    def together(cls, parts: Sequence["Features"]) -> "Features":
        """Return the images of all parts as one.

        Raises:
            ValueError: the parts differ in their table, or in how many views are stored.
        """
        table = parts[0].table
        view_rows = parts[0].view_rows
        for part in parts:
            if part.table is not table or part.view_rows != view_rows:
                raise ValueError("parts with other tables or views than the first one")
        first = torch.cat([part.first for part in parts])
        labels = torch.cat([part.labels for part in parts])
        return cls(table, first, labels, view_rows)

    def split(self, sizes: list[int]) -> list["Features"]:
        """Return parts with these numbers of images, which add up to all."""
        parts = []
        for first, labels in zip(self.first.split(sizes), self.labels.split(sizes), strict=True):
            parts.append(Features(self.table, first, labels, self.view_rows))
        return parts

    def __len__(self) -> int:
        return len(self.first)

    def take(self, index: Tensor) -> Tensor:
        """Return the features (B, D) float32 of the indexed images themselves."""
        return self.table[self.first[index.to(self.first.device)]].float()

    def originals(self, index: Tensor) -> Tensor:
        """Return (B, view_rows, D) float16, from which :func:`stored_views` choose."""
        rows = self.first[index.to(self.first.device)].unsqueeze(1)
        return self.table[rows + torch.arange(1, self.view_rows + 1, device=rows.device)]


def stored_views(count: int) -> Views:
    """Return views that draw one of the stored weak views of each image, or of its strong ones.

    They take (B, 2 count, D) of :meth:`Features.originals` and return (B, D) float32.

    Args:
        count: how many views of each kind are stored.
    """

    def drawn(stored: Tensor, generator: torch.Generator, start: int) -> Tensor:
        number = torch.randint(count, (len(stored),), generator=generator).to(stored.device)
        return stored[torch.arange(len(stored), device=stored.device), start + number].float()

    return Views(
        weak=lambda stored, generator: drawn(stored, generator, 0),
        strong=lambda stored, generator: drawn(stored, generator, count),
    )


def encoder_of(
    net: nn.Module, experiment: Experiment, cache: Cache, plain: bool = False
) -> "Encoder | None":
    """Return the frozen encoder of a network that trains its head alone; None of any other.

    Args:
        net: the network that takes images.
        experiment: says which part of the network trains.
        cache: where features are kept.
        plain: whether the method looks at no views, as its requirements say.
    """
    if experiment.trainable != HEAD or not isinstance(net, TrainablePart):
        return None
    return Encoder(net, experiment, cache, plain)


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen encoder, and where features are kept.

    Args:
        part: a network on its device. Everything before its classifier is the encoder.
        experiment: names the network, the data, and the number of stored views.
        cache: where the files are; its folder is made if it does not exist.
        plain: whether no views are stored, and no unlabelled training images.
    """

    part: TrainablePart
    experiment: Experiment
    cache: Cache
    plain: bool = False

    def table(self, data: SiteData) -> Callable[[Images], Features]:
        """Return a function from some of a site's images to their features.

        Features that are not stored yet are computed and stored.

        Raises:
            ConfigError: the network does something after its classifier.
            DataError: two images have the same id.
            WorkError: features are too large for float16.
        """
        hashes: dict[str, str] = {}
        """Hash of each image, by its id."""
        wanted: dict[str, tuple[_Pixels, int]] = {}
        """Pixels (H, W, C) of each image, and how many rows it needs, by its hash."""
        for images, view_rows in self._parts(data):
            for name, pixels in zip(images.ids, images.pixels, strict=True):
                image_hash = hashlib.sha256(pixels.tobytes()).hexdigest()
                if hashes.setdefault(name, image_hash) != image_hash:
                    raise DataError(
                        f"Site {data.site} has several images with the id {name!r}",
                        "Give each image an id of its own.",
                    )
                # An image that trains and is also held out has its views, as it comes here first.
                wanted.setdefault(image_hash, (pixels, 1 + view_rows))
        array, first_rows = self._stored(dict(sorted(wanted.items())))
        with warnings.catch_warnings():
            # The array is read-only, and nothing writes into the tensor.
            warnings.simplefilter("ignore", UserWarning)
            table = torch.from_numpy(array).to(self._device)
        training = {*data.labelled.ids, *data.unlabelled.ids}

        def to_features(images: Images) -> Features:
            rows = [first_rows[hashes[name]] for name in images.ids]
            first = torch.tensor(rows, dtype=torch.int64, device=self._device)
            labels = torch.tensor(images.labels, device=self._device)
            view_rows = self._view_rows if training.issuperset(images.ids) else 0
            return Features(table, first, labels, view_rows)

        return to_features

    @cached_property
    def key(self) -> str:
        """Hash of everything besides the image on which its features depend."""
        experiment = self.experiment
        data = experiment.data
        net = experiment.net
        if net in NETWORKS:
            # An installed package may give the name to another network.
            net = str(NETWORKS.extension(net) or net)
        packages = ["fedward", "timm", "torch"]
        if experiment.net.startswith(MONAI):
            packages.append("monai")
        facts = {
            "format": _FORMAT,
            "net": net,
            "encoder": self.part.base,
            "layer": "what the classifier receives",
            "dtype": "float16",
            "size": [data.image_size, data.channels],
            "views": [data.views, str(VIEWS.extension(data.views)), experiment.stored_views],
            "machine": [self._device.type, torch.get_num_threads()],
            "versions": {package: version(package) for package in packages},
        }
        return digest(facts)[:32]

    @property
    def _device(self) -> torch.device:
        return next(self.part.whole.parameters()).device

    def _parts(self, data: SiteData) -> Iterator[tuple[Images, int]]:
        """Yield the images of which features are stored, each part with its rows of views."""
        yield data.labelled, self._view_rows
        if not self.plain:
            yield data.unlabelled, self._view_rows
        yield data.val, 0
        yield data.test, 0

    @property
    def _view_rows(self) -> int:
        """Rows of an image that trains, after its first one."""
        return 0 if self.plain else 2 * self.experiment.stored_views

    def _stored(self, wanted: Mapping[str, tuple[_Pixels, int]]) -> tuple[_Array, dict[str, int]]:
        """Return the table, and the first row of each image by its hash."""
        rows: dict[str, list[int]] = {}
        """Hash of an image -> its first row and its number of rows, as the file's facts say."""
        next_row = 0
        for image_hash, (_, count) in wanted.items():
            rows[image_hash] = [next_row, count]
            next_row += count
        make_folder(self.cache.folder, PRIVATE)
        target = self.cache.folder / f"{self.key}-{digest(rows)[:32]}.npy"
        array = _read(target, rows)
        if array is None:
            with caches.alone(target):
                # Another process may have written it while this one waited.
                array = _read(target, rows)
                if array is None:
                    width = (self._width(),)
                    array = caches.write(
                        target, self._rows(wanted), width, np.float16, lambda: {"rows": rows}
                    )
        caches.touch(target)
        caches.keep_newest(*self.cache)
        return array, {image_hash: first for image_hash, (first, _) in rows.items()}

    def _rows(self, wanted: Mapping[str, tuple[_Pixels, int]]) -> Iterator[_Array]:
        """Yield the rows (n, D) of each image.

        Rows that another file with the same key holds are not computed again.
        """
        needed = {image_hash: count for image_hash, (_, count) in wanted.items()}
        stored = self._rows_in_files(needed)
        for image_hash, (pixels, count) in wanted.items():
            if image_hash in stored:
                yield stored[image_hash][:count]
            else:
                yield self._encoded(pixels, image_hash, with_views=count > 1)

    def _rows_in_files(self, needed: Mapping[str, int]) -> dict[str, _Array]:
        """Return hash -> rows of the images that files with the same key hold, as far as found.

        Args:
            needed: hash of an image -> the fewest rows of it that are of use.
        """
        stored: dict[str, _Array] = {}
        missing = dict(needed)
        for file in caches.newest_first(self.cache.folder):
            if not missing:
                break
            of_this_encoder = file.name.startswith(f"{self.key}-")
            notes = caches.read_notes(file) if of_this_encoder else None
            if notes is None:
                continue
            rows_in_file = notes.get("rows", {})
            places = {}
            for image_hash, count in missing.items():
                first, count_in_file = rows_in_file.get(image_hash, (0, 0))
                if count_in_file >= count:
                    places[image_hash] = (first, first + count_in_file)
            # Of many repetitions most files hold nothing that newer ones do not: they stay unread.
            content = caches.read(file, np.float16) if places else None
            if content is None:
                continue
            # Slices of a memory map are slow to make.
            array = np.asarray(content[0])
            for image_hash, (first, end) in places.items():
                stored[image_hash] = array[first:end]
                del missing[image_hash]
        return stored

    @torch.no_grad()
    def _encoded(self, pixels: _Pixels, image_hash: str, *, with_views: bool) -> _Array:
        """Return the rows (n, D) of one image (H, W, C).

        They are the same, bit for bit, whatever other images there are: an image is encoded alone,
        and its views as one batch.
        """
        image = torch.from_numpy(pixels.copy()).permute(2, 0, 1).unsqueeze(0)
        image = image.to(self._device).float().div_(255)
        features = [self._features(image)]
        if with_views:
            features.append(self._features(self._views_of(image, image_hash)))
        rows = torch.cat(features).to(torch.float16).cpu()
        if not bool(rows.isfinite().all()):
            raise WorkError(
                f"net {self.experiment.net}: its features are not all numbers below 65504, "
                "the largest of float16",
                "Choose another network, or another part of it with trainable.",
            )
        return rows.numpy()

    def _views_of(self, image: Tensor, image_hash: str) -> Tensor:
        """Return the weak views, then the strong ones, of an image (1, C, H, W).

        They follow from the hash, so that an image has the same views in all runs.
        """
        recipe = VIEWS[self.experiment.data.views]
        views = []
        for kind, view in (("weak", recipe.weak), ("strong", recipe.strong)):
            for number in range(self.experiment.stored_views):
                generator = torch_generator(0, "features", image_hash, kind, number)
                views.append(view(image, generator))
        return torch.cat(views)

    def _features(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        _, features = logits_and_features(self.part, images)
        return features

    @torch.no_grad()
    def _width(self) -> int:
        """Return the number of features D.

        Raises:
            ConfigError: the classifier does not turn features (1, D) into the network's logits.
        """
        data = self.experiment.data
        black = torch.zeros(1, data.channels, data.image_size, data.image_size, device=self._device)
        logits, features = logits_and_features(self.part.eval(), black)
        if features.dim() != 2 or not torch.allclose(self.part.classifier(features), logits):
            raise ConfigError(
                f"net {self.experiment.net}, trainable=head",
                "Choose another network, or trainable=last:1.",
                expected="a classifier of features (N, D) whose logits are those of the network",
                found=f"features {tuple(features.shape[1:])}, or other logits",
            )
        return features.shape[1]


def _read(target: Path, rows: Mapping[str, list[int]]) -> _Array | None:
    """Return the table in a file; None if there is no such file, or it has other rows."""
    content = caches.read(target, np.float16)
    if content is None:
        return None
    array, facts = content
    return array if facts.get("rows") == rows else None
