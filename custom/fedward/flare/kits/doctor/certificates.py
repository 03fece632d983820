"""Checks of a kit's own key and certificates; no network is needed."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from nvflare.tool.cert.fingerprint import cert_fingerprint_sha256

from fedward import private
from fedward.errors import reason_of
from fedward.flare.kits.doctor.rows import Row, done, failed, skipped, warning
from fedward.flare.kits.kit import Kit
from fedward.terminal import one_line
from fedward.text import count

NEEDED = ("certificate", "key pair")
"""Rows that must not have failed for a TLS handshake to be tried."""

_SOON = timedelta(days=30)
"""A certificate that ends within this time is a warning."""

_NEW_KIT = "Ask the authority of the federation for a new kit."
_RENEW = "Ask the authority for a new certificate and key; see docs/certificates.md, Renewal."


def check(kit: Kit, now: datetime | None = None) -> list[Row]:
    """Check key, certificate and authority.

    Args:
        kit: the kit.
        now: the time at which they are judged; by default this machine's.
    """
    now = now or datetime.now(UTC)
    rows = []
    if kit.key.is_file():
        rows.append(_key_mode(kit))
    if not all(path.is_file() for path in (kit.key, kit.certificate, kit.root)):
        rows.append(skipped("certificate", "files are missing"))
        return rows
    try:
        certificate = x509.load_pem_x509_certificate(kit.certificate.read_bytes())
        root = x509.load_pem_x509_certificate(kit.root.read_bytes())
    except (ValueError, OSError) as error:
        rows.append(_unreadable("certificate", error))
        return rows
    rows += [
        _key_pair(kit, certificate),
        _signature(certificate, root),
        _owner(kit, certificate),
        _validity("validity", certificate, now),
        done("root CA", f"{common_name(root.subject)}\n{cert_fingerprint_sha256(root)}"),
        _validity("root validity", root, now),
        _clock(certificate, root, now),
    ]
    return rows


def common_name(entry: x509.Name) -> str:
    """Return the common name of a certificate's subject or issuer; empty if it has none."""
    names = entry.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _key_mode(kit: Kit) -> Row:
    """Check who may read the private key, and the key of encryption that all hospitals share."""
    open_files = []
    for file in (kit.key, *sorted(kit.startup.glob("*.tenseal"))):
        try:
            problem = private.fault(file.stat(), private.SECRET)
        except OSError as error:
            problem = reason_of(error)
        if problem:
            open_files.append(f"{file.relative_to(kit.folder)}, {problem}")
    if not open_files:
        return done("private key", "its owner's alone")
    return failed(
        "private key",
        expected=private.SECRET.expected,
        found="; ".join(open_files),
        remedy="Run chmod 600 on these files. If others may have read one, ask for a new kit.",
    )


def _key_pair(kit: Kit, certificate: x509.Certificate) -> Row:
    try:
        key = serialization.load_pem_private_key(kit.key.read_bytes(), password=None)
    except (ValueError, TypeError, OSError) as error:
        return _unreadable("key pair", error)
    if key.public_key() == certificate.public_key():
        return done("key pair", f"{kit.key.name} belongs to {kit.certificate.name}")
    return failed(
        "key pair",
        expected=f"the key of {kit.certificate.name}",
        found="the key of another certificate",
        remedy="Do not mix files of two kits; unpack this one again.",
    )


def _signature(certificate: x509.Certificate, root: x509.Certificate) -> Row:
    fingerprint = cert_fingerprint_sha256(certificate)
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        issuer = common_name(certificate.issuer) or "nobody"
        return failed(
            "certificate",
            expected=f"signed by this kit's root CA, {common_name(root.subject)}",
            found=f"signed by another, named {issuer}\n{fingerprint}",
            remedy=f"The files are of two projects, or of two provisionings. {_NEW_KIT}",
        )
    return done("certificate", f"signed by the kit's root CA\n{fingerprint}")


def _owner(kit: Kit, certificate: x509.Certificate) -> Row:
    name = common_name(certificate.subject)
    if name == kit.name:
        return done("owner", name)
    return failed(
        "owner",
        expected=f"a certificate made out to {kit.name}",
        found=name or "no name",
        remedy=f"The server refuses a name that the certificate does not bear. {_NEW_KIT}",
    )


def _validity(row_name: str, certificate: x509.Certificate, now: datetime) -> Row:
    end = certificate.not_valid_after_utc
    if end < now:
        found = f"expired on {end:%Y-%m-%d}"
        return failed(row_name, expected="not expired", found=found, remedy=_RENEW)
    found = f"{count((end - now).days, 'day')}, until {end:%Y-%m-%d}"
    if end - now < _SOON:
        expected = f"{_SOON.days} days or more"
        return warning(row_name, expected=expected, found=found, remedy=_RENEW)
    return done(row_name, found)


def _clock(certificate: x509.Certificate, root: x509.Certificate, now: datetime) -> Row:
    """Compare the clock with the start of the certificates, the one time that is known offline."""
    start = max(certificate.not_valid_before_utc, root.not_valid_before_utc)
    form = "%Y-%m-%d %H:%M:%S UTC"
    if now < start:
        return failed(
            "clock",
            expected=f"a time after the certificates were made, {start:{form}}",
            found=f"{now:{form}}",
            remedy="Set the clock of this machine, or of the one that made the kit.",
        )
    return done(
        "clock",
        f"{now:{form}}, after the certificates were made\n"
        "How far it is from the server's cannot be measured.",
    )


def _unreadable(row_name: str, error: Exception) -> Row:
    return failed(
        row_name,
        expected="a PEM file without a password",
        found=one_line(str(error)) or type(error).__name__,
        remedy="Unpack the kit again.",
    )
