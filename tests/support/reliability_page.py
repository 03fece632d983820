"""The tables of docs/reliability.md, made from the tests that prove them.

A test says what it proves: ``@pytest.mark.proves("faults", case, outcome)``. ``pytest
--reliability=PAGE`` writes the tables, if each of those tests has run and passed; with
``--collect-only`` it says whether the page is fresh.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

Row = tuple[str, str, str]
"""Case, what happens, and the function that proves it."""

FRESH = pytest.StashKey[str]()
"""The page as it should be."""

HEADER = "| case | what happens | proven by |\n|---|---|---|\n"


def rows(items: Iterable[pytest.Item]) -> dict[str, list[Row]]:
    """Return the rows of each table, in the order of the tests, once for each test function."""
    tables: dict[str, list[Row]] = {}
    for item in items:
        for mark in item.iter_markers("proves"):
            table, case, outcome = mark.args
            proof = f"`{Path(item.fspath).name}::{item.originalname}`"  # type: ignore[attr-defined]
            row = (case, outcome, proof)
            if row not in tables.setdefault(table, []):
                tables[table].append(row)
    return tables


def written(page: str, tables: dict[str, list[Row]]) -> str:
    """Return the page with new tables between ``<!-- NAME -->`` and ``<!-- end -->``."""
    named = set(re.findall(r"<!-- (\w+) -->\n.*?<!-- end -->", page, re.DOTALL))
    if named != set(tables):
        raise pytest.UsageError(
            f"the page has tables {sorted(named)}, the tests prove {sorted(tables)}"
        )
    for name, content in tables.items():
        table = HEADER + "".join(f"| {' | '.join(row)} |\n" for row in content)
        page = re.sub(
            rf"<!-- {name} -->\n.*?<!-- end -->",
            lambda _, name=name, table=table: f"<!-- {name} -->\n{table}<!-- end -->",
            page,
            flags=re.DOTALL,
        )
    return page
