"""FedPerl's table (Bdair et al., MELBA 2022): the two bounds, SSFL, and FedPerl's variants, over several seeds."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os.path import relpath
from pathlib import Path
from typing import NamedTuple

from fedward.bench.numbers import difference, mean
from fedward.bench.runs import require_same, run_all, run_or_resume
from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.evaluation import Selection, best_global, best_per_site, last_round
from fedward.jobs import load_experiment, simulated_sites
from fedward.report.run import Run


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
METRICS = ("accuracy", "f1_weighted", "f1_macro", "auroc_macro")
COMPARED = ("accuracy", "f1_weighted")
"""Metrics whose distance from the lower bound is shown with its interval."""
PROTOCOLS: dict[str, Callable[..., Selection]] = {
    "best round of each site": best_per_site,
    "best single round": best_global,
    "last round": last_round,
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
        if (run_folder(cell, out) / "run.json").exists():
            require_same(run_folder(cell, out), experiment_of(cell, changes))
    _require_same_images(out, site_files)
    missing = [cell for cell in cells if not _finished(cell, out)]
    run_all(
        {f"{cell.row} seed {cell.seed}": partial(run_cell, cell, changes, out, site_files) for cell in missing}, workers
    )


def run_cell(cell: Cell, changes: Changes, out: Path, site_files: Path | None) -> str:
    """Run one cell. The upper bound sees other labels, so its site files lie in a folder beside the others'."""
    experiment = experiment_of(cell, changes)
    files = site_files and site_files / ("all-labels" if cell.row == "upper" else "few-labels")
    run_or_resume(experiment, run_folder(cell, out), simulated_sites(experiment), files, out / "cache")
    return "done"


def experiment_of(cell: Cell, changes: Changes) -> Experiment:
    """Return what a cell runs."""
    row = ROWS[cell.row]
    own = changes.peers if row.job == "fedperl" else ()
    return load_experiment(row.job, [*changes.all, *own, *row.changes, f"seed={cell.seed}"])


def run_folder(cell: Cell, out: Path) -> Path:
    """Return where a run lies."""
    return out / cell.row / f"seed-{cell.seed}"


def table(cells: Sequence[Cell], out: Path) -> str:
    """Return the table of all finished runs, in markdown: one for each way of choosing a round."""
    runs: dict[str, dict[int, Run]] = {row: {} for row in ROWS}
    for cell in cells:
        if _finished(cell, out):
            runs[cell.row][cell.seed] = Run.load(run_folder(cell, out))
    compared = [f"{metric} minus {base}" for metric in COMPARED for base in ("Lower", "SSFL")]
    lines: list[str] = []
    for protocol, choose in PROTOCOLS.items():
        lines += [f"\n### Test set, {protocol}\n", f"| method | seeds | {' | '.join([*METRICS, *compared])} |"]
        lines += ["|---|--:|" + "--:|" * (len(METRICS) + len(compared))]
        for row, by_seed in runs.items():
            if not by_seed:
                continue
            numbers = [mean([score(run, metric, choose) for run in by_seed.values()], digits=3) for metric in METRICS]
            for metric in COMPARED:
                numbers += [_gap(by_seed, runs[base], metric, choose, row == base) for base in ("lower", "ssfl")]
            lines.append(f"| {ROWS[row].title} | {len(by_seed)} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def score(run: Run, metric: str, choose: Callable[..., Selection]) -> float:
    """Return the mean over sites of a test metric, at the round chosen by validation accuracy."""
    rounds = {choice.site: choice.round for choice in choose(run.metrics, "accuracy").sites}
    values = [
        row.value
        for row in run.metrics
        if row.split == "test" and row.name == metric and row.value is not None and row.round == rounds[row.site]
    ]
    return sum(values) / len(values)


def _finished(cell: Cell, out: Path) -> bool:
    folder = run_folder(cell, out)
    return (folder / "run.json").exists() and Run.load(folder).status == "finished"


def _require_same_images(out: Path, site_files: Path | None) -> None:
    """Note beside the first runs whose images they see; raise ConfigError where later ones are to see others.

    The site files are named by their path from ``out``, so that both can move together.
    """
    asked = relpath(site_files.resolve(), out.resolve()) if site_files else "phantom"
    note = out / "images.txt"
    if not note.exists():
        out.mkdir(parents=True, exist_ok=True)
        note.write_text(asked, encoding="utf-8")
    elif (known := note.read_text(encoding="utf-8")) != asked:
        raise ConfigError(
            f"runs in {out}, --site-files",
            expected=known,
            found=asked,
            remedy="Name another folder with --out: a table must not mix them.",
        )


def _gap(
    by_seed: Mapping[int, Run], baseline: Mapping[int, Run], metric: str, choose: Callable[..., Selection], same: bool
) -> str:
    """Return the paired difference over common seeds, with its 95 % t interval."""
    seeds = sorted(set(by_seed) & set(baseline))
    if same or not seeds:
        return "" if same else "-"
    ours, theirs = ([score(runs[seed], metric, choose) for seed in seeds] for runs in (by_seed, baseline))
    return difference(ours, theirs, digits=3)
