"""The rules a hospital sets for what runs on its data, written into its startup kit."""

import json
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from nvflare.lighter.constants import ProvFileName
from nvflare.lighter.entity import Participant, Project
from nvflare.lighter.spec import Builder, ProvisionContext

from fedward.errors import ConfigError

ALLOWED = "fedward."
"""The classes a job may name at a site besides FLARE's own list; the dot keeps ``fedwardx`` out."""

_HEARTBEATS_MISSED = 60
"""Seconds without a heartbeat, which comes every 10, after which the server counts a site as gone; FLARE's own: 600."""

_NO_TASK = 30.0
"""Seconds after which a site asks again for work, if its question was lost with the server's process. FLARE's own: 300,
and it takes the larger of this and a job's ``get_task_timeout``, so that a job cannot lower it."""

_POLICY = files("fedward.federation.flare") / "policy"


class SitePolicyBuilder(Builder):  # type: ignore[misc]
    """Writes the policy into ``local/`` of the server's and the sites' kits; goes behind ``StaticFileBuilder``.

    FLARE's own ``.default`` files stay beside it, so that a site sees what was changed. The server has no privacy
    scopes: which ones are allowed is for each site to say. In ``startup/`` of a site it sets how long the site waits
    for an answer to its question for work.

    Args:
        server_storage: folder at the server for jobs, results included; FLARE's default is a public one under /tmp.
    """

    def __init__(self, server_storage: str = "/var/lib/fedward") -> None:
        if not PurePath(server_storage).is_absolute():
            raise ConfigError(
                "SitePolicyBuilder, server_storage",
                expected="an absolute path",
                found=server_storage,
                remedy="Write it in full: the server may be started from any folder.",
            )
        self.server_storage = server_storage

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        """Write the files; FLARE calls this once for each provisioning."""
        for site in project.get_clients():
            local = _write_shared(site, ctx)
            _copy("privacy.json", local)
            _copy("fedward_site.yaml.sample", local)
            resources = _watched(_starting(_allowing(_defaults(local)), "SiteJobLauncher"))
            _write_json(local / "resources.json", resources | {"allow_log_streaming": False})
            _ask_again(Path(ctx.get_kit_dir(site)) / ProvFileName.FED_CLIENT_JSON)
        if server := project.get_server():
            local = _write_shared(server, ctx)
            resources = _watched(_starting(_allowing(_defaults(local)), "ServerJobLauncher"))
            _write_json(local / "resources.json", _storing(resources, self.server_storage))


def _write_shared(participant: Participant, ctx: ProvisionContext) -> Path:
    local = Path(ctx.get_local_dir(participant))
    _copy("authorization.json", local)
    return local


def _ask_again(file: Path) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    content["client"]["communication_timeout"] = _NO_TASK
    _write_json(file, content)


def _copy(name: str, folder: Path) -> None:
    (folder / name).write_text((_POLICY / name).read_text(encoding="utf-8"), encoding="utf-8")


def _defaults(local: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((local / ProvFileName.RESOURCES_JSON_DEFAULT).read_text(encoding="utf-8"))
    return content


def _allowing(resources: dict[str, Any]) -> dict[str, Any]:
    return resources | {"class_allow_list": [*resources["class_allow_list"], ALLOWED]}


def _starting(resources: dict[str, Any], launcher: str) -> dict[str, Any]:
    _component(resources, "process_launcher")["path"] = f"fedward.federation.flare.launchers.{launcher}"
    return resources


def _storing(resources: dict[str, Any], folder: str) -> dict[str, Any]:
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = f"{folder}/snapshots"
    _component(resources, "job_manager")["args"]["uri_root"] = f"{folder}/jobs"
    resources["servers"][0]["heart_beat_timeout"] = _HEARTBEATS_MISSED
    return resources


def _watched(resources: dict[str, Any]) -> dict[str, Any]:
    component = {"id": "fedward_metrics", "path": "fedward.federation.flare.kit_metrics.KitMetrics", "args": {}}
    return resources | {"components": [*resources["components"], component]}


def _component(resources: dict[str, Any], name: str) -> dict[str, Any]:
    (component,) = (part for part in resources["components"] if part["id"] == name)
    return component  # type: ignore[no-any-return]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
