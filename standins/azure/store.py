"""Store of all resources, resource groups, attachments and reservations.
A listener is called on every change: with the new version, or with the last one and the time of its removal."""

import itertools
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from standins.azure.resources import (
    KINDS,
    Disk,
    NewResource,
    Nic,
    PublicIp,
    ResourceGroup,
    ResourceKind,
    Vm,
    id_of,
    kind_of,
    refer,
)
from standins.azure.stored_resources import ResourceIndex, StoredResource
from standins.clock import Clock

ChangeListener = Callable[[StoredResource, float | None], None]


@dataclass(frozen=True, slots=True)
class NicReservation:
    vm: str
    seconds: float
    until: float


class ResourceStore:
    def __init__(self, clock: Clock, changed: ChangeListener) -> None:
        self._clock, self._changed = clock, changed
        self._indexes: dict[tuple[str, ResourceKind], ResourceIndex] = {}
        self._groups: dict[tuple[str, str], ResourceGroup] = {}
        self._subscriptions: set[str] = set()
        self._versions = itertools.count(1)
        # Attachments: key of the holder to the keys of what it holds; key of what is held to the id of its holder.
        self._held: dict[str, dict[str, None]] = {}
        self._holders: dict[str, str] = {}
        self.reservations: dict[str, NicReservation] = {}

    # ---- reads

    def get(self, key: str) -> StoredResource | None:
        match key.split("/"):
            case ["", "subscriptions", subscription, "resourcegroups", _, "providers", provider, one, _]:
                kind = KINDS.get(f"{provider}/{one}")
            case _:
                return None
        index = self._indexes.get((subscription, kind)) if kind is not None else None
        return index.get(key) if index is not None else None

    def index(self, subscription: str, kind: ResourceKind) -> ResourceIndex:
        return self._indexes.get((subscription.lower(), kind)) or ResourceIndex()

    def all(self, kind: ResourceKind | None = None) -> Iterable[StoredResource]:
        for (_, one), index in self._indexes.items():
            if kind in (None, one):
                yield from index

    def group(self, subscription: str, name: str) -> ResourceGroup | None:
        return self._groups.get((subscription.lower(), name.lower()))

    def knows(self, subscription: str) -> bool:
        return subscription.lower() in self._subscriptions

    def held(self, key: str) -> list[StoredResource]:
        return [resource for one in self._held.get(key, ()) if (resource := self.get(one)) is not None]

    def reservation(self, key: str) -> NicReservation | None:
        found = self.reservations.get(key)
        return found if found is not None and found.until > self._clock.now() else None

    # ---- changes

    def declare(self, group: ResourceGroup) -> None:
        self._groups.setdefault((group.subscription.lower(), group.name.lower()), group)
        self._subscriptions.add(group.subscription.lower())

    def make(self, spec: NewResource) -> StoredResource:
        """Creates a resource; an existing one of that name is replaced by a new resource."""
        kind = kind_of(spec)
        key = id_of(spec.subscription, spec.group, kind, spec.name).lower()
        where = (spec.subscription.lower(), spec.group.lower())
        if where not in self._groups:
            self.declare(ResourceGroup(name=spec.group, subscription=spec.subscription, region=spec.region))
        if (old := self.get(key)) is not None:
            for one in list(self._held.get(key, ())):
                self._release(one)
            if spec.guid != old.guid:
                self.reservations.pop(key, None)
        self._attach_declared(key, spec)
        age = spec.age if isinstance(spec, Vm | Disk) else 0.0
        if isinstance(spec, Nic) and spec.reserved > 0:
            self.reserve(key, refer(spec, "vm", spec.reserved_vm or spec.name), spec.reserved)
        resource = StoredResource(
            kind=kind,
            key=key,
            version=0,
            stamp=time.time() - self._clock.ours(age),
            state=spec.state,
            guid=spec.guid or str(uuid.uuid4()),
            spec=spec,
            holder=self._holders.get(key, ""),
        )
        return self._put(resource)

    def change(self, resource: StoredResource, **changes: object) -> StoredResource:
        return self._put(msgspec.structs.replace(resource, **changes))

    def remove(self, key: str, at: float | None = None) -> StoredResource | None:
        """Removes a resource, as of `at` or now, and detaches what it held."""
        resource = self.get(key)
        if resource is None:
            return None
        self._indexes[resource.spec.subscription.lower(), resource.kind].remove(key)
        self.reservations.pop(key, None)
        self._detach(key)
        for one in list(self._held.get(key, ())):
            self._release(one)
        self._held.pop(key, None)
        self._changed(
            msgspec.structs.replace(resource, version=next(self._versions)), self._clock.now() if at is None else at
        )
        return resource

    def reserve(self, key: str, vm: str, seconds: float) -> None:
        self.reservations[key] = NicReservation(vm, seconds, self._clock.now() + seconds)

    def attach(self, key: str, holder: str) -> None:
        """`holder` is a resource id; the holder need not exist."""
        self._detach(key)
        self._holders[key] = holder
        self._held.setdefault(holder.lower(), {})[key] = None
        resource = self.get(key)
        if resource is not None and resource.holder != holder:
            self.change(resource, holder=holder)

    def _attach_declared(self, key: str, spec: NewResource) -> None:
        own = id_of(spec.subscription, spec.group, kind_of(spec), spec.name)
        match spec:
            case Nic():
                if spec.vm:
                    self.attach(key, refer(spec, "vm", spec.vm))
                if spec.public_ip:
                    self.attach(refer(spec, "ip", spec.public_ip).lower(), own)
            case Disk() if spec.vm:
                self.attach(key, refer(spec, "vm", spec.vm))
            case PublicIp() if spec.nic:
                self.attach(key, refer(spec, "nic", spec.nic))
            case Vm():
                for named in spec.nics:
                    self.attach(refer(spec, "nic", named).lower(), own)
                for named in (spec.disk, *spec.data_disks):
                    if named:
                        self.attach(refer(spec, "disk", named).lower(), own)

    def _detach(self, key: str) -> None:
        holder = self._holders.pop(key, "")
        if holder:
            self._held.get(holder.lower(), {}).pop(key, None)

    def _release(self, key: str) -> None:
        self._detach(key)
        if (held := self.get(key)) is not None:
            self.change(held, holder="")

    def _put(self, resource: StoredResource) -> StoredResource:
        resource = msgspec.structs.replace(resource, version=next(self._versions))
        at = (resource.spec.subscription.lower(), resource.kind)
        if (index := self._indexes.get(at)) is None:
            index = self._indexes[at] = ResourceIndex()
        index.put(resource)
        self._changed(resource, None)
        return resource
