"""A FLARE startup kit as it lies on disk: whose it is, and which server it is for."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedward.errors import ConfigError
from fedward.flare.classes import Role as Side
from fedward.flare.places import RESOURCES, state_folder

STARTUP = "startup"
Role = Literal["site", "server", "user"]
_CONFIGS: dict[str, Role] = {"fed_client.json": "site", "fed_server.json": "server", "fed_admin.json": "user"}
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
    def startup(self) -> Path:
        """Folder with certificates and start scripts."""
        return self.folder / STARTUP

    @property
    def local(self) -> Path:
        """Folder with the participant's own rules."""
        return self.folder / "local"

    @property
    def state(self) -> Path:
        """Folder with what the participant keeps; ConfigError: jobs run in containers, and nothing names it."""
        return state_folder(self.folder)

    @property
    def resources(self) -> Path:
        """The file that says what may run: the participant's own, else the one that the kit came with."""
        return next((file for name in RESOURCES if (file := self.local / name).exists()), self.local / RESOURCES[-1])

    @property
    def key(self) -> Path:
        """The private key."""
        return self.startup / f"{self._stem}.key"

    @property
    def certificate(self) -> Path:
        """The participant's certificate."""
        return self.startup / f"{self._stem}.crt"

    @property
    def root(self) -> Path:
        """Certificate of the authority that signed all others of the project."""
        return self.startup / "rootCA.pem"

    @property
    def trusted(self) -> Path:
        """What the server's certificate is checked against: with plain TLS a proxy's authority may stand in."""
        own = self.startup / "customRootCA.pem"
        return own if self.security == "tls" and own.is_file() else self.root

    @property
    def _stem(self) -> str:
        return "server" if self.role == "server" else "client"


def open_kit(folder: Path, role: Role | None = None) -> Kit:
    """Return what a kit's configuration says.

    Args:
        folder: the kit's.
        role: the only one that is accepted; any by default.

    Raises:
        ConfigError: there is no configuration, it cannot be read, or the kit has another role.
    """
    startup = folder / STARTUP
    present = [name for name in _CONFIGS if (startup / name).is_file()]
    if len(present) != 1:
        expected, found = f"one of {', '.join(_CONFIGS)} in {STARTUP}/", ", ".join(present) or "none"
        raise ConfigError(f"kit {folder}", expected=expected, found=found, remedy=UNPACK_AGAIN)
    actual, content = _CONFIGS[present[0]], read_json(startup / present[0])
    if role not in (None, actual):
        remedy = f"Name the folder of a {role}'s kit."
        raise ConfigError(f"kit {folder}", expected=f"a {role}'s", found=f"a {actual}'s", remedy=remedy)
    with reading(str(startup / present[0]), "the project, the server and the participant", UNPACK_AGAIN):
        return _KIT_OF[actual](folder, content)


def job_store(kit: Kit) -> Path:
    """Return the folder in which a server keeps jobs and their results; ConfigError: its rules name none."""
    remedy = "Restore it from a newly provisioned kit."
    with reading(str(kit.resources), "a component job_manager with its folder, uri_root", remedy):
        (manager,) = (part for part in read_json(kit.resources)["components"] if part["id"] == "job_manager")
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
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"a {type(content).__name__}")
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(str(path), expected="a JSON object", found=found, remedy="Correct or restore it.") from error
    return content


def _site(folder: Path, content: dict[str, Any]) -> Kit:
    server, client = content["servers"][0], content["client"]
    name = str(client["fqsn"]).rsplit(".", 1)[-1]  # the last of a chain of relays
    return _kit(folder, "site", name, server, server.get("identity"), client)


def _server(folder: Path, content: dict[str, Any]) -> Kit:
    server = content["servers"][0]
    name = server["admin_server"]
    return _kit(folder, "server", name, server, name, server)


def _user(folder: Path, content: dict[str, Any]) -> Kit:
    admin = content["admin"]
    service = {"target": f"{admin['host']}:{admin['port']}", "scheme": admin["scheme"]}
    server = {"name": admin["project_name"], "service": service}
    return _kit(folder, "user", admin["username"], server, admin["server_identity"], admin)


def _kit(
    folder: Path, role: Role, name: str, server: dict[str, Any], identity: str | None, settings: dict[str, Any]
) -> Kit:
    host, _, port = server["service"]["target"].rpartition(":")
    security = settings.get("connection_security") or "mtls"
    scheme = server["service"].get("scheme", "grpc")
    return Kit(folder, role, name, server["name"], scheme, host, int(port), identity or host, security)


_KIT_OF = {"site": _site, "server": _server, "user": _user}
