"""The rules a hospital sets for what runs on its data, written into its startup kit."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from nvflare.lighter.constants import ProvFileName
from nvflare.lighter.entity import Participant, Project
from nvflare.lighter.spec import Builder, ProvisionContext

from fedward.errors import ConfigError
from fedward.flare.classes import ALLOWED, APP_CHECK, ERRORS, LAUNCHER, METRICS, PRESENCE, Role

_HEARTBEATS_MISSED = 60
"""Seconds without a heartbeat, which comes every 10, after which the server counts a site as gone;
FLARE's own: 600.
"""

_STARTING = "jobs_that_start"
"""What the filter of errors is called."""

_NO_TASK = 30.0
"""Seconds after which a site asks again for work, if its question was lost with the server's
process. FLARE's own: 300, and it takes the larger of this and a job's ``get_task_timeout``, so that
a job cannot lower it."""

CONNECTIONS = ProvFileName.COMM_CONFIG
"""File in ``local/`` that says how a participant's own processes reach each other."""

RESOURCES = ProvFileName.RESOURCES_JSON_DEFAULT
"""File in ``local/`` with what may run, and how."""

LOGS = ProvFileName.LOG_CONFIG_DEFAULT
"""File in ``local/`` with what is logged, and where."""
ERROR_LOG = "errorFileHandler"
"""In there: what writes ``error_log.txt``."""

_FLARES_PATH = "export PYTHONPATH=/local/custom:$PYTHONPATH"
SAFE_IMPORTS = 'export PYTHONPATH="${PYTHONPATH:-}" PYTHONSAFEPATH=1'
"""What stands in a start script in place of FLARE's line."""

_POLICY = files("fedward.flare.kits") / "templates"


class SitePolicyBuilder(Builder):  # type: ignore[misc]
    """Writes the policy into the server's and the sites' kits; goes behind ``StaticFileBuilder``.

    What may run, and how, stands in ``local/resources.json.default``, the one of these files that
    ``nvflare deploy prepare`` keeps. The server has no privacy scopes: each site says which ones it
    allows. In ``startup/`` the start script imports nothing from the kit, and a site's
    configuration sets how long it waits for an answer.

    Args:
        server_storage: folder at the server for jobs, results included; FLARE's default is a public
            one under /tmp.
    """

    def __init__(self, server_storage: str = "/var/lib/fedward") -> None:
        if not PurePath(server_storage).is_absolute():
            where = "SitePolicyBuilder, server_storage"
            remedy = "Write it in full: the server may start in any folder."
            raise ConfigError(
                where, expected="an absolute path", found=server_storage, remedy=remedy
            )
        self.server_storage = server_storage

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        """Write the files; FLARE calls this once for each provisioning."""
        for site in project.get_clients():
            local = _write_shared(
                site, ctx, "privacy.json", "fedward_site.yaml.sample", "fedward_policy.yaml"
            )
            with _rewritten(local / RESOURCES) as resources:
                _rule(resources, "site")
                resources["allow_log_streaming"] = False
            with _rewritten(Path(ctx.get_kit_dir(site)) / ProvFileName.FED_CLIENT_JSON) as client:
                client["client"]["communication_timeout"] = _NO_TASK
        server = project.get_server()
        if server:
            local = _write_shared(server, ctx)
            with _rewritten(local / RESOURCES) as resources:
                _rule(resources, "server")
                storage = resources["snapshot_persistor"]["args"]["storage"]
                storage["args"]["root_dir"] = f"{self.server_storage}/snapshots"
                _component(resources, "job_manager")["args"]["uri_root"] = (
                    f"{self.server_storage}/jobs"
                )
                resources["servers"][0]["heart_beat_timeout"] = _HEARTBEATS_MISSED
            with _rewritten(local / LOGS) as logs:
                logs["filters"][_STARTING] = {"()": ERRORS}
                logs["handlers"][ERROR_LOG]["filters"] = [_STARTING]


def _write_shared(participant: Participant, ctx: ProvisionContext, *further: str) -> Path:
    local = Path(ctx.get_local_dir(participant))
    for name in ("authorization.json", CONNECTIONS, *further):
        (local / name).write_text((_POLICY / name).read_text(encoding="utf-8"), encoding="utf-8")
    _shut_out_the_kit(Path(ctx.get_kit_dir(participant)) / ProvFileName.SUB_START_SH)
    return local


@contextmanager
def _rewritten(file: Path) -> Iterator[dict[str, Any]]:
    content = json.loads(file.read_text(encoding="utf-8"))
    yield content
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _shut_out_the_kit(script: Path) -> None:
    """Let a start script's Python import nothing from the working directory, which is the kit.

    FLARE's line leaves an empty entry in PYTHONPATH where none was set, and that means the working
    directory too.
    """
    text = script.read_text(encoding="utf-8")
    found = text.count(_FLARES_PATH)
    if found != 1:
        where = f"SitePolicyBuilder, {script.name}"
        remedy = "Use the version of nvflare that fedward requires."
        raise ConfigError(
            where, expected=f"one line {_FLARES_PATH}", found=str(found), remedy=remedy
        )
    script.write_text(text.replace(_FLARES_PATH, SAFE_IMPORTS), encoding="utf-8")


def _rule(resources: dict[str, Any], role: Role) -> None:
    _component(resources, "process_launcher")["path"] = LAUNCHER[role]
    resources["components"].append({"id": "fedward_metrics", "path": METRICS, "args": {}})
    resources["components"].append({"id": "fedward_presence", "path": PRESENCE, "args": {}})
    resources |= {"class_allow_list": list(ALLOWED[role]), "app_validator": app_check(role)}


def app_check(role: Role) -> dict[str, Any]:
    """Return the part of a kit's resources that refuses apps with other files than an export's."""
    return {"path": APP_CHECK, "args": {"role": role}}


def _component(resources: dict[str, Any], name: str) -> dict[str, Any]:
    (component,) = (part for part in resources["components"] if part["id"] == name)
    return component  # type: ignore[no-any-return]
