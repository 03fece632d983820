"""Many runs of one process each, several at once."""

import json
import multiprocessing
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TypeVar

from fedward.config import Experiment
from fedward.errors import ConfigError, RunError
from fedward.federation.local import run_local
from fedward.report.run import Run


def run_all(work: Mapping[str, partial[str]], workers: int) -> None:
    """Call everything in processes of its own, print each result as it comes, and raise the first error at the end.

    A failing run does not stop the others: what they did is kept, and the command can be called again. Only a process
    that is killed ends them all, with a RunError.
    """
    errors: list[BaseException] = []
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_call, call): name for name, call in work.items()}
        for done, future in enumerate(as_completed(futures), 1):
            error = future.exception()
            if isinstance(error, BrokenProcessPool):  # which ends all runs, not this one alone
                raise RunError(
                    f"{workers} processes",
                    expected="each to live until its runs have ended",
                    found="one was killed, as a machine does that has no memory left",
                    remedy="Run the command again, with fewer --workers: finished runs are kept, begun ones go on.",
                ) from error
            print(f"{done}/{len(work)} {futures[future]}: {error or future.result()}", flush=True)
            errors += [error] if error else []
    if errors:
        raise errors[0]


def _call(call: Callable[[], str]) -> str:
    return call()


Cell = TypeVar("Cell")


def without_result(
    cells: Iterable[Cell], result_file: Callable[[Cell], Path], experiment_of: Callable[[Cell], Experiment]
) -> list[Cell]:
    """Return the cells that have no result yet; raise ConfigError where a result or a begun run has other settings."""
    missing = []
    for cell in cells:
        file = result_file(cell)
        for run in file.parent.glob("run*/run.json"):
            require_same(run.parent, experiment_of(cell))
        missing += [] if file.exists() else [cell]
    return missing


def require_all(run: Run, sites: Iterable[str]) -> None:
    """Raise RunError where a site had to train and did not: its numbers would stand among those of whole runs."""
    for row in run.rounds:
        if failed := {site: row.failed[site] for site in sites if site in row.failed}:
            raise RunError(
                f"run {run.folder}, round {row.round}",
                expected="all sites to train",
                found="; ".join(f"{site}: {reason}" for site, reason in failed.items()),
                remedy="Mend what failed, delete the folder, and run the benchmark again.",
            )


def require_same(folder: Path, experiment: Experiment) -> None:
    """Raise ConfigError where the run that lies in ``folder`` has other settings than ``experiment``."""
    stored = json.loads((folder / "run.json").read_text(encoding="utf-8"))["experiment"]
    if Experiment.model_validate(stored).model_dump(mode="json") != experiment.model_dump(mode="json"):
        raise ConfigError(
            f"run {folder}",
            expected="a run with the settings that are asked for",
            found="one with others",
            remedy="Name another folder with --out: a table must not mix them.",
        )


def run_or_resume(
    experiment: Experiment,
    folder: Path,
    sites: list[str],
    site_files: Path | None,
    cache: Path,
    init: Path | None = None,
) -> None:
    """Run an experiment in ``folder``, or go on with the run that lies there; its console goes to a file beside it.

    ``init`` is the folder of a finished run, whose weights a new one starts from.

    Raises:
        ConfigError: the run that lies there has other settings.
    """
    started = (folder / "run.json").exists()
    if started:
        require_same(folder, experiment)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".txt").open("a") as console, redirect_stdout(console):
        run_local(
            None if started else experiment,
            folder,
            sites=sites,
            resume=started,
            site_folders=[site_files] if site_files else [],
            init=None if started else init,
            cache=cache,
        )
