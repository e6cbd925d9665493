"""The HTTP side: who asks, what about, and the answer as JSON, as a stream, or as a Status that refuses.
One handler serves every path, since which paths there are changes with every CustomResourceDefinition."""

import asyncio
from typing import Final

import structlog
from aiohttp import web

from standins.api import discovery, paths
from standins.api.controlling import Controllers
from standins.api.documents import encode
from standins.api.permitting import User
from standins.api.statuses import PageNotFound, Refusal, internal
from standins.api.verbs import Asking, Verbs
from standins.api.watching import Watch, lines
from standins.api.world import World

_LARGEST_BODY: Final = 16 * 1024 * 1024
_HEALTH: Final = frozenset({"/healthz", "/readyz", "/livez"})
_log = structlog.stdlib.get_logger(__name__)


class ApiServer:
    """Serves a world on one port until stopped; the world outlives it."""

    def __init__(self, world: World, controllers: Controllers, verbs: Verbs) -> None:
        self._world = world
        self._controllers = controllers
        self._verbs = verbs

    async def serve(self, port: int, ready: asyncio.Event, stop: asyncio.Event) -> None:
        """Raises OSError if the port is taken."""
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A watch must notice at once that nobody listens any more.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
            async with asyncio.TaskGroup() as tasks:
                controllers = tasks.create_task(self._controllers.run())
                ready.set()
                await stop.wait()
                controllers.cancel()
        finally:
            self._world.store.end_readers("closed")
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except PageNotFound:
            return web.Response(text="404 page not found\n", status=404)
        except Refusal as refusal:
            return _json(refusal.body, refusal.code)
        except Exception as error:  # noqa: BLE001 - a server answers 500 and lives on; the trace is for whoever reads the log
            _log.exception("request failed", path=request.path, method=request.method)
            return _json(internal(f"Internal error occurred: {error!r}").body, 500)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in _HEALTH:
            return web.Response(text="ok")
        user = self._world.permits.who(request.headers.get("Authorization", ""))
        target = paths.parse(request.path)
        if target is None:
            return _json(discovery.document(self._world.registry, request.path))
        answer = self._verbs.answer(await _asking(request, target, user))
        if isinstance(answer, Watch):
            return await self._stream(request, answer)
        return web.Response(body=answer.body, status=answer.status, content_type="application/json")

    async def _stream(self, request: web.Request, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            async for batch in lines(self._world, watch):
                await response.write(batch)
            await response.write_eof()
        except ConnectionError:
            # The caller hung up in the middle of a line: nobody is left to tell.
            pass
        return response


async def _asking(request: web.Request, target: paths.Target, user: User) -> Asking:
    return Asking(
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
