"""FedPerl's table (Bdair et al., MELBA 2022): the two bounds, SSFL, and FedPerl's variants, over several seeds."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fedward.config import Experiment
from fedward.errors import RunError
from fedward.evaluation import Selection, best_global, best_per_site, last_rounds
from fedward.jobs import load_experiment, simulated_sites
from fedward.report.run import Run
from papers import pseudo_labels
from papers.numbers import difference, head, line, mean
from papers.processes import run_all
from papers.runs import require_same, require_same_images, run_or_resume, whole_run


class Row(NamedTuple):
    """A method as the table names it."""

    title: str
    job: str
    changes: tuple[str, ...] = ()


ROWS = {
    "lower": Row("Lower (FedAvg, few labels)", "fedavg"),
    "ssfl": Row("SSFL (FedAvg + FixMatch)", "ssfl"),
    "random": Row("FedPerl, random peers", "fedperl", ("peers=random",)),
    "fedperl-open": Row("FedPerl without anonymisation", "fedperl", ("anonymise=false",)),
    "fedperl": Row("FedPerl", "fedperl"),
    "upper": Row("Upper (FedAvg, all labels)", "fedavg_full"),
}
POOLED = "accuracy"
"""Metric that is also shown with each test image of all sites counting once."""
METRICS = ("accuracy", "f1_weighted", "f1_macro", "auroc_macro")
COMPARED = ("accuracy", "f1_weighted")
"""Metrics whose distance from the lower bound is shown with its interval."""
PROTOCOLS: dict[str, Callable[..., Selection]] = {
    "mean of the last three evaluations": last_rounds,
    "best single round": best_global,
    "best round of each site (the paper's protocol)": best_per_site,
}


class Cell(NamedTuple):
    """One run."""

    row: str
    seed: int


class Changes(NamedTuple):
    """``KEY=VALUE`` settings that differ from the jobs that ship."""

    all: Sequence[str] = ()
    peers: Sequence[str] = ()
    """For the rows with peers only."""


def run(cells: Sequence[Cell], changes: Changes, out: Path, site_files: Path | None, workers: int) -> None:
    """Run everything that has not finished; runs that were killed go on where they were.

    Raises:
        ConfigError: a run in ``out`` has other settings or other images than are asked for.
    """
    for cell in cells:
        require_same(run_folder(cell, out), experiment_of(cell, changes))
    require_same_images(out, "--site-files", site_files)
    missing = [cell for cell in cells if not _finished(cell, out)]
    work = {f"{cell.row} seed {cell.seed}": partial(run_cell, cell, changes, out, site_files) for cell in missing}
    run_all(work, workers=workers)


def run_cell(cell: Cell, changes: Changes, out: Path, site_files: Path | None) -> str:
    """Run one cell."""
    experiment, files = experiment_of(cell, changes), files_of(cell.row, site_files)
    sites, cache = simulated_sites(experiment), out / "cache"
    run_or_resume(experiment, run_folder(cell, out), sites, files, cache, judged=True)
    whole_run(run_folder(cell, out))
    return "done"


def files_of(row: str, site_files: Path | None) -> Path | None:
    """Return the folder of a row's site files. The upper bound sees other labels, so it has a folder of its own."""
    return site_files and site_files / ("all-labels" if row == "upper" else "few-labels")


def experiment_of(cell: Cell, changes: Changes) -> Experiment:
    """Return what a cell runs."""
    row = ROWS[cell.row]
    own = changes.peers if row.job == "fedperl" else ()
    return load_experiment(row.job, [*changes.all, *own, *row.changes, f"seed={cell.seed}"])


def run_folder(cell: Cell, out: Path) -> Path:
    """Return where a run lies."""
    return out / cell.row / f"seed-{cell.seed}"


def table(cells: Sequence[Cell], out: Path) -> str:
    """Return the tables of all finished runs, in markdown: one for each way of choosing a round, and one of what sites
    noted of their unlabelled images.

    Raises:
        RunError: a site failed in one of the runs, or a metric has no value.
    """
    runs: dict[str, dict[int, Run]] = {row: {} for row in ROWS}
    for cell in cells:
        if _finished(cell, out):
            runs[cell.row][cell.seed] = whole_run(run_folder(cell, out))
    compared = [f"{metric} minus {base}" for metric in COMPARED for base in ("Lower", "SSFL")]
    lines: list[str] = []
    for protocol, choose in PROTOCOLS.items():
        lines += [
            f"\n### Test set, {protocol}\n",
            *head("method", "seeds", *METRICS, f"{POOLED}, all images", *compared),
        ]
        for row, by_seed in runs.items():
            if not by_seed:
                continue
            numbers = [mean([score(run, metric, choose) for run in by_seed.values()], digits=3) for metric in METRICS]
            numbers.append(mean([_pooled(run, choose) for run in by_seed.values()], digits=3))
            for metric in COMPARED:
                numbers += [_gap(by_seed, runs[base], metric, choose, row == base) for base in ("lower", "ssfl")]
            lines.append(line(ROWS[row].title, str(len(by_seed)), *numbers))
    lines.append(pseudo_labels.table({ROWS[row].title: [*by_seed.values()] for row, by_seed in runs.items()}))
    return "\n".join(lines)


def score(run: Run, metric: str, choose: Callable[..., Selection]) -> float:
    """Return the mean over sites of a test metric, at the rounds chosen by the same metric on validation images."""
    return _defined(choose(run.metrics.named(metric), metric).test, run, metric)


def _pooled(run: Run, choose: Callable[..., Selection]) -> float:
    return _defined(choose(run.metrics.named(POOLED), POOLED).pooled, run, POOLED)


def _defined(value: float | None, run: Run, metric: str) -> float:
    if value is not None:
        return value
    raise RunError(
        f"run {run.folder}, {metric}",
        expected="a value on some site's test images",
        found="none at the chosen round",
        remedy="Give the sites test images of all classes, or leave the row out with --methods.",
    )


def _finished(cell: Cell, out: Path) -> bool:
    folder = run_folder(cell, out)
    return (folder / "run.json").exists() and Run.load(folder).info.status == "finished"


def _gap(
    by_seed: Mapping[int, Run], baseline: Mapping[int, Run], metric: str, choose: Callable[..., Selection], same: bool
) -> str:
    """Return the paired difference over common seeds, with its 95 % t interval."""
    seeds = sorted(set(by_seed) & set(baseline))
    if same or not seeds:
        return "" if same else "-"
    ours, theirs = ([score(runs[seed], metric, choose) for seed in seeds] for runs in (by_seed, baseline))
    return difference(ours, theirs, digits=3)
