"""The transport against a controller that answers as a test wants."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from nvflare.apis.controller_spec import TaskCompletionStatus
from nvflare.apis.dxo import from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply
from nvflare.apis.signal import Signal

from fedward.errors import RunError
from fedward.flare.shareables import pack_answer
from fedward.flare.transport import FlareTransport
from fedward.protocol.wire import Message

SHARED = np.arange(4, dtype=np.float32)


class Controller:
    """Ends each task as told: with a shareable, with a completion status, or never (None)."""

    def __init__(self, outcomes, order=None):
        self.outcomes = outcomes
        self.order = order or sorted(outcomes)
        self.engine = SimpleNamespace(
            get_clients=lambda: [SimpleNamespace(name=name) for name in outcomes]
        )
        self.abort_signal = Signal()
        self.fl_ctx = object()
        self.tasks = {}
        self.cancelled = []

    def send(self, task, fl_ctx, targets):
        assert fl_ctx is self.fl_ctx
        (site,) = targets
        self.tasks[site] = task
        if len(self.tasks) == len(self.order):
            threading.Thread(target=self._end_all).start()

    def _end_all(self):
        for site in self.order:
            outcome = self.outcomes[site]
            task = self.tasks[site]
            if isinstance(outcome, dict):
                client_task = SimpleNamespace(result=outcome)
                task.result_received_cb(client_task=client_task, fl_ctx=None)
                # FLARE keeps the object for a while; the answer must not stay with it.
                assert client_task.result is None
                task.completion_status = TaskCompletionStatus.OK
            elif outcome is not None:
                task.completion_status = outcome

    def cancel_task(self, task):
        self.cancelled.append(task)


def request(round_=2):
    return Message({"task": "train", "evaluate": False, "round": round_}, {"model/a": SHARED})


def answer(site):
    return pack_answer({"site": site, "round": 2}, {"diff/a": SHARED * 2})


def exchange(controller, sites, timeout=5):
    delivered = []
    transport = FlareTransport(controller)
    transport.exchange(
        {site: request() for site in sites},
        timeout,
        lambda site, message: delivered.append((site, message)),
    )
    return delivered


def test_sites_are_sorted():
    controller = Controller({"site-2": None, "site-1": None, "site-10": None})
    assert FlareTransport(controller).sites() == ["site-1", "site-10", "site-2"]


def test_answers_arrive_at_once_in_the_calling_thread():
    controller = Controller({s: answer(s) for s in ("a", "b", "c")}, order=["b", "c", "a"])
    threads = []
    delivered = []
    FlareTransport(controller).exchange(
        {site: request() for site in ("a", "b", "c")},
        5,
        lambda site, message: (
            delivered.append((site, message)),
            threads.append(threading.current_thread()),
        ),
    )
    assert [site for site, _ in delivered] == ["b", "c", "a"]
    assert set(threads) == {threading.current_thread()}
    for site, message in delivered:
        assert message.meta == {"site": site, "round": 2}
        np.testing.assert_array_equal(message.arrays["diff/a"], SHARED * 2)


def test_a_task_has_its_data_only_while_they_are_sent():
    """What FLARE takes in between is the request, whose arrays are not copied."""
    controller = Controller({s: answer(s) for s in ("a", "b")})
    exchange(controller, ["a", "b"], timeout=77)
    assert sorted(controller.tasks) == ["a", "b"]
    for task in controller.tasks.values():
        assert task.timeout == 77
        client_task = SimpleNamespace(task=task)
        for _ in range(2):  # FLARE sends a task again that a site has lost
            assert "DXO" not in task.data
            task.before_task_sent_cb(client_task=client_task, fl_ctx=None)
            assert from_shareable(task.data).data["model/a"] is SHARED
            task.after_task_sent_cb(client_task=client_task, fl_ctx=None)
        assert "DXO" not in task.data


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (make_reply(ReturnCode.EXECUTION_EXCEPTION), "EXECUTION_EXCEPTION"),
        (make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR), "TASK_RESULT_FILTER_ERROR"),
        (make_reply(ReturnCode.OK), "FLARE message"),
        (TaskCompletionStatus.CLIENT_DEAD, "it has left the job"),
        (TaskCompletionStatus.ERROR, "error"),
    ],
)
def test_a_failing_sites_error_leaves_the_others_counted(outcome, reason):
    delivered = dict(exchange(Controller({"a": outcome, "b": answer("b")}), ["a", "b"]))
    assert delivered["a"].meta["site"] == "a"
    assert delivered["a"].meta["round"] == 2
    assert reason in delivered["a"].meta["error"]
    assert "error" not in delivered["b"].meta


def test_a_late_site_is_left_to_the_loop():
    delivered = exchange(
        Controller({"a": TaskCompletionStatus.TIMEOUT, "b": answer("b")}), ["a", "b"]
    )
    assert [site for site, _ in delivered] == ["b"]


def test_a_site_that_is_not_in_the_job_is_not_waited_for():
    delivered = dict(exchange(Controller({"a": answer("a")}), ["a", "gone"]))
    assert "not connected" in delivered["gone"].meta["error"]
    assert delivered["a"].meta == {"site": "a", "round": 2}


def test_an_abort_ends_the_exchange_and_cancels_what_is_left():
    controller = Controller({"a": answer("a"), "b": None})

    def abort(site, message):
        controller.abort_signal.trigger(True)

    with pytest.raises(RunError, match="abort"):
        FlareTransport(controller).exchange({s: request() for s in ("a", "b")}, 5, abort)
    assert controller.cancelled == [controller.tasks["b"]]


def test_an_error_of_the_loop_reaches_the_loop():
    controller = Controller({"a": answer("a"), "b": None})

    def disk_full(site, message):
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        FlareTransport(controller).exchange({s: request() for s in ("a", "b")}, 5, disk_full)
    assert controller.cancelled == [controller.tasks["b"]]
