"""Objects as the store keeps them: compact JSON without kind and apiVersion, which the version asked for decides.
What must be known of an object without decoding all of it has a small struct here."""

from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from standins.api import statuses

Document: TypeAlias = dict[str, Any]

encode: Final = msgspec.json.Encoder().encode


class Owner(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Meta(msgspec.Struct, rename="camel"):
    """The types of metadata as the real server has them; anything else is refused at the door."""

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
    owner_references: list[Owner] | None = None


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
    """A stored object, which we wrote ourselves."""
    return _document.decode(raw)


def labels(raw: bytes) -> dict[str, str]:
    return _labelled.decode(raw).metadata.labels


def metadata(raw: bytes) -> bytes:
    return bytes(_head.decode(raw).metadata)


def received(body: bytes) -> Document:
    """What a client sent as an object. Raises Refusal."""
    try:
        return _document.decode(body)
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"couldn't read the body as a JSON object: {error}") from None


def typed_metadata(document: Document) -> Document:
    """The metadata of what a client sent, with what is empty left out, as the real server does. Raises Refusal."""
    found = document.get("metadata") or {}
    try:
        msgspec.convert(found, Meta)
    except msgspec.ValidationError as error:
        raise statuses.bad_request(f"metadata cannot be read: {error}") from None
    kept = {key: value for key, value in found.items() if value not in (None, "", [], {})}
    kept.pop("managedFields", None)
    kept.pop("selfLink", None)
    document["metadata"] = kept
    return kept


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
