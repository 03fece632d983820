"""Write the tables of the recorded studies into README.md and docs/results/README.md.

python benchmarks/results_table.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedward.lab.bench.claims import require_as_recorded
from fedward.lab.bench.neighbours import studies_on
from fedward.lab.bench.records import read_records
from fedward.lab.bench.results import Results
from fedward.lab.bench.study import read_study
from fedward.lab.bench.summary import Page, summary_table
from measured import ROOT, page_text

RESULTS = ROOT / "docs" / "results"
TABLE = "studies_with_claims"
"""Name of the table of studies, whose claims stood in their files before they ran."""
NOTE = """\
The column *few labels* has values, the others have differences from it. Brackets are 95 %
intervals. *Italics* mark values from which the [rules]({studies}) allow no conclusion, **bold** an
interval that excludes 0. A conclusion also needs a claim that is shown. The best reference is
trained on the images of all sites in one place, which hospitals that keep their images cannot do.
In the study of bought labels, *few labels* is 1 % of the images and FedAL ends with 5 %, so its
difference is mostly that of more labels. In the study of peers, *all labels* is OneShot's head,
computed in one round, so its difference is not due to the labels alone."""


def main() -> None:
    """Write the tables into both pages."""
    for page, text in texts().items():
        page.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Recorded:
    """A study whose results stand on a page."""

    name: str
    """Stem of its files."""
    page: str
    """File name of the page."""
    results: Results


def texts() -> dict[Path, str]:
    """Return page -> its text with the tables of today's results."""
    recorded = recorded_studies()
    new = {}
    for page in (ROOT / "README.md", RESULTS / "README.md"):
        at_root = page.parent == ROOT
        to_results = "docs/results/" if at_root else ""
        note = NOTE.format(studies="docs/studies.md" if at_root else "../studies.md")
        new[page] = page_text(page, {TABLE: f"{note}\n\n{_table(recorded, to_results)}"})
    return new


def recorded_studies() -> list[Recorded]:
    """Return all recorded studies, ordered by page.

    Raises:
        ConfigError: results were recorded for other claims than those of their study.
    """
    found = []
    for page in sorted(RESULTS.glob("*.md")):
        for name in studies_on(page):
            study = read_study(ROOT / "benchmarks" / "studies" / f"{name}.json")
            file = RESULTS / "data" / f"{name}.jsonl"
            records = read_records(file)
            require_as_recorded(study, file, records)
            found.append(Recorded(name, page.name, Results(study, records)))
    # Each study is a neighbour of all others, and is read once.
    with_neighbours = []
    for recorded in found:
        others = tuple(other.results for other in found if other is not recorded)
        results = replace(recorded.results, neighbours=others)
        with_neighbours.append(replace(recorded, results=results))
    return with_neighbours


def _table(recorded: Sequence[Recorded], to_results: str) -> str:
    """Return a table whose links begin with the way from its page to the folder of results."""
    return summary_table([Page(study.results, f"{to_results}{study.page}") for study in recorded])


if __name__ == "__main__":
    main()
