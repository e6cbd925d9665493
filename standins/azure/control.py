"""The control address of the stand-in: what tests and figures see and change of it beside ARM's own interface.
Nothing that is done here is throttled, troubled or counted as a request."""

from typing import Any

import msgspec
from aiohttp import web

from standins.azure.asking import Named, Opening, Reserve
from standins.azure.behaviour import Behaviour
from standins.azure.layer import Layer
from standins.azure.resources import Group, Made, There
from standins.azure.thing import Thing
from standins.azure.waiting import Waiting
from standins.clock import Setting

_decode_made = msgspec.json.Decoder(list[Made]).decode


class Control:
    def __init__(self, layer: Layer, waiting: Waiting) -> None:
        self._layer, self._waiting = layer, waiting

    def answer(self, method: str, what: str, query: Any, body: bytes) -> web.Response:
        self._layer.clock.catch_up()
        try:
            answer = self._read(what, query) if method == "GET" else self._change(what, body)
        except (msgspec.MsgspecError, ValueError) as error:
            return web.Response(status=400, text=str(error))
        except LookupError as error:
            return web.Response(status=404, text=str(error))
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    def _read(self, what: str, query: Any) -> Any:
        layer = self._layer
        match what:
            case "journal":
                entries = layer.journal.since(int(query.get("since", "0")))
                kind, operation = query.get("what", ""), query.get("operation", "")
                if not kind and not operation:
                    return entries
                return [one for one in entries if kind in ("", one.what) and operation in ("", one.operation)]
            case "delayed":
                return self._waiting.names
            case "behaviour":
                return layer.behaviour
            case "clock":
                return {"now": layer.clock.now(), "rate": layer.clock.rate}
            case "resources":
                return [self._there(thing) for thing in layer.store.all(query.get("kind") or None)]
        raise LookupError(what)

    def _change(self, what: str, body: bytes) -> Any:
        layer = self._layer
        match what:
            case "behaviour":
                changed = {**msgspec.to_builtins(layer.behaviour), **msgspec.json.decode(body)}
                layer.behaviour = msgspec.convert(changed, Behaviour)
                layer.faults.forget()
                return layer.behaviour
            case "clock":
                layer.clock.set(msgspec.json.decode(body, type=Setting))
                return {"now": layer.clock.now(), "rate": layer.clock.rate}
            case "open":
                return self._waiting.open(msgspec.json.decode(body, type=Opening).operation)
            case "resources":
                return [layer.store.make(made).guid for made in _decode_made(body)]
            case "groups":
                for group in msgspec.json.decode(body, type=list[Group]):
                    layer.store.declare(group)
                return {}
            case "reserve":
                return self._reserve(msgspec.json.decode(body, type=Reserve))
            case "remove":
                named = msgspec.json.decode(body, type=Named)
                if layer.store.remove(named.id.lower()) is None:
                    raise LookupError(f"{named.id} is not there")
                return {}
        raise LookupError(what)

    def _reserve(self, asked: Reserve) -> Any:
        key, store = asked.id.lower(), self._layer.store
        if store.get(key) is None:
            raise LookupError(f"{asked.id} is not there")
        store.reserve(key, asked.for_vm, asked.seconds)
        return {"until": store.reservations[key].until}

    def _there(self, thing: Thing) -> There:
        held = self._layer.store.reservation(thing.key)
        return There(
            kind=thing.kind,
            subscription=thing.made.subscription,
            group=thing.made.group,
            name=thing.made.name,
            guid=thing.guid,
            tags=thing.made.tags,
            state=thing.state,
            vm=thing.holder,
            reserved_until=held.until if held is not None else 0.0,
        )
