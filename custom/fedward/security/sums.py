"""The ledger of sums of a site's images, which refuses a second sum of nearly the same images.

The sums of two sets of images that differ in one image reveal that image's numbers, by subtraction.
So do the sums of one class, whatever happens to the other classes. The ledger covers all jobs, and
notices when lines are missing (:mod:`fedward.security.kept_chain`). A line records that a run
receives sums of a set of images, and is on the disk before the answer leaves. A set is known by two
kinds of hashes. Those of the images' names stay the same if a job asks for images of another size.
Those of their pixels stay the same if the hospital renames its files.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedward.digests import digest
from fedward.disk import PRIVATE, make_folder
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.security.kept_chain import KeptChain, LedgerKind
from fedward.security.policy_rules import AppliedRule
from fedward.storage.lock import locked

Kind = Literal["oneshot", "survey"]
"""What a run receives: sums over features or logits (``oneshot``), or counts (``survey``)."""
MEASURED: Kind = "oneshot"
"""What a run of any method that measures images receives, ``fedirm`` too.

Ledgers have it by the name of the first such method.
"""

SUMS = LedgerKind(
    "ledger of sums",
    prefix="sums",
    field="sums",
    remedy=(
        "No sums are sent. "
        "Restore the ledger and its end from one backup; see docs/policy_reasons.md."
    ),
)

_HASH_BYTES = 8
"""Length of a hash: among a million images two hashes are equal with a probability of 3e-8."""


class CountedImage(NamedTuple):
    """An image whose sums are reported."""

    cell: str
    """What it is counted as: its split and the name of its class. Sums are reported by cell."""
    name: str
    """Its id at the site, and whose it is."""
    content: bytes
    """Its pixels, and whose it is."""


@dataclass(frozen=True)
class ImageSet:
    """A set of images whose sums were reported, as hashes of 16 hexadecimal digits each."""

    names: Mapping[str, frozenset[str]]
    """Cell -> hashes of its images' names."""
    pixels: Mapping[str, frozenset[str]]
    """Cell -> hashes of its images' pixels. Equal images have one hash."""

    @property
    def digest(self) -> str:
        """SHA-256 of all hashes, 64 hexadecimal digits."""
        return digest(self.dumped())

    def dumped(self) -> dict[str, dict[str, list[str]]]:
        """Return the hashes as JSON values."""
        return {"names": _sorted(self.names), "pixels": _sorted(self.pixels)}

    def is_near(self, other: "ImageSet", fewest: int) -> bool:
        """Return whether two sets differ, and in too few images.

        All images together must differ in ``fewest``, and those of each cell that both sets have in
        five: as many as a class needs for sums of its own. A job may leave out a class, so cells
        are compared one by one as well.
        """
        fewest_in_cell = min(fewest, SMALLEST_COUNT)
        for cell in self.names.keys() & other.names.keys():
            by_names = len(self.names[cell] ^ other.names[cell])
            by_pixels = len(self.pixels[cell] ^ other.pixels[cell])
            if 0 < _difference(by_names, by_pixels) < fewest_in_cell:
                return True
        by_names = len(_all(self.names) ^ _all(other.names))
        by_pixels = len(_all(self.pixels) ^ _all(other.pixels))
        return 0 < _difference(by_names, by_pixels) < fewest


def _difference(by_names: int, by_pixels: int) -> int:
    """Return in how many images two sets differ; 0 only if they are the same.

    The smaller difference counts, so that images are recognised when files are renamed or decoded
    at another size. A difference of 0 does not count if the other one is above 0.
    """
    if by_names and by_pixels:
        return min(by_names, by_pixels)
    return by_names or by_pixels


def _all(cells: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*cells.values())


def _sorted(cells: Mapping[str, frozenset[str]]) -> dict[str, list[str]]:
    return {cell: sorted(cells[cell]) for cell in sorted(cells)}


@dataclass
class RecordedSums:
    """Everything that the ledger records."""

    sets: dict[tuple[str, str], ImageSet] = field(default_factory=dict)
    """Kind and digest -> a set of images whose sums were reported."""
    runs: set[str] = field(default_factory=set)
    """Ids of the runs that received sums."""


def image_set(images: Iterable[CountedImage]) -> ImageSet:
    """Return a set of images as hashes."""
    names: dict[str, set[str]] = {}
    pixels: dict[str, set[str]] = {}
    for image in images:
        names.setdefault(image.cell, set()).add(_hash(image.name.encode()))
        pixels.setdefault(image.cell, set()).add(_hash(image.content))
    return ImageSet(_frozen(names), _frozen(pixels))


def _frozen(cells: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    return {cell: frozenset(hashes) for cell, hashes in cells.items()}


def grant(
    path: Path, run: str, kind: Kind, images: ImageSet, fewest: int, most: int | None
) -> AppliedRule | None:
    """Record that a run receives sums of a set of images, or return the rule that forbids it.

    If a rule forbids it, nothing is recorded.

    Args:
        path: the ledger.
        run: the run's id. A run that is continued asks again, and counts once.
        kind: what the run receives. Sets of different kinds are not compared.
        images: the set.
        fewest: the smallest number of images in which the set may differ from any other set of its
            kind in the ledger; see :meth:`ImageSet.is_near`. Sums of the same set may be reported
            again.
        most: how many runs may receive sums, over all jobs; None: any number.

    Raises:
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):
        recorded = recorded_sums(path)
        set_digest = images.digest
        for (other_kind, _), other_set in recorded.sets.items():
            if other_kind == kind and images.is_near(other_set, fewest):
                in_class = min(fewest, SMALLEST_COUNT)
                allowed = (
                    f"sums of images as before, or of a set that differs in {fewest} or more, and "
                    f"in none or {in_class} or more of each class in each split"
                )
                asked = "this site's images differ in fewer"
                return AppliedRule("minimum_images", allowed, asked, False)
        is_new_run = run not in recorded.runs
        if most is not None and is_new_run and len(recorded.runs) >= most:
            allowed = f"at most {most} runs"
            return AppliedRule("maximum_sums", allowed, "this one would be one more", False)
        is_new_set = (kind, set_digest) not in recorded.sets
        if is_new_set or is_new_run:
            # The hash of a line leaves the site. The salt keeps it from telling which images it is.
            salt = secrets.token_hex(16)
            row: dict[str, Any] = {"run": run, "kind": kind, "set": set_digest, "salt": salt}
            # The hashes of a set are written once; later lines name it by its digest.
            if is_new_set:
                row |= images.dumped()
            KeptChain(path, SUMS).add(row)
    return None


def recorded_sums(path: Path) -> RecordedSums:
    """Return what the ledger records; nothing if there is no ledger.

    Raises:
        DataError: the ledger is not what was written.
    """
    recorded = RecordedSums()
    for row in KeptChain(path, SUMS).rows():
        if "torn" in row:
            continue  # A crash left half a line: its sums were not reported.
        recorded.runs.add(row["run"])
        if "names" in row:
            images = ImageSet(_frozen(row["names"]), _frozen(row["pixels"]))
            recorded.sets[row["kind"], row["set"]] = images
    return recorded


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=_HASH_BYTES).hexdigest()
