"""Encoding of stored objects: compact JSON without kind and apiVersion, which depend on the requested version.
Small structs decode the parts that are needed without decoding the whole object."""

from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from standins.kubernetes_api import statuses

Document: TypeAlias = dict[str, Any]

encode: Final = msgspec.json.Encoder().encode


class OwnerReference(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(msgspec.Struct, rename="camel"):
    """Types of the metadata fields, as on the real server; other types are refused."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None


class _Labels(msgspec.Struct):
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct):
    metadata: _Labels


class _Head(msgspec.Struct):
    metadata: msgspec.Raw


_document = msgspec.json.Decoder(Document)
_labelled = msgspec.json.Decoder(_Labelled)
_head = msgspec.json.Decoder(_Head)


def decode(raw: bytes) -> Document:
    """Decodes a stored object."""
    return _document.decode(raw)


def labels(raw: bytes) -> dict[str, str]:
    return _labelled.decode(raw).metadata.labels


def metadata(raw: bytes) -> bytes:
    return bytes(_head.decode(raw).metadata)


def received(body: bytes) -> Document:
    """Decodes an object that a client sent. Raises StatusError."""
    try:
        return _document.decode(body)
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"couldn't read the body as a JSON object: {error}") from None


def typed_metadata(document: Document) -> Document:
    """Checks the metadata that a client sent and removes empty fields, as the real server does. Raises StatusError."""
    found = document.get("metadata") or {}
    try:
        msgspec.convert(found, ObjectMeta)
    except msgspec.ValidationError as error:
        raise statuses.bad_request(f"metadata cannot be read: {error}") from None
    kept = {key: value for key, value in found.items() if value not in (None, "", [], {})}
    kept.pop("managedFields", None)
    kept.pop("selfLink", None)
    document["metadata"] = kept
    return kept


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
