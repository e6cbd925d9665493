"""Reads identity, marks and times out of an object's text, and passes over the rest.
What can't be read is reported with as much identity as there is, for the unknown must be held by name."""

import base64
from datetime import datetime
from typing import Any, Final

import msgspec

from service.cluster.errors import Unreadable
from service.cluster.objects import Seen
from service.contract.names import ACK_PREFIX, PREFIX
from service.contract.traits import FOREIGN_MARKS

# Marks of policy and of our own. Everything else in annotations, some of it hundreds of kilobytes, is dropped here.
_MARKS: Final = (PREFIX, ACK_PREFIX)
_BELOW: Final = tuple(f".{domain}" for domain in _MARKS)


class _Metadata(msgspec.Struct):
    uid: str
    name: str
    namespace: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    created: datetime | None = msgspec.field(default=None, name="creationTimestamp")
    deleting: datetime | None = msgspec.field(default=None, name="deletionTimestamp")
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Vague(msgspec.Struct):
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


_objects: Final = msgspec.json.Decoder(_Object)
_vague: Final = msgspec.json.Decoder(_Vague)


def decode(raw: msgspec.Raw | bytes) -> Seen:
    """Raises Unreadable, whose message names the object as well as it can be named."""
    try:
        metadata = _objects.decode(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"{_called(vaguely(raw))} can't be decoded: {error}") from None
    return Seen(
        uid=metadata.uid,
        name=metadata.name,
        namespace=metadata.namespace,
        resource_version=metadata.resource_version,
        created=_milliseconds(metadata.created),
        deleting=_milliseconds(metadata.deleting),
        generation=metadata.generation,
        labels=metadata.labels or {},
        annotations=marks(metadata.annotations or {}),
        finalizers=metadata.finalizers or (),
        raw=raw if isinstance(raw, msgspec.Raw) else msgspec.Raw(raw),
    )


def vaguely(raw: msgspec.Raw | bytes) -> Seen:
    """Whatever identity an undecodable object still shows; empty texts where there is none."""
    try:
        metadata = _vague.decode(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        metadata = {}

    def text(key: str) -> str:
        value = metadata.get(key)
        return value if isinstance(value, str) else ""

    return Seen(
        uid=text("uid"), name=text("name"), namespace=text("namespace"), resource_version=text("resourceVersion")
    )


def marks(annotations: dict[str, str]) -> dict[str, str]:
    """Only the annotations that policy reads or that we wrote: `services.k8s.aws/...`, `rds.knell.dev/...`, and those
    of others that are known by their whole names."""
    return {key: value for key, value in annotations.items() if _is_mark(key)}


def _is_mark(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain in _MARKS or domain.endswith(_BELOW) or key in FOREIGN_MARKS)


def _milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1000)


def _called(seen: Seen) -> str:
    where = f"{seen.namespace}/{seen.name}" if seen.namespace else seen.name
    return f"object {where or '(no name)'} (uid {seen.uid or 'unknown'})"


class _SecretObject(msgspec.Struct):
    data: dict[str, str] | None = None


def text_of_secret(raw: msgspec.Raw | bytes, key: str) -> bytes | None:
    """One value of a Secret, None where it has no such key."""
    try:
        value = (msgspec.json.decode(raw, type=_SecretObject).data or {}).get(key)
        return None if value is None else base64.b64decode(value)
    except (msgspec.DecodeError, ValueError):
        raise Unreadable("the Secret can't be decoded") from None
