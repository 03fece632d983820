"""A FLARE startup kit as it lies on disk: whose it is, and which server it is for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nvflare.apis.workspace import Workspace

from fedward.errors import ConfigError
from fedward.flare.classes import JobSide
from fedward.flare.kits.reading import read_json, reading
from fedward.flare.kits.resources import components, resources_file, runs_in_containers
from fedward.flare.places import own_folder, state_folder

KitRole = Literal["site", "server", "user"]
"""Whose kit it is."""

STARTUP = "startup"
"""Folder in a kit with certificates and start scripts."""

UNPACK_AGAIN = "Unpack the kit again as it was handed out."
"""What to do about missing or damaged files."""

_LAST_PORT = 65535

_CONFIGURATIONS: dict[str, KitRole] = {
    "fed_client.json": "site",
    "fed_server.json": "server",
    "fed_admin.json": "user",
}
"""File in ``startup`` -> whose kit has it."""


@dataclass(frozen=True)
class Kit:
    """What the kit's own configuration says."""

    folder: Path
    role: KitRole
    name: str
    """The participant's name, which its certificate must bear too."""
    project: str
    scheme: str
    """How messages travel: grpc, http or tcp."""
    host: str
    """The server's host name."""
    port: int
    """The server's port."""
    identity: str
    """The name in the server's certificate."""
    security: str
    """mtls: both sides show a certificate; tls: only the server does; clear: neither does."""

    def __str__(self) -> str:
        server = f"{self.host}:{self.port} ({self.scheme}, {self.security})"
        return f"Kit of {self.role} {self.name}, project {self.project}, server {server}"

    @property
    def side(self) -> JobSide:
        """Which part of a job runs with a site's or the server's kit."""
        return "server" if self.role == "server" else "site"

    @property
    def participant(self) -> str:
        """The name by which a job means it."""
        return "server" if self.role == "server" else self.name

    @property
    def workspace(self) -> Workspace:
        """The kit as FLARE reads it."""
        return Workspace(str(self.folder), self.name)

    @property
    def startup(self) -> Path:
        """Folder with certificates and start scripts."""
        return self.folder / STARTUP

    @property
    def local(self) -> Path:
        """Folder with the participant's own rules."""
        return self.folder / "local"

    @property
    def own_folder(self) -> Path:
        """Folder with what the participant keeps, as its own process sees it."""
        return own_folder(self.folder)

    @property
    def state(self) -> Path:
        """The same folder, for what the participant's jobs keep.

        Raises:
            ConfigError: jobs run in containers, and nothing names the folder.
        """
        return state_folder(self.folder)

    @property
    def resources(self) -> Path:
        """The file that says what may run: the participant's own, else the one of the kit."""
        return resources_file(self.folder)

    @property
    def components(self) -> list[dict[str, Any]]:
        """The components of that file that are not disabled.

        Raises:
            ConfigError: the file cannot be read, or lists something else.
        """
        return components(self.folder)

    @property
    def in_containers(self) -> bool:
        """Whether each job runs in a container of its own."""
        return runs_in_containers(self.folder)

    @property
    def key(self) -> Path:
        """The private key."""
        return self.certificate.with_suffix(".key")

    @property
    def certificate(self) -> Path:
        """The participant's certificate."""
        return self.startup / f"{'server' if self.role == 'server' else 'client'}.crt"

    @property
    def root(self) -> Path:
        """Certificate of the authority that signed all others of the project."""
        return self.startup / "rootCA.pem"

    @property
    def trusted(self) -> Path:
        """The authority that the server's certificate is checked against.

        With plain TLS a proxy may answer for the server, with a certificate of another authority.
        """
        proxy_root = self.startup / "customRootCA.pem"
        if self.security == "tls" and proxy_root.is_file():
            return proxy_root
        return self.root


def open_kit(folder: Path, role: KitRole | None = None) -> Kit:
    """Return what a kit's configuration says.

    Args:
        folder: the kit's.
        role: the only one that is accepted; any by default.

    Raises:
        ConfigError: there is no configuration, it cannot be read, or the kit has another role.
    """
    candidates = [folder / STARTUP / name for name in _CONFIGURATIONS]
    present = [file for file in candidates if file.is_file()]
    if len(present) != 1:
        raise ConfigError(
            f"kit {folder}",
            expected=f"one of {', '.join(_CONFIGURATIONS)} in {STARTUP}/",
            found=", ".join(file.name for file in present) or "none",
            remedy=UNPACK_AGAIN,
        )
    file = present[0]
    actual = _CONFIGURATIONS[file.name]
    content = read_json(file, UNPACK_AGAIN)
    if role not in (None, actual):
        raise ConfigError(
            f"kit {folder}",
            expected=f"a {role}'s",
            found=f"a {actual}'s",
            remedy=f"Name the folder of a {role}'s kit.",
        )
    with reading(str(file), "the project, the server and the participant", UNPACK_AGAIN):
        return _kit(folder, actual, content)


def job_store(kit: Kit) -> Path:
    """Return the folder in which a server keeps jobs and their results.

    Raises:
        ConfigError: the server's rules name no such folder.
    """
    remedy = "Restore it from a newly provisioned kit."
    with reading(str(kit.resources), "a component job_manager with its folder, uri_root", remedy):
        (manager,) = (
            component for component in kit.components if component.get("id") == "job_manager"
        )
        return Path(manager["args"]["uri_root"])


def _kit(folder: Path, role: KitRole, content: dict[str, Any]) -> Kit:
    if role == "user":
        participant = content["admin"]
        name = participant["username"]
        project = participant["project_name"]
        identity = participant["server_identity"]
        scheme = participant["scheme"]
        host = participant["host"]
        port = participant["port"]
    else:
        server = content["servers"][0]
        project = server["name"]
        service = server["service"]
        scheme = service.get("scheme", "grpc")
        host, _, port = service["target"].rpartition(":")
        if role == "server":
            participant = server
            name = server["admin_server"]
            identity = server["admin_server"]
        else:
            participant = content["client"]
            identity = server.get("identity")
            name = participant["fqsn"].rpartition(".")[-1]  # The last of a chain of relays.
    identity = identity or host
    security = participant.get("connection_security") or "mtls"
    if not all(isinstance(text, str) for text in (name, project, scheme, host, identity, security)):
        raise TypeError
    port = int(port)
    if not 0 < port <= _LAST_PORT:
        raise ValueError(f"the port {port}")
    return Kit(
        folder=folder,
        role=role,
        name=name,
        project=project,
        scheme=scheme,
        host=host,
        port=port,
        identity=identity,
        security=security,
    )
