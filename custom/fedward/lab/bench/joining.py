"""Does joining pay? Each site's own model is compared with the federation's, paired by seed."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TypeAlias

from fedward.lab.bench.markdown import Table, difference_text, mean_text

SiteValues: TypeAlias = Mapping[str, Mapping[str, float]]
"""Site -> metric -> test value, and ``images``, the number of its test images."""
_ModelValues: TypeAlias = Sequence[Mapping[str, float]]
"""Metric -> test value at one site, of each model in the order of the columns."""
_COLUMNS = ("alone", "joined", "what joining brings", "fine-tuned", "what fine-tuning brings")


def joining_table(
    title: str,
    metrics: Mapping[str, str],
    alone: Mapping[int, SiteValues],
    joined: Mapping[int, SiteValues],
    fine_tuned: Mapping[int, SiteValues] | None = None,
) -> str:
    """Return a table of sites in markdown, with their mean in the last line.

    A site is compared in the seeds in which all models were tested on as many images of it. The
    text is empty if no site can be compared.

    Args:
        title: line above the table.
        metrics: name -> its label in the table.
        alone: seed -> test values of each site's own model.
        joined: seed -> test values of the federation's model, in the order of the table's lines.
        fine_tuned: seed -> test values of the models that each site trained alone from the
            federation's model.
    """
    models = [alone, joined]
    if fine_tuned is not None:
        models.append(fine_tuned)
    by_seed: list[dict[str, _ModelValues]] = []
    for seed in sorted(set(joined).intersection(*models)):
        by_seed.append(_comparable([model[seed] for model in models], joined[seed]))
    sites = dict.fromkeys(site for values in by_seed for site in values)
    if not sites:
        return ""
    columns = []
    for label in metrics.values():
        columns += [f"{label}, {column}" for column in _COLUMNS[: 2 * len(models) - 1]]
    table = Table(["site", "seeds", *columns])
    for site in sites:
        of_site = [[values[site]] for values in by_seed if site in values]
        table.add(site, str(len(of_site)), *_cells(metrics, len(models), of_site))
    of_all = [list(values.values()) for values in by_seed if values]
    table.add("mean over sites", str(len(of_all)), *_cells(metrics, len(models), of_all))
    return f"{title}\n\n{table.markdown()}"


def _comparable(models: Sequence[SiteValues], joined: SiteValues) -> dict[str, _ModelValues]:
    """Return site -> values of all models, of the sites that all tested on as many images."""
    comparable: dict[str, _ModelValues] = {}
    for site, values in joined.items():
        tested = [model[site]["images"] for model in models if site in model]
        if tested == [values["images"]] * len(models):
            comparable[site] = [model[site] for model in models]
    return comparable


def _cells(
    metrics: Mapping[str, str], model_count: int, by_seed: Sequence[Sequence[_ModelValues]]
) -> list[str]:
    """Return the models' values and their differences in each metric.

    Args:
        metrics: names of the metrics.
        model_count: number of models.
        by_seed: for each seed, the values of some sites, whose mean counts.
    """
    cells: list[str] = []
    for metric in metrics:
        means: list[list[float]] = [[] for _ in range(model_count)]
        for sites in by_seed:
            complete = [site for site in sites if all(metric in values for values in site)]
            if not complete:
                continue
            for model in range(model_count):
                means[model].append(fmean(site[model][metric] for site in complete))
        if not means[0]:
            cells += [""] * (2 * model_count - 1)
            continue
        cells.append(mean_text(means[0]))
        for before, after in pairwise(means):
            cells.append(mean_text(after))
            cells.append(difference_text(after, before))
    return cells
