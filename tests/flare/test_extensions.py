"""A site imports nothing of a package that its policy does not admit, whatever a job names."""

import sys
from pathlib import Path

import pytest
import yaml
from test_flare_executor import request, run, sent  # noqa: F401 - a fixture

from fedward.flare.classes import METHOD_CONTROLLER
from fedward.flare.executor import MonaiTrainerExecutor
from fedward.flare.jobs.configurations import controller, described_in, experiment_in, server_config
from fedward.registry import extensions
from fedward.security.policy import OPEN, POLICY_FILE, Policy
from fedward.security.policy_rules import applied_extension_rule
from flare_app import config_folder, write_app
from installed import install
from tiny import tiny

TRAP = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
from fedward.methods.fedavg import FedAvg as Method
from fedward.nets import SmallCNN as Net
from fedward.views.recipes import UPRIGHT
from fedward.methods.samplers.base import Random as Sampler
def metric(probabilities, labels):
    return 0.5
"""
POINTS = {
    "method": {"trap_method": "trap:Method"},
    "network": {"trap_net": "trap:Net"},
    "view": {"trap_view": "trap:UPRIGHT"},
    "sampler": {"trap_sampler": "trap:Sampler"},
    "metric": {"trap_metric": "trap:metric"},
}


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the package's module makes when it is imported."""
    install(
        tmp_path / "packages", monkeypatch, "trap-package", "trap", TRAP, version="2.1", **POINTS
    )
    return tmp_path / "packages" / "imported"


def job(folder: Path, **names: str) -> MonaiTrainerExecutor:
    """Return the executor of a job that names another package's part, written without a check."""
    path, arguments = controller(tiny("fedal" if "sampler" in names else "fedavg"))
    shared = arguments["experiment"]
    if "method" in names:
        path = METHOD_CONTROLLER
        arguments["method"] = names["method"]
    arguments |= {"sampler": names["sampler"]} if "sampler" in names else {}
    shared["net"] = names.get("network", shared["net"])
    shared["data"]["views"] = names.get("view", shared["data"]["views"])
    shared["metrics"] = [names["metric"]] if "metric" in names else []
    write_app(folder, server_config(path, arguments, 0.1))
    return MonaiTrainerExecutor()


def allow(folder: Path, *rule: str) -> None:
    (folder / "local").mkdir(exist_ok=True)
    policy = {**OPEN.model_dump(mode="json"), "extensions": list(rule)}
    (folder / "local" / POLICY_FILE).write_text(yaml.safe_dump(policy))


@pytest.mark.proves(
    "lead",
    "a job with own code, a class off the list, code that a policy does not admit, or "
    "without the sites' privacy scope",
    "refused before it is imported; the lead reads the class or rule",
)
@pytest.mark.parametrize("kind", POINTS)
def test_what_is_not_admitted_is_not_even_imported(tmp_path, trap, sent, kind):  # noqa: F811
    (name,) = POINTS[kind]
    executor = job(tmp_path, **{kind: name})
    allow(tmp_path, "trap-package==2.0:" + name, "other:" + name, "trap-package:other", name)
    meta, arrays = run(executor, request(), tmp_path, simulated=False)
    assert meta["error"].startswith(
        "policy of site-1: expected what its rules allow, found extensions: "
    )
    assert f"the job needs {kind} trap-package==2.1:{name}" in meta["error"]
    assert meta["refused"], "it is not asked again"
    assert not arrays
    assert not trap.exists()
    assert "trap" not in sys.modules


@pytest.mark.parametrize("rule", ["trap-package:trap_method", "trap-package==2.1:trap_method"])
def test_what_is_admitted_runs_from_the_next_request_on(tmp_path, trap, sent, rule):  # noqa: F811
    executor = job(tmp_path, method="trap_method")
    allow(tmp_path)
    assert "error" in run(executor, request(), tmp_path, simulated=False)[0]
    allow(tmp_path, rule)
    meta, _ = run(executor, request(), tmp_path, simulated=False)
    assert meta["error"].startswith("settings of the job: "), (
        "the next check: the request is another job's"
    )
    assert trap.exists()
    own = request(experiment=experiment_in(config_folder(tmp_path)))
    meta, arrays = run(executor, own, tmp_path, simulated=False)
    assert meta.get("error") is None
    assert meta["steps"] > 0
    assert bool(arrays) is True
    allow(tmp_path)
    meta, _ = run(executor, own, tmp_path, simulated=False)
    assert (
        "extensions: none, the job needs method trap-package==2.1:trap_method" in meta["error"]
    ), "withdrawn"


def test_built_in_names_need_no_entry(tmp_path):
    job(tmp_path)
    assert extensions(described_in(config_folder(tmp_path))) == []
    assert applied_extension_rule(Policy(), []).kept
