"""Write the table of all recorded studies into README.md and docs/results/README.md.

python benchmarks/results_table.py
"""

from dataclasses import replace
from pathlib import Path

from fedward.lab.bench.claims import require_claims
from fedward.lab.bench.neighbours import studies_on
from fedward.lab.bench.records import read_records
from fedward.lab.bench.results import Results
from fedward.lab.bench.study import read_study
from fedward.lab.bench.summary import Page, summary_table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
BEGIN = "<!-- all studies -->"
END = "<!-- end all studies -->"
NOTE = """\
*Few labels*: what training with few labels reaches. Further columns: differences from it. All have
95 % intervals. *Italics*: by the [rules]({studies}), nothing may be concluded. **Bold**: the
interval excludes 0, which is no claim."""


def main() -> None:
    """Write the table into both pages."""
    for page, text in texts().items():
        page.write_text(text, encoding="utf-8")


def texts() -> dict[Path, str]:
    """Return page -> its text with the table of today's results."""
    recorded = _recorded()
    new = {}
    for page in (ROOT / "README.md", RESULTS / "README.md"):
        at_root = page.parent == ROOT
        to_results = "docs/results/" if at_root else ""
        studies = "docs/studies.md" if at_root else "../studies.md"
        table = summary_table([Page(results, f"{to_results}{name}") for name, results in recorded])
        content = f"{NOTE.format(studies=studies)}\n\n{table}"
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        new[page] = f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"
    return new


def _recorded() -> list[tuple[str, Results]]:
    """Return the name of its page and the results of each recorded study, ordered by page.

    Raises:
        ConfigError: results were recorded for other claims than those of their study.
    """
    found = []
    for page in sorted(RESULTS.glob("*.md")):
        for name in studies_on(page):
            study = read_study(ROOT / "benchmarks" / "studies" / f"{name}.json")
            file = RESULTS / "data" / f"{name}.jsonl"
            records = read_records(file)
            require_claims(study, file, records)
            found.append((page.name, Results(study, records)))
    # Each study is a neighbour of all others, and is read once.
    recorded = []
    for page_name, results in found:
        others = tuple(other for _, other in found if other is not results)
        recorded.append((page_name, replace(results, neighbours=others)))
    return recorded


if __name__ == "__main__":
    main()
