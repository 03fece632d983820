"""How many labels all runs together have asked a site for: a ledger over all jobs, and a limit.

The ledger is a chain (:mod:`fedward.storage.chain`). A line says that a query of a run asks for labels, and is on the
disk before anybody is asked. A run that is continued asks again: its queries count once.
"""

from pathlib import Path
from typing import NamedTuple

from fedward.errors import DataError, RunError
from fedward.storage.chain import Chain, checked, read
from fedward.storage.disk import PRIVATE, make_folder
from fedward.storage.lock import locked


class Query(NamedTuple):
    """A query for labels, by run and exchange."""

    run: str
    round: int
    part: int


def questions_file(folder: Path, site: str) -> Path:
    """Return the ledger in a site's own folder, which the simulator's sites share."""
    return folder / f"questions-{site}.jsonl"


def grant(path: Path, query: Query, labels: int, most: int | None) -> int:
    """Return for how many of its labels a query may ask if all runs together ask for ``most``, and count them.

    What the query has been granted before is not counted again. Jobs may run at the same time.

    Raises:
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):
        known = granted(path)
        before = known.get(query, 0)
        more = max(labels - before, 0)
        if most is not None:
            more = min(more, max(most - sum(known.values()), 0))
        if more:
            Chain(path, path.name).add({**query._asdict(), "labels": more})
        return min(labels, before + more)


def granted(path: Path) -> dict[Query, int]:
    """Return how many labels each query may ask for; nothing where there is no ledger; raises as :func:`grant`."""
    found: dict[Query, int] = {}
    try:
        for row in checked(read(path)[0], path.name, path.name):
            if "torn" not in row:  # half a line that a crash left: nobody was asked
                query = Query(row["run"], row["round"], row["part"])
                found[query] = found.get(query, 0) + row["labels"]
    except RunError as error:
        remedy = "Nobody is asked. Restore the file from a backup; see docs/policy.md."
        expected = "a ledger as it was written"
        raise DataError(f"ledger of questions {path}", expected=expected, found=str(error), remedy=remedy) from error
    return found
