"""Reads identity, marks and times out of an object's text, and passes over the rest.
What can't be read is reported with as much identity as there is, for the unknown must be held by name."""

import base64
from datetime import datetime
from typing import Annotated, Final

import msgspec

from service.contract.names import ACK_PREFIX, PREFIX
from service.contract.traits import FOREIGN_MARKS
from service.kubernetes.errors import Unreadable
from service.kubernetes.objects import NOTHING, Seen, Served

# Marks of policy and of our own. Everything else in annotations, some of it hundreds of kilobytes, is dropped here.
_MARKS: Final = (PREFIX, ACK_PREFIX)
_METADATA_KIND: Final = "PartialObjectMetadata"
_BELOW: Final = tuple(f".{domain}" for domain in _MARKS)
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a text; RecursionError where it is nested too deeply."""

# An empty uid would differ from every uid that we know, and so prove that the object we know is gone.
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class _Metadata(msgspec.Struct):
    uid: _Text
    name: _Text
    resource_version: _Text = msgspec.field(name="resourceVersion")
    namespace: str = ""
    created: datetime | None = msgspec.field(default=None, name="creationTimestamp")
    deleting: datetime | None = msgspec.field(default=None, name="deletionTimestamp")
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    kind: str = ""


class _VagueMetadata(msgspec.Struct):
    """Undecoded, for a value may be of any type and of any size."""

    uid: msgspec.Raw = NOTHING
    name: msgspec.Raw = NOTHING
    namespace: msgspec.Raw = NOTHING
    resource_version: msgspec.Raw = msgspec.field(default=NOTHING, name="resourceVersion")


class _Vague(msgspec.Struct):
    metadata: _VagueMetadata


_objects: Final = msgspec.json.Decoder(_Object)
_vague: Final = msgspec.json.Decoder(_Vague)


def decode_member(raw: msgspec.Raw, served: Served, namespace: str | None) -> Seen:
    """An object out of a list or a watch of one namespace, or of all where that is None. Raises Unreadable, whose
    message names the object as well as it can be named; also for an object that such a list can't hold."""
    found = _object(raw)
    seen = _seen(found.metadata, raw)
    if not _is_of(found, served):
        raise Unreadable(f"{_called(seen)} is of another kind than was asked for: {found.kind}")
    if not served.namespaced:
        misplaced = seen.namespace != ""
    else:
        misplaced = seen.namespace != namespace if namespace else not seen.namespace
    if misplaced:
        asked = f"namespace {namespace}" if served.namespaced and namespace else served.resource
        raise Unreadable(f"{_called(seen)} does not belong to {asked}: its namespace is {seen.namespace!r}")
    return seen


def decode_answer(raw: bytes, served: Served, namespace: str, name: str) -> Seen:
    """The object that a request by name asked for. Any other object is Unreadable: it is neither the one that was asked
    for nor a proof that there is none. An empty name is one that the server chooses."""
    found = _object(raw)
    seen = _seen(found.metadata, raw)
    there = namespace if served.namespaced else ""
    if _is_of(found, served) and seen.namespace == there and seen.name == (name or seen.name):
        return seen
    asked = f"{served.kind} {there}/{name}" if there else f"{served.kind} {name}"
    raise Unreadable(f"{asked}: the answer is another object: {found.kind or 'no kind'}, {_called(seen)}")


def _is_of(found: _Object, served: Served) -> bool:
    """Items of a list of a built-in kind have no kind of their own."""
    return found.kind in ("", served.kind, _METADATA_KIND)


def _object(raw: msgspec.Raw | bytes) -> _Object:
    try:
        return _objects.decode(raw)
    except UNDECODABLE as error:
        raise Unreadable(f"{_called(vaguely(raw))} can't be decoded: {error}") from None


def _seen(metadata: _Metadata, raw: msgspec.Raw | bytes) -> Seen:
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
    except UNDECODABLE:
        metadata = _VagueMetadata()
    return Seen(
        uid=_text(metadata.uid),
        name=_text(metadata.name),
        namespace=_text(metadata.namespace),
        resource_version=_text(metadata.resource_version),
    )


def _text(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except UNDECODABLE:
        return ""


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
