"""Everything that is there, and what is attached to what.
Who wants to know of changes is told of each one: the thing as it is now, or as it was and when it went."""

import itertools
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from standins.azure.resources import KINDS, Disk, Group, Kind, Made, Nic, PublicIp, Vm, id_of, kind_of, refer
from standins.azure.shelf import Shelf
from standins.azure.thing import Thing
from standins.clock import Clock

Change = Callable[[Thing, float | None], None]


@dataclass(frozen=True, slots=True)
class Reservation:
    vm: str
    seconds: float
    until: float


class Store:
    def __init__(self, clock: Clock, changed: Change) -> None:
        self._clock, self._changed = clock, changed
        self._shelves: dict[tuple[str, Kind], Shelf] = {}
        self._groups: dict[tuple[str, str], Group] = {}
        self._subscriptions: set[str] = set()
        self._versions = itertools.count(1)
        # Key of what holds to the keys of what it holds, and back to its id.
        self._held: dict[str, dict[str, None]] = {}
        self._holders: dict[str, str] = {}
        self.reservations: dict[str, Reservation] = {}

    # ---- looking

    def get(self, key: str) -> Thing | None:
        match key.split("/"):
            case ["", "subscriptions", subscription, "resourcegroups", _, "providers", provider, one, _]:
                kind = KINDS.get(f"{provider}/{one}")
            case _:
                return None
        shelf = self._shelves.get((subscription, kind)) if kind is not None else None
        return shelf.get(key) if shelf is not None else None

    def shelf(self, subscription: str, kind: Kind) -> Shelf:
        return self._shelves.get((subscription.lower(), kind)) or Shelf()

    def all(self, kind: Kind | None = None) -> Iterable[Thing]:
        for (_, one), shelf in self._shelves.items():
            if kind in (None, one):
                yield from shelf

    def group(self, subscription: str, name: str) -> Group | None:
        return self._groups.get((subscription.lower(), name.lower()))

    def knows(self, subscription: str) -> bool:
        return subscription.lower() in self._subscriptions

    def held(self, key: str) -> list[Thing]:
        return [thing for one in self._held.get(key, ()) if (thing := self.get(one)) is not None]

    def reservation(self, key: str) -> Reservation | None:
        found = self.reservations.get(key)
        return found if found is not None and found.until > self._clock.now() else None

    # ---- changing

    def declare(self, group: Group) -> None:
        self._groups.setdefault((group.subscription.lower(), group.name.lower()), group)
        self._subscriptions.add(group.subscription.lower())

    def make(self, made: Made) -> Thing:
        """What is there under that name already is replaced by another one."""
        kind = kind_of(made)
        key = id_of(made.subscription, made.group, kind, made.name).lower()
        where = (made.subscription.lower(), made.group.lower())
        if where not in self._groups:
            self.declare(Group(name=made.group, subscription=made.subscription, region=made.region))
        if (old := self.get(key)) is not None:
            for one in list(self._held.get(key, ())):
                self._let_go(one)
            if made.guid != old.guid:
                self.reservations.pop(key, None)
        self._attach_as_said(key, made)
        age = made.age if isinstance(made, Vm | Disk) else 0.0
        if isinstance(made, Nic) and made.reserved > 0:
            self.reserve(key, refer(made, "vm", made.reserved_vm or made.name), made.reserved)
        thing = Thing(
            kind=kind,
            key=key,
            version=0,
            stamp=time.time() - self._clock.ours(age),
            state=made.state,
            guid=made.guid or str(uuid.uuid4()),
            made=made,
            holder=self._holders.get(key, ""),
        )
        return self._put(thing)

    def change(self, thing: Thing, **changes: object) -> Thing:
        return self._put(msgspec.structs.replace(thing, **changes))

    def remove(self, key: str, at: float | None = None) -> Thing | None:
        """It is gone, since `at` or now, and what it held is free."""
        thing = self.get(key)
        if thing is None:
            return None
        self._shelves[thing.made.subscription.lower(), thing.kind].remove(key)
        self.reservations.pop(key, None)
        self._detach(key)
        for one in list(self._held.get(key, ())):
            self._let_go(one)
        self._held.pop(key, None)
        self._changed(
            msgspec.structs.replace(thing, version=next(self._versions)), self._clock.now() if at is None else at
        )
        return thing

    def reserve(self, key: str, vm: str, seconds: float) -> None:
        self.reservations[key] = Reservation(vm, seconds, self._clock.now() + seconds)

    def attach(self, key: str, holder: str) -> None:
        """`holder` is an id, of something that need not be there."""
        self._detach(key)
        self._holders[key] = holder
        self._held.setdefault(holder.lower(), {})[key] = None
        thing = self.get(key)
        if thing is not None and thing.holder != holder:
            self.change(thing, holder=holder)

    def _attach_as_said(self, key: str, made: Made) -> None:
        own = id_of(made.subscription, made.group, kind_of(made), made.name)
        match made:
            case Nic():
                if made.vm:
                    self.attach(key, refer(made, "vm", made.vm))
                if made.public_ip:
                    self.attach(refer(made, "ip", made.public_ip).lower(), own)
            case Disk() if made.vm:
                self.attach(key, refer(made, "vm", made.vm))
            case PublicIp() if made.nic:
                self.attach(key, refer(made, "nic", made.nic))
            case Vm():
                for named in made.nics:
                    self.attach(refer(made, "nic", named).lower(), own)
                for named in (made.disk, *made.data_disks):
                    if named:
                        self.attach(refer(made, "disk", named).lower(), own)

    def _detach(self, key: str) -> None:
        holder = self._holders.pop(key, "")
        if holder:
            self._held.get(holder.lower(), {}).pop(key, None)

    def _let_go(self, key: str) -> None:
        self._detach(key)
        if (held := self.get(key)) is not None:
            self.change(held, holder="")

    def _put(self, thing: Thing) -> Thing:
        thing = msgspec.structs.replace(thing, version=next(self._versions))
        at = (thing.made.subscription.lower(), thing.kind)
        if (shelf := self._shelves.get(at)) is None:
            shelf = self._shelves[at] = Shelf()
        shelf.put(thing)
        self._changed(thing, None)
        return thing
