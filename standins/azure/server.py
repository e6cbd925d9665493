"""The HTTP side of the stand-in: ARM, the tokens of a managed identity, and its own control address on one port.
Requests are judged one after the other on the event loop; only what is delayed on purpose waits beside it."""

import socket
import time
import uuid

import msgspec
from aiohttp import web

from standins.azure.behaviour import Behaviour, Fault
from standins.azure.calls import TOKEN_FRONT, read
from standins.azure.control import Control
from standins.azure.faults import WAITS
from standins.azure.layer import Layer
from standins.azure.waiting import Waiting
from standins.listening import Listening

CONTROL = "/_knell/"
IDENTITY = "/msi/token"
_TOKEN_LIVES = 24 * 3600


class Server(Listening):
    def __init__(
        self, behaviour: Behaviour | None = None, *, rate: float = 1.0, listener: socket.socket | None = None
    ) -> None:
        super().__init__(listener)
        self.layer = Layer(behaviour or Behaviour(), rate)
        self._waiting = Waiting()
        self._control = Control(self.layer, self._waiting)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        # Not `request.read()`, which takes a megabyte at most: worlds are made in larger pieces.
        body = await request.content.read()
        if request.path.startswith(CONTROL):
            return self._control.answer(request.method, request.path.removeprefix(CONTROL), request.query, body)
        if request.path == IDENTITY:
            return _token(request)
        call = read(request.method, request.path, request.query, request.headers, body)
        trouble: Fault | None = None
        delayed = 0.0
        for fault in self.layer.troubles(call):
            if fault.what in WAITS:
                since = time.monotonic()
                await self._waiting.delay(call.operation, fault)
                delayed += time.monotonic() - since
            else:
                trouble = fault
        answer = self.layer.answer(call, self.address, trouble, delayed)
        if answer is None:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)
        traced = {"x-ms-request-id": str(uuid.uuid4()), "x-ms-correlation-request-id": str(uuid.uuid4())}
        return web.Response(status=answer.status, body=answer.body, headers={**answer.headers, **traced})


def _token(request: web.BaseRequest) -> web.Response:
    """As App Service hands them out; who asks for an identity by its client id is that one."""
    if "X-IDENTITY-HEADER" not in request.headers:
        return web.Response(status=401, text="no X-IDENTITY-HEADER")
    asked = request.query.get("client_id") or "default"
    token = {
        "access_token": f"{TOKEN_FRONT}{asked}",
        "expires_on": str(int(time.time()) + _TOKEN_LIVES),
        "resource": request.query.get("resource", ""),
        "token_type": "Bearer",
        "client_id": asked,
    }
    return web.Response(body=msgspec.json.encode(token), content_type="application/json")
