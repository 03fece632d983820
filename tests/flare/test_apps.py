"""Apps that a participant refuses, because of a file or a configuration that no export has."""

import json
import os

import pytest
from nvflare.fuel.utils.config_factory import ConfigFactory
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.private.fed.app.fl_app_validator import FLAppValidator

from fedward.flare.classes import EXECUTOR, METHOD_CONTROLLER, SYNTHETIC_SITES, TENSORBOARD
from fedward.flare.gate import hooks
from fedward.flare.jobs.configurations import receiver
from fedward.flare.jobs.export import export_job
from fedward.flare.kits import deployer
from fedward.flare.kits.apps import AppCheck
from finished_run import finished_run
from foreign_jobs import CLIENT, SERVER, args, bring, component, edit, loader, replaced, rewritten
from starting import initial_model
from tiny import tiny

NOISE = {
    "tasks": ["fedward"],
    "filters": [{"path": "fedward.flare.privacy.GaussianUpdateFilter", "args": {}}],
}


@pytest.fixture(autouse=True)
def _process_as_it_was(monkeypatch):
    """The app check changes how its process reads files, accepts messages and deploys apps."""
    monkeypatch.setattr(ConfigFactory, "_fmt2Loader", ConfigFactory._fmt2Loader)
    monkeypatch.setattr(hooks, "install", lambda: None)
    monkeypatch.setattr(deployer, "install", lambda: None)


@pytest.fixture
def app(tmp_path):
    """The app of a clinical job, as it arrives."""
    export_job(tiny(), tmp_path / "job", clinical=True)
    for folder in ("", "config"):
        for name in (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE):
            (tmp_path / "job" / "app" / folder / name).write_text("{}")
    return tmp_path / "job" / "app"


def refusal(app, role="site"):
    """Return what FLARE reports to the lead after its own check and ours."""
    return FLAppValidator({"site": "client"}.get(role, role), [AppCheck(role)]).validate(str(app))[
        0
    ]


@pytest.mark.parametrize("role", ["site", "server"])
def test_an_export_passes(app, role):
    assert refusal(app, role) == ""


@pytest.mark.parametrize(("file", "role"), [(CLIENT, "site"), (SERVER, "server")])
def test_a_kit_refuses_a_job_that_makes_synthetic_sites(app, file, role):
    assert refusal(app, role) == ""
    component(file, SYNTHETIC_SITES)(app)
    assert f"the class {SYNTHETIC_SITES}" in refusal(app, role)


def test_a_job_may_keep_its_sites_from_using_gpus(app):
    edit(CLIENT, lambda content: args(CLIENT)(content).update(device="cpu"))(app)
    assert refusal(app) == ""


@pytest.mark.parametrize("method", ["fedavg", "fedal", "isofed", "selffed"])
def test_exports_of_other_methods_pass(tmp_path, method):
    export_job(tiny(method), tmp_path / "job", clinical=True)
    assert [refusal(tmp_path / "job" / "app", role) for role in ("site", "server")] == ["", ""]


def test_weights_pass_at_the_server_alone(tmp_path):
    experiment = tiny(seed=77)
    run = finished_run(tmp_path / "run", experiment, initial_model(experiment)[0])
    export_job(experiment, tmp_path / "job", True, ["hospital-a"], run)
    assert refusal(tmp_path / "job" / "app") == ""
    assert refusal(tmp_path / "job" / "app_server", "server") == ""
    bring("config/config_fed_client.json", (tmp_path / "job" / "app" / CLIENT).read_text())(
        tmp_path / "job" / "app_server"
    )
    assert "config/model.safetensors" in refusal(tmp_path / "job" / "app_server")


FILES = [
    "config/evil.py",
    "custom/evil.py",
    "evil.py",
    "deep/evil.so",
    "config/deep/config_fed_client.json",
    "config/resources.json",
    "config/comm_config.json",
    "config/config_fed_client.conf",
    "config/config_fed_client.yml",
    "config/config_fed_client.json.default",
    "config/CONFIG_FED_CLIENT.JSON",
    "config/model.pt",
    ".hidden",
    "config/ config_fed_client.json",
]


@pytest.mark.parametrize("name", FILES)
def test_any_other_file_is_refused_by_name(app, name):
    bring(name)(app)
    for role in ("site", "server"):
        text = refusal(app, role)
        assert text.startswith(
            "app: expected nothing but config/config_fed_client.json, config/config_fed_server.json"
        )
        assert repr(name) in text


def test_folders_links_and_odd_files_are_refused(app, tmp_path):
    for name, make in {
        "custom": lambda path: path.mkdir(),
        "config/link.json": lambda path: path.symlink_to("/etc/passwd"),
        "config/pipe": os.mkfifo,
        "up": lambda path: path.symlink_to(tmp_path, target_is_directory=True),
    }.items():
        make(app / name)
        assert repr(name) in refusal(app)
        (app / name).rmdir() if name == "custom" else (app / name).unlink()
    (app / CLIENT).rename(tmp_path / "moved.json")
    (app / CLIENT).symlink_to(tmp_path / "moved.json")
    assert repr(CLIENT) in refusal(app)


def test_signatures_in_a_folder_of_its_own_are_not_named(app):
    """FLARE signs each folder of a job."""
    for name in ("mine.py", NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE):
        bring(f"custom/{name}")(app)
    assert ", found 'custom', 'custom/mine.py'. " in refusal(app)
    (app / NVFLARE_SIG_FILE).unlink()
    (app / NVFLARE_SIG_FILE).symlink_to("/etc/passwd")
    for name in ("mine.py", NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE):
        (app / "custom" / name).unlink()
    (app / "custom").rmdir()
    assert repr(NVFLARE_SIG_FILE) in refusal(app)


def test_a_refused_name_is_repeated_short_and_in_ascii(app):
    bring(f"config/\x1b[2J{'x' * 200}")(app)
    text = refusal(app)
    assert "\x1b" not in text
    assert len(text) < 500


def test_a_large_file_is_refused(app):
    rewritten(CLIENT, lambda text: text + " " * (1 << 20))(app)
    assert "expected at most 1048576 bytes" in refusal(app)


def first(key, value):
    """Put a key in front of all others that comes again later; FLARE would read the last."""
    return lambda text: f'{{"{key}": {json.dumps(value)}, {text.lstrip()[1:]}'


CONFIGURATIONS = {
    "a foreign class": (
        component(CLIENT, "subprocess.Popen", args=["true"]),
        "the class subprocess.Popen",
    ),
    "one of ours": (component(CLIENT, "fedward.cli.main"), "the class fedward.cli.main"),
    "a module's import": (
        component(CLIENT, "fedward.flare.executor.os.system"),
        "executor.os.system",
    ),
    "a method": (component(CLIENT, f"{EXECUTOR}.execute"), "Executor.execute"),
    "the server's": (component(CLIENT, METHOD_CONTROLLER), "MethodController"),
    "a listed class again": (
        component(
            CLIENT,
            "nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent",
            events_to_convert=["x"],
        ),
        "components",
    ),
    "a class in arguments": (
        edit(CLIENT, lambda content: args(CLIENT)(content).update(helper={"path": "os.system"})),
        "the class os.system",
    ),
    "a class by name": (
        edit(
            CLIENT,
            lambda content: content["components"].append(
                {"id": "x", "name": "TBAnalyticsReceiver"}
            ),
        ),
        "components",
    ),
    "another trainer": (
        edit(CLIENT, lambda content: args(CLIENT)(content).update(trainer="os.system")),
        "executors",
    ),
    "a GPU that a site must have": (
        edit(CLIENT, lambda content: args(CLIENT)(content).update(device="cuda:0")),
        "the device 'cuda:0'",
    ),
    "a device that is a mapping": (
        edit(CLIENT, lambda content: args(CLIENT)(content).update(device={"device": "cpu"})),
        "the device {'device': 'cpu'}",
    ),
    "no device": (
        edit(CLIENT, lambda content: args(CLIENT)(content).pop("device")),
        "one without the part that runs the experiment",
    ),
    "no trainer": (
        edit(CLIENT, lambda content: args(CLIENT)(content).pop("trainer")),
        "executors",
    ),
    "arguments": (
        edit(CLIENT, lambda content: args(CLIENT)(content).update(debug={})),
        "executors",
    ),
    "attributes": (
        edit(CLIENT, lambda content: args(CLIENT)(content).update(class_attributes={})),
        "executors",
    ),
    "filters": (
        edit(CLIENT, lambda content: content.update(task_result_filters=[NOISE])),
        "GaussianUpdateFilter",
    ),
    "other events": (
        edit(
            CLIENT,
            lambda content: content["components"][0]["args"].update(
                events_to_convert=["_start_run"]
            ),
        ),
        "components",
    ),
    "a further task": (
        edit(CLIENT, lambda content: content["executors"][0]["tasks"].append("*")),
        "executors",
    ),
    "a setting of FLARE": (
        edit(CLIENT, lambda content: content.update(nvflare_decomposers="this")),
        "decomposers",
    ),
    "no class, but dict": (
        edit(CLIENT, lambda content: content["components"][0].update(config_type="dict")),
        "compo",
    ),
    "a variable": (
        edit(CLIENT, lambda content: content["components"][0].update(id="{$HOME}")),
        "a brace in '{$HOME}'",
    ),
    "a variable as key": (
        edit(CLIENT, lambda content: content.update({"@x": {"a": "}{JOB_ID}"}})),
        "a brace",
    ),
    "an interval": (
        edit(CLIENT, lambda content: content.update(default_task_fetch_interval=1e-9)),
        "1e-09 seconds",
    ),
    "an interval of text": (
        edit(CLIENT, lambda content: content.update(default_task_fetch_interval="1")),
        "without",
    ),
    "a key twice": (rewritten(CLIENT, first("executors", [])), "a key that comes twice"),
    "no object": (rewritten(CLIENT, lambda text: f"[{text}]"), "without the part"),
    "no executor": (
        edit(CLIENT, lambda content: content.update(executors=[])),
        "one without the part that runs the experiment",
    ),
    "latin-1": (
        lambda app: (app / CLIENT).write_bytes(b'{"\xe9": 1}'),
        "bytes that are not text in UTF-8",
    ),
}


@pytest.mark.parametrize(("change", "found"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_any_other_configuration_is_refused(app, change, found):
    change(app)
    text = apps_refusal(app, "site")
    assert text.startswith(f"app, file {CLIENT}: expected ")
    assert found in text.split(", found ", 1)[1]


def apps_refusal(app, role):
    """Return our own refusal; FLARE's check before it cannot read some of these."""
    return AppCheck(role).validate(str(app))[0]


def arguments(**changes):
    return edit(SERVER, lambda content: args(SERVER)(content).update(changes))


def common(**changes):
    return edit(SERVER, lambda content: args(SERVER)(content)["experiment"].update(changes))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            edit(
                SERVER,
                lambda content: content["components"][0]["args"].update(tb_folder="/var/www"),
            ),
            "components",
        ),
        (arguments(init={"path": "/etc", "sha256": ""}), "class /etc"),
        (arguments(experiment=[]), "without the part that runs the experiment"),
        (arguments(helper={"path": "os.system"}), "the class os.system"),
        (arguments(sampler_options={"name": "FedAvg"}), "arguments"),
        (arguments(class_attributes={"experiment": {}}), "arguments"),
        (arguments(**{"@x": 1}), "arguments"),
        (common(class_path="os.system"), "the class os.system"),
        (common(name="FedAvg"), "unknown arguments, name"),
        (common(rounds=3, nett="small_cnn"), "unknown arguments, nett, rounds"),
        (common(method="fedavg"), "unknown arguments, method"),
        (common(data={"classes": ["a", "b"], "size": 32}), "unknown arguments, size"),
        (common(synthetic={"labels": 1}), "unknown arguments, labels"),
        (common(data=3), "without the part that runs the experiment"),
        (common(net="{$HOME}"), "a brace in '{$HOME}'"),
        (
            edit(SERVER, lambda content: content["workflows"][0].update(path=TENSORBOARD)),
            "no controller",
        ),
        (
            edit(SERVER, lambda content: content["workflows"].append(content["workflows"][0])),
            "without the part",
        ),
        (
            edit(SERVER, lambda content: content["components"].append(receiver("mlflow"))),
            "MLflowReceiver",
        ),
        (
            edit(SERVER, lambda content: content.update(components=[receiver("wandb")])),
            "WandBReceiver",
        ),
        (component(SERVER, EXECUTOR), "MonaiTrainerExecutor"),
        (edit(SERVER, lambda content: content["server"].update(heart_beat_timeout=1)), "server"),
        (
            edit(SERVER, lambda content: content["server"].update(task_request_interval=3600)),
            "3600 seconds",
        ),
        (
            edit(SERVER, lambda content: content.update(dead_client_grace_period=1e9)),
            "dead_client_grace_period",
        ),
    ],
)
def test_any_other_configuration_of_the_server_is_refused(app, change, found):
    """By a site as well, whose executor reads the experiment in it."""
    change(app)
    for role in ("server", "site"):
        text = apps_refusal(app, role)
        assert text.startswith(f"app, file {SERVER}: expected what `fedward jobs` writes")
        assert found in text


def test_code_with_a_class_that_imports_it_is_refused(app):
    loader(CLIENT, "")(app)
    assert "'config/evil.py'" in refusal(app)


def test_json_that_nests_too_deeply_is_refused(app):
    rewritten(CLIENT, lambda text: '{"a":' * 100_000 + "1" + "}" * 100_000)(app)
    assert "text that is nested too deeply" in apps_refusal(app, "site")


def test_a_missing_configuration_is_refused(app):
    (app / CLIENT).unlink()
    assert "no such file" in apps_refusal(app, "site")


def test_a_site_refuses_a_job_without_the_servers_configuration(app):
    (app / SERVER).unlink()
    assert f"app, file {SERVER}: expected plain JSON" in apps_refusal(app, "site")


@pytest.mark.parametrize("name", ["config_fed_client.conf", "config_fed_client.yml"])
def test_no_file_is_read_as_anything_but_json(app, tmp_path, name):
    """FLARE looks for a configuration of any format before it asks a validator."""
    (tmp_path / "secret.json").write_text('{"password": "secret"}')
    replaced(CLIENT, f"config/{name}", f'include file("{tmp_path}/secret.json")\n')(app)
    with pytest.raises(ValueError, match="Expecting value"):
        refusal(app)
