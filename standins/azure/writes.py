"""PUT and PATCH of resources, and the tags API.
Only the fields that the stand-in models are read; a document that cannot be parsed is refused."""

from typing import Any, Literal

import msgspec

from standins.azure import errors
from standins.azure.calls import ArmCall
from standins.azure.documents import document
from standins.azure.resources import Disk, NewResource, Nic, PublicIp, Vm, name_in, refer
from standins.azure.responses import ArmResponse, answered, failed, seconds
from standins.azure.store import ResourceStore
from standins.clock import Clock


class _Ref(msgspec.Struct, frozen=True):
    id: str = ""


class _DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    delete_option: Literal["Delete", "Detach"] = "Detach"


class _Interface(msgspec.Struct, frozen=True):
    id: str = ""
    properties: _DeleteOptions = _DeleteOptions()


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


class ResourceWrites:
    def __init__(self, store: ResourceStore, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def put(self, call: ArmCall) -> ArmResponse:
        try:
            asked = msgspec.json.decode(call.body, type=_Put)
        except msgspec.MsgspecError as error:
            return failed(400, "InvalidRequestContent", f"The request content was invalid: {error}")
        spec = _read(call, asked)
        there = self._store.get(call.key)
        if there is not None and there.state == "Deleting":
            return errors.busy(there.id)
        if isinstance(spec, Vm) and (refused := self._refused(spec)) is not None:
            return refused
        if there is not None:
            spec = msgspec.structs.replace(spec, name=there.spec.name, guid=there.guid)
        resource = self._store.make(spec)
        if there is not None:
            resource = self._store.change(resource, stamp=there.stamp)
        return answered(document(resource), 201 if there is None else 200)

    def update(self, call: ArmCall) -> ArmResponse:
        resource = self._store.get(call.key)
        if resource is None:
            assert call.kind is not None  # noqa: S101 - an update operation has a kind
            return errors.not_found(call.kind, call.group, call.name)
        try:
            tags = msgspec.json.decode(call.body, type=_Patch).tags
        except msgspec.MsgspecError as error:
            return failed(400, "InvalidRequestContent", f"The request content was invalid: {error}")
        spec: Any = msgspec.structs.replace(resource.spec, tags=tags)
        return answered(document(self._store.change(resource, spec=spec)))

    def tag(self, call: ArmCall) -> ArmResponse:
        """The tags API: adds or removes the named tags and leaves the others. Names are case-insensitive; a tag that is
        deleted with a value is removed only if it has that value."""
        resource = self._store.get(call.key)
        if resource is None:
            assert call.kind is not None  # noqa: S101 - what is tagged is of a kind
            return errors.not_found(call.kind, call.group, call.name)
        try:
            asked = msgspec.json.decode(call.body, type=_TagsPatch)
        except msgspec.MsgspecError as error:
            return failed(400, "InvalidRequestContent", f"The request content was invalid: {error}")
        named = {name.lower(): value for name, value in asked.properties.tags.items()}
        if asked.operation == "Delete":
            tags = {
                name: value
                for name, value in resource.spec.tags.items()
                if name.lower() not in named or named[name.lower()] not in ("", value)
            }
        else:
            tags = {name: value for name, value in resource.spec.tags.items() if name.lower() not in named}
            tags |= asked.properties.tags
        spec: Any = msgspec.structs.replace(resource.spec, tags=tags)
        self._store.change(resource, spec=spec)
        return answered(
            {"id": f"{resource.id}/providers/Microsoft.Resources/tags/default", "properties": {"tags": tags}}
        )

    def _refused(self, spec: Vm) -> ArmResponse | None:
        """Refuses a VM whose network interface does not exist, is attached elsewhere or reserved for another VM."""
        own = refer(spec, "vm", spec.name).lower()
        for named in spec.nics:
            identity = refer(spec, "nic", named)
            nic = self._store.get(identity.lower())
            if nic is None:
                words = f"Resource {identity} referenced by resource {own} was not found."
                return failed(400, "InvalidResourceReference", words)
            if nic.holder and nic.holder.lower() != own:
                return errors.in_use(nic)
            held = self._store.reservation(nic.key)
            if held is not None and held.vm.lower() != own:
                return errors.reserved(held.vm, seconds(self._clock, held.seconds))
        return None


def _read(call: ArmCall, asked: _Put) -> NewResource:
    """References are resource ids, as ARM demands."""
    fields: dict[str, Any] = {
        "name": call.name,
        "subscription": call.subscription,
        "group": call.group,
        "region": asked.location,
        "tags": asked.tags,
    }
    properties = asked.properties
    match call.kind:
        case "nic":
            public = [
                one.properties.public for one in properties.ip_configurations if one.properties.public is not None
            ]
            if public:
                fields |= {"public_ip": public[0].id, "ip_delete": public[0].properties.delete_option}
            return Nic(**fields)
        case "vm":
            return _machine(fields, properties)
        case "disk":
            return Disk(**fields)
        case _:
            return PublicIp(**fields)


def _machine(fields: dict[str, Any], properties: _Properties) -> Vm:
    nics, storage = properties.network_profile.network_interfaces, properties.storage_profile
    drives = [one for one in (storage.os_disk, *storage.data_disks) if one is not None]
    kept = [name_in(one.id) for one in nics if one.properties.delete_option == "Detach"]
    kept += [_named(one) for one in drives if one.delete_option == "Detach"]
    return Vm(
        **fields,
        nics=tuple(one.id for one in nics),
        disk=_disk(storage.os_disk) if storage.os_disk is not None else "",
        data_disks=tuple(_disk(one) for one in storage.data_disks),
        keeps=tuple(kept),
    )


def _disk(drive: _Drive) -> str:
    return drive.managed_disk.id or drive.name


def _named(drive: _Drive) -> str:
    return name_in(_disk(drive))
