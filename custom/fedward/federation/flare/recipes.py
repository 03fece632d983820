"""An experiment as a FLARE recipe, which runs in ``SimEnv``, ``PocEnv`` and ``ProdEnv``.

Importing this module imports ``nvflare.recipe``, which takes ``--export`` and ``--export-dir`` out of ``sys.argv``; the
fedward command therefore never does.
"""

from nvflare.app_common.widgets.convert_to_fed_event import ConvertToFedEvent
from nvflare.app_opt.tracking.tb.tb_receiver import TBAnalyticsReceiver
from nvflare.job_config.api import FedJob
from nvflare.recipe.spec import Recipe

from fedward.config import Experiment
from fedward.federation.flare import jobs
from fedward.federation.flare.controller import FedwardController
from fedward.federation.flare.executor import FedwardExecutor
from fedward.federation.flare.shareables import TASK


class FedwardRecipe(Recipe):  # type: ignore[misc]
    """The same controller, executor and settings as the exported research job, for every connected site.

    Args:
        experiment: what to run.
        name: the job's name; the method's by default.
    """

    def __init__(self, experiment: Experiment, name: str | None = None) -> None:
        job = FedJob(name=name or experiment.method, min_clients=experiment.minimum_replies)
        job.set_app_packages(["fedward"])
        plain = experiment.model_dump(mode="json")
        job.to_server(FedwardController(plain), id="controller")
        job.to_server(TBAnalyticsReceiver(), id="tensorboard")
        job.to_server({"server": {"task_request_interval": jobs.POLLING}})
        job.to_clients(FedwardExecutor(plain), tasks=[TASK])
        job.to_clients(ConvertToFedEvent(["analytix_log_stats"]), id="to_server")
        job.to_clients({"default_task_fetch_interval": jobs.POLLING})
        job.add_file_to_clients(str(jobs.MARKER))
        super().__init__(job)
