"""What all benchmarks ask of their runs: the settings, weights and images asked for, and every site at work."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from os.path import relpath
from pathlib import Path
from typing import Any, TypeVar

from fedward.config import Experiment
from fedward.digests import file_digest
from fedward.errors import ConfigError, RunError
from fedward.local import run_local
from fedward.report.run import Run
from fedward.report.tables import took_no_step
from fedward.storage.run_folder import RunFolder

_MIXED = "Name another folder with --out: a table must not mix them."
Cell = TypeVar("Cell")


def without_result(
    cells: Iterable[Cell],
    result_file: Callable[[Cell], Path],
    experiment_of: Callable[[Cell], Experiment],
    init_of: Callable[[Cell], Path | None] = lambda cell: None,
) -> list[Cell]:
    """Return the cells that have no result yet; raise as :func:`require_same` does for any run that has begun."""
    missing = []
    for cell in cells:
        file = result_file(cell)
        for run in file.parent.glob("run*/run.json"):
            require_same(run.parent, experiment_of(cell), init_of(cell))
        missing += [] if file.exists() else [cell]
    return missing


def read_results(cells: Iterable[Cell], result_file: Callable[[Cell], Path]) -> list[dict[str, Any]]:
    """Return the results of the cells that have one; raise RunError where one cannot be read."""
    return [_result(file) for file in map(result_file, cells) if file.exists()]


def _result(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise RunError(
            f"result {file}",
            expected="JSON as a benchmark writes it",
            found=f"{type(error).__name__}: {error}",
            remedy="Delete the file and run the benchmark again: the run beside it is kept.",
        ) from error


def require_all(run: Run, sites: Iterable[str], *, may_decline: bool = False) -> None:
    """Raise RunError unless a run has finished, each of ``sites`` has trained, and all sites evaluated the last model.

    A run that lacks a site would stand among whole ones. ``may_decline``: a site that has nothing to train on in an
    exchange is none that failed.
    """
    if run.info.status != "finished":
        remedy = "Fix what stopped it, and run the benchmark again: the run goes on."
        raise RunError(f"run {run.folder}", expected="one that has finished", found=run.info.status, remedy=remedy)
    remedy = "Fix what failed, delete the folder, and run the benchmark again."
    for row in run.rounds:
        failed = {site: row.failed[site] for site in sites if site in row.failed}
        if may_decline:
            failed = {site: reason for site, reason in failed.items() if not took_no_step(reason)}
        if failed:
            where = f"run {run.folder}, round {row.round}"
            raise RunError(where, expected="all sites to train", found=_listed(failed), remedy=remedy)
    if not_evaluated := run.info.summary.not_evaluated:
        where = f"run {run.folder}, last evaluation"
        raise RunError(where, expected="all sites to evaluate the model", found=_listed(not_evaluated), remedy=remedy)


def whole_run(folder: Path) -> Run:
    """Return the run in a folder; raise RunError where :func:`require_all` does for one of its sites."""
    run = Run.load(folder)
    require_all(run, run.info.sites)
    return run


def _listed(failed: Mapping[str, str]) -> str:
    return "; ".join(f"{site}: {reason}" for site, reason in failed.items())


def require_same(folder: Path, experiment: Experiment, init: Path | None = None) -> None:
    """Raise where the run that lies in ``folder``, if any, is not the one that is asked for.

    Args:
        folder: of a run that has begun, or of none.
        experiment: its settings.
        init: folder of the finished run whose weights it starts from, or None for fresh ones. A model that does not
            lie there, as before that run has ended, is not compared.

    Raises:
        ConfigError: it has other settings, or began with other weights.
        RunError: its run.json cannot be read, or is of another version.
    """
    if not (folder / "run.json").exists():
        return
    run = RunFolder.reopen(folder)
    if run.experiment != experiment:
        expected = "a run with the settings that are asked for"
        raise ConfigError(f"run {folder}", expected=expected, found="one with others", remedy=_MIXED)
    model = init / "model.safetensors" if init else None
    if model and not model.exists():
        return
    begun, asked = (run.info.init or {}).get("sha256"), model and file_digest(model)
    if begun != asked:
        raise ConfigError(
            f"run {folder}",
            expected=f"one from the weights in {model}, SHA-256 {asked}" if model else "one from fresh weights",
            found=f"one from others, SHA-256 {begun}" if begun else "one from fresh weights",
            remedy="Delete its folder and run the benchmark again, or name another one with --out.",
        )


def require_same_images(out: Path, option: str, images: Path | None) -> None:
    """Note beside the first runs whose images they see; raise ConfigError where later ones are to see others.

    They are named by their path from ``out``, so that both can move together; None: the synthetic images'.
    """
    asked = relpath(images.resolve(), out.resolve()) if images else "synthetic"
    note = out / "images.txt"
    if not note.exists():
        out.mkdir(parents=True, exist_ok=True)
        note.write_text(asked, encoding="utf-8")
    elif (known := note.read_text(encoding="utf-8")) != asked:
        raise ConfigError(f"runs in {out}, {option}", expected=known, found=asked, remedy=_MIXED)


def run_or_resume(
    experiment: Experiment,
    folder: Path,
    sites: list[str],
    site_files: Path | None,
    cache: Path,
    init: Path | None = None,
    *,
    judged: bool = False,
) -> None:
    """Run an experiment in ``folder``, or go on with the run that lies there; its console goes to a file beside it.

    ``init`` is the folder of a finished run, whose weights a new one starts from. ``judged``: sites note how good their
    pseudo-labels are.

    Raises as :func:`require_same` and :func:`~fedward.local.run_local` do.
    """
    require_same(folder, experiment, init)
    started = (folder / "run.json").exists()
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
            judged=judged,
        )
