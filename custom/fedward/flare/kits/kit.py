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

STARTUP = "startup"
Role = Literal["site", "server", "user"]
_CONFIGS: dict[str, Role] = {
    "fed_client.json": "site",
    "fed_server.json": "server",
    "fed_admin.json": "user",
}
UNPACK_AGAIN = "Unpack the kit again as it was handed out."
"""What to do about missing or damaged files."""


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
    port: int
    identity: str
    """The name in the server's certificate."""
    security: str
    """mtls: both sides show a certificate; tls: the server alone; clear: nobody."""

    def __str__(self) -> str:
        server = f"{self.host}:{self.port} ({self.scheme}, {self.security})"
        return f"Kit of {self.role} {self.name}, project {self.project}, server {server}"

    @property
    def side(self) -> Side:
        """Which half of a job runs with it, for a site's or the server's kit."""
        return "server" if self.role == "server" else "site"

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
        """Folder with what the participant keeps; ConfigError: jobs run in containers, and nothing
        names it.
        """
        return state_folder(self.folder)

    @property
    def resources(self) -> Path:
        """The file that says what may run: the participant's own, else the one that the kit came
        with.
        """
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
        """What the server's certificate is checked against: with plain TLS a proxy's authority may
        stand in.
        """
        own = self.startup / "customRootCA.pem"
        return own if self.security == "tls" and own.is_file() else self.root


def open_kit(folder: Path, role: Role | None = None) -> Kit:
    """Return what a kit's configuration says.

    Args:
        folder: the kit's.
        role: the only one that is accepted; any by default.

    Raises:
        ConfigError: there is no configuration, it cannot be read, or the kit has another role.
    """
    present = [file for name in _CONFIGS if (file := folder / STARTUP / name).is_file()]
    if len(present) != 1:
        expected = f"one of {', '.join(_CONFIGS)} in {STARTUP}/"
        found = ", ".join(file.name for file in present)
        raise ConfigError(
            f"kit {folder}", expected=expected, found=found or "none", remedy=UNPACK_AGAIN
        )
    actual = _CONFIGS[present[0].name]
    content = read_json(present[0])
    if role not in (None, actual):
        remedy = f"Name the folder of a {role}'s kit."
        raise ConfigError(
            f"kit {folder}", expected=f"a {role}'s", found=f"a {actual}'s", remedy=remedy
        )
    with reading(str(present[0]), "the project, the server and the participant", UNPACK_AGAIN):
        return _kit(folder, actual, content)


def job_store(kit: Kit) -> Path:
    """Return the folder in which a server keeps jobs and their results; ConfigError: its rules name
    none.
    """
    remedy = "Restore it from a newly provisioned kit."
    with reading(str(kit.resources), "a component job_manager with its folder, uri_root", remedy):
        (manager,) = (
            part for part in read_json(kit.resources)["components"] if part["id"] == "job_manager"
        )
        return Path(manager["args"]["uri_root"])


@contextmanager
def reading(where: str, expected: str, remedy: str) -> Iterator[None]:
    """Turn what goes wrong where a file's content is used into a ConfigError."""
    try:
        yield
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise ConfigError(
            where, expected=expected, found=f"{type(error).__name__}: {error}", remedy=remedy
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; raises ConfigError with the file's name."""
    with reading(str(path), "a JSON object", "Correct or restore it."):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"a {type(content).__name__}")
        return content


def _kit(folder: Path, role: Role, content: dict[str, Any]) -> Kit:
    if role == "user":
        own = content["admin"]
        name = own["username"]
        project = own["project_name"]
        identity = own["server_identity"]
        scheme = own["scheme"]
        host = own["host"]
        port = own["port"]
    else:
        server = content["servers"][0]
        project = server["name"]
        service = server["service"]
        scheme = service.get("scheme", "grpc")
        (host, _, port) = service["target"].rpartition(":")
        if role == "server":
            own = server
            name = server["admin_server"]
            identity = server["admin_server"]
        else:
            own = content["client"]
            identity = server.get("identity")
            name = own["fqsn"].rpartition(".")[-1]  # the last of a chain of relays
    security = own.get("connection_security") or "mtls"
    return Kit(folder, role, name, project, scheme, host, int(port), identity or host, security)
