"""The HTTP side of the stand-in: AWS's services and its own control address on one port.
Requests are judged one after the other on the event loop; only what is slow on purpose waits beside it."""

import asyncio
import socket
from typing import Any

import msgspec
from aiohttp import web

from standins.aws.behaviour import Behaviour, Fault
from standins.aws.layer import Layer, Request
from standins.clock import Setting
from standins.listening import Listening

CONTROL = "/_knell/"


class Server(Listening):
    def __init__(
        self, behaviour: Behaviour | None = None, *, rate: float = 1.0, listener: socket.socket | None = None
    ) -> None:
        super().__init__(listener)
        self.layer = Layer(behaviour or Behaviour(), rate)
        self._delayed: list[str] = []

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if request.path.startswith(CONTROL):
            return self._control(request, body)
        asked = Request(request.method, request.path_qs, request.headers, body)
        call = self.layer.read(asked)
        if call is None:
            return web.Response(status=403, text="not a signed request of AWS")
        trouble: Fault | None = None
        delayed = 0.0
        for fault in self.layer.troubles(call):
            if fault.what == "slow":
                await self._delay(call.name, fault.seconds)
                delayed += fault.seconds
            else:
                trouble = fault
        answer = self.layer.answer(call, asked, trouble, delayed)
        if answer is None:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    async def _delay(self, action: str, seconds: float) -> None:
        self._delayed.append(action)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._delayed.remove(action)

    def _control(self, request: web.BaseRequest, body: bytes) -> web.Response:
        layer, what = self.layer, request.path.removeprefix(CONTROL)
        try:
            match request.method, what:
                case "GET", "journal":
                    return _json(layer.journal.since(int(request.query.get("since", "0"))))
                case "GET", "delayed":
                    return _json(self._delayed)
                case "POST", "behaviour":
                    changed = {**msgspec.to_builtins(layer.behaviour), **msgspec.json.decode(body)}
                    layer.behaviour = msgspec.convert(changed, Behaviour)
                    layer.faults.forget()
                case "POST", "clock":
                    layer.clock.set(msgspec.json.decode(body, type=Setting))
                case "GET", "behaviour" | "clock":
                    pass
                case _:
                    return web.Response(status=404)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            return web.Response(status=400, text=str(error))
        if what == "behaviour":
            return _json(layer.behaviour)
        layer.clock.catch_up()
        return _json({"now": layer.clock.now(), "rate": layer.clock.rate})


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
