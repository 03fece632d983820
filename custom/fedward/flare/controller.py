"""The server's half of a FLARE job: what all controllers of ``workflows.py`` have in common."""

import inspect
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.workflows.model_controller import ModelController
from nvflare.widgets.info_collector import InfoCollector

from fedward.config import Experiment
from fedward.console.console import Console
from fedward.errors import FedwardError
from fedward.flare.encryption import SERVER, context_of
from fedward.flare.jobs.artifacts import write_artifacts
from fedward.flare.jobs.configurations import SYNTHETIC, described
from fedward.flare.jobs.status import STATS
from fedward.flare.places import (
    METRICS,
    named_folder,
    put_into_results,
    put_reason,
    results_folder,
    run_folder,
    run_id,
    site_folders,
)
from fedward.flare.transport import FlareTransport
from fedward.methods import method_of, settings_of
from fedward.protocol.transport import Transport
from fedward.report import write_report
from fedward.security.encryption import Adder
from fedward.server.encrypted_transport import EncryptedTransport
from fedward.server.job_metrics import JobMetrics
from fedward.server.loop import run_experiment
from fedward.server.progress import progress
from fedward.starting_model import Source


class ExperimentController(ModelController):  # type: ignore[misc]
    """Runs an experiment on the sites of a FLARE job.

    A run whose folder exists already (:func:`~fedward.flare.places.run_folder`) is continued. The
    job's results hold the run also when it fails, but not one that this job may not continue. An
    error of the run ends the job as failed, with its text.

    Args:
        experiment: all else of an :class:`~fedward.config.Experiment`, as plain JSON values: data,
            network, seed.
        init: ``folder`` and ``sha256`` of the weights that the run starts from, in the app's
            ``config`` folder.
        settings: those of the method; a class of one method shows their names, types and defaults.

    Raises:
        ConfigError: an argument that is unknown or wrong.
    """

    method: str

    def __init_subclass__(cls, method: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if method:
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
        self.experiment = Experiment.parse(described(self.method, arguments, where), where)
        self.algorithm = method_of(self.experiment)
        self.init = init
        self.folder: Path | None = None
        """The run's, once this job has opened it."""
        self._metrics: JobMetrics | None = None

    def run(self) -> None:
        """Run the experiment to its end; FLARE calls this in a thread of its own."""
        workspace = self.engine.get_workspace()
        job_id = self.fl_ctx.get_job_id()
        job = self.fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        folder = run_folder(workspace, job_id, job)
        metrics = named_folder(METRICS)
        if metrics:
            self._metrics = JobMetrics(metrics, job.get("name", job_id), job_id)
        init = Source(Path(workspace.get_app_config_dir(job_id)), self.init) if self.init else None
        transport: Transport = FlareTransport(self)
        if self.experiment.secure_aggregation:
            adder = Adder(context_of(SERVER, self.fl_ctx))
            transport = EncryptedTransport(
                transport, self.experiment, self.algorithm, adder, folder
            )
        try:
            self.folder = run_experiment(
                self.experiment,
                self.algorithm,
                folder,
                transport,
                engine="flare",
                console=Console(),
                report=write_report,
                resume=(folder / "run.json").exists(),
                site_folders=site_folders(workspace),
                synthetic=self.engine.get_component(SYNTHETIC),
                init=init,
                watch=self._opened,
                run_id=run_id(job),
            )
        except Exception as error:
            if (
                not self.folder
            ):  # the run was refused: its folder does not exist, or holds another one's
                put_reason(error, results_folder(workspace, job_id))
            raise
        finally:
            if self.folder:
                put_into_results(self.folder, results := results_folder(workspace, job_id))
                write_artifacts(results)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Answer FLARE's command ``show_stats`` with the run's progress."""
        super().handle_event(event_type, fl_ctx)
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            try:
                found = progress(self.folder) if self.folder else {}
            except FedwardError as error:
                found = {"error": str(error)}
            fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR).set_info(STATS, found)

    def _opened(self, folder: Path) -> None:
        """Remember the folder that the run has written to."""
        self.folder = folder
        if self._metrics:
            self._metrics(folder)


def _signature(method: str) -> inspect.Signature:
    """Return the arguments of a method's controller: its settings, with their types and defaults,
    and the common.
    """
    settings = settings_of(method, {})
    kind = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(type(settings)).parameters.values()
    common = inspect.signature(ExperimentController.__init__).parameters
    arguments = [parameter.replace(default=getattr(settings, parameter.name)) for parameter in own]
    return inspect.Signature(
        [*arguments, *(common[name].replace(kind=kind) for name in ("experiment", "init"))]
    )
