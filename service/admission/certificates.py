"""X.509 certificates of the webhook: pure functions that make a CA with one server certificate, and read certificates.
The key of such a CA is never kept: each new server certificate has a CA of its own, and both are replaced together."""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from service.settings.protection import WebhookSettings

_BACKDATED: Final = timedelta(hours=1)
"""For API servers whose clocks are behind ours."""
_MOST_NAMES: Final = 20
_MOST_AUTHORITIES: Final = 8

_Extensions = Sequence[tuple[x509.ExtensionType, bool]]
"""With each: whether it is critical."""


class BadCertificate(ValueError):
    """It can't be used as the webhook's certificate; the message says why, and never has a part of a key."""


class KeyedCertificate(msgspec.Struct, frozen=True):
    """A server's certificate with its key and the certificates of its CA, all as PEM. Any of them may be empty or
    unreadable, as they are in a Secret."""

    authority: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyedCertificate(***)"


class CertificateFacts(msgspec.Struct, frozen=True):
    """What a server's certificate says of itself."""

    names: tuple[str, ...]
    begins: datetime
    expires: datetime


def called_name(webhook: WebhookSettings, namespace: str) -> str:
    """The host that the API server expects in the certificate."""
    return urlsplit(webhook.url).hostname or "" if webhook.url else f"{webhook.service}.{namespace}.svc"


def certificate_names(webhook: WebhookSettings, namespace: str) -> tuple[str, ...]:
    """All names of a certificate that Knell makes; the first is the called name."""
    called = called_name(webhook, namespace)
    if webhook.url:
        return (called,)
    return (called, f"{called}.cluster.local", f"{webhook.service}.{namespace}")


def make_certificate(names: Sequence[str], now: datetime, lifetime: timedelta) -> KeyedCertificate:
    """A new CA and the only certificate that it ever signs; both expire at the same time."""
    begins, expires = now - _BACKDATED, now + lifetime
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    # Two CAs are in the bundle during a rotation: verifiers look for an issuer by its name first.
    issuer = _named(f"knell-webhook CA {x509.random_serial_number():x}"[:64])
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())

    def signed(subject: x509.Name, public: ec.EllipticCurvePublicKey, extensions: _Extensions) -> bytes:
        builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number(), begins, expires)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(Encoding.PEM)

    return KeyedCertificate(
        authority=signed(
            issuer,
            authority_key.public_key(),
            [
                (x509.BasicConstraints(ca=True, path_length=0), True),
                (_usage(key_cert_sign=True, crl_sign=True), True),
                (authority_id, False),
            ],
        ),
        certificate=signed(
            _named("knell-webhook"),
            key.public_key(),
            [
                (x509.BasicConstraints(ca=False, path_length=None), True),
                (_usage(digital_signature=True), True),
                (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
                (x509.SubjectAlternativeName([_general_name(name) for name in dict.fromkeys(names)]), False),
                (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
                (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), False),
            ],
        ),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def read_certificate(pem: bytes) -> CertificateFacts:
    """Facts of the first certificate, which is the server's. Raises BadCertificate."""
    first = _server_certificate(pem)
    try:
        found = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(str(one.value) for one in found if isinstance(one, x509.DNSName | x509.IPAddress))
    except x509.ExtensionNotFound:
        names = ()
    except ValueError:
        raise BadCertificate("has extensions that can't be read") from None
    return CertificateFacts(names, first.not_valid_before_utc, first.not_valid_after_utc)


def find_defect(served: KeyedCertificate, called: str, now: datetime) -> str:
    """Why it can't be served, or why an API server that calls this name can't trust it; empty if all is well."""
    try:
        require_key(served)
        facts = read_certificate(served.certificate)
    except BadCertificate as error:
        return str(error)
    if now >= facts.expires:
        return f"has expired on {_shown(facts.expires)}"
    if now < facts.begins:
        return f"is not valid before {_shown(facts.begins)}"
    if not covers(facts.names, called):
        return f"is for {', '.join(facts.names) or 'no name'}, not for {called}"
    return ""


def require_key(served: KeyedCertificate) -> None:
    """Raises BadCertificate unless the key belongs to the certificate."""
    if not served.certificate:
        raise BadCertificate("is missing")
    if not served.key:
        raise BadCertificate("has no key")
    certificate = _server_certificate(served.certificate)
    try:
        public = load_pem_private_key(served.key, password=None).public_key()
        same = _encoded(public) == _encoded(certificate.public_key())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadCertificate("has a key that can't be read; it must be PEM without a password") from None
    if not same:
        raise BadCertificate("has a key that belongs to another certificate")


def covers(names: Iterable[str], called: str) -> bool:
    """Whether one of the certificate's names is the called one. A wildcard stands for one label."""
    known = {name.lower().rstrip(".") for name in names}
    wanted = _canonical(called)
    return wanted in known or ("." in wanted and not _is_ip(wanted) and f"*.{wanted.partition('.')[2]}" in known)


def valid_authorities(pem: bytes, now: datetime) -> bytes:
    """The first certificates that have not expired, each once and in one notation; those that can't be read are left
    out."""
    kept: dict[bytes, None] = {}
    for block in _blocks(pem):
        try:
            authority = x509.load_pem_x509_certificate(block)
        except ValueError:
            continue
        if authority.not_valid_after_utc > now:
            kept[authority.public_bytes(Encoding.PEM)] = None
    return b"".join(list(kept)[:_MOST_AUTHORITIES])


def united_names(wanted: Sequence[str], replaced: bytes) -> tuple[str, ...]:
    """The wanted names, and those of the certificate that is replaced: while settings change, replicas with the old
    ones and replicas with the new ones would otherwise replace each other's certificate."""
    try:
        earlier = read_certificate(replaced).names
    except BadCertificate:
        earlier = ()
    return tuple(dict.fromkeys([*wanted, *earlier]))[:_MOST_NAMES]


def _server_certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except ValueError:
        raise BadCertificate("can't be read; it must be PEM") from None


def _blocks(pem: bytes) -> list[bytes]:
    end = b"-----END CERTIFICATE-----"
    return [part + end + b"\n" for part in pem.split(end)[:-1]]


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(name)) if _is_ip(name) else x509.DNSName(name)


def _canonical(name: str) -> str:
    return str(ipaddress.ip_address(name)) if _is_ip(name) else name.lower().rstrip(".")


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _encoded(public: object) -> bytes:
    encoded: bytes = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return encoded


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
