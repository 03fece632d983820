"""The executor: one site, built late; no exception and no torch before there is work."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.private.privacy_manager import PrivacyManager, PrivacyService, Scope

from asking import NEEDS, RUN, requests, rules_of
from clients import new_client
from fedward.client.client import Client
from fedward.client.site_data import DataSource
from fedward.client.site_log import SiteLog
from fedward.config import DERMOSCOPY
from fedward.digests import arrays_digest
from fedward.errors import ConfigError
from fedward.flare import executor as module
from fedward.flare.executor import MonaiTrainerExecutor
from fedward.flare.jobs.configurations import SYNTHETIC, controller, server_config
from fedward.flare.shareables import TASK, pack_answer, pack_request, unpack
from fedward.lab.synthetic import SyntheticSites
from fedward.methods.workflow import ClientTask, Exchange
from fedward.nets import build
from fedward.protocol import answer_checks, wire
from fedward.security.approvals import Approvals
from fedward.security.policy import OPEN, POLICY_FILE
from flare_app import JOB, config_folder, executor_of, write_app
from tiny import tiny


class Context:
    """What the executor asks of an FLContext."""

    scope = None
    """The privacy scope under which FLARE runs the job."""

    def __init__(self, folder, simulated=True):
        (folder / "local").mkdir(exist_ok=True)
        workspace = SimpleNamespace(
            get_root_dir=lambda: str(folder), get_site_config_dir=lambda: str(folder / "local")
        )
        workspace.get_app_config_dir = lambda job_id: str(config_folder(folder, job_id))
        components = {SYNTHETIC: SyntheticSites()}
        self.engine = SimpleNamespace(get_workspace=lambda: workspace, get_component=components.get)
        self.simulated = simulated

    def get_prop(self, name, default=None):
        if name == FLContextKey.SCOPE_OBJECT:
            return self.scope
        return self.simulated if name == FLContextKey.SIMULATE_MODE else default

    def get_engine(self):
        return self.engine

    def get_identity_name(self):
        return "site-1"

    def get_job_id(self):
        return JOB  # the simulator's, but a server may call any job so


@pytest.fixture
def sent(monkeypatch):
    """The scalars that would go to TensorBoard."""
    found = []
    monkeypatch.setattr(
        module, "send_analytic_dxo", lambda component, dxo, fl_ctx: found.append(dxo)
    )
    monkeypatch.setattr(MonaiTrainerExecutor, "log_exception", lambda self, fl_ctx, text: None)
    return found


def check(meta, arrays=None, classes=()) -> None:
    answer = wire.Message(meta, arrays or {})
    answer_checks.check_answer(answer, "site-1", request(), rules_of(NEEDS, classes))


def request(task="train", evaluate=True, experiment=None):
    model = build("small_cnn", 8, 3, seed=3).state_dict()
    work = {"site-1": ClientTask()} if task == "train" else {}
    asked = requests(
        experiment or tiny("fedavg"), Exchange(1, model, work), ["site-1"] if evaluate else []
    )
    return asked["site-1"]


def run(executor, message, folder, signal=None, simulated=True):
    shareable = (
        message if isinstance(message, Shareable) else pack_request(message.meta, message.arrays)
    )
    return unpack(executor.execute(TASK, shareable, Context(folder, simulated), signal or Signal()))


def test_the_answer_is_the_sites(tmp_path, sent):
    experiment = tiny("fedavg")
    executor = executor_of(tmp_path, experiment)
    meta, arrays = run(executor, request(), tmp_path)
    expected = new_client("site-1", experiment, tmp_path).handle(request())
    meta["train"].pop("seconds"), expected.meta["train"].pop("seconds")
    assert meta == expected.meta
    assert list(arrays) == list(expected.arrays)
    assert all((arrays[name] == expected.arrays[name]).all() for name in arrays)
    assert sent == [], "the site's log comes first"
    leaving(executor, pack_answer(meta, arrays), tmp_path)
    assert {dxo.data["track_key"] for dxo in sent} >= {
        "train/loss",
        "val/accuracy",
        "test/auroc_macro",
    }


def test_an_evaluation_needs_no_arrays(tmp_path, sent):
    meta, arrays = run(executor_of(tmp_path, tiny("fedavg")), request("idle"), tmp_path)
    assert arrays == {}
    assert meta["metrics"]


def test_one_process_builds_its_site_once(tmp_path, sent, monkeypatch):
    built = []
    start = Client.__init__
    monkeypatch.setattr(
        Client,
        "__init__",
        lambda self, *args, **kw: (built.append(self), start(self, *args, **kw))[1],
    )
    executor = executor_of(tmp_path, tiny("fedavg"))
    for _ in range(2):
        run(executor, request("idle"), tmp_path)
    assert len(built) == 1


@pytest.mark.parametrize(
    "error", [MemoryError("patient-0017.png"), RuntimeError("CUDA out of memory"), KeyError("x")]
)
def test_failures_at_a_site_become_answers_without_details(tmp_path, sent, monkeypatch, error):
    def fails(self, *_):
        raise error

    monkeypatch.setattr(Client, "answer", fails)
    meta, arrays = run(executor_of(tmp_path, tiny()), request(), tmp_path)
    assert meta["site"] == "site-1"
    assert meta["round"] == 1
    assert arrays == {}
    assert meta["error"].startswith(type(error).__name__)
    assert "patient" not in meta["error"]
    check(meta)


def test_wrong_settings_and_foreign_tasks_become_answers(tmp_path, sent):
    meta, _ = run(executor_of(tmp_path, tiny()), Shareable(), tmp_path)
    assert "WireError" in meta["error"]
    path, arguments = controller(tiny())
    for wrong in (
        server_config(path, {**arguments, "commitee": 2}, 0.1),
        server_config("os.system", arguments, 0.1),
        {"workflows": []},
        [],
    ):
        write_app(tmp_path, wrong)
        meta, arrays = run(MonaiTrainerExecutor(), request(), tmp_path)
        assert "ConfigError" in meta["error"]
        assert arrays == {}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ({"trainer": "monai.engines.SupervisedTrainer"}, "expected monai.engines.Trainer, found"),
        ({"device": "cuda"}, "expected auto or cpu, found 'cuda'"),
        ({"device": ["cpu"]}, "expected auto or cpu, found ['cpu']"),
    ],
)
def test_another_trainer_or_device_is_refused(argument, expected):
    with pytest.raises(ConfigError) as error:
        MonaiTrainerExecutor(**argument)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("in_site_file", "in_job", "used"),
    [("auto", "cpu", "cpu"), ("auto", "auto", "auto"), ("cuda:1", "cpu", "cuda:1")],
)
def test_a_sites_own_device_overrules_the_jobs(
    tmp_path, sent, monkeypatch, in_site_file, in_job, used
):
    chosen = []

    def device_of(name, where):
        chosen.append(name)
        return torch.device("cpu")

    monkeypatch.setattr("fedward.client.client.device_of", device_of)
    read = DataSource.read

    def read_with_device(self, **arguments):
        return replace(read(self, **arguments), device=in_site_file)

    monkeypatch.setattr(DataSource, "read", read_with_device)
    executor_of(tmp_path, tiny("fedavg"))
    run(MonaiTrainerExecutor(device=in_job), request(), tmp_path)
    assert set(chosen) == {used}


def test_an_abort_reaches_the_training(tmp_path, sent):
    signal = Signal()
    signal.trigger(True)
    meta, arrays = run(executor_of(tmp_path, tiny("fedavg")), request(), tmp_path, signal)
    assert "abort" in meta["error"]
    assert arrays == {}


def test_a_sites_own_file_comes_first(tmp_path, sent):
    context = Context(tmp_path)
    (tmp_path / "local" / "site-1.yaml").write_text(
        "kind: npz\nfile: missing.npz\nlabels: {0: MEL}\n"
    )
    executor = executor_of(tmp_path, tiny("fedavg"))
    message = request()
    meta, _ = unpack(
        executor.execute(TASK, pack_request(message.meta, message.arrays), context, Signal())
    )
    assert "DataError" in meta["error"]


@pytest.mark.proves(
    "server",
    "a job named as the simulator names its own, to avoid a site's policy",
    "the policy counts",
)
def test_a_kits_policy_counts_whatever_the_job_is_called(tmp_path, sent):
    executor = executor_of(tmp_path, tiny("fedavg"))
    meta, arrays = run(executor, request(), tmp_path, simulated=False)
    assert "minimum_replies: at least 3, the job says 1" in meta["error"], (
        "there is no file, so the defaults hold"
    )
    assert not arrays
    (tmp_path / "local" / POLICY_FILE).write_text(yaml.safe_dump(OPEN.model_dump(mode="json")))
    meta, arrays = run(executor, request(), tmp_path, simulated=False)
    assert meta["steps"] == 2


@pytest.mark.proves(
    "lead",
    "an approved job is sent again under another privacy scope, such as one without noise",
    "waits without reading data, and is listed with that scope",
)
def test_a_job_waits_under_the_scope_that_flare_runs_it_under(tmp_path, sent, monkeypatch):
    scopes = []
    for name in ("with noise", "plain"):
        scope = Scope()
        scope.set_name(name)
        scopes.append(scope)
    manager = PrivacyManager(scopes, "with noise", None)
    monkeypatch.setattr(PrivacyService, "manager", manager)
    experiment = tiny("fedavg")
    Context(tmp_path)  # It makes the folder of the kit's rules.
    rules = OPEN.model_dump(mode="json") | {"approval": "required"}
    (tmp_path / "local" / POLICY_FILE).write_text(yaml.safe_dump(rules))
    approvals = Approvals(tmp_path / "fedward" / "approvals")
    approvals.approve(experiment.digest, "with noise")
    for name, waits in (("", False), ("with noise", False), ("plain", True)):
        monkeypatch.setattr(Context, "scope", manager.get_scope(name))
        executor = executor_of(tmp_path, experiment)
        meta, _ = run(executor, request(), tmp_path, simulated=False)
        assert meta.get("error") is None
        assert ("waiting" in meta) is waits
    entries, _ = approvals.entries()
    assert [entry.scope for entry in entries if entry.asked] == ["with noise", "plain"]


def test_an_idle_process_imports_no_torch():
    code = (
        "import sys, fedward.flare.executor;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'monai', 'timm', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_restarts_are_reported_to_the_server(tmp_path, sent, monkeypatch):
    executor = executor_of(tmp_path, tiny("fedavg"))
    monkeypatch.setenv("FEDWARD_RESTARTS", "2")
    meta, arrays = run(executor, request(), tmp_path)
    assert meta["restarts"] == 2
    check(meta, arrays, classes=DERMOSCOPY)
    monkeypatch.setenv("FEDWARD_RESTARTS", "0")
    assert "restarts" not in run(executor, request(), tmp_path)[0]


def test_memory_is_freed_when_the_answer_has_left(tmp_path, sent, monkeypatch):
    freed = []
    monkeypatch.setattr("fedward.flare.process_memory.cleanup_memory", lambda: freed.append(True))
    executor = executor_of(tmp_path, tiny("fedavg"))
    leaving(executor, answered(executor, tmp_path), tmp_path)
    assert not freed, "the server waits for the answer"
    executor.handle_event(EventType.AFTER_SEND_TASK_RESULT, Context(tmp_path))
    assert freed == [True]


# --- the site's log


def leaving(executor, result, folder):
    """Let FLARE's filters have had a result."""
    context = Context(folder)
    context.get_prop = lambda key, *_: result if key == FLContextKey.TASK_RESULT else None
    executor.handle_event(EventType.AFTER_TASK_RESULT_FILTER, context)
    return result


def lines(folder):
    return [
        json.loads(line) for line in (folder / "answers" / f"{RUN}.jsonl").read_text().splitlines()
    ]


def answered(executor, folder):
    message = request()
    return executor.execute(
        TASK, pack_request(message.meta, message.arrays), Context(folder), Signal()
    )


def test_what_leaves_is_in_the_sites_log_as_the_filters_left_it(tmp_path, sent):
    executor = executor_of(tmp_path, tiny("fedavg"))
    result = answered(executor, tmp_path)
    assert not (tmp_path / "fedward" / "answers").exists()
    meta, arrays = unpack(result)
    noisy = {name: array + 1 for name, array in arrays.items()}
    leaving(executor, pack_answer(meta, noisy), tmp_path)
    (row,) = lines(tmp_path / "fedward")
    assert row["event"] == "answered"
    assert row["job"] == "simulate_job"
    assert row["gave"] == arrays_digest(noisy)
    leaving(executor, result, tmp_path)
    assert len(lines(tmp_path / "fedward")) == 1, "there was no request"


@pytest.mark.proves(
    "lead",
    "metrics and losses as FLARE's events, while the site's log is full or damaged",
    "nothing leaves before its line is written",
)
def test_an_answer_the_site_cannot_log_does_not_leave(tmp_path, sent, monkeypatch):
    executor = executor_of(tmp_path, tiny("fedavg"))
    result = answered(executor, tmp_path)

    def full(self, answer):
        raise OSError("No space left on device")

    monkeypatch.setattr(SiteLog, "add", full)
    assert leaving(executor, result, tmp_path).get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert "DXO" not in result
    assert sent == []


def test_scalars_are_those_that_the_filters_left(tmp_path, sent):
    executor = executor_of(tmp_path, tiny("fedavg"))
    answered(executor, tmp_path)
    leaving(
        executor,
        pack_answer({"site": "site-1", "round": 1, "error": "privacy budget used up"}, {}),
        tmp_path,
    )
    assert sent == []


def test_an_average_is_tracked_in_the_round_it_is_of(tmp_path, sent):
    experiment = tiny("fedavg", options={"average_decay": 0.5})
    executor = executor_of(tmp_path, experiment)
    model = build("small_cnn", 8, 3, seed=3).state_dict()
    message = requests(experiment, Exchange(1, model, {}, part=1), ["site-1"])["site-1"]
    result = executor.execute(
        TASK, pack_request(message.meta, message.arrays), Context(tmp_path), Signal()
    )
    leaving(executor, result, tmp_path)
    steps = {dxo.data["track_key"]: dxo.data["global_step"] for dxo in sent}
    assert steps["val/accuracy"] == 1
