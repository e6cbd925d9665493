"""Whether something may be deleted, and how it goes: first it shows that it is being deleted, then it is gone.
A machine takes with it what it is said to take, and lets go of the rest."""

from functools import partial
from typing import Final

from standins.azure import refusals
from standins.azure.answers import Answer, empty, seconds
from standins.azure.behaviour import Behaviour
from standins.azure.calls import Call
from standins.azure.operations import Operation, Operations
from standins.azure.resources import Nic, Vm
from standins.azure.store import Store
from standins.azure.thing import Thing
from standins.clock import Clock

_RETRY_AFTER: Final = {"nic": 4.0, "vm": 10.0, "disk": 10.0, "ip": 10.0}
Failure = tuple[str, str] | None


class Deleting:
    def __init__(self, store: Store, operations: Operations, clock: Clock) -> None:
        self._store, self._operations, self._clock = store, operations, clock

    def delete(self, call: Call, behaviour: Behaviour, address: str, failure: Failure = None) -> Answer:
        """With `failure` it is accepted, and fails when it should be done."""
        thing = self._store.get(call.key)
        if thing is None:
            return empty(204)
        if (refused := self._refused(thing, behaviour)) is not None:
            return refused
        operation = self._operations.get(thing.operation)
        if operation is None or thing.state != "Deleting":
            operation = self._begin(thing, behaviour, failure)
        return self._operations.accepted(operation, address)

    def _refused(self, thing: Thing, behaviour: Behaviour) -> Answer | None:
        if (scope := _first(thing, behaviour.locks)) is not None:
            return refusals.locked(thing.id, scope if scope.startswith("/") else thing.id)
        if thing.state == "Deleting":
            return None
        if _first(thing, behaviour.nested) is not None:
            return refusals.nested(thing.id)
        if thing.state == "Updating":
            return refusals.busy(thing.id)
        if thing.holder:
            return refusals.in_use(thing)
        held = self._store.reservation(thing.key)
        if held is not None:
            if behaviour.refusal_renews:
                self._store.reserve(thing.key, held.vm, held.seconds)
            return refusals.reserved(held.vm, seconds(self._clock, held.seconds))
        return None

    def _begin(self, thing: Thing, behaviour: Behaviour, failure: Failure) -> Operation:
        takes = {
            "nic": behaviour.nic_goes,
            "vm": behaviour.vm_goes,
            "disk": behaviour.disk_goes,
            "ip": behaviour.ip_goes,
        }
        operation = self._operations.begin(thing, seconds(self._clock, _RETRY_AFTER[thing.kind]))
        going = self._store.change(thing, state="Deleting", operation=operation.id)
        self._clock.after(takes[thing.kind], partial(self._end, going.key, operation, failure))
        return operation

    def _end(self, key: str, operation: Operation, failure: Failure, at: float) -> None:
        operation.done, operation.error = True, failure
        thing = self._store.get(key)
        # Somebody may have removed it meanwhile, or made another one of its name.
        if thing is None or thing.operation != operation.id:
            return
        if failure is not None:
            self._store.change(thing, state="Failed", operation="")
            return
        taken = self._taken(thing)
        self._store.remove(key, at)
        for one in taken:
            self._store.remove(one, at)

    def _taken(self, thing: Thing) -> list[str]:
        """The keys of what goes with a machine."""
        made = thing.made
        if not isinstance(made, Vm):
            return []
        taken = [one for one in self._store.held(thing.key) if made.option(one.kind, one.made.name) == "Delete"]
        addresses = [
            address.key
            for one in taken
            if isinstance(one.made, Nic) and one.made.ip_delete == "Delete"
            for address in self._store.held(one.key)
        ]
        return [*(one.key for one in taken), *addresses]


def _first(thing: Thing, named: tuple[str, ...]) -> str | None:
    """The first that is the thing's name, its id or its group's."""
    for one in named:
        said = one.lower().rstrip("/")
        if said == thing.made.name.lower() or f"{thing.key}/".startswith(f"{said}/"):
            return one
    return None
