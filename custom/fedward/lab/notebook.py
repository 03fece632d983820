"""The public functions for experiments and runs; models are in :mod:`fedward.inference`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.jobs import changed_experiment, refuse_without_effect, with_defaults_of_images
from fedward.lab.arguments import options_of, public
from fedward.lab.results import Run
from fedward.lab.run_check import print_folded
from fedward.lab.simulation import Simulation, default_sites
from fedward.registry import KINDS
from fedward.sites.data_file import read_data_file

_job_names: dict[str, str] = {}
"""Digest of an experiment -> name of the job that it was last made from, for its run's record."""


@public()
def experiment(job: str, *, site_files: Path | str | None = None, **settings: Any) -> Experiment:
    """Return an experiment to run.

    Args:
        job: one of those that ship (:data:`fedward.jobs.JOBS`), any method's name, for the defaults
            of that method, or a JSON file with an experiment.
        site_files: folder of site files; a ``data.json`` in it says what the images are, unless
            ``settings`` says otherwise. The experiment has no synthetic images then: give
            :func:`run` the folder, too.
        settings: fields of :class:`~fedward.config.Experiment` or settings of the method. ``data``
            and ``synthetic`` are mappings; their fields that are not named keep their values.

    Raises:
        ConfigError: an unknown job, or a setting that is unknown or wrong.
        DataError: ``data.json`` cannot be read.

    Examples:
        >>> experiment("fedavg", rounds=2, seed=7, data={"image_size": 28}).options["rounds"]
        2
    """
    changes: dict[str, Any] = {}
    if site_files:
        data = read_data_file(Path(site_files)) or {}
        changes = {f"data.{field}": value for field, value in data.items()}
    for name, value in settings.items():
        if name in ("data", "synthetic") and isinstance(value, dict):
            changes |= {f"{name}.{field}": field_value for field, field_value in value.items()}
        else:
            changes[name] = value
    if site_files:
        changes = with_defaults_of_images(job, changes)
        # Otherwise a run that is not given the files would train on images that it draws itself.
        changes |= {} if "synthetic" in settings else {"synthetic": None}
    found = changed_experiment(job, changes)
    refuse_without_effect(found, settings)
    _job_names[found.digest] = Path(job).stem
    return found


@public(out="folder")
def run(  # noqa: PLR0913 - named choices of one run
    experiment: Experiment,
    folder: Path | str,
    *,
    sites: Sequence[str] | None = None,
    site_files: Path | str | None = None,
    init: Path | str | None = None,
    resume: bool = False,
    workers: int = 1,
    allow_missing: bool = False,
    unmeasured: bool = False,
) -> Run:
    """Run an experiment on this machine with all its sites, and return the finished run.

    Args:
        experiment: what to run, from :func:`experiment`. A resumed run must have been started with
            an equal one.
        folder: the run folder; it must be new or empty, or with ``resume`` that of an interrupted
            run.
        sites: names of the sites; by default those of ``site_files``, else the experiment's
            synthetic sites. A resumed run keeps its sites.
        site_files: folder with a file ``SITE.yaml`` for each site, which says where its images are;
            a resumed run needs it again.
        init: folder of a finished run, from whose last model this one starts.
        resume: continue after the last finished round.
        workers: processes in which the sites of a round work at the same time, at least 1; the
            result does not depend on it. A script with several workers must call this function
            below ``if __name__ == "__main__":``.
        allow_missing: go on without sites whose files or images cannot be used.
        unmeasured: train on site files even if fewer than two classes would be measured on test
            images.

    Returns:
        The content of the run folder: its verdict and numbers, the path of its report, which sites
        replied, and the metrics of each round.

    Raises:
        ConfigError: an unknown network, ``workers`` below 1, no site file where the experiment
            has no synthetic images, or weights that cannot be used.
        DataError: some site files or images cannot be used, nothing would be measured, or the site
            files of a resumed run are missing.
        RunError: the folder is not empty, the run to resume has another experiment, or the run
            cannot continue, for example because no site replied in three rounds in a row.
    """
    site_folder = Path(site_files) if site_files else None
    simulation = Simulation(
        experiment,
        Path(folder),
        sites or default_sites(experiment, site_folder),
        site_files=site_folder,
        init=Path(init) if init else None,
        workers=workers,
        job=_job_names.get(experiment.digest, ""),
    )
    if resume:
        return Run.load(simulation.resume())
    entered = simulation.entered(print_folded, allow_missing=allow_missing, unmeasured=unmeasured)
    return Run.load(entered.run())


@public(out="folder")
def partition(source: Path | str, folder: Path | str, **arguments: Any) -> Mapping[str, Any]:
    """Cut a data set into sites, as ``fedward partition`` does, and print what each gets.

    Args:
        source: an npz file, a CSV of images, or a folder with one folder for each class.
        folder: where the site files are written, for ``site_files`` of :func:`run`.
        arguments: the options of the command, as ``fedward partition --help`` lists them, with
            ``_`` for ``-``: ``sites=3``, ``labelled=0.2``, ``dirichlet=0.5``, ``oracle=True``,
            ``classes=["benign", "malignant"]``, ``columns={"label": "diagnosis"}``.

    Returns:
        What a job should know of the images: ``data`` of :func:`experiment`.

    Raises:
        ConfigError: the data set cannot be cut so, an unknown argument, or a folder with other
            site files.
        DataError: the data set cannot be used.
    """
    from fedward.lab.partition.command import add_partition

    options = options_of(add_partition, [str(source)], {"out": folder, **arguments})
    options.command(options)
    return read_data_file(Path(folder)) or {}


@public()
def doctor(site_file: Path | str, **arguments: Any) -> bool:
    """Check a site's data or a startup kit, as ``fedward doctor`` does, and print what was found.

    Args:
        site_file: the file that describes the site's data, or the folder of a kit.
        arguments: the options of the command, as ``fedward doctor --help`` lists them:
            ``job="fedperl"``, ``image_size=64``, ``classes=[...]``, ``out="folder"`` for the
            picture of what the network sees.

    Returns:
        Whether the site can join as it is.

    Raises:
        ConfigError: an unknown argument, or a job that does not exist.
    """
    from fedward.operation.site_commands import add_doctor

    options = options_of(add_doctor, [str(site_file)], arguments)
    status: int = options.command(options)
    return status == 0


@public()
def register(name: str, thing: Any, kind: str = "method") -> None:
    """Register a class or function under a name that experiments of this process may use.

    The entry points of a package do so for all processes. A name that was registered before is
    replaced, so that a cell of a notebook can be run again.

    Args:
        name: a name that neither fedward nor an installed package uses.
        thing: what docs/extending.md describes for its kind; for a method its class.
        kind: ``method``, ``network``, ``sampler``, ``view`` or ``metric``.

    Raises:
        ConfigError: an unknown kind, a name that is in use, or a thing of another kind.
    """
    if kind not in KINDS:
        raise ConfigError(f"{kind!r} is not a kind of {', '.join(KINDS)}", "Name one of them.")
    KINDS[kind].register(name, thing)
