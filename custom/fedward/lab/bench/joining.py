"""Does joining pay? For each site, the model that it trained alone beside the federation's, paired
by seed.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from fedward.lab.bench.numbers import difference, head, line, mean

_DIGITS = 3
Sites = Mapping[str, Mapping[str, float]]
"""Site -> metric -> test value, and ``images``, how many test images it has."""
_COLUMNS = ("alone", "joined", "what joining brings", "fine-tuned", "what fine-tuning brings")


def joining(
    title: str,
    metrics: Mapping[str, str],
    alone: Mapping[int, Sites],
    joined: Mapping[int, Sites],
    tuned: Mapping[int, Sites] | None = None,
) -> str:
    """Return a table of sites in markdown, the last line with their mean; "" where no site can be
    compared.

    A site is compared in the seeds in which all models answered for as many of its test images.

    Args:
        title: line above the table.
        metrics: name -> its label in the table.
        alone: seed -> what each site's own model does there.
        joined: seed -> what the federation's model does at its sites, in the order of the table's
            lines.
        tuned: seed -> what the model does that each site alone trained on from the federation's.
    """
    models = [alone, joined, *([] if tuned is None else [tuned])]
    rows: list[dict[str, _Models]] = []
    for seed in sorted(set(joined).intersection(*models)):
        found = [model[seed] for model in models]
        images = {site: values["images"] for site, values in joined[seed].items()}
        same = [
            site
            for site in images
            if all(site in s and s[site]["images"] == images[site] for s in found)
        ]
        rows.append({site: [each[site] for each in found] for site in same})
    sites = dict.fromkeys(site for row in rows for site in row)
    if not sites:
        return ""
    columns = [
        f"{label}, {name}" for label in metrics.values() for name in _COLUMNS[: 2 * len(models) - 1]
    ]
    lines = [f"{title}\n", *head("site", "seeds", *columns)]
    for site in sites:
        seeds = [[row[site]] for row in rows if site in row]
        lines.append(line(site, str(len(seeds)), *_cells(metrics, len(models), seeds)))
    every = [list(row.values()) for row in rows if row]
    return "\n".join(
        [*lines, line("mean over sites", str(len(every)), *_cells(metrics, len(models), every))]
    )


_Models = Sequence[Mapping[str, float]]
"""Of each model, in the order of the columns: metric -> test value of a site."""


def _cells(
    metrics: Mapping[str, str], models: int, seeds: Sequence[Sequence[_Models]]
) -> Iterator[str]:
    """Yield the models' values and their differences in each metric, from the sites of each seed."""
    for name in metrics:
        complete = [
            [site for site in sites if all(name in values for values in site)] for sites in seeds
        ]
        means = [
            [fmean(site[model][name] for site in sites) for sites in complete if sites]
            for model in range(models)
        ]
        if not means[0]:
            yield from [""] * (2 * models - 1)
            continue
        yield mean(means[0], _DIGITS)
        for before, after in pairwise(means):
            yield from (mean(after, _DIGITS), difference(after, before, _DIGITS))
