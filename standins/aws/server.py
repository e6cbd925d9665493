"""HTTP server of the AWS stand-in: all AWS services and the control API on one port.
Requests are handled one at a time on the event loop; only those that a fault delays wait concurrently."""

import asyncio
import socket
from typing import Any

import msgspec
from aiohttp import web

from standins.aws.behaviour import AwsBehaviour, AwsFault
from standins.aws.dispatch import AwsDispatcher, RawRequest
from standins.clock import ClockSetting
from standins.http_server import StandInServer

CONTROL = "/_knell/"


class AwsServer(StandInServer):
    def __init__(
        self, behaviour: AwsBehaviour | None = None, *, rate: float = 1.0, listener: socket.socket | None = None
    ) -> None:
        super().__init__(listener)
        self.dispatcher = AwsDispatcher(behaviour or AwsBehaviour(), rate)
        self._delayed: list[str] = []

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        # Clients of S3 send an object once the server has agreed to take it.
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await request.read()
        if request.path.startswith(CONTROL):
            return self._control(request, body)
        asked = RawRequest(request.method, request.path_qs, request.headers, body)
        call = self.dispatcher.parse_call(asked)
        if call is None:
            return web.Response(status=403, text="not a signed request of AWS")
        applied: AwsFault | None = None
        delayed = 0.0
        for fault in self.dispatcher.faults_for(call):
            if fault.what == "slow":
                await self._delay(call.name, fault.seconds)
                delayed += fault.seconds
            else:
                applied = fault
        answer = self.dispatcher.answer(call, asked, applied, delayed)
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
        dispatcher, what = self.dispatcher, request.path.removeprefix(CONTROL)
        try:
            match request.method, what:
                case "GET", "journal":
                    return _json(dispatcher.journal.since(int(request.query.get("since", "0"))))
                case "GET", "delayed":
                    return _json(self._delayed)
                case "POST", "behaviour":
                    changed = {**msgspec.to_builtins(dispatcher.behaviour), **msgspec.json.decode(body)}
                    dispatcher.behaviour = msgspec.convert(changed, AwsBehaviour)
                    dispatcher.faults.forget()
                case "POST", "clock":
                    dispatcher.clock.set(msgspec.json.decode(body, type=ClockSetting))
                case "GET", "behaviour" | "clock":
                    pass
                case _:
                    return web.Response(status=404)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            return web.Response(status=400, text=str(error))
        if what == "behaviour":
            return _json(dispatcher.behaviour)
        dispatcher.clock.catch_up()
        return _json({"now": dispatcher.clock.now(), "rate": dispatcher.clock.rate})


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
