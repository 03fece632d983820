"""The FedPerl table: lower bound, SSFL, FedPerl without and with anonymisation, upper bound, over several seeds.

    python benchmarks/fedperl.py run --out runs/skin --site-files sites --seeds 1 2 3 --set rounds=40
    python benchmarks/fedperl.py table --out runs/skin

``run`` trains every method with every seed in the in-process engine, several at once, and can be interrupted and
called again: finished runs are kept, unfinished ones go on where they were. ``table`` prints markdown.
Without ``--site-files`` the sites hold the embedded phantom.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from fedward.cli import load_experiment
from fedward.evaluation import best_global, best_per_site, last_round, mean_and_interval, paired_difference
from fedward.federation.local import run_local
from fedward.jobs import site_names
from fedward.report.run import Run

ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lower": ("fedavg", ()),
    "ssfl": ("ssfl", ()),
    "random": ("fedperl", ("peers=random",)),
    "fedperl-open": ("fedperl", ("anonymise=false",)),
    "fedperl": ("fedperl", ()),
    "upper": ("fedavg_full", ()),
}
TITLES = {
    "lower": "Lower (FedAvg, few labels)",
    "ssfl": "SSFL (FedAvg + FixMatch)",
    "random": "FedPerl, random peers",
    "fedperl-open": "FedPerl without anonymisation",
    "fedperl": "FedPerl",
    "upper": "Upper (FedAvg, all labels)",
}
METRICS = ("accuracy", "f1_weighted", "f1_macro", "auroc_macro")
PROTOCOLS = {"best round of each site": best_per_site, "best single round": best_global, "last round": last_round}


def run_one(row: str, seed: int, out: Path, site_files: Path | None, changes: Sequence[str]) -> str:
    """Train one method with one seed, or go on with it; return what happened."""
    job, own = ROWS[row]
    experiment = load_experiment(job, [*changes, *own, f"seed={seed}"])
    folder = out / row / f"seed-{seed}"
    # The upper bound differs from the lower one in the labels its sites show, so its site files lie beside the others.
    files = site_files and site_files / ("all-labels" if row == "upper" else "few-labels")
    started = (folder / "run.json").exists()
    run_local(
        None if started else experiment,
        folder,
        sites=site_names(10),
        resume=started,
        site_folders=[files] if files else [],
        cache=out / "cache",
    )
    return f"{row} seed {seed}: done"


def run(options: argparse.Namespace) -> None:
    """Run everything that has not finished."""
    tasks = [(row, seed) for seed in options.seeds for row in options.rows]
    context = multiprocessing.get_context("spawn")
    failed = False
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        futures = {
            pool.submit(run_one, row, seed, options.out, options.site_files, changes_for(row, options)): (row, seed)
            for row, seed in tasks
        }
        for future, task in futures.items():
            error = future.exception()
            failed |= error is not None
            print(f"{task}: {error!r}" if error else future.result(), flush=True)
    sys.exit(int(failed))


def changes_for(row: str, options: argparse.Namespace) -> list[str]:
    """Return the changes that apply to a row: --set for all, --set-fedperl for rows with peers."""
    return [*options.set, *(options.set_fedperl if ROWS[row][0] == "fedperl" else ())]


def table(options: argparse.Namespace) -> None:
    """Print the table of all finished runs."""
    runs = {
        row: {
            int(folder.name.split("-")[1]): Run.load(folder)
            for folder in sorted((options.out / row).glob("seed-*"))
            if Run.load(folder).status == "finished"
        }
        for row in ROWS
    }
    for protocol, choose in PROTOCOLS.items():
        print(f"\n### Test set, {protocol}\n")
        print("| method | seeds | " + " | ".join(METRICS) + " | f1_weighted minus Lower | minus SSFL |")
        print("|---|--:|" + "--:|" * (len(METRICS) + 2))
        for row, by_seed in runs.items():
            if by_seed:
                cells = [cell([score(run, metric, choose) for run in by_seed.values()]) for metric in METRICS]
                cells += [compare(by_seed, runs[base], choose) if row != base else "" for base in ("lower", "ssfl")]
                print(f"| {TITLES[row]} | {len(by_seed)} | {' | '.join(cells)} |")


def score(run: Run, metric: str, choose) -> float:  # type: ignore[no-untyped-def]
    """Return the mean over sites of a test metric, at the round chosen by validation accuracy."""
    rounds = {choice.site: choice.round for choice in choose(run.metrics, "accuracy").sites}
    values = [
        row.value
        for row in run.metrics
        if row.split == "test" and row.name == metric and row.value is not None and row.round == rounds[row.site]
    ]
    return sum(values) / len(values)


def cell(values: list[float]) -> str:
    """Return mean and standard deviation over seeds."""
    interval = mean_and_interval(values)
    return f"{interval.mean:.3f}" + (f" ± {interval.sd:.3f}" if interval.sd is not None else "")


def compare(by_seed: dict[int, Run], baseline: dict[int, Run], choose) -> str:  # type: ignore[no-untyped-def]
    """Return the paired difference to the baseline over common seeds, with its 95 % t interval."""
    seeds = sorted(set(by_seed) & set(baseline))
    if not seeds:
        return "-"
    values = [[score(runs[seed], "f1_weighted", choose) for seed in seeds] for runs in (by_seed, baseline)]
    interval = paired_difference(*values)
    if interval.low is None:
        return f"{interval.mean:+.3f}"
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--site-files", type=Path, help="folder with few-labels/ and all-labels/")
    runner.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    runner.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    runner.add_argument("--workers", type=int, default=2)
    runner.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    runner.add_argument("--set-fedperl", action="append", default=[], metavar="KEY=VALUE")
    runner.set_defaults(command=run)
    printer = commands.add_parser("table")
    printer.add_argument("--out", type=Path, required=True)
    printer.set_defaults(command=table)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
