"""HTTP server of the embedded API: authentication, parsing, and responses as JSON, as a stream or as a Status error.
One handler serves every path, since CustomResourceDefinitions add and remove paths."""

import asyncio
from typing import Final

import structlog
from aiohttp import web

from standins.kubernetes_api import discovery, paths
from standins.kubernetes_api.admission import Admission
from standins.kubernetes_api.authorization import User
from standins.kubernetes_api.controllers import Controllers
from standins.kubernetes_api.documents import encode
from standins.kubernetes_api.state import ClusterState
from standins.kubernetes_api.statuses import PageNotFound, StatusError, internal
from standins.kubernetes_api.verbs import VerbRequest, Verbs
from standins.kubernetes_api.watching import ServedWatch, lines

_LARGEST_BODY: Final = 16 * 1024 * 1024
_HEALTH: Final = frozenset({"/healthz", "/readyz", "/livez"})
_log = structlog.stdlib.get_logger(__name__)


class ApiServer:
    """Serves the cluster state on one port until stopped; the state outlives it."""

    def __init__(self, state: ClusterState, controllers: Controllers, admission: Admission, verbs: Verbs) -> None:
        self._state = state
        self._admission = admission
        self._controllers = controllers
        self._verbs = verbs

    async def serve(self, port: int, ready: asyncio.Event, stop: asyncio.Event) -> None:
        """Raises OSError if the port is taken."""
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A watch must end as soon as its client disconnects.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
            async with self._admission.serving(), asyncio.TaskGroup() as tasks:
                controllers = tasks.create_task(self._controllers.run())
                ready.set()
                await stop.wait()
                controllers.cancel()
        finally:
            self._state.store.end_readers("closed")
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except PageNotFound:
            return web.Response(text="404 page not found\n", status=404)
        except StatusError as refusal:
            return _json(refusal.body, refusal.code)
        except Exception as error:  # noqa: BLE001 - the server responds with 500 and goes on; the trace is in the log
            _log.exception("request failed", path=request.path, method=request.method)
            return _json(internal(f"Internal error occurred: {error!r}").body, 500)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in _HEALTH:
            return web.Response(text="ok")
        user = self._state.authorizer.authenticate(request.headers.get("Authorization", ""))
        target = paths.parse(request.path)
        if target is None:
            return _json(discovery.document(self._state.registry, request.path))
        answer = await self._verbs.answer(await _api_request(request, target, user))
        if isinstance(answer, ServedWatch):
            return await self._stream(request, answer)
        return web.Response(body=answer.body, status=answer.status, content_type="application/json")

    async def _stream(self, request: web.Request, watch: ServedWatch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            async for batch in lines(self._state, watch):
                await response.write(batch)
            await response.write_eof()
        except ConnectionError:
            # The client disconnected.
            pass
        return response


async def _api_request(request: web.Request, target: paths.ResourcePath, user: User) -> VerbRequest:
    return VerbRequest(
        request.method,
        target,
        dict(request.query),
        request.headers.get("Accept", ""),
        request.headers.get("Content-Type", ""),
        await request.read(),
        user,
    )


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=encode(body), status=status, content_type="application/json")
