"""A run from its beginning to its end: opening the folder, the job's course, the report.

What a job does in between is in :mod:`fedward.server.loop` if it trains a model, and in
:mod:`fedward.server.survey` if it counts images.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedward.client.site_data import SyntheticSource
from fedward.config import Experiment
from fedward.console.listener import Listener
from fedward.errors import ConfigError, interruption
from fedward.methods.algorithm import Algorithm
from fedward.methods.survey import Survey
from fedward.protocol.transport import Transport
from fedward.server.consent import Consent, RunRefusedError
from fedward.server.loop import TrainingCourse
from fedward.server.public import PublicImages, are_drawn
from fedward.server.survey import SurveyCourse
from fedward.starting_model import FirstModel, Source
from fedward.storage.info import INTERRUPTED, Summary
from fedward.storage.lock import sole_writer
from fedward.storage.run_folder import NewRun, RunFolder
from fedward.training.machine import limit_threads

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engine:
    """What an engine gives to the runs that it carries out."""

    transport: Transport
    """How messages reach the sites."""
    console: Listener
    """Receives the events of the run."""
    report: Callable[[Path], object]
    """Writes the report into the folder of a run that has ended."""
    site_folders: Sequence[Path] = ()
    """Folders that may hold the server's own public images, if the method uses any."""
    synthetic: SyntheticSource | None = None
    """In a simulation, makes public images for a server that has no file of its own."""
    watch: Callable[[Path], None] | None = None
    """Called with the run folder after every commit and change of status."""


def begin_run(
    experiment: Experiment,
    algorithm: Algorithm[Any] | Survey,
    folder: Path,
    engine: Engine,
    new: NewRun,
    init: Source | None = None,
) -> Path:
    """Run an experiment from its beginning to its end, and return its folder.

    Args:
        experiment: what to run.
        algorithm: the experiment's method, or its survey.
        folder: the run folder, which is new or empty.
        engine: what carries out the run.
        new: what the folder records of the run's beginning.
        init: a finished run's weights, used wherever name and shape are the same.

    Raises:
        RunRefusedError: too many sites' policies refuse the job for ``minimum_replies`` to be
            reached.
        RunError: no usable replies in three rounds in a row; no round changed the model; or the
            folder holds files.
        ConfigError: the settings cannot work: an unknown network, fewer sites than replies needed,
            no images of the server's own although the method needs some, or ``init`` cannot be
            used.
    """
    course = _course(experiment, algorithm, folder, engine, init)
    _check_enough_sites(experiment, engine.transport.sites())
    first = course.prepare()
    with sole_writer(folder):
        run = RunFolder.create(
            folder,
            experiment,
            algorithm.requirements,
            engine.transport.sites(),
            new,
            init=first.taken if first else None,
            base=first.base if first else None,
        )
        _go_on(run, course, algorithm, engine)
    return folder


def resume_run(
    experiment: Experiment,
    algorithm: Algorithm[Any] | Survey,
    folder: Path,
    engine: Engine,
    init: Source | None = None,
) -> Path:
    """Continue a run after its last finished round, and return its folder.

    The final weights are those of a run that was never interrupted. A finished run is not changed;
    it gets its report if that is missing.

    Args:
        experiment: what the run began with.
        algorithm: the experiment's method, or its survey.
        folder: the run folder.
        engine: what carries out the run from here on.
        init: the weights that the run began with, if it took any. They are needed only if it was
            interrupted before its first commit.

    Raises as :func:`begin_run` does, and:
        RunError: the folder does not fit ``experiment`` or ``init``, or another process writes it.
    """
    course = _course(experiment, algorithm, folder, engine, init)
    with sole_writer(folder):
        run = RunFolder.reopen(
            folder, experiment, algorithm.requirements.sends.records, engine.transport.sites()
        )
        if init:
            init.check(folder, run.info)
        if not run.finished:
            course.check_resumed(run)
            _go_on(run, course, algorithm, engine)
        elif not run.reported:  # The report failed, or the process was killed before it.
            run.report(engine.report)
    return folder


def _course(
    experiment: Experiment,
    algorithm: Algorithm[Any] | Survey,
    folder: Path,
    engine: Engine,
    init: Source | None,
) -> "_Course":
    """Return what the job does from its beginning to its summary."""
    limit_threads(1)  # With more threads, sums would round differently from machine to machine.
    synthetic = are_drawn(experiment, engine.site_folders, engine.synthetic)
    if isinstance(algorithm, Survey):
        return SurveyCourse(algorithm, synthetic)
    server_folder = folder / "server"
    images = PublicImages(
        experiment, algorithm, server_folder, engine.site_folders, engine.synthetic
    )
    return TrainingCourse(experiment, algorithm, images, init, synthetic)


class _Course(Protocol):
    """What a run does from its beginning to its summary, by the kind of its job."""

    def prepare(self) -> FirstModel | None:
        """Return the model that a new run starts from; None where the job has no model.

        It is called before there is a run folder, so that a ConfigError leaves none behind.
        """

    def check_resumed(self, run: RunFolder) -> None:
        """Raise RunError if a run cannot go on as it began."""

    def carry_out(
        self, run: RunFolder, transport: Transport, consent: Consent, listener: Listener
    ) -> Summary:
        """Do the work that is left of a run, finish it, and return its summary."""


def _go_on(
    run: RunFolder, course: _Course, algorithm: Algorithm[Any] | Survey, engine: Engine
) -> None:
    """Carry out a run that has not finished, and write its report, also if it fails.

    An error of the report alone leaves the run finished: :func:`resume_run` writes the report then.
    """
    if engine.watch is not None:
        run.watch = engine.watch
    consent = Consent(run, engine.console)
    run.set_status("running", Summary())
    try:
        summary = course.carry_out(run, engine.transport, consent, engine.console)
    except BaseException as error:
        # Ctrl-C and an abort count too: the folder must not claim that the run still goes on.
        _record_failure(run, error, consent, engine.report, engine.console)
        raise
    engine.console.reporting(None)
    try:
        run.report(engine.report)
    finally:  # With or without a report, the run has finished.
        engine.console.closing(run.path, summary, algorithm.requirements.tensors.untrained)


def _record_failure(
    run: RunFolder,
    error: BaseException,
    consent: Consent,
    report: Callable[[Path], object],
    console: Listener,
) -> None:
    """Write into a run's folder and onto the console that it has failed, and why."""
    # A run may go on without some that refuse, and fail for another reason.
    refused = consent.refused if isinstance(error, RunRefusedError) else {}
    summary = Summary(reason=_reason(error), **refused)
    console.reporting(summary.reason)
    try:
        run.set_status("failed", summary)
        run.report(report)
    except Exception as further:  # It must not hide the one that ended the run.
        # A disk that refuses the run refuses its report: that is said once.
        if not (isinstance(error, OSError) and isinstance(further, OSError)):
            _log.exception("no report of the failed run %s", run.path)
    console.closing(run.path, summary)


def _reason(error: BaseException) -> str:
    """Return why a run has failed, as its folder and the console say it."""
    if interruption(error):
        return INTERRUPTED
    if isinstance(error, OSError) and error.strerror:
        # Its own text begins with a number, such as [Errno 28].
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}"
    return str(error) or type(error).__name__


def _check_enough_sites(experiment: Experiment, sites: Sequence[str]) -> None:
    """Raise ConfigError where a new run has fewer sites than replies needed."""
    if len(sites) < experiment.minimum_replies:
        raise ConfigError(
            "minimum_replies",
            expected=f"at most the number of sites, {len(sites)}",
            found=str(experiment.minimum_replies),
            remedy="Lower it, or run with more sites.",
        )
