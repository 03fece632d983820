"""The kept results of a study, and which of them may be shown.

A row that has not converged may not, and neither may a variant whose bounds overlap.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from fedward.evaluation import mean_and_interval, paired_difference
from fedward.evaluation.intervals import Interval, percent_more
from fedward.lab.bench.convergence import FEWEST, apart, flat, rise
from fedward.lab.bench.joining import SiteValues
from fedward.lab.bench.markdown import gap_text
from fedward.lab.bench.records import Record
from fedward.lab.bench.study import Cell, Study


@dataclass(frozen=True)
class Results:
    """The kept results of a study."""

    study: Study
    records: Mapping[Cell, Record]

    def by_seed(self, variant: str, row: str) -> dict[int, Record]:
        """Return seed -> result, of the seeds that have run."""
        records: dict[int, Record] = {}
        for seed in self.study.seeds:
            cell = Cell(variant, row, seed)
            if cell in self.records:
                records[seed] = self.records[cell]
        return records

    def test_values(self, variant: str, row: str, metric: str) -> dict[int, float]:
        """Return seed -> test value, the mean of the last three evaluations."""
        records = self.by_seed(variant, row)
        return {seed: record.test["last"][metric] for seed, record in records.items()}

    def site_values(self, variant: str, row: str) -> dict[int, SiteValues]:
        """Return seed -> test values of each site."""
        return {seed: record.sites for seed, record in self.by_seed(variant, row).items()}

    def refusal(self, variant: str, row: str) -> str:
        """Return why a row must not be shown; empty if it may be.

        A row of a single round, as of a classifier in closed form, needs no convergence.
        """
        records = self.by_seed(variant, row)
        if not records:
            return "not run"
        curves = [record.curve.judged for record in records.values()]
        if all(len(curve) == 1 for curve in curves):
            return ""
        shortest = min(map(len, curves))
        if shortest < FEWEST:
            return f"{shortest} evaluations, of {FEWEST} that show convergence"
        if flat(curves):
            return ""
        return f"not converged: validation still rises by {fmean(map(rise, curves)):.3f}"

    def bounds_refusal(self, variant: str, metric: str) -> str:
        """Return why a variant must not be shown in a metric; empty if it may be.

        Its upper bound must be shown to beat its lower bound.
        """
        lower = self.test_values(variant, self.study.lower, metric)
        upper = self.test_values(variant, self.study.upper, metric)
        seeds = sorted(set(lower) & set(upper))
        if not seeds:
            return ""
        if len(seeds) == 1:
            return "a single seed"
        upper_values = [upper[seed] for seed in seeds]
        lower_values = [lower[seed] for seed in seeds]
        if apart(upper_values, lower_values):
            return ""
        gap = paired_difference(upper_values, lower_values)
        return f"bounds not apart: {gap_text(gap)}"

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """Yield (variant, row, row to compare it with) of the study's pairs that may be shown."""
        for variant in self.study.variants:
            rows = self.study.rows_of(variant)
            for ours, theirs in self.study.compare:
                if ours not in rows or theirs not in rows:
                    continue
                if not self.refusal(variant, ours) and not self.refusal(variant, theirs):
                    yield variant, ours, theirs

    def gap(self, ours: tuple[str, str], theirs: tuple[str, str], metric: str) -> Interval | None:
        """Return the difference of two (variant, row), paired by seed; None if no seed has both."""
        our_values = self.test_values(*ours, metric)
        their_values = self.test_values(*theirs, metric)
        seeds = sorted(set(our_values) & set(their_values))
        if not seeds:
            return None
        return paired_difference(
            [our_values[seed] for seed in seeds], [their_values[seed] for seed in seeds]
        )

    def means_by_site(self, variant: str, row: str, metric: str) -> list[float]:
        """Return the mean over seeds of each site's test value, of the sites that have one."""
        values: dict[str, list[float]] = {}
        for sites in self.site_values(variant, row).values():
            for site, of_site in sites.items():
                if metric in of_site:
                    values.setdefault(site, []).append(of_site[metric])
        return [fmean(of_site) for of_site in values.values()]

    def relative_improvement(
        self, variant: str, ours: str, theirs: str, metric: str
    ) -> float | None:
        """Return by how many percent a row is better than another one, over their common seeds."""
        our_values = self.test_values(variant, ours, metric)
        their_values = self.test_values(variant, theirs, metric)
        seeds = sorted(set(our_values) & set(their_values))
        return percent_more(
            [our_values[seed] for seed in seeds], [their_values[seed] for seed in seeds]
        )

    def additional_cost(self, variant: str, ours: str, theirs: str) -> float | None:
        """Return by how many percent a row moves more data than another one, over common seeds.

        None if they do not begin with the same weights, or if sites are alone in one of them: data
        moved by another run would be missing, or would not be moved by a site that is alone.
        """
        rows = [self.study.rows[ours], self.study.rows[theirs]]
        if rows[0].init != rows[1].init or rows[0].alone or rows[1].alone:
            return None
        our_records = self.by_seed(variant, ours)
        their_records = self.by_seed(variant, theirs)
        seeds = sorted(set(our_records) & set(their_records))
        return percent_more(
            [our_records[seed].megabytes for seed in seeds],
            [their_records[seed].megabytes for seed in seeds],
        )

    def percent_reached(self, variant: str, row: str, metric: str) -> Interval | None:
        """Return the percentage that a row reaches of the own row's value in the first variant.

        The values are paired by seed; None without a common seed.
        """
        values = self.test_values(variant, row, metric)
        whole = self.test_values(self.study.reference, self.study.own or row, metric)
        seeds = sorted(set(values) & set(whole))
        if not seeds:
            return None
        return mean_and_interval([100 * values[seed] / whole[seed] for seed in seeds])
