"""Checks of the connection to the server: name, port, and TLS with the kit's own certificate.

In TLS 1.3 a client finishes its handshake before the server has looked at the client's certificate.
A server that refuses it then closes the connection or sends an alert. One that accepts it sends its
settings (gRPC) or waits (http, tcp). The checks therefore wait for the first byte after the
handshake. gRPC servers hang up on clients that do not offer HTTP/2.
"""

import socket
import ssl

from cryptography import x509
from nvflare.tool.cert.fingerprint import cert_fingerprint_sha256

from fedward.errors import ConfigError, reason_of_system
from fedward.flare.kits.disks import is_full
from fedward.flare.kits.doctor.certificates import common_name
from fedward.flare.kits.doctor.rows import Row, broken, done, failed, skipped, warning
from fedward.flare.kits.health import connected, is_older
from fedward.flare.kits.kit import Kit

_CONNECT = 5.0
"""Seconds for a connection."""

_ANSWER = 2.0
"""Seconds in which a server may still refuse our certificate after a handshake."""

_TLS = "TLS"
_MUTUAL = "mutual TLS"

_ANOTHER_SERVICE = (
    "Another service or project answers, or a proxy that decrypts TLS. "
    "Correct the address, or exempt this port from the proxy."
)
_VERIFICATION_ERRORS = {
    9: (
        "a certificate that is not valid yet",
        "Compare this machine's clock with the server's. "
        "If both are right, its administrator has to look at it.",
    ),
    10: (
        "an expired certificate",
        "The server's administrator has to renew it. "
        "If it has not ended yet, this machine's clock is wrong.",
    ),
    62: ("a certificate for another name", _ANOTHER_SERVICE),
    64: ("a certificate for another address", _ANOTHER_SERVICE),
}
"""OpenSSL's code for refusing the server's certificate -> (what is wrong, what to do).

All other codes mean that nobody we trust signed the certificate."""


def check(kit: Kit, credentials: bool) -> list[Row]:
    """Try to reach the server.

    Args:
        kit: the kit.
        credentials: whether the kit's key and certificate can be used; else no handshake is tried.
    """
    try:
        entries = socket.getaddrinfo(kit.host, kit.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return [
            failed(
                "server name",
                expected=f"an address for {kit.host}",
                found=str(error),
                remedy="Ask for a DNS entry, or add the name to /etc/hosts.",
            ),
            skipped("port", "no address"),
            skipped(_TLS, "no address"),
        ]
    addresses = sorted({str(address[0]) for *_, address in entries})
    rows = [done("server name", f"{kit.host} is {', '.join(addresses)}")]
    try:
        _connect(kit).close()
    except OSError as error:
        return [*rows, _closed_port(kit, error), skipped(_TLS, "no connection")]
    rows.append(_open_port(kit))
    if kit.security == "clear":
        rows.append(
            warning(
                _TLS,
                expected="an encrypted connection",
                found="connection_security clear: nothing is encrypted",
                remedy="Use this inside one machine only.",
            )
        )
    elif credentials:
        rows += _tls(kit)
    else:
        rows.append(skipped(_TLS, "the kit's certificate cannot be used"))
    return rows


def handshake(kit: Kit, show_certificate: bool) -> tuple[str, x509.Certificate]:
    """Return the TLS version and the server's certificate.

    The server has had the time to refuse the kit's certificate by then.

    Args:
        kit: the kit.
        show_certificate: whether to show the kit's own certificate.

    Raises:
        ssl.SSLCertVerificationError: the server's certificate is not the one we expect.
        OSError: the server refuses us, or does not speak TLS.
    """
    grpc = "grpc" in kit.scheme
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # FLARE's other transports compare the identity only, and do so later.
    context.check_hostname = grpc
    context.load_verify_locations(kit.trusted)
    if show_certificate:
        context.load_cert_chain(kit.certificate, kit.key)
    if grpc:
        context.set_alpn_protocols(["h2"])
    with _connect(kit) as plain, context.wrap_socket(plain, server_hostname=kit.host) as secure:
        secure.settimeout(_ANSWER)
        try:
            if not secure.recv(1):
                raise ConnectionResetError("the server hung up after the handshake")
        except TimeoutError:
            pass  # The server waits for us, so it has accepted the certificate.
        certificate = x509.load_der_x509_certificate(secure.getpeercert(True) or b"")
        return secure.version() or "", certificate


def _connect(kit: Kit) -> socket.socket:
    return socket.create_connection((kit.host, kit.port), _CONNECT)


def _open_port(kit: Kit) -> Row:
    """Return the row of an open port, which at a server must be held by the kit's own process."""
    if kit.role != "server":
        return done("port", f"{kit.port} is open")
    try:
        held_by_kit, evidence = connected(kit)
    except ConfigError as error:
        return broken("port", error)
    if held_by_kit:
        return done("port", f"{kit.port} is open, held by this kit's server")
    expected = f"port {kit.port} held by this kit's own server"
    if is_older(kit):
        return warning(
            "port",
            expected=expected,
            found=f"it is open, and nothing says who holds it: {evidence}",
            remedy=(
                f"Copy the component fedward_presence into {kit.resources.name} "
                "from a newly provisioned kit."
            ),
        )
    remedy = (
        "Stop what holds it, or start this kit's server: the process at this port is another one."
    )
    if is_full(kit.own_folder):
        remedy = "Make room, and look again a minute later: its server writes then what it holds."
    return failed("port", expected=expected, found=f"it is open, but {evidence}", remedy=remedy)


def _closed_port(kit: Kit, error: OSError) -> Row:
    if kit.role == "server" and isinstance(error, ConnectionRefusedError):
        return warning(
            "port",
            expected="this server, started",
            found="nobody listens yet",
            remedy="Start it: startup/start.sh.",
        )
    return failed(
        "port",
        expected=f"a connection to {kit.host}:{kit.port} within {_CONNECT:.0f} s",
        found=reason_of_system(error),
        remedy=(
            "If the connection was refused, check that the server runs and that this is its port. "
            "If it timed out, have the firewall let connections out to this port."
        ),
    )


def _tls(kit: Kit) -> list[Row]:
    mutual = kit.security == "mtls"
    try:
        version, certificate = handshake(kit, show_certificate=mutual)
    except ssl.SSLCertVerificationError as error:
        unsigned = (f"a certificate that {kit.trusted.name} did not sign", _ANOTHER_SERVICE)
        problem, remedy = _VERIFICATION_ERRORS.get(error.verify_code, unsigned)
        return [
            failed(
                _TLS,
                expected=f"the certificate of {kit.host}, signed by {kit.trusted.name}",
                found=f"{problem} ({error.verify_message.strip()})",
                remedy=remedy,
            )
        ]
    except OSError as error:
        return [
            failed(
                _TLS,
                expected="a server that accepts the kit's certificate",
                found=getattr(error, "reason", None) or reason_of_system(error),
                remedy=(
                    "Ask for a new kit if this one has expired or is of another provisioning than "
                    "the server. Otherwise check that a FLARE server listens at this port."
                ),
            )
        ]
    name = common_name(certificate.subject)
    if name != kit.identity:
        return [
            failed(
                _TLS,
                expected=f"the server {kit.identity}",
                found=f"{name or 'no name'}, of the same project",
                remedy=(
                    "Correct the address in the kit's configuration: "
                    "another participant answers there."
                ),
            )
        ]
    rows = [done(_TLS, f"{version} with {name}\n{cert_fingerprint_sha256(certificate)}")]
    if mutual:
        rows.append(_demands_certificate(kit))
    return rows


def _demands_certificate(kit: Kit) -> Row:
    """Check that the server refuses a client without a certificate."""
    try:
        handshake(kit, show_certificate=False)
    except (ssl.SSLError, ConnectionError):
        return done(_MUTUAL, "accepted with the kit's certificate, refused without")
    except OSError as error:
        return skipped(_MUTUAL, str(error))
    return warning(
        _MUTUAL,
        expected="a server that refuses clients without a certificate",
        found="one that accepts everybody",
        remedy=(
            "Tell the project's administrator: the server's connection_security should be mtls."
        ),
    )
