"""Tables of a study in markdown. A row that has not converged shows no number, nor do rows whose
bounds overlap.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from fedward.evaluation import mean_and_interval
from fedward.lab.bench.convergence import FEWEST, apart, flat, rise
from fedward.lab.bench.joining import Sites, joining
from fedward.lab.bench.numbers import difference, head, line, mean
from fedward.lab.bench.records import Record
from fedward.lab.bench.study import Cell, Study

FEWEST_SEEDS = 5
"""A row with fewer shows its numbers, and says that they are few."""
_NAMES = {
    "accuracy": "Accuracy",
    "f1_macro": "Macro F1",
    "f1_weighted": "Weighted F1",
    "auroc_macro": "AUROC",
}
LONGEST_TABLE = 20
"""A table with more rows than this is folded."""


@dataclass(frozen=True)
class Results:
    """The kept results of a study."""

    study: Study
    records: Mapping[Cell, Record]

    def of(self, variant: str, row: str) -> dict[int, Record]:
        """Return seed -> result."""
        cells = {seed: Cell(variant, row, seed) for seed in self.study.seeds}
        return {seed: self.records[cell] for seed, cell in cells.items() if cell in self.records}

    def test(self, variant: str, row: str, metric: str) -> dict[int, float]:
        """Return seed -> test value, mean of the last three evaluations."""
        return {seed: result.test["last"][metric] for seed, result in self.of(variant, row).items()}

    def sites(self, variant: str, row: str) -> dict[int, Sites]:
        """Return seed -> what each site was found to have."""
        return {seed: result.sites for seed, result in self.of(variant, row).items()}

    def refused(self, variant: str, row: str) -> str:
        """Return why a row must not be shown, or nothing.

        A row of a single round, as a classifier in closed form, has nothing that converges.
        """
        found = self.of(variant, row)
        if not found:
            return "not run"
        curves = [result.curve.judged for result in found.values()]
        if all(len(curve) == 1 for curve in curves):
            return ""
        shortest = min(map(len, curves))
        if shortest < FEWEST:
            return f"{shortest} evaluations, of {FEWEST} that show convergence"
        if flat(curves):
            return ""
        return f"not converged: validation still rises by {fmean(map(rise, curves)):.3f}"

    def bounds(self, variant: str, metric: str) -> str:
        """Return why a variant must not be shown: its upper bound is not shown to beat its lower
        one. Else nothing.
        """
        lower, upper = (
            self.test(variant, row, metric) for row in (self.study.lower, self.study.upper)
        )
        seeds = sorted(set(lower) & set(upper))
        if len(seeds) == 1:
            return "a single seed"
        if not seeds or apart([upper[seed] for seed in seeds], [lower[seed] for seed in seeds]):
            return ""
        return f"bounds not apart: {self.gap(variant, self.study.upper, variant, self.study.lower, metric)}"

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """Yield (variant, row, row to compare it with) of the pairs that a study names, where both
        may be shown.
        """
        for variant in self.study.variants:
            rows = self.study.rows_of(variant)
            for pair in self.study.compare:
                if set(pair) <= set(rows) and not any(self.refused(variant, row) for row in pair):
                    yield variant, *pair

    def gap(self, variant: str, row: str, other_variant: str, other_row: str, metric: str) -> str:
        """Return the difference of two rows, paired by seed, with its 95 % t interval; "" without a
        common seed.
        """
        ours = self.test(variant, row, metric)
        theirs = self.test(other_variant, other_row, metric)
        seeds = sorted(set(ours) & set(theirs))
        return (
            difference([ours[s] for s in seeds], [theirs[s] for s in seeds], digits=3)
            if seeds
            else ""
        )

    def reached(self, variant: str, row: str, metric: str) -> str:
        """Return what share of the own row's value in the first variant is reached, with its paired
        95 % t interval.
        """
        ours = self.test(variant, row, metric)
        whole = self.test(self.study.reference, self.study.own or row, metric)
        shares = [100 * ours[seed] / whole[seed] for seed in sorted(set(ours) & set(whole))]
        if not shares:
            return ""
        found = mean_and_interval(shares)
        return f"{found.mean:.1f} %" + (
            "" if found.low is None else f" [{found.low:.1f}, {found.high:.1f}]"
        )


def tables(results: Results) -> str:
    """Return all tables of a study."""
    return f"{values(results)}\n\n{details(results)}"


def values(results: Results) -> str:
    """Return the tables that a page shows: the value of each row.

    A study of one variant also has the differences of its rows, folded. In a study of several, each
    value has its difference from the first variant.
    """
    study = results.study
    if len(study.variants) > 1:
        return "\n\n".join(_variants(results, name) for name in study.metrics)
    parts = [_folded_if_long("All rows", _rows(results))]
    if study.compare:
        parts.append(_folded("Differences of two rows, paired by seed", _pairs(results)))
    return "\n\n".join(part for part in parts if part)


def details(results: Results) -> str:
    """Return the tables beneath: differences, sites, pseudo-labels, and the work of a run."""
    study = results.study
    parts: list[str] = []
    if study.compare and len(study.variants) > 1:
        parts.append(_pairs(results))
    if study.compare:
        parts += _joining(results)
    parts += [_pseudo_labels(results), _work(results)]
    return "\n\n".join(part for part in parts if part)


def _folded(summary: str, table: str) -> str:
    """Return a table that a click unfolds, on GitHub and on the site; "" for no table."""
    if not table:
        return ""
    summary_line = f'<details markdown="1"><summary>{summary}</summary>'
    return f"{summary_line}\n\n{table}\n\n</details>"


def _folded_if_long(summary: str, table: str) -> str:
    rows = table.count("\n") - 1
    return _folded(summary, table) if rows > LONGEST_TABLE else table


def _title(results: Results, row: str) -> str:
    title = results.study.rows[row].title
    return f"**{title}**" if row == results.study.own else title


def metric_name(name: str) -> str:
    """Return what tables and figures call a metric."""
    return _NAMES.get(name, name)


def _rows(results: Results) -> str:
    """Return a study of one variant: a line for each row, with its distance from the lower bound."""
    study = results.study
    variant = results.study.reference
    columns = [metric_name(name) for name in study.metrics]
    if study.lower:
        columns += [f"{metric_name(name)} minus lower bound" for name in study.metrics]
    lines = head("method", "seeds", *columns, "accuracy of all test images")
    bounds = {name: why for name in study.metrics if (why := results.bounds(variant, name))}
    first = study.metrics[0]
    together = f"{metric_name(first)}: {bounds[first]}" if first in bounds else ""
    for row in study.rows:
        found = results.of(variant, row)
        why = results.refused(variant, row) or together
        if why:
            lines.append(
                line(_title(results, row), str(len(found)), f"refused: {why}", *[""] * len(columns))
            )
            continue
        cells = [
            "refused"
            if name in bounds
            else mean(list(results.test(variant, row, name).values()), digits=3)
            for name in study.metrics
        ]
        if study.lower:
            none = row == study.lower or results.refused(variant, study.lower)
            cells += [
                ""
                if none or name in bounds
                else results.gap(variant, row, variant, study.lower, name)
                for name in study.metrics
            ]
        pooled = mean([result.test["last"]["pooled"] for result in found.values()], digits=3)
        lines.append(line(_title(results, row), _seeds(found), *cells, pooled))
    return "\n".join(lines)


def _seeds(found: Mapping[int, Record]) -> str:
    return str(len(found)) if len(found) >= FEWEST_SEEDS else f"{len(found)} (few)"


def _variants(results: Results, metric: str) -> str:
    """Return a study of several variants in one metric: each row's value, and its distance from the
    first variant.
    """
    study = results.study
    lines = [
        f"{metric_name(metric)}:\n",
        *head("training", "seeds", *(row.title for row in study.rows.values())),
    ]
    for name, variant in study.variants.items():
        rows = study.rows_of(name)
        found = [results.of(name, row) for row in rows]
        if not any(found):
            continue
        cells = [_cell(results, name, row, metric) if row in rows else "" for row in study.rows]
        why = results.bounds(name, metric)
        if why:
            cells = [f"refused: {why}", *[""] * (len(cells) - 1)]
        lines.append(line(variant.title, str(min(map(len, found))), *cells))
    return "\n".join(lines)


def _cell(results: Results, variant: str, row: str, metric: str) -> str:
    why = results.refused(variant, row)
    if why:
        return f"refused: {why}"
    value = mean(list(results.test(variant, row, metric).values()), digits=3)
    study = results.study
    reference = results.study.reference
    other = study.own or row if study.by_labels else row
    if variant == reference or results.refused(reference, other):
        return value
    gap = results.gap(variant, row, reference, row, metric)
    return f"{value}, {results.reached(variant, row, metric) if study.by_labels else gap}"


def _pairs(results: Results) -> str:
    """Return the differences of the pairs that a study names, for each variant that runs both; ""
    without any.
    """
    study = results.study
    several = len(study.variants) > 1
    metrics = map(metric_name, study.metrics)
    left = (0, 1) if several else (0,)
    lines = head(*["training"] * several, "difference", *metrics, left=left)
    for name, ours, theirs in results.pairs():
        gaps = [
            "refused"
            if results.bounds(name, metric)
            else results.gap(name, ours, name, theirs, metric)
            for metric in study.metrics
        ]
        pair = f"{study.rows[ours].title} minus {study.rows[theirs].title}"
        lines.append(line(*[study.variants[name].title] * several, pair, *gaps))
    return "\n".join(lines) if lines[2:] else ""


def _joining(results: Results) -> Iterator[str]:
    """Yield a table of sites for each shown pair of a row of all sites and a row whose sites are
    alone.

    A row whose sites go on alone from the first row's weights stands beside them.
    """
    study = results.study
    for name, ours, theirs in results.pairs():
        joined = study.rows[ours]
        alone = study.rows[theirs]
        metrics = {
            each: metric_name(each) for each in study.metrics if not results.bounds(name, each)
        }
        if alone.alone and alone.init != ours and not joined.alone and study.metrics[0] in metrics:
            where = f"{study.variants[name].title}: " if study.variants[name].title else ""
            title = f"{where}Does joining pay? *{joined.title}* against *{alone.title}*."
            tuned = next(
                (row for row in study.rows_of(name) if _tunes(results, name, row, ours)), None
            )
            models = [results.sites(name, row) for row in (theirs, ours, tuned) if row]
            yield joining(title, metrics, *models)


def _tunes(results: Results, variant: str, row: str, joined: str) -> bool:
    """Return whether sites alone train on from the weights of a row, and may be shown."""
    found = results.study.rows[row]
    return found.alone and found.init == joined and not results.refused(variant, row)


def _ran(results: Results) -> Iterator[tuple[str, list[Record]]]:
    """Yield the name of each row of each variant with its results, by seed; rows that have not run
    are left out.
    """
    study = results.study
    for name, variant in study.variants.items():
        for row in study.rows_of(name):
            found = list(results.of(name, row).values())
            if found:
                title = _title(results, row)
                yield f"{variant.title}: {title}" if variant.title else title, found


def _pseudo_labels(results: Results) -> str:
    """Return how good pseudo-labels were; nothing where no row makes any."""
    names = ("kept", "kept_right", "right", "local")
    lines = head(
        "method", "share kept", "kept that are right", "all that are right", "sites' own models"
    )
    kept = [(title, found) for title, found in _ran(results) if "kept" in found[0].pseudo_labels]
    for title, found in kept:
        told = [
            [each.pseudo_labels[name] for each in found if name in each.pseudo_labels]
            for name in names
        ]
        lines.append(line(title, *(mean(values, digits=3) if values else "-" for values in told)))
    return "\n".join(lines) if kept else ""


def _work(results: Results) -> str:
    """Return what a run of each row did, mean over seeds."""
    columns = ("rounds", "trainings of a site", "seconds of training", "MB to and from all sites")
    lines = head("work of a run", *columns)
    for title, found in _ran(results):
        numbers = (
            fmean(getattr(each, name) for each in found)
            for name in ("rounds", "trainings", "seconds")
        )
        megabytes = fmean(each.megabytes for each in found)
        lines.append(line(title, *(f"{number:.0f}" for number in numbers), f"{megabytes:.1f}"))
    return "\n".join(lines)
