"""Request dispatcher of the Azure stand-in: faults first, then quotas, then the handler of the operation.
It handles one request at a time, so that nothing changes between a check and its effect."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlencode

from standins.azure import errors
from standins.azure.async_operations import AsyncOperations
from standins.azure.behaviour import AzureBehaviour, AzureFault
from standins.azure.calls import ArmCall
from standins.azure.deletes import ResourceDeletes
from standins.azure.documents import document
from standins.azure.journal import AzureJournal
from standins.azure.quotas import AzureQuotas
from standins.azure.resource_graph import ResourceGraph
from standins.azure.resources import id_of
from standins.azure.responses import ArmResponse, answered, failed, proxy_page, seconds
from standins.azure.store import ResourceStore
from standins.azure.stored_resources import StoredResource
from standins.azure.writes import ResourceWrites
from standins.clock import Clock
from standins.fault_injection import FaultInjector

# Faults that only delay a request.
DELAYS: Final = ("slow", "gate")


class AzureDispatcher:
    def __init__(self, behaviour: AzureBehaviour, rate: float = 1.0) -> None:
        self.behaviour = behaviour
        self.clock, self.journal, self.faults = Clock(rate), AzureJournal(), FaultInjector(_matches, DELAYS)
        self.store = ResourceStore(self.clock, self._changed)
        self._graph, self._quotas = ResourceGraph(self.clock), AzureQuotas(self.clock)
        self._operations = AsyncOperations()
        self._deletes = ResourceDeletes(self.store, self._operations, self.clock)
        self._writes = ResourceWrites(self.store, self.clock)

    def faults_for(self, call: ArmCall) -> list[AzureFault]:
        return [] if call.setup else self.faults.of(call, self.behaviour.faults)

    def answer(self, call: ArmCall, address: str, fault: AzureFault | None, delayed: float = 0.0) -> ArmResponse | None:
        """None closes the connection without a response. The journal records the request in either case."""
        self.clock.catch_up()
        answer = self._response(call, address, fault)
        cut = fault is not None and fault.what in ("close", "lost")
        at = self.clock.now()
        self.journal.request(call, at, self.clock.real(at), 0 if cut else answer.status, answer.code, delayed)
        return None if cut else answer

    def _response(self, call: ArmCall, address: str, fault: AzureFault | None) -> ArmResponse:
        match fault:
            # A request that never reaches Azure takes no token.
            case AzureFault(what="html", status=status):
                return proxy_page(status)
            case AzureFault(what="close"):
                return ArmResponse(0, b"", code="closed")
        if not call.operation:
            return errors.not_served(call)
        if not call.principal and not call.setup:
            return errors.unauthenticated()
        region = self._region(call)
        answer = self._quotas.check(call, region, self.behaviour)
        if answer is None:
            answer = self._fault_response(call, fault)
        if answer is None:
            answer = self._handle(call, address, fault)
        headers = {**answer.headers, **self._quotas.headers(call, region, self.behaviour)}
        return ArmResponse(answer.status, answer.body, headers, answer.code)

    def _fault_response(self, call: ArmCall, fault: AzureFault | None) -> ArmResponse | None:
        match fault:
            case AzureFault(what="deny"):
                return errors.denied(call)
            case AzureFault(what="deny-assignment"):
                return errors.denied_by_assignment(call)
            case AzureFault(what="throttle"):
                return errors.throttled_on_demand(call, self.clock, self.behaviour)
            case AzureFault(what="locked"):
                return errors.throttled_by_lock(self.clock)
            case AzureFault(what="error", code=code, message=message, status=status, seconds=span):
                return failed(status, code, message, retry_after=seconds(self.clock, span) if span else "")
        return None

    def _handle(self, call: ArmCall, address: str, fault: AzureFault | None) -> ArmResponse:
        if call.operation == "graph.query":
            return self._graph.answer(call.body, self.behaviour)
        if not self.store.knows(call.subscription):
            return errors.no_subscription(call.subscription)
        if call.operation == "operation.get":
            return self._operations.answer(call, address)
        if call.group and self.store.group(call.subscription, call.group) is None:
            return errors.no_group(call.group)
        match call.operation.partition(".")[2]:
            case "list":
                return _list_page(call, self.store, self.behaviour, address)
            case "get":
                return self._get(call)
            case "put":
                return self._put(call)
            case "update":
                return self._writes.update(call)
            case "tag":
                return self._writes.tag(call)
        fails = fault is not None and fault.what == "fails"
        failure = (fault.code, fault.message) if fault is not None and fails else None
        return self._deletes.delete(call, self.behaviour, address, failure)

    def _put(self, call: ArmCall) -> ArmResponse:
        answer = self._writes.put(call)
        if answer.status == 201 and (spec := self.store.get(call.key)) is not None:
            at = self.clock.now()
            self.journal.happened("made", spec, at, self.clock.real(at))
        return answer

    def _get(self, call: ArmCall) -> ArmResponse:
        resource = self.store.get(call.key)
        if resource is not None:
            return answered(document(resource))
        assert call.kind is not None  # noqa: S101 - a get operation has a kind
        return errors.not_found(call.kind, call.group, call.name)

    def _region(self, call: ArmCall) -> str:
        """The region whose buckets the call draws on: that of the resource, otherwise that of its resource group."""
        if call.region:
            return call.region.lower()
        resource = self.store.get(call.key) if call.key else None
        if resource is not None:
            return resource.spec.region.lower()
        group = self.store.group(call.subscription, call.group) if call.group else None
        return group.region.lower() if group is not None else ""

    def _changed(self, resource: StoredResource, gone: float | None) -> None:
        self._graph.changed(resource, gone is not None, self.behaviour.graph_lag)
        if gone is not None:
            self.journal.happened("gone", resource, gone, self.clock.real(gone))


def _list_page(call: ArmCall, store: ResourceStore, behaviour: AzureBehaviour, address: str) -> ArmResponse:
    """One page of a list, with the link to the next. A page begins after the last id of the one before, so deletions
    and creations in between do not shift it."""
    assert call.kind is not None  # noqa: S101 - a list operation has a kind
    token = call.query.get("$skiptoken", "")
    try:
        after = urlsafe_b64decode(token).decode()
    except (Error, UnicodeDecodeError):
        return failed(400, "InvalidSkipToken", "The skip token is not valid.")
    size = behaviour.network_page if call.provider == "network" else behaviour.compute_page
    within = id_of(call.subscription, call.group, call.kind, "").lower() if call.group else ""
    found = store.index(call.subscription, call.kind).after(after, size + 1, within=within)
    page: dict[str, Any] = {"value": [document(resource) for resource in found[:size]]}
    if len(found) > size:
        following = urlsafe_b64encode(found[size - 1].key.encode()).decode()
        parameters = {"api-version": call.query.get("api-version", ""), "$skiptoken": following}
        page["nextLink"] = f"{address}{call.path}?{urlencode(parameters)}"
    return answered(page)


def _matches(fault: AzureFault, call: ArmCall) -> bool:
    return (
        fnmatchcase(call.operation, fault.operation)
        and fault.subscription.lower() in ("", call.subscription.lower())
        and (not fault.about or call.says(fault.about))
    )
