"""Of which images a site has told sums: a ledger over all jobs that refuses a second sum of nearly
the same images.

Whoever has the sums of two sets of images that differ in one image has that image's numbers, by
subtraction. The ledger is a chain (:mod:`fedward.storage.chain`). A line says that a run is told
sums of a set. It is on the disk before the answer leaves. A set is known by hashes of its images,
of two kinds: of their names, which stay the same if a job wants images of another size, and of
their pixels, which stay the same if the hospital renames its files.

The ledger's end is kept nowhere else, so the loss of its last lines, or of the file, is not
noticed.
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
"""What is told: sums over features, or counts."""

_BYTES = 8
"""Length of a hash: among a million images two hashes are equal with a chance of 3e-8."""


@dataclass(frozen=True)
class ImageSet:
    """A set of images of which sums are told, as hashes of 16 hexadecimal digits each."""

    names: frozenset[str]
    """Of each image's id and label."""
    pixels: frozenset[str]
    """Of each image's pixels and label; images that are equal count once."""

    @property
    def digest(self) -> str:
        """SHA-256 of both."""
        return digest({"names": sorted(self.names), "pixels": sorted(self.pixels)})

    def difference(self, other: "ImageSet") -> int:
        """Return in how many images two sets differ: by names or by pixels, the smaller number that
        is not 0.

        0: the sets are the same. An image with another label counts twice: it is missing with the
        old label, and new with the other.
        """
        found = (len(self.names ^ other.names), len(self.pixels ^ other.pixels))
        return min((number for number in found if number), default=0)


@dataclass
class Known:
    """What the ledger says."""

    sets: dict[tuple[str, str], ImageSet] = field(default_factory=dict)
    """Kind and digest -> a set of which sums were told."""
    runs: set[str] = field(default_factory=set)
    """Runs that were told."""


def image_set(images: Iterable[tuple[str, bytes, bytes]]) -> ImageSet:
    """Return the set of images, each given as its id, its pixels and what else is told of it, such
    as its label.
    """
    names = set[str]()
    pixels = set[str]()
    for name, content, label in images:
        names.add(_hash(label, name.encode()))
        pixels.add(_hash(label, content))
    return ImageSet(frozenset(names), frozenset(pixels))


def sums_file(folder: Path, site: str) -> Path:
    """Return the ledger in a site's own folder, which the simulator's sites share."""
    return folder / f"sums-{site}.jsonl"


def grant(
    path: Path, run: str, kind: Kind, images: ImageSet, fewest: int, most: int | None
) -> Finding | None:
    """Note that a run is told sums of a set of images, or return the rule that forbids it, and then
    note nothing.

    Args:
        path: the ledger.
        run: the run's id. A run that is continued asks again, and counts once.
        kind: what it is told. Sets of different kinds are not compared.
        images: the set.
        fewest: in how many images the set must differ from each one of that kind in the ledger that
            is not the same.
        most: runs that may be told sums, over all jobs; None: any number.

    Raises:
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):
        known = told_before(path)
        name = images.digest
        for (other_kind, _), other in known.sets.items():
            if other_kind == kind and 0 < images.difference(other) < fewest:
                allowed = f"sums of images as before, or of a set that differs in {fewest} or more"
                return Finding(
                    "minimum_images", allowed, "this site's images differ in fewer", False
                )
        if most is not None and run not in known.runs and len(known.runs) >= most:
            return Finding(
                "maximum_sums", f"at most {most} runs", "this one would be one more", False
            )
        is_new = (kind, name) not in known.sets
        if is_new or run not in known.runs:
            hashes = (
                {"names": sorted(images.names), "pixels": sorted(images.pixels)} if is_new else {}
            )
            Chain(path, path.name).add({"run": run, "kind": kind, "set": name, **hashes})
    return None


def told_before(path: Path) -> Known:
    """Return what the ledger says, nothing if there is none; raises as :func:`grant`."""
    known = Known()
    try:
        for row in _rows(path):
            known.runs.add(row["run"])
            if "names" in row:
                known.sets[row["kind"], row["set"]] = ImageSet(
                    frozenset(row["names"]), frozenset(row["pixels"])
                )
    except RunError as error:
        remedy = "No sums are told. Restore the file from a backup; see docs/policy.md."
        expected = "a ledger as it was written"
        raise DataError(
            f"ledger of sums {path}", expected=expected, found=str(error), remedy=remedy
        ) from error
    return known


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Return the lines, without half a line that a crash left: nobody was told."""
    return (row for row in checked(read(path)[0], path.name, path.name) if "torn" not in row)


def _hash(label: bytes, content: bytes) -> str:
    return blake2b(
        content, digest_size=_BYTES, key=blake2b(label, digest_size=32).digest()
    ).hexdigest()
