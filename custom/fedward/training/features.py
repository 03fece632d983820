"""Features of a frozen encoder: computed once for each image and view, and kept at the site.

An image's features hang on nothing but the image, the encoder and how views are made. The name of a
file says all of that (:func:`_key`), the images in it are known by their own hashes, and no file is
ever changed. So whatever is another is computed anew, and what is the same is read.
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

from fedward import private
from fedward.config import Experiment
from fedward.digests import digest
from fedward.errors import ConfigError, DataError, WorkError
from fedward.methods.local import logits_and_features
from fedward.nets.build import MONAI
from fedward.nets.trainable import HEAD, TrainablePart
from fedward.registry import NETWORKS, VIEWS
from fedward.seeds import torch_generator
from fedward.sites import Images, SiteData, caches
from fedward.sites.caches import Cache
from fedward.views import Views

_FORMAT = 1  # of the files: raise it when the same images would get other features
_Array: TypeAlias = npt.NDArray[np.float16]
_Pixels: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Features:
    """Stored features of N images in place of their pixels: rows of a table (R, D) float16, and
    labels as of Samples.

    An image has one row for itself, at ``first`` (N,), and behind it, if it trains, one for each of
    its views.
    """

    table: Tensor
    first: Tensor
    labels: Tensor
    views: int
    """Rows behind the first one: weak views, then as many strong ones; 0 of images that do not
    train.
    """

    @classmethod
    def together(cls, parts: Sequence["Features"]) -> "Features":
        """Return the images of all parts, which have one table, as one."""
        first, labels = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("first", "labels")
        )
        return cls(parts[0].table, first, labels, parts[0].views)

    def split(self, sizes: list[int]) -> list["Features"]:
        """Return as many images each as ``sizes`` say, which add up to all."""
        both = zip(self.first.split(sizes), self.labels.split(sizes), strict=True)
        return [Features(self.table, *each, self.views) for each in both]

    def __len__(self) -> int:
        return len(self.first)

    def take(self, index: Tensor) -> Tensor:
        """Return the features (B, D) float32 of the indexed images themselves."""
        return self.table[self.first[index.to(self.first.device)]].float()

    def originals(self, index: Tensor) -> Tensor:
        """Return (B, views, D) float16, what :func:`stored_views` choose from."""
        rows = self.first[index.to(self.first.device)].unsqueeze(1)
        return self.table[rows + torch.arange(1, self.views + 1, device=rows.device)]


def stored_views(count: int) -> Views:
    """Return views that draw one of ``count`` stored weak ones, or strong ones, of each image.

    They take (B, 2 count, D) of :meth:`Features.originals` and return (B, D) float32.
    """

    def drawn(stored: Tensor, generator: torch.Generator, start: int) -> Tensor:
        number = torch.randint(count, (len(stored),), generator=generator).to(stored.device)
        return stored[torch.arange(len(stored), device=stored.device), start + number].float()

    return Views(
        weak=lambda stored, generator: drawn(stored, generator, 0),
        strong=lambda stored, generator: drawn(stored, generator, count),
    )


def stored_features(
    net: nn.Module, experiment: Experiment, cache: Cache, plain: bool = False
) -> Callable[[SiteData], Callable[[Images], Features]] | None:
    """Return :meth:`Encoder.table` of an experiment whose networks take features, else None.

    ``net``: as it takes images. ``plain``: the method's requirement.
    """
    if experiment.trainable != HEAD or not isinstance(net, TrainablePart):
        return None
    return Encoder(net, experiment, cache, plain).table


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen encoder, and where features are kept.

    Args:
        part: on its device; its encoder is all before the classifier.
        experiment: of which net, data, and the number of views that are stored count.
        cache: for the files; its folder is made if it is not there.
        plain: whether no views are stored, and nothing of training images without a label.
    """

    part: TrainablePart
    experiment: Experiment
    cache: Cache
    plain: bool = False

    def table(self, data: SiteData) -> Callable[[Images], Features]:
        """Return what gives a site's images as features. Those that are not stored yet are computed
        and stored.

        Raises:
            ConfigError: the network does something behind its classifier.
            DataError: two images with one id.
            WorkError: features beyond float16.
        """
        wanted = dict[str, tuple[_Pixels, int]]()
        """Hash of an image -> its pixels (H, W, C), and how many rows it needs."""
        hashes = dict[str, str]()
        """Id -> hash."""
        for images, views in self._parts(data):
            for name, pixels in zip(images.ids, images.pixels, strict=True):
                found = hashlib.sha256(pixels.tobytes()).hexdigest()
                if hashes.setdefault(name, found) != found:
                    where = f"site {data.site}"
                    remedy = "Give each image an id of its own."
                    raise DataError(
                        where, expected="every id once", found=f"{name!r} twice", remedy=remedy
                    )
                wanted.setdefault(found, (pixels, 1 + views))  # those that train come first
        array, first = self._stored({each: wanted[each] for each in sorted(wanted)})
        with warnings.catch_warnings():  # the array is read-only, and nobody writes into the tensor
            warnings.simplefilter("ignore", UserWarning)
            table = torch.from_numpy(array).to(self._device)
        training = {*data.labelled.ids, *data.unlabelled.ids}

        def of(images: Images) -> Features:
            rows = torch.tensor([first[hashes[name]] for name in images.ids], dtype=torch.int64)
            views = self._views if training.issuperset(images.ids) else 0
            labels = torch.tensor(images.labels, device=self._device)
            return Features(table, rows.to(self._device), labels, views)

        return of

    @cached_property
    def key(self) -> str:
        """Hash of all that an image's features hang on besides the image."""
        spec = self.experiment
        views = VIEWS.extension(self.experiment.data.views)
        facts = {
            "format": _FORMAT,
            "net": str(NETWORKS.extension(spec.net) or spec.net)
            if spec.net in NETWORKS
            else spec.net,
            "encoder": self.part.base,
            "layer": "what the classifier receives",
            "dtype": "float16",
            "size": [spec.data.image_size, spec.data.channels],
            "views": [spec.data.views, str(views), spec.stored_views],
            "machine": [self._device.type, torch.get_num_threads()],
            "versions": {
                name: version(name) for name in ("fedward", "timm", "torch", *self._of_monai)
            },
        }
        return digest(facts)[:32]

    @property
    def _of_monai(self) -> tuple[str, ...]:
        return ("monai",) if self.experiment.net.startswith(MONAI) else ()

    @property
    def _device(self) -> torch.device:
        return next(self.part.whole.parameters()).device

    def _parts(self, data: SiteData) -> Iterator[tuple[Images, int]]:
        trained = [data.labelled] if self.plain else [data.labelled, data.unlabelled]
        yield from [*((images, self._views) for images in trained), (data.val, 0), (data.test, 0)]

    @property
    def _views(self) -> int:
        """Rows of an image that trains, behind the first."""
        return 0 if self.plain else 2 * self.experiment.stored_views

    def _stored(self, wanted: Mapping[str, tuple[_Pixels, int]]) -> tuple[_Array, dict[str, int]]:
        """Return the table, and hash of an image -> its first row."""
        rows = dict[str, list[int]]()
        end = 0
        for name, (_, count) in wanted.items():
            rows[name], end = [end, count], end + count
        private.make_folder(self.cache.folder)
        target = self.cache.folder / f"{self.key}-{digest(rows)[:32]}.npy"
        array = _read(target, rows)
        if array is None:
            with caches.alone(target):
                array = _read(target, rows)  # another process may have made it
                if array is None:
                    width = (self._width(),)
                    array = caches.write(
                        target, self._rows(wanted), width, np.float16, lambda: {"rows": rows}
                    )
        caches.touch(target)
        caches.keep_newest(*self.cache)
        return array, {name: start for name, (start, _) in rows.items()}

    def _rows(self, wanted: Mapping[str, tuple[_Pixels, int]]) -> Iterator[_Array]:
        """Yield the rows (n, D) of each image; those in another file of the same key are not
        computed again.
        """
        older = dict[str, _Array]()
        for file in sorted(self.cache.folder.glob(f"{self.key}-*.npy")):
            found = caches.read(file, np.float16)
            if found:
                array = np.asarray(found[0])
                rows = found[1]["rows"]  # slices of a memmap are slow to make
                for name in wanted.keys() & rows.keys():
                    start, count = rows[name]
                    if count > len(older.get(name, ())):
                        older[name] = array[start : start + count]
        for name, (pixels, count) in wanted.items():
            known = older.get(name, ())
            yield known[:count] if len(known) >= count else self._encoded(pixels, name, count > 1)  # type: ignore[misc]

    @torch.no_grad()
    def _encoded(self, pixels: _Pixels, name: str, trains: bool) -> _Array:
        """Return the rows of one image: the same, bit for bit, whatever other images there are."""
        image = (
            torch.from_numpy(pixels.copy())
            .permute(2, 0, 1)
            .unsqueeze(0)
            .to(self._device)
            .float()
            .div_(255)
        )
        batches = [image]
        (weak, strong) = VIEWS[self.experiment.data.views]
        if trains:
            numbers = range(self.experiment.stored_views)
            views = [
                weak(image, torch_generator(0, "features", name, "weak", number))
                for number in numbers
            ]
            views += [
                strong(image, torch_generator(0, "features", name, "strong", number))
                for number in numbers
            ]
            batches.append(torch.cat(views))
        features = torch.cat([self._features(batch) for batch in batches]).to(torch.float16).cpu()
        if not bool(features.isfinite().all()):
            where = f"net {self.experiment.net}, features"
            expected = "numbers below 65504, the largest of float16"
            remedy = "Choose another network, or another part of it with trainable."
            raise WorkError(where, expected=expected, found="others", remedy=remedy)
        return features.numpy()

    def _features(self, images: Tensor) -> Tensor:
        return logits_and_features(self.part, images.contiguous(memory_format=torch.channels_last))[
            1
        ]

    @torch.no_grad()
    def _width(self) -> int:
        """Return D; ConfigError unless the classifier makes the network's logits of features (1,
        D).
        """
        data = self.experiment.data
        black = torch.zeros(1, data.channels, data.image_size, data.image_size, device=self._device)
        logits, features = logits_and_features(self.part.eval(), black)
        if features.dim() != 2 or not torch.allclose(self.part.classifier(features), logits):
            expected = "a classifier of features (N, D) whose logits are those of the network"
            found = f"features {tuple(features.shape[1:])}, or other logits"
            where = f"net {self.experiment.net}, trainable=head"
            remedy = "Choose another network, or trainable=last:1."
            raise ConfigError(where, expected=expected, found=found, remedy=remedy)
        return features.shape[1]


def _read(target: Path, rows: Mapping[str, list[int]]) -> _Array | None:
    """Return the table of a file that holds these rows; None where there is none."""
    known = caches.read(target, np.float16)
    return known[0] if known and known[1].get("rows") == rows else None
