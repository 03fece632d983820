"""Which claims no runs of a study could have judged: its file settles that before it runs."""

from collections.abc import Iterator

from fedward.lab.bench.convergence import FEWEST_SEEDS
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell, Claim, RowOfVariant


def hopeless_claims(study: Study) -> str:
    """Return which claims cannot be judged whatever their runs say, and what they lack.

    The :mod:`rules of evidence <fedward.lab.bench.evidence>` decide whether a claim is judged. Some
    of them depend on the study's file alone: its seeds, those with twice the rounds, the rows of
    few and of all labels, and whether each seed has a cut of its own. A study that shares runs may
    supply the bounds, which is not looked at here.

    Returns:
        A sentence and a list for a person who is about to run the study; empty if every claim may
        be judged.
    """
    lacking = {claim: list(_lacking(study, claim)) for claim in study.claims}
    hopeless = [claim for claim, lacks in lacking.items() if lacks]
    if not hopeless:
        return ""
    reasons = dict.fromkeys(reason for claim in hopeless for reason in lacking[claim])
    which = f"{len(hopeless)} of {len(study.claims)} claims cannot be judged"
    if len(hopeless) == len(study.claims):
        which = "No claim can be judged"
    return "\n".join(
        [
            f"{which}, whatever the runs say. The rules of evidence need:",
            *(f"- {reason}" for reason in reasons),
        ]
    )


def _lacking(study: Study, claim: Claim) -> Iterator[str]:
    """Yield what the study lacks for a claim to be judged."""
    places = [place for pair in claim.places(study.first_variant) for place in pair]
    if not (study.lower and study.upper):
        yield "rows of few and of all labels, named in lower and upper"
    if not all(_has_cut_of_each_seed(study, row) for _, row in places):
        yield "another division of the images for each seed, by partition or {seed} in sites"
    if not any(_trains_on(study, place) for place in places):
        return
    if len(study.seeds) < FEWEST_SEEDS:
        yield f"{FEWEST_SEEDS} seeds or more, where the study has {len(study.seeds)}"
    if not study.doubled:
        yield "a seed in doubled, whose runs show by twice the rounds that rows have converged"


def _has_cut_of_each_seed(study: Study, row: str) -> bool:
    """Return whether the images of a row may differ between seeds; synthetic ones do."""
    sites = study.rows[row].sites
    return bool(study.partition) or not sites or "{seed}" in sites


def _trains_on(study: Study, place: RowOfVariant) -> bool:
    """Return whether a row has several rounds, so that it has to be shown to converge."""
    variant, row = place
    return study.rounds(Cell(variant, row, study.seeds[0])) > 1
