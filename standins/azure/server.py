"""HTTP server of the Azure stand-in: ARM, managed identity tokens and the control API on one port.
Requests are handled one at a time on the event loop; only those that a fault delays wait concurrently."""

import socket
import time
import uuid

import msgspec
from aiohttp import web

from standins.azure.behaviour import AzureBehaviour, AzureFault
from standins.azure.calls import TOKEN_PREFIX, parse_call
from standins.azure.control import ControlApi
from standins.azure.delayed_requests import DelayedRequests
from standins.azure.dispatch import DELAYS, AzureDispatcher
from standins.http_server import StandInServer

CONTROL = "/_knell/"
IDENTITY = "/msi/token"
_TOKEN_LIVES = 24 * 3600


class AzureServer(StandInServer):
    def __init__(
        self, behaviour: AzureBehaviour | None = None, *, rate: float = 1.0, listener: socket.socket | None = None
    ) -> None:
        super().__init__(listener)
        self.dispatcher = AzureDispatcher(behaviour or AzureBehaviour(), rate)
        self._waiting = DelayedRequests()
        self._control = ControlApi(self.dispatcher, self._waiting)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        # `request.read()` accepts a megabyte at most; bulk creation sends more.
        body = await request.content.read()
        if request.path.startswith(CONTROL):
            return self._control.answer(request.method, request.path.removeprefix(CONTROL), request.query, body)
        if request.path == IDENTITY:
            return _token(request)
        call = parse_call(request.method, request.path, request.query, request.headers, body)
        applied: AzureFault | None = None
        delayed = 0.0
        for fault in self.dispatcher.faults_for(call):
            if fault.what in DELAYS:
                since = time.monotonic()
                await self._waiting.delay(call.operation, fault)
                delayed += time.monotonic() - since
            else:
                applied = fault
        answer = self.dispatcher.answer(call, self.address, applied, delayed)
        if answer is None:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)
        traced = {"x-ms-request-id": str(uuid.uuid4()), "x-ms-correlation-request-id": str(uuid.uuid4())}
        return web.Response(status=answer.status, body=answer.body, headers={**answer.headers, **traced})


def _token(request: web.BaseRequest) -> web.Response:
    """A token as App Service issues it; the principal is the requested client id."""
    if "X-IDENTITY-HEADER" not in request.headers:
        return web.Response(status=401, text="no X-IDENTITY-HEADER")
    asked = request.query.get("client_id") or "default"
    token = {
        "access_token": f"{TOKEN_PREFIX}{asked}",
        "expires_on": str(int(time.time()) + _TOKEN_LIVES),
        "resource": request.query.get("resource", ""),
        "token_type": "Bearer",
        "client_id": asked,
    }
    return web.Response(body=msgspec.json.encode(token), content_type="application/json")
