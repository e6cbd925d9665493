"""Certificates of the webhook: what is made is trusted by strict verifiers, what can't be used is found out, and each
step of a rotation stands in the Secret. Pure functions, with real handshakes in memory."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from service.admission.certificates import (
    BadCertificate,
    KeyedCertificate,
    called_name,
    certificate_names,
    covers,
    find_defect,
    make_certificate,
    read_certificate,
    united_names,
    valid_authorities,
)
from service.admission.served_certificate import ServedCertificate
from service.settings.protection import WebhookSettings
from tests.tls_handshakes import MemoryHandshake, presented

# Verifiers use the clock of the machine.
NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
CALLED = "knell-webhook.knell.svc"
NAMES = (CALLED, "knell-webhook.knell.svc.cluster.local", "knell-webhook.knell")


def made(*names: str, now: datetime = NOW, lifetime: timedelta = DAY) -> KeyedCertificate:
    return make_certificate(names or NAMES, now, lifetime)


def of_rsa(name: str) -> KeyedCertificate:
    """Signed by itself, as a person might make it."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 7, NOW - DAY, NOW + DAY)
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    pem = builder.add_extension(names, critical=False).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return KeyedCertificate(pem, pem, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def served(keyed: KeyedCertificate) -> ServedCertificate:
    here = ServedCertificate()
    here.load(keyed)
    return here


def der(keyed: KeyedCertificate) -> bytes:
    return x509.load_pem_x509_certificates(keyed.certificate)[0].public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("webhook", "names"),
    [
        (WebhookSettings(), NAMES),
        (WebhookSettings(service="door"), ("door.knell.svc", "door.knell.svc.cluster.local", "door.knell")),
        (WebhookSettings(url="https://door.example.com:9443"), ("door.example.com",)),
        (WebhookSettings(url="https://127.0.0.1:9443"), ("127.0.0.1",)),
        (WebhookSettings(url="https://[::1]:9443"), ("::1",)),
    ],
)
def test_a_certificate_is_for_the_service_or_for_the_address_of_the_settings(
    webhook: WebhookSettings, names: tuple[str, ...]
) -> None:
    assert certificate_names(webhook, "knell") == names
    keyed = made(*names)
    assert read_certificate(keyed.certificate).names == names
    assert find_defect(keyed, called_name(webhook, "knell"), NOW) == ""
    here = served(keyed)
    for name in names:
        assert presented(here.context, keyed.authority, name) == der(keyed)


def test_a_strict_verifier_trusts_it_by_its_own_ca_and_by_no_other() -> None:
    first, second = made(), made()
    here = served(first)
    assert presented(here.context, second.authority + first.authority, CALLED) == der(first)
    with pytest.raises(ssl.SSLCertVerificationError):
        presented(here.context, second.authority, CALLED)
    with pytest.raises(ssl.SSLCertVerificationError):
        presented(here.context, first.authority, "other.knell.svc")


def test_its_ca_can_sign_nothing_else_because_its_key_is_not_kept() -> None:
    keyed = made()
    authority = x509.load_pem_x509_certificate(keyed.authority)
    key = load_pem_private_key(keyed.key, None).public_key()
    assert key == x509.load_pem_x509_certificate(keyed.certificate).public_key() != authority.public_key()


def test_a_key_is_shown_by_no_text_of_a_record() -> None:
    keyed = made()
    for text in (repr(keyed), str(keyed), f"{keyed!r}", repr([keyed])):
        assert "KEY" not in text


def test_it_is_valid_at_an_api_server_whose_clock_is_behind() -> None:
    facts = read_certificate(made().certificate)
    assert (facts.begins, facts.expires) == (NOW - timedelta(hours=1), NOW + DAY)


@pytest.mark.parametrize(
    ("names", "called", "covered"),
    [
        (["a.b.svc"], "a.b.svc", True),
        (["A.b.SVC."], "a.b.svc", True),
        (["*.b.svc"], "a.b.svc", True),
        (["*.svc"], "a.b.svc", False),
        (["a.b.svc.cluster.local"], "a.b.svc", False),
        (["*.0.0.1"], "127.0.0.1", False),
        (["::1"], "0:0:0:0:0:0:0:1", True),
        ([], "a.b.svc", False),
    ],
)
def test_a_name_is_covered_by_itself_or_by_a_wildcard_for_its_first_label(
    names: list[str], called: str, covered: bool
) -> None:
    assert covers(names, called) is covered


def test_what_can_not_be_served_or_trusted_is_described() -> None:
    keyed, other = made(), made()
    locked = load_pem_private_key(keyed.key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")
    )
    described = {
        "is missing": KeyedCertificate(b"", b"", b""),
        "has no key": KeyedCertificate(keyed.authority, keyed.certificate, b""),
        "can't be read; it must be PEM": KeyedCertificate(keyed.authority, b"words", keyed.key),
        "has a key that can't be read; it must be PEM without a password": KeyedCertificate(
            keyed.authority, keyed.certificate, locked
        ),
        "has a key that belongs to another certificate": KeyedCertificate(
            keyed.authority, keyed.certificate, other.key
        ),
        f"has expired on {(NOW - DAY).isoformat().replace('+00:00', 'Z')}": made(now=NOW - 2 * DAY),
        f"is not valid before {(NOW + DAY - timedelta(hours=1)).isoformat().replace('+00:00', 'Z')}": made(
            now=NOW + DAY
        ),
        f"is for door.example.com, not for {CALLED}": made("door.example.com"),
    }
    assert [find_defect(one, CALLED, NOW) for one in described.values()] == list(described)


def test_only_readable_cas_that_have_not_expired_stay_in_a_bundle_each_once() -> None:
    first, second, old = made(), made(), made(now=NOW - 2 * DAY)
    whole = first.authority + b"words\n" + old.authority + second.authority.replace(b"\n", b"\r\n") + first.authority
    assert valid_authorities(whole, NOW) == first.authority + second.authority
    assert valid_authorities(b"", NOW) == valid_authorities(b"-----BEGIN CERTIFICATE-----", NOW) == b""
    torn = b"-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n"
    assert valid_authorities(torn + first.authority, NOW) == first.authority


def test_a_bundle_does_not_grow_without_end() -> None:
    many = [made().authority for _ in range(10)]
    assert valid_authorities(b"".join(many), NOW) == b"".join(many[:8])


def test_a_replacement_keeps_the_names_of_what_it_replaces() -> None:
    assert united_names(("new",), made("old", "new").certificate) == ("new", "old")
    assert united_names(("new",), b"words") == ("new",)


# The served certificate.


def test_a_reload_changes_the_certificate_of_the_next_handshake_with_and_without_a_name() -> None:
    first, second = made(), made()
    here = served(first)
    both = first.authority + second.authority
    assert here.load(second)
    assert not here.load(second)
    assert here.expires == read_certificate(second.certificate).expires
    assert presented(here.context, both, CALLED) == der(second)
    # An API server sends no name if the address is an IP.
    assert presented(here.context, both, None) == der(second)


def test_a_handshake_that_has_begun_ends_with_the_certificate_it_began_with() -> None:
    first, second = made(), made()
    here = served(first)
    open_one = MemoryHandshake(here.context, first.authority, CALLED)
    open_one.begin()
    here.load(second)
    assert open_one.finish() == der(first)
    assert presented(here.context, second.authority, CALLED) == der(second)


def test_a_certificate_with_a_key_of_another_type_leaves_nothing_of_the_one_before() -> None:
    first, second, third = of_rsa(CALLED), made(), of_rsa(CALLED)
    here = served(first)
    for keyed in (second, third, second):
        here.load(keyed)
        client = MemoryHandshake(here.context, keyed.authority, None)
        assert client.finish() == der(keyed)


def test_a_certificate_that_can_not_be_loaded_leaves_the_one_before() -> None:
    first, second = made(), made()
    here = served(first)
    for bad in (
        KeyedCertificate(second.authority, second.certificate, first.key),
        KeyedCertificate(second.authority, second.certificate, b""),
        KeyedCertificate(second.authority, b"words", second.key),
    ):
        with pytest.raises(BadCertificate):
            here.load(bad)
    assert presented(here.context, first.authority, CALLED) == der(first)


def test_without_a_certificate_handshakes_fail() -> None:
    with pytest.raises(ssl.SSLError):
        presented(ServedCertificate().context, made().authority, CALLED)


def test_nothing_older_than_tls_1_2_is_spoken() -> None:
    assert served(made()).context.minimum_version == ssl.TLSVersion.TLSv1_2
