"""A FLARE startup kit as it lies on disk: whose it is, and which server it is for."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nvflare.apis.workspace import Workspace

from fedward.errors import ConfigError
from fedward.flare.classes import Role as Side
from fedward.flare.places import resources, state_folder

Role = Literal["site", "server", "user"]

STARTUP = "startup"
"""Folder in a kit with certificates and start scripts."""

UNPACK_AGAIN = "Unpack the kit again as it was handed out."
"""What to do about missing or damaged files."""

_CONFIGS: dict[str, Role] = {
    "fed_client.json": "site",
    "fed_server.json": "server",
    "fed_admin.json": "user",
}
"""File in ``startup`` -> whose kit has it."""


@dataclass(frozen=True)
class Kit:
    """What the kit's own configuration says."""

    folder: Path
    role: Role
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
    def side(self) -> Side:
        """Which half of a job runs with a site's or the server's kit."""
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
    def state(self) -> Path:
        """Folder with what the participant keeps.

        Raises:
            ConfigError: jobs run in containers, and nothing names the folder.
        """
        return state_folder(self.folder)

    @property
    def resources(self) -> Path:
        """The file that says what may run: the participant's own, else the one of the kit."""
        return resources(self.folder)

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


def open_kit(folder: Path, role: Role | None = None) -> Kit:
    """Return what a kit's configuration says.

    Args:
        folder: the kit's.
        role: the only one that is accepted; any by default.

    Raises:
        ConfigError: there is no configuration, it cannot be read, or the kit has another role.
    """
    candidates = [folder / STARTUP / name for name in _CONFIGS]
    present = [file for file in candidates if file.is_file()]
    if len(present) != 1:
        raise ConfigError(
            f"kit {folder}",
            expected=f"one of {', '.join(_CONFIGS)} in {STARTUP}/",
            found=", ".join(file.name for file in present) or "none",
            remedy=UNPACK_AGAIN,
        )
    file = present[0]
    actual = _CONFIGS[file.name]
    content = read_json(file)
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
        components = read_json(kit.resources)["components"]
        (manager,) = (component for component in components if component["id"] == "job_manager")
        return Path(manager["args"]["uri_root"])


@contextmanager
def reading(where: str, expected: str, remedy: str) -> Iterator[None]:
    """Turn what goes wrong where a file's content is used into a ConfigError."""
    try:
        yield
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        found = f"{type(error).__name__}: {error}"
        raise ConfigError(where, expected=expected, found=found, remedy=remedy) from error


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; raises ConfigError with the file's name."""
    with reading(str(path), "a JSON object", "Correct or restore it."):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"a {type(content).__name__}")
        return content


def _kit(folder: Path, role: Role, content: dict[str, Any]) -> Kit:
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
    return Kit(
        folder=folder,
        role=role,
        name=name,
        project=project,
        scheme=scheme,
        host=host,
        port=int(port),
        identity=identity or host,
        security=participant.get("connection_security") or "mtls",
    )
