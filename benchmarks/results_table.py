"""Write the tables of the recorded studies into README.md and docs/results/README.md.

One has a line for each study, the other one for each claim that its page shows.

python benchmarks/results_table.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedward.lab.bench.claims import require_as_recorded
from fedward.lab.bench.markdown import Table, metric_name
from fedward.lab.bench.neighbours import studies_on
from fedward.lab.bench.records import read_records
from fedward.lab.bench.results import Results
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_file import read_study
from fedward.lab.bench.summary import Page, summary_table
from fedward.lab.bench.verdicts import (
    LEVEL,
    Verdict,
    in_its_variant,
    mean_of_variants,
    names_of,
    p_text,
    share_of,
    verdicts,
)
from measured import ROOT, page_text

RESULTS = ROOT / "docs" / "results"
TABLE = "studies_with_claims"
"""Name of the table of studies, whose claims stood in their files before they ran."""
ACROSS_PAGES = "claims_of_all_pages"
"""Name of the table of the claims that are shown, corrected for the claims of all pages."""
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
        tables = {
            TABLE: f"{note}\n\n{_table(recorded, to_results)}",
            ACROSS_PAGES: claims_of_all_pages(recorded),
        }
        new[page] = page_text(page, tables)
    return new


def claims_of_all_pages(recorded: Sequence[Recorded]) -> str:
    """Return the claims that their pages show, with p-values corrected for those of all pages.

    Args:
        recorded: the studies of all pages.
    """
    everything = [study.results for study in recorded]
    p_values = ("p, its page", "p, all pages", "with overlap, its page", "with overlap, all pages")
    table = Table(["study", "what it shows", *p_values], left=(0, 1))
    together: list[Verdict] = []
    for study in recorded:
        on_page = [other.results for other in recorded if other.page == study.page]
        of_all_pages = verdicts(study.results, everything)
        together += of_all_pages
        for alone, joint in zip(verdicts(study.results, on_page), of_all_pages, strict=True):
            if alone.is_shown:
                of_page = (alone.p, joint.p, alone.p_overlapping, joint.p_overlapping)
                link = f"[{study.results.study.title}]({study.page})"
                table.add(link, _statement(study.results.study, alone), *map(_p_cell, of_page))
    shown = sum(verdict.is_shown for verdict in together)
    overlapping = sum(verdict.is_shown and verdict.p_overlapping <= LEVEL for verdict in together)
    return (
        f"All pages together have {len(together)} claims. Corrected for all of them by Holm, "
        f"{shown} are shown over divisions of these images, and {overlapping or 'none'} with "
        f"allowance for the overlap of these divisions.\n\n{table.markdown()}"
    )


def _statement(study: Study, verdict: Verdict) -> str:
    """Return what a claim has shown, which may be the opposite of it."""
    claim = verdict.test.claim
    gap = verdict.test.gap
    assert gap is not None, "a claim is shown by its difference"
    our_name, their_name = names_of(study, claim)
    direction = "above" if gap.mean > 0 else "below"
    compared = (
        f"{metric_name(claim.metric)} of *{our_name}* {direction} {share_of(claim)}*{their_name}*"
        f"{mean_of_variants(study, claim)}"
    )
    return in_its_variant(study, claim, compared)


def _p_cell(p: float) -> str:
    return p_text(p).removeprefix("p = ").removeprefix("p ")


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
