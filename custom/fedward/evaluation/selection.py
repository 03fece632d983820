"""Which round's model a number is reported for: three protocols, from metric rows alone.

FedPerl reports, for each client, the global model of the round that was best on that client's validation set
(Bdair et al., MELBA 2022, Table 4). A deployment has one model, so the best single round and the last round are
reported next to it. Validation chooses, test is only read.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from pydantic import ConfigDict, Field, with_config

CLOSED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""Of rows in a run folder: what has no name there is refused, and nothing is coerced."""


@with_config(CLOSED)
@dataclass(frozen=True)
class MetricRow:
    """One row of metrics.jsonl."""

    round: int
    site: str
    split: str
    """``val``, ``test`` (the global model after ``round`` rounds) or ``train`` (the site's training in that round)."""
    name: str
    value: float | None
    n: int = 0
    """Images the number was computed on."""
    classes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Classes present among them, as far as the site tells; said once, in the first row of a site, round and split."""


@dataclass(frozen=True)
class SiteChoice:
    """The round chosen for one site, with the site's values at that round."""

    site: str
    round: int | None
    """None when the site never had a validation value."""
    val: float | None
    test: float | None


@dataclass(frozen=True)
class Selection:
    """One protocol's outcome over all sites, in the order they first appear in the rows."""

    protocol: str
    """``best_per_site``, ``best_global`` or ``last``."""
    metric: str
    round: int | None
    """The one round of all sites; None for ``best_per_site`` and when there is none."""
    sites: tuple[SiteChoice, ...]

    @property
    def val(self) -> float | None:
        """Mean validation value over the sites that have one, equal site weights."""
        return mean([choice.val for choice in self.sites])

    @property
    def test(self) -> float | None:
        """Mean test value over the sites that have one, equal site weights."""
        return mean([choice.test for choice in self.sites])


Table = dict[str, dict[int, dict[str, float]]]
"""split -> round -> site -> value, defined values only."""


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the defined values, None when there is none."""
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def mean_over_sites(rows: Iterable[MetricRow], metric: str, split: str = "val") -> dict[int, float]:
    """Return round -> mean over the sites with a defined value, equal site weights; rounds without one are left out."""
    by_round = _table(rows, metric).get(split, {})
    return {r: fmean(sites.values()) for r, sites in sorted(by_round.items())}


def best_per_site(rows: Iterable[MetricRow], metric: str) -> Selection:
    """Each site's own round of highest validation ``metric``, the earliest on ties, and its test value there."""
    rows = list(rows)
    table = _table(rows, metric)
    own = {site: {r: sites[site] for r, sites in table["val"].items() if site in sites} for site in _sites(rows)}
    choices = (_choice(table, site, earliest_best(values)) for site, values in own.items())
    return Selection("best_per_site", metric, None, tuple(choices))


def evaluated(values: Mapping[str, float | None], sites: Collection[str]) -> bool:
    """Return whether a round may be chosen: more than half of the sites that can judge it have a value.

    A round seen by two easy sites must not win against one seen by all ten. ``values`` are those of the sites heard in
    the round, None where a site has no labelled validation images and so no say. One of all ``sites`` that was not
    heard might have had a value.
    """
    defined = sum(value is not None for value in values.values())
    return defined > sum(site not in values for site in sites)


def best_global(rows: Iterable[MetricRow], metric: str, sites: Collection[str] | None = None) -> Selection:
    """The one round of highest mean validation ``metric`` over sites (equal weights), the earliest on ties.

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
    return kept_round(rows, metric, earliest_best(eligible))


def kept_round(rows: Iterable[MetricRow], metric: str, round_: int | None, protocol: str = "best_global") -> Selection:
    """The round whose model a run kept as its best, in place of :func:`best_global`; None where it kept none."""
    rows = list(rows)
    table = _table(rows, metric)
    return Selection(protocol, metric, round_, tuple(_choice(table, site, round_) for site in _sites(rows)))


def last_round(rows: Iterable[MetricRow], metric: str) -> Selection:
    """The last round with a validation or test value of ``metric``."""
    rows = list(rows)
    rounds = [row.round for row in rows if row.name == metric and row.value is not None and row.split != "train"]
    return kept_round(rows, metric, max(rounds, default=None), "last")


def _choice(table: Table, site: str, chosen: int | None) -> SiteChoice:
    if chosen is None:
        return SiteChoice(site, None, None, None)
    val, test = (table[split].get(chosen, {}).get(site) for split in ("val", "test"))
    return SiteChoice(site, chosen, val, test)


def earliest_best(values: Mapping[int, float]) -> int | None:
    """Return the round of the highest value, the earliest on ties; None for no values."""
    # Means of the same numbers in another order may differ in the last bit: that is a tie.
    return min(values, key=lambda r: (-round(values[r], 12), r), default=None)


def _sites(rows: list[MetricRow]) -> list[str]:
    """Sites with a validation or test row, in order of first appearance."""
    return list(dict.fromkeys(row.site for row in rows if row.split in ("val", "test")))


def _table(rows: Iterable[MetricRow], metric: str) -> Table:
    table: Table = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.name == metric and row.value is not None:
            table[row.split][row.round][row.site] = row.value
    return table
