"""A site's half of a FLARE job: unpacks the request, lets the site answer, packs the answer.

The modules that import PyTorch are imported within functions, so that a site's process that waits
for a job does not hold it in memory.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvflare.apis.analytix import AnalyticsDataType
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.widgets.streaming import create_analytic_dxo, send_analytic_dxo

from fedward.errors import ConfigError, WorkError
from fedward.flare.classes import TRAINER
from fedward.flare.jobs.configurations import (
    DEVICES,
    SYNTHETIC,
    Device,
    described_in,
    experiment_in,
)
from fedward.flare.launchers import RESTARTS
from fedward.flare.places import site_folders, state_folder
from fedward.flare.process_memory import ProcessMemory
from fedward.flare.shareables import pack_answer, unpack
from fedward.terminal import reason
from fedward.tracking import scalars

if TYPE_CHECKING:
    from fedward.client.respondent import Respondent
    from fedward.security.policy import Policy


class MonaiTrainerExecutor(Executor):  # type: ignore[misc]
    """Lets a site answer the controller's requests: to train, to evaluate, to ask for labels.

    The trainer is the same for all methods (:mod:`fedward.training.trainer`); the loss that a
    method minimises is in the method's own file. The experiment is not among the arguments: the
    executor reads it where the controller does, in the server's file of the same app, so that the
    two cannot differ. The client is made at the first request.

    No exception leaves the executor, because FLARE fails the whole job when one site's process
    dies.

    Args:
        trainer: the class that runs the training; there is one, MONAI's.
        device: ``auto`` trains on a GPU where the site has one, ``cpu`` always on the CPU. A device
            in the site's own file takes precedence.

    Raises:
        ConfigError: the trainer or the device is not one of these.
    """

    def __init__(self, trainer: str = TRAINER, device: Device = "auto") -> None:
        super().__init__()
        if trainer != TRAINER:
            raise ConfigError(
                "trainer of MonaiTrainerExecutor", expected=TRAINER, found=f"{trainer!r:.80}"
            )
        if device not in DEVICES:
            raise ConfigError(
                "device of MonaiTrainerExecutor",
                "A site names one of its GPUs in its own file.",
                expected=" or ".join(DEVICES),
                found=f"{device!r:.80}",
            )
        self._device = device
        self._client: Respondent | None = None
        self._part = 0
        """Number, within its round, of the exchange that is answered or was answered last."""
        self._memory = ProcessMemory()

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Return the site's answer; after an error, an answer that names the kind of error."""
        site_name = fl_ctx.get_identity_name()
        round_ = None
        try:
            from fedward.protocol.wire import Message

            meta, arrays = unpack(shareable)
            round_ = meta.get("round")
            if self._client is None:
                self._client = _new_client(fl_ctx, self._device)
            self._part = meta.get("part", 0)
            answer = self._client.answer(
                Message(meta, arrays), lambda: bool(abort_signal.triggered)
            )
        except Exception as error:
            self.log_exception(fl_ctx, f"round {round_}: {error}")
            return pack_answer({"site": site_name, "round": round_, **_error_fields(error)}, {})
        # How often this job's process was killed at its site and started again.
        restarts = int(os.environ.get(RESTARTS, "0"))
        if restarts:
            return pack_answer({**answer.meta, "restarts": restarts}, answer.arrays)
        return pack_answer(answer.meta, answer.arrays)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Log an answer once FLARE's filters have seen it, and free memory once it has left."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.AFTER_TASK_RESULT_FILTER and self._client is not None:
            self._log(self._client, fl_ctx)
        elif event_type == EventType.AFTER_SEND_TASK_RESULT:
            self._memory.trim()

    def _log(self, client: "Respondent", fl_ctx: FLContext) -> None:
        """Write an answer into the site's log, then send its scalars for tracking.

        An answer that cannot be logged does not leave the site.
        """
        from fedward.protocol.wire import Message

        task_result = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
        try:
            answer = Message(*unpack(task_result))
            client.log.add(answer)
        except Exception as error:
            self.log_exception(fl_ctx, f"the site's log: {error}")
            task_result.clear()
            task_result.set_return_code(ReturnCode.EXECUTION_EXCEPTION)
            return
        exchanges = client.requirements.server.exchanges
        for tag, step, value in scalars(answer.meta, self._part, exchanges):
            dxo = create_analytic_dxo(tag, value, AnalyticsDataType.SCALAR, global_step=step)
            send_analytic_dxo(self, dxo, fl_ctx)


def _new_client(fl_ctx: FLContext, device: Device) -> "Respondent":
    """Return the client that answers the requests of this job at this site."""
    from fedward.client.admission import Admission, admit_extensions
    from fedward.client.client import client_of
    from fedward.client.site_data import DataSource
    from fedward.client.site_log import SiteLog
    from fedward.flare.encryption import SITE, context_of
    from fedward.methods import job_of
    from fedward.security.encryption import SiteKey

    workspace = fl_ctx.get_engine().get_workspace()
    job_id = fl_ctx.get_job_id()
    site_name = fl_ctx.get_identity_name()
    config_folder = Path(workspace.get_app_config_dir(job_id))
    site_state = state_folder(Path(workspace.get_root_dir()))
    # FLARE's own process knows whether it is the simulator. The job's id comes from the server,
    # which could name a job like one of the simulator's.
    simulated = fl_ctx.get_prop(FLContextKey.SIMULATE_MODE, False) is True
    # In the simulator there is no policy: Admission's defaults forbid nothing.
    rules = () if simulated else _rules(fl_ctx)
    if rules:
        # This comes first, because reading the experiment imports the packages that it names.
        policy_reader, *_ = rules
        admit_extensions(site_name, policy_reader, described_in(config_folder))
    experiment = experiment_in(config_folder)
    key = SiteKey(context_of(SITE, fl_ctx)) if experiment.secure_aggregation else None
    algorithm = job_of(experiment)
    log = SiteLog(site_state, site_name, experiment, algorithm, job_id)
    source = DataSource(
        site_name,
        experiment,
        site_state,
        site_folders(workspace),
        synthetic=fl_ctx.get_engine().get_component(SYNTHETIC),
    )
    admission = Admission(site_name, experiment, algorithm, site_state, *rules)
    return client_of(source, algorithm, log, admission, key, device=device)


def _rules(fl_ctx: FLContext) -> "tuple[Callable[[], Policy], bool, str]":
    """Return the reader of this site's policy, and what it must know of the job's privacy scope.

    That is whether the scope adds noise, and its name (empty for none). FLARE has chosen the scope
    by the job's meta, and its filters are those that run.
    """
    from fedward.flare.privacy import adds_noise
    from fedward.security.policy import POLICY_FILE, read_policy

    workspace = fl_ctx.get_engine().get_workspace()
    file = Path(workspace.get_site_config_dir()) / POLICY_FILE
    scope = fl_ctx.get_prop(FLContextKey.SCOPE_OBJECT)
    return partial(read_policy, file), adds_noise(scope), scope.name if scope else ""


def _error_fields(error: Exception) -> dict[str, Any]:
    """Return the fields of an answer that report an error to the server.

    They are for errors from before there is a client, which reports its own. The text of most
    errors stays at the site, because it may name files.
    """
    # The text of a WorkError, such as that of a policy, is written for the server.
    if not isinstance(error, WorkError):
        return {"error": f"{type(error).__name__}: the details are in the site's own log"}
    fields: dict[str, Any] = {"error": reason(str(error))}
    if getattr(error, "final", False):
        fields["refused"] = True
    return fields
