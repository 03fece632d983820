"""The server's half of a FLARE job."""

from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.workflows.model_controller import ModelController
from nvflare.widgets.info_collector import InfoCollector

from fedward.config import Experiment
from fedward.errors import FedwardError
from fedward.federation.driver import run_experiment
from fedward.federation.encryption import Adder
from fedward.federation.encryption_transport import EncryptedTransport
from fedward.federation.flare.encryption import SERVER, context_of
from fedward.federation.flare.places import (
    metrics_folder,
    put_into_results,
    results_folder,
    run_folder,
    site_folders,
)
from fedward.federation.flare.status import STATS
from fedward.federation.flare.transport import FlareTransport
from fedward.federation.initial import Source
from fedward.federation.job_metrics import JobMetrics
from fedward.federation.progress import progress
from fedward.federation.transport import Transport
from fedward.report import write_report
from fedward.report.console import Console


class FedwardController(ModelController):  # type: ignore[misc]
    """Runs an experiment on the sites of a FLARE job.

    A run whose folder exists already is continued; see :func:`~fedward.federation.flare.places.run_folder` for where
    that is. The job's results hold the run also when it fails, but not one that this job may not continue. An error of
    the run ends the job as failed, with its text.

    Args:
        experiment: an :class:`Experiment` as plain JSON values.
        init: ``folder`` and ``sha256`` of the weights that the run starts from, which lie in the app's ``config``
            folder; see :func:`~fedward.federation.flare.jobs.export_job`.
    """

    def __init__(self, experiment: dict[str, Any], init: dict[str, str] | None = None) -> None:
        super().__init__(persistor_id="")
        self.experiment, self.init = experiment, init
        self.folder: Path | None = None
        """The run's, once this job has opened it."""
        self._metrics: JobMetrics | None = None

    def run(self) -> None:
        """Run the experiment to its end; FLARE calls this in a thread of its own."""
        experiment = Experiment.parse(self.experiment, "FLARE job")
        workspace, job_id = self.engine.get_workspace(), self.fl_ctx.get_job_id()
        job = self.fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        folder = run_folder(workspace, job_id, job)
        if metrics := metrics_folder():
            self._metrics = JobMetrics(metrics, job.get("name", job_id), job_id)
        try:
            self.folder = run_experiment(
                experiment,
                folder,
                self._transport(experiment, folder),
                engine="flare",
                console=Console(),
                report=write_report,
                resume=(folder / "run.json").exists(),
                site_folders=site_folders(workspace),
                init=Source(Path(workspace.get_app_config_dir(job_id)), self.init) if self.init else None,
                watch=self._opened,
            )
        finally:
            if self.folder:  # else the run was refused: its folder holds another one's
                put_into_results(self.folder, results_folder(workspace, job_id))

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Answer FLARE's command ``show_stats`` with the run's progress."""
        super().handle_event(event_type, fl_ctx)
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR).set_info(STATS, self._progress())

    def _opened(self, folder: Path) -> None:
        """Take note that the run has written to its folder."""
        self.folder = folder
        if self._metrics:
            self._metrics(folder)

    def _progress(self) -> dict[str, Any]:
        if self.folder is None:
            return {}
        try:
            return progress(self.folder)
        except FedwardError as error:
            return {"error": str(error)}

    def _transport(self, experiment: Experiment, folder: Path) -> Transport:
        transport = FlareTransport(self)
        if not experiment.secure_aggregation:
            return transport
        return EncryptedTransport(transport, experiment, Adder(context_of(SERVER, self.fl_ctx)), folder)
