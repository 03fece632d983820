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
"""What a run receives: sums over features or logits (``oneshot``), or counts (``survey``)."""

_HASH_BYTES = 8
"""Length of a hash: among a million images two hashes are equal with a probability of 3e-8."""


@dataclass(frozen=True)
class ImageSet:
    """A set of images whose sums were reported, as hashes of 16 hexadecimal digits each."""

    names: frozenset[str]
    """Hashes of each image's id and label."""
    pixels: frozenset[str]
    """Hashes of each image's pixels and label. Equal images have one hash."""

    @property
    def digest(self) -> str:
        """SHA-256 of both sets of hashes, 64 hexadecimal digits."""
        return digest({"names": sorted(self.names), "pixels": sorted(self.pixels)})

    def difference(self, other: "ImageSet") -> int:
        """Return in how many images two sets differ; 0 only if they are the same.

        The sets are compared by names and by pixels, and the smaller difference counts, so that
        images are recognised when files are renamed or decoded at another size. A difference of 0
        does not count if the other one is above 0. An image whose label has changed counts twice:
        it is missing with the old label and new with the other one.
        """
        by_names = len(self.names ^ other.names)
        by_pixels = len(self.pixels ^ other.pixels)
        if by_names and by_pixels:
            return min(by_names, by_pixels)
        return by_names or by_pixels


@dataclass
class RecordedSums:
    """Everything that the ledger records."""

    sets: dict[tuple[str, str], ImageSet] = field(default_factory=dict)
    """Kind and digest -> a set of images whose sums were reported."""
    runs: set[str] = field(default_factory=set)
    """Ids of the runs that received sums."""


def image_set(images: Iterable[tuple[str, bytes, bytes]]) -> ImageSet:
    """Return a set of images as hashes.

    Args:
        images: of each image its id, its pixels, and what else is reported of it, such as
            its label.
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
    """Record that a run receives sums of a set of images, or return the rule that forbids it.

    If a rule forbids it, nothing is recorded.

    Args:
        path: the ledger.
        run: the run's id. A run that is continued asks again, and counts once.
        kind: what the run receives. Sets of different kinds are not compared.
        images: the set.
        fewest: the smallest number of images in which the set may differ from any other set of its
            kind in the ledger. Sums of the same set may be reported again.
        most: how many runs may receive sums, over all jobs; None: any number.

    Raises:
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):
        recorded = recorded_sums(path)
        set_digest = images.digest
        for (other_kind, _), other_set in recorded.sets.items():
            if other_kind == kind and 0 < images.difference(other_set) < fewest:
                allowed = f"sums of images as before, or of a set that differs in {fewest} or more"
                asked = "this site's images differ in fewer"
                return Finding("minimum_images", allowed, asked, False)
        is_new_run = run not in recorded.runs
        if most is not None and is_new_run and len(recorded.runs) >= most:
            allowed = f"at most {most} runs"
            return Finding("maximum_sums", allowed, "this one would be one more", False)
        is_new_set = (kind, set_digest) not in recorded.sets
        if is_new_set or is_new_run:
            row: dict[str, Any] = {"run": run, "kind": kind, "set": set_digest}
            # The hashes of a set are written once; later lines name it by its digest.
            if is_new_set:
                row["names"] = sorted(images.names)
                row["pixels"] = sorted(images.pixels)
            Chain(path, path.name).add(row)
    return None


def recorded_sums(path: Path) -> RecordedSums:
    """Return what the ledger records; nothing if there is no ledger.

    Raises:
        DataError: the ledger is not what was written.
    """
    recorded = RecordedSums()
    try:
        for row in _rows(path):
            recorded.runs.add(row["run"])
            if "names" in row:
                images = ImageSet(frozenset(row["names"]), frozenset(row["pixels"]))
                recorded.sets[row["kind"], row["set"]] = images
    except RunError as error:
        raise DataError(
            f"ledger of sums {path}",
            "No sums are sent. Restore the file from a backup; see docs/policy_reasons.md.",
            expected="a ledger as it was written",
            found=str(error),
        ) from error
    return recorded


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows. Half a line that a crash left is skipped: its sums were not reported."""
    lines, _ = read(path)
    for row in checked(lines, path.name, path.name):
        if "torn" not in row:
            yield row


def _hash(label: bytes, content: bytes) -> str:
    """Return a hash of an image's name or pixels, which differs from label to label."""
    # The label is hashed first, as a key of blake2b has 64 bytes at most.
    key = blake2b(label, digest_size=32).digest()
    return blake2b(content, digest_size=_HASH_BYTES, key=key).hexdigest()
