"""Deletion of resources: checks, the accepted asynchronous delete, and the removal when it is done.
Deleting a VM also deletes what has the delete option `Delete`, and detaches the rest."""

from functools import partial
from typing import Final

from standins.azure import errors
from standins.azure.async_operations import AsyncOperation, AsyncOperations
from standins.azure.behaviour import AzureBehaviour
from standins.azure.calls import ArmCall
from standins.azure.resources import Nic, Vm
from standins.azure.responses import ArmResponse, empty, seconds
from standins.azure.store import ResourceStore
from standins.azure.stored_resources import StoredResource
from standins.clock import Clock

_RETRY_AFTER: Final = {"nic": 4.0, "vm": 10.0, "disk": 10.0, "ip": 10.0}
Failure = tuple[str, str] | None


class ResourceDeletes:
    def __init__(self, store: ResourceStore, operations: AsyncOperations, clock: Clock) -> None:
        self._store, self._operations, self._clock = store, operations, clock

    def delete(self, call: ArmCall, behaviour: AzureBehaviour, address: str, failure: Failure = None) -> ArmResponse:
        """With `failure` the delete is accepted and fails at its end."""
        resource = self._store.get(call.key)
        if resource is None:
            return empty(204)
        if (refused := self._refused(resource, behaviour)) is not None:
            return refused
        operation = self._operations.get(resource.operation)
        if operation is None or resource.state != "Deleting":
            operation = self._begin(resource, behaviour, failure)
        return self._operations.accepted(operation, address)

    def _refused(self, resource: StoredResource, behaviour: AzureBehaviour) -> ArmResponse | None:
        if (scope := _first(resource, behaviour.locks)) is not None:
            return errors.locked(resource.id, scope if scope.startswith("/") else resource.id)
        if resource.state == "Deleting":
            return None
        if _first(resource, behaviour.nested) is not None:
            return errors.nested(resource.id)
        if resource.state == "Updating":
            return errors.busy(resource.id)
        if resource.holder:
            return errors.in_use(resource)
        held = self._store.reservation(resource.key)
        if held is not None:
            if behaviour.refusal_renews:
                self._store.reserve(resource.key, held.vm, held.seconds)
            return errors.reserved(held.vm, seconds(self._clock, held.seconds))
        return None

    def _begin(self, resource: StoredResource, behaviour: AzureBehaviour, failure: Failure) -> AsyncOperation:
        takes = {
            "nic": behaviour.nic_goes,
            "vm": behaviour.vm_goes,
            "disk": behaviour.disk_goes,
            "ip": behaviour.ip_goes,
        }
        operation = self._operations.begin(resource, seconds(self._clock, _RETRY_AFTER[resource.kind]))
        going = self._store.change(resource, state="Deleting", operation=operation.id)
        self._clock.after(takes[resource.kind], partial(self._end, going.key, operation, failure))
        return operation

    def _end(self, key: str, operation: AsyncOperation, failure: Failure, at: float) -> None:
        operation.done, operation.error = True, failure
        resource = self._store.get(key)
        # It may have been removed meanwhile, or replaced by another resource of that name.
        if resource is None or resource.operation != operation.id:
            return
        if failure is not None:
            self._store.change(resource, state="Failed", operation="")
            return
        taken = self._taken(resource)
        self._store.remove(key, at)
        for one in taken:
            self._store.remove(one, at)

    def _taken(self, resource: StoredResource) -> list[str]:
        """Keys of the resources that are deleted together with a VM."""
        spec = resource.spec
        if not isinstance(spec, Vm):
            return []
        taken = [one for one in self._store.held(resource.key) if spec.option(one.kind, one.spec.name) == "Delete"]
        addresses = [
            address.key
            for one in taken
            if isinstance(one.spec, Nic) and one.spec.ip_delete == "Delete"
            for address in self._store.held(one.key)
        ]
        return [*(one.key for one in taken), *addresses]


def _first(resource: StoredResource, named: tuple[str, ...]) -> str | None:
    """The first entry that is the name or id of the resource, or the id of its resource group."""
    for one in named:
        scope = one.lower().rstrip("/")
        if scope == resource.spec.name.lower() or f"{resource.key}/".startswith(f"{scope}/"):
            return one
    return None
