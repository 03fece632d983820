"""The studies beside a study: those on the same page, and those that share its runs."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fedward.lab.bench.claims import require_as_recorded
from fedward.lab.bench.page import read_page
from fedward.lab.bench.records import read_records
from fedward.lab.bench.results import Results
from fedward.lab.bench.study_file import read_study


def studies_on(page: Path) -> list[str]:
    """Return the names of the studies whose tables stand on a page, in its order.

    Raises:
        ConfigError: the page cannot be read.
    """
    return re.findall(r"<!-- study (\S+) -->", read_page(page))


def neighbours(study_file: Path, results_file: Path) -> dict[str, Results]:
    """Return name -> results of the other studies that lie beside a study.

    Their files are those beside the study's, and their results lie beside its results as
    ``NAME.jsonl``. Where no such file is, a study counts as one without results.
    """
    found: dict[str, Results] = {}
    for file in sorted(study_file.parent.glob("*.json")):
        if file.resolve() == study_file.resolve():
            continue
        results = results_file.parent / f"{file.stem}.jsonl"
        if results.exists() and results.resolve() != results_file.resolve():
            study = read_study(file)
            records = read_records(results)
            require_as_recorded(study, results, records)
            found[file.stem] = Results(study, records)
    return found


def results_on_page(
    page: Path, study_file: Path, results: Results, others: Mapping[str, Results]
) -> list[Results]:
    """Return the results of all studies on a page; a study without results has its claims."""
    found: list[Results] = []
    for name in studies_on(page):
        if name == study_file.stem:
            found.append(results)
        elif name in others:
            found.append(replace(others[name], neighbours=(results, *_without(others, name))))
        else:
            found.append(Results(read_study(study_file.parent / f"{name}.json"), {}))
    return found


def _without(others: Mapping[str, Results], name: str) -> list[Results]:
    return [results for other, results in others.items() if other != name]
