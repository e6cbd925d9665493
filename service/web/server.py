"""HTTP server of every long-running command: `/healthz`, `/readyz` and `/metrics`.
It starts before everything else, so that the liveness probe succeeds while Redis can't be reached."""

from types import TracebackType
from typing import Self

import msgspec
import structlog
from aiohttp import web

from service.settings import SurfaceSettings
from service.web.health import Health
from service.web.listener import HttpListener
from service.web.metrics import CONTENT_TYPE, Metrics

log = structlog.get_logger(__name__)


class WebServerFailed(Exception):
    """The server can't listen on its port; the message says why, in one sentence."""


class WebServer:
    def __init__(self, settings: SurfaceSettings, health: Health, metrics: Metrics) -> None:
        self._settings, self._health, self._metrics = settings, health, metrics
        self._listener = HttpListener([
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._scrape),
        ])  # fmt: skip
        self.port = settings.port

    async def start(self) -> Self:
        try:
            self.port = await self._listener.start(self._settings.host, self._settings.port)
        except OSError as error:
            where = f"{self._settings.host}:{self._settings.port}"
            raise WebServerFailed(
                f"can't listen on {where} for health and metrics ({error.strerror or error}); "
                "set surface.host and surface.port (KNELL_SURFACE_PORT), 0 takes any free port"
            ) from None
        log.info("http server listening", host=self._settings.host, port=self.port)
        return self

    async def stop(self) -> None:
        await self._listener.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        found = await self._health.readiness()
        body = msgspec.json.encode(found) + b"\n"
        return web.Response(body=body, status=200 if found.ready else 503, content_type="application/json")

    async def _scrape(self, _request: web.Request) -> web.Response:
        return web.Response(body=await self._metrics.page(), headers={"Content-Type": CONTENT_TYPE})
