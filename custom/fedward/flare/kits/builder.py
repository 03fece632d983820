"""The rules that a hospital sets for what runs on its data, written into its startup kit."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from nvflare.lighter.constants import ProvFileName
from nvflare.lighter.entity import Participant, Project
from nvflare.lighter.spec import Builder, ProvisionContext

from fedward.errors import ConfigError
from fedward.flare.classes import (
    ALLOWED,
    APP_CHECK,
    CONSOLE,
    JOBS_THAT_START,
    KIT_METRICS,
    KIT_PRESENCE,
    LAUNCHER,
    ONE_ENTRY_A_RECORD,
    JobSide,
)

CONNECTIONS = ProvFileName.COMM_CONFIG
"""File in ``local/`` that says how a participant's own processes reach each other."""

RESOURCES = ProvFileName.RESOURCES_JSON_DEFAULT
"""File in ``local/`` that says what may run, and how."""

LOGS = ProvFileName.LOG_CONFIG_DEFAULT
"""File in ``local/`` that says what is logged, and where."""

ERROR_LOG = "errorFileHandler"
"""Handler in that file that writes ``error_log.txt``."""

SAFE_IMPORTS = 'export PYTHONPATH="${PYTHONPATH:-}" PYTHONSAFEPATH=1'
"""The line of a start script that replaces FLARE's."""

_FLARES_PATH = "export PYTHONPATH=/local/custom:$PYTHONPATH"

_OWN_FOLDER = re.compile(r'(?<!")\$DIR(/[\w./]+)')
"""A path beside a script of FLARE's that breaks where the kit's path has a space."""

_CONSOLE = "nvflare.fuel.hci.tools.admin"
"""FLARE's console, a module."""

_STARTING_JOBS_FILTER = "jobs_that_start"
"""Name of the filter that keeps questions to starting jobs out of the server's log of errors."""

_ENTRIES_FILTER = "one_entry_a_record"
"""Name of the filter that makes each record one entry of a log."""

_HEARTBEATS_MISSED = 60
"""Seconds without a heartbeat after which the server counts a site as gone.

Heartbeats come every 10 seconds. FLARE's own value is 600."""

_ANSWER_SECONDS = 30.0
"""Seconds after which a site asks again, if its question was lost with the server.

FLARE's own value is 300. For the question for work FLARE takes the larger of this and a job's
``get_task_timeout``, so that a job cannot lower it. Results have a limit of their own in a job."""

_TEMPLATES = files("fedward.flare.kits") / "templates"


class SitePolicyBuilder(Builder):  # type: ignore[misc]
    """Writes the rules into the server's and the sites' kits; follows ``StaticFileBuilder``.

    What may run, and how, is in ``local/resources.json.default``, the only one of these files that
    ``nvflare deploy prepare`` keeps. The server has no privacy scopes: each site lists those it
    allows. The start script in ``startup/`` imports nothing from the kit, and a site's
    configuration there sets how long the site waits for an answer.

    Args:
        server_storage: absolute path of the server's folder for jobs, results included. FLARE's
            default is a public folder under /tmp.

    Raises:
        ConfigError: ``server_storage`` is a relative path.
    """

    def __init__(self, server_storage: str = "/var/lib/fedward") -> None:
        if not PurePath(server_storage).is_absolute():
            raise ConfigError(
                "SitePolicyBuilder, server_storage",
                expected="an absolute path",
                found=server_storage,
                remedy="Write it in full: the server may start in any folder.",
            )
        self.server_storage = server_storage

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        """Write the files; FLARE calls this once for each provisioning."""
        for site in project.get_clients():
            self._build_site(site, ctx)
        for admin in project.get_admins():
            script = Path(ctx.get_kit_dir(admin)) / ProvFileName.FL_ADMIN_SH
            _quote_paths(script)
            # In FLARE's console the server chooses what is sent, and where what it sends lies.
            _replace_once(script, f"-m {_CONSOLE} ", f"-m {CONSOLE} ")
        server = project.get_server()
        if server:
            self._build_server(server, ctx)

    def _build_site(self, site: Participant, ctx: ProvisionContext) -> None:
        _write_shared(site, ctx)
        local = Path(ctx.get_local_dir(site))
        for name in ("privacy.json", "fedward_site.yaml.sample", "fedward_policy.yaml"):
            _copy_template(name, local)
        with _rewritten(local / RESOURCES) as resources:
            _set_rules(resources, "site")
            resources["allow_log_streaming"] = False
        with _rewritten(Path(ctx.get_kit_dir(site)) / ProvFileName.FED_CLIENT_JSON) as client:
            client["client"]["communication_timeout"] = _ANSWER_SECONDS
            # Without this entry FLARE sends the server every entry of the kit's configuration that
            # it does not know.
            client["client"]["site_config"] = {}

    def _build_server(self, server: Participant, ctx: ProvisionContext) -> None:
        _write_shared(server, ctx)
        local = Path(ctx.get_local_dir(server))
        with _rewritten(local / RESOURCES) as resources:
            _set_rules(resources, "server")
            storage = resources["snapshot_persistor"]["args"]["storage"]
            storage["args"]["root_dir"] = f"{self.server_storage}/snapshots"
            job_manager = _component(resources, "job_manager")
            job_manager["args"]["uri_root"] = f"{self.server_storage}/jobs"
            resources["servers"][0]["heart_beat_timeout"] = _HEARTBEATS_MISSED
        with _rewritten(local / LOGS) as logs:
            logs["filters"][_STARTING_JOBS_FILTER] = {"()": JOBS_THAT_START}
            logs["handlers"][ERROR_LOG]["filters"].append(_STARTING_JOBS_FILTER)


def app_check(side: JobSide) -> dict[str, Any]:
    """Return the part of a kit's resources that refuses apps with other files than an export's."""
    return {"path": APP_CHECK, "args": {"role": side}}


def _write_shared(participant: Participant, ctx: ProvisionContext) -> None:
    """Write what the kits of sites and server have in common."""
    local = Path(ctx.get_local_dir(participant))
    _copy_template("authorization.json", local)
    _copy_template(CONNECTIONS, local)
    with _rewritten(local / LOGS) as logs:
        logs["filters"][_ENTRIES_FILTER] = {"()": ONE_ENTRY_A_RECORD}
        for handler in logs["handlers"].values():
            handler["filters"] = [*handler.get("filters", []), _ENTRIES_FILTER]
    startup = Path(ctx.get_kit_dir(participant))
    _shut_out_the_kit(startup / ProvFileName.SUB_START_SH)
    _quote_paths(startup / ProvFileName.START_SH)


def _copy_template(name: str, folder: Path) -> None:
    text = (_TEMPLATES / name).read_text(encoding="utf-8")
    (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def _rewritten(file: Path) -> Iterator[dict[str, Any]]:
    """Let the caller change the content of a JSON file."""
    content = json.loads(file.read_text(encoding="utf-8"))
    yield content
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _shut_out_the_kit(script: Path) -> None:
    """Let a start script's Python import nothing from the working directory, which is the kit.

    FLARE's line leaves an empty entry in PYTHONPATH where none was set, and that means the working
    directory too.
    """
    _replace_once(script, _FLARES_PATH, SAFE_IMPORTS)


def _replace_once(script: Path, old: str, new: str) -> None:
    """Replace what stands once in a script of FLARE's.

    Raises:
        ConfigError: it does not stand there once, as the script is of another version of FLARE.
    """
    text = script.read_text(encoding="utf-8")
    occurrences = text.count(old)
    if occurrences != 1:
        raise ConfigError(
            f"SitePolicyBuilder, {script.name}",
            expected=f"one line {old}",
            found=str(occurrences),
            remedy="Use the version of nvflare that fedward requires.",
        )
    script.write_text(text.replace(old, new), encoding="utf-8")


def _quote_paths(script: Path) -> None:
    """Let a script of FLARE's work in a folder whose path has spaces."""
    text = script.read_text(encoding="utf-8")
    script.write_text(_OWN_FOLDER.sub(r'"$DIR\1"', text), encoding="utf-8")


def _set_rules(resources: dict[str, Any], side: JobSide) -> None:
    _component(resources, "process_launcher")["path"] = LAUNCHER[side]
    resources["components"] += [
        {"id": "fedward_metrics", "path": KIT_METRICS, "args": {}},
        {"id": "fedward_presence", "path": KIT_PRESENCE, "args": {}},
    ]
    resources["class_allow_list"] = list(ALLOWED[side])
    resources["app_validator"] = app_check(side)


def _component(resources: dict[str, Any], name: str) -> dict[str, Any]:
    (component,) = (part for part in resources["components"] if part["id"] == name)
    return component  # type: ignore[no-any-return]
