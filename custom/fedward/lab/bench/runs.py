"""Runs of a study: several at once, each in its own process, resumed where they were stopped."""

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from os.path import relpath
from pathlib import Path
from typing import TypeAlias

from fedward.config import Experiment
from fedward.digests import digest, file_digest
from fedward.disk import make_folder, replacing
from fedward.errors import ConfigError, RunError, option
from fedward.lab.bench.bought import files_with_bought_labels
from fedward.lab.bench.claims import recorded_under
from fedward.lab.bench.recording import record
from fedward.lab.bench.records import Drawn, ImageDigests, Record, add_records, read_records
from fedward.lab.bench.reference_runs import missing_references, run_references
from fedward.lab.bench.repetition import compared_seeds, cut_of, repetition_of
from fedward.lab.bench.results import has_values
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell, Settings
from fedward.lab.processes import run_all
from fedward.lab.run_check import print_folded
from fedward.lab.simulation import Simulation, default_sites
from fedward.report.rewriting import rewrite_report
from fedward.runs.exchanges import took_no_step
from fedward.runs.run import Run
from fedward.runs.settings import by_dotted_name
from fedward.sites.data_file import read_data_file
from fedward.sites.site_file import read_site_file
from fedward.storage.run_folder import RunFolder
from fedward.text import count

_ANOTHER_FOLDER = "Name another folder with --out: a table must not mix them."
_ALL_SITES = ""
"""What a run of all sites together is called where runs are named by site."""
Folders: TypeAlias = Mapping[str, Path]
"""Site -> its run folder if sites are alone; :data:`_ALL_SITES` -> that of all together."""


class Bench:
    """Runs the cells of a study.

    Args:
        study: what is compared.
        out: folder of the runs; finished ones are kept, interrupted ones are continued.
        site_files: folder that holds the folders of site files which rows name.
        file: where results are kept.
        changes: settings that replace the common ones.
        as_written: the study as its file has it, if ``study`` has other seeds.

    Attributes:
        seeds: those whose images show whether the images of a repetition are its own.
    """

    def __init__(
        self,
        study: Study,
        out: Path,
        site_files: Path,
        file: Path,
        changes: Settings,
        as_written: Study | None = None,
    ) -> None:
        self.study = study
        self.out = out
        self.site_files = site_files
        self.file = file
        self.changes = changes
        self.as_written = as_written or study
        self.seeds = compared_seeds(study, self.as_written.seeds)
        self._cuts: dict[str, ImageDigests] = {}
        """Folder of site files -> which images it names."""

    def run(self, cells: Sequence[Cell], workers: int) -> None:
        """Run the cells without a kept result of the same settings; keep each result at once.

        One seed runs after the other, so that a study that is stopped has whole repetitions.

        Raises:
            ConfigError: a run in ``out`` has other settings, first weights or images; or see
                :meth:`require_known_changes`.
            RunError: a site failed in a run.
        """
        self.require_known_changes()
        note_images(self.out, self.site_files)
        missing = self.missing(cells)
        self._require_beginnings(missing)
        for cell in missing:
            # Known before the processes start, so that none reads the files again.
            self.drawn(cell)
        references = missing_references(self, cells)
        calls: dict[str, partial[str]] = {}
        for seed in dict.fromkeys(cell.seed for cell in cells):
            for cell in missing:
                if cell.seed == seed:
                    calls[str(cell)] = partial(self.run_cell, cell)
            for cell in references:
                if cell.seed == seed:
                    calls[f"references of {cell}"] = partial(run_references, self, cell)
        if calls:
            print(f"{count(len(calls), 'result')} to come, {workers} at once, in {self.out}")
        run_all(calls, workers, self._run_after(missing))

    def _run_after(self, cells: Sequence[Cell]) -> dict[str, list[str]]:
        """Return name of a cell -> names of the cells that must have ended before it begins.

        They are those whose weights or labels it begins with, and those that its report shows. A
        cell does not wait for one that its report shows if that one itself needs the cell's row.
        """
        after = {}
        for cell in cells:
            shown = [
                other
                for other in self._baselines(cell)
                if cell.row not in self.study.all_needs(other.row)
            ]
            after[str(cell)] = [str(other) for other in (*self._begins_with(cell), *shown)]
        return after

    def require_known_changes(self) -> None:
        """Raise ConfigError if ``changes`` has the seed, or a setting that no row's method has."""
        if "seed" in self.changes:
            raise ConfigError(
                "fedward bench --set",
                f"Name seeds with {option('seeds')}.",
                expected="no seed, which is that of the repetition",
                found=f"seed={self.changes['seed']}",
            )
        unused = self.study.unused(self.changes)
        if unused:
            raise ConfigError(
                "fedward bench --set",
                "Correct the names.",
                expected="settings that some row's method has",
                found=", ".join(unused),
            )

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that have to run.

        A cell has to run in two cases:

        - It has no current result (:meth:`_stands`), and its row is not removed.
        - Its run folder is gone, and another cell that has to run begins with its weights or
          labels. This holds even if its result is kept.
        """
        kept = read_records(self.file)
        missing = set()
        for cell in cells:
            is_kept = cell in kept and self._stands(cell, kept)
            if not is_kept and not self.study.rows[cell.row].removed:
                missing.add(cell)
        selected = set(cells)
        to_follow = list(missing)
        while to_follow:
            for other in self._begins_with(to_follow.pop()):
                is_new = other in selected and other not in missing
                if is_new and not self.finished_runs(other):
                    missing.add(other)
                    to_follow.append(other)
        return [cell for cell in cells if cell in missing]

    def _require_beginnings(self, cells: Sequence[Cell]) -> None:
        """Raise ConfigError if a cell begins with a run that is not here and will not run."""
        for cell in cells:
            for other in self._begins_with(cell):
                if other not in cells and not self.finished_runs(other):
                    raise ConfigError(
                        f"fedward bench, {cell}",
                        f"Run the row {other.row}, too.",
                        expected=f"the run that it begins with, {other}",
                        found="none",
                    )

    def _stands(self, cell: Cell, kept: Mapping[Cell, Record]) -> bool:
        """Return whether a kept result is current, and so are those that its cell began with.

        A result that is not kept has nothing that could be out of date.
        """
        if not self.is_current(kept[cell]):
            return False
        return all(self._stands(other, kept) for other in self._begins_with(cell) if other in kept)

    def is_current(self, record: Record) -> bool:
        """Return whether a kept result has the settings that its cell has now."""
        cell = record.cell
        return record.is_of(
            self.experiment(cell),
            removed=self.study.rows[cell.row].removed_settings,
            site_files=self.files_of(cell) is not None,
        )

    def run_cell(self, cell: Cell) -> str:
        """Run a cell, keep its result, and return its test values for a person to read.

        Raises:
            RunError: a site failed, or a metric of the study has no test value.
        """
        experiment = self.experiment(cell)
        files = self._files_with_labels(cell)
        for site, folder in self.folders(cell).items():
            sites = self.sites_of(cell) if site == _ALL_SITES else [site]
            run_or_resume(
                experiment, folder, sites, files, self.out / "cache", self._init_folder(cell)
            )
        compared = self.compared(cell)
        if compared:
            rewrite_report(self._joint_folder(cell), compared)
        result = record(cell, self.runs(cell), self.drawn(cell))
        values = result.test["last"]
        undefined = [metric for metric in self.study.metrics if not has_values(result, metric)]
        if undefined:
            raise RunError(
                f"run {self._folder(cell)}",
                "Name other metrics in the study, or give sites five test images or more of each "
                "class, and labelled validation images, which choose the round.",
                expected=f"test values of {', '.join(undefined)}",
                found="none",
            )
        add_records(self.file, [recorded_under(self.as_written, result)])
        return ", ".join(f"{metric} {values[metric]:.3f}" for metric in self.study.metrics)

    def compared(self, cell: Cell) -> list[Path]:
        """Return the finished runs beside which the report of a cell shows its own."""
        baselines = self._baselines(cell)
        return [run.folder for other in baselines for run in self.finished_runs(other)]

    def _baselines(self, cell: Cell) -> list[Cell]:
        """Return the cells that the report of a cell compares it with.

        They are those of few labels and of sites alone with the same seed, variant and site files.
        Only reports of the row that a page is about compare runs.
        """
        row = self.study.rows[cell.row]
        if cell.row != self.study.own or cell.doubled or row.alone:
            return []
        baselines = []
        for other in self.study.rows_of(cell.variant):
            is_baseline = other == self.study.lower or self.study.rows[other].alone
            other_cell = cell._replace(row=other)
            if other == cell.row or not is_baseline:
                continue
            if self.study.folder(other_cell) == self.study.folder(cell):
                baselines.append(other_cell)
        return baselines

    def drawn(self, cell: Cell) -> Drawn:
        """Return which images a cell uses, and what differs between its seed and the row's others.

        Synthetic images are drawn by the seed.

        Raises:
            DataError: a site file of a seed, or what it names, cannot be used.
            KeyError: the cell's own site files are not there, or its seed is none of the study.
        """
        cuts = {}
        for seed in self.seeds:
            other = cell._replace(seed=seed)
            files = self.files_of(other)
            name = self.study.folder(other)
            if files is None:
                cuts[seed] = ImageDigests(digest(["synthetic", seed]), digest(["synthetic", seed]))
            elif name in self._cuts or files.exists():
                if name not in self._cuts:
                    self._cuts[name] = cut_of(files, self.experiment(other).data)
                cuts[seed] = self._cuts[name]
        return Drawn(cuts[cell.seed], repetition_of(cell.seed, cuts))

    def experiment(self, cell: Cell) -> Experiment:
        """Return what a cell runs."""
        files = self.files_of(cell)
        data = read_data_file(files) if files else None
        return self.study.experiment(cell, self.changes, data)

    def files_of(self, cell: Cell) -> Path | None:
        """Return the folder of a cell's site files; None if its images are synthetic."""
        name = self.study.folder(cell)
        return self.site_files / name if name else None

    def sites_of(self, cell: Cell) -> list[str]:
        """Return the sites of a cell, with labels or without."""
        return default_sites(self.experiment(cell), self.files_of(cell))

    def folders(self, cell: Cell) -> Folders:
        """Return the folders of a cell's runs, at least one.

        Raises:
            ConfigError: sites train alone, and none of them sees a label.
        """
        folder = self._folder(cell)
        if not self.study.rows[cell.row].alone:
            return {_ALL_SITES: folder}
        files = self.files_of(cell)
        sites = self.sites_of(cell)
        if files:
            sites = [site for site in sites if _sees_labels(files / f"{site}.yaml")]
            if not sites:
                raise ConfigError(
                    f"row {cell.row}, sites of {files}",
                    "Let some of them see labels, or leave out the row.",
                    expected="sites that can train alone, with labels",
                    found="none",
                )
        return {site: folder / site for site in sites}

    def _joint_folder(self, cell: Cell) -> Path:
        """Return the folder of a run of all sites together."""
        return self.folders(cell)[_ALL_SITES]

    def _folder(self, cell: Cell) -> Path:
        name = f"seed-{cell.seed}-doubled" if cell.doubled else f"seed-{cell.seed}"
        return self.out / cell.variant / cell.row / name

    def runs(self, cell: Cell) -> list[Run]:
        """Return a cell's finished runs; RunError if a site failed in one."""
        return [complete_run(folder) for folder in self.folders(cell).values()]

    def finished_runs(self, cell: Cell) -> list[Run]:
        """Return a cell's runs if all lie here and have finished; else nothing."""
        # Without the cell's folder its site files may be missing too.
        if not self._folder(cell).exists():
            return []
        folders = self.folders(cell).values()
        if not all((folder / "run.json").exists() for folder in folders):
            return []
        runs = [Run.load(folder) for folder in folders]
        return runs if all(run.info.status == "finished" for run in runs) else []

    def _init_folder(self, cell: Cell) -> Path | None:
        """Return the run folder whose weights a cell starts from; None: fresh weights."""
        row = self.study.rows[cell.row].init
        return self._run_of(row, cell).folder if row else None

    def _files_with_labels(self, cell: Cell) -> Path | None:
        """Return the folder of a cell's site files.

        If another row bought the labels that the cell may use, new site files name these.

        Raises:
            ConfigError: a run of this cell began with other labels than that row has bought now, or
                nothing says with which.
        """
        files = self.files_of(cell)
        buying_row = self.study.rows[cell.row].labels
        if files is None or not buying_row:
            return files
        folder = self._folder(cell)
        own_files = folder.with_name(f"{folder.name}.sites")
        texts = files_with_bought_labels(files, self._run_of(buying_row, cell))
        if (folder / "run.json").exists():
            difference = _difference_of_labels(own_files, texts)
            if difference:
                raise ConfigError(
                    f"run {folder}",
                    f"Delete this folder, so that {cell} runs again.",
                    expected=f"a run with the labels that the row {buying_row} has bought",
                    found=difference,
                )
            return own_files
        make_folder(own_files)
        for name, text in texts.items():
            (own_files / name).write_text(text, encoding="utf-8")
        return own_files

    def _begins_with(self, cell: Cell) -> list[Cell]:
        """Return the cells whose weights and labels a cell begins with."""
        row = self.study.rows[cell.row]
        return [self._beside(cell, other) for other in (row.init, row.labels) if other]

    def _beside(self, cell: Cell, row: str) -> Cell:
        """Return another row's cell with a cell's seed and variant.

        If the variant does not change that row, its cell in the first variant counts.
        """
        return Cell(self.study.variant_of(cell.variant, row), row, cell.seed)

    def _run_of(self, row: str, cell: Cell) -> Run:
        """Return the run of :meth:`_beside`."""
        return complete_run(self._joint_folder(self._beside(cell, row)))


def _difference_of_labels(folder: Path, texts: Mapping[str, str]) -> str:
    """Return why the site files of a run do not name the labels of today; empty if they do.

    Args:
        folder: holds the site files that the run began with.
        texts: name of a site file -> its text with the labels of today.
    """
    for name, text in texts.items():
        file = folder / name
        if not file.exists():
            return f"one whose labels nobody knows: there is no {file}"
        if file.read_bytes() != text.encode():
            return "one with others: that row has run again, with other settings"
    return ""


def _sees_labels(site_file: Path) -> bool:
    """Return whether a site sees any label; alone, a site without labels learns nothing."""
    return bool(read_site_file(site_file).labelled)


def complete_run(folder: Path) -> Run:
    """Return the run in a folder, so that tables compare complete runs only.

    Raises:
        RunError: it has not finished, a site failed when it was asked to train, or one did not
            evaluate the last model. A site without anything to train on has not failed.
    """
    run = Run.load(folder)
    if run.info.status != "finished":
        raise RunError(
            f"run {run.folder}",
            "Fix what stopped it, and run the command again: the run goes on.",
            expected="one that has finished",
            found=run.info.status,
        )
    remedy = "Fix what failed, delete the folder, and run the command again."
    for row in run.rounds:
        failed: dict[str, str] = {}
        for site, reason in row.failed.items():
            if not took_no_step(reason):
                failed[site] = reason
        if failed:
            raise RunError(
                f"run {run.folder}, round {row.round}",
                remedy,
                expected="all sites to train",
                found=_listed(failed),
            )
    not_evaluated = run.info.summary.not_evaluated
    if not_evaluated:
        raise RunError(
            f"run {run.folder}, last evaluation",
            remedy,
            expected="all sites to evaluate the model",
            found=_listed(not_evaluated),
        )
    return run


def _listed(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{site}: {reason}" for site, reason in reasons.items())


def run_or_resume(
    experiment: Experiment,
    folder: Path,
    sites: list[str],
    files: Path | None,
    cache: Path,
    init: Path | None = None,
) -> None:
    """Run an experiment in ``folder``, or continue the run that lies there.

    Sites note how good their pseudo-labels are. What the run prints goes to a file beside the
    folder. ``init`` is the folder of a finished run, whose weights a new one starts from.

    Raises as :func:`require_same` and :class:`fedward.lab.simulation.Simulation`.
    """
    require_same(folder, experiment, init)
    simulation = Simulation(
        experiment,
        folder,
        sites,
        site_files=files,
        init=init,
        cache=cache,
        checks_pseudo_labels=True,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    console_log = folder.with_name(f"{folder.name}.txt")
    with console_log.open("a", encoding="utf-8") as console, redirect_stdout(console):
        if (folder / "run.json").exists():
            simulation.resume()
        else:
            # A site alone may have too few test images for a number of its own. It runs all the
            # same, and its row is the mean over sites.
            simulation.entered(print_folded, unmeasured=len(sites) == 1).run()


def require_same(folder: Path, experiment: Experiment, init: Path | None = None) -> None:
    """Raise if the run in ``folder`` is another one than that which is asked for.

    Args:
        folder: a run folder, or a folder without a run.
        experiment: the settings that are asked for.
        init: folder of the finished run whose weights it starts from; None: fresh weights. If that
            run has not written its model yet, weights are not compared.

    Raises:
        ConfigError: the run has other settings, or started from other weights.
        RunError: its run.json cannot be read, or is of another version.
    """
    if not (folder / "run.json").exists():
        return
    run = RunFolder.reopen(folder)
    asked = by_dotted_name(experiment.model_dump())
    ran = by_dotted_name(run.experiment.model_dump())
    differing = [key for key in sorted({*asked, *ran}) if asked.get(key) != ran.get(key)]
    if differing:
        raise ConfigError(
            f"run {folder}, settings",
            _ANOTHER_FOLDER,
            expected=", ".join(f"{key}={asked.get(key)}" for key in differing),
            found=", ".join(f"{key}={ran.get(key)}" for key in differing),
        )
    model = init / "model.safetensors" if init else None
    if model and not model.exists():
        return
    started_from = (run.info.init or {}).get("sha256")
    wanted = file_digest(model) if model else None
    if started_from != wanted:
        fresh = "one from fresh weights"
        raise ConfigError(
            f"run {folder}",
            "Delete its folder and run the command again, or name another one with --out.",
            expected=f"one from the weights in {model}, SHA-256 {wanted}" if model else fresh,
            found=f"one from others, SHA-256 {started_from}" if started_from else fresh,
        )


def note_images(out: Path, site_files: Path) -> None:
    """Note whose images the runs in ``out`` see; ConfigError if they saw others before.

    The site files are named by their path from ``out``, so that both can be moved together.
    """
    asked = relpath(site_files.resolve(), out.resolve())
    note = out / "images.txt"
    if not note.exists():
        make_folder(out)
        with replacing(note) as partial_note:
            partial_note.write_text(asked, encoding="utf-8")
        return
    noted = note.read_text(encoding="utf-8")
    if noted != asked:
        raise ConfigError(
            f"runs in {out}, --site-files", _ANOTHER_FOLDER, expected=noted, found=asked
        )
