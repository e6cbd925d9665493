"""Control API of the Azure stand-in, through which tests and benchmarks inspect and change it.
Requests here are not throttled, get no faults and are not in the journal."""

from typing import Any

import msgspec
from aiohttp import web

from standins.azure.behaviour import AzureBehaviour
from standins.azure.control_messages import OpenGates, ReserveRequest, ResourceName
from standins.azure.delayed_requests import DelayedRequests
from standins.azure.dispatch import AzureDispatcher
from standins.azure.resources import NewResource, ResourceGroup, ResourceState
from standins.azure.stored_resources import StoredResource
from standins.clock import ClockSetting

_decode_resources = msgspec.json.Decoder(list[NewResource]).decode


class ControlApi:
    def __init__(self, dispatcher: AzureDispatcher, waiting: DelayedRequests) -> None:
        self._dispatcher, self._waiting = dispatcher, waiting

    def answer(self, method: str, what: str, query: Any, body: bytes) -> web.Response:
        self._dispatcher.clock.catch_up()
        try:
            answer = self._read(what, query) if method == "GET" else self._change(what, body)
        except (msgspec.MsgspecError, ValueError) as error:
            return web.Response(status=400, text=str(error))
        except LookupError as error:
            return web.Response(status=404, text=str(error))
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    def _read(self, what: str, query: Any) -> Any:
        dispatcher = self._dispatcher
        match what:
            case "journal":
                entries = dispatcher.journal.since(int(query.get("since", "0")))
                kind, operation = query.get("what", ""), query.get("operation", "")
                if not kind and not operation:
                    return entries
                return [one for one in entries if kind in ("", one.what) and operation in ("", one.operation)]
            case "delayed":
                return self._waiting.names
            case "behaviour":
                return dispatcher.behaviour
            case "clock":
                return {"now": dispatcher.clock.now(), "rate": dispatcher.clock.rate}
            case "resources":
                return [self._there(resource) for resource in dispatcher.store.all(query.get("kind") or None)]
        raise LookupError(what)

    def _change(self, what: str, body: bytes) -> Any:
        dispatcher = self._dispatcher
        match what:
            case "behaviour":
                changed = {**msgspec.to_builtins(dispatcher.behaviour), **msgspec.json.decode(body)}
                dispatcher.behaviour = msgspec.convert(changed, AzureBehaviour)
                dispatcher.faults.forget()
                return dispatcher.behaviour
            case "clock":
                dispatcher.clock.set(msgspec.json.decode(body, type=ClockSetting))
                return {"now": dispatcher.clock.now(), "rate": dispatcher.clock.rate}
            case "open":
                return self._waiting.open(msgspec.json.decode(body, type=OpenGates).operation)
            case "resources":
                return [dispatcher.store.make(spec).guid for spec in _decode_resources(body)]
            case "groups":
                for group in msgspec.json.decode(body, type=list[ResourceGroup]):
                    dispatcher.store.declare(group)
                return {}
            case "reserve":
                return self._reserve(msgspec.json.decode(body, type=ReserveRequest))
            case "remove":
                named = msgspec.json.decode(body, type=ResourceName)
                if dispatcher.store.remove(named.id.lower()) is None:
                    raise LookupError(f"{named.id} is not there")
                return {}
        raise LookupError(what)

    def _reserve(self, asked: ReserveRequest) -> Any:
        key, store = asked.id.lower(), self._dispatcher.store
        if store.get(key) is None:
            raise LookupError(f"{asked.id} is not there")
        store.reserve(key, asked.for_vm, asked.seconds)
        return {"until": store.reservations[key].until}

    def _there(self, resource: StoredResource) -> ResourceState:
        held = self._dispatcher.store.reservation(resource.key)
        return ResourceState(
            kind=resource.kind,
            subscription=resource.spec.subscription,
            group=resource.spec.group,
            name=resource.spec.name,
            guid=resource.guid,
            tags=resource.spec.tags,
            state=resource.state,
            vm=resource.holder,
            reserved_until=held.until if held is not None else 0.0,
        )
