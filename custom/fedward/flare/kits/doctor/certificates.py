"""Checks of a kit's own key and certificates; no network is needed."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from nvflare.tool.cert.fingerprint import cert_fingerprint_sha256

from fedward.flare.kits.doctor.rows import Row, done, failed, skipped, warning
from fedward.flare.kits.kit import Kit
from fedward.terminal import one_line

NEEDED = ("certificate", "key pair")
"""Rows without which no handshake can be tried."""

_SOON = timedelta(days=30)
_NEW_KIT = "Ask the project's administrator for a new kit."


def check(kit: Kit, now: datetime | None = None) -> list[Row]:
    """Look at key, certificate and authority as they are at ``now`` (default: the time on this
    machine).
    """
    now = now or datetime.now(UTC)
    rows = [_mode(kit)] if kit.key.is_file() else []
    if not all(path.is_file() for path in (kit.key, kit.certificate, kit.root)):
        return [*rows, skipped("certificate", "files are missing")]
    try:
        own, root = (
            x509.load_pem_x509_certificate(path.read_bytes())
            for path in (kit.certificate, kit.root)
        )
    except (ValueError, OSError) as error:
        return [*rows, _unreadable("certificate", error)]
    return [
        *rows,
        _pair(kit, own),
        _signed(own, root),
        _owner(kit, own),
        _validity("validity", own, now),
        done("root CA", f"{name_in(root.subject)}\n{cert_fingerprint_sha256(root)}"),
        _validity("root validity", root, now),
        _clock(own, root, now),
    ]


def name_in(entry: x509.Name) -> str:
    """Return the common name of a certificate's subject or issuer; empty if there is none."""
    names = entry.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _mode(kit: Kit) -> Row:
    mode = kit.key.stat().st_mode & 0o777
    found = f"mode {mode:04o}"
    if not mode & 0o077:
        return done("private key", found)
    remedy = f"chmod 600 {kit.key.relative_to(kit.folder)}; if others may have read it, ask for a new kit."
    return failed(
        "private key", expected="mode 0600: its owner's alone", found=found, remedy=remedy
    )


def _pair(kit: Kit, own: x509.Certificate) -> Row:
    try:
        key = serialization.load_pem_private_key(kit.key.read_bytes(), password=None)
    except (ValueError, TypeError, OSError) as error:
        return _unreadable("key pair", error)
    if key.public_key() == own.public_key():
        return done("key pair", f"{kit.key.name} belongs to {kit.certificate.name}")
    expected = f"the key of {kit.certificate.name}"
    found = "the key of another certificate"
    remedy = "Do not mix files of two kits; unpack this one again."
    return failed("key pair", expected=expected, found=found, remedy=remedy)


def _signed(own: x509.Certificate, root: x509.Certificate) -> Row:
    try:
        own.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        expected = f"signed by this kit's root CA, {name_in(root.subject)}"
        found = f"signed by another, named {name_in(own.issuer) or 'nobody'}\n{cert_fingerprint_sha256(own)}"
        remedy = f"The files are of two projects, or of two provisionings. {_NEW_KIT}"
        return failed("certificate", expected=expected, found=found, remedy=remedy)
    return done("certificate", f"signed by the kit's root CA\n{cert_fingerprint_sha256(own)}")


def _owner(kit: Kit, own: x509.Certificate) -> Row:
    name = name_in(own.subject)
    if name == kit.name:
        return done("owner", name)
    expected = f"a certificate made out to {kit.name}"
    found = name or "no name"
    remedy = f"The server refuses a name that the certificate does not bear. {_NEW_KIT}"
    return failed("owner", expected=expected, found=found, remedy=remedy)


def _validity(name: str, certificate: x509.Certificate, now: datetime) -> Row:
    end = certificate.not_valid_after_utc
    found = f"{(end - now).days} days, until {end:%Y-%m-%d}"
    if end < now:
        return failed(
            name, expected="not expired", found=f"expired on {end:%Y-%m-%d}", remedy=_NEW_KIT
        )
    if end - now < _SOON:
        return warning(name, expected=f"{_SOON.days} days or more", found=found, remedy=_NEW_KIT)
    return done(name, found)


def _clock(own: x509.Certificate, root: x509.Certificate, now: datetime) -> Row:
    start = max(own.not_valid_before_utc, root.not_valid_before_utc)
    form = "%Y-%m-%d %H:%M:%S UTC"
    if now < start:
        expected = f"a time after the certificates were made, {start:{form}}"
        remedy = "Set the clock of this machine, or of the one that made the kit."
        return failed("clock", expected=expected, found=f"{now:{form}}", remedy=remedy)
    unknown = "How far it is from the server's cannot be measured."
    return done("clock", f"{now:{form}}, after the certificates were made\n{unknown}")


def _unreadable(name: str, error: Exception) -> Row:
    found = one_line(str(error)) or type(error).__name__
    return failed(
        name, expected="a PEM file without a password", found=found, remedy="Unpack the kit again."
    )
