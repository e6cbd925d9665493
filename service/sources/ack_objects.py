"""Objects of AWS Controllers for Kubernetes: what identifies the resource of one, as its spec and status say. The
inventory keeps it of objects that live and are synced, because a status can be edited and is lost with the object."""

import re
from datetime import datetime
from typing import Any, Final

import msgspec

from service.sources.declaration import NotRecognisedYet, Unrecognisable

_IDENTIFYING: Final = re.compile(r"(name|id)|[a-z]\w*(Name|ID|Id|Identifier|URL|ARN|IP)")
"""Fields of spec and status that may identify a resource. No other field is kept: specs may have secrets."""

_LONGEST: Final = 2048
_MOST_FIELDS: Final = 50


class AckObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an object says of its resource. `fields` are texts by path, such as `spec.name` and `status.vpcID`; `made`
    is when the object was created, in milliseconds."""

    kind: str
    arn: str = ""
    account: str = ""
    region: str = ""
    partition: str = ""
    made: int = 0
    fields: dict[str, str] = msgspec.field(default_factory=dict)


class _AckMetadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    created: datetime | None = msgspec.field(default=None, name="creationTimestamp")
    deleting: datetime | None = msgspec.field(default=None, name="deletionTimestamp")


class _AckResourceMetadata(msgspec.Struct, frozen=True):
    arn: str | None = None
    account: str | None = msgspec.field(default=None, name="ownerAccountID")
    region: str | None = None
    partition: str | None = None


class _AckCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _AckDocument(msgspec.Struct, frozen=True):
    kind: str
    metadata: _AckMetadata
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _AckStatus(msgspec.Struct, frozen=True):
    resource: _AckResourceMetadata | None = msgspec.field(default=None, name="ackResourceMetadata")
    conditions: tuple[_AckCondition, ...] | None = None


_document: Final = msgspec.json.Decoder(_AckDocument)
_stored: Final = msgspec.json.Decoder(AckObject)


def read_ack_object(raw: bytes | msgspec.Raw) -> AckObject:
    """What the object says now, whether it is true or not. Raises Unrecognisable."""
    return _read(raw)[0]


def stored_ack_object(data: str) -> AckObject:
    """What `recognise_ack_object` has kept. Raises DecodeError."""
    return _stored.decode(data)


def recognise_ack_object(raw: bytes) -> str:
    """For an object that lives and is synced; else NotRecognisedYet, so that what was kept before counts."""
    found, document, status = _read(raw)
    if document.metadata.deleting is not None:
        raise NotRecognisedYet("it is being deleted: its status may not be what its controller wrote")
    if not is_synced(status.conditions or ()):
        raise NotRecognisedYet("its controller has not reported it as synced (ACK.ResourceSynced)")
    return msgspec.json.encode(found).decode()


def is_synced(conditions: tuple[_AckCondition, ...]) -> bool:
    """By ACK.ResourceSynced, else by the newer Ready."""
    said = {one.type: one.status for one in conditions}
    if said.get("ACK.Terminal") == "True":
        return False
    return said.get("ACK.ResourceSynced", said.get("Ready")) == "True"


def _read(raw: bytes | msgspec.Raw) -> tuple[AckObject, _AckDocument, _AckStatus]:
    try:
        document = _document.decode(raw)
        status = msgspec.convert(document.status or {}, _AckStatus)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise Unrecognisable(f"it is no object as ACK writes them: {error}") from None
    resource = status.resource or _AckResourceMetadata()
    made = document.metadata.created
    found = AckObject(
        kind=document.kind, arn=resource.arn or "", account=resource.account or "", region=resource.region or "",
        partition=resource.partition or "", made=int(made.timestamp() * 1000) if made is not None else 0,
        fields=_texts("spec", document.spec) | _texts("status", document.status),
    )  # fmt: skip
    return found, document, status


def _texts(part: str, values: dict[str, Any] | None) -> dict[str, str]:
    """The identifying texts of one part, not of what is nested in it."""
    found = {
        f"{part}.{name}": value
        for name, value in sorted((values or {}).items())
        if isinstance(value, str) and value and len(value) <= _LONGEST and _IDENTIFYING.fullmatch(name)
    }
    return dict(list(found.items())[:_MOST_FIELDS])
