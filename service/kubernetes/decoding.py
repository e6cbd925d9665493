"""Decoding of objects: identity, labels, policy annotations and times; the rest is skipped. An undecodable object is
reported with as much of its identity as can be read, because it is held by name."""

import base64
from datetime import datetime
from typing import Annotated, Final

import msgspec

from service.contract.names import ACK_PREFIX, PREFIX
from service.kubernetes.errors import Unreadable
from service.kubernetes.objects import NOTHING, KubeObject, ServedResource
from service.sources.registry import known_annotations

# Domains of policy annotations and our own. All others, some of them hundreds of kilobytes, are dropped here.
_POLICY_DOMAINS: Final = (PREFIX, ACK_PREFIX)
_METADATA_KIND: Final = "PartialObjectMetadata"
_POLICY_SUBDOMAINS: Final = tuple(f".{domain}" for domain in _POLICY_DOMAINS)
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a text; RecursionError if it is nested too deeply."""

# An empty uid would differ from every known uid, and so prove that the known object is gone.
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class _ObjectMetadata(msgspec.Struct):
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


class _RawObject(msgspec.Struct):
    metadata: _ObjectMetadata
    kind: str = ""


class _IdentityMetadata(msgspec.Struct):
    """Undecoded, because a value may have any type and size."""

    uid: msgspec.Raw = NOTHING
    name: msgspec.Raw = NOTHING
    namespace: msgspec.Raw = NOTHING
    resource_version: msgspec.Raw = msgspec.field(default=NOTHING, name="resourceVersion")


class _IdentityOnly(msgspec.Struct):
    metadata: _IdentityMetadata


_objects: Final = msgspec.json.Decoder(_RawObject)
_identities: Final = msgspec.json.Decoder(_IdentityOnly)


def decode_item(raw: msgspec.Raw, served: ServedResource, namespace: str | None) -> KubeObject:
    """An object of a list or watch of one namespace, or of all if that is None. Raises Unreadable with the identity of
    the object, also for one that does not belong into such a list."""
    found = _decode_raw(raw)
    seen = _kube_object(found.metadata, raw)
    if not _is_kind(found, served):
        raise Unreadable(f"{_describe(seen)} is of another kind than requested: {found.kind}")
    if not served.namespaced:
        misplaced = seen.namespace != ""
    else:
        misplaced = seen.namespace != namespace if namespace else not seen.namespace
    if misplaced:
        requested = f"namespace {namespace}" if served.namespaced and namespace else served.resource
        raise Unreadable(f"{_describe(seen)} does not belong to {requested}: its namespace is {seen.namespace!r}")
    return seen


def decode_object(raw: bytes, served: ServedResource, namespace: str, name: str) -> KubeObject:
    """The object that was requested by name. Any other object is Unreadable: it is neither the requested one nor a
    proof that there is none. An empty name is one that the server chooses."""
    found = _decode_raw(raw)
    seen = _kube_object(found.metadata, raw)
    there = namespace if served.namespaced else ""
    if _is_kind(found, served) and seen.namespace == there and seen.name == (name or seen.name):
        return seen
    requested = f"{served.kind} {there}/{name}" if there else f"{served.kind} {name}"
    raise Unreadable(f"{requested}: the answer is another object: {found.kind or 'no kind'}, {_describe(seen)}")


def _is_kind(found: _RawObject, served: ServedResource) -> bool:
    """Items in a list of a built-in kind have no `kind`."""
    return found.kind in ("", served.kind, _METADATA_KIND)


def _decode_raw(raw: msgspec.Raw | bytes) -> _RawObject:
    try:
        return _objects.decode(raw)
    except UNDECODABLE as error:
        raise Unreadable(f"{_describe(decode_identity(raw))} can't be decoded: {error}") from None


def _kube_object(metadata: _ObjectMetadata, raw: msgspec.Raw | bytes) -> KubeObject:
    return KubeObject(
        uid=metadata.uid,
        name=metadata.name,
        namespace=metadata.namespace,
        resource_version=metadata.resource_version,
        created=_milliseconds(metadata.created),
        deleting=_milliseconds(metadata.deleting),
        generation=metadata.generation,
        labels=metadata.labels or {},
        annotations=policy_annotations(metadata.annotations or {}),
        finalizers=metadata.finalizers or (),
        raw=raw if isinstance(raw, msgspec.Raw) else msgspec.Raw(raw),
    )


def decode_identity(raw: msgspec.Raw | bytes) -> KubeObject:
    """What can be read of the identity of an undecodable object; empty texts for the rest."""
    try:
        metadata = _identities.decode(raw).metadata
    except UNDECODABLE:
        metadata = _IdentityMetadata()
    return KubeObject(
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


def policy_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """Only annotations that policy reads or that we write: `services.k8s.aws/...`, `rds.knell.dev/...`, and those of
    others that are known by their full names."""
    others = known_annotations()
    return {key: value for key, value in annotations.items() if _is_policy_annotation(key, others)}


def _is_policy_annotation(key: str, others: frozenset[str]) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain in _POLICY_DOMAINS or domain.endswith(_POLICY_SUBDOMAINS) or key in others)


def _milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1000)


def _describe(seen: KubeObject) -> str:
    where = f"{seen.namespace}/{seen.name}" if seen.namespace else seen.name
    return f"object {where or '(no name)'} (uid {seen.uid or 'unknown'})"


class _SecretObject(msgspec.Struct):
    data: dict[str, str] | None = None


def secret_value(raw: msgspec.Raw | bytes, key: str) -> bytes | None:
    """One value of a Secret; None if it has no such key."""
    try:
        value = (msgspec.json.decode(raw, type=_SecretObject).data or {}).get(key)
        return None if value is None else base64.b64decode(value)
    except (msgspec.DecodeError, ValueError):
        raise Unreadable("the Secret can't be decoded") from None
