"""What a kit's resources say: which components it has, and what starts the processes of jobs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nvflare.apis.fl_constant import WorkspaceConstants
from nvflare.tool.deploy import deploy_common as deploy

from fedward.errors import ConfigError
from fedward.flare.kits.reading import read_json, reading

Runtime = Literal["docker", "k8s", "slurm"]
"""What starts the processes of jobs in a kit that ``nvflare deploy prepare`` has made."""

_RUNTIME_OF_ID: Mapping[str, Runtime] = {
    "docker_launcher": "docker",
    "k8s_launcher": "k8s",
    "slurm_launcher": "slurm",
}
_RUNTIME_OF_CLASS: Mapping[str, Runtime] = {
    deploy.DOCKER_CLIENT_LAUNCHER: "docker",
    deploy.DOCKER_SERVER_LAUNCHER: "docker",
    deploy.K8S_CLIENT_LAUNCHER: "k8s",
    deploy.K8S_SERVER_LAUNCHER: "k8s",
    deploy.SLURM_CLIENT_LAUNCHER: "slurm",
    deploy.SLURM_SERVER_LAUNCHER: "slurm",
}


def resources_file(kit: Path) -> Path:
    """Return the file that says what may run: the participant's own, else the one of the kit."""
    own = kit.joinpath(WorkspaceConstants.SITE_FOLDER_NAME, WorkspaceConstants.RESOURCES_CONFIG)
    return own if own.exists() else own.with_name(WorkspaceConstants.DEFAULT_RESOURCES_CONFIG)


def components(kit: Path) -> list[dict[str, Any]]:
    """Return the components of a kit that are not disabled; none if the file lists none.

    Raises:
        ConfigError: the file cannot be read, or lists something else.
    """
    file = resources_file(kit)
    remedy = "Correct it, or restore it from a newly provisioned kit."
    listed = read_json(file).get("components", [])
    with reading(str(file), "a list of components, each with a text as id and path", remedy):
        if not isinstance(listed, list):
            raise TypeError
        for entry in listed:
            if not all(isinstance(entry.get(key, ""), str) for key in ("id", "path")):
                raise TypeError
    return [component for component in listed if not component.get("disabled")]


def runtime_of(component: Mapping[str, Any]) -> Runtime | None:
    """Return the runtime in which a component starts jobs; None if it starts them in none."""
    by_class = _RUNTIME_OF_CLASS.get(component.get("path", ""))
    return by_class or _RUNTIME_OF_ID.get(component.get("id", ""))


def runs_in_containers(kit: Path) -> bool:
    """Return whether each job of a kit runs in a container of its own.

    Of the kit, the container sees ``startup`` and ``local`` alone. Slurm starts jobs in no
    container.
    """
    try:
        listed = components(kit)
    except ConfigError:
        return False  # FLARE does not start without such a file, or with one it cannot read.
    return any(runtime_of(component) in ("docker", "k8s") for component in listed)
