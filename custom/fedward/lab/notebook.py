"""The public functions: what one does with experiments and runs in Python. Models are in
:mod:`fedward.inference`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.jobs import changed_experiment, simulated_sites
from fedward.lab.local import run_local
from fedward.registry import KINDS
from fedward.runs.run import Run
from fedward.sites import named_sites
from fedward.storage.run_folder import RunFolder


def experiment(job: str, **settings: Any) -> Experiment:
    """Return an experiment to run.

    Args:
        job: one of those that ship (:data:`fedward.jobs.JOBS`), any method's name, for the defaults
            of that method, or a JSON file with an experiment.
        settings: fields of :class:`~fedward.config.Experiment` or settings of the method. ``data``
            and ``synthetic`` are mappings, of which fields that are not named stay as they are.

    Raises:
        ConfigError: an unknown job, or a setting that is unknown or wrong.

    Examples:
        >>> experiment("fedavg", rounds=2, seed=7, data={"image_size": 28}).options["rounds"]
        2
    """
    changes: dict[str, Any] = {}
    for key, value in settings.items():
        nested = value if key in ("data", "synthetic") and isinstance(value, dict) else None
        changes |= (
            {key: value}
            if nested is None
            else {f"{key}.{field}": each for field, each in nested.items()}
        )
    return changed_experiment(job, changes)


def run(
    experiment: Experiment,
    folder: Path | str,
    *,
    sites: Sequence[str] | None = None,
    site_files: Path | str | None = None,
    init: Path | str | None = None,
    resume: bool = False,
    workers: int = 1,
) -> Run:
    """Run an experiment to its end on this machine, all its sites included, and return what it did.

    Args:
        experiment: of :func:`experiment`; a run that is resumed has its own, and this one must be
            equal.
        folder: the run folder; it must be new or empty, or with ``resume`` that of an interrupted
            run.
        sites: their names; by default those of ``site_files``, else the experiment's synthetic
            ones. A resumed run keeps its own.
        site_files: folder with a file ``SITE.yaml`` for each site, which says where its images are;
            a resumed run needs it again.
        init: folder of a finished run, from whose last model this one starts.
        resume: go on from the last finished round.
        workers: processes in which the sites of a round work at the same time, at least 1; the
            result does not depend on it.

    Returns:
        What the run folder tells: who replied, metrics by round, and whether it has finished. Its
        report is ``folder/report.html``.

    Raises:
        ConfigError: an unknown network, ``workers`` below 1, no site file, or weights that cannot
            be used.
        DataError: a resumed run has lost its site files.
        RunError: files in the folder, another experiment than the one to resume, or a run that
            cannot go on, as when no site replies in three exchanges in a row.
    """
    path = Path(folder)
    folders = [Path(site_files)] if site_files else []
    start = Path(init) if init else None
    names = sites or (named_sites(folders[0]) if folders else simulated_sites(experiment))
    if resume:
        RunFolder.reopen(path, experiment)
    return Run.load(
        run_local(
            experiment,
            path,
            sites=names,
            resume=resume,
            site_folders=folders,
            init=start,
            workers=workers,
        )
    )


def register(name: str, thing: Any, kind: str = "method") -> None:
    """Give a class or function a name that experiments of this process may use; a package's entry
    point is for all.

    A name that was registered before is taken over, so that a notebook's cell can be run again.

    Args:
        name: one that neither fedward nor an installed package has.
        thing: what docs/extending.md says of its kind; for a method its class.
        kind: ``method``, ``network``, ``sampler``, ``view`` or ``metric``.

    Raises:
        ConfigError: another kind, a name that is taken, or a thing of another kind.
    """
    if kind not in KINDS:
        remedy = "Name one of them."
        raise ConfigError(
            "fedward.register",
            expected=f"a kind of {', '.join(KINDS)}",
            found=repr(kind),
            remedy=remedy,
        )
    KINDS[kind].register(name, thing)
