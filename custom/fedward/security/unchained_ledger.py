"""Privacy ledgers of versions before the chain: how they are recognised, and become chains."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedward.security.kept_chain import KeptChain
from fedward.storage.chain import Chain, read
from fedward.storage.disk import replacing


def unchained_rows(ledger: KeptChain) -> list[dict[str, Any]] | None:
    """Return the rows of a ledger that a version before the chain wrote; None for any other.

    Either no end is recorded beside such a ledger, or an end of 0 lines: :func:`make_chain` records
    it before it makes the chain. A ledger that does not exist is one without rows.

    Raises:
        DataError: it is a link, or the site's log of answers names a line of it: it was a chain.
    """
    ledger.check_files()
    # Both are read before the lines, as another job may add a line in between (KeptChain.rows).
    hashes_in_answers = ledger.hashes_in_answers()
    end = ledger.end()
    if end and end["lines"]:
        return None
    lines, _ = read(ledger.path)
    try:
        rows = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(row, dict) and "hash" not in row for row in rows):
        return None
    ledger.check_all_present(hashes_in_answers, rows)
    return rows


def make_chain(ledger: KeptChain, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a ledger by a chain of its rows, in one step."""
    if not ledger.end():
        # The end comes first, so that no chain is ever without one.
        ledger.keep_end({"lines": 0, "last_hash": ledger.path.name})
    with replacing(ledger.path) as partial:
        chain = Chain(partial, ledger.path.name)
        for row in rows:
            chain.add(row)
