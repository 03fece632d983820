"""Checks of the connection to the server: its name, its port, and a TLS handshake with the kit's
own certificate.

In TLS 1.3 the client finishes its handshake before the server has looked at its certificate. A
server that refuses it then closes the connection or sends an alert. One that accepts sends its
settings (gRPC) or waits (http, tcp). So the first byte after the handshake is waited for. gRPC
hangs up on whoever does not offer HTTP/2.
"""

import socket
import ssl

from cryptography import x509
from nvflare.tool.cert.fingerprint import cert_fingerprint_sha256

from fedward.flare.kits.doctor.certificates import name_in
from fedward.flare.kits.doctor.rows import Row, done, failed, skipped, warning
from fedward.flare.kits.health import connected, is_older
from fedward.flare.kits.kit import Kit

_CONNECT = 5.0
_ANSWER = 2.0
"""Seconds for a connection, and for a refusal after a handshake."""

_TLS = "TLS"
_MUTUAL = "mutual TLS"
_ELSEWHERE = "Another service or project answers, or a proxy that opens TLS; the port must be reached unopened."
_VERIFY = {
    9: (
        "a certificate that is not valid yet",
        "Compare this machine's clock with the server's. If both are right, its administrator has to look at it.",
    ),
    10: (
        "an expired certificate",
        "The server's administrator has to renew it. If it has not ended yet, this machine's clock is wrong.",
    ),
    62: ("a certificate for another name", _ELSEWHERE),
    64: ("a certificate for another address", _ELSEWHERE),
}
"""OpenSSL's reasons for refusing the server's certificate, and what to do; all others mean that
nobody we trust signed it."""


def check(kit: Kit, credentials: bool) -> list[Row]:
    """Try the way to the server; without ``credentials`` the handshakes are left out."""
    try:
        found = socket.getaddrinfo(kit.host, kit.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        expected = f"an address for {kit.host}"
        remedy = "Ask for a DNS entry, or add the name to /etc/hosts."
        unresolved = failed("server name", expected=expected, found=str(error), remedy=remedy)
        return [unresolved, skipped("port", "no address"), skipped(_TLS, "no address")]
    resolved = done(
        "server name", f"{kit.host} is {', '.join(sorted({str(entry[4][0]) for entry in found}))}"
    )
    try:
        _connect(kit).close()
    except OSError as error:
        return [resolved, _closed(kit, error), skipped(_TLS, "no connection")]
    rows = [resolved, _open(kit)]
    if kit.security == "clear":
        clear = "connection_security clear: nothing is encrypted"
        remedy = "Use this inside one machine only."
        return [
            *rows,
            warning(_TLS, expected="an encrypted connection", found=clear, remedy=remedy),
        ]
    return [
        *rows,
        *(_tls(kit) if credentials else [skipped(_TLS, "the kit's certificate cannot be used")]),
    ]


def handshake(kit: Kit, show_own: bool) -> tuple[str, x509.Certificate]:
    """Return the TLS version and the server's certificate, after the server had the time to refuse
    ours.

    Raises:
        ssl.SSLCertVerificationError: the server's certificate is not the one we expect.
        OSError: the server refuses us, or speaks no TLS.
    """
    grpc = "grpc" in kit.scheme
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = grpc  # FLARE's other transports compare the identity only, later
    context.load_verify_locations(kit.trusted)
    if show_own:
        context.load_cert_chain(kit.certificate, kit.key)
    if grpc:
        context.set_alpn_protocols(["h2"])
    with _connect(kit) as plain, context.wrap_socket(plain, server_hostname=kit.host) as secure:
        secure.settimeout(_ANSWER)
        try:
            if not secure.recv(1):
                raise ConnectionResetError("the server hung up after the handshake")
        except TimeoutError:
            pass  # it waits for us: accepted
        return secure.version() or "", x509.load_der_x509_certificate(
            secure.getpeercert(True) or b""
        )


def _connect(kit: Kit) -> socket.socket:
    return socket.create_connection((kit.host, kit.port), _CONNECT)


def _open(kit: Kit) -> Row:
    """Return the row of an open port, which at a server must be held by the kit's own process."""
    if kit.role != "server":
        return done("port", f"{kit.port} is open")
    well, found = connected(kit)
    if well:
        return done("port", f"{kit.port} is open, held by this kit's server")
    expected = f"port {kit.port} held by this kit's own server"
    if is_older(kit):
        remedy = f"Copy the component fedward_presence into {kit.resources.name} from a newly provisioned kit."
        return warning(
            "port",
            expected=expected,
            found=f"it is open, by whom is unknown, {found}",
            remedy=remedy,
        )
    remedy = (
        "Stop what holds it, or start this kit's server: the process at this port is another one."
    )
    return failed("port", expected=expected, found=f"it is open, but {found}", remedy=remedy)


def _closed(kit: Kit, error: OSError) -> Row:
    if kit.role == "server" and isinstance(error, ConnectionRefusedError):
        found = "nobody listens yet"
        remedy = "Start it: startup/start.sh."
        return warning("port", expected="this server, started", found=found, remedy=remedy)
    expected = f"a connection to {kit.host}:{kit.port} within {_CONNECT:.0f} s"
    found = error.strerror or str(error)
    remedy = "Refused: is the server started, and is this its port? Timed out: a firewall lets nothing out to it."
    return failed("port", expected=expected, found=found, remedy=remedy)


def _tls(kit: Kit) -> list[Row]:
    mutual = kit.security == "mtls"
    try:
        version, server = handshake(kit, show_own=mutual)
    except ssl.SSLCertVerificationError as error:
        unsigned = f"a certificate that {kit.trusted.name} did not sign"
        reason, remedy = _VERIFY.get(error.verify_code, (unsigned, _ELSEWHERE))
        expected = f"the certificate of {kit.host}, signed by {kit.trusted.name}"
        found = f"{reason} ({error.verify_message.strip()})"
    except OSError as error:
        expected = "a server that accepts the kit's certificate"
        found = getattr(error, "reason", None) or error.strerror or str(error)
        remedy = "The kit is of another provisioning than the server, or expired; or no FLARE server is at this port."
    else:
        name = name_in(server.subject)
        if name == kit.identity:
            row = done(_TLS, f"{version} with {name}\n{cert_fingerprint_sha256(server)}")
            return [row, _demands_ours(kit)] if mutual else [row]
        expected = f"the server {kit.identity}"
        found = f"{name or 'no name'}, of the same project"
        remedy = (
            "Correct the address in the kit's configuration: another participant answers there."
        )
    return [failed(_TLS, expected=expected, found=found, remedy=remedy)]


def _demands_ours(kit: Kit) -> Row:
    try:
        handshake(kit, show_own=False)
    except (ssl.SSLError, ConnectionError):
        return done(_MUTUAL, "accepted with the kit's certificate, refused without")
    except OSError as error:
        return skipped(_MUTUAL, str(error))
    expected = "a server that refuses who shows no certificate"
    found = "one that accepts everybody"
    remedy = "Tell the project's administrator: the server's connection_security should be mtls."
    return warning(_MUTUAL, expected=expected, found=found, remedy=remedy)
