"""Which rounds' models a number is reported for: the protocols, from metric rows alone.

Reported first is the mean of the last rounds, which nothing chooses. Then the best single round,
since a deployment has one model. Last comes FedPerl's protocol: for each client, the global model
of the round that was best on that client's validation set (Bdair et al., MELBA 2022, Table 4).
Validation chooses, test is only read, and the metric that chooses is the one that is reported.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from pydantic import ConfigDict, Field, with_config

LAST = 3
"""Evaluations in the mean of the last rounds."""
POOLED = frozenset({"accuracy", "recall_weighted"})
"""Metrics that are a share of right answers among a site's images, so that sites' values make up
that of all images.
"""
CLOSED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""Of rows in a run folder: what has no name there is refused, and nothing is coerced."""


@with_config(CLOSED)
@dataclass(frozen=True)
class MetricRow:
    """One row of metrics.jsonl."""

    round: int
    site: str
    split: str
    """``val``, ``test`` (the global model after ``round`` rounds) or ``train`` (the site's training
    in that round).
    """
    name: str
    value: float | None
    n: int = 0
    """Images the number was computed on."""
    classes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Classes present among them, as far as the site tells; said once, in the first row of a site,
    round and split.
    """


@dataclass(frozen=True)
class SiteChoice:
    """The rounds chosen for one site, with the means of the site's values over them."""

    site: str
    round: int | None
    """The newest of them; None when the site never had a validation value."""
    val: float | None
    test: float | None
    images: int
    """Test images at the newest of these rounds with a test value; 0 without one."""


@dataclass(frozen=True)
class Selection:
    """One protocol's outcome over all sites, in the order they first appear in the rows."""

    protocol: str
    """``last_rounds``, ``best_global``, ``best_per_site`` or ``last``."""
    metric: str
    rounds: tuple[int, ...]
    """The rounds of all sites, rising; none for ``best_per_site``."""
    sites: tuple[SiteChoice, ...]

    @property
    def round(self) -> int | None:
        """The one round of all sites, of several the newest."""
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
        """Test value over the evaluated images of all sites together, each counting once: ``Σ n_k
        a_k / Σ n_k``.

        Exact for the metrics in :data:`POOLED`. None for all others: they would need counts that do
        not leave a site.
        """
        told = [choice for choice in self.sites if choice.test is not None]
        images = sum(choice.images for choice in told)
        if self.metric not in POOLED or not images:
            return None
        return sum(choice.images * (choice.test or 0.0) for choice in told) / images


Table = dict[str, dict[int, dict[str, float]]]
"""split -> round -> site -> value, defined values only."""


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the defined values, None when there is none."""
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def mean_over_sites(rows: Iterable[MetricRow], metric: str, split: str = "val") -> dict[int, float]:
    """Return round -> mean over the sites with a defined value, equal site weights; rounds without
    one are left out.
    """
    by_round = _table(rows, metric).get(split, {})
    return {r: fmean(sites.values()) for r, sites in sorted(by_round.items())}


def best_per_site(rows: Iterable[MetricRow], metric: str) -> Selection:
    """Each site's own round of highest validation ``metric``, the latest on ties, and its test
    value there.
    """
    rows = list(rows)
    val = _table(rows, metric)["val"]
    own = {
        site: {r: sites[site] for r, sites in val.items() if site in sites} for site in _sites(rows)
    }
    best = ((site, latest_best(values)) for site, values in own.items())
    chosen = {site: () if round_ is None else (round_,) for site, round_ in best}
    return Selection("best_per_site", metric, (), _choices(rows, metric, chosen))


def evaluated(values: Mapping[str, float | None], sites: Collection[str]) -> bool:
    """Return whether a round may be chosen: more than half of the sites that can judge it have a
    value.

    A round seen by two easy sites must not win against one seen by all ten. ``values`` are those of
    the sites heard in the round, None where a site has no labelled validation images and so no say.
    One of all ``sites`` that was not heard might have had a value.
    """
    defined = sum(value is not None for value in values.values())
    return defined > sum(site not in values for site in sites)


def best_global(
    rows: Iterable[MetricRow], metric: str, sites: Collection[str] | None = None
) -> Selection:
    """The one round of highest mean validation ``metric`` over sites (equal weights), the latest on
    ties.

    Only rounds count that are :func:`evaluated` by ``sites``, by default those that rows name.
    """
    rows = list(rows)
    everyone = _sites(rows) if sites is None else sites
    heard: dict[int, dict[str, float | None]] = defaultdict(dict)
    for row in rows:
        if row.split == "val" and row.name == metric:
            heard[row.round][row.site] = row.value
    means = mean_over_sites(rows, metric)
    eligible = {r: means[r] for r, values in heard.items() if evaluated(values, everyone)}
    return kept_round(rows, metric, latest_best(eligible))


def kept_round(rows: Iterable[MetricRow], metric: str, round_: int | None) -> Selection:
    """The round whose model a run kept as its best, in place of :func:`best_global`; None where it
    kept none.
    """
    return _shared("best_global", list(rows), metric, () if round_ is None else (round_,))


def last_round(rows: Iterable[MetricRow], metric: str) -> Selection:
    """The last round with a validation or test value of ``metric``."""
    rows = list(rows)
    return _shared("last", rows, metric, _measured(rows, metric)[-1:])


def last_rounds(rows: Iterable[MetricRow], metric: str) -> Selection:
    """The last three rounds with a value of ``metric``, whose mean stands for the run: one round
    may be lucky.

    With fewer evaluations, those there are. Round 0, the model before training, is not among them
    unless it is alone. A site that missed one of them counts with the others.
    """
    rows = list(rows)
    measured = _measured(rows, metric)
    return _shared("last_rounds", rows, metric, tuple(r for r in measured if r)[-LAST:] or measured)


def _measured(rows: Sequence[MetricRow], metric: str) -> tuple[int, ...]:
    """Rounds with a validation or test value, rising."""
    found = {
        row.round
        for row in rows
        if row.name == metric and row.value is not None and row.split != "train"
    }
    return tuple(sorted(found))


def _shared(
    protocol: str, rows: Sequence[MetricRow], metric: str, rounds: tuple[int, ...]
) -> Selection:
    return Selection(
        protocol, metric, rounds, _choices(rows, metric, dict.fromkeys(_sites(rows), rounds))
    )


def _choices(
    rows: Sequence[MetricRow], metric: str, chosen: Mapping[str, tuple[int, ...]]
) -> tuple[SiteChoice, ...]:
    """Return each site's values at its chosen rounds."""
    table = _table(rows, metric)
    images = {
        (row.site, row.round): row.n for row in rows if row.split == "test" and row.name == metric
    }
    choices = []
    for site, rounds in chosen.items():
        val, test = (
            [table[split].get(r, {}).get(site) for r in rounds] for split in ("val", "test")
        )
        told = [r for r, value in zip(rounds, test, strict=True) if value is not None]
        counted = images[site, max(told)] if told else 0
        choices.append(SiteChoice(site, max(rounds, default=None), mean(val), mean(test), counted))
    return tuple(choices)


def latest_best(values: Mapping[int, float]) -> int | None:
    """Return the round of the highest value, the latest on ties; None for no values.

    Few validation images take few values, and a lucky first round ties with models that have
    learned more.
    """
    # Means of the same numbers in another order may differ in the last bit: that is a tie.
    return max(values, key=lambda r: (round(values[r], 12), r), default=None)


def _sites(rows: Sequence[MetricRow]) -> list[str]:
    """Sites with a validation or test row, in order of first appearance."""
    return list(dict.fromkeys(row.site for row in rows if row.split in ("val", "test")))


def _table(rows: Iterable[MetricRow], metric: str) -> Table:
    table: Table = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.name == metric and row.value is not None:
            table[row.split][row.round][row.site] = row.value
    return table
