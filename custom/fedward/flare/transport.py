"""Messages through FLARE: each site has a task with its own deadline and its own answer."""

from collections.abc import Mapping
from queue import Empty, Queue
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.app_common.workflows.model_controller import ModelController

from fedward.errors import FedwardError, RunError
from fedward.flare.process_memory import ProcessMemory
from fedward.flare.shareables import TASK, pack_request, unpack
from fedward.protocol.transport import Deliver, failed
from fedward.protocol.wire import Message

_TICK = 0.1
"""Seconds between two checks for an abort and for tasks that have ended."""


class FlareTransport:
    """Carries messages as FLARE tasks of a controller.

    Each site gets a task of its own through ``Controller.send``, which reports how a task failed
    and does not copy the model for each site. A task has data only while FLARE takes them to send
    them, so that a request that waits on the disk is read for one site at a time. FLARE itself
    drops answers that come twice or after the deadline.
    """

    def __init__(self, controller: ModelController) -> None:
        self._controller = controller
        self._memory = ProcessMemory()

    def sites(self) -> list[str]:
        """Return the sites that take part in the job, sorted by name."""
        return sorted(client.name for client in self._controller.engine.get_clients())

    def exchange(self, requests: Mapping[str, Message], timeout: int, deliver: Deliver) -> None:
        """Send every request, and deliver each answer in this thread as it arrives.

        See :class:`Transport`. A site that is not in the job gets an error as its answer, and so
        does one whose task FLARE gives up before the deadline.

        Raises:
            RunError: the job is aborted.
        """
        connected = set(self.sites())
        answers: Queue[tuple[str, Message]] = Queue()
        tasks: dict[str, Task] = {}
        try:
            for site, request in sorted(requests.items()):
                if site in connected:
                    tasks[site] = self._send(site, request, timeout, answers)
                else:
                    deliver(site, failed(site, request, "not connected to this job"))
            self._memory.trim()  # The sites are at work now, and nobody waits for this process.
            while tasks:
                if self._controller.abort_signal.triggered:
                    raise RunError("The job was aborted", "Resume it when wanted.")
                try:
                    site, answer = answers.get(timeout=_TICK)
                except Empty:
                    _drop_ended(tasks, requests, deliver)
                    continue
                if tasks.pop(site, None) is None:
                    # FLARE has given its task up while the answer arrived: it counts as lost.
                    continue
                deliver(site, answer)
                del answer  # Frees its memory before the next one arrives.
        finally:
            for task in tasks.values():
                self._controller.cancel_task(task)

    def _send(
        self, site: str, request: Message, timeout: int, answers: Queue[tuple[str, Message]]
    ) -> Task:
        def received(client_task: ClientTask, **_: Any) -> None:
            result = client_task.result
            client_task.result = None
            answers.put((site, _answer(site, request, result)))

        def fill(client_task: ClientTask, **_: Any) -> None:
            client_task.task.data = pack_request(request.meta, request.arrays)

        def empty(client_task: ClientTask, **_: Any) -> None:
            client_task.task.data = Shareable()

        callbacks = {
            "before_task_sent_cb": fill,
            "after_task_sent_cb": empty,
            "result_received_cb": received,
        }
        task = Task(TASK, Shareable(), timeout=timeout, **callbacks)
        self._controller.send(task, self._controller.fl_ctx, targets=[site])
        return task


def _drop_ended(tasks: dict[str, Task], requests: Mapping[str, Message], deliver: Deliver) -> None:
    """Remove the tasks that ended without an answer.

    A task with status OK is kept: its answer is in the queue.
    """
    for site, task in list(tasks.items()):
        status = task.completion_status
        if status in (None, TaskCompletionStatus.OK):
            continue
        del tasks[site]
        # The server loop reports a site whose deadline has passed by itself.
        if status != TaskCompletionStatus.TIMEOUT:
            deliver(site, failed(site, requests[site], _reason_of(status)))


def _reason_of(status: TaskCompletionStatus) -> str:
    """Return why FLARE gives a task up."""
    if status == TaskCompletionStatus.CLIENT_DEAD:
        return "it has left the job: stopped, started again, shut out or cut off"
    return f"FLARE gave up the task: {status.value}"


def _answer(site: str, request: Message, result: Any) -> Message:
    code = result.get_return_code()
    if code != ReturnCode.OK:
        reason = f"FLARE returned {code}; the details are in the site's own log"
        return failed(site, request, reason)
    try:
        return Message(*unpack(result))
    except FedwardError as error:
        return failed(site, request, str(error))
