"""Exported jobs: the same bytes each time, accepted by FLARE, and none stale in the repository."""

import json
import shutil
from argparse import Namespace
from importlib import import_module
from pathlib import Path

import pytest
from nvflare.app_common.resource_managers.gpu_resource_manager import GPUResourceManager
from nvflare.fuel.utils.class_loader import load_class
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.private.fed.app.default_app_validator import DefaultAppValidator
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator
from nvflare.tool.job.job_cli import prepare_job_config
from nvflare.utils.job_launcher_utils import (
    get_portable_resource_spec,
    get_resource_manager_spec,
    validate_portable_resource_spec,
)

from fedward.digests import file_digest
from fedward.errors import ConfigError
from fedward.flare.jobs.configurations import SYNTHETIC, experiment_in
from fedward.flare.jobs.export import export_job, job_files, stale_jobs
from fedward.flare.kits import apps
from fedward.flare.shareables import TASK
from fedward.jobs import JOBS, load_experiment, site_names
from fedward.methods import method_of
from fedward.registry import METHODS
from finished_run import finished_run
from starting import initial_model
from tiny import tiny

SHIPPED = Path(__file__).parents[2] / "jobs"


def configs(files):
    return [
        json.loads(files[f"app/config/config_fed_{side}.json"]) for side in ("server", "client")
    ]


def test_the_shipped_jobs_are_fresh():
    assert stale_jobs(SHIPPED) == []


STRANGE = ["a.b", "Ödem", "$x", 'q"uo\nte', "# no comment", "null", "1e-3"]
"""Classes whose names mean something in the language in which FLARE reads JSON."""


@pytest.mark.parametrize("name", [*JOBS, "strange"])
def test_flares_own_submission_changes_no_value(tmp_path, name):
    """``nvflare job submit`` reads the configurations of a copy as HOCON, and writes them again."""
    strange = tiny(data={"classes": STRANGE, "image_size": 16}, synthetic=None)
    experiment = strange if name == "strange" else load_experiment(name, clinical=True)
    export_job(experiment, tmp_path / "job", clinical=True)
    sent = shutil.copytree(tmp_path / "job", tmp_path / "sent")
    asked = Namespace(job_folder=str(tmp_path / "job"), config_file=None, app_config=None)
    prepare_job_config(asked, ["app"], str(sent))
    assert experiment_in(sent / "app" / "config") == experiment_in(
        tmp_path / "job" / "app" / "config"
    )
    for side in ("server", "site"):
        apps.check(sent / "app", side)


def test_exports_are_the_same_bytes_every_time(tmp_path):
    for folder in ("one", "two"):
        export_job(tiny(), tmp_path / folder / "job")
    one, two = (
        {p.name: p.read_bytes() for p in (tmp_path / f).rglob("*") if p.is_file()}
        for f in ("one", "two")
    )
    assert one == two


@pytest.mark.parametrize(
    ("clinical", "method"), [*((True, method) for method in METHODS), (False, "fedavg")]
)
def test_server_and_sites_get_the_experiment_that_was_exported(tmp_path, clinical, method):
    """It stands in the job once, with all settings of its method; the executor has no arguments."""
    experiment = tiny(method, synthetic=None) if clinical else tiny(method)
    export_job(experiment, tmp_path / "job", clinical)
    server, client = configs(job_files(experiment, "job", clinical))
    (workflow,) = server["workflows"]
    (executor,) = client["executors"]
    read = experiment_in(tmp_path / "job" / "app" / "config")
    assert load_class(workflow["path"])(**workflow["args"]).experiment == read
    assert method_of(read).settings == method_of(experiment).settings
    assert set(read.options) == set(type(method_of(read).settings).model_fields)
    assert read.model_copy(update={"options": experiment.options}) == experiment
    assert executor["executor"]["args"] == {"trainer": "monai.engines.Trainer", "device": "auto"}
    assert executor["tasks"] == [TASK]
    assert next(iter(server)) == next(iter(client)) == "format_version"


def test_a_clinical_job_has_a_scope_and_no_code_or_fake_data(tmp_path):
    export_job(tiny(), tmp_path / "job")
    export_job(tiny(), tmp_path / "job", clinical=True)
    assert not (tmp_path / "job" / "app" / "custom").exists(), "FLARE takes an empty one for code"
    meta = json.loads((tmp_path / "job" / "meta.json").read_text())
    assert meta["scope"] == "clinical"
    assert meta["deploy_map"] == {"app": ["@ALL"]}
    server, _ = configs(job_files(tiny(), "job", clinical=True))
    assert server["workflows"][0]["args"]["experiment"]["synthetic"] is None


def asked_of_resource_manager(site, **options):
    """What FLARE asks of a site's resource manager before it sends the site the job."""
    meta = json.loads(job_files(tiny(), "job", **options)["meta.json"])
    validate_portable_resource_spec(meta["resource_spec"])
    return get_resource_manager_spec(meta, site)


@pytest.mark.parametrize("clinical", [False, True])
def test_sites_without_gpus_get_every_job_that_does_not_ask_for_some(clinical):
    assert asked_of_resource_manager("site-1", clinical=clinical) == {}
    asked = asked_of_resource_manager("site-1", clinical=clinical, gpus=2)
    assert asked == {"num_of_gpus": 2}
    # As in FLARE's proof of concept and in kits: GPUs are what the site's own file says.
    without_gpus = GPUResourceManager(0, 0)
    assert without_gpus._check_required_resource_available({})
    assert not without_gpus._check_required_resource_available(asked)
    with_gpus = GPUResourceManager(2, 16, ignore_host=True)
    assert with_gpus._check_required_resource_available(asked)


def test_a_clinical_job_leaves_gpus_to_the_launcher_of_each_site():
    """An explicit 0 would make FLARE's launcher of containers take a site's GPUs away."""
    meta = json.loads(job_files(tiny(), "job", clinical=True)["meta.json"])
    assert get_portable_resource_spec(meta, "site-1") == {}


def test_a_clinical_job_replaces_the_script_of_a_shipped_one(tmp_path):
    export_job(JOBS["fedavg"](), tmp_path / "fedavg")
    assert (tmp_path / "fedavg" / "job.py").is_file()
    export_job(JOBS["fedavg"](), tmp_path / "fedavg", clinical=True)
    assert files_of(tmp_path / "fedavg") == {
        "meta.json",
        "app/config/config_fed_client.json",
        "app/config/config_fed_server.json",
    }
    export_job(JOBS["fedavg"]().model_copy(update={"seed": 2}), tmp_path / "fedavg")
    assert not (tmp_path / "fedavg" / "job.py").exists(), "it would run another experiment"


def test_clinical_jobs_are_tracked_by_tensorboard_alone():
    for tracking in ("mlflow", "wandb"):
        with pytest.raises(ConfigError, match="admits no other receiver"):
            job_files(tiny(), "job", clinical=True, tracking=tracking)
        server, _ = configs(job_files(tiny(), "job", tracking=tracking))
        assert [part["id"] for part in server["components"]] == [tracking, SYNTHETIC]


def test_a_research_job_names_its_ten_sites():
    meta = json.loads(job_files(tiny(), "job")["meta.json"])
    assert meta["deploy_map"] == {"app": ["server", *site_names(10)]}


@pytest.mark.parametrize("clinical", [False, True])
def test_flare_accepts_the_job_and_knows_whether_it_has_code(tmp_path, clinical):
    export_job(tiny(), tmp_path / "job", clinical)
    shutil.copy(SHIPPED / "fedperl" / "job.py", tmp_path / "job")  # FLARE looks at the apps alone
    valid, error, meta = JobMetaValidator().validate(
        "job", zip_directory_to_bytes(str(tmp_path), "job")
    )
    assert valid, error
    assert bool(meta.get("byoc")) is not clinical


# --- with the weights of a finished run

HOSPITALS = ["hospital-a", "hospital-b"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    experiment = tiny(seed=77)
    return finished_run(
        tmp_path_factory.mktemp("finished"), experiment, initial_model(experiment)[0]
    )


def files_of(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("clinical", [False, True])
def test_only_the_servers_app_carries_the_weights(finished, tmp_path, clinical):
    job = tmp_path / "job"
    export_job(tiny(), job, clinical, HOSPITALS, finished)
    assert json.loads((job / "meta.json").read_text())["deploy_map"] == {
        "app_server": ["server"],
        "app": HOSPITALS,
    }
    code = set() if clinical else {"custom/README.txt"}
    configurations = {"config/config_fed_client.json", "config/config_fed_server.json"}
    assert files_of(job / "app") == configurations | code
    weights = {"config/model.safetensors", "config/model.json"}
    assert files_of(job / "app_server") == {"config/config_fed_server.json"} | weights | code
    config = json.loads((job / "app_server" / "config" / "config_fed_server.json").read_text())
    sha256 = file_digest(finished / "model.safetensors")
    assert config["workflows"][0]["args"]["init"] == {"folder": str(finished), "sha256": sha256}
    assert sha256 == file_digest(job / "app_server" / "config" / "model.safetensors")
    shown = [
        (job / "app" / "config" / f"config_fed_{side}.json").read_text()
        for side in ("client", "server")
    ]
    assert not [text for text in shown if str(finished) in text], "sites are told no path"
    assert experiment_in(job / "app" / "config") == experiment_in(job / "app_server" / "config")
    module, name = config["workflows"][0]["path"].rsplit(".", 1)
    getattr(import_module(module), name)(**config["workflows"][0]["args"])


@pytest.mark.parametrize("clinical", [False, True])
def test_weights_are_no_code_to_flare(finished, tmp_path, clinical):
    """Neither the server, which checks the whole job, nor a participant, which checks its app."""
    export_job(tiny(), tmp_path / "job", clinical, HOSPITALS, finished)
    valid, error, meta = JobMetaValidator().validate(
        "job", zip_directory_to_bytes(str(tmp_path), "job")
    )
    assert valid, error
    at_server = DefaultAppValidator("server").validate(tmp_path / "job" / "app_server")
    at_site = DefaultAppValidator("client").validate(tmp_path / "job" / "app")
    assert at_server[0] == ""
    assert at_site[0] == ""
    assert [bool(found.get("byoc")) for found in (meta, at_server[1], at_site[1])] == [
        not clinical
    ] * 3


def test_a_research_job_with_weights_names_its_sites(finished, tmp_path):
    export_job(tiny(), tmp_path / "job", init=finished)
    deploy_map = json.loads((tmp_path / "job" / "meta.json").read_text())["deploy_map"]
    assert deploy_map == {"app_server": ["server"], "app": site_names(10)}


def test_a_clinical_job_for_all_sites_carries_no_weights(finished, tmp_path):
    with pytest.raises(ConfigError, match="Name them with --sites"):
        export_job(tiny(), tmp_path / "job", clinical=True, init=finished)
    assert not (tmp_path / "job").exists()


def test_weights_that_do_not_fit_are_not_exported(finished, tmp_path):
    with pytest.raises(ConfigError, match="expected tensors of the network's encoder"):
        export_job(tiny(net="resnet10t"), tmp_path / "job", init=finished)
    with pytest.raises(ConfigError, match=r"expected model\.safetensors and model\.json"):
        export_job(tiny(), tmp_path / "job", init=tmp_path)
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("inside", ["app_server/config", "runs/one", "."])
def test_weights_inside_the_replaced_job_are_refused_and_kept(finished, tmp_path, inside):
    export_job(tiny(), tmp_path / "job", init=finished)
    init = tmp_path / "job" / inside
    shutil.copytree(finished, init, dirs_exist_ok=True)
    before = {name: (tmp_path / "job" / name).read_bytes() for name in files_of(tmp_path / "job")}
    (tmp_path / "link").symlink_to(tmp_path / "job")
    for out in ("job", "link"):
        with pytest.raises(ConfigError, match="expected a folder outside the job folder"):
            export_job(tiny(seed=5), tmp_path / out, init=init)
    assert before == {
        name: (tmp_path / "job" / name).read_bytes() for name in files_of(tmp_path / "job")
    }


def test_an_export_replaces_another_with_weights(finished, tmp_path):
    for clinical in (False, True):
        for init in (None, finished, None):
            export_job(tiny(), tmp_path / "job", clinical, HOSPITALS, init)
        assert files_of(tmp_path / "job") == set(job_files(tiny(), "job", clinical, HOSPITALS))
        assert not (tmp_path / "job" / "app_server").exists()


def test_a_shipped_job_with_weights_is_stale(finished, tmp_path):
    for name, job in JOBS.items():
        export_job(job(), tmp_path / name)
    (tmp_path / "fedavg" / "app" / "config" / "model.safetensors").write_bytes(b"\xff\x00")
    assert stale_jobs(tmp_path) == ["fedavg"]


def test_every_class_a_job_names_exists_and_takes_its_arguments():
    server, client = configs(job_files(tiny(), "job"))
    parts = [
        *server["workflows"],
        *server["components"],
        client["executors"][0]["executor"],
        *client["components"],
    ]
    for part in parts:
        module, name = part["path"].rsplit(".", 1)
        getattr(import_module(module), name)(**part["args"])


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{", "[]", '{"workflows": [{"path": "os.system", "args": {}}]}']
)
def test_a_job_without_a_controller_that_can_be_read_is_refused(tmp_path, text):
    """The doctor reads jobs that somebody has sent to a hospital."""
    (tmp_path / "config_fed_server.json").write_text(text)
    with pytest.raises(ConfigError, match="expected one controller of fedward"):
        experiment_in(tmp_path)


def test_stale_foreign_and_missing_jobs_are_named(tmp_path):
    for name, job in JOBS.items():
        export_job(job(), tmp_path / name)
    # FLARE leaves such a file where it has signed a submitted job.
    (tmp_path / "fedavg" / ".__nvfl_sig.json").write_text("{}")
    assert stale_jobs(tmp_path) == []
    config = tmp_path / "fedperl" / "app" / "config" / "config_fed_server.json"
    config.write_text(config.read_text().replace("0.1", "0.2"))
    (tmp_path / "ssfl" / "note.txt").write_text("by hand")
    shutil.rmtree(tmp_path / "fedavg_full")
    (tmp_path / "mine").mkdir()
    assert stale_jobs(tmp_path) == ["fedavg_full", "fedperl", "mine", "ssfl"]
    assert stale_jobs(tmp_path / "nowhere") == sorted(JOBS)
