"""Jobs that would run what a participant did not allow, sent by a lead to a provisioned federation.

Most jobs carry three attacks, one in the app of each hospital; the server's own app is as exported.
"""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from careless import let_everything_pass, restart
from fedward.flare.classes import EXECUTOR
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import session, submit, wait
from fedward.flare.kits.builder import RESOURCES
from foreign_jobs import (
    CLIENT,
    SERVER,
    Change,
    args,
    bring,
    component,
    edit,
    loader,
    replaced,
    rewritten,
)
from local_federation import HOSPITALS, LEAD
from local_federation import SERVER as HOST
from tiny import clinical
from waiting import PATIENCE
from watched import EVERYBODY, Watched

pytestmark = pytest.mark.secure
REFUSED = "refused by the site before anything is imported; the lead reads the file's name"


class Web(ThreadingHTTPServer):
    """A web server that notes who asks it for something."""

    def __init__(self) -> None:
        asked = self.asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with Watched(tmp_path_factory.mktemp("federation"), image_size=16) as running:
        yield running


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.shutdown()


def exported(folder: Path, changes: dict[str, Change]) -> Path:
    """Return a clinical job of one round with an app for each participant, changed for some."""
    export_job(clinical(options={"rounds": 1}), folder, clinical=True)
    for name in EVERYBODY:
        app = shutil.copytree(folder / "app", folder / f"app_{name}")
        changes.get(name, lambda app: None)(app)
    shutil.rmtree(folder / "app")
    places = {f"app_{name}": ["server" if name == HOST else name] for name in EVERYBODY}
    edit("meta.json", lambda meta: meta.update(deploy_map=places))(folder)
    return folder


@dataclass
class Outcome:
    """What the lead learns about a job that was refused."""

    job_id: str
    status: str
    by: dict[str, str] = field(default_factory=dict)
    """Participant -> ``OK``, or why it refused the job."""


def refused(federation: Watched, job: Path) -> Outcome:
    """Submit a job, and return who refused it and why."""
    with session(federation.kit(LEAD)) as flare:
        meta = wait(flare, submit(flare, job), PATIENCE)
    by = {}
    for line in meta.get("job_deploy_detail") or []:
        name, _, text = str(line).partition(": ")
        by[name] = text
    return Outcome(str(meta["job_id"]), str(meta["status"]), by)


def nothing_ran(federation: Watched, outcome: Outcome) -> None:
    """Assert that no process of the job started at a hospital, and that nobody's code ran."""
    assert outcome.status == "FINISHED:FAILED_TO_RUN"
    for name in HOSPITALS:
        assert not list((federation.kit(name) / outcome.job_id).glob("log*"))
    assert federation.ran == []


# --- code in an app, and a class that imports it


@pytest.mark.proves(
    "lead",
    "code among a clinical job's configuration, and an installed class that imports it",
    "refused by server and sites before anything is imported, also where one or two "
    "of the checks are switched off",
)
def test_code_among_the_configuration_is_refused_by_every_site(federation, tmp_path):
    changes = dict.fromkeys(HOSPITALS, loader(CLIENT, federation.code))
    outcome = refused(federation, exported(tmp_path / "job", changes))
    assert outcome.by["server"] == "OK"
    for hospital in HOSPITALS:
        assert outcome.by[hospital].startswith(
            "NVFLARE_ERROR: app: expected nothing but config/config_fed_client.json"
        )
        assert "'config/evil.py'" in outcome.by[hospital]
    nothing_ran(federation, outcome)


@pytest.mark.proves(
    "lead",
    "code among a clinical job's configuration, and an installed class that imports it",
    "refused by server and sites before anything is imported, also where one or two "
    "of the checks are switched off",
)
def test_code_among_the_configuration_is_refused_by_the_server(federation, tmp_path):
    job = exported(tmp_path / "job", {HOST: loader(SERVER, federation.code)})
    outcome = refused(federation, job)
    assert "'config/evil.py'" in outcome.by["server"]
    nothing_ran(federation, outcome)


# --- further attacks, each in the app of one hospital


@dataclass(frozen=True)
class Attack:
    """What is tried, and what the refusal names."""

    case: str
    make: Callable[[Watched, Web], Change]
    names: str


NOISE = {
    "tasks": ["fedward"],
    "filters": [
        {
            "path": "fedward.flare.privacy.GaussianUpdateFilter",
            "args": {"clip": 1.0, "noise_multiplier": 1e-3, "delta": 0.5},
        }
    ],
}


def argument(**changes: Any) -> Change:
    return edit(CLIENT, lambda content: args(CLIENT)(content).update(changes))


ATTACKS = [
    Attack("a Python file", lambda fed, _: bring("config/evil.py", fed.code), "'config/evil.py'"),
    Attack(
        "one in a folder of its own",
        lambda fed, _: bring("x/y/evil.py", fed.code),
        "'x/y/evil.py'",
    ),
    Attack(
        "a `sitecustomize.py`",
        lambda fed, _: bring("sitecustomize.py", fed.code),
        "'sitecustomize.py'",
    ),
    Attack(
        "a `resources.json`",
        lambda *_: bring("config/resources.json", '{"nvflare_decomposers": "this"}'),
        "'config/resources.json'",
    ),
    Attack(
        "a `comm_config.json`",
        lambda *_: bring("config/comm_config.json", '{"allow_adhoc_conns": true}'),
        "'config/comm_config.json'",
    ),
    Attack(
        "a second configuration",
        lambda *_: bring("config/a/config_fed_client.json", "{}"),
        "'config/a'",
    ),
    Attack(
        "HOCON that includes a file and a web address",
        lambda _, web: replaced(
            CLIENT,
            "config/config_fed_client.conf",
            f'include url("http://127.0.0.1:{web.server_port}/")\ninclude file("/etc/hostname")\n',
        ),
        "'config/config_fed_client.conf'",
    ),
    Attack(
        "an unlisted class",
        lambda *_: component(CLIENT, "fedward.cli.main", arguments=["--help"]),
        "the class fedward.cli.main",
    ),
    Attack(
        "a function that a listed module imports",
        lambda *_: component(CLIENT, "fedward.flare.executor.os.system", command="true"),
        "the class fedward.flare.executor.os.system",
    ),
    Attack(
        "a method of a listed class",
        lambda *_: component(CLIENT, f"{EXECUTOR}.execute"),
        "MonaiTrainerExecutor.execute",
    ),
    Attack(
        "a class that writes files",
        lambda *_: component(
            CLIENT, "nvflare.app_common.widgets.metrics_artifact_writer.MetricsArtifactWriter"
        ),
        "MetricsArtifactWriter",
    ),
    Attack(
        "a privacy filter",
        lambda *_: edit(CLIENT, lambda content: content.update(task_result_filters=[NOISE])),
        "GaussianUpdateFilter",
    ),
    Attack(
        "a class among the arguments of a listed one",
        lambda *_: argument(helper={"path": "subprocess.Popen", "args": {"args": ["true"]}}),
        "the class subprocess.Popen",
    ),
    Attack(
        "a class among the settings in the server's file",
        lambda *_: edit(
            SERVER, lambda content: args(SERVER)(content).update(helper={"class_path": "os.system"})
        ),
        "the class os.system",
    ),
    Attack(
        "a listed class with other arguments",
        lambda *_: edit(
            CLIENT, lambda content: content["components"][0]["args"].update(events_to_convert=["x"])
        ),
        "other values of components",
    ),
    Attack(
        "an environment variable (`{$NAME}`)",
        lambda *_: edit(
            SERVER,
            lambda content: args(SERVER)(content)["experiment"]["data"].update(name="{$PATH}"),
        ),
        "a brace",
    ),
    Attack(
        "a key that comes twice",
        lambda *_: rewritten(CLIENT, lambda text: '{"executors": [], ' + text.lstrip()[1:]),
        "a key that comes twice",
    ),
    Attack(
        "a configuration above a megabyte",
        lambda *_: rewritten(CLIENT, lambda text: text + " " * (1 << 20)),
        "at most 1048576 bytes",
    ),
    Attack(
        "deeply nested JSON",
        lambda *_: rewritten(CLIENT, lambda _: '{"a":' * 100_000 + "1" + "}" * 100_000),
        "RecursionError",
    ),
]


@pytest.fixture(scope="module")
def answers(
    federation: Watched, web: Web, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Attack -> why it was refused. Each job carries three attacks, one for each hospital."""
    refusals = {}
    hospitals = list(HOSPITALS)
    for start in range(0, len(ATTACKS), len(hospitals)):
        three = dict(zip(hospitals, ATTACKS[start:], strict=False))
        changes = {hospital: attack.make(federation, web) for hospital, attack in three.items()}
        outcome = refused(federation, exported(tmp_path_factory.mktemp("jobs") / "job", changes))
        assert outcome.by["server"] == "OK"
        nothing_ran(federation, outcome)
        for hospital, attack in three.items():
            refusals[attack.case] = outcome.by[hospital]
    return refusals


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(
            attack, marks=pytest.mark.proves("lead", f"a clinical job with {attack.case}", REFUSED)
        )
        for attack in ATTACKS
    ],
    ids=lambda attack: attack.case,
)
def test_a_job_with_more_than_an_export_is_refused_by_the_site(answers, web, attack):
    assert attack.names in answers[attack.case]
    assert web.asked == []


# --- one line of defence taken away after the other, at one hospital
# These are the last tests, because the hospital stays like that.


def resources(federation: Watched, **changes: Any) -> None:
    """Change a hospital's own rules, of which None removes one.

    The hospital reads its class list again for each job, and all else when it starts.
    """
    file = federation.kit("hospital-b") / "local" / RESOURCES
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.fixture(scope="module")
def unchecked(federation: Watched) -> None:
    """Restart a hospital without the check of apps."""
    resources(federation, app_validator=None)
    restart(federation, "hospital-b")


def log(federation: Watched, job_id: str) -> str:
    """Return what the hospital's process of a job wrote."""
    return (federation.kit("hospital-b") / job_id / "log.txt").read_text()


@pytest.mark.proves(
    "lead",
    "code among a clinical job's configuration, and an installed class that imports it",
    "refused by server and sites before anything is imported, also where one or two "
    "of the checks are switched off",
)
@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_class_list_refuses_what_was_not_checked(federation, tmp_path):
    job = exported(tmp_path / "job", {"hospital-b": loader(CLIENT, federation.code)})
    outcome = refused(federation, job)
    assert outcome.by["hospital-b"] == "OK"
    text = log(federation, outcome.job_id)
    assert "'fedward.report.template.PackageLoader' at config path" in text
    assert "is not in allow_list" in text
    assert federation.ran == []


@pytest.mark.proves(
    "lead",
    "code among a clinical job's configuration, and an installed class that imports it",
    "refused by server and sites before anything is imported, also where one or two "
    "of the checks are switched off",
)
@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_code_in_a_jobs_folder_is_not_found(federation, tmp_path):
    rules = json.loads((federation.kit("hospital-b") / "local" / RESOURCES).read_text())
    resources(federation, class_allow_list=[*rules["class_allow_list"], "fedward."])
    job = exported(tmp_path / "job", {"hospital-b": loader(CLIENT, federation.code)})
    outcome = refused(federation, job)
    assert f"No module named '{outcome.job_id}'" in log(federation, outcome.job_id)
    assert federation.ran == []


@pytest.mark.proves(
    "server",
    "own code, an unsigned job or a member's orders, from a server that lets everything pass",
    "refused by every site; nothing is imported",
)
@pytest.mark.slow
def test_sites_refuse_it_whatever_the_server_does(federation, tmp_path):
    let_everything_pass(federation)
    change = loader(CLIENT, federation.code)
    changes = {HOST: change, **dict.fromkeys(("hospital-a", "hospital-c"), change)}
    outcome = refused(federation, exported(tmp_path / "job", changes))
    assert outcome.by["server"] == "OK"
    for hospital in ("hospital-a", "hospital-c"):
        assert "'config/evil.py'" in outcome.by[hospital]
    assert federation.ran == []
