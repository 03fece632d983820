"""Claims of a study: which ones it had before it ran, and the tests that they are put to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path

from fedward.digests import digest
from fedward.errors import ConfigError
from fedward.evaluation import paired_difference
from fedward.lab.bench.records import Record
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell, Claim

_ROUNDING = 1e-12
"""Differences do not vary if their deviation is below this share of the largest value."""


def claims_digest(study: Study) -> str:
    """Return the SHA-256 of a study's claims, which each recorded line keeps; empty without any.

    The order of the claims does not matter.
    """
    if not study.claims:
        return ""
    return digest(sorted(_digest(claim) for claim in study.claims))


def _digest(claim: Claim) -> str:
    """Return the digest of a claim's fields, without newer ones that have their defaults.

    So a claim keeps the digest that it had before claims had these fields. The order of the
    variants whose mean is compared does not matter.
    """
    fields = claim.model_dump(mode="json")
    if claim.share == 1:
        del fields["share"]
    if claim.mean_over:
        fields["mean_over"] = sorted(claim.mean_over)
    else:
        del fields["mean_over"]
    return digest(fields)


def judged_by(study: Study) -> str:
    """Return the SHA-256 of what judges a study's values besides its claims.

    That is its bounds, its seeds and those of twice the rounds, and its metrics; what each row is,
    and which images each variant has; and its communities. Each recorded line keeps it. The order
    of seeds and rows does not matter, but that of variants does: a claim without a variant is on
    the first one.
    """
    rows = {
        name: row.model_dump(mode="json", include={"sites", "alone", "init", "labels"})
        for name, row in study.rows.items()
    }
    variants = [
        [name, variant.model_dump(mode="json", include={"rows", "labelled", "partition"})]
        for name, variant in study.variants.items()
    ]
    images = study.model_dump(mode="json", include={"sites", "partition"})
    fields = {**_bounds_and_seeds(study), **images, "rows": rows, "variants": variants}
    if study.communities:
        # Without any, a study keeps the digest that it had before this covered them.
        fields["communities"] = {name: sorted(sites) for name, sites in study.communities.items()}
    return digest(fields)


def _judged_by_before_rows(study: Study) -> str:
    """Return the digest that lines kept before it covered rows and variants."""
    return digest(_bounds_and_seeds(study))


def _bounds_and_seeds(study: Study) -> dict[str, object]:
    fields = study.model_dump(mode="json", include={"lower", "upper", "metrics"})
    return {**fields, "seeds": sorted(study.seeds), "doubled": sorted(study.doubled)}


def recorded_under(study: Study, record: Record) -> Record:
    """Return a new line with its row's title and the digests of its study's claims and rules."""
    title = "" if record.reference else study.name_of(record.variant, record.row)
    return replace(record, claims=claims_digest(study), judged_by=judged_by(study), title=title)


def require_as_recorded(study: Study, file: Path, records: Mapping[Cell, Record]) -> None:
    """Refuse claims, titles, and what :func:`judged_by` covers, that were changed after the runs.

    A row or variant may get a new title, but none under which another one was recorded.

    Args:
        study: as its file has it.
        file: of the recorded lines.
        records: the lines. Older ones keep their claims alone, or claims, bounds, seeds and
            metrics, or all but their titles.

    Raises:
        ConfigError: a line was recorded under others than the study has now.
    """
    _require_claims(study, file, records)
    _require_titles(study, file, records)
    accepted = ("", _judged_by_before_rows(study), judged_by(study))
    for cell, record in records.items():
        if record.judged_by not in accepted:
            raise ConfigError(
                f"{file}, {cell}",
                "Put back the bounds, seeds, metrics, rows, variants, cuts and communities under "
                "which it was recorded, or delete the runs and their lines, and run the study "
                "again.",
                expected="a result recorded under the bounds, seeds, metrics, rows, variants, cuts "
                "and communities of the study",
                found="one recorded under others",
            )


def _require_claims(study: Study, file: Path, records: Mapping[Cell, Record]) -> None:
    wanted = claims_digest(study)
    for cell, record in records.items():
        if record.claims != wanted:
            raise ConfigError(
                f"{file}, {cell}",
                "Put back the claims under which it was recorded, or delete the runs and their "
                "lines, and run the study again.",
                expected="a result recorded under the claims of the study",
                found="one recorded under others" if record.claims else "one without claims",
            )


def _require_titles(study: Study, file: Path, records: Mapping[Cell, Record]) -> None:
    """Refuse titles that rows or variants have exchanged, with which tables would be untrue."""
    titles = {
        (variant, row): study.name_of(variant, row)
        for variant in study.variants
        for row in study.rows_of(variant)
    }
    for cell, record in records.items():
        title = titles.get((cell.variant, cell.row))
        if record.title != title and record.title in titles.values():
            raise ConfigError(
                f"{file}, {cell}",
                "Put back the titles of rows and variants, or choose titles that none of them had.",
                expected=f"{record.title!r} to be the title of this row, as when it was recorded",
                found=f"it as the title of another, and {title!r} here",
            )


def p_value(
    ours: Sequence[float], theirs: Sequence[float], *, test_train_ratio: float = 0.0
) -> float:
    """Return the two-sided p-value of the paired t test that both have the same mean.

    It is in [0, 1], and 1 for fewer than two pairs, and for differences that vary by rounding alone
    or not at all: those have no spread to test against.

    Args:
        ours: the value of each repetition.
        theirs: likewise, in the same order.
        test_train_ratio: test images for each training image, where the repetitions divide the
            same images again. Their values are alike, as the divisions overlap, and this ratio
            makes the variance of the mean larger (Nadeau and Bengio, *Inference for the
            generalization error*, Machine Learning 2003, the corrected resampled t test). 0: the
            repetitions have images of their own.
    """
    gap = paired_difference(ours, theirs)
    largest = max(abs(value) for value in (*ours, *theirs))
    if gap.sd is None or gap.sd <= _ROUNDING * largest:
        return 1.0
    from scipy.special import stdtr  # type: ignore[import-untyped,unused-ignore]

    statistic = gap.mean / (gap.sd * sqrt(1 / gap.n + test_train_ratio))
    return float(2 * stdtr(gap.n - 1, -abs(statistic)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values in [0, 1] corrected for their number, in the given order.

    Source: Holm, *A simple sequentially rejective multiple test procedure*, Scandinavian Journal of
    Statistics 1979.
    """
    corrected = [0.0] * len(p_values)
    largest_so_far = 0.0
    by_rank = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for rank, index in enumerate(by_rank):
        multiplied = (len(p_values) - rank) * p_values[index]
        # A larger p-value is never corrected to less than a smaller one.
        largest_so_far = max(largest_so_far, min(1.0, multiplied))
        corrected[index] = largest_so_far
    return corrected
