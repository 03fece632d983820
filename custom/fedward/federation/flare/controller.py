"""The server's half of a FLARE job."""

from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.app_common.workflows.model_controller import ModelController

from fedward.config import Experiment
from fedward.federation.driver import run_experiment
from fedward.federation.flare.places import run_folder, site_folders
from fedward.federation.flare.transport import FlareTransport


class FedwardController(ModelController):  # type: ignore[misc]
    """Runs an experiment on the sites of a FLARE job.

    The run folder lies in the job's results, or under ``FEDWARD_RUNS`` at the server, where a job submitted again
    continues it. An error of the run ends the job as failed, with its text.

    Args:
        experiment: an :class:`Experiment` as plain JSON values.
    """

    def __init__(self, experiment: dict[str, Any]) -> None:
        super().__init__(persistor_id="")
        self.experiment = experiment

    def run(self) -> None:
        """Run the experiment to its end; FLARE calls this in a thread of its own."""
        experiment = Experiment.parse(self.experiment, "FLARE job")
        workspace = self.engine.get_workspace()
        job = self.fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        folder = run_folder(workspace, self.fl_ctx.get_job_id(), job.get("name", experiment.method))
        run_experiment(
            experiment,
            folder,
            FlareTransport(self),
            engine="flare",
            resume=(folder / "run.json").exists(),
            site_folders=site_folders(workspace),
        )
