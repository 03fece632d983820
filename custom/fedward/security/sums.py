"""Which images a site has told sums of: a ledger over all jobs that refuses a second sum of nearly the same images.

Whoever has the sums of two sets of images that differ in one image has that image's numbers, by subtraction. The ledger
is a chain (:mod:`fedward.storage.chain`). A line says that a run is told of a set, and is on the disk before the answer
leaves. A set is known by hashes of what tells of its images, twice: by their names, which stay where a job wants images
of another size, and by their pixels, which stay where the hospital renames its files.
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
"""Of a hash: among a million images two are equal with a chance of 3e-8."""


@dataclass(frozen=True)
class Told:
    """A set of images that sums are told of: hashes, 16 hexadecimal digits each."""

    names: frozenset[str]
    """Of each image's id and label."""
    pixels: frozenset[str]
    """Of each image's pixels and label; images that are equal count once."""

    @property
    def digest(self) -> str:
        """SHA-256 of both."""
        return digest({"names": sorted(self.names), "pixels": sorted(self.pixels)})

    def difference(self, other: "Told") -> int:
        """Return in how many images two sets differ, by names or by pixels, whichever are fewer but not none.

        0: the sets are the same. An image that has another label differs twice: once without and once with it.
        """
        found = (len(self.names ^ other.names), len(self.pixels ^ other.pixels))
        return min((number for number in found if number), default=0)


@dataclass
class Known:
    """What the ledger says."""

    sets: dict[tuple[str, str], Told] = field(default_factory=dict)
    """Sets that are told of, by kind and digest."""
    runs: set[str] = field(default_factory=set)
    """Runs that were told."""


def told_of(images: Iterable[tuple[str, bytes, bytes]]) -> Told:
    """Return the set of images, each given as its id, its pixels and what else is told of it, such as its label."""
    names, pixels = set[str](), set[str]()
    for name, content, label in images:
        names.add(_hash(label, name.encode()))
        pixels.add(_hash(label, content))
    return Told(frozenset(names), frozenset(pixels))


def sums_file(folder: Path, site: str) -> Path:
    """Return the ledger in a site's own folder, which the simulator's sites share."""
    return folder / f"sums-{site}.jsonl"


def grant(path: Path, run: str, kind: Kind, told: Told, fewest: int, most: int | None) -> Finding | None:
    """Note that a run is told sums of a set of images; return the rule that forbids it, if one does, and note nothing.

    Args:
        path: the ledger.
        run: the run's id. A run that is continued asks again, and counts once.
        kind: what it is told. Sums of one kind say nothing of those of the other.
        told: the images.
        fewest: in how many images the set must differ from each that was told of before, unless it is the same.
        most: runs that may be told in all; None: any number.

    Raises:
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):
        known, name = told_before(path), told.digest
        for (other_kind, _), other in known.sets.items():
            if other_kind == kind and 0 < told.difference(other) < fewest:
                allowed = f"sums of images as before, or of a set that differs in {fewest} or more"
                return Finding("minimum_images", allowed, "this site's images differ in fewer", False)
        if most is not None and run not in known.runs and len(known.runs) >= most:
            return Finding("maximum_sums", f"at most {most} runs", "this one would be one more", False)
        is_new = (kind, name) not in known.sets
        if is_new or run not in known.runs:
            images = {"names": sorted(told.names), "pixels": sorted(told.pixels)} if is_new else {}
            Chain(path, path.name).add({"run": run, "kind": kind, "set": name, **images})
    return None


def told_before(path: Path) -> Known:
    """Return what the ledger says; nothing where there is none; raises as :func:`grant`."""
    known = Known()
    try:
        for row in _rows(path):
            known.runs.add(row["run"])
            if "names" in row:
                known.sets[row["kind"], row["set"]] = Told(frozenset(row["names"]), frozenset(row["pixels"]))
    except RunError as error:
        remedy = "No sums are told. Restore the file from a backup; see docs/policy.md."
        expected = "a ledger as it was written"
        raise DataError(f"ledger of sums {path}", expected=expected, found=str(error), remedy=remedy) from error
    return known


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines, but for half of one that a crash left: nobody was told."""
    return (row for row in checked(read(path)[0], path.name, path.name) if "torn" not in row)


def _hash(label: bytes, content: bytes) -> str:
    return blake2b(content, digest_size=_BYTES, key=blake2b(label, digest_size=32).digest()).hexdigest()
