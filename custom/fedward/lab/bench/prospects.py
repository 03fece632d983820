"""Claims that a study cannot decide, however its runs end: what its file lacks for them."""

from collections.abc import Iterator

from fedward.lab.bench.convergence import FEWEST_SEEDS
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell, Claim, RowOfVariant


def hopeless_claims(study: Study) -> str:
    """Say how many claims the study cannot decide, however its runs end, and what it lacks.

    A claim is tested only if the :mod:`rules of evidence <fedward.lab.bench.evidence>` hold. Some
    rules depend on the study's file alone: its seeds, those with twice the rounds, the rows of few
    and of all labels, and whether each seed divides the images anew. Another study that shares runs
    may supply the two rows; this function does not look for one.

    Returns:
        A sentence and a list for a person who is about to run the study; empty if each claim can be
        tested.
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
    """Yield what the study lacks for the test of a claim."""
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
