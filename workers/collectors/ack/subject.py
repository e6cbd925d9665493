"""The resource that an object of ACK means, from what the inventory saw while it was synced. Pure: what contradicts
itself, or was never seen, is held with the reason."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from service.sources.ack import ADOPTED, ADOPTION_POLICY, READ_ONLY, service_of_resource
from service.sources.ack_objects import AckObject, read_ack_object, recognise_ack_object, stored_ack_object
from service.sources.declaration import Unrecognisable
from workers.collectors.ack.types import AckType, UnnamedResource, identifier_of, read_arn, type_of
from workers.handlers.collector import ObjectFacts


class Unremovable(Exception):
    """Nothing of the object is removed now; the message says why. With `waits` that passes without a person."""

    def __init__(self, reason: str, *, after: timedelta | None = None, waits: bool = False) -> None:
        super().__init__(reason)
        self.after, self.waits = after, waits


class AckSubject(msgspec.Struct, frozen=True, kw_only=True):
    """An object and the resource that it means. `seen` is what was recognised while it was synced."""

    service: str
    resource: str
    namespace: str
    name: str
    uid: str
    seen: AckObject
    row: AckType
    identifier: str

    @property
    def kept_name(self) -> str:
        """The name under which a decision to keep the resource is stored."""
        return f"{self.row.kind}:{self.identifier}"


_OFF: Final = ("", "false")
"""Values of a third-party switch that leave it off."""


def require_own(annotations: Mapping[str, str]) -> None:
    """Raises Unremovable for an object whose resource ACK did not create, or may not change."""
    for name in (ADOPTED, READ_ONLY):
        value = annotations.get(name, "")
        if value.strip().lower() not in _OFF:
            what = "its resource was there before it" if name == ADOPTED else "its resource is only read"
            raise Unremovable(f"annotation {name} says {value!r}: {what}, and is not removed with it")
    if ADOPTION_POLICY in annotations:
        raise Unremovable(
            f"annotation {ADOPTION_POLICY} says {annotations[ADOPTION_POLICY]!r}: its resource may have been there "
            f"before it, and is not removed with it"
        )


def subject_of(facts: ObjectFacts) -> AckSubject:
    """Raises Unremovable."""
    seen = _seen(facts)
    service = service_of_resource(facts.ref.resource)
    try:
        row = type_of(service, seen.kind)
        _require_place(row, seen)
        identifier = identifier_of(row, seen.arn, seen.account, seen.fields)
        if facts.live is not None:
            _require_same(row, facts, seen, identifier)
    except UnnamedResource as error:
        raise Unremovable(str(error)) from None
    ref = facts.ref
    return AckSubject(
        service=service, resource=ref.resource, namespace=ref.namespace, name=ref.name, uid=ref.uid, seen=seen,
        row=row, identifier=identifier,
    )  # fmt: skip


def _seen(facts: ObjectFacts) -> AckObject:
    data = facts.recognises
    if not data and facts.live is not None and not facts.live.going:
        # For `knell plan`: the object lives.
        try:
            data = recognise_ack_object(bytes(facts.live.raw))
        except Unrecognisable as error:
            raise Unremovable(f"nothing proves what it names: {error}") from None
    if not data:
        raise Unremovable(
            "nothing proves what it names: the inventory never saw it synced (condition ACK.ResourceSynced) while it "
            "lived; what it may have left must be looked for by a person (`knell held drop` releases it)"
        )
    try:
        return stored_ack_object(data)
    except msgspec.DecodeError as error:
        raise Unremovable(f"what the inventory has of it can't be read: {error}") from None


def _require_place(row: AckType, seen: AckObject) -> None:
    """Raises UnnamedResource if the ARN is of another place than the status says, or the status says none."""
    if not (seen.account and seen.region):
        raise UnnamedResource("its status has no account or no region (status.ackResourceMetadata)")
    if not seen.arn:
        return
    arn = read_arn(row, seen.arn)
    pairs = (
        ("partition", arn.partition, seen.partition),
        ("region", arn.region, seen.region),
        ("account", arn.account, seen.account),
    )
    for what, of_arn, said in pairs:
        if of_arn and said and of_arn != said:
            raise UnnamedResource(f"its ARN {seen.arn} is of {what} {of_arn}, and its status says {said}")


def _require_same(row: AckType, facts: ObjectFacts, seen: AckObject, identifier: str) -> None:
    """Raises UnnamedResource if the object says something else now: its status may have been edited. A status that was
    lost says nothing else."""
    if facts.live is None:
        return
    try:
        now = read_ack_object(facts.live.raw)
    except Unrecognisable as error:
        raise UnnamedResource(str(error)) from None
    for what in ("arn", "account", "region", "partition"):
        said, before = getattr(now, what), getattr(seen, what)
        if said and before and said != before:
            raise UnnamedResource(f"its status names the {what} {said}, and {before} when it was seen synced")
    fields = {**seen.fields, **now.fields}
    if identifier_of(row, seen.arn, seen.account, fields) != identifier:
        raise UnnamedResource(f"it does not name {identifier} any more, which it did when it was seen synced")
