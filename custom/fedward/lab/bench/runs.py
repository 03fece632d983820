"""Runs of a study: several at once, each in a process of its own, resumed where they were stopped."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from os.path import relpath
from pathlib import Path

from fedward.config import Experiment
from fedward.digests import file_digest
from fedward.errors import ConfigError, RunError
from fedward.jobs import simulated_sites
from fedward.lab.bench.bought import write_bought
from fedward.lab.bench.processes import run_all
from fedward.lab.bench.recording import record
from fedward.lab.bench.records import add_record, read_records
from fedward.lab.bench.study import Cell, Settings, Study
from fedward.runs.exchanges import took_no_step
from fedward.runs.run import Run
from fedward.sites import named_sites
from fedward.sites.data_file import read_data_file
from fedward.sites.site_file import read_site_file
from fedward.storage.run_folder import RunFolder

_MIXED = "Name another folder with --out: a table must not mix them."
Engine = Callable[..., Path]
"""Carries out a run: :func:`fedward.lab.local.run_local`."""
Folders = Mapping[str, Path]
"""Site -> its run folder where each is alone; "" -> that of all sites together."""


class Bench:
    """Runs the cells of a study.

    Args:
        study: what is compared.
        out: folder of the runs; finished ones are kept, begun ones go on.
        site_files: folder in which those lie that rows name.
        file: where results are kept.
        changes: settings in place of the common ones.
        engine: carries out each run.
    """

    def __init__(
        self,
        study: Study,
        out: Path,
        site_files: Path,
        file: Path,
        changes: Settings,
        engine: Engine,
    ) -> None:
        self.study = study
        self.out = out
        self.site_files = site_files
        self.file = file
        self.changes = changes
        self.engine = engine

    def run(self, cells: Sequence[Cell], workers: int) -> None:
        """Run the cells of which the file holds no result, or one of other settings; record each
        when it has finished.

        Raises:
            ConfigError: a run in ``out`` has other settings, other first weights or other images
                than are asked for.
            RunError: a site failed in a run.
        """
        require_same_images(self.out, "--site-files", self.site_files)
        known = read_records(self.file)
        todo = [
            cell
            for cell in cells
            if cell not in known or not known[cell].is_of(self.experiment(cell))
        ]
        unused = self.study.unused(self.changes)
        if unused:
            expected = "settings that some row's method has"
            found = ", ".join(unused)
            raise ConfigError(
                "fedward bench --set", expected=expected, found=found, remedy="Correct the names."
            )
        stages = ([cell for cell in todo if cell.row in rows] for rows in self.study.stages())
        run_all(
            *({str(cell): partial(self.run_cell, cell) for cell in stage} for stage in stages),
            workers=workers,
        )

    def run_cell(self, cell: Cell) -> str:
        """Run one cell, record it, and return its test values; RunError where a metric of the study
        has none.
        """
        experiment = self.experiment(cell)
        files = self._with_labels(cell, self.files_of(cell))
        for site, folder in self.folders(cell).items():
            sites = [site] if site else _sites(experiment, files)
            run_or_resume(
                self.engine, experiment, folder, sites, files, self.out / "cache", self._init(cell)
            )
        result = record(cell, self.runs(cell))
        unknown = [name for name in self.study.metrics if name not in result.test["last"]]
        if unknown:
            remedy = "Name other metrics in the study, or give sites five test images or more of each class."
            expected = f"test values of {', '.join(unknown)}"
            raise RunError(
                f"run {self._folder(cell)}", expected=expected, found="none", remedy=remedy
            )
        add_record(self.file, result)
        return ", ".join(f"{name} {result.test['last'][name]:.3f}" for name in self.study.metrics)

    def experiment(self, cell: Cell) -> Experiment:
        """Return what a cell runs."""
        files = self.files_of(cell)
        return self.study.experiment(cell, self.changes, read_data_file(files) if files else None)

    def files_of(self, cell: Cell) -> Path | None:
        """Return the folder of a cell's site files; None where its images are synthetic."""
        name = self.study.folder(cell)
        return self.site_files / name if name else None

    def folders(self, cell: Cell) -> Folders:
        """Return where a cell's runs lie."""
        folder = self._folder(cell)
        if not self.study.rows[cell.row].alone:
            return {"": folder}
        files = self.files_of(cell)
        sites = _sites(self.experiment(cell), files)
        return {
            site: folder / site
            for site in sites
            if files is None or _has_labels(files / f"{site}.yaml")
        }

    def _folder(self, cell: Cell) -> Path:
        return self.out / cell.variant / cell.row / f"seed-{cell.seed}"

    def runs(self, cell: Cell) -> list[Run]:
        """Return a cell's finished runs; raise RunError where a site failed in one."""
        return [whole_run(folder, may_decline=True) for folder in self.folders(cell).values()]

    def finished(self, cell: Cell) -> list[Run]:
        """Return a cell's runs where they lie here and have finished; else nothing."""
        if not self._folder(cell).exists():  # perhaps without site files, too
            return []
        folders = self.folders(cell).values()
        if not all((folder / "run.json").exists() for folder in folders):
            return []
        runs = [Run.load(folder) for folder in folders]
        return runs if all(run.info.status == "finished" for run in runs) else []

    def _init(self, cell: Cell) -> Path | None:
        """Return the run folder whose weights a cell begins with."""
        run = self._run_of(self.study.rows[cell.row].init, cell)
        return run.folder if run else None

    def _with_labels(self, cell: Cell, files: Path | None) -> Path | None:
        """Return the folder of site files that name the labels which a cell may use, where another
        row bought them.
        """
        if files is None or not (run := self._run_of(self.study.rows[cell.row].labels, cell)):
            return files
        own = self._folder(cell).with_suffix(".sites")
        write_bought(files, run, own)
        return own

    def _run_of(self, row: str, cell: Cell) -> Run | None:
        """Return the whole run of another row, for a cell's seed and variant, or where that lacks
        it, the first.
        """
        if not row:
            return None
        same = row in self.study.rows_of(cell.variant)
        other = Cell(cell.variant if same else self.study.reference, row, cell.seed)
        return whole_run(self.folders(other)[""], may_decline=True)


def _has_labels(site_file: Path) -> bool:
    """Return whether a site sees any label; one that sees none learns nothing alone."""
    return bool(read_site_file(site_file).labelled)


def _sites(experiment: Experiment, files: Path | None) -> list[str]:
    return named_sites(files) if files else simulated_sites(experiment)


def whole_run(folder: Path, *, may_decline: bool = False) -> Run:
    """Return the run in a folder; raise RunError where :func:`require_all` does for one of its
    sites.
    """
    run = Run.load(folder)
    require_all(run, run.info.sites, may_decline=may_decline)
    return run


def require_all(run: Run, sites: Iterable[str], *, may_decline: bool = False) -> None:
    """Raise RunError unless a run has finished, each of ``sites`` has trained, and all sites
    evaluated the last model.

    A run that lacks a site would stand among whole ones. ``may_decline``: a site that has nothing
    to train on in an exchange did not fail.
    """
    if run.info.status != "finished":
        remedy = "Fix what stopped it, and run the command again: the run goes on."
        raise RunError(
            f"run {run.folder}",
            expected="one that has finished",
            found=run.info.status,
            remedy=remedy,
        )
    remedy = "Fix what failed, delete the folder, and run the command again."
    for row in run.rounds:
        failed = {site: row.failed[site] for site in sites if site in row.failed}
        if may_decline:
            failed = {site: reason for site, reason in failed.items() if not took_no_step(reason)}
        if failed:
            where = f"run {run.folder}, round {row.round}"
            raise RunError(
                where, expected="all sites to train", found=_listed(failed), remedy=remedy
            )
    not_evaluated = run.info.summary.not_evaluated
    if not_evaluated:
        where = f"run {run.folder}, last evaluation"
        raise RunError(
            where,
            expected="all sites to evaluate the model",
            found=_listed(not_evaluated),
            remedy=remedy,
        )


def _listed(failed: Mapping[str, str]) -> str:
    return "; ".join(f"{site}: {reason}" for site, reason in failed.items())


def run_or_resume(
    engine: Engine,
    experiment: Experiment,
    folder: Path,
    sites: list[str],
    files: Path | None,
    cache: Path,
    init: Path | None = None,
) -> None:
    """Run an experiment in ``folder``, or go on with the run that lies there; its console goes to a
    file beside it.

    Sites note how good their pseudo-labels are. ``init`` is the folder of a finished run, whose
    weights a new one starts from.

    Raises as :func:`require_same` and the engine do.
    """
    require_same(folder, experiment, init)
    started = (folder / "run.json").exists()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".txt").open("a") as console, redirect_stdout(console):
        engine(
            None if started else experiment,
            folder,
            sites=sites,
            resume=started,
            site_folders=[files] if files else [],
            init=None if started else init,
            cache=cache,
            judged=True,
        )


def require_same(folder: Path, experiment: Experiment, init: Path | None = None) -> None:
    """Raise where the run that lies in ``folder``, if any, is not the one that is asked for.

    Args:
        folder: of a run that has begun, or of none.
        experiment: its settings.
        init: folder of the finished run whose weights it starts from, or None for fresh ones. A
            model that does not lie there, as before that run has ended, is not compared.

    Raises:
        ConfigError: it has other settings, or began with other weights.
        RunError: its run.json cannot be read, or is of another version.
    """
    if not (folder / "run.json").exists():
        return
    run = RunFolder.reopen(folder)
    if run.experiment != experiment:
        expected = "a run with the settings that are asked for"
        raise ConfigError(
            f"run {folder}", expected=expected, found="one with others", remedy=_MIXED
        )
    model = init / "model.safetensors" if init else None
    if model and not model.exists():
        return
    begun = (run.info.init or {}).get("sha256")
    asked = model and file_digest(model)
    if begun != asked:
        raise ConfigError(
            f"run {folder}",
            expected=f"one from the weights in {model}, SHA-256 {asked}"
            if model
            else "one from fresh weights",
            found=f"one from others, SHA-256 {begun}" if begun else "one from fresh weights",
            remedy="Delete its folder and run the command again, or name another one with --out.",
        )


def require_same_images(out: Path, option: str, images: Path) -> None:
    """Note beside the first runs whose images they see; raise ConfigError where later ones are to
    see others.

    They are named by their path from ``out``, so that both can move together.
    """
    asked = relpath(images.resolve(), out.resolve())
    note = out / "images.txt"
    if not note.exists():
        out.mkdir(parents=True, exist_ok=True)
        note.write_text(asked, encoding="utf-8")
    elif (known := note.read_text(encoding="utf-8")) != asked:
        where = f"runs in {out}, {option}"
        raise ConfigError(where, expected=known, found=asked, remedy=_MIXED)
