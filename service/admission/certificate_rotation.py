"""Rotation of the certificate that Knell makes itself: the content of its Secret, the step that is due, and the Secret
after each step. Pure: all times are in the Secret, so that any replica can go on where another one stopped.

The steps: `prepare` puts the next certificate beside the current one; `trust` records since when the API server trusts
the CAs of both; `switch` makes the next one current; `forget` drops the CA of the one before, when every replica must
have read the Secret again. `replace` is for a Secret without a usable certificate."""

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec

from service.admission.certificates import (
    KeyedCertificate,
    find_defect,
    make_certificate,
    read_certificate,
    united_names,
    valid_authorities,
)
from service.contract.names import PREFIX

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
NEXT: Final = "next-"
PREVIOUS_AUTHORITY: Final = "previous-ca.crt"

MADE: Final = f"{PREFIX}/certificate"
"""On a Secret that Knell has made or filled: `self-made`. Any other is never overwritten."""
NEXT_TRUSTED: Final = f"{PREFIX}/next-certificate-trusted-since"
PREVIOUS_UNTIL: Final = f"{PREFIX}/previous-ca-trusted-until"

Step = Literal["replace", "prepare", "trust", "switch", "forget", "none"]


class RotationTimes(NamedTuple):
    """A certificate lives for `lifetime` and is rotated `renewal` before its end. `settling` is how long all API
    servers need to see a changed bundle of CAs, `overlap` how long a replica may serve the certificate before the
    current one. The Secret is read at an interval of `look`."""

    lifetime: timedelta = timedelta(days=90)
    renewal: timedelta = timedelta(days=30)
    settling: timedelta = timedelta(seconds=30)
    overlap: timedelta = timedelta(minutes=10)
    look: timedelta = timedelta(seconds=10)


class StoredCertificates(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the Secret. `previous` are the certificates of CAs that stay in the bundle until
    `previous_until`."""

    current: KeyedCertificate
    next: KeyedCertificate | None = None
    next_trusted: datetime | None = None
    previous: bytes = b""
    previous_until: datetime | None = None


EMPTY: Final = StoredCertificates(current=KeyedCertificate(b"", b"", b""))


def due_step(stored: StoredCertificates, called: str, now: datetime, times: RotationTimes) -> Step:
    """The step to be taken now; `called` is the host that the API server calls."""
    if _unusable(stored.current, called, now):
        return "replace"
    if stored.next is not None and _unusable(stored.next, called, now):
        return "prepare"
    if stored.next is not None and not _trusted(stored, now, times):
        return "trust"
    if stored.next is not None and stored.next_trusted is not None and now >= stored.next_trusted + times.settling:
        return "switch"
    if stored.previous and (stored.previous_until is None or now >= stored.previous_until):
        return "forget"
    if stored.next is None and now >= read_certificate(stored.current.certificate).expires - times.renewal:
        return "prepare"
    return "none"


def _unusable(keyed: KeyedCertificate, called: str, now: datetime) -> bool:
    return bool(find_defect(keyed, called, now)) or not valid_authorities(keyed.authority, now)


def _trusted(stored: StoredCertificates, now: datetime, times: RotationTimes) -> bool:
    """A time that is far ahead was recorded by a clock that was wrong."""
    return stored.next_trusted is not None and stored.next_trusted <= now + times.settling


def bundle(stored: StoredCertificates, now: datetime) -> bytes:
    """The CAs that the API server has to trust: the current one, the next one, those before."""
    following = stored.next.authority if stored.next is not None else b""
    return valid_authorities(stored.current.authority + b"\n" + following + b"\n" + stored.previous, now)


def replaced(
    stored: StoredCertificates, trusted: bytes, names: Sequence[str], now: datetime, times: RotationTimes
) -> StoredCertificates:
    """A new certificate at once. `trusted` is the bundle that the API server has: it stays trusted for a while, for the
    replicas that still serve another certificate."""
    made = make_certificate(united_names(names, stored.current.certificate), now, times.lifetime)
    earlier = valid_authorities(trusted + b"\n" + stored.current.authority + b"\n" + stored.previous, now)
    return StoredCertificates(current=made, previous=earlier, previous_until=now + times.overlap if earlier else None)


def prepared(
    stored: StoredCertificates, names: Sequence[str], now: datetime, times: RotationTimes
) -> StoredCertificates:
    """Also in place of a next one that can't be used."""
    unusable = stored.next.certificate if stored.next is not None else b""
    made = make_certificate(united_names(names, unusable), now, times.lifetime)
    return msgspec.structs.replace(stored, next=made, next_trusted=None)


def trusted_since(stored: StoredCertificates, moment: datetime | None) -> StoredCertificates:
    """None: the API server does not trust the CA of the next certificate any more."""
    return msgspec.structs.replace(stored, next_trusted=moment)


def switched(stored: StoredCertificates, now: datetime, times: RotationTimes) -> StoredCertificates:
    if stored.next is None:
        return stored
    earlier = valid_authorities(stored.current.authority + b"\n" + stored.previous, now)
    return StoredCertificates(current=stored.next, previous=earlier, previous_until=now + times.overlap)


def forgotten(stored: StoredCertificates) -> StoredCertificates:
    return msgspec.structs.replace(stored, previous=b"", previous_until=None)


class _SecretMetadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _SecretContent(msgspec.Struct):
    metadata: _SecretMetadata = msgspec.field(default_factory=_SecretMetadata)
    data: dict[str, str] | None = None


def decode_secret(raw: msgspec.Raw | bytes) -> StoredCertificates:
    """What can't be decoded is empty: it is judged as a certificate that can't be used."""
    content = msgspec.json.decode(raw, type=_SecretContent)
    data, marks = content.data or {}, content.metadata.annotations or {}

    def keyed(prefix: str) -> KeyedCertificate:
        parts = (_decoded(data.get(f"{prefix}{name}", "")) for name in (AUTHORITY, CERTIFICATE, KEY))
        return KeyedCertificate(*parts)

    following = keyed(NEXT)
    return StoredCertificates(
        current=keyed(""),
        next=following if following.certificate or following.key else None,
        next_trusted=_moment(marks.get(NEXT_TRUSTED, "")),
        previous=_decoded(data.get(PREVIOUS_AUTHORITY, "")),
        previous_until=_moment(marks.get(PREVIOUS_UNTIL, "")),
    )


def encode_secret(stored: StoredCertificates) -> dict[str, Any]:
    """Metadata and data as a merge patch: null removes what is not there any more, everything else stays."""
    following = stored.next or EMPTY.current
    return {
        "metadata": {
            "annotations": {
                MADE: "self-made",
                NEXT_TRUSTED: stored.next_trusted.isoformat() if stored.next_trusted else None,
                PREVIOUS_UNTIL: stored.previous_until.isoformat() if stored.previous_until else None,
            }
        },
        "data": {
            CERTIFICATE: base64.b64encode(stored.current.certificate).decode(),
            KEY: base64.b64encode(stored.current.key).decode(),
            AUTHORITY: _encoded(stored.current.authority),
            f"{NEXT}{CERTIFICATE}": _encoded(following.certificate),
            f"{NEXT}{KEY}": _encoded(following.key),
            f"{NEXT}{AUTHORITY}": _encoded(following.authority),
            PREVIOUS_AUTHORITY: _encoded(stored.previous),
        },
    }


def without_nulls(document: Mapping[str, Any]) -> dict[str, Any]:
    """For the creation of what is otherwise patched."""
    return {
        key: without_nulls(value) if isinstance(value, Mapping) else value
        for key, value in document.items()
        if value is not None
    }


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        return b""


def _encoded(value: bytes) -> str | None:
    return base64.b64encode(value).decode() if value else None


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
