"""HTTP endpoints of every long-running command: `/healthz`, `/readyz`, `/metrics`.
They are served before anything else starts, so that a process which can't reach its Redis is seen to live."""

from types import TracebackType
from typing import Self

import msgspec
import structlog
from aiohttp import web

from service.settings import SurfaceSettings
from service.web.health import Health
from service.web.listener import Listener
from service.web.metrics import CONTENT_TYPE, Metrics

log = structlog.get_logger(__name__)


class SurfaceFailed(Exception):
    """The port can't be had; the message says why, in one sentence."""


class Surface:
    def __init__(self, settings: SurfaceSettings, health: Health, metrics: Metrics) -> None:
        self._settings, self._health, self._metrics = settings, health, metrics
        self._listener = Listener([
            web.get("/healthz", self._alive),
            web.get("/readyz", self._ready),
            web.get("/metrics", self._numbers),
        ])  # fmt: skip
        self.port = settings.port

    async def start(self) -> Self:
        try:
            self.port = await self._listener.start(self._settings.host, self._settings.port)
        except OSError as error:
            where = f"{self._settings.host}:{self._settings.port}"
            raise SurfaceFailed(
                f"can't listen on {where} for health and metrics ({error.strerror or error}); "
                "set surface.host and surface.port (KNELL_SURFACE_PORT), 0 takes any free port"
            ) from None
        log.info("surface", host=self._settings.host, port=self.port)
        return self

    async def stop(self) -> None:
        await self._listener.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _alive(self, _request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        found = await self._health.readiness()
        body = msgspec.json.encode(found) + b"\n"
        return web.Response(body=body, status=200 if found.ready else 503, content_type="application/json")

    async def _numbers(self, _request: web.Request) -> web.Response:
        return web.Response(body=await self._metrics.page(), headers={"Content-Type": CONTENT_TYPE})
