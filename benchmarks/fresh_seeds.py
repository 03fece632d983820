"""What shown claims give under seeds that their studies did not have.

    fedward bench benchmarks/studies/NAME.json --data DATA --out OUT --seeds 201 202 203 204 205 \\
        --rows ROW ROW --variants VARIANT
    python benchmarks/fresh_seeds.py --page docs/results/README.md

The first command runs the rows of a claim again. Its lines, OUT/results.jsonl, are kept as
docs/results/data/fresh/NAME.jsonl. The second command writes the table of all kept lines.
"""

import argparse
from pathlib import Path

from fedward.errors import ConfigError
from fedward.evaluation import paired_difference
from fedward.lab.bench.claims import require_as_recorded
from fedward.lab.bench.markdown import Table, gap_text, metric_name
from fedward.lab.bench.records import read_records
from fedward.lab.bench.results import Results
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Claim
from fedward.lab.bench.verdicts import (
    Verdict,
    claimed_values,
    in_its_variant,
    mean_of_variants,
    names_of,
    share_of,
    verdicts,
)
from measured import page_text
from results_table import RESULTS, recorded_studies

FRESH = RESULTS / "data" / "fresh"
"""Folder of the lines under fresh seeds; a file has the name of its study."""


def tables() -> dict[str, str]:
    """Return name -> table in markdown: a line for each shown claim whose rows ran again."""
    recorded = recorded_studies()
    table = Table(["claim", "in the study", "under fresh seeds", "fresh repetitions that agree"])
    for study in recorded:
        file = FRESH / f"{study.name}.jsonl"
        if not file.exists():
            continue
        fresh = fresh_results(study.results.study, file)
        on_page = [other.results for other in recorded if other.page == study.page]
        for verdict in verdicts(study.results, on_page):
            if verdict.outcome == "shown" and _has_run(fresh, verdict.test.claim):
                table.add(*_cells(fresh, verdict))
    return {"fresh_seeds": table.markdown()}


def fresh_results(study: Study, file: Path) -> Results:
    """Return the results under fresh seeds.

    Raises:
        ConfigError: a seed is one of the study's, or a line was recorded for other claims.
    """
    records = read_records(file)
    require_as_recorded(study, file, records)
    seeds = {record.seed for record in records.values()}
    known = seeds & set(study.seeds)
    if known:
        raise ConfigError(
            f"{file} has seeds of its study: {', '.join(map(str, sorted(known)))}",
            "Run the rows again under other seeds.",
        )
    return Results(study.model_copy(update={"seeds": tuple(sorted(seeds))}), records)


def _has_run(fresh: Results, claim: Claim) -> bool:
    """Return whether all rows of a claim have lines."""
    pairs = claim.places(fresh.study.first_variant)
    return all(fresh.has_run(*place) for pair in pairs for place in pair)


def _cells(fresh: Results, verdict: Verdict) -> list[str]:
    """Return a line of the table."""
    claim = verdict.test.claim
    assert verdict.test.gap is not None, "a shown claim has a difference"
    our_name, their_name = names_of(fresh.study, claim)
    statement = in_its_variant(
        fresh.study,
        claim,
        f"{metric_name(claim.metric)} of *{our_name}* is {claim.direction} than "
        f"{share_of(claim)}that of *{their_name}*{mean_of_variants(fresh.study, claim)}",
    )
    ours, theirs = claimed_values(fresh, claim)
    sign = 1 if claim.direction == "higher" else -1
    agreeing = sum(sign * (our - their) > 0 for our, their in zip(ours, theirs, strict=True))
    return [
        statement,
        gap_text(verdict.test.gap),
        gap_text(paired_difference(ours, theirs)),
        f"{agreeing} of {len(ours)}",
    ]


def main() -> None:
    """Write the table into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, required=True, help="docs/results/README.md")
    page = parser.parse_args().page
    page.write_text(page_text(page, tables()), encoding="utf-8")


if __name__ == "__main__":
    main()
