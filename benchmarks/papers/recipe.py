"""What each part of the training recipe brings: the recipe itself, and with one part as in the paper or another way."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fedward.config import Experiment
from fedward.jobs import load_experiment, simulated_sites
from papers.convergence import apart, flat
from papers.fedperl import ROWS, files_of
from papers.numbers import difference, head, line, mean
from papers.processes import run_all
from papers.recorded import Recorded, add, read, recorded
from papers.runs import require_same_images, run_or_resume, whole_run

METHODS = ("lower", "ssfl", "fedperl", "upper")
RECIPE = "recipe"


class Variant(NamedTuple):
    """One way of training."""

    title: str
    changes: tuple[str, ...] = ()
    methods: tuple[str, ...] = METHODS
    """Rows that it changes."""


_LABELLERS = ("ssfl", "fedperl")
VARIANTS: dict[str, Variant] = {
    RECIPE: Variant("the recipe"),
    "paper": Variant(
        "class weights, no warm-up, constant rate (paper)",
        ("class_weighting=median_frequency", "round_warm_up=0", "schedule=constant"),
    ),
    "weighted": Variant("class weights (paper)", ("class_weighting=median_frequency",)),
    "cold": Variant("no warm-up in a round (paper)", ("round_warm_up=0",)),
    "constant": Variant("constant rate (paper)", ("schedule=constant",)),
    "logits": Variant("logit adjustment at sites without some classes", ("missing_classes=logit_adjustment",)),
    "restricted": Variant("restricted softmax at such sites", ("missing_classes=restricted",)),
    "averaged": Variant("moving average of the global model", ("average_decay=0.5",)),
    "momentum": Variant("momentum at the server", ("server_optimizer=momentum", "server_momentum=0.5")),
    "adam": Variant("Adam at the server", ("server_optimizer=adam", "server_learning_rate=0.01")),
    "all": Variant("pseudo-label loss averaged over all images", ("pseudo_label_mean=all",), _LABELLERS),
    "freematch": Variant("thresholds as in FreeMatch", ("pseudo_labels=freematch",), _LABELLERS),
    "aligned": Variant("distribution alignment", ("pseudo_labels=aligned",), _LABELLERS),
    "balanced": Variant("thresholds by class as in CBAFed", ("pseudo_labels=balanced",), _LABELLERS),
    "corrected": Variant("corrected by the global model as in SAGE", ("pseudo_labels=corrected",), _LABELLERS),
}


class Cell(NamedTuple):
    """One run."""

    variant: str
    row: str
    seed: int


def cells(variants: Sequence[str], rows: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Return the runs of some ways of training, for the rows that they change."""
    pairs = [(variant, row) for variant in variants for row in rows if row in VARIANTS[variant].methods]
    return [Cell(variant, row, seed) for seed in seeds for variant, row in pairs]


def experiment_of(cell: Cell, changes: Sequence[str] = ()) -> Experiment:
    """Return what a cell runs."""
    row = ROWS[cell.row]
    return load_experiment(row.job, [*row.changes, *VARIANTS[cell.variant].changes, *changes, f"seed={cell.seed}"])


def run(
    cells: Sequence[Cell], changes: Sequence[str], out: Path, site_files: Path | None, file: Path, workers: int
) -> None:
    """Run the cells that ``file`` does not hold, or holds of other settings, and record each when it has finished."""
    require_same_images(out, "--site-files", site_files)
    known = read(file)
    todo = [cell for cell in cells if cell not in known or not known[cell].is_of(experiment_of(cell, changes))]
    work = {" ".join(map(str, cell)): partial(run_cell, cell, changes, out, site_files, file) for cell in todo}
    run_all(work, workers=workers)


def run_cell(cell: Cell, changes: Sequence[str], out: Path, site_files: Path | None, file: Path) -> str:
    """Run one cell, and record it."""
    experiment, files = experiment_of(cell, changes), files_of(cell.row, site_files)
    run_or_resume(experiment, run_folder(cell, out), simulated_sites(experiment), files, out / "cache")
    result = recorded(cell.variant, cell.row, whole_run(run_folder(cell, out)))
    add(file, result)
    return f"{result.test['last']}"


def run_folder(cell: Cell, out: Path) -> Path:
    """Return where a run lies."""
    return out / cell.variant / cell.row / f"seed-{cell.seed}"


def table(results: Mapping[tuple[str, str, int], Recorded], metric: str) -> str:
    """Return the table of all recorded variants in markdown: each method, and its distance from the recipe's.

    A row whose curves still rise, or whose upper bound does not beat its lower bound, says so.
    """
    columns = (text for row in METHODS for text in (ROWS[row].title, "minus the recipe"))
    lines = [
        f"\n### Test {metric}, mean of the last three evaluations\n",
        *head("training", "seeds", *columns, "judged"),
    ]
    for name, variant in VARIANTS.items():
        by_row = {row: _by_seed(results, name, row) for row in variant.methods}
        if not all(by_row.values()):
            continue
        cells: list[str] = []
        for row in METHODS:
            values, base = (_values(_by_seed(results, each, row), metric) for each in (name, RECIPE))
            own = mean(list(values.values()), digits=3) if values else ""
            cells += [own, "" if name == RECIPE else _gap(values, base)]
        lines.append(line(variant.title, str(min(map(len, by_row.values()))), *cells, _judged(by_row, metric)))
    return "\n".join(lines)


PAIRS = (("ssfl", "lower"), ("fedperl", "ssfl"), ("upper", "lower"))
"""Methods that are compared with each other."""


def gaps(results: Mapping[tuple[str, str, int], Recorded], metric: str) -> str:
    """Return the table of how far methods lie apart under each way of training that changes all of them."""
    columns = (f"{ROWS[ours].title} minus {ROWS[theirs].title}" for ours, theirs in PAIRS)
    lines = [f"\n### Test {metric}: methods compared\n", *head("training", *columns)]
    for name, variant in VARIANTS.items():
        by_row = {row: _values(_by_seed(results, name, row), metric) for row in METHODS}
        if all(by_row.values()):
            lines.append(line(variant.title, *(_gap(by_row[ours], by_row[theirs]) for ours, theirs in PAIRS)))
    return "\n".join(lines)


def _gap(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """Return the paired difference over common seeds, with its 95 % t interval."""
    seeds = sorted(set(ours) & set(theirs))
    return difference([ours[s] for s in seeds], [theirs[s] for s in seeds], digits=3) if seeds else ""


def _by_seed(results: Mapping[tuple[str, str, int], Recorded], variant: str, row: str) -> dict[int, Recorded]:
    return {key[2]: result for key, result in results.items() if key[:2] == (variant, row)}


def _values(by_seed: Mapping[int, Recorded], metric: str) -> dict[int, float]:
    return {seed: result.test["last"][metric] for seed, result in by_seed.items()}


def _judged(by_row: Mapping[str, Mapping[int, Recorded]], metric: str) -> str:
    """Return what the rule of convergence says of one way of training."""
    rising = [ROWS[row].title for row, runs in by_row.items() if not flat([run.curve for run in runs.values()])]
    faults = [f"not converged: {', '.join(rising)}"] if rising else []
    lower, upper = (_values(by_row.get(row, {}), metric) for row in ("lower", "upper"))
    seeds = sorted(set(lower) & set(upper))
    if seeds and not apart([upper[s] for s in seeds], [lower[s] for s in seeds]):
        faults.append("bounds not apart")
    return "; ".join(faults) or "converged"
