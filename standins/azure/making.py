"""What a PUT makes of a document, and a PATCH of tags: resources as other clients than Knell create them.
Only what the stand-in knows of a resource is read; a document that cannot be read is refused."""

from typing import Any, Literal

import msgspec

from standins.azure import refusals
from standins.azure.answers import Answer, answered, failed, seconds
from standins.azure.calls import Call
from standins.azure.resources import Disk, Made, Nic, PublicIp, Vm, name_in, refer
from standins.azure.shapes import document
from standins.azure.store import Store
from standins.clock import Clock


class _Ref(msgspec.Struct, frozen=True):
    id: str = ""


class _Options(msgspec.Struct, frozen=True, rename="camel"):
    delete_option: Literal["Delete", "Detach"] = "Detach"


class _Interface(msgspec.Struct, frozen=True):
    id: str = ""
    properties: _Options = _Options()


class _Drive(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    managed_disk: _Ref = _Ref()
    delete_option: Literal["Delete", "Detach"] = "Detach"


class _Storage(msgspec.Struct, frozen=True, rename="camel"):
    os_disk: _Drive | None = None
    data_disks: list[_Drive] = []


class _Profile(msgspec.Struct, frozen=True, rename="camel"):
    network_interfaces: list[_Interface] = []


class _Inner(msgspec.Struct, frozen=True):
    public: _Interface | None = msgspec.field(default=None, name="publicIPAddress")


class _Configuration(msgspec.Struct, frozen=True):
    properties: _Inner = _Inner()


class _Properties(msgspec.Struct, frozen=True, rename="camel"):
    network_profile: _Profile = _Profile()
    storage_profile: _Storage = _Storage()
    ip_configurations: list[_Configuration] = []


class _Put(msgspec.Struct, frozen=True):
    location: str = "westeurope"
    tags: dict[str, str] = {}
    properties: _Properties = _Properties()


class _Patch(msgspec.Struct, frozen=True):
    tags: dict[str, str] = {}


class _TagsPatch(msgspec.Struct, frozen=True):
    operation: Literal["Merge", "Delete"]
    properties: _Patch


class Making:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def put(self, call: Call) -> Answer:
        try:
            asked = msgspec.json.decode(call.body, type=_Put)
        except msgspec.MsgspecError as error:
            return failed(400, "InvalidRequestContent", f"The request content was invalid: {error}")
        made = _read(call, asked)
        there = self._store.get(call.key)
        if there is not None and there.state == "Deleting":
            return refusals.busy(there.id)
        if isinstance(made, Vm) and (refused := self._refused(made)) is not None:
            return refused
        if there is not None:
            made = msgspec.structs.replace(made, name=there.made.name, guid=there.guid)
        thing = self._store.make(made)
        if there is not None:
            thing = self._store.change(thing, stamp=there.stamp)
        return answered(document(thing), 201 if there is None else 200)

    def update(self, call: Call) -> Answer:
        thing = self._store.get(call.key)
        if thing is None:
            assert call.kind is not None  # noqa: S101 - what is updated is of a kind
            return refusals.not_found(call.kind, call.group, call.name)
        try:
            tags = msgspec.json.decode(call.body, type=_Patch).tags
        except msgspec.MsgspecError as error:
            return failed(400, "InvalidRequestContent", f"The request content was invalid: {error}")
        made: Any = msgspec.structs.replace(thing.made, tags=tags)
        return answered(document(self._store.change(thing, made=made)))

    def tag(self, call: Call) -> Answer:
        """By the API of tags: those that are named are added, or taken off, the others stay. Names have no case; one
        that is to go with a value goes only if it has that value."""
        thing = self._store.get(call.key)
        if thing is None:
            assert call.kind is not None  # noqa: S101 - what is tagged is of a kind
            return refusals.not_found(call.kind, call.group, call.name)
        try:
            asked = msgspec.json.decode(call.body, type=_TagsPatch)
        except msgspec.MsgspecError as error:
            return failed(400, "InvalidRequestContent", f"The request content was invalid: {error}")
        named = {name.lower(): value for name, value in asked.properties.tags.items()}
        if asked.operation == "Delete":
            tags = {
                name: value
                for name, value in thing.made.tags.items()
                if name.lower() not in named or named[name.lower()] not in ("", value)
            }
        else:
            tags = {name: value for name, value in thing.made.tags.items() if name.lower() not in named}
            tags |= asked.properties.tags
        made: Any = msgspec.structs.replace(thing.made, tags=tags)
        self._store.change(thing, made=made)
        return answered({"id": f"{thing.id}/providers/Microsoft.Resources/tags/default", "properties": {"tags": tags}})

    def _refused(self, made: Vm) -> Answer | None:
        """A machine gets no interface that is not there, that is another's or reserved for another."""
        own = refer(made, "vm", made.name).lower()
        for named in made.nics:
            identity = refer(made, "nic", named)
            nic = self._store.get(identity.lower())
            if nic is None:
                words = f"Resource {identity} referenced by resource {own} was not found."
                return failed(400, "InvalidResourceReference", words)
            if nic.holder and nic.holder.lower() != own:
                return refusals.in_use(nic)
            held = self._store.reservation(nic.key)
            if held is not None and held.vm.lower() != own:
                return refusals.reserved(held.vm, seconds(self._clock, held.seconds))
        return None


def _read(call: Call, asked: _Put) -> Made:
    """References are ids, as ARM wants them."""
    said: dict[str, Any] = {
        "name": call.name,
        "subscription": call.subscription,
        "group": call.group,
        "region": asked.location,
        "tags": asked.tags,
    }
    inside = asked.properties
    match call.kind:
        case "nic":
            public = [one.properties.public for one in inside.ip_configurations if one.properties.public is not None]
            if public:
                said |= {"public_ip": public[0].id, "ip_delete": public[0].properties.delete_option}
            return Nic(**said)
        case "vm":
            return _machine(said, inside)
        case "disk":
            return Disk(**said)
        case _:
            return PublicIp(**said)


def _machine(said: dict[str, Any], inside: _Properties) -> Vm:
    nics, storage = inside.network_profile.network_interfaces, inside.storage_profile
    drives = [one for one in (storage.os_disk, *storage.data_disks) if one is not None]
    kept = [name_in(one.id) for one in nics if one.properties.delete_option == "Detach"]
    kept += [_named(one) for one in drives if one.delete_option == "Detach"]
    return Vm(
        **said,
        nics=tuple(one.id for one in nics),
        disk=_disk(storage.os_disk) if storage.os_disk is not None else "",
        data_disks=tuple(_disk(one) for one in storage.data_disks),
        keeps=tuple(kept),
    )


def _disk(drive: _Drive) -> str:
    return drive.managed_disk.id or drive.name


def _named(drive: _Drive) -> str:
    return name_in(_disk(drive))
