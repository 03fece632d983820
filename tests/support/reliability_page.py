"""The tables of docs/reliability.md, made from the tests that prove them.

A test says what it proves: ``@pytest.mark.proves("faults", case, outcome)``. ``pytest
--reliability=PAGE`` writes the tables, if each of those tests has run and passed; with
``--collect-only`` it says whether the page is fresh.
"""

import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

import pytest

Row = tuple[str, str]
"""Case, and what happens with the functions that prove it."""

FRESH = pytest.StashKey[str]()
"""The page as it should be."""

HEADER = "| case | what happens, and the tests of it |\n|---|---|\n"


def joined(cases: list[str]) -> str:
    """Return cases as one text that says the words in common at their beginning once."""
    if len(cases) == 1:
        return cases[0]
    columns = zip(*(case.split() for case in cases), strict=False)
    common = "".join(f"{column[0]} " for column in takewhile(lambda c: len(set(c)) == 1, columns))
    return common + "; ".join(case.removeprefix(common) for case in cases)


def rows(items: Iterable[pytest.Item]) -> dict[str, list[Row]]:
    """Return the rows of each table, in the order of the tests.

    The cases of one test that end alike are one row, and so are the tests of one case.
    """
    cases: dict[tuple[str, str, str], list[str]] = {}
    for item in items:
        for mark in item.iter_markers("proves"):
            table, case, outcome = mark.args
            proof = f"`{Path(item.fspath).name}::{item.originalname}`"  # type: ignore[attr-defined]
            found = cases.setdefault((table, proof, outcome), [])
            if case not in found:
                found.append(case)
    proofs: dict[tuple[str, str, str], list[str]] = {}
    for (table, proof, outcome), listed in cases.items():
        proofs.setdefault((table, joined(listed), outcome), []).append(proof)
    tables: dict[str, list[Row]] = {}
    for (table, case, outcome), listed in proofs.items():
        tables.setdefault(table, []).append((case, "<br>".join([outcome, *listed])))
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
