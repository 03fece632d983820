"""The server's half of a FLARE job: what all controllers of ``workflows.py`` have in common."""

import inspect
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.workflows.model_controller import ModelController
from nvflare.private.fed.simulator.simulator_const import SimulatorConstants
from nvflare.widgets.info_collector import InfoCollector

from fedward.config import Experiment
from fedward.console.console import Console
from fedward.errors import ConfigError, FedwardError
from fedward.flare.encryption import SERVER, context_of
from fedward.flare.jobs.artifacts import write_artifacts
from fedward.flare.jobs.configurations import SYNTHETIC, described
from fedward.flare.jobs.status import STATS
from fedward.flare.places import (
    METRICS_VARIABLE,
    named_folder,
    put_into_results,
    put_reason,
    results_folder,
    run_folder,
    run_id,
    site_folders,
)
from fedward.flare.simulated_sites import require_usable_site_files, simulated_leaks
from fedward.flare.transport import FlareTransport
from fedward.methods import job_of, settings_of
from fedward.methods.settings import Settings
from fedward.methods.survey import Survey
from fedward.protocol.transport import Transport
from fedward.report import write_report
from fedward.security.encryption import Adder
from fedward.server.encrypted_transport import EncryptedTransport
from fedward.server.job_metrics import JobMetrics
from fedward.server.run import Engine, begin_run, resume_run
from fedward.server.run_status import progress
from fedward.starting_model import Source
from fedward.storage.run_folder import NewRun


class ExperimentController(ModelController):  # type: ignore[misc]
    """Runs an experiment on the sites of a FLARE job.

    A run whose folder exists already (:func:`~fedward.flare.places.run_folder`) is continued. The
    job's results hold the run also when it fails, but not one that this job may not continue. An
    error of the run ends the job as failed, with the error's text.

    Args:
        experiment: everything in an :class:`~fedward.config.Experiment` besides the method and its
            options, as plain JSON values: data, network, seed.
        init: ``folder`` and ``sha256`` of the weights that the run starts from, in the app's
            ``config`` folder.
        settings: the method's settings. The signature of each method's own class lists their
            names, types and defaults.

    An unknown argument or a wrong value is kept as ``problem``, with which the run then ends. FLARE
    does not tell a job's sender why a controller could not be made.
    """

    method: str
    """Name of the method; each subclass has its own."""
    settings: Settings
    """The method's settings, checked."""

    def __init_subclass__(cls, method: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if method:
            # This names the method's settings, which ``**settings`` hides.
            cls.method = method
            cls.__signature__ = _signature(method)

    def __init__(
        self,
        experiment: dict[str, Any] | None = None,
        init: dict[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(persistor_id="")
        where = f"arguments of {type(self).__name__}"
        arguments = {**settings, "experiment": experiment or {}}
        self.init = init
        self.folder: Path | None = None
        """The run's folder, once this job has opened it."""
        self._metrics: JobMetrics | None = None
        self.problem: ConfigError | None = None
        """Why this controller cannot run; it then has no experiment, algorithm and settings."""
        try:
            self.experiment = Experiment.parse(described(self.method, arguments, where), where)
            self.algorithm = job_of(self.experiment)
            self.settings = self.algorithm.settings
        except ConfigError as error:
            self.problem = error

    def round_purpose(self, round_: int) -> str:
        """Return what a round is for, in a few words; empty if all rounds are alike.

        Args:
            round_: the round's number, counted from 1.
        """
        return ""

    def run(self) -> None:
        """Run the experiment to its end. FLARE calls this in a thread of its own.

        An error of fedward's own ends the job with its text alone. FLARE would log it twice, with a
        traceback that says nothing more.
        """
        try:
            self.carry_out()
        except FedwardError as error:
            self.panic(str(error))

    def carry_out(self) -> None:
        """Run the experiment to its end, and put the run into the job's results."""
        workspace = self.engine.get_workspace()
        job_id = self.fl_ctx.get_job_id()
        job_meta = self.fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        results = results_folder(workspace, job_id)
        try:
            if self.problem:
                raise self.problem
            folder = run_folder(workspace, job_id, job_meta)
            metrics_folder = named_folder(METRICS_VARIABLE)
            if metrics_folder:
                self._metrics = JobMetrics(metrics_folder, job_meta.get("name", job_id), job_id)
            init = None
            if self.init:
                init = Source(Path(workspace.get_app_config_dir(job_id)), self.init)
            transport = self._transport(folder)
            folders = site_folders(workspace)
            simulated = job_id == SimulatorConstants.JOB_NAME
            spec = self.experiment.data
            if simulated:
                name = job_meta.get("name", self.method)
                require_usable_site_files(name, transport.sites(), folders, spec)
            engine = Engine(
                transport,
                Console(),
                write_report,
                site_folders=folders,
                synthetic=self.engine.get_component(SYNTHETIC),
                watch=self._run_changed,
            )
            if (folder / "run.json").exists():
                self.folder = resume_run(self.experiment, self.algorithm, folder, engine, init)
            else:
                new = NewRun(
                    "simulator" if simulated else "flare",
                    id=run_id(job_meta),
                    job=str(job_meta.get("name") or ""),
                    leaks=simulated_leaks(transport.sites(), folders, spec) if simulated else {},
                )
                self.folder = begin_run(self.experiment, self.algorithm, folder, engine, new, init)
        except Exception as error:
            if not self.folder:
                # The run was refused: its folder does not exist, or belongs to another job's run.
                put_reason(error, results)
            raise
        finally:
            if self.folder:
                put_into_results(self.folder, results)
                write_artifacts(results)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Answer FLARE's command ``show_stats`` with the run's progress."""
        super().handle_event(event_type, fl_ctx)
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR).set_info(STATS, self._stats())

    def _stats(self) -> dict[str, Any]:
        """Return the run's progress; empty before the run has a folder."""
        if not self.folder:
            return {}
        try:
            stats = progress(self.folder, is_own=True)
        except FedwardError as error:
            return {"error": str(error)}
        if stats["status"] == "running":
            # The round at work follows the last finished one; after the last round there is none.
            stats["purpose"] = self.round_purpose(min(stats["round"] + 1, stats["rounds"]))
        return stats

    def _transport(self, folder: Path) -> Transport:
        """Return the way to the sites, encrypted if the experiment asks for secure aggregation."""
        transport = FlareTransport(self)
        if not self.experiment.secure_aggregation:
            return transport
        assert not isinstance(self.algorithm, Survey), "a survey cannot be combined with encryption"
        adder = Adder(context_of(SERVER, self.fl_ctx))
        return EncryptedTransport(transport, self.experiment, self.algorithm, adder, folder)

    def _run_changed(self, folder: Path) -> None:
        """Remember the run's folder and write its metrics; called at each change of the run."""
        self.folder = folder
        if self._metrics:
            self._metrics(folder)


def _signature(method: str) -> inspect.Signature:
    """Return the signature of a method's controller.

    It has the method's settings, with their types and defaults, and then the arguments that all
    controllers have.
    """
    settings = settings_of(method, {})
    arguments = []
    for parameter in inspect.signature(type(settings)).parameters.values():
        arguments.append(parameter.replace(default=getattr(settings, parameter.name)))
    common = inspect.signature(ExperimentController.__init__).parameters
    for name in ("experiment", "init"):
        arguments.append(common[name].replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return inspect.Signature(arguments)
