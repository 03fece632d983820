"""The ledger of sums of a site's images, which refuses a second sum of nearly the same images.

The sums of two sets of images that differ in one image reveal that image's numbers, by subtraction.
The ledger covers all jobs and is a chain (:mod:`fedward.storage.chain`). A line records that a run
receives sums of a set of images, and is on the disk before the answer leaves. A set is known by two
kinds of hashes: of the images' names, which stay the same if a job asks for images of another size,
and of their pixels, which stay the same if the hospital renames its files.

The end of the ledger is kept nowhere else, so the loss of its last lines, or of the whole file, is
not noticed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from fedward.digests import digest
from fedward.errors import DataError, RunError
from fedward.security.policy import Finding
from fedward.storage.chain import Chain, checked, read
from fedward.storage.disk import PRIVATE, make_folder
from fedward.storage.lock import locked

Kind = Literal["oneshot", "survey"]
"""What is told: sums over features (``oneshot``), or counts (``survey``)."""

_HASH_BYTES = 8
"""Length of a hash: among a million images two hashes are equal with a probability of 3e-8."""


@dataclass(frozen=True)
class ImageSet:
    """A set of images whose sums are told, as hashes of 16 hexadecimal digits each."""

    names: frozenset[str]
    """Hashes of each image's id and label."""
    pixels: frozenset[str]
    """Hashes of each image's pixels and label. Equal images have one hash."""

    @property
    def digest(self) -> str:
        """SHA-256 of both sets of hashes, 64 hexadecimal digits."""
        return digest({"names": sorted(self.names), "pixels": sorted(self.pixels)})

    def difference(self, other: "ImageSet") -> int:
        """Return in how many images two sets differ, by names or by pixels: the smaller number.

        A number of 0 does not count if the other one is above 0. An image whose label has changed
        counts twice: it is missing with the old label and new with the other one.

        Returns:
            0 if the sets are the same.
        """
        differences = (len(self.names ^ other.names), len(self.pixels ^ other.pixels))
        return min((number for number in differences if number), default=0)


@dataclass
class Told:
    """What the ledger records."""

    sets: dict[tuple[str, str], ImageSet] = field(default_factory=dict)
    """Kind and digest -> a set whose sums were told."""
    runs: set[str] = field(default_factory=set)
    """Ids of the runs that were told sums."""


def image_set(images: Iterable[tuple[str, bytes, bytes]]) -> ImageSet:
    """Return a set of images as hashes.

    Args:
        images: of each image its id, its pixels, and what else is told about it, such as its label.
    """
    names: set[str] = set()
    pixels: set[str] = set()
    for sample_id, content, label in images:
        names.add(_hash(label, sample_id.encode()))
        pixels.add(_hash(label, content))
    return ImageSet(frozenset(names), frozenset(pixels))


def sums_file(folder: Path, site: str) -> Path:
    """Return the ledger in a site's own folder, which the sites of a simulation share."""
    return folder / f"sums-{site}.jsonl"


def grant(
    path: Path, run: str, kind: Kind, images: ImageSet, fewest: int, most: int | None
) -> Finding | None:
    """Record that a run is told sums of a set of images, or return the rule that forbids it.

    Nothing is recorded where a rule forbids it.

    Args:
        path: the ledger.
        run: the run's id. A run that is continued asks again, and counts once.
        kind: what it is told. Sets of different kinds are not compared.
        images: the set.
        fewest: in how many images the set must differ from every other set of its kind in the
            ledger. The same set may be told again.
        most: how many runs may be told sums, over all jobs; None: any number.

    Raises:
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):
        told = told_before(path)
        set_digest = images.digest
        for (other_kind, _), other_set in told.sets.items():
            if other_kind == kind and 0 < images.difference(other_set) < fewest:
                allowed = f"sums of images as before, or of a set that differs in {fewest} or more"
                asked = "this site's images differ in fewer"
                return Finding("minimum_images", allowed, asked, False)
        if most is not None and run not in told.runs and len(told.runs) >= most:
            allowed = f"at most {most} runs"
            return Finding("maximum_sums", allowed, "this one would be one more", False)
        is_new_set = (kind, set_digest) not in told.sets
        if is_new_set or run not in told.runs:
            row: dict[str, Any] = {"run": run, "kind": kind, "set": set_digest}
            if is_new_set:
                row["names"] = sorted(images.names)
                row["pixels"] = sorted(images.pixels)
            Chain(path, path.name).add(row)
    return None


def told_before(path: Path) -> Told:
    """Return what the ledger records; nothing without a ledger.

    Raises:
        DataError: the ledger is not what was written.
    """
    told = Told()
    try:
        for row in _rows(path):
            told.runs.add(row["run"])
            if "names" in row:
                images = ImageSet(frozenset(row["names"]), frozenset(row["pixels"]))
                told.sets[row["kind"], row["set"]] = images
    except RunError as error:
        raise DataError(
            f"ledger of sums {path}",
            "No sums are told. Restore the file from a backup; see docs/policy_reasons.md.",
            expected="a ledger as it was written",
            found=str(error),
        ) from error
    return told


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines, without half a line that a crash left: nobody was told its sums."""
    lines, _ = read(path)
    return (row for row in checked(lines, path.name, path.name) if "torn" not in row)


def _hash(label: bytes, content: bytes) -> str:
    """Return a hash of an image under its label: equal content with another label differs."""
    key = blake2b(label, digest_size=32).digest()
    return blake2b(content, digest_size=_HASH_BYTES, key=key).hexdigest()
