"""Which rounds' models a number is reported for: the protocols, from metric rows alone.

Reported first is the mean of the last rounds, which nothing chooses. Then the best single round,
since a deployment has one model. Last comes FedPerl's protocol: for each client, the global model
of the round that was best on that client's validation set (Bdair et al., MELBA 2022, Table 4).
Validation chooses, test is only read, and the metric that chooses is the one that is reported.
"""

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, TypeAlias

from pydantic import ConfigDict, Field, with_config

LAST = 3
"""Evaluations in the mean of the last rounds."""
POOLED = frozenset({"accuracy", "recall_weighted"})
"""Metrics that are a share of right answers among a site's images.

The mean of the sites' values by their images is then that of all images.
"""
CLOSED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""For rows in a run folder: an unknown field is refused, and no value is converted."""
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**53)]
"""Number of a round or of what is counted, in such a row: a float holds it exactly."""


@with_config(CLOSED)
@dataclass(frozen=True)
class MetricRow:
    """One row of metrics.jsonl."""

    round: Count
    site: str
    split: str
    """``val``, ``test`` (the global model after ``round`` rounds) or ``train`` (the site's training
    in that round)."""
    name: str
    value: float | None
    """None where the metric is not defined, or not reported."""
    n: Count = 0
    """Images the number was computed on."""
    classes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Classes present among the images, as far as the site reports them.

    They are given once, in the first row of a site, round and split.
    """


@dataclass(frozen=True)
class SiteChoice:
    """The rounds chosen for one site, with the means of the site's values over them."""

    site: str
    round: int | None
    """The newest of the rounds; None when the site never had a validation value."""
    val: float | None
    """Mean validation value."""
    test: float | None
    """Mean test value."""
    images: int
    """Test images at the newest of these rounds with a test value; 0 without one."""


@dataclass(frozen=True)
class Selection:
    """One protocol's outcome over all sites, in the order they first appear in the rows."""

    protocol: str
    """``last_rounds``, ``best_global``, ``best_per_site`` or ``last``."""
    metric: str
    """Name of the metric that is chosen by and reported."""
    rounds: tuple[int, ...]
    """The rounds that all sites share, rising; empty for ``best_per_site``."""
    sites: tuple[SiteChoice, ...]

    @property
    def round(self) -> int | None:
        """The newest round that all sites share; None without one."""
        return max(self.rounds, default=None)

    @property
    def val(self) -> float | None:
        """Mean validation value over the sites that have one, equal site weights."""
        return mean([choice.val for choice in self.sites])

    @property
    def test(self) -> float | None:
        """Mean test value over the sites that have one, equal site weights."""
        return mean([choice.test for choice in self.sites])

    @property
    def pooled(self) -> float | None:
        """Test value over the evaluated images of all sites: ``Σ n_k a_k / Σ n_k``.

        It is exact for the metrics in :data:`POOLED`. It is None for all others, which would need
        counts that do not leave a site.
        """
        tested = [choice for choice in self.sites if choice.test is not None]
        images = sum(choice.images for choice in tested)
        if self.metric not in POOLED or not images:
            return None
        return sum(choice.images * (choice.test or 0.0) for choice in tested) / images


Table = dict[str, dict[int, dict[str, float]]]
"""split -> round -> site -> value, defined values only."""


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the defined values; None if no value is defined."""
    defined = [value for value in values if value is not None]
    return fmean(defined) if defined else None


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the defined values; None if no value is defined."""
    defined = [value for value in values if value is not None]
    return statistics.median(defined) if defined else None


def mean_over_sites(rows: Iterable[MetricRow], metric: str, split: str = "val") -> dict[int, float]:
    """Return round -> mean over the sites with a defined value, equal site weights.

    Rounds without a defined value are left out.
    """
    by_round = _table(rows, metric).get(split, {})
    return {round_: fmean(sites.values()) for round_, sites in sorted(by_round.items())}


def best_per_site(rows: Iterable[MetricRow], metric: str) -> Selection:
    """Choose each site's own round of highest validation ``metric``, the latest on ties."""
    rows = list(rows)
    validation = _table(rows, metric)["val"]
    chosen: dict[str, tuple[int, ...]] = {}
    for site in _sites(rows):
        values = {
            round_: value_of_site[site]
            for round_, value_of_site in validation.items()
            if site in value_of_site
        }
        best = latest_best(values)
        chosen[site] = () if best is None else (best,)
    return Selection("best_per_site", metric, (), _choices(rows, metric, chosen))


def judged_by_most(values: Mapping[str, float | None], sites: Collection[str]) -> bool:
    """Return whether a round may be chosen, by more than half of the sites that can judge it.

    A round seen by two easy sites must not win against one seen by all ten.

    Args:
        values: of the sites that were heard in the round. None for a site that has no labelled
            validation images, and so cannot judge.
        sites: all of the run. One that was not heard might have had a value.
    """
    defined = sum(value is not None for value in values.values())
    not_heard = sum(site not in values for site in sites)
    return defined > not_heard


def named_mean(metric: str) -> str:
    """Return what a run calls the number by which it chooses its best model."""
    return f"mean over sites of val {metric}"


def mean_by_most(values: Mapping[str, float | None], sites: Collection[str]) -> float | None:
    """Return the mean by which a round may be chosen, equal site weights.

    The arguments are those of :func:`judged_by_most`.

    Returns:
        None if the round may not be chosen, as too few sites judge it.
    """
    return mean(values.values()) if judged_by_most(values, sites) else None


def values_by_round(rows: Iterable[MetricRow], metric: str) -> dict[int, dict[str, float | None]]:
    """Return round -> site -> validation value, None where a site could not measure one."""
    values: dict[int, dict[str, float | None]] = defaultdict(dict)
    for row in rows:
        if row.split == "val" and row.name == metric:
            values[row.round][row.site] = row.value
    return values


def best_global(
    rows: Iterable[MetricRow], metric: str, sites: Collection[str] | None = None
) -> Selection:
    """Choose the one round of highest mean validation ``metric`` over sites, the latest on ties.

    Sites have equal weights. Only rounds count that are :func:`judged_by_most` of ``sites``, by
    default those that rows name.
    """
    rows = list(rows)
    all_sites = _sites(rows) if sites is None else sites
    means = {
        round_: mean_by_most(values, all_sites)
        for round_, values in values_by_round(rows, metric).items()
    }
    eligible = {round_: value for round_, value in means.items() if value is not None}
    return kept_round(rows, metric, latest_best(eligible))


def kept_round(rows: Iterable[MetricRow], metric: str, round_: int | None) -> Selection:
    """Choose the round whose model a run kept as its best, in place of :func:`best_global`.

    ``round_``: None where the run kept none.
    """
    rounds = () if round_ is None else (round_,)
    return _shared("best_global", list(rows), metric, rounds)


def last_round(rows: Iterable[MetricRow], metric: str) -> Selection:
    """Choose the last round with a validation or test value of ``metric``."""
    rows = list(rows)
    return _shared("last", rows, metric, _measured_rounds(rows, metric)[-1:])


def last_rounds(rows: Iterable[MetricRow], metric: str) -> Selection:
    """Choose the last three rounds with a value of ``metric``: a single one may be lucky.

    With fewer evaluations, all of them are chosen. Round 0, the model before training, is chosen
    only if there is no other. A site that missed one of the rounds counts with the others.
    """
    rows = list(rows)
    measured = _measured_rounds(rows, metric)
    trained = tuple(round_ for round_ in measured if round_ > 0)
    return _shared("last_rounds", rows, metric, trained[-LAST:] or measured)


def _measured_rounds(rows: Sequence[MetricRow], metric: str) -> tuple[int, ...]:
    """Return the rounds with a validation or test value, rising."""
    rounds = {
        row.round
        for row in rows
        if row.name == metric and row.value is not None and row.split != "train"
    }
    return tuple(sorted(rounds))


def _shared(
    protocol: str, rows: Sequence[MetricRow], metric: str, rounds: tuple[int, ...]
) -> Selection:
    """Return the selection of the same rounds for all sites."""
    chosen = dict.fromkeys(_sites(rows), rounds)
    return Selection(protocol, metric, rounds, _choices(rows, metric, chosen))


def _choices(
    rows: Sequence[MetricRow], metric: str, chosen: Mapping[str, tuple[int, ...]]
) -> tuple[SiteChoice, ...]:
    """Return each site's values at its chosen rounds."""
    table = _table(rows, metric)
    test_images = {
        (row.site, row.round): row.n for row in rows if row.split == "test" and row.name == metric
    }
    choices = []
    for site, rounds in chosen.items():
        validation = [table["val"].get(round_, {}).get(site) for round_ in rounds]
        test = [table["test"].get(round_, {}).get(site) for round_ in rounds]
        tested = [round_ for round_, value in zip(rounds, test, strict=True) if value is not None]
        choice = SiteChoice(
            site,
            round=max(rounds, default=None),
            val=mean(validation),
            test=mean(test),
            images=test_images[site, max(tested)] if tested else 0,
        )
        choices.append(choice)
    return tuple(choices)


def latest_best(values: Mapping[int, float]) -> int | None:
    """Return the round of the highest value, the latest on ties; None without values.

    Few validation images take few values, and a lucky first round ties with models that have
    learned more.
    """
    return max(values, key=lambda round_: (_comparable(values[round_]), round_), default=None)


def is_above(value: float, other: float) -> bool:
    """Return whether a mean is higher than another one, and no tie of :func:`latest_best`."""
    return _comparable(value) > _comparable(other)


def _comparable(mean_value: float) -> float:
    """Return a mean without its last bits, in which equal means may differ."""
    return round(mean_value, 12)


def _sites(rows: Sequence[MetricRow]) -> list[str]:
    """Return the sites with a validation or test row, in order of first appearance."""
    return list(dict.fromkeys(row.site for row in rows if row.split in ("val", "test")))


def _table(rows: Iterable[MetricRow], metric: str) -> Table:
    table: Table = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.name == metric and row.value is not None:
            table[row.split][row.round][row.site] = row.value
    return table
