"""How many labels all runs together have asked a site for: a ledger over all jobs, and its limit.

Each line records that a query of a run asks for labels of certain images, and is on the disk before
anybody is asked. A run that is continued asks about the same images again, and these count once. If
it asks about other images instead, people are asked more, so those count, too. The ledger notices
when lines are missing (:mod:`fedward.security.kept_chain`).
"""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedward.digests import digest
from fedward.disk import PRIVATE, make_folder
from fedward.security.kept_chain import KeptChain, LedgerKind
from fedward.storage.lock import locked

QUESTIONS = LedgerKind(
    "ledger of questions",
    prefix="questions",
    field="questions",
    remedy=(
        "Nobody is asked. "
        "Restore the ledger and its end from one backup; see docs/policy_reasons.md."
    ),
)


_HASH_LENGTH = 16
"""Hexadecimal digits of an image's hash in a line."""


class Query(NamedTuple):
    """A query for labels, identified by its run and exchange."""

    run: str
    """The run's id."""
    round: int
    """The round, from 1."""
    part: int
    """The exchange within the round, from 0."""


def grant(path: Path, query: Query, images: Sequence[str], most: int | None) -> int:
    """Grant a query the labels of some or all of its images, and record them.

    Images that the query was granted before are not counted again. Several jobs may call this at
    the same time.

    Args:
        path: the ledger.
        query: which query asks.
        images: ids of all images that it wants to ask about, the most wanted first.
        most: how many labels all runs together may ask for; None: any number.

    Returns:
        The number of images, from the first on, that the query may ask about.

    Raises:
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):
        ledger = KeptChain(path, QUESTIONS)
        known_images = _granted_before(ledger, query, images)
        new_images = [image for image in images if image not in known_images]
        granted_now = len(images)
        if most is not None:
            left_of_budget = max(most - sum(granted(path).values()), 0)
            if len(new_images) > left_of_budget:
                granted_now = images.index(new_images[left_of_budget])
                new_images = new_images[:left_of_budget]
        if new_images:
            # The hash of a line leaves the site. The salt keeps it from telling what was asked.
            salt = secrets.token_hex(16)
            row = {
                **query._asdict(),
                "labels": len(new_images),
                "images": [_hash(salt, image) for image in new_images],
                "salt": salt,
            }
            ledger.add(row)
        return granted_now


def granted(path: Path) -> dict[Query, int]:
    """Return how many labels each query was granted; nothing without a ledger.

    Raises:
        DataError: the ledger is not what was written.
    """
    labels: dict[Query, int] = {}
    for query, row in _grants(KeptChain(path, QUESTIONS)):
        labels[query] = labels.get(query, 0) + row["labels"]
    return labels


def _granted_before(ledger: KeptChain, query: Query, images: Sequence[str]) -> set[str]:
    """Return the images among these that the query was granted before."""
    known_images = set()
    for other_query, row in _grants(ledger):
        if other_query != query:
            continue
        hashes = set(row["images"])
        known_images |= {image for image in images if _hash(row["salt"], image) in hashes}
    return known_images


def _grants(ledger: KeptChain) -> Iterator[tuple[Query, dict[str, Any]]]:
    """Yield the query of each line, and the line."""
    for row in ledger.rows():
        if "torn" in row:
            continue  # A crash left half a line: nobody was asked.
        yield Query(row["run"], row["round"], row["part"]), row


def _hash(salt: str, image: str) -> str:
    """Return what a line holds in place of an image's id."""
    return digest([salt, image])[:_HASH_LENGTH]
